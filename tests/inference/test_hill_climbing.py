"""Hill climbing against its definition: every tree one change away, scored as a whole."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from cython_ext import climb
from parser.graph import (
    CHILDSEQ,
    CODES,
    GRAND,
    GRANDSIB,
    LINK,
    NOCROSS,
    SIB,
    GraphError,
    ScoredGraph,
)
from parser.inference.arrays import NoTreeError
from parser.inference.hill_climbing import HILL_CLIMBING, PARTS, HillClimbing
from parser.trees import enumerate_trees, is_projective, is_tree

EVERY = tuple(CODES)
FAMILIES = [(), *((family,) for family in EVERY), EVERY]

families_ = pytest.mark.parametrize("families", FAMILIES, ids=lambda f: "+".join(f) or LINK)
kinds = pytest.mark.parametrize("projective", [False, True], ids=["non-projective", "projective"])
roots = pytest.mark.parametrize("single_root", [True, False], ids=["single-root", "multi-root"])


def random_graph(rng, n, families, projective, single_root, keep=1.0):
    """Normal scores; each arc is a candidate with probability ``keep``."""
    allowed = (rng.random((n + 1, n + 1)) < keep) & ~np.eye(n + 1, dtype=bool)
    for m in range(1, n + 1):
        if not allowed[:, m].any():
            allowed[rng.choice([h for h in range(n + 1) if h != m]), m] = True
    scores = np.where(allowed, rng.normal(size=allowed.shape), -np.inf)
    graph = ScoredGraph.from_matrix(scores, projective=projective, single_root=single_root)
    sizes = {family: graph.arcs.layout.size(CODES[family]) for family in families}
    return replace(graph, parts={f: rng.normal(size=size) for f, size in sizes.items()})


def graphs(families, projective, single_root):
    """Graphs of one to six words, with all arcs and with some."""
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 4, 5, 6):
        for keep in (1.0, 0.6, 0.4):
            yield random_graph(rng, n, families, projective, single_root, keep)


def is_wanted(tree, graph):
    return (
        is_tree(tree.tolist())
        and (not graph.projective or is_projective(tree.tolist()))
        and (not graph.single_root or (tree == 0).sum() == 1)
    )


def neighbours(tree, graph):
    """Every tree one change away: by word, then by head."""
    arcs = set(zip(graph.heads.tolist(), graph.modifiers.tolist(), strict=True))
    root = int(np.flatnonzero(tree == 0)[0])
    for h, m in zip(graph.heads, graph.modifiers, strict=True):
        other = tree.copy()
        other[m] = h
        if graph.single_root and h == 0 and (m, root) in arcs:
            other[root] = m
        if not np.array_equal(other, tree) and is_wanted(other, graph):
            yield other


def ascend(tree, graph):
    """Steepest ascent by definition: the last tree, and the moves to it."""
    for moves in range(100):
        scored = [(graph.score(other), other) for other in neighbours(tree, graph)]
        best, other = max(scored, key=lambda pair: pair[0], default=(-np.inf, tree))
        if best <= graph.score(tree) + 1e-10:
            return tree, moves
        tree = other
    raise AssertionError("the ascent does not end")


@functools.cache
def trees(n, projective, single_root):
    every = enumerate_trees(n, projective=projective, single_root=single_root)
    return np.array(list(every), np.int32)


def best_of_all(graph):
    """Score of the best tree over all arcs."""
    return max(map(graph.score, trees(graph.n, graph.projective, graph.single_root)))


def climb_from(tree, graph):
    """End, score, moves, gain."""
    heads = tree.copy()
    parts = map(graph.parts.get, PARTS)
    kinds = (graph.projective, graph.single_root)
    return heads, *climb.climb(graph.arcs.layout, graph.scores, *parts, *kinds, heads)


@families_
@kinds
@roots
@pytest.mark.parametrize("start", ["projective", "mst"])
def test_it_is_steepest_ascent_over_whole_scores(families, projective, single_root, start):
    engine, climbed = HillClimbing(start), 0
    for graph in graphs(families, projective, single_root):
        try:
            begin = engine.begin(graph)
        except NoTreeError:
            with pytest.raises(NoTreeError, match="no tree possible"):
                engine.best(graph)
            continue
        result = engine.best(graph)
        end, moves = ascend(begin, graph)
        assert (result.heads.tolist(), result.moves) == (end.tolist(), moves)
        assert result.heads.dtype == np.int32
        assert is_wanted(result.heads, graph)
        assert result.score == pytest.approx(graph.score(end), rel=1e-12, abs=1e-12)
        assert result.gained == pytest.approx(graph.score(end) - graph.score(begin), abs=1e-12)
        assert (result.gained > 0) == (moves > 0)
        assert result.iterations == moves + 1
        climbed += 1
    assert climbed >= 9


@families_
@kinds
@roots
def test_many_moves_from_a_bad_tree_are_those_of_the_definition(families, projective, single_root):
    rng = np.random.default_rng(1)
    moved = 0
    for n, keep in ((5, 1.0), (6, 1.0), (7, 0.7)):
        graph = random_graph(rng, n, families, projective, single_root, keep)
        begin = HillClimbing("mst").begin(graph.scaled(-1.0))
        heads, score, moves, gained = climb_from(begin, graph)
        end, moves_by_definition = ascend(begin, graph)
        assert (heads.tolist(), moves) == (end.tolist(), moves_by_definition)
        assert score == pytest.approx(graph.score(end), rel=1e-12)
        assert score - gained == pytest.approx(graph.score(begin), rel=1e-12)
        moved += moves
    assert moved >= 3


@kinds
@roots
@pytest.mark.parametrize("families", [(), (CHILDSEQ,), (GRAND,), (CHILDSEQ, GRAND, GRANDSIB)])
def test_a_projective_start_is_the_best_projective_tree(families, projective, single_root):
    rng = np.random.default_rng(2)
    for extra in ((), (SIB, NOCROSS)):
        graph = random_graph(rng, 4, (*families, *extra), projective, single_root)
        parts = {family: graph.parts[family] for family in families}
        exact = replace(graph, projective=True, parts=parts)
        begin = HILL_CLIMBING.begin(graph)
        assert is_wanted(begin, exact)
        assert exact.score(begin) == pytest.approx(best_of_all(exact), rel=1e-12)
        if projective and not extra:
            assert HILL_CLIMBING.best(graph).moves == 0


@kinds
@roots
@pytest.mark.parametrize(
    "families",
    [(GRAND,), (CHILDSEQ, GRAND), (CHILDSEQ, GRAND, GRANDSIB), EVERY],
    ids=lambda families: "+".join(families),
)
def test_program_and_climb_in_one_call_are_one_after_the_other(families, projective, single_root):
    rng = np.random.default_rng(8)
    moves = 0
    for n, keep in ((2, 1.0), (9, 0.7), (15, 0.6), (30, 0.5)):
        graph = random_graph(rng, n, families, projective, single_root, keep)
        result = HILL_CLIMBING.best(graph)
        two = HILL_CLIMBING.climb(graph, HILL_CLIMBING.begin(graph))
        assert (result.heads.tolist(), result.moves) == (two.heads.tolist(), two.moves)
        assert result.score == pytest.approx(two.score, rel=1e-12)
        assert result.gained == pytest.approx(two.gained, rel=1e-9, abs=1e-10)
        moves += result.moves
    assert moves > 0 or (projective and families != EVERY)


def test_most_small_sibling_models_end_at_their_optimum():
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(200):
        graph = random_graph(rng, 4, (CHILDSEQ,), False, True)
        found += HILL_CLIMBING.best(graph).score > best_of_all(graph) - 1e-9
    assert found >= 150


@kinds
def test_restarts_are_never_worse_and_sometimes_better(projective):
    rng = np.random.default_rng(3)
    better = 0
    for _ in range(20):
        graph = random_graph(rng, 6, EVERY, projective, True)
        once = HILL_CLIMBING.best(graph)
        result = HillClimbing(restarts=5).best(graph)
        assert is_wanted(result.heads, graph)
        assert result.score >= once.score
        assert result.score == pytest.approx(graph.score(result.heads), rel=1e-12)
        better += result.score > once.score
    assert better


def test_the_same_graph_gives_the_same_tree_and_the_seed_the_restarts():
    graph = random_graph(np.random.default_rng(4), 9, EVERY, False, True)
    results = [HillClimbing(restarts=3, seed=7).best(graph) for _ in range(2)]
    assert results[0].heads.tolist() == results[1].heads.tolist()
    assert results[0].score == results[1].score
    ends = {HillClimbing(restarts=1, seed=seed).best(graph).score for seed in range(10)}
    assert len(ends) > 1


def test_of_equal_moves_the_first_word_goes_to_the_first_head():
    graph = ScoredGraph.from_matrix(np.zeros((4, 4)), single_root=False)
    worse = np.where(graph.heads == 3, -1.0, 0.0)  # so 1 and 2 leave 3 for 0, 1 or 2
    begin = np.array([-1, 3, 3, 0], np.int32)
    heads, *_ = climb_from(begin, replace(graph, scores=worse))
    assert heads.tolist() == [-1, 0, 0, 0]


@roots
def test_a_move_raises_the_score_however_large_the_scores(single_root):
    """Else sums that differ in their last digits only could lead around in circles."""
    for seed in range(300):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, 4, EVERY, False, single_root).scaled(0.0)
        tied = {f: rng.integers(0, 2, len(s)) * 1e9 / 3 for f, s in graph.parts.items()}
        graph = replace(graph, parts=tied)
        heads, score, moves, gained = climb_from(HillClimbing("mst").begin(graph), graph)
        assert (gained > 0) == (moves > 0)
        assert score == pytest.approx(graph.score(heads), rel=1e-12)


def test_a_new_root_takes_the_old_one_as_its_child():
    scores = np.full((4, 4), -np.inf)
    scores[0, 1], scores[1, 2], scores[2, 3] = 0.0, 0.0, 0.0
    scores[0, 3], scores[3, 1] = 2.0, 1.0
    graph = ScoredGraph.from_matrix(scores)
    heads, score, moves, gained = climb_from(np.array([-1, 0, 1, 2], np.int32), graph)
    assert heads.tolist() == [-1, 3, 1, 0]
    assert (score, moves, gained) == (3.0, 1, 3.0)


def test_without_a_projective_tree_it_starts_from_the_spanning_tree():
    scores = np.full((5, 5), -np.inf)
    scores[0, 2] = scores[2, 4] = scores[4, 1] = scores[1, 3] = 0.0  # 2 -> 4 and 1 -> 3 cross
    graph = ScoredGraph.from_matrix(scores)
    assert HILL_CLIMBING.best(graph).heads.tolist() == [-1, 4, 0, 1, 2]
    for start in ("projective", "mst"):
        with pytest.raises(NoTreeError, match="no projective tree"):
            HillClimbing(start).best(replace(graph, projective=True))


def test_parts_with_the_grandparent_among_the_modifiers_do_not_matter():
    graph = random_graph(np.random.default_rng(5), 6, EVERY, False, True)
    g, _, m = graph.index(GRAND)
    above, _, inner, outer = graph.index(GRANDSIB)
    parts = {
        **graph.parts,
        GRAND: np.where(g == m, 1e6, graph.parts[GRAND]),
        GRANDSIB: np.where((above == inner) | (above == outer), 1e6, graph.parts[GRANDSIB]),
    }
    begin = HillClimbing("mst").begin(graph.scaled(-1.0))
    heads, *numbers = climb_from(begin, graph)
    others, *other_numbers = climb_from(begin, replace(graph, parts=parts))
    assert heads.tolist() == others.tolist()
    assert numbers == pytest.approx(other_numbers, abs=1e-8)


def test_scores_that_are_not_finite_or_of_the_wrong_number_are_refused():
    graph = random_graph(np.random.default_rng(6), 3, EVERY, False, True)
    for family in EVERY:
        scores = graph.parts[family].copy()
        scores[-1] = -np.inf
        tree = HillClimbing("mst").begin(graph)
        with pytest.raises(ValueError, match=f"parts {family} have scores that are not finite"):
            climb_from(tree, replace(graph, parts={family: scores}))
        with pytest.raises(ValueError, match=f"parts {family} have scores that are not finite"):
            HILL_CLIMBING.best(replace(graph, parts={**graph.parts, family: scores}))
        with pytest.raises(ValueError, match=rf"parts {family} have \d+ scores"):
            climb_from(tree, replace(graph, parts={family: scores[:-1]}))
        with pytest.raises(ValueError, match=rf"parts {family} have \d+ scores"):
            HILL_CLIMBING.best(replace(graph, parts={**graph.parts, family: scores[:-1]}))


def test_it_has_no_marginals_and_names_a_wrong_argument():
    graph = ScoredGraph.from_matrix(np.zeros((3, 3)))
    assert not HILL_CLIMBING.has_marginals
    assert HILL_CLIMBING.best(graph).certificate is None
    with pytest.raises(GraphError, match="engine hill-climbing has no marginals"):
        HILL_CLIMBING.expectations(graph)
    with pytest.raises(ValueError, match="start: projective or mst, got 'uphill'"):
        HillClimbing("uphill")
    with pytest.raises(ValueError, match="restarts: 0 or more, got -1"):
        HillClimbing(restarts=-1)
