"""Alignment in two directions against all alignments, and the slides' example."""

from __future__ import annotations

from math import comb, factorial

import numpy as np
import pytest

from parser.inference.lagrangian import InfeasibleError, subgradient
from tests.inference.lagrangian.alignment import Alignment, Direction
from tests.inference.lagrangian.bounds import Recorder, assert_bounds, linear_relaxation
from tests.inference.lagrangian.tagger import Tagger


def random_alignment(seed: int, m: int, n: int, nulls: bool) -> Alignment:
    """First-order models: links depend on those of the word before."""
    rng = np.random.default_rng(seed)

    def direction(rows: int, columns: int) -> Direction:
        tags = columns + nulls
        theta = rng.normal(size=(rows, 1, tags, tags)) + 2 * rng.normal(size=(rows, 1, 1, tags))
        return Direction(Tagger(np.repeat(theta, tags, axis=1)), columns)

    return Alignment(direction(m, n), direction(n, m))


@pytest.mark.parametrize(
    ("m", "n", "nulls"), [(4, 4, False), (3, 3, False), (3, 4, True), (4, 3, True)]
)
@pytest.mark.parametrize("seed", range(10))
def test_bounds_hold_and_certificates_are_right(m, n, nulls, seed):
    alignment = random_alignment(seed, m, n, nulls)
    every = list(alignment.everything())
    matchings = sum(comb(m, k) * comb(n, k) * factorial(k) for k in range(min(m, n) + 1))
    assert len(every) == (matchings if nulls else factorial(n))
    optimum = max(map(alignment.score, every))
    outcome = subgradient(alignment.decomposition(), np.zeros((m, n)), iterations=100)
    assert_bounds(outcome, optimum)
    if outcome.solution is not None:
        assert alignment.score(outcome.solution) == outcome.primal


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_least_dual_is_the_value_of_the_linear_relaxation(nulls, seed):
    alignment = random_alignment(seed, 3, 3, nulls)
    values, vectors = [], []
    for direction, order in ((alignment.forward, "C"), (alignment.backward, "F")):
        every = list(direction.model.sequences())
        sign = 1 if order == "C" else -1
        values.append(np.array([direction.model.score(tags) for tags in every]))
        vectors.append(sign * np.array([direction.links(tags).ravel(order) for tags in every]))
    value = linear_relaxation(values, vectors)
    outcome = subgradient(alignment.decomposition(), np.zeros((3, 3)), iterations=500)
    assert value - 1e-9 <= outcome.dual <= value + 0.02


@pytest.mark.parametrize(("m", "n"), [(3, 4), (4, 3), (2, 5)])
def test_words_without_a_partner_are_reported(m, n):
    """Where all words have to have one."""
    alignment = random_alignment(0, m, n, nulls=False)
    assert not list(alignment.everything())
    with pytest.raises(InfeasibleError, match="no solution keeps the constraints"):
        subgradient(alignment.decomposition(), np.zeros((m, n)))


ENGLISH = ["the", "ugly", "dog", "has", "red", "fur"]
FRENCH = ["le", "chien", "laid", "a", "fourrure", "rouge"]
LINKS = [(0, 0), (1, 2), (2, 1), (3, 3), (4, 5), (5, 4)]  # English, French


def the_ugly_dog() -> Alignment:
    """Links should go on to the next word; from French, to know `ugly` and `dog` helps little."""
    jumps = np.arange(6) - np.arange(6)[:, None] - 1.0
    forward, backward = np.zeros((6, 6)), np.zeros((6, 6))
    for english, french in LINKS:
        forward[english, french] = 5.0
        backward[french, english] = 1.0 if ENGLISH[english] in ("ugly", "dog") else 5.0

    def direction(words: np.ndarray) -> Direction:
        theta = words[:, None, None, :] - (np.arange(6) > 0)[:, None, None, None] * abs(jumps)
        return Direction(Tagger(np.broadcast_to(theta, (6, 6, 6, 6))), 6)

    return Alignment(direction(forward), direction(backward))


def test_trace_of_the_slides():
    """From French first `chien laid` are `ugly dog`; prices on four links turn it around."""
    problem = Recorder(the_ugly_dog().decomposition())
    outcome = subgradient(problem, np.zeros((6, 6)), rule="constant", scale=1.0)
    first, second = problem.multipliers
    assert not first.any()
    assert {(FRENCH[f], ENGLISH[e]): second[e, f] for e, f in np.argwhere(second)} == {
        ("laid", "ugly"): -1,
        ("chien", "ugly"): 1,
        ("chien", "dog"): -1,
        ("laid", "dog"): 1,
    }
    assert [tuple(link) for link in np.argwhere(outcome.solution).tolist()] == LINKS
    assert outcome.certified
