"""Which arcs are worth scoring with parts: those likely under a small first-order model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cython_ext import candidates
from parser.features import Columns, CompactTable, Scorer
from parser.graph import LINK, Arcs
from parser.inference import default_engine


@dataclass(frozen=True)
class Pruner:
    """A first-order CRF and what is kept of its arcs.

    A word keeps at most `heads` heads, those with the highest marginals (ties: the lowest head),
    and of them those with at least `threshold` times the marginal of its best.  The arcs of the
    CRF's best tree are always kept, so that a tree over the kept arcs exists.
    """

    scorer: Scorer
    table: CompactTable | np.ndarray
    heads: int
    threshold: float
    projective: bool
    single_root: bool

    def select(
        self, columns: Sequence[Columns], among: Sequence[Arcs] | None = None
    ) -> list[tuple[Arcs, int]]:
        """The kept arcs of each sentence, of all arcs or of those given, and how many of them are
        kept for the sake of the best tree alone.  O(n^3) a sentence."""
        engine = default_engine(projective=self.projective)
        graphs = self.scorer.graphs(
            [self.scorer.encode_ids(*each) for each in columns],
            self.table,
            projective=self.projective,
            single_root=self.single_root,
            arcs=among,
        )
        kept = []
        for graph in graphs:
            marginals = engine.expectations(graph).marginals
            keep = likely(marginals, graph.arcs, self.heads, self.threshold)
            tree = graph.fired(LINK, engine.best(graph).heads)
            rescued = candidates.mark(tree, keep.view(np.uint8))
            kept.append((graph.arcs.select(keep), rescued))
        return kept


def likely(marginals: np.ndarray, arcs: Arcs, heads: int, threshold: float) -> np.ndarray:
    """Boolean (arcs,): at most so many arcs a word, within `threshold` of its best."""
    keep = np.empty(len(arcs), np.uint8)
    candidates.likely(marginals, arcs.offsets, heads, threshold, keep)
    return keep.view(bool)
