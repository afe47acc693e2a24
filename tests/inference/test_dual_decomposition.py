"""Dual decomposition against enumeration, and against integer programs on trained graphs."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations

import numpy as np
import pytest

from cython_ext.lagrangian import RULES
from parser.graph import (
    CHILDSEQ,
    CODES,
    GRAND,
    GRANDSIB,
    LINK,
    SIB,
    GraphError,
    ScoredGraph,
    all_arcs,
)
from parser.inference import NoTreeError, default_engine, find_engine, integer_program
from parser.inference.dual_decomposition import DUAL_DECOMPOSITION, DualDecomposition
from parser.inference.integer_program import LINEAR_PROGRAM, IntegerProgram
from parser.learning import Trainer
from parser.model import Parser, Settings
from parser.treebank import read_all
from parser.trees import is_tree
from tests.inference.factor_graph import random_graph, trees_of

PARTS = (CHILDSEQ, GRAND, GRANDSIB)
SUBSETS = list(chain.from_iterable(combinations(PARTS, size) for size in range(4)))
KINDS = [(projective, single) for projective in (False, True) for single in (False, True)]
subsets = pytest.mark.parametrize("families", SUBSETS, ids=lambda f: "+".join(f) or "link")
kinds = pytest.mark.parametrize(
    ("projective", "single_root"),
    KINDS,
    ids=lambda flag: "yes" if flag else "no",
)
SEARCH = DualDecomposition(exact="yes")
SUBGRADIENTS = DualDecomposition(sweeps=0, nodes=0)


def optimum(graph):
    """The score of the best tree over the candidate arcs."""
    return max(graph.score(np.array(tree, np.int32)) for tree in trees_of(graph))


def check(graph, result):
    """That a result is a tree of the graph, between its bounds."""
    tree = result.heads
    assert is_tree(tree)
    assert tree[0] == -1
    assert not graph.single_root or (tree[1:] == 0).sum() == 1
    assert result.score == pytest.approx(graph.score(tree), abs=1e-9)
    assert result.certificate.primal == result.score
    assert result.converged == result.certificate.optimal


@subsets
@kinds
def test_bounds_hold_and_what_is_certified_is_best(families, projective, single_root):
    rng = np.random.default_rng(3)
    for n, count in ((1, 3), (2, 20), (3, 50), (4, 60)):
        for i in range(count):
            graph = random_graph(
                rng,
                n,
                families,
                projective=projective,
                single_root=single_root,
                arcs=None if i % 2 else n * n - n // 2,
            )
            best = optimum(graph)
            result = DUAL_DECOMPOSITION.best(graph)
            check(graph, result)
            assert result.score <= best + 1e-9
            assert result.certificate.dual >= best - 1e-9
            if result.converged:
                assert result.score == pytest.approx(best, abs=1e-9)
            exact = SEARCH.best(graph)
            check(graph, exact)
            assert exact.converged
            assert exact.score == pytest.approx(best, abs=1e-9)


@subsets
@kinds
def test_bounds_hold_however_early_it_stops(families, projective, single_root):
    rng = np.random.default_rng(13)
    relaxed = 0
    for _ in range(20):
        graph = random_graph(rng, 4, families, projective=projective, single_root=single_root)
        best = optimum(graph)
        for sweeps, nodes in ((0, 0), (1, 0), (6, 0), (40, 0), (1, 1), (1, 3), (2, 100)):
            result = DualDecomposition(1, sweeps=sweeps, nodes=nodes).solve(graph)
            check(graph, result)
            assert result.score <= best + 1e-9
            assert result.certificate.dual >= best - 1e-9
            relaxed += result.converged and nodes == 0 < sweeps
        assert result.converged  # the last one's
    assert relaxed > 2 or projective  # where words are not as good as a tree


def test_branches_prove_what_one_relaxation_does_not():
    rng = np.random.default_rng(14)
    relaxed = 0
    for _ in range(30):
        graph = random_graph(rng, 6, PARTS)
        relaxed += DualDecomposition(nodes=0).best(graph).converged
        assert DUAL_DECOMPOSITION.best(graph).converged
    assert 0 < relaxed < 15


# Candidate arcs under which words have one head each but for some: 1 -> 2 would close a cycle with
# 2 -> 1; next to 0 -> 1, 0 -> 2 would be a second root.
KNOWN_HEADS = {
    "cycle": (5, False, [(2, 1), (1, 2), (3, 2), (0, 3), (4, 3), (0, 4), (3, 4), (3, 5), (4, 5)]),
    "root": (3, True, [(0, 1), (0, 2), (1, 2), (3, 2), (2, 3), (1, 3)]),
}


@pytest.mark.parametrize("case", KNOWN_HEADS)
@pytest.mark.parametrize("families", [(CHILDSEQ,), (CHILDSEQ, GRAND)])
def test_arcs_that_known_heads_rule_out_do_not_keep_bounds_apart(case, families):
    n, single_root, arcs = KNOWN_HEADS[case]
    rng = np.random.default_rng(2)
    certified = 0
    for _ in range(50):
        matrix = np.full((n + 1, n + 1), -np.inf)
        for head, modifier in arcs:
            matrix[head, modifier] = rng.normal()
        matrix[{"cycle": 1, "root": 0}[case], 2] = 8.0
        graph = ScoredGraph.from_matrix(matrix, single_root=single_root)
        parts = {f: rng.normal(size=graph.arcs.layout.size(CODES[f])) for f in families}
        graph = replace(graph, parts=parts)
        result = DualDecomposition(sweeps=5, nodes=0, iterations=1).solve(graph)
        check(graph, result)
        assert result.certificate.dual >= optimum(graph) - 1e-9
        certified += result.converged
        whole = DUAL_DECOMPOSITION.best(graph)
        assert whole.converged
        assert whole.score == pytest.approx(optimum(graph), abs=1e-9)
    assert certified >= 35


def test_a_forbidden_arc_is_as_good_as_none():
    rng = np.random.default_rng(15)
    for families in SUBSETS:
        for _ in range(10):
            graph = random_graph(rng, 4, families)
            scores = np.where(rng.random(len(graph.scores)) < 0.3, -np.inf, graph.scores)
            trees = [np.array(tree, np.int32) for tree in trees_of(graph)]
            graph = replace(graph, scores=scores)
            best = max(graph.score(tree) for tree in trees)
            for engine in (SUBGRADIENTS, DUAL_DECOMPOSITION):
                if best == -np.inf:
                    assert engine.solve(graph) is None
                else:
                    result = engine.solve(graph)
                    assert result.certificate.dual >= best - 1e-9
                    assert result.score <= best + 1e-9


@pytest.mark.parametrize("rule", RULES)
def test_the_dual_is_a_bound_in_every_iteration_under_every_rule(rule):
    rng = np.random.default_rng(4)
    for _ in range(10):
        graph = random_graph(rng, 4, PARTS)
        best = optimum(graph)
        duals = []
        for iterations in range(1, 30):
            result = replace(SUBGRADIENTS, iterations=iterations, rule=rule, split=0.5).best(graph)
            assert result.certificate.dual >= best - 1e-9
            duals.append(result.certificate.dual)
        assert (np.diff(duals) <= 1e-9).all()
        if rule not in ("constant", "halving"):  # the one stays where it is, the other stops early
            assert duals[-1] < duals[0] - 1e-3 or result.converged


@subsets
def test_the_dual_goes_to_the_value_of_the_linear_program(families):
    rng = np.random.default_rng(5)
    for _ in range(6):
        graph = random_graph(rng, 4, families, projective=False)
        value = LINEAR_PROGRAM.best(graph).certificate.dual
        result = replace(SUBGRADIENTS, iterations=20000, rule="dual-progress").best(graph)
        if not result.converged:
            assert result.certificate.dual == pytest.approx(value, abs=0.15)  # steps shrink
        assert result.certificate.dual >= value - 1e-5


def test_arcs_alone_are_solved_in_one_iteration():
    rng = np.random.default_rng(6)
    for n in (1, 2, 5, 40):
        graph = random_graph(rng, n, ())
        result = DualDecomposition(split=0.0).best(graph)
        assert result.score == pytest.approx(find_engine("mst").best(graph).score)


def test_the_unit_of_the_scores_does_not_matter():
    rng = np.random.default_rng(7)
    for _ in range(10):
        graph = random_graph(rng, 6, PARTS)
        small, large = DUAL_DECOMPOSITION.best(graph), DUAL_DECOMPOSITION.best(graph.scaled(1024.0))
        assert small.heads.tolist() == large.heads.tolist()
        assert small.iterations == large.iterations
        assert 1024.0 * small.certificate.dual == pytest.approx(large.certificate.dual)


def test_a_certificate_can_be_checked_from_its_multipliers():
    rng = np.random.default_rng(8)
    certified = 0
    for _ in range(40):
        graph = random_graph(rng, 5, PARTS)
        for engine in (DUAL_DECOMPOSITION, SUBGRADIENTS):
            result = engine.best(graph, multipliers=True)
            proof = engine.certifies(graph, result.heads, result.multipliers)
            assert proof == result.converged
            certified += proof
            other = find_engine("mst").best(replace(graph, parts={})).heads
            if graph.score(other) < result.score - 1e-6:
                assert not engine.certifies(graph, other, result.multipliers)
    assert certified > 50


def test_multipliers_that_are_not_asked_for_change_nothing_else():
    rng = np.random.default_rng(16)
    without = 0
    for engine in (DUAL_DECOMPOSITION, DualDecomposition(nodes=0, iterations=5)):
        for _ in range(20):
            graph = random_graph(rng, 6, PARTS)
            asked, other = engine.best(graph, multipliers=True), engine.best(graph)
            assert other.heads.tolist() == asked.heads.tolist()
            assert other.certificate == asked.certificate
            assert other.iterations == asked.iterations
            assert asked.multipliers.shape == (2, len(graph.scores))
            without += other.multipliers is None
    assert 20 <= without < 40


def test_automata_that_agree_are_not_solved_again():
    rng = np.random.default_rng(9)
    graph = random_graph(rng, 12, PARTS)
    result = replace(SUBGRADIENTS, iterations=100).best(graph)
    assert len(result.resolved) == result.iterations
    assert result.resolved[0] == 1.0
    assert 0 < result.resolved[1:].mean() < 1


def test_projective_answers_are_those_of_the_dynamic_program():
    rng = np.random.default_rng(10)
    exact = default_engine(projective=True, families=(LINK, *PARTS))
    for n in (5, 6, 7):
        for _ in range(4):
            graph = random_graph(rng, n, PARTS, projective=True)
            best = exact.best(graph).score
            assert DUAL_DECOMPOSITION.best(graph).certificate.dual >= best - 1e-9
            assert SEARCH.best(graph).score == pytest.approx(best)


def test_where_search_is_cut_short_an_integer_program_decides(monkeypatch):
    monkeypatch.setattr("parser.inference.dual_decomposition.PROOF_NODES", 1)
    asked = []

    def decide(*args):
        asked.append(args)
        return integer_program.decide(*args)

    monkeypatch.setattr("parser.inference.dual_decomposition.decide", decide)
    rng = np.random.default_rng(11)
    short = DualDecomposition(iterations=3, exact="yes", nodes=1)
    for _ in range(40):
        graph = random_graph(rng, 5, PARTS)
        result = short.best(graph)
        check(graph, result)
        assert result.converged
        assert result.score == pytest.approx(optimum(graph), abs=1e-9)
    assert 5 < len(asked) < 40


def test_large_scores_and_many_words():
    rng = np.random.default_rng(12)
    for n, scale in ((30, 1e4), (120, 1.0)):
        graph = random_graph(rng, n, (CHILDSEQ, GRAND), arcs=5 * n, scale=scale)
        result = DualDecomposition(50).best(graph, multipliers=True)
        check(graph, result)
        assert np.isfinite(result.multipliers).all()


def test_candidate_arcs_without_a_tree_are_refused():
    cycle = np.full((4, 4), -np.inf)
    cycle[0, 1] = cycle[2, 3] = cycle[3, 2] = 1.0
    with pytest.raises(NoTreeError):
        DUAL_DECOMPOSITION.best(ScoredGraph.from_matrix(cycle))


def test_what_it_cannot_use_is_refused():
    graph = ScoredGraph(all_arcs(3), np.zeros(9))
    other = replace(graph, parts={SIB: np.zeros(graph.arcs.layout.size(CODES[SIB]))})
    with pytest.raises(GraphError, match="cannot use the factor family sib"):
        DUAL_DECOMPOSITION.best(other)
    with pytest.raises(ValueError, match="not finite"):
        DUAL_DECOMPOSITION.best(replace(graph, scores=np.full(9, np.nan)))
    with pytest.raises(ValueError, match="rule: one of constant"):
        DualDecomposition(rule="newton")
    with pytest.raises(ValueError, match="split: 0 to 1"):
        DualDecomposition(split=2.0)
    with pytest.raises(ValueError, match="nodes: 0 or more, and 0 without sweeps"):
        DualDecomposition(sweeps=0)


@pytest.mark.slow
def test_on_trained_graphs_certificates_agree_with_integer_programs(shared):
    """500 sentences of up to 11 words, by a model trained on a few hundred others."""
    folder = shared / "treebanks" / "ud"
    train = read_all([str(folder / "la_perseus-ud-train.conllu.xz")])[:500]
    test = read_all([str(folder / "la_perseus-ud-test.conllu.xz")])
    settings = Settings(epochs=3, labelled=False, engine="dual-decomposition", bits=18)
    model = Trainer(settings, train).run()
    sentences = [sentence for sentence in test if len(sentence) <= 11][:500]
    assert len(sentences) == 500
    program = IntegerProgram()
    certified = 0
    for graph in Parser(model).graphs(sentences):
        result = DUAL_DECOMPOSITION.best(graph)
        exact = program.best(graph)
        assert exact.converged
        assert result.certificate.dual >= exact.score - 1e-6
        if result.converged:
            certified += 1
            assert result.score == pytest.approx(exact.score, abs=1e-6)
        assert SEARCH.best(graph).score == pytest.approx(exact.score, abs=1e-6)
    assert certified >= 450
