"""Permutation test: exact cases, symmetry, and agreement with all sign vectors."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parser.evaluation import compare, permutation_test
from parser.treebank import Sentence


def exact_p(differences):
    """By definition: the share of all 2^S sign vectors that are as extreme."""
    observed = abs(sum(differences))
    sums = [
        abs(sum(sign * difference for sign, difference in zip(signs, differences, strict=True)))
        for signs in product((-1, 1), repeat=len(differences))
    ]
    return np.mean([each >= observed for each in sums])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(differences=st.lists(st.integers(-6, 6), min_size=1, max_size=9), seed=st.integers(0, 99))
def test_agrees_with_all_sign_vectors(differences, seed):
    p = exact_p(differences)
    # Five standard deviations of 10,000 draws, and the added one.
    tolerance = 5 * np.sqrt(p * (1 - p) / 10_000) + 2e-4
    assert permutation_test(differences, seed=seed) == pytest.approx(p, abs=tolerance)


def test_no_difference_gives_one():
    assert permutation_test(np.zeros(100, dtype=int)) == 1
    assert permutation_test(np.array([], dtype=int)) == 1
    assert permutation_test([3, -3, 1, -1]) == 1  # differences that cancel


def test_a_clear_difference_gives_the_smallest_p():
    assert permutation_test([1] * 60) == 1 / 10_001
    assert permutation_test([1] * 60, permutations=99) == 1 / 100


def test_one_sentence_proves_nothing():
    assert permutation_test([5]) == 1


def test_symmetric_reproducible_and_blind_to_ties():
    differences = np.random.default_rng(1).integers(-3, 5, 200)
    p = permutation_test(differences)
    assert 0 < p < 1
    assert permutation_test(-differences) == p
    assert permutation_test(differences) == p
    assert permutation_test(np.concatenate([differences, np.zeros(50, dtype=int)])) == p
    assert permutation_test(differences, seed=1) == pytest.approx(p, abs=0.02)


def test_chunks_of_permutations_make_no_difference(monkeypatch):
    differences = np.random.default_rng(2).integers(-3, 4, 50)
    p = permutation_test(differences, permutations=1000)
    # A row of 50 signs is not a whole number of draws: only the distribution is the same.
    monkeypatch.setattr("parser.evaluation.significance._CHUNK", 500)
    assert permutation_test(differences, permutations=1000) == pytest.approx(p, abs=0.08)


@pytest.mark.parametrize(
    ("differences", "permutations", "message"),
    [
        ([0.5, 1.0], 100, "array of integers, got shape .* of float64"),
        ([[1, 2]], 100, r"one-dimensional .* shape \(1, 2\)"),
        ([1, 2], 0, "permutations must be at least 1, got 0"),
    ],
)
def test_bad_arguments_are_named(differences, permutations, message):
    with pytest.raises(ValueError, match=message):
        permutation_test(differences, permutations=permutations)


def test_compare_tests_heads_and_relations_apart():
    def tree(heads, deprels):
        return Sentence.from_columns(["a", "b", "."], heads=[-1, *heads], deprels=deprels)

    gold = [tree([2, 0, 2], ["x", "root", "punct"])] * 40
    wrong_relations = [tree([2, 0, 2], ["y", "root", "punct"])] * 40
    wrong_dots = [tree([2, 0, 1], ["x", "root", "punct"])] * 40

    uas, las = compare(gold, wrong_relations, gold)
    assert (uas.measure, uas.first, uas.second, uas.difference, uas.p) == ("uas", 100, 100, 0, 1)
    assert (las.measure, las.first, las.second, las.difference) == ("las", 50, 100, 50)
    assert las.p == 1 / 10_001
    assert las.to_dict()["p"] == las.p
    backwards = compare(gold, gold, wrong_relations)[1]
    assert (backwards.difference, backwards.p) == (-50, las.p)

    assert [each.p for each in compare(gold, gold, wrong_dots)] == [1, 1]  # not scored
    assert compare(gold, gold, wrong_dots, "conll18")[0].p < 0.001
    assert [each.p for each in compare([], [], [])] == [1, 1]
