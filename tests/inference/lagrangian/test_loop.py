"""Step sizes by hand; and the loop over problems that are lists of all their structures."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
import pytest

from cython_ext.lagrangian import Progress
from parser.inference.lagrangian import (
    Decomposition,
    InfeasibleError,
    Maximum,
    Step,
    Tightening,
    subgradient,
)
from tests.inference.lagrangian.bounds import Recorder, assert_bounds, linear_relaxation

RULES = ["constant", "decreasing", "dual-progress", "halving", "polyak"]
every_rule = pytest.mark.parametrize("rule", RULES)
DUALS = [5.0, 4.0, 6.0, 5.0, 5.5]  # goes up twice: against the one before, not against the least


@pytest.mark.parametrize(
    ("rule", "steps"),
    [
        ("constant", [2, 2, 2, 2, 2]),
        ("decreasing", [2, 1, 2 / 3, 1 / 2, 2 / 5]),
        ("dual-progress", [2, 2, 1, 1, 2 / 3]),
        ("halving", [2, 2, 1, 1, 1 / 2]),
        ("polyak", [1 / 2, 1 / 4, 3 / 4, 1 / 2, 5 / 8]),  # (L_k - 3) / 4
    ],
)
def test_steps_of_each_rule(rule, steps):
    progress = Progress(rule, 2.0)
    assert [progress.advance(dual, 3.0, 4.0) for dual in DUALS] == pytest.approx(steps, rel=1e-15)
    assert progress.increases == 2
    assert progress.iterations == 5


def test_bounds_are_the_least_dual_and_the_largest_primal():
    progress = Progress()
    for dual, primal in zip(DUALS, [-inf, 1.0, 3.0, 2.0, -inf], strict=True):
        progress.advance(dual, primal, 1.0)
    assert (progress.dual, progress.primal, progress.closed) == (4.0, 3.0, False)
    progress.advance(7.0, 4.0, 1.0)
    assert progress.closed


def test_a_dual_that_goes_up_by_rounding_does_not_shorten_steps():
    progress = Progress("dual-progress", 1.0)
    assert [progress.advance(dual, 0.0, 1.0) for dual in (1e6, 1e6 + 1e-9, 1e6 + 1)] == [1, 1, 0.5]


@pytest.mark.parametrize(("primal", "step"), [(3.0, 0.5), (-inf, 1.0)])
def test_without_a_scale_the_first_gap_gives_it(primal, step):
    progress = Progress("constant")
    assert [progress.advance(dual, primal, 4.0) for dual in (5.0, 4.0)] == [step, step]


def test_polyak_takes_the_scale_until_there_is_a_solution():
    progress = Progress("polyak", 2.0)
    assert [progress.advance(5.0, primal, 4.0) for primal in (-inf, 1.0, -inf)] == [2.0, 1.0, 1.0]


def test_wrong_options_are_named():
    with pytest.raises(ValueError, match="'newton' is not one of constant, decreasing"):
        Progress("newton")
    for scale in (0.0, -1.0, inf, np.nan):
        with pytest.raises(ValueError, match=f"above 0, got {scale}"):
            Progress("constant", scale)
    with pytest.raises(ValueError, match=r"got 0 and 0\.0"):
        subgradient(choosers([1.0], [1.0]), [0.0], iterations=0)
    with pytest.raises(ValueError, match="got 1000 and nan"):
        subgradient(choosers([1.0], [1.0]), [0.0], tolerance=np.nan)
    with pytest.raises(ValueError, match=r"residual has shape \(2,\), multipliers \(1,\)"):
        subgradient(choosers([1.0, 2.0], [1.0, 0.0]), [0.0])


@dataclass(frozen=True)
class Rows:
    """maximise f[i] over the rows i of x, such that x[i] = 1 everywhere."""

    f: np.ndarray
    x: np.ndarray

    def solve(self, u: np.ndarray) -> Step:
        values = self.f + (self.x - 1.0) @ u
        i = int(np.argmax(values))
        kept = (self.x[i] == 1.0).all()
        primal, solution = (self.f[i], i) if kept else (-inf, None)
        return Step(values[i], self.x[i] - 1.0, primal, solution, (self.x[i],))

    def restricted(self, coordinates: np.ndarray) -> Rows:
        """Without the rows that are not 1 at these coordinates."""
        kept = (self.x[:, coordinates] == 1.0).all(axis=1)
        return Rows(self.f[kept], self.x[kept])

    @property
    def optimum(self) -> float:
        return float(self.f[(self.x == 1.0).all(axis=1)].max())


def random_rows(seed: int, rows: int = 30, size: int = 4) -> Rows:
    """The first row keeps the constraints, and few others do."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 3, (rows, size)).astype(float)
    x[0] = 1.0
    return Rows(rng.normal(size=rows), x)


def chooser(scores):
    """One out of many; forbidden where the score is -inf."""

    def oracle(u: np.ndarray) -> Maximum:
        values = np.asarray(scores) + u
        best = int(np.argmax(values))
        return Maximum(values[best], np.eye(len(values))[best], best)

    return oracle


def choosers(f, g, *, completed: bool = False) -> Decomposition:
    """Both have to choose the same; completed by the choice of the second."""
    f, g = np.asarray(f, float), np.asarray(g, float)
    complete = (lambda _, j: (float(f[j] + g[j]), j)) if completed else None
    return Decomposition(chooser(f), chooser(g), complete)


@every_rule
@pytest.mark.parametrize("seed", range(20))
def test_bounds_hold_in_every_iteration(rule, seed):
    problem = random_rows(seed)
    outcome = subgradient(problem, np.zeros(4), rule=rule, scale=0.5, iterations=100)
    assert_bounds(outcome, problem.optimum)
    assert problem.solve(outcome.multipliers).value == outcome.dual
    if outcome.solution is not None:
        assert problem.f[outcome.solution] == outcome.primal


@pytest.mark.parametrize("seed", range(10))
def test_the_dual_tends_to_the_value_of_the_linear_relaxation(seed):
    """By steps whose sum is infinite; and averages to its solution, soonest where all count."""
    problem = random_rows(seed)
    relaxed = linear_relaxation([problem.f], [problem.x], 1.0)
    for rule, scale in [("decreasing", 0.5), ("dual-progress", 0.5), ("constant", 0.02)]:
        outcome = subgradient(problem, np.zeros(4), rule=rule, scale=scale, iterations=1500)
        assert relaxed - 1e-9 <= outcome.dual <= relaxed + 0.03
    np.testing.assert_allclose(outcome.averages[0], 1.0, atol=0.05)


@every_rule
@pytest.mark.parametrize("unit", [1000.0, 2.0**-20])
@pytest.mark.parametrize("seed", range(5))
def test_the_unit_of_the_scores_does_not_matter(rule, unit, seed):
    f, g = np.random.default_rng(seed).normal(size=(2, 12))
    plain, scaled = (Recorder(choosers(f * c, g * c, completed=True)) for c in (1.0, unit))
    one, other = (subgradient(r, np.zeros(12), rule=rule, iterations=25) for r in (plain, scaled))
    assert (one.iterations, one.certified) == (other.iterations, other.certified)
    assert one.solution == other.solution
    for u, v in zip(plain.multipliers, scaled.multipliers, strict=True):
        np.testing.assert_allclose(u * unit, v, rtol=1e-9, atol=1e-9 * unit)
    for step, same in zip(plain.steps, scaled.steps, strict=True):
        np.testing.assert_array_equal(step.iterates, same.iterates)


def test_agreement_at_once_is_the_end():
    outcome = subgradient(choosers([0.0, 2.0, 1.0], [1.0, 3.0, 0.0]), np.zeros(3))
    assert (outcome.solution, outcome.primal, outcome.dual, outcome.gap) == ((1, 1), 5.0, 5.0, 0.0)
    assert outcome.certified
    assert outcome.iterations == 1
    assert outcome.history.tolist() == [[5.0, 5.0]]
    np.testing.assert_array_equal(outcome.averages, [[0, 1, 0], [0, 1, 0]])
    np.testing.assert_array_equal(outcome.multipliers, 0.0)


def test_a_solution_whose_value_is_the_dual_is_certified_without_agreement():
    """The first is indifferent, and insists on the other choice."""
    outcome = subgradient(choosers([1.0, 1.0], [0.0, 2.0], completed=True), np.zeros(2))
    assert (outcome.solution, outcome.certified, outcome.iterations) == (1, True, 1)


@dataclass(frozen=True)
class Constant:
    """The same step whatever the multipliers."""

    step: Step

    def solve(self, u: np.ndarray) -> Step:
        return self.step


@pytest.mark.parametrize(
    "step",
    [
        Step(0.1 + 0.2, np.ones(1), 0.3, "kept"),  # the bounds meet
        Step(1.0 + 1e-7, np.zeros(1), 1.0, "kept"),  # agreement, with multipliers of 1e9 or so
    ],
)
def test_rounding_does_not_hide_a_certificate(step):
    outcome = subgradient(Constant(step), [0.0])
    assert (outcome.solution, outcome.certified, outcome.iterations) == ("kept", True, 1)


def test_multipliers_may_have_any_shape_and_are_where_to_go_on():
    f, g = np.random.default_rng(1).normal(size=(2, 6))

    def reshaped(oracle):
        def solve(u):
            value, shared, structure = oracle(u.ravel())
            return Maximum(value, shared.reshape(2, 3), structure)

        return solve

    flat = choosers(f, g)
    square = Decomposition(reshaped(flat.first), reshaped(flat.second))
    outcome = subgradient(square, np.zeros((2, 3)))
    assert outcome.certified
    assert outcome.iterations > 1
    assert outcome.multipliers.shape == outcome.averages[0].shape == (2, 3)
    np.testing.assert_array_equal(
        outcome.multipliers.ravel(), subgradient(flat, np.zeros(6)).multipliers
    )
    again = subgradient(square, outcome.multipliers)
    assert (again.iterations, again.dual) == (1, outcome.dual)


def test_iterations_and_tolerance_end_early_without_a_certificate():
    problem = random_rows(0)
    first = subgradient(problem, np.zeros(4), iterations=3)
    assert (first.iterations, first.certified, len(first.history)) == (3, False, 3)

    f, g = np.array([3.0, 0.0, 2.0]), np.array([0.0, 3.0, 2.5])
    whole = subgradient(choosers(f, g, completed=True), np.zeros(3), rule="constant", scale=0.01)
    early = subgradient(
        choosers(f, g, completed=True), np.zeros(3), rule="constant", scale=0.01, tolerance=2.0
    )
    assert early.iterations < whole.iterations
    assert not early.certified
    assert 0.0 < early.gap <= 2.0


@every_rule
def test_averages_are_weighted_by_steps(rule):
    """So that x - 1 of the mean is the change of u over the sum of the steps; plain if constant."""
    problem = Recorder(random_rows(3))
    options = {"rule": rule, "scale": 0.3}
    subgradient(problem, np.zeros(4), iterations=8, **options)
    u = np.array(problem.multipliers)
    x = np.array([step.iterates[0] for step in problem.steps[:7]])
    weights = [a @ b / (b @ b) for a, b in zip(u[:-1] - u[1:], x - 1.0, strict=True)]
    outcome = subgradient(random_rows(3), np.zeros(4), iterations=7, **options)
    assert not outcome.certified
    np.testing.assert_allclose(outcome.averages[0], np.average(x, axis=0, weights=weights))
    change = u[-1] - u[0]
    np.testing.assert_allclose(outcome.averages[0] - 1.0, -change / sum(weights), atol=1e-12)
    if rule == "constant":
        np.testing.assert_allclose(outcome.averages[0], x.mean(axis=0))


@every_rule
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_problem_without_solution_is_reported(rule, unit):
    """The first may choose only what the second may not."""
    scores = unit * np.random.default_rng(2).normal(size=8)
    low = np.arange(8) < 5
    problem = Recorder(choosers(np.where(low, scores, -inf), np.where(low, -inf, scores)))
    with pytest.raises(InfeasibleError, match="no solution keeps the constraints"):
        subgradient(problem, np.zeros(8), rule=rule)
    assert len(problem.steps) < 200


def test_parts_without_any_structure_are_reported():
    with pytest.raises(InfeasibleError, match="the dual fell to -inf"):
        subgradient(choosers([-inf, -inf], [0.0, 0.0]), np.zeros(2))


def test_a_bad_solution_is_one_all_the_same():
    """Agreement costs a million; the dual has far to go, and no iteration finds a solution."""
    problem = choosers([0.0, -1e6, -inf], [-inf, -1e6, 0.0])
    outcome = subgradient(problem, np.zeros(3), iterations=100)
    assert_bounds(outcome, -2e6)
    assert (outcome.solution, outcome.primal) == (None, -inf)
    assert subgradient(problem, np.zeros(3), scale=1e6).certified
    huge = choosers([-3e13, -2e13], [-1e13, -3e13], completed=True)
    assert_bounds(subgradient(huge, np.zeros(2)), -4e13)


def test_constraints_that_are_violated_often_are_added_when_the_dual_stalls():
    """Rows 0 and 2 for a word, or 2 and 0, are 1 on average; row 0 keeps all constraints."""
    x = np.array([[1, 1, 1], [0, 2, 1], [2, 0, 1], [1, 1, 0]], float)
    problem = Rows(np.array([-1.0, 0.0, 0.0, -5.0]), x)
    counted = []

    def add(violations):
        counted.append(violations)
        return problem.restricted(np.argsort(-violations)[:1])

    loose = subgradient(problem, np.zeros(3), iterations=300, scale=1.0)
    assert (loose.certified, loose.dual, loose.solution, loose.tightened) == (False, 0, None, ())
    np.testing.assert_allclose(loose.averages[0], 1.0, atol=0.02)
    tight = subgradient(
        problem, np.zeros(3), scale=1.0, tightening=Tightening(add, patience=20, watch=6)
    )
    assert [c.tolist() for c in counted] == [[6, 6, 0]]
    assert tight.tightened == (27,)  # 21 duals for a fall over 20 iterations, and 6 that count
    assert tight.certified
    assert (tight.solution, tight.primal) == (0, -1.0)
    assert_bounds(tight, problem.optimum)


def test_nothing_to_add_is_no_end():
    calls = []
    tightening = Tightening(lambda violations: calls.append(violations), patience=10, watch=5)
    x = np.array([[1, 1], [0, 2], [2, 0]], float)
    problem = Rows(np.array([-1.0, 0.0, 0.0]), x)
    outcome = subgradient(problem, np.zeros(2), iterations=64, scale=1.0, tightening=tightening)
    assert (outcome.iterations, outcome.tightened, len(calls)) == (64, (), 4)
    plain = subgradient(problem, np.zeros(2), iterations=64, scale=1.0)
    np.testing.assert_array_equal(outcome.history, plain.history)


def test_averages_begin_anew_when_the_problem_is_tightened():
    problem = Recorder(random_rows(3))
    outcome = subgradient(
        problem,
        np.zeros(4),
        rule="constant",
        scale=0.1,
        iterations=60,
        tightening=Tightening(lambda _: problem, patience=20, watch=5),
    )
    assert outcome.tightened[-1] == 51
    after = [step.iterates[0] for step in problem.steps[-9:]]
    np.testing.assert_allclose(outcome.averages[0], np.mean(after, axis=0), atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_tightening_ends_with_a_certificate(seed):
    problem = random_rows(seed, rows=60)

    def add(violations):
        nonlocal held
        held = held | (np.argsort(-violations)[:2] == np.arange(4)[:, None]).any(axis=1)
        return problem.restricted(held)

    held = np.zeros(4, bool)
    outcome = subgradient(
        problem, np.zeros(4), scale=0.5, tightening=Tightening(add, patience=15, watch=5)
    )
    assert outcome.certified
    assert_bounds(outcome, problem.optimum)
