"""Hill climbing: local search for any mixture of families, projective or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from cython_ext import climb
from parser.graph import CHILDSEQ, FAMILIES, GRAND, GRANDSIB, NOCROSS, SIB, ScoredGraph
from parser.inference.arrays import NoTreeError
from parser.inference.engine import Certificate, Engine, Result
from parser.inference.first_order import PROJECTIVE, best_by_arcs
from parser.inference.second_order import GRANDSIBLING, SIBLING

PARTS = (SIB, CHILDSEQ, GRAND, GRANDSIB, NOCROSS)  # in the order of the kernel's arguments
EXACT = (PROJECTIVE, SIBLING, GRANDSIBLING)  # the cheapest first


class HillClimbing(Engine):
    """From a start tree, the best change of one head at a time, for as long as the score rises.

    McDonald & Pereira (2006), section 3.2, with every family of parts.  Each round makes the change
    that gains most, if it gains over 1e-10; of equal ones that of the first word to the first head.
    The tree stays of the graph's kind.  With a single root, a word takes the root's place in one
    change: it becomes the root, and the old root its child; there is no other way to a new root.

    A round takes O(arcs) time and a change O(arcs / n) times the number of children; with NOCROSS
    either takes O(arcs n).  The start takes what its engine takes.  O(arcs) memory.

    Parameters
    ----------
    start : {"projective", "mst"}
        "projective": the best projective tree under the families that have a dynamic program, which
        SIB and NOCROSS have not.  "mst", and where the candidate arcs hold no projective tree: the
        best tree of the graph's kind under the arc scores alone.
    restarts : int
        Starts besides: best trees under arc scores plus Gumbel noise.  The best result wins, the
        first of equal ones.
    seed : int
        Of the noise.  The same graph gives the same tree every time.
    """

    name = "hill-climbing"
    families = frozenset(FAMILIES)
    constraints = frozenset({False, True})

    def __init__(self, start: str = "projective", restarts: int = 0, seed: int = 0) -> None:
        if start not in ("projective", "mst"):
            raise ValueError(f"start: projective or mst, got {start!r}")
        if restarts < 0:
            raise ValueError(f"restarts: 0 or more, got {restarts}")
        self.start = start
        self.restarts = restarts
        self.seed = seed

    def best(self, graph: ScoredGraph) -> Result:
        """heads (n+1,) int32, their score, and the changes that led to them with what they gained.

        Raises
        ------
        ValueError
            For a score that is not finite.
        NoTreeError
            If the candidate arcs hold no tree of the graph's kind.
        """
        self.check(graph)
        parts = graph.parts
        if self.start == "projective" and (GRAND in parts or GRANDSIB in parts):
            first = self._run(climb.best, graph, np.empty(graph.n + 1, np.int32))
            if first.score == -np.inf:  # no projective tree
                first = self.climb(graph, self.begin(graph))
        else:
            first = self.climb(graph, self.begin(graph))
        if not self.restarts:
            return first
        others = (self.climb(graph, start) for start in self._random_starts(graph))
        return max(first, *others, key=lambda result: result.score)

    def begin(self, graph: ScoredGraph) -> np.ndarray:
        """The tree of the first climb, heads (n+1,) int32."""
        if self.start == "mst":
            return best_by_arcs(graph).heads
        parts = {f: scores for f, scores in graph.parts.items() if f not in (SIB, NOCROSS)}
        engine = next(e for e in EXACT if e.families.issuperset(parts))
        try:
            return engine.best(
                ScoredGraph(graph.arcs, graph.scores, True, graph.single_root, parts)
            ).heads
        except NoTreeError:
            if graph.projective:
                raise
            return best_by_arcs(graph).heads

    def _random_starts(self, graph: ScoredGraph) -> Iterator[np.ndarray]:
        rng = np.random.default_rng(self.seed)
        for _ in range(self.restarts):
            noise = rng.gumbel(size=len(graph.scores))
            yield best_by_arcs(replace(graph, scores=graph.scores + noise)).heads

    def climb(self, graph: ScoredGraph, start: np.ndarray) -> Result:
        """From one tree over the candidate arcs, of the graph's kind, to where it leads."""
        return self._run(climb.climb, graph, start.copy())

    def _run(self, kernel: Callable[..., tuple], graph: ScoredGraph, heads: np.ndarray) -> Result:
        part = graph.parts.get
        score, moves, gained = kernel(
            graph.arcs.layout,
            graph.scores,
            part(SIB),
            part(CHILDSEQ),
            part(GRAND),
            part(GRANDSIB),
            part(NOCROSS),
            graph.projective,
            graph.single_root,
            heads,
        )
        return Result(heads, score, iterations=moves + 1, moves=moves, gained=gained)


def improve(
    graph: ScoredGraph, heads: np.ndarray, bounds: Certificate
) -> tuple[np.ndarray, Certificate]:
    """A tree between bounds, and the same after hill climbing from it."""
    climbed = HILL_CLIMBING.climb(graph, heads)
    if climbed.score <= bounds.primal:
        return heads, bounds
    return climbed.heads, Certificate(climbed.score, max(climbed.score, bounds.dual))


HILL_CLIMBING = HillClimbing()
