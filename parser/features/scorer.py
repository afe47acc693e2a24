"""Sentences into scored graphs, and arc weights back into gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cython_ext.features import Encoded
from parser.features.table import CompactTable
from parser.features.templates import arc_templates, compile_templates
from parser.features.vocabulary import FIELDS, Vocabulary
from parser.graph import ScoredGraph, all_arcs
from parser.treebank import Sentence

Arcs = tuple[np.ndarray, np.ndarray, np.ndarray]  # heads, modifiers, offsets, as in ScoredGraph


class Scorer:
    """The templates over a vocabulary: everything about features but the weights."""

    def __init__(self, vocabulary: Vocabulary, bits: int) -> None:
        self.vocabulary = vocabulary
        self.bits = bits
        self._templates = compile_templates(arc_templates(vocabulary.absent), FIELDS, bits)

    def encode(self, sentence: Sentence) -> Encoded:
        """Hashes of a sentence.  O(n * templates); does not depend on weights."""
        return self.encode_ids(*self.vocabulary.encode(sentence))

    def encode_ids(self, ids: np.ndarray, morph: np.ndarray) -> Encoded:
        """The same from the arrays of Vocabulary.encode."""
        return self._templates.encode(ids, morph)

    def graphs(
        self,
        sentences: Sequence[Encoded],
        weights: np.ndarray | CompactTable,
        *,
        projective: bool,
        single_root: bool,
        arcs: Sequence[Arcs] | None = None,
    ) -> list[ScoredGraph]:
        """Score the candidate arcs (all n*n by default).  Releases the GIL once, for all."""
        arcs = [all_arcs(s.n) for s in sentences] if arcs is None else list(arcs)
        if isinstance(weights, CompactTable):
            scores = self._templates.score(list(sentences), arcs, weights.values, weights.index)
        else:
            scores = self._templates.score(list(sentences), arcs, weights)
        return [
            ScoredGraph(s.n, *candidates, values, projective, single_root)
            for s, candidates, values in zip(sentences, arcs, scores, strict=True)
        ]

    def gradient(
        self, encoded: Encoded, graph: ScoredGraph, coefficients: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """sum over arcs of coefficient * features, as distinct rows (k,) and values (k, 16).

        Coefficients up to 1e-8 in size are left out.
        """
        return self._templates.gradient(encoded, graph.heads, graph.offsets, coefficients)
