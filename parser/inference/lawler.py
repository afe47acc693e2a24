"""k best trees from any exact engine, by partition of what is left (Lawler 1972; Murty 1968)."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from parser.graph import ScoredGraph
from parser.inference.arrays import NoTreeError
from parser.inference.engine import Result


def k_best(best: Callable[[ScoredGraph], Result], graph: ScoredGraph, k: int) -> list[Result]:
    """The k best trees, best first; fewer if there are fewer.

    The trees besides one with heads y fall into n groups: those that agree with y on the words
    before m and not on m.  Each group is a graph with forbidden arcs, of which `best` finds the
    best tree.  O(k n) calls.  Of equal trees the one found first comes first.
    """
    found: list[Result] = []
    queue: list[tuple[float, int, Result, np.ndarray, int]] = []
    count = 0

    def push(scores: np.ndarray, fixed: int) -> None:
        nonlocal count
        try:
            result = best(replace(graph, scores=scores))
        except NoTreeError:
            return
        heapq.heappush(queue, (-result.score, count, result, scores, fixed))
        count += 1

    push(graph.scores, 0)
    while queue and len(found) < k:
        _, _, result, scores, fixed = heapq.heappop(queue)
        found.append(result)
        if len(found) == k:
            break
        scores = scores.copy()
        chosen = result.heads[graph.modifiers] == graph.heads
        for m in range(fixed + 1, graph.n + 1):
            own = graph.modifiers == m
            group = scores.copy()
            group[own & chosen] = -np.inf
            if (group[own] > -np.inf).any():
                push(group, m - 1)
            scores[own & ~chosen] = -np.inf
    return found
