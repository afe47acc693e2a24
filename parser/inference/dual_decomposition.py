"""Dual decomposition: best trees of second-order models, with a proof or with bounds."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from cython_ext import automata
from cython_ext.lagrangian import RULES
from parser.graph import CHILDSEQ, GRAND, GRANDSIB, LINK, ScoredGraph
from parser.inference.engine import Certificate, Engine, Result
from parser.inference.first_order import best_by_arcs
from parser.inference.hill_climbing import improve
from parser.inference.integer_program import decide

PARTS = (CHILDSEQ, GRAND, GRANDSIB)  # in the order of the kernel's arguments

NODE_ITERATIONS = 200  # at most, in branch and bound
PROOF_ITERATIONS = 10  # of `certifies`; where scores moved by a tenth of a margin, enough for most


@dataclass
class DualDecomposition(Engine):
    """Head automata and a spanning tree, or a projective one, that are made to agree.

    Koo et al. (2010); the recurrences are in `cython_ext/automata.pyx`.  Agreement, or bounds that
    meet, prove that the tree is the best one.  Otherwise the best tree met is improved by hill
    climbing, and the certificate has the gap.

    An iteration costs O(n K^3) for K candidate heads a word and as many children, less what need
    not be solved again, and O(n^2) for the tree; O(n^3) if projective.

    Parameters
    ----------
    iterations : int
        At most.
    rule : str
        Of the step size: constant, decreasing, dual-progress, halving, polyak, bounded-polyak
        (`cython_ext/lagrangian.pyx`).
    scale : float
        Of the steps, in the unit of the scores; 0: the gap of the first iteration, shared out among
        the arcs that disagree.
    split : float
        The share of an arc's score that starts with the automata; the rest is the tree's.
    exact : {"no", "yes"}
        Whether to go on until the tree is proved best: by branch and bound, after `nodes` of which
        an integer program decides, within its time limit.
    nodes : int
    """

    iterations: int = 500
    rule: str = "bounded-polyak"
    scale: float = 0.0
    split: float = 1.0
    exact: str = "no"
    nodes: int = 200

    name = "dual-decomposition"
    families = frozenset({LINK, *PARTS})
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
        if self.nodes < 1:
            raise ValueError(f"nodes: 1 or more, got {self.nodes}")

    def proving(self) -> Engine:
        return replace(self, exact="yes")

    def best(self, graph: ScoredGraph) -> Result:
        """heads (n+1,) int32, score, certificate, iterations, converged, multipliers (2, arcs) and
        resolved (iterations,); arc_values (arcs,), of the tree if it is proved best, else means of
        the copies.

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
        result = self.solve(graph)
        if result is None:
            return best_by_arcs(graph)  # raises, and says which word has no head
        if result.converged:
            return result
        heads, bounds = improve(graph, result.heads, result.certificate)
        result = replace(
            result,
            heads=heads,
            score=bounds.primal,
            certificate=bounds,
            converged=bounds.optimal,
        )
        return result if bounds.optimal or self.exact == "no" else self.prove(graph, result)

    def solve(self, graph: ScoredGraph, multipliers: np.ndarray | None = None) -> Result | None:
        """One run, from given multipliers (2, arcs) on; None if there is no tree.

        The result is converged if the tree is proved best.
        """
        arcs = len(graph.scores)
        multipliers = np.zeros((2, arcs)) if multipliers is None else multipliers.copy()
        heads = np.empty(graph.n + 1, np.int32)
        averages = np.zeros(arcs)
        resolved = np.empty(self.iterations, np.float32)
        primal, dual, iterations, agreed = automata.solve(
            graph.arcs.layout,
            graph.scores,
            *map(graph.parts.get, PARTS),
            graph.projective,
            graph.single_root,
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
        if certificate.optimal:
            averages = graph.indicator(heads)[LINK]
        return Result(
            heads,
            primal,
            certificate=certificate,
            arc_values=averages,
            multipliers=multipliers,
            resolved=resolved[:iterations],
            iterations=iterations,
            converged=certificate.optimal,
        )

    def certifies(self, graph: ScoredGraph, heads: np.ndarray, multipliers: np.ndarray) -> bool:
        """Whether a few iterations from these multipliers on prove that a tree is a best one."""
        found = replace(self, iterations=PROOF_ITERATIONS).solve(graph, multipliers)
        return found is not None and Certificate(graph.score(heads), found.certificate.dual).optimal

    def prove(self, graph: ScoredGraph, first: Result) -> Result:
        """Branch and bound from an uncertified result on: an arc whose copies are the least of one
        mind is forbidden, and made the only one into its word; the problem with the largest dual is
        next.  After `nodes` problems an integer program decides.
        """
        best = first
        order = count()
        iterations = first.iterations
        short = replace(self, iterations=min(self.iterations, NODE_ITERATIONS))
        queue = [(-first.certificate.dual, next(order), graph, first)]
        solved = 0
        while queue and solved < self.nodes:
            dual, _, node, found = heapq.heappop(queue)
            if Certificate(best.score, -dual).optimal:
                queue.clear()
                break
            for child in branches(node, found):
                result = short.solve(child, found.multipliers)
                solved += 1
                if result is None:
                    continue
                iterations += result.iterations
                if result.score > best.score:
                    best = replace(best, heads=result.heads, score=result.score)
                bound = min(-dual, result.certificate.dual)
                if not Certificate(best.score, bound).optimal:
                    heapq.heappush(queue, (-bound, next(order), child, result))
        heads, certificate = best.heads, Certificate(best.score, best.score)
        if queue:
            bound = Certificate(best.score, max(best.score, -queue[0][0]))
            heads, certificate = decide(graph, heads, bound)
        return replace(
            best,
            heads=heads,
            score=certificate.primal,
            certificate=certificate,
            arc_values=graph.indicator(heads)[LINK] if certificate.optimal else first.arc_values,
            iterations=iterations,
            converged=certificate.optimal,
        )


def branches(graph: ScoredGraph, found: Result) -> Iterator[ScoredGraph]:
    """The graph without an undecided arc, and with no other arc into its word."""
    possible = graph.scores > -np.inf
    several = np.bincount(graph.modifiers, possible, graph.n + 1)[graph.modifiers] > 1
    doubt = np.where(possible & several, np.abs(found.arc_values - 0.5), np.inf)
    arc = int(doubt.argmin())
    if doubt[arc] == np.inf:  # one tree is left, and the dual is not its score yet
        return
    into = graph.modifiers == graph.modifiers[arc]
    into[arc] = False
    for forbidden in (np.array([arc]), np.flatnonzero(into)):
        scores = graph.scores.copy()
        scores[forbidden] = -np.inf
        yield replace(graph, scores=scores)


DUAL_DECOMPOSITION = DualDecomposition()
