"""Batches, padding, dtypes, masks, threads, errors: what surrounds the numbers."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cython_ext import arborescence, eisner, kbest, matrix_tree
from parser.inference import nonprojective, projective
from parser.inference.arrays import NoTreeError

CONSTRAINTS = [
    pytest.param(m, id=m.__name__.rpartition(".")[2]) for m in (nonprojective, projective)
]
both = pytest.mark.parametrize("functions", CONSTRAINTS)
roots = pytest.mark.parametrize("single_root", [True, False], ids=["single-root", "multi-root"])

RNG = np.random.default_rng(0)
LENGTHS = np.array([5, 1, 12, 2, 30, 12])
SCORES = RNG.normal(size=(6, 31, 31))
for _n, _scores in zip(LENGTHS, SCORES, strict=True):
    _scores[_n + 1 :] = _scores[:, _n + 1 :] = np.nan  # padding may hold anything


@both
@roots
def test_a_batch_gives_exactly_what_its_sentences_give_alone(functions, single_root):
    heads, score = functions.best_tree(SCORES, LENGTHS, single_root=single_root)
    mu, log_z = functions.marginals(SCORES, LENGTHS, single_root=single_root)
    entropy = functions.entropy(SCORES, LENGTHS, single_root=single_root)
    best = functions.k_best(SCORES, 3, LENGTHS, single_root=single_root)
    np.testing.assert_array_equal(
        log_z, functions.log_partition(SCORES, LENGTHS, single_root=single_root)
    )
    for b, n in enumerate(LENGTHS):
        alone = SCORES[b, : n + 1, : n + 1]
        heads_alone, score_alone = functions.best_tree(alone, single_root=single_root)
        assert np.array_equal(heads[b, : n + 1], heads_alone)
        assert (heads[b, n + 1 :] == -1).all()
        assert score[b] == score_alone
        mu_alone, log_z_alone = functions.marginals(alone, single_root=single_root)
        assert np.array_equal(mu[b, : n + 1, : n + 1], mu_alone)
        assert not mu[b, n + 1 :].any()
        assert not mu[b, :, n + 1 :].any()
        assert log_z[b] == log_z_alone
        assert entropy[b] == pytest.approx(functions.entropy(alone, single_root=single_root))
        best_alone = functions.k_best(alone, 3, single_root=single_root)
        assert np.array_equal(best[b][0], best_alone[0])
        assert np.array_equal(best[b][1], best_alone[1])


@both
def test_a_batch_is_sampled_sentence_by_sentence_from_one_generator(functions):
    heads, log_probability = functions.sample(SCORES, 7, LENGTHS, seed=5)
    generator = np.random.default_rng(5)
    for b, n in enumerate(LENGTHS):
        alone = functions.sample(SCORES[b, : n + 1, : n + 1], 7, seed=generator)
        assert np.array_equal(heads[b, :, : n + 1], alone[0])
        assert (heads[b, :, n + 1 :] == -1).all()
        assert np.array_equal(log_probability[b], alone[1])


@both
def test_the_same_seed_gives_the_same_samples(functions):
    scores = np.zeros((9, 9))
    first, again, other = (functions.sample(scores, 50, seed=s)[0] for s in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@both
def test_the_order_of_a_batch_does_not_matter(functions):
    order = np.array([3, 5, 0, 4, 1, 2])
    heads, _ = functions.best_tree(SCORES, LENGTHS)
    mu, _ = functions.marginals(SCORES, LENGTHS)
    assert np.array_equal(heads[order], functions.best_tree(SCORES[order], LENGTHS[order])[0])
    assert np.array_equal(mu[order], functions.marginals(SCORES[order], LENGTHS[order])[0])


@both
def test_threads_share_nothing(functions):
    scores = RNG.normal(size=(40, 41, 41))
    expected = [functions.marginals(s)[1] for s in scores]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda s: functions.marginals(s)[1], scores)) == expected


@both
def test_inputs_may_be_read_only_float32_lists_or_any_layout_and_stay_as_they_are(functions):
    scores = RNG.normal(size=(9, 9)).astype(np.float32).astype(np.float64)
    before = scores.copy()
    scores.flags.writeable = False
    heads, score = functions.best_tree(scores)
    mu, _ = functions.marginals(scores)
    for same in (scores.astype(np.float32), scores.tolist(), np.asfortranarray(scores)):
        assert np.array_equal(functions.best_tree(same)[0], heads)
        assert functions.best_tree(same)[1] == score
        assert np.array_equal(functions.marginals(same)[0], mu)
    assert np.array_equal(scores, before)
    assert functions.best_tree(np.zeros((3, 3), int))[0].dtype == np.int32


@both
def test_column_zero_and_the_diagonal_have_no_effect(functions):
    scores = RNG.normal(size=(9, 9))
    other = scores.copy()
    other[:, 0] = np.nan
    np.fill_diagonal(other, np.inf)
    assert np.array_equal(functions.best_tree(other)[0], functions.best_tree(scores)[0])
    assert np.array_equal(functions.marginals(other)[0], functions.marginals(scores)[0])
    assert np.array_equal(functions.k_best(other, 4)[0], functions.k_best(scores, 4)[0])
    assert functions.entropy(other) == functions.entropy(scores)
    assert np.array_equal(
        functions.sample(other, 9, seed=0)[0], functions.sample(scores, 9, seed=0)[0]
    )


@both
def test_a_mask_forbids_arcs_as_minus_infinity_does_whatever_the_score(functions):
    scores = RNG.normal(size=(9, 9))
    mask = np.ones((9, 9), bool)
    mask[0, :5] = mask[2:, 7] = False
    forbidden = np.where(mask, scores, -np.inf)
    scores[0, 3] = np.nan
    assert np.array_equal(
        functions.best_tree(scores, mask=mask)[0], functions.best_tree(forbidden)[0]
    )
    mu, log_z = functions.marginals(scores, mask=mask)
    assert log_z == functions.log_partition(forbidden)
    assert not mu[~mask].any()


@both
def test_ties_go_to_the_lowest_head(functions):
    zeros = np.zeros((5, 5))
    assert functions.best_tree(zeros, single_root=False)[0].tolist() == [-1, 0, 0, 0, 0]
    zeros[0, [1, 3, 4]] = -1  # one root, word 2, which arcs from word 1 to 3 or 4 would cover
    expected = [-1, 2, 0, 2, 2] if functions is projective else [-1, 2, 0, 1, 1]
    assert functions.best_tree(zeros, single_root=False)[0].tolist() == expected


def test_importing_the_functions_does_not_import_scipy():
    """It takes longer to import than all the rest, and only the longest sentences need it."""
    program = "import sys, parser.inference; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@both
def test_an_empty_batch_is_an_empty_answer(functions):
    empty = np.empty((0, 4, 4))
    assert [a.shape for a in functions.best_tree(empty, [])] == [(0, 4), (0,)]
    assert [a.shape for a in functions.marginals(empty)] == [(0, 4, 4), (0,)]
    assert functions.log_partition(empty).shape == functions.entropy(empty).shape == (0,)
    assert functions.k_best(empty, 2) == []
    assert [a.shape for a in functions.sample(empty, 3)] == [(0, 3, 4), (0, 3)]


def test_the_compiled_functions_take_fewer_words_than_the_array_has():
    scores = RNG.normal(size=(12, 12))
    cut = np.ascontiguousarray(scores[:8, :8])
    for functions, kernel in ((nonprojective, arborescence), (projective, eisner)):
        heads = np.empty(12, np.int32)
        score = kernel.best_tree(scores, 7, True, heads)
        assert score == functions.best_tree(cut)[1]
        assert np.array_equal(heads[:8], functions.best_tree(cut)[0])
        trees, values = np.empty((3, 8), np.int32), np.empty(3)
        assert kbest.k_best(scores, 7, True, functions is projective, trees, values) == 3
        assert np.array_equal(trees, functions.k_best(cut, 3)[0])
    for functions, kernel in ((nonprojective, matrix_tree), (projective, eisner)):
        mu = np.empty((12, 12))
        assert kernel.marginals(scores, 7, True, mu) == functions.log_partition(cut)
        assert np.array_equal(mu[:8, :8], functions.marginals(cut)[0])


@both
@pytest.mark.parametrize("call", ["best_tree", "log_partition", "marginals", "entropy"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_that_are_no_numbers_are_named(functions, call, value):
    scores = np.zeros((2, 5, 5))
    scores[1, 2, 3] = value
    with pytest.raises(ValueError, match=rf"arc_scores\[1, 2, 3\] is {value}; use finite scores"):
        getattr(functions, call)(scores)
    with pytest.raises(ValueError, match=rf"arc_scores\[2, 3\] is {value}"):
        getattr(functions, call)(scores[1])
    with pytest.raises(ValueError, match=rf"arc_scores\[2, 3\] is {value}"):
        functions.k_best(scores[1], 2)
    with pytest.raises(ValueError, match=rf"arc_scores\[2, 3\] is {value}"):
        functions.sample(scores[1], 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"arc_scores": np.zeros((3, 4))}, r"must have shape .* got \(3, 4\)"),
        ({"arc_scores": np.zeros(3)}, r"must have shape .* got \(3,\)"),
        ({"arc_scores": np.zeros((1, 1))}, "covers no words"),
        ({"arc_scores": np.zeros((2, 3, 3)), "lengths": [1]}, r"shape \(2,\), one per sentence"),
        ({"arc_scores": np.zeros((3, 3)), "lengths": [1, 2]}, "one number for one sentence"),
        ({"arc_scores": np.zeros((2, 3, 3)), "lengths": [0, 2]}, r"in 1\.\.2 .* got 0\.\.2"),
        ({"arc_scores": np.zeros((2, 3, 3)), "lengths": [3, 2]}, r"in 1\.\.2 .* got 2\.\.3"),
        ({"arc_scores": np.zeros((1, 3, 3)), "lengths": [1.5]}, "must be integers"),
        ({"arc_scores": np.zeros((3, 3)), "mask": np.ones((3, 3))}, "mask must be boolean"),
        ({"arc_scores": np.zeros((3, 3)), "mask": np.ones(3, bool)}, r"of shape \(3, 3\)"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        nonprojective.best_tree(**arguments)


@both
def test_counts_that_make_no_sense_are_named(functions):
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        functions.k_best(np.zeros((3, 3)), 0)
    with pytest.raises(ValueError, match="size must not be negative, got -1"):
        functions.sample(np.zeros((3, 3)), -1)


def scores_with(arcs: list[tuple[int, int]], n: int) -> np.ndarray:
    scores = np.full((n + 1, n + 1), -np.inf)
    for head, modifier in arcs:
        scores[head, modifier] = 0.0
    return scores


NO_TREE = {
    "no head": ([(0, 1), (1, 2)], 3, "word 3 has no allowed head"),
    "a cycle": ([(0, 1), (2, 3), (3, 2)], 2, "word 2 cannot be reached from the root"),
    "two roots": ([(0, 1), (0, 2), (2, 3)], 1, r"no single root .*word 1 not from word 2"),
}


@both
@pytest.mark.parametrize(("arcs", "word", "message"), NO_TREE.values(), ids=NO_TREE.keys())
@pytest.mark.parametrize(
    "call",
    [
        lambda f, s: f.best_tree(s),
        lambda f, s: f.log_partition(s),
        lambda f, s: f.marginals(s),
        lambda f, s: f.entropy(s),
        lambda f, s: f.k_best(s, 2),
        lambda f, s: f.sample(s, 2),
    ],
    ids=["best_tree", "log_partition", "marginals", "entropy", "k_best", "sample"],
)
def test_a_sentence_without_a_tree_is_an_error_that_names_a_word(
    functions, call, arcs, word, message
):
    scores = scores_with(arcs, 3)
    with pytest.raises(NoTreeError, match=message) as error:
        call(functions, scores)
    assert (error.value.word, error.value.sentence) == (word, None)
    with pytest.raises(NoTreeError, match="sentence 1: no tree possible") as error:
        call(functions, np.stack([np.zeros((4, 4)), scores]))
    assert (error.value.word, error.value.sentence) == (word, 1)


def test_arcs_that_can_only_cross_leave_no_projective_tree():
    scores = scores_with([(0, 2), (2, 4), (4, 3), (3, 1)], 4)
    assert nonprojective.best_tree(scores)[0].tolist() == [-1, 3, 0, 4, 2]
    with pytest.raises(
        NoTreeError, match=r"no projective tree; word 1 has the fewest heads, \[3\]"
    ):
        projective.best_tree(scores)
