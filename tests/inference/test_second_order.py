"""Sibling, grandparent and grand-sibling engines against enumeration, up to five words."""

from __future__ import annotations

import functools
from dataclasses import replace
from itertools import chain, combinations

import numpy as np
import pytest
from scipy.special import logsumexp

from parser.graph import CHILDSEQ, CODES, GRAND, GRANDSIB, SIB, GraphError, ScoredGraph
from parser.inference import projective
from parser.inference.arrays import NoTreeError
from parser.inference.second_order import GRANDPARENT, GRANDSIBLING, SIBLING
from parser.trees import enumerate_trees

PARTS = (CHILDSEQ, GRAND, GRANDSIB)
SUBSETS = list(chain.from_iterable(combinations(PARTS, size) for size in range(4)))
subsets = pytest.mark.parametrize("families", SUBSETS, ids=lambda f: "+".join(f) or "link")
roots = pytest.mark.parametrize(
    "single_root", [pytest.param(True, id="single-root"), pytest.param(False, id="multi-root")]
)


def engines(families):
    """The engines that can use them."""
    every = (SIBLING, GRANDPARENT, GRANDSIBLING)
    return [engine for engine in every if set(families) <= engine.families]


def random_graph(rng, n, families, single_root, keep=1.0, scale=1.0):
    """Normal scores; each arc is a candidate with probability ``keep``."""
    allowed = (rng.random((n + 1, n + 1)) < keep) & ~np.eye(n + 1, dtype=bool)
    for m in range(1, n + 1):
        if not allowed[:, m].any():
            allowed[rng.choice([h for h in range(n + 1) if h != m]), m] = True
    scores = np.where(allowed, scale * rng.normal(size=allowed.shape), -np.inf)
    graph = ScoredGraph.from_matrix(scores, projective=True, single_root=single_root)
    sizes = {family: graph.arcs.layout.size(CODES[family]) for family in families}
    parts = {family: scale * rng.normal(size=size) for family, size in sizes.items()}
    return replace(graph, parts=parts)


def graphs(families, single_root, keep=1.0, scale=1.0):
    """Graphs of one to five words, several of each length but the last."""
    rng = np.random.default_rng(7)
    for n, count in ((1, 2), (2, 6), (3, 8), (4, 6), (5, 1)):
        for _ in range(count):
            yield random_graph(rng, n, families, single_root, keep, scale)


@functools.cache
def trees(n, single_root):
    return np.array(
        list(enumerate_trees(n, projective=True, single_root=single_root)), dtype=np.int32
    )


def brute_force(graph):
    """Every tree over the candidate arcs, with its score."""
    allowed = graph.matrix() > -np.inf
    every = trees(graph.n, graph.single_root)
    every = every[allowed[every[:, 1:], np.arange(1, graph.n + 1)].all(axis=1)]
    return every, np.array([graph.score(tree) for tree in every])


def expected(graph, every, totals):
    """Marginals of arcs and parts by definition."""
    out = {family: np.zeros(len(scores)) for family, scores in graph.values.items()}
    for tree, probability in zip(every, np.exp(totals - logsumexp(totals)), strict=True):
        for family, marginals in out.items():
            marginals[graph.fired(family, tree)] += probability
    return out


def marginals_of(result):
    return {"link": result.marginals, **result.part_marginals}


@subsets
@roots
@pytest.mark.parametrize("keep", [1.0, 0.7, 0.45])
def test_best_tree_log_z_and_marginals_are_those_of_all_trees(families, single_root, keep):
    for graph in graphs(families, single_root, keep):
        every, totals = brute_force(graph)
        for engine in engines(families):
            if not len(totals):
                for call in (engine.best, engine.expectations):
                    with pytest.raises(NoTreeError, match="no tree possible"):
                        call(graph)
                continue
            best = engine.best(graph)
            assert best.score == pytest.approx(totals.max(), rel=1e-12, abs=1e-12)
            assert best.heads.tolist() == every[np.argmax(totals)].tolist()
            assert best.heads.dtype == np.int32
            assert best.certificate.primal == best.certificate.dual == best.score
            result = engine.expectations(graph)
            assert result.log_z == pytest.approx(logsumexp(totals), rel=1e-12, abs=1e-11)
            assert set(result.part_marginals) == set(families)
            for family, by_definition in expected(graph, every, totals).items():
                np.testing.assert_allclose(
                    marginals_of(result)[family], by_definition, rtol=0, atol=1e-11, err_msg=family
                )


@roots
def test_the_k_best_trees_are_the_k_best_of_all_trees(single_root):
    for graph in graphs((CHILDSEQ,), single_root, 0.8):
        _, totals = brute_force(graph)
        for engine in engines((CHILDSEQ,)):
            if len(totals):
                found = engine.k_best(graph, 6)
                expected_scores = np.sort(totals)[::-1][:6]
                np.testing.assert_allclose([r.score for r in found], expected_scores, atol=1e-11)
                assert len({tuple(r.heads.tolist()) for r in found}) == len(found)


@roots
@pytest.mark.parametrize("families", [(), (GRAND,)], ids=["link", "grand"])
def test_the_grandparent_engine_is_the_same_engine(families, single_root):
    rng = np.random.default_rng(1)
    graph = random_graph(rng, 8, families, single_root)
    ours, other = GRANDPARENT.best(graph), GRANDSIBLING.best(graph)
    assert ours.heads.tolist() == other.heads.tolist()
    assert GRANDPARENT.expectations(graph).log_z == GRANDSIBLING.expectations(graph).log_z


@roots
@pytest.mark.parametrize("keep", [1.0, 0.3])
def test_model_1_with_zero_scores_for_siblings_is_model_0(single_root, keep):
    rng = np.random.default_rng(2)
    for n in (6, 11, 17):
        graph = random_graph(rng, n, (GRAND,), single_root, keep)
        zeros = {f: np.zeros(graph.arcs.layout.size(CODES[f])) for f in (CHILDSEQ, GRANDSIB)}
        richer = replace(graph, parts={**graph.parts, **zeros})
        try:
            best = GRANDSIBLING.best(graph)
        except NoTreeError:
            with pytest.raises(NoTreeError):
                GRANDSIBLING.best(richer)
            continue
        assert GRANDSIBLING.best(richer).heads.tolist() == best.heads.tolist()
        a, b = GRANDSIBLING.expectations(graph), GRANDSIBLING.expectations(richer)
        assert a.log_z == pytest.approx(b.log_z, rel=1e-12)
        np.testing.assert_allclose(a.marginals, b.marginals, rtol=0, atol=1e-11)


@roots
@pytest.mark.parametrize("keep", [1.0, 0.3])
def test_two_programs_agree_on_sibling_models_beyond_enumeration(single_root, keep):
    rng = np.random.default_rng(9)
    for n in (6, 12, 25):
        graph = random_graph(rng, n, (CHILDSEQ,), single_root, keep)
        try:
            best = GRANDSIBLING.best(graph)
        except NoTreeError:
            continue
        assert SIBLING.best(graph).heads.tolist() == best.heads.tolist()
        a, b = SIBLING.expectations(graph), GRANDSIBLING.expectations(graph)
        assert a.log_z == pytest.approx(b.log_z, rel=1e-12)
        for family, marginals in marginals_of(a).items():
            np.testing.assert_allclose(marginals, marginals_of(b)[family], rtol=0, atol=1e-10)


@roots
def test_arcs_alone_give_what_the_first_order_program_gives(single_root):
    graph = random_graph(np.random.default_rng(3), 15, (), single_root)
    heads, score = projective.best_tree(graph.matrix(), single_root=single_root)
    best = GRANDPARENT.best(graph)
    assert (best.heads.tolist(), best.score) == (heads.tolist(), pytest.approx(score, rel=1e-12))
    marginals, log_z = projective.marginals(graph.matrix(), single_root=single_root)
    result = GRANDPARENT.expectations(graph)
    assert result.log_z == pytest.approx(log_z, rel=1e-12)
    np.testing.assert_allclose(result.marginals, graph.gather(marginals), rtol=0, atol=1e-11)


# Projective trees over 1..6 words: C(3n, n) / (2n+1) with several roots, C(3n-2, n-1) / n with one.
COUNTS = {False: [1, 3, 12, 55, 273, 1428], True: [1, 2, 7, 30, 143, 728]}


@subsets
@roots
def test_zero_scores_count_the_trees(families, single_root):
    rng = np.random.default_rng(0)
    every = [random_graph(rng, n, families, single_root).scaled(0.0) for n in range(1, 7)]
    for engine in engines(families):
        counts = np.exp([engine.expectations(graph).log_z for graph in every])
        np.testing.assert_allclose(counts, COUNTS[single_root], rtol=1e-12)


@roots
@pytest.mark.parametrize(
    ("engine", "families"),
    [(SIBLING, (CHILDSEQ,)), (GRANDPARENT, (GRAND,)), (GRANDSIBLING, PARTS)],
    ids=lambda x: getattr(x, "name", ""),
)
def test_marginals_are_the_derivatives_of_log_z(engine, families, single_root):
    rng = np.random.default_rng(4)
    graph = random_graph(rng, 7, families, single_root, 0.8)
    result = engine.expectations(graph)
    assert result.marginals.sum() == pytest.approx(7, abs=1e-10)
    step = 1e-5
    for family, marginals in marginals_of(result).items():
        direction = rng.normal(size=len(marginals))

        def log_z(t, family=family, direction=direction):
            moved = graph.values[family] + t * direction
            if family == "link":
                return engine.expectations(replace(graph, scores=moved)).log_z
            return engine.expectations(replace(graph, parts={**graph.parts, family: moved})).log_z

        slope = (log_z(step) - log_z(-step)) / (2 * step)
        assert slope == pytest.approx(marginals @ direction, abs=1e-6)


@subsets
@roots
def test_large_scores_stay_exact(families, single_root):
    for graph in graphs(families, single_root, keep=0.8, scale=1e4):
        every, totals = brute_force(graph)
        if not len(totals):
            continue
        for engine in engines(families):
            assert engine.best(graph).score == pytest.approx(totals.max(), rel=1e-12)
            result = engine.expectations(graph)
            assert result.log_z == pytest.approx(logsumexp(totals), rel=1e-12)
            for family, by_definition in expected(graph, every, totals).items():
                np.testing.assert_allclose(
                    marginals_of(result)[family], by_definition, rtol=0, atol=1e-8
                )


@roots
def test_parts_with_the_grandparent_among_the_modifiers_do_not_matter(single_root):
    rng = np.random.default_rng(5)
    graph = random_graph(rng, 6, PARTS, single_root, 0.9)
    g, _, m = graph.index(GRAND)
    grand = np.where(g == m, 1e6, graph.parts[GRAND])
    g, _, inner, outer = graph.index(GRANDSIB)
    no_tree = (g == inner) | (g == outer)
    other = replace(
        graph,
        parts={
            **graph.parts,
            GRAND: grand,
            GRANDSIB: np.where(no_tree, 1e6, graph.parts[GRANDSIB]),
        },
    )
    assert GRANDSIBLING.best(graph).heads.tolist() == GRANDSIBLING.best(other).heads.tolist()
    a, b = GRANDSIBLING.expectations(graph), GRANDSIBLING.expectations(other)
    assert a.log_z == b.log_z
    for family, marginals in marginals_of(a).items():
        assert np.array_equal(marginals, marginals_of(b)[family])
    assert not b.part_marginals[GRANDSIB][no_tree].any()


def test_forbidden_parts_are_in_no_tree():
    rng = np.random.default_rng(6)
    graph = random_graph(rng, 4, PARTS, True)
    for family in PARTS:
        graph.parts[family][rng.random(len(graph.parts[family])) < 0.1] = -np.inf
    every, totals = brute_force(graph)
    assert 0 < (totals > -np.inf).sum() < len(totals)
    assert GRANDSIBLING.best(graph).score == pytest.approx(totals.max(), rel=1e-12)
    result = GRANDSIBLING.expectations(graph)
    assert result.log_z == pytest.approx(logsumexp(totals), rel=1e-12)
    for family, by_definition in expected(graph, every, totals).items():
        np.testing.assert_allclose(marginals_of(result)[family], by_definition, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("families", "single_root", "heads"),
    [
        (PARTS, True, [-1, 4, 4, 4, 0]),  # the outermost child, then the outermost sibling
        ((GRAND,), True, [-1, 4, 1, 1, 0]),  # the outermost child, then most words to the lower
        (PARTS, False, [-1, 0, 0, 0, 0]),
        ((GRAND,), False, [-1, 0, 0, 0, 0]),
    ],
)
def test_of_equal_trees_it_is_always_the_same(families, single_root, heads):
    graph = random_graph(np.random.default_rng(0), 4, families, single_root).scaled(0.0)
    assert GRANDSIBLING.best(graph).heads.tolist() == heads


def test_long_pruned_sentences_have_marginals_that_sum_to_one_head_a_word():
    n = 200
    rng = np.random.default_rng(8)
    scores = np.full((n + 1, n + 1), -np.inf)
    for m in range(1, n + 1):
        near = np.clip(m + rng.integers(-6, 7, size=4), 0, n)
        scores[near[near != m], m] = rng.normal()
        scores[m - 1, m] = rng.normal()  # a chain, so that there is a tree
    graph = ScoredGraph.from_matrix(scores, projective=True)
    sizes = {family: graph.arcs.layout.size(CODES[family]) for family in PARTS}
    graph = replace(graph, parts={f: rng.normal(size=size) for f, size in sizes.items()})
    best = GRANDSIBLING.best(graph)
    assert best.score == pytest.approx(graph.score(best.heads), rel=1e-12)
    result = GRANDSIBLING.expectations(graph)
    assert result.log_z > best.score
    per_word = np.add.reduceat(result.marginals, graph.arcs.offsets[:-1])
    np.testing.assert_allclose(per_word, 1.0, rtol=0, atol=1e-9)


def test_what_an_engine_cannot_use_is_refused_by_name():
    graph = random_graph(np.random.default_rng(0), 3, (CHILDSEQ,), True)
    for call in (GRANDPARENT.best, GRANDPARENT.expectations):
        with pytest.raises(GraphError, match="grandparent cannot use the factor family childseq"):
            call(graph)
    with pytest.raises(GraphError, match="grandsibling cannot use the factor family sib"):
        GRANDSIBLING.best(replace(graph, parts={SIB: np.zeros(3)}))
    with pytest.raises(GraphError, match="grandsibling cannot keep to non-projective trees"):
        GRANDSIBLING.best(replace(graph, projective=False))


def test_arrays_of_the_wrong_length_are_refused():
    graph = random_graph(np.random.default_rng(0), 3, PARTS, True)
    for engine in (SIBLING, GRANDPARENT, GRANDSIBLING):
        for family in engine.families - {"link"}:
            short = replace(graph, parts={family: graph.parts[family][:-1]})
            with pytest.raises(ValueError, match=f"parts {family} have"):
                engine.best(short)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_without_a_meaning_are_refused(bad):
    graph = random_graph(np.random.default_rng(0), 3, PARTS, True)
    for engine in (SIBLING, GRANDPARENT, GRANDSIBLING):
        for family in engine.families:
            own = {f: graph.parts[f].copy() for f in engine.families - {"link"}}
            scores = graph.scores.copy()
            own.get(family, scores)[-1] = bad
            for call in (engine.best, engine.expectations):
                with pytest.raises(ValueError, match="not finite"):
                    call(replace(graph, scores=scores, parts=own))
