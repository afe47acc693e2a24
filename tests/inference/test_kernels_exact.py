"""Best trees, log Z, marginals, k best and samples against enumeration, up to five words."""

from __future__ import annotations

import functools
from types import ModuleType

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import logsumexp
from scipy.stats import chisquare

from cython_ext import eisner, matrix_tree
from parser.inference import nonprojective, projective
from parser.inference.arrays import NoTreeError
from parser.trees import enumerate_trees

CONSTRAINTS = [
    pytest.param(m, id=m.__name__.rpartition(".")[2]) for m in (nonprojective, projective)
]
ROOTS = [pytest.param(True, id="single-root"), pytest.param(False, id="multi-root")]
EVERY_METHOD = [
    pytest.param(kernel, method, id=f"{kernel.__name__.rpartition('.')[2]}-{method}")
    for kernel, methods in (
        (eisner, ("AUTO", "SCALED", "LOG_DOMAIN")),
        (matrix_tree, ("AUTO", "SCALED", "LOG_DOMAIN", "LAPACK")),
    )
    for method in methods
]

both = pytest.mark.parametrize("functions", CONSTRAINTS)
roots = pytest.mark.parametrize("single_root", ROOTS)
many = settings(max_examples=100, deadline=None, derandomize=True)


def scores_of(values: st.SearchStrategy[float]) -> st.SearchStrategy[np.ndarray]:
    """Square arrays for one to five words, with arcs forbidden here and there."""
    elements = st.one_of(values, values, st.just(-np.inf))
    return st.integers(1, 5).flatmap(
        lambda n: arrays(np.float64, (n + 1, n + 1), elements=elements)
    )


moderate = scores_of(st.floats(-50, 50))
wild = scores_of(st.floats(-1e6, 1e6))
tied = scores_of(st.sampled_from([-1.0, 0.0, 1.0]))


@functools.cache
def trees(n: int, is_projective: bool, single_root: bool) -> np.ndarray:
    return np.array(list(enumerate_trees(n, projective=is_projective, single_root=single_root)))


def brute_force(
    scores: np.ndarray, functions: ModuleType, single_root: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Every tree that the scores allow, with its score."""
    n = len(scores) - 1
    every = trees(n, functions in (projective, eisner), single_root)
    totals = scores[every[:, 1:], np.arange(1, n + 1)].sum(axis=1)
    return every[totals > -np.inf], totals[totals > -np.inf]


def expected_arcs(every: np.ndarray, probability: np.ndarray) -> np.ndarray:
    n = every.shape[1] - 1
    mu = np.zeros((n + 1, n + 1))
    np.add.at(mu, (every[:, 1:], np.arange(1, n + 1)), probability[:, None])
    return mu


@both
@roots
@many
@given(scores=moderate | wild | tied)
def test_best_tree_is_the_best_of_all_trees(functions, single_root, scores):
    every, totals = brute_force(scores, functions, single_root)
    assume(len(totals))
    heads, score = functions.best_tree(scores, single_root=single_root)
    assert score == pytest.approx(totals.max(), rel=1e-12, abs=1e-12)
    assert heads.tolist() in every.tolist()
    assert score == pytest.approx(totals[every.tolist().index(heads.tolist())], rel=1e-14)


@pytest.mark.parametrize(("kernel", "method"), EVERY_METHOD)
@roots
@many
@given(scores=moderate)
@example(
    scores=np.array([[0, -np.inf, 0, 0], [0, 0, 0, 0], [0, -np.inf, 0, 0], [0, 0, 0, 0]], float)
)
def test_every_method_gives_log_z_and_marginals_by_definition(kernel, method, single_root, scores):
    every, totals = brute_force(scores, kernel, single_root)
    assume(len(totals))
    mu = np.full(scores.shape, np.nan)
    log_z = kernel.marginals(scores, len(scores) - 1, single_root, mu, getattr(kernel, method))
    if method == "LAPACK" and np.isnan(log_z):
        return  # it says so itself where it is not exact
    if method == "SCALED" and log_z == -np.inf:
        assert kernel is matrix_tree  # a word that only the root may take is left to the logs
        return
    assert log_z == pytest.approx(logsumexp(totals), rel=1e-12, abs=1e-10)
    mu_by_definition = expected_arcs(every, np.exp(totals - logsumexp(totals)))
    atol = 1e-9 if method == "LAPACK" else 1e-11
    np.testing.assert_allclose(mu, mu_by_definition, rtol=0, atol=atol)


@both
@roots
@many
@given(scores=wild)
def test_scores_of_any_range_give_log_z_and_marginals(functions, single_root, scores):
    every, totals = brute_force(scores, functions, single_root)
    assume(len(totals))
    mu, log_z = functions.marginals(scores, single_root=single_root)
    assert log_z == pytest.approx(logsumexp(totals), rel=1e-12, abs=1e-10)
    assert log_z == functions.log_partition(scores, single_root=single_root)
    # A score of 1e6 has 1e-10 in its last place, and a sum of five of them more.
    by_definition = expected_arcs(every, np.exp(totals - logsumexp(totals)))
    np.testing.assert_allclose(mu, by_definition, rtol=0, atol=1e-8)


@both
@roots
@many
@given(scores=moderate | tied)
def test_entropy_is_that_of_the_tree_distribution(functions, single_root, scores):
    _, totals = brute_force(scores, functions, single_root)
    assume(len(totals))
    log_p = totals - logsumexp(totals)
    entropy = functions.entropy(scores, single_root=single_root)
    assert entropy == pytest.approx(-(np.exp(log_p) * log_p).sum(), abs=1e-9)


@both
@roots
@settings(max_examples=60, deadline=None, derandomize=True)
@given(scores=moderate | tied, k=st.integers(1, 200))
def test_k_best_are_the_k_best_of_all_trees(functions, single_root, scores, k):
    every, totals = brute_force(scores, functions, single_root)
    assume(len(totals))
    heads, values = functions.k_best(scores, k, single_root=single_root)
    np.testing.assert_allclose(values, -np.sort(-totals)[:k], rtol=1e-12, atol=1e-12)
    found = [tuple(h) for h in heads.tolist()]
    assert len(set(found)) == len(found)
    assert set(found) <= {tuple(h) for h in every.tolist()}
    np.testing.assert_allclose(
        scores[heads[:, 1:], np.arange(1, len(scores))].sum(axis=1), values, rtol=1e-12, atol=1e-12
    )
    assert np.array_equal(heads[0], functions.best_tree(scores, single_root=single_root)[0])


@both
@roots
@many
@given(scores=moderate | wild)
def test_no_tree_is_an_error_exactly_when_there_is_none(functions, single_root, scores):
    _, totals = brute_force(scores, functions, single_root)
    for call in (functions.best_tree, functions.log_partition, functions.marginals):
        if len(totals):
            call(scores, single_root=single_root)
        else:
            with pytest.raises(NoTreeError, match="no tree possible"):
                call(scores, single_root=single_root)


MASKED = np.zeros((5, 5))
MASKED[1:, 3] = -np.inf  # only the root may take word 3
MASKED[2, 4] = -np.inf


@pytest.mark.parametrize(
    ("kernel", "method"), [p for p in EVERY_METHOD if p.values[1] in ("AUTO", "LOG_DOMAIN")]
)
@roots
@pytest.mark.parametrize("mask", [0.0, MASKED], ids=["all arcs", "masked"])
def test_samples_have_the_frequencies_of_the_trees(kernel, method, single_root, mask):
    scores = np.random.default_rng(3).normal(size=(5, 5)) + mask
    every, totals = brute_force(scores, kernel, single_root)
    size = 20_000
    heads = np.empty((size, 5), np.int32)
    uniforms = np.random.default_rng(4).random((size, 8))
    kernel.sample(scores, 4, single_root, uniforms, heads, getattr(kernel, method))
    index = {tuple(tree): i for i, tree in enumerate(every.tolist())}
    counts = np.bincount([index[tuple(tree)] for tree in heads.tolist()], minlength=len(every))
    expected = size * np.exp(totals - logsumexp(totals))
    rare = expected < 5
    if rare.any():
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    assert chisquare(counts, expected).pvalue > 1e-4


@roots
def test_walks_that_get_lost_favour_no_tree(single_root):
    scores = np.random.default_rng(3).normal(size=(5, 5))
    scores[1, 2] = scores[2, 1] = 7.0  # to and fro, a thousand times and, one in three, too often
    every, totals = brute_force(scores, matrix_tree, single_root)
    size = 20_000
    heads = np.empty((size, 5), np.int32)
    uniforms = np.random.default_rng(4).random((size, 8))
    for one, tree in zip(
        uniforms[:, None], heads[:, None], strict=True
    ):  # each on its own patience
        matrix_tree.sample(scores, 4, single_root, one, tree)
    index = {tuple(tree): i for i, tree in enumerate(every.tolist())}
    counts = np.bincount([index[tuple(tree)] for tree in heads.tolist()], minlength=len(every))
    expected = size * np.exp(totals - logsumexp(totals))
    often = expected >= 5
    counts, expected = (np.append(x[often], x[~often].sum()) for x in (counts, expected))
    assert chisquare(counts, expected).pvalue > 1e-4


# All scores 0 make Z a count, known in closed form.
COUNTS = {
    (nonprojective, False): [1, 3, 16, 125, 1296, 16807],  # (n+1)^(n-1)
    (nonprojective, True): [1, 2, 9, 64, 625, 7776],  # n^(n-1)
    (projective, False): [1, 3, 12, 55, 273, 1428],  # C(3n, n) / (2n+1)
    (projective, True): [1, 2, 7, 30, 143, 728],  # C(3n-2, n-1) / n
}


@both
@roots
def test_zero_scores_count_the_trees(functions, single_root):
    counts = COUNTS[functions, single_root]
    zeros = [np.zeros((n + 1, n + 1)) for n in range(1, 7)]
    log_z = [functions.log_partition(s, single_root=single_root) for s in zeros]
    np.testing.assert_allclose(np.exp(log_z), counts, rtol=1e-12)
    for scores, count in zip(zeros[:5], counts, strict=False):
        assert len(functions.k_best(scores, 2000, single_root=single_root)[0]) == count
        assert len(trees(len(scores) - 1, functions is projective, single_root)) == count
