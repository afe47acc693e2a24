"""What every inference engine takes and gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from parser.graph import GraphError, ScoredGraph


@dataclass(slots=True)  # a frozen one takes three times as long to make
class Certificate:
    """Bounds on the score of the best tree: primal <= optimum <= dual."""

    primal: float
    dual: float

    @property
    def gap(self) -> float:
        return self.dual - self.primal

    @property
    def optimal(self) -> bool:
        """Whether the tree is the best one, but for rounding: the bounds meet."""
        return self.dual < np.inf and self.gap <= 1e-9 * max(1.0, abs(self.dual))


@dataclass(frozen=True)
class Relaxation:
    """What relaxed inference left out.

    Attributes
    ----------
    rounds, solutions : int
        Separations, and solutions of the graph so far.
    added, total : int
        Second-order parts that became factors, of so many.
    scored : int
        Parts whose scores were looked at or, of LazyParts, computed.
    bound, coarse_bound : float, optional
        With weights of the parts left out, b >= D(beliefs || those with all parts), which then are
        within -(e^b - 1) (1 - mu) and (e^b - 1) mu of those found: the paper's Proposition 2, its
        lower side corrected.  Exact when the beliefs are; `expectations` gives them.
    """

    rounds: int
    solutions: int
    added: int
    total: int
    scored: int
    bound: float | None = None
    coarse_bound: float | None = None

    @property
    def size(self) -> float:
        """Share of the parts that became factors."""
        return self.added / self.total if self.total else 0.0

    def interval(self, marginals: np.ndarray) -> np.ndarray | None:
        """Least and largest marginals with all parts, (2, arcs), by `bound`.

        None without it, and if nothing was left out.
        """
        if not self.bound:
            return None
        room = np.expm1(min(self.bound, 500.0))
        low, high = marginals - room * (1.0 - marginals), marginals + room * marginals
        return np.clip(np.stack([low, high]), 0.0, 1.0)


@dataclass(slots=True)
class Result:
    """What an engine found.  None where it does not have it.

    Attributes
    ----------
    heads : ndarray of int32, (n+1,)
    score : float
        Of the tree, under all families of the graph.
    log_z : float
    marginals : ndarray of float64, (arcs,)
        In the order of the graph's arcs.
    part_marginals : mapping from family to ndarray of float64, (parts,)
    certificate : Certificate
    arc_values : ndarray of float64, (arcs,)
        Of a linear relaxation's optimum, or near it: 0 or 1 where the relaxation is tight.
    multipliers : ndarray of float64
        Of Lagrangian relaxation, at the best dual.
    resolved : ndarray of float64, (iterations,)
        Share of the subproblems that were solved anew in each iteration.
    iterations : int
    converged : bool
    change : float
        The largest change of a belief in the last iteration.
    seconds : mapping from a name to float
        Where the time of an iterative engine went.
    relaxation : Relaxation
        What relaxed inference did.
    moves : int
        Changes of hill climbing.
    gained : float
        The score that they added to the start's.
    """

    heads: np.ndarray | None = None
    score: float | None = None
    log_z: float | None = None
    marginals: np.ndarray | None = None
    part_marginals: Mapping[str, np.ndarray] = field(default_factory=dict)
    certificate: Certificate | None = None
    arc_values: np.ndarray | None = None
    multipliers: np.ndarray | None = None
    resolved: np.ndarray | None = None
    iterations: int = 1
    converged: bool = True
    change: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    relaxation: Relaxation | None = None
    moves: int | None = None
    gained: float | None = None


class Engine(ABC):
    """Inference over a ScoredGraph.  Engines keep no state between graphs."""

    name: str
    families: frozenset[str]
    constraints: frozenset[bool]  # the values of ScoredGraph.projective that it can use
    lazy: frozenset[str] = frozenset()  # families that it asks for by place, if they are LazyParts

    def check(self, graph: ScoredGraph) -> None:
        """GraphError if the graph has a family or a constraint that the engine cannot use."""
        if not self.families.issuperset(graph.parts):
            self.check_families(graph.families)
        if graph.projective not in self.constraints:
            kind = "projective" if graph.projective else "non-projective"
            raise GraphError(f"engine {self.name} cannot keep to {kind} trees")

    def check_families(self, families: Iterable[str]) -> None:
        """GraphError that names a factor family which the engine cannot use."""
        for family in sorted(set(families) - self.families):
            raise GraphError(f"engine {self.name} cannot use the factor family {family}")

    @property
    def has_marginals(self) -> bool:
        """Whether `expectations` gives an answer."""
        return type(self).expectations is not Engine.expectations

    def calibrated(self, scale: float) -> Engine:
        """The engine for graphs whose scores are log potentials when multiplied by the scale."""
        return self

    def proving(self) -> Engine:
        """The engine that goes on until its tree is proved best.  GraphError: it has no proof."""
        raise GraphError(f"engine {self.name} cannot prove that its trees are best")

    @abstractmethod
    def best(self, graph: ScoredGraph) -> Result:
        """The best tree, with its score and, where the engine has one, a certificate."""

    def expectations(self, graph: ScoredGraph) -> Result:
        """log Z and marginals of arcs and parts."""
        raise GraphError(f"engine {self.name} has no marginals")

    def k_best(self, graph: ScoredGraph, k: int) -> list[Result]:
        """The k best trees, best first; fewer if there are fewer."""
        raise GraphError(f"engine {self.name} has no k-best trees")
