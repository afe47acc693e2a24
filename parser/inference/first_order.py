"""Exact engines for arc scores alone: spanning trees, and projective trees."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import numpy as np

from parser.graph import LINK, ScoredGraph
from parser.inference import nonprojective, projective
from parser.inference.engine import Certificate, Engine, Result


class FirstOrder(Engine):
    """Best tree, log Z, marginals and k best of a module of array functions.

    The costs and the sources are those of parser.inference.nonprojective (Chu-Liu/Edmonds, O(n^2);
    matrix-tree theorem, O(n^3)) and parser.inference.projective (Eisner, inside-outside, O(n^3)).
    """

    families = frozenset({LINK})

    def __init__(self, name: str, functions: ModuleType) -> None:
        self.name = name
        self.constraints = frozenset({functions is projective})
        self._functions = functions

    def proving(self) -> Engine:
        return self

    def best(self, graph: ScoredGraph) -> Result:
        self.check(graph)
        heads, score = self._functions.best_tree(graph.matrix(), single_root=graph.single_root)
        return Result(heads, float(score), certificate=Certificate(float(score), float(score)))

    def expectations(self, graph: ScoredGraph) -> Result:
        self.check(graph)
        marginals, log_z = self._functions.marginals(graph.matrix(), single_root=graph.single_root)
        return Result(log_z=float(log_z), marginals=graph.gather(marginals))

    def k_best(self, graph: ScoredGraph, k: int) -> list[Result]:
        self.check(graph)
        heads, scores = self._functions.k_best(graph.matrix(), k, single_root=graph.single_root)
        return [Result(np.asarray(y), float(s)) for y, s in zip(heads, scores, strict=True)]


MST = FirstOrder("mst", nonprojective)
PROJECTIVE = FirstOrder("projective", projective)


def best_by_arcs(graph: ScoredGraph) -> Result:
    """The best tree of the graph's kind under the arc scores alone.  NoTreeError: there is none."""
    engine = PROJECTIVE if graph.projective else MST
    return engine.best(replace(graph, parts={}, pairs=None))
