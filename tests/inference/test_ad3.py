"""AD3 against enumeration and linear programs."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations

import numpy as np
import pytest

from parser.graph import CHILDSEQ, GRAND, GRANDSIB, NOCROSS, PAIR, SIB, GraphError, ScoredGraph
from parser.inference import NoTreeError
from parser.inference.ad3 import AD3, ALTERNATING_DIRECTIONS
from parser.inference.dual_decomposition import DualDecomposition
from parser.inference.integer_program import LINEAR_PROGRAM
from parser.trees import is_tree
from tests.inference.factor_graph import random_graph, trees_of

PARTS = (SIB, CHILDSEQ, GRAND, GRANDSIB, NOCROSS)
SUBSETS = list(chain.from_iterable(combinations(PARTS, size) for size in range(6)))
subsets = pytest.mark.parametrize("families", SUBSETS, ids=lambda f: "+".join(f) or "link")
LONG = AD3(iterations=5000, residual=1e-7, interval=20)


def optimum(graph):
    """The score of the best tree over the candidate arcs."""
    return max(graph.score(np.array(tree, np.int32)) for tree in trees_of(graph))


@subsets
def test_bounds_hold_and_what_is_certified_is_best(families):
    rng = np.random.default_rng(1)
    certified = 0
    for i, n in enumerate([1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4]):
        graph = random_graph(
            rng,
            n,
            families,
            projective=i % 3 == 2,
            single_root=i % 2 == 0,
            arcs=None if i % 4 else n * n - n,
        )
        best = optimum(graph)
        result = ALTERNATING_DIRECTIONS.best(graph)
        assert is_tree(result.heads)
        assert result.score == pytest.approx(graph.score(result.heads), abs=1e-9)
        assert result.certificate.primal == result.score <= best + 1e-9
        assert result.certificate.dual >= best - 1e-9
        assert result.converged == result.certificate.optimal
        if result.converged:
            certified += 1
            assert result.score == pytest.approx(best, abs=1e-8)
    assert certified >= 3


@pytest.mark.parametrize(
    "families",
    [
        (),
        (CHILDSEQ,),
        (GRAND,),
        (SIB,),
        (SIB, GRAND),
        (CHILDSEQ, GRAND),
        (CHILDSEQ, GRAND, GRANDSIB),
    ],
    ids=lambda f: "+".join(f) or "link",
)
def test_it_ends_at_the_optimum_of_the_linear_program(families):
    rng = np.random.default_rng(2)
    for _ in range(5):
        graph = random_graph(rng, 4, families)
        value = LINEAR_PROGRAM.best(graph).certificate.dual
        result = LONG.best(graph)
        assert result.certificate.dual == pytest.approx(value, abs=1e-4)


def test_its_values_satisfy_what_all_trees_satisfy():
    rng = np.random.default_rng(3)
    for _ in range(10):
        graph = random_graph(rng, 5, (CHILDSEQ, GRAND))
        values = LONG.best(graph).arc_values
        assert (values > -1e-4).all()
        assert np.bincount(graph.modifiers, values)[1:] == pytest.approx(1, abs=1e-3)
        assert values[graph.heads == 0].sum() == pytest.approx(1, abs=1e-3)


def test_its_dual_is_that_of_dual_decomposition_in_fewer_iterations():
    rng = np.random.default_rng(4)
    subgradients = DualDecomposition(sweeps=0, nodes=0)
    ours, theirs = 0, 0
    for _ in range(10):
        graph = random_graph(rng, 10, (CHILDSEQ, GRAND), scale=0.5)
        graph = replace(graph, scores=8.0 * graph.scores)  # arcs decide nearly all, as if trained
        a, b = ALTERNATING_DIRECTIONS.best(graph), subgradients.best(graph)
        if a.converged and b.converged:
            assert a.score == pytest.approx(b.score)
            ours, theirs = ours + a.iterations, theirs + b.iterations
    assert 0 < ours < theirs


def test_the_unit_of_the_scores_does_not_matter():
    rng = np.random.default_rng(5)
    for _ in range(5):
        graph = random_graph(rng, 5, (CHILDSEQ, GRAND, SIB))
        small, large = (ALTERNATING_DIRECTIONS.best(g) for g in (graph, graph.scaled(1024.0)))
        assert small.heads.tolist() == large.heads.tolist()
        assert small.iterations == large.iterations


def test_branch_and_bound_proves_where_asked_to_and_no_program_is_needed(monkeypatch):
    monkeypatch.delattr("parser.inference.dual_decomposition.decide")
    rng = np.random.default_rng(8)
    proved = 0
    for families in ((CHILDSEQ,), (CHILDSEQ, GRAND, GRANDSIB)):
        for _ in range(10):
            graph = random_graph(rng, 4, families)
            result = AD3(exact="yes").best(graph)
            assert result.converged
            assert result.score == pytest.approx(optimum(graph), abs=1e-9)
            assert result.score == pytest.approx(graph.score(result.heads), abs=1e-9)
            proved += not ALTERNATING_DIRECTIONS.best(graph).converged
    assert proved > 3


def test_an_integer_program_decides_where_asked_to():
    rng = np.random.default_rng(8)
    engine = ALTERNATING_DIRECTIONS.proving()
    for _ in range(10):
        graph = random_graph(rng, 4, (SIB, GRAND, NOCROSS))
        result = engine.best(graph)
        assert result.converged
        assert result.score == pytest.approx(optimum(graph), abs=1e-6)


def test_long_sentences_and_large_scores_stay_finite():
    rng = np.random.default_rng(6)
    for n, scale in ((60, 1.0), (20, 1e4)):
        graph = random_graph(rng, n, (CHILDSEQ, GRAND), arcs=5 * n, scale=scale)
        result = AD3(iterations=20).best(graph)
        assert is_tree(result.heads)
        assert np.isfinite(result.certificate.gap)
        assert np.isfinite(result.arc_values).all()


def test_candidate_arcs_without_a_tree_are_refused():
    cycle = np.full((4, 4), -np.inf)
    cycle[0, 1] = cycle[2, 3] = cycle[3, 2] = 1.0
    with pytest.raises(NoTreeError):
        ALTERNATING_DIRECTIONS.best(ScoredGraph.from_matrix(cycle))


def test_what_it_cannot_use_is_refused():
    rng = np.random.default_rng(7)
    graph = random_graph(rng, 3, ())
    pairs = replace(graph, parts={PAIR: np.zeros(1)}, pairs=np.array([[0], [4]], np.int32))
    with pytest.raises(GraphError, match="cannot use the factor family pair"):
        ALTERNATING_DIRECTIONS.best(pairs)
    with pytest.raises(ValueError, match="not finite"):
        ALTERNATING_DIRECTIONS.best(replace(graph, scores=np.full(len(graph.scores), -np.inf)))
    with pytest.raises(ValueError, match="eta: above 0"):
        AD3(eta=0.0)
