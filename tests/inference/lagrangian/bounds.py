"""What every relaxation is held to, and the linear program whose value is its least dual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linprog

from parser.inference.lagrangian import Outcome, Problem, Step


@dataclass
class Recorder:
    """A problem that remembers with which multipliers it was solved, and the steps."""

    problem: Problem
    multipliers: list[np.ndarray] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def solve(self, u: np.ndarray) -> Step:
        self.multipliers.append(u)
        self.steps.append(self.problem.solve(u))
        return self.steps[-1]


def assert_bounds(outcome: Outcome, optimum: float) -> None:
    """Every dual is at least the optimum, every primal at most; what is certified is optimal."""
    slack = 1e-9 * max(1.0, abs(optimum))
    duals, primals = outcome.history.T
    assert (duals >= optimum - slack).all()
    assert (primals <= optimum + slack).all()
    assert (outcome.dual, outcome.primal) == (duals.min(), primals.max())
    assert len(duals) == outcome.iterations
    if outcome.certified:
        assert abs(outcome.primal - optimum) <= slack
        assert outcome.gap <= 2 * slack


def linear_relaxation(
    values: Sequence[np.ndarray], vectors: Sequence[np.ndarray], right: np.ndarray | float = 0.0
) -> float:
    """max sum_i p_i . values_i, such that sum_i p_i vectors_i = right; each p_i a distribution.

    Over all structures of each part: values_i is (structures,), vectors_i (structures, shared).
    The second of two parts that have to agree has its vectors negated.
    """
    sizes = [len(v) for v in values]
    matrix = np.concatenate(vectors).T
    found = linprog(
        -np.concatenate(values),
        A_eq=np.vstack([matrix, np.repeat(np.eye(len(sizes)), sizes, axis=1)]),
        b_eq=np.concatenate([np.broadcast_to(right, len(matrix)), np.ones(len(sizes))]),
    )
    assert found.status == 0, found.message
    return -found.fun
