"""The sibling engine beyond what test_second_order.py says of all exact engines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp

from cython_ext import sibling
from parser.graph import CHILDSEQ, CODES, GRAND, GraphError, ScoredGraph
from parser.inference import projective
from parser.inference.second_order import SIBLING
from parser.trees import enumerate_trees

roots = pytest.mark.parametrize(
    "single_root", [pytest.param(True, id="single-root"), pytest.param(False, id="multi-root")]
)


def random_graph(rng, n, single_root, forbidden=()):
    """Normal scores for all arcs but the forbidden (head, modifier), and for their parts."""
    scores = rng.normal(size=(n + 1, n + 1))
    for arc in forbidden:
        scores[arc] = -np.inf
    graph = ScoredGraph.from_matrix(scores, projective=True, single_root=single_root)
    size = graph.arcs.layout.size(CODES[CHILDSEQ])
    return replace(graph, parts={CHILDSEQ: rng.normal(size=size)})


def by_positions(graph, values):
    return dict(zip(map(tuple, graph.index(CHILDSEQ).T.tolist()), values.tolist(), strict=True))


def mirrored(n, head, inner, outer):
    """A CHILDSEQ part seen from the other end of the sentence; the root stays on the left."""

    def word(x):
        return n + 1 - x if 0 < x <= n else x

    if head:
        start = word(inner) if inner != head else word(head)
        return word(head), start, {-1: n + 1, n + 1: -1}.get(outer, word(outer))
    # The root's children are on its right in either case, so that START and END change places.
    return 0, word(outer) if outer <= n else 0, word(inner) if inner else n + 1


@roots
def test_a_sentence_read_backwards_has_the_mirrored_trees(single_root):
    n = 9
    turned = np.array([0, *range(n, 0, -1)])
    graph = random_graph(np.random.default_rng(0), n, single_root, [(3, 5), (7, 2), (0, 4)])
    parts = by_positions(graph, graph.parts[CHILDSEQ])
    scores = graph.matrix()[np.ix_(turned, turned)]
    other = ScoredGraph.from_matrix(scores, projective=True, single_root=single_root)
    places = [mirrored(n, *part) for part in other.index(CHILDSEQ).T.tolist()]
    other = replace(other, parts={CHILDSEQ: np.array([parts[place] for place in places])})

    a, b = SIBLING.best(graph), SIBLING.best(other)
    assert a.score == pytest.approx(b.score, rel=1e-12)
    assert a.heads[1:].tolist() == turned[b.heads[:0:-1]].tolist()
    a, b = SIBLING.expectations(graph), SIBLING.expectations(other)
    assert a.log_z == pytest.approx(b.log_z, rel=1e-12)
    ours = by_positions(graph, a.part_marginals[CHILDSEQ])
    np.testing.assert_allclose(
        b.part_marginals[CHILDSEQ], [ours[place] for place in places], rtol=0, atol=1e-12
    )


@roots
def test_a_full_graph_gives_what_it_gives_without_an_arc_of_no_weight(single_root):
    # Full graphs are summed in place, others by copies: two ways through the kernel.
    rng = np.random.default_rng(1)
    for n in (2, 3, 5, 8, 13, 22):
        pruned = random_graph(rng, n, single_root, [(n, n - 1)])
        full = random_graph(rng, n, single_root)
        known = by_positions(pruned, pruned.parts[CHILDSEQ])
        parts = [known.get(tuple(part), 0.0) for part in full.index(CHILDSEQ).T.tolist()]
        scores = full.gather(np.maximum(pruned.matrix(), -1e4))
        full = replace(full, scores=scores, parts={CHILDSEQ: np.array(parts)})
        assert SIBLING.best(full).heads.tolist() == SIBLING.best(pruned).heads.tolist()
        a, b = SIBLING.expectations(full), SIBLING.expectations(pruned)
        assert a.log_z == pytest.approx(b.log_z, rel=1e-12)
        np.testing.assert_allclose(pruned.gather(full.spread(a.marginals)), b.marginals, atol=1e-11)
        ours = by_positions(full, a.part_marginals[CHILDSEQ])
        theirs = by_positions(pruned, b.part_marginals[CHILDSEQ])
        np.testing.assert_allclose([ours[p] for p in theirs], list(theirs.values()), atol=1e-11)


@roots
def test_absent_parts_are_parts_of_score_zero(single_root):
    graph = random_graph(np.random.default_rng(2), 14, single_root)
    absent = replace(graph, parts={})
    heads, score = projective.best_tree(graph.matrix(), single_root=single_root)
    best = SIBLING.best(absent)
    assert (best.heads.tolist(), best.score) == (heads.tolist(), pytest.approx(score, rel=1e-12))
    result = SIBLING.expectations(absent)
    mu, log_z = projective.marginals(graph.matrix(), single_root=single_root)
    assert result.log_z == pytest.approx(log_z, rel=1e-12)
    assert result.part_marginals == {}
    np.testing.assert_allclose(result.marginals, graph.gather(mu), rtol=0, atol=1e-11)


@roots
@pytest.mark.parametrize("forbidden", [[], [(2, 4)]], ids=["full", "pruned"])
def test_forbidden_parts_are_in_no_tree(single_root, forbidden):
    rng = np.random.default_rng(3)
    for _ in range(5):
        graph = random_graph(rng, 4, single_root, forbidden)
        graph.parts[CHILDSEQ][rng.random(len(graph.parts[CHILDSEQ])) < 0.2] = -np.inf
        arcs = set(zip(graph.heads.tolist(), graph.modifiers.tolist(), strict=True))
        every = [
            np.asarray(tree)
            for tree in enumerate_trees(4, projective=True, single_root=single_root)
            if arcs.issuperset(zip(tree[1:], range(1, 5), strict=True))
        ]
        totals = np.array([graph.score(tree) for tree in every])
        assert (totals == -np.inf).any()
        if totals.max() == -np.inf:
            continue
        assert SIBLING.best(graph).score == pytest.approx(totals.max(), rel=1e-12)
        result = SIBLING.expectations(graph)
        assert result.log_z == pytest.approx(logsumexp(totals), rel=1e-12)
        by_definition = sum(
            np.exp(total - logsumexp(totals)) * graph.indicator(tree)[CHILDSEQ]
            for tree, total in zip(every, totals, strict=True)
        )
        np.testing.assert_allclose(
            result.part_marginals[CHILDSEQ], by_definition, rtol=0, atol=1e-11
        )


@roots
def test_each_marginal_is_the_derivative_of_log_z_by_its_score(single_root):
    graph = random_graph(np.random.default_rng(4), 4, single_root, [(4, 1)])
    result = SIBLING.expectations(graph)
    marginals = {"link": result.marginals, **result.part_marginals}
    for family, of_family in marginals.items():
        for i, marginal in enumerate(of_family):
            ends = []
            for step in (1e-5, -1e-5):
                moved = graph.values[family].copy()
                moved[i] += step
                if family == "link":
                    ends.append(SIBLING.expectations(replace(graph, scores=moved)).log_z)
                else:
                    ends.append(SIBLING.expectations(replace(graph, parts={family: moved})).log_z)
            assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(marginal, abs=1e-8)


@roots
@pytest.mark.parametrize("forbidden", [[], [(3, 2)]], ids=["full", "pruned"])
def test_of_equal_trees_it_is_the_one_of_the_innermost_children(single_root, forbidden):
    graph = random_graph(np.random.default_rng(5), 4, single_root, forbidden).scaled(0.0)
    assert SIBLING.best(graph).heads.tolist() == [-1, 0, 1, 2, 3]


def test_what_the_engine_cannot_use_is_refused_by_name():
    graph = random_graph(np.random.default_rng(6), 3, True)
    for call in (SIBLING.best, SIBLING.expectations):
        with pytest.raises(GraphError, match="sibling cannot use the factor family grand"):
            call(replace(graph, parts={GRAND: np.zeros(graph.arcs.layout.size(CODES[GRAND]))}))
        with pytest.raises(GraphError, match="sibling cannot keep to non-projective trees"):
            call(replace(graph, projective=False))


def test_part_scores_and_room_for_their_marginals_go_together():
    graph = random_graph(np.random.default_rng(7), 3, True)
    mu, parts = np.zeros(len(graph.scores)), graph.parts[CHILDSEQ]
    for scores, room in ((parts, None), (None, np.zeros(len(parts)))):
        with pytest.raises(ValueError, match="go together"):
            sibling.expectations(graph.arcs.layout, graph.scores, scores, True, mu, room)
