"""Parsing and tagging against all trees, the slides' worked example, the paper's appendix A."""

from __future__ import annotations

import numpy as np
import pytest

from parser.inference.lagrangian import subgradient
from tests.inference.lagrangian.bounds import Recorder, assert_bounds, linear_relaxation
from tests.inference.lagrangian.cfg_tagging import Grammar, combined, tags_of
from tests.inference.lagrangian.tagger import Tagger


def random_problem(seed: int, n: int = 4) -> tuple[Grammar, Tagger]:
    """Two or three tags and two other symbols, of whose rules a third is missing."""
    rng = np.random.default_rng(seed)
    tags = 2 + seed % 2
    rules = rng.normal(size=(tags + 2,) * 3)
    rules[rng.random(rules.shape) < 1 / 3] = -np.inf
    rules[:tags] = -np.inf
    rules[-1, 0, -1] = rules[-1, 0, 0] = 0.0  # so that there is a tree
    return Grammar(rules, rng.normal(size=(n, tags))), Tagger(
        rng.normal(size=(n, tags, tags, tags))
    )


def named(scores: dict[str, float], names: str, order: int) -> np.ndarray:
    table = np.full((len(names),) * order, -np.inf)
    for key, score in scores.items():
        table[tuple(names.index(name) for name in key)] = score
    return table


@pytest.mark.parametrize("seed", range(12))
def test_oracles_find_the_best_of_all(seed):
    grammar, tagger = random_problem(seed)
    u = np.random.default_rng(seed).normal(size=grammar.words.shape)
    rows = np.arange(len(u))
    value, shared, tree = grammar.best(u)
    every = {tree: grammar.score(tree) + u[rows, tags_of(tree)].sum() for tree in grammar.trees()}
    assert value == pytest.approx(max(every.values()), abs=1e-12)
    assert every[tree] == pytest.approx(value, abs=1e-12)
    np.testing.assert_array_equal(shared.argmax(axis=1), tags_of(tree))
    value, shared, tags = tagger.best(u)
    best = max(tagger.score(z) + u[rows, z].sum() for z in tagger.sequences())
    assert value == pytest.approx(best, abs=1e-12)
    assert tagger.score(tags) + u[rows, tags].sum() == pytest.approx(value, abs=1e-12)
    np.testing.assert_array_equal(shared.argmax(axis=1), tags)


@pytest.mark.parametrize("seed", range(30))
def test_bounds_hold_and_certificates_are_right(seed):
    grammar, tagger = random_problem(seed)
    optimum = max(grammar.score(tree) + tagger.score(tags_of(tree)) for tree in grammar.trees())
    outcome = subgradient(combined(grammar, tagger), np.zeros(grammar.words.shape), iterations=100)
    assert_bounds(outcome, optimum)
    tree = outcome.solution
    assert grammar.score(tree) + tagger.score(tags_of(tree)) == outcome.primal


def relaxed(grammar: Grammar, tagger: Tagger) -> float:
    one_hot = np.eye(grammar.words.shape[1])
    trees, sequences = list(grammar.trees()), list(tagger.sequences())
    return linear_relaxation(
        [
            np.array([grammar.score(y) for y in trees]),
            np.array([tagger.score(z) for z in sequences]),
        ],
        [
            np.array([one_hot[tags_of(y)].ravel() for y in trees]),
            -np.array([one_hot[z].ravel() for z in sequences]),
        ],
    )


@pytest.mark.parametrize("seed", range(6))
def test_the_least_dual_is_the_value_of_the_linear_relaxation(seed):
    grammar, tagger = random_problem(seed, n=3)
    value = relaxed(grammar, tagger)
    outcome = subgradient(combined(grammar, tagger), np.zeros(grammar.words.shape), iterations=500)
    assert value - 1e-9 <= outcome.dual <= value + 0.01


# "United flies some large jet": as a sentence, or United as an adjective and jet as a verb.
TAGS = "ADNV"
SYMBOLS = TAGS + "anpvqs"  # the rules say what they are; s is the sentence
RULES = {"snq": 1.0, "sNv": 0.0, "vVp": 0.0, "pDn": 0.0, "nAN": 0.0, "qDa": 0.0, "aAV": 0.0}
BIGRAMS = {"NV": 4.0, "AN": 3.0, "VD": 1.0, "ND": 0.0, "DA": 0.0, "AV": 0.0, "NN": 0.0}
CHOICES = ["AN", "NV", "D", "A", "NV"]


def united_flies() -> tuple[Grammar, Tagger]:
    allowed = np.array([[0.0 if tag in tags else -np.inf for tag in TAGS] for tags in CHOICES])
    theta = np.zeros((5, 4, 4, 4))
    theta[1:] += named(BIGRAMS, TAGS, 2)
    return Grammar(named(RULES, SYMBOLS, 3), allowed), Tagger(theta + allowed[:, None, None])


def entries(u: np.ndarray) -> dict[str, float]:
    return {f"{i + 1}{TAGS[t]}": u[i, t] for i, t in np.argwhere(u)}


def test_trace_of_the_slides():
    problem = Recorder(combined(*united_flies()))
    outcome = subgradient(problem, np.zeros((5, 4)), rule="constant", scale=1.0)
    spelled = [
        ["".join(TAGS[t] for t in shared.argmax(axis=1)) for shared in step.iterates]
        for step in problem.steps
    ]
    assert spelled == [["ANDAV", "NVDAN"], ["NVDAN", "ANDAN"], ["NVDAN", "NVDAN"]]
    assert [entries(u) for u in problem.multipliers] == [
        {},
        {"1A": -1, "1N": 1, "2N": -1, "2V": 1, "5N": 1, "5V": -1},
        {"5N": 1, "5V": -1},
    ]
    assert outcome.certified
    assert_bounds(outcome, 8.0)


def fractional() -> tuple[Grammar, Tagger]:
    """Appendix A: three words, tags A and B, and a symbol X."""
    rules = np.full((3, 3, 3), -np.inf)
    rules[2] = -1.0
    rules[2, 0, 2] = rules[2, 0, 1] = rules[2, 1, 0] = 0.0  # X -> A X | A B | B A
    theta = np.zeros((3, 2, 2, 2))
    theta[2] = -1.0
    theta[2, 0, 0, 0] = theta[2, 0, 1, 1] = 0.0
    return Grammar(rules, np.zeros((3, 2))), Tagger(theta)


def test_fractional_solution_of_the_appendix():
    grammar, tagger = fractional()
    assert max(grammar.score(y) + tagger.score(tags_of(y)) for y in grammar.trees()) == -1.0
    assert relaxed(grammar, tagger) == pytest.approx(0.0, abs=1e-9)
    problem = Recorder(combined(grammar, tagger))
    outcome = subgradient(problem, np.zeros((3, 2)), rule="constant", scale=0.01, iterations=400)
    assert (outcome.dual, outcome.primal, outcome.gap, outcome.certified) == (0.0, -1.0, 1.0, False)
    assert all(step.residual.any() for step in problem.steps)
    for average in outcome.averages:
        np.testing.assert_allclose(average, [[1, 0], [0.5, 0.5], [0.5, 0.5]], atol=0.02)
