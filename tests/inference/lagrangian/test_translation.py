"""Translation against all derivations, the slides' example, and constraints added one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from parser.inference.lagrangian import InfeasibleError, Outcome, Tightening, subgradient
from tests.inference.lagrangian.bounds import Recorder, assert_bounds, linear_relaxation
from tests.inference.lagrangian.translation import Phrase, Translation


def random_translation(seed: int, n: int = 4) -> Translation:
    """Each word alone, and three longer phrases; all to one or two of five words."""
    rng = np.random.default_rng(seed)
    target = ["a", "b", "c", "d", "e"]
    starts = rng.integers(0, n - 1, 3).tolist()
    spans = [(i, i) for i in range(n)] + [(start, start + 1) for start in starts]
    phrases = [
        Phrase(start, end, tuple(rng.choice(target, 1 + k % 2).tolist()), float(rng.normal()))
        for k, (start, end) in enumerate(spans)
    ]
    bigrams = {(one, two): float(rng.normal()) for one in [None, *target] for two in target}
    return Translation(n, phrases, bigrams, eta=-0.3, limit=n)


def optimum(problem: Translation) -> float:
    kept = [y for y in problem.derivations() if (problem.counts(y) == 1.0).all()]
    return max(map(problem.score, kept))


@pytest.mark.parametrize("once", [frozenset(), frozenset({1}), frozenset({0, 3})])
@pytest.mark.parametrize("seed", range(8))
def test_the_relaxed_problem_finds_the_best_of_all_relaxed_derivations(seed, once):
    problem = replace(random_translation(seed), once=once, limit=2)
    u = np.random.default_rng(seed).normal(size=4)
    every = list(problem.derivations())
    duals = [problem.score(y) + u @ (problem.counts(y) - 1.0) for y in every]
    step = problem.solve(u)
    assert step.value == pytest.approx(max(duals), abs=1e-12)
    best = every[int(np.argmax(duals))]
    np.testing.assert_array_equal(step.residual, problem.counts(best) - 1.0)
    assert not step.residual[list(once)].any()


@pytest.mark.parametrize("seed", range(20))
def test_bounds_hold_and_certificates_are_right(seed):
    problem = random_translation(seed)
    outcome = subgradient(problem, np.zeros(4), iterations=60)
    assert_bounds(outcome, optimum(problem))
    if outcome.certified:
        assert (problem.counts(outcome.solution) == 1.0).all()
        assert problem.score(outcome.solution) == outcome.primal


@pytest.mark.parametrize("seed", range(4))
def test_the_least_dual_is_the_value_of_the_linear_relaxation(seed):
    problem = random_translation(seed)
    every = list(problem.derivations())
    values = np.array([problem.score(y) for y in every])
    value = linear_relaxation([values], [np.array([problem.counts(y) for y in every])], 1.0)
    outcome = subgradient(problem, np.zeros(4), iterations=300)
    assert value - 1e-9 <= outcome.dual <= value + 0.02


def test_a_word_without_phrases_is_reported():
    problem = random_translation(0)
    phrases = [phrase for phrase in problem.phrases if not phrase.start <= 2 <= phrase.end]
    with pytest.raises(InfeasibleError, match="no solution keeps the constraints"):
        subgradient(replace(problem, phrases=phrases), np.zeros(4))
    with pytest.raises(InfeasibleError, match="the dual fell to -inf"):
        subgradient(replace(problem, phrases=[]), np.zeros(4))


def das_muss_unsere_sorge() -> Translation:
    """das muss unsere sorge gleichermassen sein: this must also be our concern."""
    phrases = [
        Phrase(0, 1, ("this", "must"), 0.0),
        Phrase(1, 1, ("must",), 0.0),
        Phrase(2, 3, ("our", "concern"), 1.5),
        Phrase(4, 4, ("also",), -0.5),
        Phrase(5, 5, ("be",), 0.0),
    ]
    bigrams: dict[tuple[str | None, str], float] = {
        ("must", "also"): 2.25,
        ("be", "our"): 0.75,
        ("concern", "must"): 0.75,
        ("concern", "be"): 0.5,
        ("also", "also"): -0.25,
        ("must", "our"): -0.25,
        ("must", "this"): -0.5,
        ("concern", "our"): -0.5,
    }
    return Translation(6, phrases, bigrams, eta=-0.5, limit=4)


def test_trace_of_the_slides():
    problem = Recorder(das_muss_unsere_sorge())
    outcome = subgradient(problem, np.zeros(6), rule="dual-progress", scale=1.0)
    np.testing.assert_array_equal(
        [step.iterates[0] for step in problem.steps],
        [[0, 1, 2, 2, 0, 1], [1, 2, 0, 0, 2, 1], [1, 1, 1, 1, 1, 1]],
    )
    np.testing.assert_array_equal(
        problem.multipliers,
        [[0, 0, 0, 0, 0, 0], [1, 0, -1, -1, 1, 0], [1, -0.5, -0.5, -0.5, 0.5, 0]],
    )
    assert outcome.certified
    assert_bounds(outcome, optimum(problem.problem))
    words = [word for phrase in outcome.solution for word in phrase.words]
    assert " ".join(words) == "this must also be our concern"


def tighten(problem: Translation, most: int) -> tuple[Outcome, list[list[int]]]:
    """The words with most violations have to be right from then on; and those words, by rounds."""
    rounds: list[list[int]] = []
    tighter = problem

    def add(violations: np.ndarray) -> Translation:
        nonlocal tighter
        words = np.argsort(-violations, kind="stable")[:most]
        words = words[violations[words] > 0]
        rounds.append(words.tolist())
        tighter = tighter.tightened(words)
        return tighter

    options = Tightening(add, patience=20, watch=10)
    return subgradient(problem, np.zeros(problem.n), tightening=options), rounds


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("seed", range(20))
def test_words_that_are_violated_often_are_added_until_there_is_a_certificate(seed, most):
    problem = random_translation(seed)
    outcome, rounds = tighten(problem, most)
    assert outcome.certified
    assert_bounds(outcome, optimum(problem))
    assert len(rounds) == len(outcome.tightened)
    words = list(chain(*rounds))
    assert len(set(words)) == len(words)


def test_two_words_that_the_translation_cannot_get_right_are_enough():
    """With them the next derivation is optimal, as on the slides."""
    problem = random_translation(0)
    loose = subgradient(problem, np.zeros(4), iterations=300)
    assert (loose.certified, loose.solution) == (False, None)
    outcome, rounds = tighten(problem, 2)
    assert rounds == [[2, 3]]
    assert outcome.certified
    assert outcome.iterations == outcome.tightened[0] + 1
