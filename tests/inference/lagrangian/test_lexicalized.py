"""Lexicalised and dependency parsing against all trees; an attachment that they differ about."""

from __future__ import annotations

import numpy as np
import pytest

from parser.inference.lagrangian import subgradient
from tests.inference.lagrangian.bounds import Recorder, assert_bounds, linear_relaxation
from tests.inference.lagrangian.lexicalized import (
    Lexicalized,
    Siblings,
    arcs_of,
    combined,
    heads_of,
)


def random_problem(seed: int, n: int = 4) -> tuple[Lexicalized, Siblings]:
    """A tag or two, and two other symbols, of whose rules half are missing."""
    rng = np.random.default_rng(seed)
    tags = 1 + seed % 2
    rules = rng.normal(size=(2, *(tags + 2,) * 3))
    rules[rng.random(rules.shape) < 0.5] = -np.inf
    rules[:, :tags] = -np.inf
    rules[0, -1, 0, -1] = rules[1, -1, 0, 0] = 0.0  # so that there is a tree
    words = np.append(-np.inf, np.zeros(n))[:, None]
    bilexical = rng.normal(size=(n + 1, n + 1))
    return Lexicalized(rules, bilexical, words + rng.normal(size=(n + 1, tags))), Siblings(
        2.0 * rng.normal(size=(n + 1,) * 3)
    )


@pytest.mark.parametrize("seed", range(12))
def test_oracles_find_the_best_of_all(seed):
    grammar, parser = random_problem(seed)
    u = np.random.default_rng(seed).normal(size=grammar.bilexical.shape)
    value, shared, tree = grammar.best(u)
    every = {t: grammar.score(t) + (u * arcs_of(heads_of(t))).sum() for t in grammar.trees()}
    assert value == pytest.approx(max(every.values()), abs=1e-12)
    assert every[tree] == pytest.approx(value, abs=1e-12)
    np.testing.assert_array_equal(shared, arcs_of(heads_of(tree)))
    value, shared, heads = parser.best(u)
    every = {t: parser.score(t) + (u * arcs_of(t)).sum() for t in parser.trees()}
    assert value == pytest.approx(max(every.values()), abs=1e-12)
    assert every[heads] == pytest.approx(value, abs=1e-12)
    np.testing.assert_array_equal(shared, arcs_of(heads))


@pytest.mark.parametrize("seed", range(30))
def test_bounds_hold_and_certificates_are_right(seed):
    grammar, parser = random_problem(seed)
    optimum = max(grammar.score(tree) + parser.score(heads_of(tree)) for tree in grammar.trees())
    problem = combined(grammar, parser)
    outcome = subgradient(problem, np.zeros(grammar.bilexical.shape), iterations=100)
    assert_bounds(outcome, optimum)
    tree = outcome.solution
    assert grammar.score(tree) + parser.score(heads_of(tree)) == outcome.primal


def test_most_are_certified():
    problems = [combined(*random_problem(seed)) for seed in range(30)]
    outcomes = [subgradient(problem, np.zeros((5, 5)), iterations=100) for problem in problems]
    assert sum(outcome.certified for outcome in outcomes) >= 24


@pytest.mark.parametrize("seed", range(6))
def test_the_least_dual_is_the_value_of_the_linear_relaxation(seed):
    grammar, parser = random_problem(seed, n=3)
    trees, others = list(grammar.trees()), list(parser.trees())
    value = linear_relaxation(
        [np.array([grammar.score(t) for t in trees]), np.array([parser.score(t) for t in others])],
        [
            np.array([arcs_of(heads_of(t)).ravel() for t in trees]),
            -np.array([arcs_of(t).ravel() for t in others]),
        ],
    )
    outcome = subgradient(combined(grammar, parser), np.zeros((4, 4)), iterations=500)
    assert value - 1e-9 <= outcome.dual <= value + 0.01


# "saw stars with telescopes": the grammar attaches "with" to "stars", the parser to "saw", and
# "telescopes" to "saw", too, which no rule allows.
TAGS = "VNP"
SYMBOLS = TAGS + "npvs"  # n, p, v and s are of the tags N, P, V and V; heads are on the left
RULES = {"sVn": 0.0, "nNp": 1.0, "pPN": 0.0, "vVN": 0.0, "svp": 0.0}
SIBLINGS = {(0, 0, 1): 0, (1, 1, 2): 0, (1, 2, 3): 2.5, (2, 2, 3): 0, (3, 3, 4): 0, (1, 3, 4): 0.5}


def saw_stars() -> tuple[Lexicalized, Siblings]:
    rules = np.full((2, *(len(SYMBOLS),) * 3), -np.inf)
    for rule, score in RULES.items():
        rules[(0, *map(SYMBOLS.index, rule))] = score
    tags = np.full((5, len(TAGS)), -np.inf)
    tags[range(1, 5), list(map(TAGS.index, "VNPN"))] = 0.0
    theta = np.full((5, 5, 5), -9.0)
    for place, score in SIBLINGS.items():
        theta[place] = score
    return Lexicalized(rules, np.zeros((5, 5)), tags), Siblings(theta)


def test_trace_of_an_attachment():
    grammar, parser = saw_stars()
    problem = Recorder(combined(grammar, parser))
    outcome = subgradient(problem, np.zeros((5, 5)), rule="constant", scale=1.0)
    chosen = [[tuple(y[:, 1:].argmax(0)) for y in step.iterates] for step in problem.steps]
    assert chosen == [[(0, 1, 2, 3), (0, 1, 1, 1)], [(0, 1, 1, 3), (0, 1, 1, 3)]]
    changed = {(h, m): problem.multipliers[1][h, m] for h, m in np.argwhere(problem.multipliers[1])}
    assert changed == {(2, 3): -1, (3, 4): -1, (1, 3): 1, (1, 4): 1}
    assert [step.value for step in problem.steps] == [4.0, 2.5]
    assert outcome.certified
    assert_bounds(outcome, 2.5)


def test_agreement_is_worth_more_than_keeping_to_the_dependencies_of_one():
    """The baseline of Rush et al. (2010) parses with the best dependencies fixed."""
    grammar, parser = saw_stars()
    nothing = np.zeros((5, 5))
    alone = parser.best(nothing).structure
    assert alone not in {heads_of(tree) for tree in grammar.trees()}
    first = grammar.best(nothing).structure
    together = subgradient(combined(grammar, parser), nothing)
    assert grammar.score(first) + parser.score(heads_of(first)) == 1.0
    assert together.primal == 2.5
