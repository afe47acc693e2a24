"""Exact projective engines for models with parts of two or three arcs."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

import numpy as np

from cython_ext import grandsib, sibling
from parser.graph import CHILDSEQ, GRAND, GRANDSIB, LINK, ScoredGraph
from parser.inference.arrays import NoTreeError, as_batch, failure
from parser.inference.engine import Certificate, Engine, Result
from parser.inference.lawler import k_best


class SecondOrder(Engine):
    """Best projective tree, log Z and marginals of arcs and parts, by a dynamic program.

    `sibling`: McDonald & Pereira (2006), O(n^3) over all arcs.  `grandparent` and `grandsibling`:
    Koo & Collins (2010), model 1 for a graph with CHILDSEQ or GRANDSIB, model 0 for one without;
    O(n^4) over all arcs, and with K heads a word and about as many children O(n^2 K^2).  O(arcs n)
    memory.

    Of equal trees the same one is returned every time (see the kernels' `walk`).
    """

    constraints = frozenset({True})

    def __init__(
        self, name: str, kernel: ModuleType, parts: Iterable[str], families: Iterable[str]
    ) -> None:
        self.name = name
        self.families = frozenset(families)
        self._kernel = kernel
        self._parts = tuple(parts)  # in the order of the kernel's arguments

    def proving(self) -> Engine:
        return self

    def best(self, graph: ScoredGraph) -> Result:
        """heads (n+1,) int32, their score, and a certificate without a gap.

        Raises
        ------
        GraphError
            For a graph with other families, or not projective.
        ValueError
            For a score that is NaN or inf; -inf forbids an arc or a part.
        NoTreeError
            If the candidate arcs hold no projective tree.
        """
        self.check(graph)
        heads = np.empty(graph.n + 1, np.int32)
        parts = map(graph.parts.get, self._parts)
        score = self._kernel.best_tree(
            graph.arcs.layout, graph.scores, *parts, graph.single_root, heads
        )
        if score == -np.inf:
            raise no_tree(graph)
        return Result(heads, score, certificate=Certificate(score, score))

    def expectations(self, graph: ScoredGraph) -> Result:
        """log Z, marginals (arcs,), and (parts,) for each family of the graph.

        Parts whose grandparent is one of the modifiers have marginal 0.  Errors as for `best`.
        """
        self.check(graph)
        marginals = np.zeros(len(graph.scores))
        of_parts = {family: np.zeros(len(scores)) for family, scores in graph.parts.items()}
        log_z = self._kernel.expectations(
            graph.arcs.layout,
            graph.scores,
            *map(graph.parts.get, self._parts),
            graph.single_root,
            marginals,
            *map(of_parts.get, self._parts),
        )
        if log_z == -np.inf:
            raise no_tree(graph)
        return Result(log_z=log_z, marginals=marginals, part_marginals=of_parts)

    def k_best(self, graph: ScoredGraph, k: int) -> list[Result]:
        """O(k n) calls of `best`.  Errors as for `best`."""
        return k_best(self.best, graph, k)


def no_tree(graph: ScoredGraph) -> NoTreeError:
    """The error for a graph without a projective tree, naming a word that shows why."""
    return failure(as_batch(graph.matrix(), None, None), 0, graph.single_root, True)


FAMILIES = (CHILDSEQ, GRAND, GRANDSIB)
SIBLING = SecondOrder("sibling", sibling, (CHILDSEQ,), (LINK, CHILDSEQ))
GRANDPARENT = SecondOrder("grandparent", grandsib, FAMILIES, (LINK, GRAND))
GRANDSIBLING = SecondOrder("grandsibling", grandsib, FAMILIES, (LINK, *FAMILIES))
