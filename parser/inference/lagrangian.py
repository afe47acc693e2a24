"""Lagrangian relaxation by subgradients: hard constraints become prices.  Knows no parsing.

    maximise f(x) over x in X, such that A x = b        where without A x = b it is easy
    L(u) = max_x f(x) + u . (A x - b)                   at least the optimum, for every u
    u <- u - alpha_k (A x_k - b)                        minimises L, which is convex

Dual decomposition is the case of two problems that have to agree, A x - b = z - y:

    maximise f(z) + g(y), such that z = y               at the coordinates that they share
    L(u) = max_z [f(z) + u . z] + max_y [g(y) - u . y]

A relaxed solution that keeps the constraints is optimal; so is a solution whose value is L(u).  The
least L is the optimum of a linear relaxation, so there may be a gap that no iterations close.

A. M. Rush, D. Sontag, M. Collins and T. Jaakkola, "On dual decomposition and linear programming
relaxations for natural language processing", EMNLP 2010, figure 4.  Y. Chang and M. Collins, "Exact
decoding of phrase-based translation models through Lagrangian relaxation", EMNLP 2011 (tightening).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cython_ext.lagrangian import Progress

Floats = NDArray[np.float64]

# Without a solution so far, each LOOK iterations the problem is solved once with multipliers so
# large that scores count for nothing.  A problem without solution has a ray along which the dual
# falls for ever, and by the steps of a perceptron it is found in finitely many looks.
LOOK = 16
FAR = 1e15  # in units of the first dual, or of 1 if that is more
LOWEST = -1e12  # in the same units; where the dual is below, there is no solution


class InfeasibleError(ValueError):
    """No solution keeps the constraints: the dual has no lower bound."""


@dataclass(frozen=True)
class Step:
    """The best relaxed solution x at multipliers u.

    Attributes
    ----------
    value : float
        L(u).
    residual : ndarray, shape of u
        A x - b, exactly 0 where a constraint is kept.
    primal, solution : float and any
        The best solution known to keep the constraints, x itself if it does; -inf and None if none.
    iterates : tuple of ndarray
        What is to be averaged, as (z, y).
    """

    value: float
    residual: NDArray[Any]
    primal: float = -inf
    solution: Any = None
    iterates: tuple[NDArray[Any], ...] = ()


class Problem(Protocol):
    def solve(self, u: Floats) -> Step:
        """The relaxed problem at multipliers u, which are not written to and may be kept."""


class Maximum(NamedTuple):
    """max_z f(z) + w . z: its value, z at the shared coordinates, and the structure behind z."""

    value: float
    shared: NDArray[Any]
    structure: Any


Oracle = Callable[[Floats], Maximum]


@dataclass(frozen=True)
class Decomposition:
    """Dual decomposition: `first` is called with u, `second` with -u.

    complete : from the two structures a solution of both, and its value f + g; -inf if none.  When
    they agree it has to be these two.  Without it there is a solution only then: the pair.

    Two choosers that have to choose the same of three things:

    >>> def choose(scores):
    ...     def oracle(u):
    ...         best = np.argmax(scores + u)
    ...         return Maximum((scores + u)[best], np.eye(3)[best], int(best))
    ...     return oracle
    >>> choosers = Decomposition(choose(np.array([4, 0, 3])), choose(np.array([0, 5, 4])))
    >>> outcome = subgradient(choosers, np.zeros(3))
    >>> outcome.solution, float(outcome.primal), outcome.certified
    ((2, 2), 7.0, True)
    """

    first: Oracle
    second: Oracle
    complete: Callable[[Any, Any], tuple[float, Any]] | None = None

    def solve(self, u: Floats) -> Step:
        f, z, left = self.first(u)
        g, y, right = self.second(-u)
        residual = np.subtract(z, y, dtype=np.float64)
        primal, solution = -inf, None
        if self.complete is not None:
            primal, solution = self.complete(left, right)
        elif not residual.any():
            primal, solution = f + g, (left, right)
        return Step(f + g, residual, primal, solution, (z, y))


@dataclass(frozen=True)
class Tightening:
    """What to do when the dual stalls.

    The dual has stalled when in `patience` iterations it fell by no more than the share `fall` of
    all that it fell.  Then violations are counted over `watch` iterations, and `add` gets how often
    each constraint was violated, in the shape of u.  It returns a problem with the same solutions
    and multipliers but fewer relaxed solutions, with which the iterations go on, or None.
    """

    add: Callable[[NDArray[np.int64]], Problem | None]
    patience: int = 40
    watch: int = 10
    fall: float = 0.01


@dataclass(frozen=True)
class Outcome:
    """What the iterations came to.

    Attributes
    ----------
    solution : any
        The best that keeps the constraints; None if none was found.
    primal, dual : float
        primal <= optimum <= dual; primal is the value of the solution.
    certified : bool
        Whether the solution is optimal: a relaxed solution kept the constraints, or the bounds
        meet, but for rounding.  If all values are whole numbers, a gap below 1 will do as well.
    iterations : int
    multipliers : ndarray
        At the least dual.
    averages : tuple of ndarray
        Means of the iterates since the last tightening, weighted by step sizes: A x - b of the mean
        is the change of u over the sum of steps.  They tend to an optimum of the linear relaxation.
        Of a relaxed solution that kept the constraints: its own.
    history : ndarray, (iterations, 2)
        L(u) of each iteration, and the value of its solution; -inf if none.
    tightened : tuple of int
        Iterations after which the problem was tightened.
    """

    solution: Any
    primal: float
    dual: float
    certified: bool
    iterations: int
    multipliers: Floats
    averages: tuple[Floats, ...]
    history: Floats
    tightened: tuple[int, ...]

    @property
    def gap(self) -> float:
        return self.dual - self.primal


def subgradient(
    problem: Problem,
    multipliers: ArrayLike,
    *,
    rule: str = "dual-progress",
    scale: float | None = None,
    iterations: int = 1000,
    tolerance: float = 0.0,
    tightening: Tightening | None = None,
) -> Outcome:
    """Minimises the dual until a certificate, or a gap of at most `tolerance`, or `iterations`.

    Costs a call of `problem.solve` an iteration, and one more in each 16th as long as there is no
    solution, to see whether there can be one.

    Parameters
    ----------
    multipliers : array_like
        Where to start; gives the shape of u.
    rule, scale : str and float, optional
        Step sizes by `cython_ext.lagrangian.Progress`.

    Raises
    ------
    InfeasibleError
        If the dual falls below all bounds.
    """
    if iterations < 1 or not tolerance >= 0.0:
        raise ValueError(
            f"iterations is 1 or more and tolerance 0 or more, got {iterations} and {tolerance}"
        )
    u = np.array(multipliers, np.float64)
    progress = Progress(rule, scale)
    means, stall = _Means(), _Stall(tightening) if tightening else None
    best, solution, unit, agreed = u, None, 1.0, False
    ray = np.zeros_like(u)
    history: list[tuple[float, float]] = []
    tightened: list[int] = []
    for k in range(1, iterations + 1):
        step = problem.solve(u)
        if step.residual.shape != u.shape:
            raise ValueError(f"residual has shape {step.residual.shape}, multipliers {u.shape}")
        history.append((step.value, step.primal))
        unit = max(1.0, abs(history[0][0]))
        _bounded(step.value, unit)
        agreed = not step.residual.any()
        if agreed or step.value < progress.dual:
            best = u
        if step.primal > progress.primal:
            solution = step.solution
        norm = float(np.vdot(step.residual, step.residual))
        alpha = progress.advance(step.value, step.primal, norm)
        means.add(alpha, step.iterates)
        if agreed or progress.closed or progress.dual - progress.primal <= tolerance:
            break
        u = u - alpha * step.residual
        if progress.primal == -inf and k % LOOK == 0:
            ray = ray if ray.any() else u / (np.abs(u).max() or 1.0)
            far = problem.solve(FAR * unit * ray)
            _bounded(far.value, unit)
            ray = ray - far.residual
        if stall and (violations := stall.watch(progress.dual, step.residual)) is not None:
            tighter = stall.tightening.add(violations)
            if tighter is not None:
                problem, means = tighter, _Means()
                tightened.append(k)
    return Outcome(
        solution,
        progress.primal,
        progress.dual,
        agreed or progress.closed,
        progress.iterations,
        best,
        step.iterates if agreed else means.means,
        np.array(history),
        tuple(tightened),
    )


def _bounded(dual: float, unit: float) -> None:
    if not dual > LOWEST * unit:
        raise InfeasibleError(f"no solution keeps the constraints: the dual fell to {dual:g}")


class _Means:
    """Of iterates, weighted; the last iterates as long as no weight is above 0."""

    def __init__(self) -> None:
        self.total = 0.0
        self.means: tuple[Floats, ...] = ()

    def add(self, weight: float, iterates: tuple[NDArray[Any], ...]) -> None:
        self.total += weight
        share = weight / self.total if self.total > 0.0 else 1.0
        before = self.means or iterates
        self.means = tuple(m + share * (x - m) for m, x in zip(before, iterates, strict=True))


class _Stall:
    """Notices when the dual stalls, and counts violations from then on."""

    def __init__(self, tightening: Tightening) -> None:
        self.tightening = tightening
        self.duals: list[float] = []  # the least so far, since the last count
        self.first = -inf
        self.counts: NDArray[np.int64] | None = None
        self.watched = 0

    def watch(self, dual: float, residual: NDArray[Any]) -> NDArray[np.int64] | None:
        """After an iteration; the counts once they are complete."""
        options = self.tightening
        if self.counts is None:
            self.first = max(self.first, dual)
            self.duals.append(dual)
            if len(self.duals) > options.patience:
                fell = self.duals[-1 - options.patience] - dual
                if fell <= options.fall * (self.first - dual):
                    self.counts, self.watched = np.zeros(residual.shape, np.int64), 0
            return None
        self.counts += residual != 0.0
        self.watched += 1
        if self.watched < options.watch:
            return None
        counts, self.counts, self.duals = self.counts, None, []
        return counts
