"""The places of parts, against parts listed by their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from parser.graph import CODES, FAMILIES, GraphError, ScoredGraph, all_arcs
from parser.trees import enumerate_trees


def parts_of_tree(n, tree, family):
    """Positions of all parts of a tree, by definition."""

    def children(h):
        return [m for m in range(1, n + 1) if tree[m] == h]

    def crossing(i, j):
        (a, b), (c, d) = sorted((tree[i], i)), sorted((tree[j], j))
        return a < c < b < d or c < a < d < b

    if family == "grand":
        return [(tree[tree[m]], tree[m], m) for m in range(1, n + 1) if tree[m]]
    if family == "sib":
        return [(h, a, b) for h in range(n + 1) for a in children(h) for b in children(h) if a < b]
    if family == "nocross":
        return [(i, j) for i in range(1, n + 1) for j in range(i + 1, n + 1) if crossing(i, j)]
    out = []
    for h in range(1 if family == "grandsib" else 0, n + 1):
        above = (tree[h],) if family == "grandsib" else ()
        left = [m for m in children(h) if m < h][::-1]
        right = [m for m in children(h) if m > h]
        if h:
            out += [(*above, h, *pair) for pair in zip([h, *left], [*left, -1], strict=True)]
        out += [(*above, h, *pair) for pair in zip([h, *right], [*right, n + 1], strict=True)]
    return out


def random_graph(n, rng, share):
    scores = np.where(rng.random((n + 1, n + 1)) < share, 0.0, -np.inf)
    scores[0] = 0.0
    return ScoredGraph.from_matrix(scores)


@pytest.mark.parametrize("share", [1.0, 0.6])
@pytest.mark.parametrize("family", list(CODES))
def test_the_parts_of_every_tree_have_their_places(family, share):
    rng = np.random.default_rng(0)
    for n in range(1, 5):
        graph = random_graph(n, rng, share)
        arcs = set(zip(graph.heads.tolist(), graph.modifiers.tolist(), strict=True))
        index = graph.index(family)
        assert index.shape == (len(FAMILIES[family]), graph.arcs.layout.size(CODES[family]))
        assert len(set(map(tuple, index.T.tolist()))) == index.shape[1]
        for tree in enumerate_trees(n, projective=False, single_root=False):
            if all((tree[m], m) in arcs for m in range(1, n + 1)):
                fired = graph.fired(family, np.array(tree, np.int32))
                got = sorted(map(tuple, index[:, fired].T.tolist()))
                assert got == sorted(parts_of_tree(n, tree, family))


def test_full_graphs_have_as_many_parts_as_the_families_have_factors():
    """Counts of algorithms/model.md, section 3."""
    for n in (1, 2, 3, 4, 7):
        graph = ScoredGraph.from_matrix(np.zeros((n + 1, n + 1)))
        grand = graph.index("grand")
        assert int((grand[0] != grand[2]).sum()) == n * (n - 1) ** 2
        assert graph.index("sib").shape[1] == (n * (n - 1) + n * (n - 1) * (n - 2)) // 2
        assert graph.index("nocross").shape[1] == n * (n - 1) // 2


def test_a_tree_outside_the_candidates_is_named():
    graph = random_graph(3, np.random.default_rng(0), 0.0)
    with pytest.raises(ValueError, match="the arc from 1 to 2 is not a candidate"):
        graph.fired("grand", np.array([-1, 0, 1, 0]))


def test_a_score_is_the_sum_over_arcs_and_parts():
    rng = np.random.default_rng(0)
    graph = ScoredGraph.from_matrix(rng.normal(size=(5, 5)))
    parts = {f: rng.normal(size=graph.arcs.layout.size(c)) for f, c in CODES.items()}
    graph = ScoredGraph(graph.arcs, graph.scores, parts=parts)
    tree = np.array([-1, 2, 0, 2, 1], np.int32)
    expected = graph.matrix()[tree[1:], np.arange(1, 5)].sum()
    for family, scores in parts.items():
        where = {tuple(p): i for i, p in enumerate(graph.index(family).T.tolist())}
        expected += sum(scores[where[p]] for p in parts_of_tree(4, tree.tolist(), family))
    assert graph.score(tree) == pytest.approx(expected)
    indicator = graph.indicator(tree)
    assert sum(float(v @ indicator[f]) for f, v in graph.values.items()) == pytest.approx(expected)


def test_arcs_can_be_selected_and_added_again():
    full = all_arcs(4)
    few = full.select(full.heads == 0)
    assert few.heads.tolist() == [0, 0, 0, 0]
    more = few.including(np.array([-1, 2, 0, 2, 3]))
    pairs = list(zip(more.heads.tolist(), more.modifiers.tolist(), strict=True))
    assert pairs == [(0, 1), (2, 1), (0, 2), (0, 3), (2, 3), (0, 4), (3, 4)]
    assert more.offsets.tolist() == [0, 2, 3, 5, 7]
    with pytest.raises(GraphError, match="word 2 is left without a possible head"):
        full.select(full.modifiers != 2)


def test_parts_that_will_not_fit_are_refused_with_their_size():
    with pytest.raises(
        GraphError, match=r"400 words with 160000 candidate arcs have \d+ parts gra"
    ):
        all_arcs(400).check_size(["link", "grandsib"])
