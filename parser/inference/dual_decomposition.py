"""Dual decomposition: best trees of second-order models, with a proof or with bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cython_ext import ascent, automata
from cython_ext.lagrangian import RULES
from parser.graph import CHILDSEQ, GRAND, GRANDSIB, LINK, ScoredGraph
from parser.inference.engine import Certificate, Engine, Result
from parser.inference.first_order import best_by_arcs
from parser.inference.hill_climbing import improve
from parser.inference.integer_program import decide

PROOF_ITERATIONS = 10  # of `certifies`; where scores moved by a tenth of a margin, enough for most
NOTHING = np.empty(0, np.float32)
NO_SCORE = float("-inf")
BOUND_NODES = 400  # of branch and bound, of `bound`, which is to be quick
PROOF_NODES = 10_000  # before an integer program


@dataclass
class DualDecomposition(Engine):
    """Head automata and a spanning tree, or a projective one, that are made to agree.

    Sweeps of block coordinate ascent drop most arcs, and branch and bound decides among the others
    (`cython_ext/ascent.pyx`).  What is left open then is for the subgradients of Koo et al. (2010;
    `cython_ext/automata.pyx`).  Bounds that meet, or agreement, prove that the tree is the best
    one.  Otherwise the best tree met is improved by hill climbing, and the certificate has the gap.

    A sweep or an iteration costs O(n K^3) for K candidate heads a word and as many children, less
    what need not be solved again, and O(n^2) for the tree; O(n^3) if projective.

    Parameters
    ----------
    sweeps : int
        At most, over the whole problem.  0: subgradients alone.
    nodes : int
        Problems of branch and bound, of some sweeps each, at most.  0: none, so that what is proved
        is proved by one relaxation.
    iterations : int
        Of subgradients, at most.
    rule : str
        Of the step size: constant, decreasing, dual-progress, halving, polyak, bounded-polyak
        (`cython_ext/lagrangian.pyx`).
    scale : float
        Of the steps, in the unit of the scores; 0: the gap of the first iteration, shared out among
        the arcs that disagree.
    split : float
        The share of an arc's score that is the automata's where subgradients start without sweeps;
        the rest is the tree's.
    exact : {"no", "yes"}
        Whether to go on where all this proves nothing: by branch and bound of 10,000 problems, and
        then by an integer program within its time limit.
    """

    iterations: int = 500
    rule: str = "bounded-polyak"
    scale: float = 0.0
    split: float = 1.0
    exact: str = "no"
    sweeps: int = 8
    nodes: int = 2000

    name = "dual-decomposition"
    families = frozenset({LINK, CHILDSEQ, GRAND, GRANDSIB})
    constraints = frozenset({False, True})

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise ValueError(f"iterations: 1 or more, got {self.iterations}")
        if self.rule not in RULES:
            raise ValueError(f"rule: one of {', '.join(RULES)}, got {self.rule!r}")
        if not 0.0 <= self.scale < np.inf:
            raise ValueError(f"scale: 0 or more, got {self.scale}")
        if not 0.0 <= self.split <= 1.0:
            raise ValueError(f"split: 0 to 1, got {self.split}")
        if self.exact not in ("no", "yes"):
            raise ValueError(f"exact: no or yes, got {self.exact!r}")
        if self.sweeps < 0:
            raise ValueError(f"sweeps: 0 or more, got {self.sweeps}")
        if self.nodes < 0 or (self.nodes and not self.sweeps):
            raise ValueError(f"nodes: 0 or more, and 0 without sweeps, got {self.nodes}")

    def proving(self) -> Engine:
        return replace(self, exact="yes")

    def best(self, graph: ScoredGraph, multipliers: bool = False) -> Result:
        """heads (n+1,) int32, score, certificate, iterations (sweeps and subgradients), converged,
        resolved (subgradients,).

        Where subgradients ran, arc_values (arcs,), of the tree if it is proved best, else means of
        the copies; and there or if asked for, multipliers (2, arcs).

        Raises
        ------
        GraphError
            For a graph with other families.
        ValueError
            For a score that is not finite.
        NoTreeError
            If the candidate arcs hold no tree of the graph's kind.
        """
        self.check(graph)
        result = self.solve(graph, multipliers)
        if result is None:
            return best_by_arcs(graph)  # raises, and says which word has no head
        if result.converged:
            return result
        heads, bounds = improve(graph, result.heads, result.certificate)
        if self.exact == "yes":
            heads, bounds = prove(graph, heads, bounds)
        return replace(
            result,
            heads=heads,
            score=bounds.primal,
            certificate=bounds,
            arc_values=chosen(graph, heads) if bounds.optimal else result.arc_values,
            converged=bounds.optimal,
        )

    def solve(self, graph: ScoredGraph, multipliers: bool = False) -> Result | None:
        """Without what `best` does when nothing is proved; None if there is no tree.

        The result is converged if the tree is proved best.
        """
        arcs = len(graph.scores)
        if not self.sweeps:
            return self.descend(graph, np.zeros((2, arcs)))
        heads, found = np.empty(len(graph.arcs.offsets), np.int32), None
        if multipliers:
            found = np.empty((2, arcs))
        primal, dual, sweeps, _ = ascent.solve(
            *problem(graph), self.sweeps, self.nodes, NO_SCORE, self.split, heads, None, found
        )
        if dual == NO_SCORE:
            return None
        certificate = Certificate(primal, dual)
        if certificate.optimal:
            result = Result(heads, primal)  # arguments by name take longer
            result.certificate, result.iterations, result.resolved = certificate, sweeps, NOTHING
            result.multipliers = found
            return result
        # Sweeps once more: they write where they end only if asked to, as that takes a tenth of
        # the time.
        found, left = np.empty((2, arcs)), np.empty(arcs)
        ascent.solve(
            *problem(graph), self.sweeps, 0, NO_SCORE, self.split, heads.copy(), None, found, left
        )
        result = self.descend(replace(graph, scores=left), found)
        assert result is not None  # the arcs of the best tree are not dropped
        if result.score > primal:
            heads, primal = result.heads, result.score
        # Trees with arcs that were dropped score no more than the best.
        certificate = Certificate(primal, max(primal, min(dual, result.certificate.dual)))
        return replace(
            result,
            heads=heads,
            score=primal,
            certificate=certificate,
            arc_values=chosen(graph, heads) if certificate.optimal else result.arc_values,
            iterations=sweeps + result.iterations,
            converged=certificate.optimal,
        )

    def descend(self, graph: ScoredGraph, multipliers: np.ndarray) -> Result | None:
        """Subgradients, from these multipliers (2, arcs) on, which become those of the dual."""
        heads = np.empty(graph.n + 1, np.int32)
        averages = np.zeros(len(graph.scores))
        resolved = np.empty(self.iterations, np.float32)
        primal, dual, iterations, agreed = automata.solve(
            *problem(graph),
            RULES.index(self.rule),
            self.scale,
            self.split,
            self.iterations,
            multipliers,
            heads,
            averages,
            resolved,
        )
        if primal == -np.inf:
            return None
        certificate = Certificate(primal, primal if agreed else max(primal, dual))
        return Result(
            heads,
            primal,
            certificate=certificate,
            arc_values=chosen(graph, heads) if certificate.optimal else averages,
            multipliers=multipliers,
            resolved=resolved[:iterations],
            iterations=iterations,
            converged=certificate.optimal,
        )

    def certifies(self, graph: ScoredGraph, heads: np.ndarray, multipliers: np.ndarray) -> bool:
        """Whether, from the multipliers of an earlier result on, a tree is soon proved best."""
        score = graph.score(heads)
        return Certificate(score, self.bound(graph, score, multipliers)).optimal

    def bound(self, graph: ScoredGraph, known: float, multipliers: np.ndarray) -> float:
        """From above on what trees score, from the multipliers of an earlier result on, soon; of
        trees that score no more than what is known it may be silent."""
        if self.sweeps:
            _, dual, _, _ = ascent.solve(
                *problem(graph),
                self.sweeps,
                min(self.nodes, BOUND_NODES),
                known,
                self.split,
                np.empty(graph.n + 1, np.int32),
                multipliers if known > NO_SCORE else None,
            )
            return max(known, dual)
        found = replace(self, iterations=PROOF_ITERATIONS).descend(graph, multipliers.copy())
        return known if found is None else max(known, found.certificate.dual)


def problem(graph: ScoredGraph) -> tuple[Any, ...]:
    """The first arguments of both kernels."""
    part = graph.parts.get
    return (
        graph.arcs.layout,
        graph.scores,
        part(CHILDSEQ),
        part(GRAND),
        part(GRANDSIB),
        graph.projective,
        graph.single_root,
    )


def prove(
    graph: ScoredGraph, heads: np.ndarray, bounds: Certificate
) -> tuple[np.ndarray, Certificate]:
    """A tree between bounds, proved best: by branch and bound over head automata, if they have all
    the families; then by an integer program, within its time limit."""
    if not bounds.optimal and graph.families <= DualDecomposition.families:
        heads = heads.copy()
        primal, dual, _, _ = ascent.solve(
            *problem(graph), DualDecomposition.sweeps, PROOF_NODES, bounds.primal, 0.0, heads
        )
        bounds = Certificate(primal, max(primal, min(dual, bounds.dual)))
    return (heads, bounds) if bounds.optimal else decide(graph, heads, bounds)


def chosen(graph: ScoredGraph, heads: np.ndarray) -> np.ndarray:
    """1.0 for each arc that is in the tree, else 0.0."""
    return (heads[graph.modifiers] == graph.heads).astype(np.float64)


DUAL_DECOMPOSITION = DualDecomposition()
