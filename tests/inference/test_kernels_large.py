"""What must hold of the kernels at sizes that no enumeration reaches."""

from __future__ import annotations

import time

import numpy as np
import pytest

from cython_ext import eisner, matrix_tree
from parser.graph import ScoredGraph
from parser.inference import nonprojective, projective
from parser.inference.arrays import NoTreeError
from parser.inference.first_order import MST, PROJECTIVE
from parser.inference.lawler import k_best
from parser.trees import is_projective, is_tree

CONSTRAINTS = [
    pytest.param(m, id=m.__name__.rpartition(".")[2]) for m in (nonprojective, projective)
]
ROOTS = [pytest.param(True, id="single-root"), pytest.param(False, id="multi-root")]
both = pytest.mark.parametrize("functions", CONSTRAINTS)
roots = pytest.mark.parametrize("single_root", ROOTS)


def normal(n: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=scale, size=(n + 1, n + 1))


def with_few_trees(n: int, seed: int) -> np.ndarray:
    """Scores that allow one planted projective tree and one arc in ten besides."""
    rng = np.random.default_rng(seed)
    heads, _ = projective.best_tree(rng.normal(size=(n + 1, n + 1)))
    scores = np.where(rng.random((n + 1, n + 1)) < 0.1, rng.normal(size=(n + 1, n + 1)), -np.inf)
    scores[heads[1:], np.arange(1, n + 1)] = rng.normal(size=n)
    return scores


def has_tree(scores: np.ndarray) -> bool:
    try:
        nonprojective.best_tree(scores)
    except NoTreeError:
        return False
    return True


def assert_valid(heads: np.ndarray, functions, single_root: bool) -> None:
    assert heads[0] == -1
    assert is_tree(heads)
    if functions is projective:
        assert is_projective(heads)
    if single_root:
        assert (heads == 0).sum() == 1


@both
@pytest.mark.parametrize("n", [10, 25, 60])
def test_the_single_root_tree_is_the_best_of_n_runs_with_one_root_arc_each(functions, n):
    scores = normal(n, seed=n)
    scores[0] += 5.0  # the best tree without the constraint has many roots
    heads, score = functions.best_tree(scores)
    assert_valid(heads, functions, True)
    assert score < functions.best_tree(scores, single_root=False)[1]
    alone = []
    for root in range(1, n + 1):
        one = scores.copy()
        one[0, np.arange(n + 1) != root] = -np.inf
        alone.append(functions.best_tree(one, single_root=False)[1])
    assert score == pytest.approx(max(alone), rel=1e-12)


@both
@pytest.mark.parametrize("n", [12, 100])
def test_single_root_log_z_adds_up_n_runs_with_one_root_arc_each(functions, n):
    scores = normal(n, seed=n)
    alone = []
    for root in range(1, n + 1):
        one = scores.copy()
        one[0, np.arange(n + 1) != root] = -np.inf
        alone.append(functions.log_partition(one, single_root=False))
    log_z = functions.log_partition(scores)
    assert log_z == pytest.approx(np.logaddexp.reduce(alone), rel=1e-12)


@both
@roots
def test_marginals_are_the_gradient_of_log_z(functions, single_root):
    n, step = 12, 1e-5
    scores = normal(n)
    mu, _ = functions.marginals(scores, single_root=single_root)
    moved = np.repeat(scores[None], 2 * (n + 1) ** 2, axis=0).reshape(2, n + 1, n + 1, n + 1, n + 1)
    for h in range(n + 1):
        for m in range(n + 1):
            moved[0, h, m, h, m] += step
            moved[1, h, m, h, m] -= step
    log_z = functions.log_partition(
        moved.reshape(-1, n + 1, n + 1), single_root=single_root
    ).reshape(2, n + 1, n + 1)
    np.testing.assert_allclose(mu, (log_z[0] - log_z[1]) / (2 * step), atol=1e-8)


@both
@roots
@pytest.mark.parametrize(("n", "scale"), [(1, 1), (2, 1), (40, 1), (40, 10), (60, 10), (190, 1)])
def test_every_word_has_one_head_in_expectation(functions, single_root, n, scale):
    mu, _ = functions.marginals(normal(n, scale=scale), single_root=single_root)
    assert ((mu >= 0) & (mu <= 1)).all()
    np.testing.assert_allclose(mu[:, 1:].sum(axis=0), 1.0, rtol=0, atol=1e-11)
    assert not mu[:, 0].any()
    assert not mu.diagonal().any()
    if single_root:
        assert mu[0].sum() == pytest.approx(1.0, abs=1e-11)


@roots
@pytest.mark.parametrize(("n", "scale"), [*((n, 1) for n in range(1, 14)), (30, 5), (61, 10)])
@pytest.mark.parametrize("kernel", [eisner, matrix_tree], ids=["eisner", "matrix_tree"])
def test_scaled_weights_and_logs_agree(kernel, single_root, n, scale):
    scores = normal(n, scale=scale)
    heads, _ = projective.best_tree(scores)
    forbidden = np.random.default_rng(1).random(scores.shape) < 0.3
    forbidden[heads[1:], np.arange(1, n + 1)] = False
    scores[forbidden] = -np.inf
    found = []
    for method in (kernel.SCALED, kernel.LOG_DOMAIN):
        mu = np.empty((n + 1, n + 1))
        found.append((mu, kernel.marginals(scores, n, single_root, mu, method)))
    (scaled, log_z), (logs, log_z_of_logs) = found
    assert log_z == pytest.approx(log_z_of_logs, rel=1e-13)
    np.testing.assert_allclose(scaled, logs, rtol=0, atol=1e-12)


@roots
@pytest.mark.parametrize("scale", [1, 5, 40])
def test_short_sentences_side_by_side_give_the_bits_that_each_gives_alone(single_root, scale):
    rng = np.random.default_rng(scale)
    lengths = rng.integers(1, 70, size=150, dtype=np.int32)
    scores = rng.normal(scale=scale, size=(150, 71, 71))
    for sentence in scores[::3]:
        heads, _ = projective.best_tree(sentence)
        forbidden = rng.random(sentence.shape) < 0.5
        forbidden[heads[1:], np.arange(1, 71)] = False
        sentence[forbidden] = -np.inf
    lengths[::3] = 70 - np.arange(50) // 5 * 7  # also 7: the tree is cut, and may be none
    possible = [b for b in range(150) if has_tree(scores[b, : lengths[b] + 1, : lengths[b] + 1])]
    scores, lengths = scores[possible], lengths[possible]
    mu, log_z = nonprojective.marginals(scores, lengths, single_root=single_root)
    for b, n in enumerate(lengths):
        alone = np.empty((n + 1, n + 1))
        one = np.ascontiguousarray(scores[b, : n + 1, : n + 1])
        assert log_z[b] == matrix_tree.marginals(one, n, single_root, alone)
        assert np.array_equal(mu[b, : n + 1, : n + 1], alone)


@roots
@pytest.mark.parametrize("n", [7, 150, 399, 400])
def test_elimination_and_lapack_agree(single_root, n):
    scores = normal(n)
    by_lapack, by_elimination = np.empty((2, n + 1, n + 1))
    log_z = matrix_tree.marginals(scores, n, single_root, by_lapack, matrix_tree.LAPACK)
    assert log_z == pytest.approx(
        matrix_tree.marginals(scores, n, single_root, by_elimination, matrix_tree.SCALED), rel=1e-13
    )
    np.testing.assert_allclose(by_lapack, by_elimination, rtol=0, atol=1e-11)


@pytest.mark.parametrize("kernel", [eisner, matrix_tree], ids=["eisner", "matrix_tree"])
def test_a_range_beyond_doubles_is_left_to_the_logs(kernel):
    n = 40
    scores = normal(n, scale=2000)
    mu, log_mu = np.empty((2, n + 1, n + 1))
    log_z = kernel.marginals(scores, n, True, mu)
    assert log_z == kernel.marginals(scores, n, True, log_mu, kernel.LOG_DOMAIN)
    np.testing.assert_array_equal(mu, log_mu)
    np.testing.assert_allclose(mu[:, 1:].sum(axis=0), 1.0, rtol=0, atol=1e-9)


@roots
def test_lapack_refuses_what_it_cannot_give_exactly(single_root):
    n = 300
    scores = normal(n)
    scores[1, 2] = scores[2, 1] = 60.0  # words 1 and 2 all but cut off from the rest
    mu, right = np.empty((2, n + 1, n + 1))
    assert np.isnan(matrix_tree.marginals(scores, n, single_root, mu, matrix_tree.LAPACK))
    log_z = matrix_tree.marginals(scores, n, single_root, mu)
    assert log_z == matrix_tree.marginals(scores, n, single_root, right, matrix_tree.SCALED)
    np.testing.assert_array_equal(mu, right)


@both
@roots
@pytest.mark.parametrize("n", [8, 40, 120])
def test_shifting_a_words_scores_shifts_log_z_alone(functions, single_root, n):
    scores = normal(n)
    shifted = scores.copy()
    shifted[:, 3] += 1e4
    shifted[:, 5] -= 1e4
    shifted[:, 7] += 500
    heads, _ = functions.best_tree(scores, single_root=single_root)
    assert np.array_equal(heads, functions.best_tree(shifted, single_root=single_root)[0])
    mu, log_z = functions.marginals(scores, single_root=single_root)
    mu_shifted, log_z_shifted = functions.marginals(shifted, single_root=single_root)
    assert log_z_shifted == pytest.approx(log_z + 500, rel=1e-12)
    np.testing.assert_allclose(mu_shifted, mu, rtol=0, atol=1e-9)


@both
@roots
@pytest.mark.parametrize(
    "scores",
    [
        normal(50, scale=1e6),
        normal(50) - 1e3,
        np.zeros((51, 51)),
        np.round(normal(50)),
        with_few_trees(50, seed=2),
        1e3 * with_few_trees(50, seed=5),
    ],
    ids=["1e6", "negative", "zero", "ties", "few trees", "few trees, wide"],
)
def test_hard_scores_give_consistent_answers(functions, single_root, scores):
    heads, score = functions.best_tree(scores, single_root=single_root)
    mu, log_z = functions.marginals(scores, single_root=single_root)
    assert_valid(heads, functions, single_root)
    assert not np.isnan(mu).any()
    assert score <= log_z + 1e-9 * abs(log_z)
    assert log_z <= score + np.log(51) * 50
    # The sum of fifty scores of 1e6 has 7e-9 in its last place.
    np.testing.assert_allclose(mu[:, 1:].sum(axis=0), 1.0, rtol=0, atol=1e-7)
    assert 0 <= functions.entropy(scores, single_root=single_root) <= np.log(51) * 50


@roots
def test_renaming_the_words_renames_the_answers(single_root):
    n = 35
    scores = normal(n)
    order = np.concatenate([[0], 1 + np.random.default_rng(1).permutation(n)])
    renamed = scores[np.ix_(order, order)]
    heads, _ = nonprojective.best_tree(scores, single_root=single_root)
    heads_renamed, _ = nonprojective.best_tree(renamed, single_root=single_root)
    assert np.array_equal(order[heads_renamed[1:]], heads[order[1:]])
    mu, log_z = nonprojective.marginals(scores, single_root=single_root)
    mu_renamed, log_z_renamed = nonprojective.marginals(renamed, single_root=single_root)
    assert log_z_renamed == pytest.approx(log_z, rel=1e-13)
    np.testing.assert_allclose(mu_renamed, mu[np.ix_(order, order)], rtol=0, atol=1e-13)


@roots
def test_mirroring_the_words_mirrors_the_projective_answers(single_root):
    n = 35
    scores = normal(n)
    order = np.concatenate([[0], np.arange(n, 0, -1)])
    mirrored = scores[np.ix_(order, order)]
    heads, _ = projective.best_tree(scores, single_root=single_root)
    heads_mirrored, _ = projective.best_tree(mirrored, single_root=single_root)
    assert np.array_equal(order[heads_mirrored[1:]], heads[order[1:]])
    mu, log_z = projective.marginals(scores, single_root=single_root)
    mu_mirrored, log_z_mirrored = projective.marginals(mirrored, single_root=single_root)
    assert log_z_mirrored == pytest.approx(log_z, rel=1e-13)
    np.testing.assert_allclose(mu_mirrored, mu[np.ix_(order, order)], rtol=0, atol=1e-12)


@both
@roots
def test_samples_are_trees_and_their_arcs_have_the_marginal_frequencies(functions, single_root):
    n, size = 25, 4000
    scores = normal(n, seed=8)
    heads, log_probability = functions.sample(scores, size, seed=1, single_root=single_root)
    for tree in heads[:200]:
        assert_valid(tree, functions, single_root)
    mu, log_z = functions.marginals(scores, single_root=single_root)
    frequency = np.zeros_like(mu)
    np.add.at(frequency, (heads[:, 1:], np.arange(1, n + 1)), 1 / size)
    deviation = (frequency - mu) / np.sqrt(np.maximum(mu * (1 - mu), 1e-4) / size)
    assert np.abs(deviation).max() < 5.5
    totals = scores[heads[:, 1:], np.arange(1, n + 1)].sum(axis=1)
    np.testing.assert_allclose(log_probability, totals - log_z, rtol=1e-12, atol=1e-12)


@both
def test_two_best_trees_differ_by_forbidding_one_arc_of_the_best(functions):
    scores = normal(30)
    heads, values = functions.k_best(scores, 2)
    alternatives = []
    for m in range(1, 31):
        other = scores.copy()
        other[heads[0, m], m] = -np.inf
        alternatives.append(functions.best_tree(other)[1])
    assert values[1] == pytest.approx(max(alternatives), rel=1e-12)


@both
def test_hundred_best_trees_are_distinct_trees_in_order(functions):
    heads, values = functions.k_best(normal(20), 100)
    assert len({tuple(tree) for tree in heads.tolist()}) == 100
    assert (np.diff(values) <= 0).all()
    for tree in heads:
        assert_valid(tree, functions, True)


@both
@roots
@pytest.mark.parametrize("decimals", [0, 9], ids=["ties", "no ties"])
@pytest.mark.parametrize(("make", "n"), [(normal, 15), (with_few_trees, 25)])
def test_k_best_trees_are_those_of_the_partition(functions, single_root, decimals, make, n):
    scores = make(n, seed=2).round(decimals)
    engine = PROJECTIVE if functions is projective else MST
    graph = ScoredGraph.from_matrix(
        scores, projective=functions is projective, single_root=single_root
    )
    heads, values = functions.k_best(scores, 60, single_root=single_root)
    partition = k_best(engine.best, graph, 60)
    assert len(values) == len(partition) == len({tuple(tree) for tree in heads.tolist()})
    np.testing.assert_allclose(values, [result.score for result in partition], rtol=0, atol=1e-12)


@roots
@pytest.mark.parametrize("scores", [normal(40), normal(40, scale=1e5), 5.0 * normal(40).round()])
def test_ten_best_of_all_trees_of_forty_words_are_those_of_the_partition(single_root, scores):
    graph = ScoredGraph.from_matrix(scores, projective=False, single_root=single_root)
    heads, values = nonprojective.k_best(scores, 10, single_root=single_root)
    partition = [result.score for result in k_best(MST.best, graph, 10)]
    np.testing.assert_allclose(values, partition, rtol=1e-13)
    assert len({tuple(tree) for tree in heads.tolist()}) == 10
    for tree in heads:
        assert_valid(tree, nonprojective, single_root)


@both
@roots
def test_three_hundred_words(functions, single_root):
    scores = normal(300)
    heads, score = functions.best_tree(scores, single_root=single_root)
    mu, log_z = functions.marginals(scores, single_root=single_root)
    assert_valid(heads, functions, single_root)
    assert score <= log_z
    np.testing.assert_allclose(mu[:, 1:].sum(axis=0), 1.0, rtol=0, atol=1e-10)


@roots
def test_four_hundred_words_have_more_projective_trees_than_doubles_count(single_root):
    n = 400
    log_z = projective.log_partition(np.zeros((n + 1, n + 1)), single_root=single_root)
    # log C(3n, n) / (2n+1), or log C(3n-2, n-1) / n with one root
    a, b = (3 * n - 2, n - 1) if single_root else (3 * n, n)
    factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, a + 1)))])
    count = factorial[a] - factorial[b] - factorial[a - b] - np.log(n if single_root else 2 * n + 1)
    assert log_z == pytest.approx(count, rel=1e-12)
    assert count > 709.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    [nonprojective.best_tree, projective.best_tree, nonprojective.marginals],
    ids=["arborescence", "eisner", "matrix_tree"],
)
def test_two_thousand_words_take_seconds(call):
    start = time.process_time()
    call(normal(2000))
    assert time.process_time() - start < 60
