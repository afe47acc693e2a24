"""Sentences into scored graphs, and weights of arcs and parts back into gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cython_ext.features import Encoded, Gradient
from cython_ext.parts import EncodedParts, PartScorer
from parser.features.part_templates import compile_parts
from parser.features.table import CompactTable
from parser.features.templates import arc_templates, compile_templates
from parser.features.vocabulary import FIELDS, FIRST_FREE, Vocabulary
from parser.graph import (
    CODES,
    GRAND,
    LINK,
    SIB,
    Arcs,
    LazyParts,
    PartBounds,
    ScoredGraph,
    Values,
    all_arcs,
)
from parser.treebank import Sentence

Columns = tuple[np.ndarray, np.ndarray]  # ids and single features, as of Vocabulary.encode


@dataclass(frozen=True)
class Encoding:
    """A sentence as hashes: what scoring needs, and nothing that depends on the weights."""

    arcs: Encoded
    parts: EncodedParts | None
    ids: np.ndarray  # (n+1, fields) int32

    @property
    def n(self) -> int:
        """Words."""
        return self.arcs.n


VALUES = 128  # a field with more has no table of bounds


@dataclass(frozen=True)
class FamilyBounds:
    """Bounds on the scores of a family's parts, for a table of weights.

    Attributes
    ----------
    fields : list of int
        What the tables of `bounds` go by.
    bounds : PartBounds
    """

    fields: list[int]
    bounds: PartBounds


class Scorer:
    """The templates over a vocabulary: everything about features but the weights.

    Parameters
    ----------
    bits : int
        The table has 2**bits rows.
    factors : factor families that are scored, LINK among them.
    arc_set, part_set : str
        Names of the tables in `templates` and `part_templates`.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        bits: int,
        factors: Iterable[str] = (LINK,),
        *,
        arc_set: str = "full",
        part_set: str = "rich",
    ) -> None:
        self.vocabulary = vocabulary
        self.bits = bits
        self.families = [family for family in CODES if family in set(factors)]
        absent = vocabulary.absent
        self._arcs = compile_templates(arc_templates(absent, arc_set), FIELDS, bits)
        self._parts = compile_parts(frozenset(self.families), part_set, absent, FIELDS, bits)

    def encode(self, sentence: Sentence) -> Encoding:
        """Hashes of a sentence.  O(n * templates); does not depend on weights."""
        return self.encode_ids(*self.vocabulary.encode(sentence))

    def encode_ids(self, ids: np.ndarray, morph: np.ndarray) -> Encoding:
        """The same from the arrays of Vocabulary.encode."""
        parts = self._parts.encode(ids) if self.families else None
        return Encoding(self._arcs.encode(ids, morph), parts, ids)

    def graphs(
        self,
        sentences: Sequence[Encoding],
        weights: np.ndarray | CompactTable,
        *,
        projective: bool,
        single_root: bool,
        arcs: Sequence[Arcs] | None = None,
        lazy: Mapping[str, FamilyBounds] | None = None,
    ) -> list[ScoredGraph]:
        """Score candidate arcs (all n*n by default) and all parts over them.

        Families of `lazy`, which is some of `bounds`, are LazyParts: scored when asked for.

        Releases the GIL once for each family, for all sentences.  GraphError, before anything is
        allocated, if the arcs or the parts of a sentence would take over 4 GiB.
        """
        arcs = [all_arcs(s.n) for s in sentences] if arcs is None else list(arcs)
        table = (weights, None)
        if isinstance(weights, CompactTable):
            table = (weights.values, weights.index)
        for candidates in arcs:
            candidates.check_size(self.families)
        scores = self._arcs.score([s.arcs for s in sentences], arcs, *table)
        layouts = [candidates.layout for candidates in arcs] if self.families else []
        encoded = [s.parts for s in sentences]
        lazy = lazy or {}
        parts: dict[str, Sequence] = {
            family: [
                self._lazy(sentence, each, family, lazy[family], table)
                for sentence, each in zip(sentences, arcs, strict=True)
            ]
            if family in lazy
            else self._parts.score(encoded, layouts, CODES[family], *table)
            for family in self.families
        }
        return [
            ScoredGraph(
                candidates,
                scores[i],
                projective,
                single_root,
                {family: each[i] for family, each in parts.items()},
            )
            for i, candidates in enumerate(arcs)
        ]

    def _lazy(
        self, sentence: Encoding, arcs: Arcs, family: str, bounds: FamilyBounds, table: tuple
    ) -> LazyParts:
        layout, code = arcs.layout, CODES[family]
        score = PartScorer(self._parts, sentence.parts, layout, code, *table)
        return LazyParts(layout.size(code), score, bounds.bounds, sentence.ids.T[bounds.fields])

    def bounds(self, table: CompactTable, families: Iterable[str]) -> dict[str, FamilyBounds]:
        """Bounds on the scores of parts, for those of the families that are GRAND or SIB.

        Templates that read one field only, with few values, are bounded by all triples of values,
        O(values^3 templates); each of the others by the largest weights of the whole table.
        """
        halves = table.values.reshape(-1, 8)
        scores = halves[:, :1] + halves[:, 1:]  # of a feature, by distance
        low, high = float(scores.min(initial=0.0)), float(scores.max(initial=0.0))
        values = {FIELDS.index(f): len(self.vocabulary.values[f]) + FIRST_FREE for f in FIELDS}
        out = {}
        for family in {GRAND, SIB} & set(self.families) & set(families):
            reads = self._parts.fields_of(CODES[family])
            fields = [f for f in np.unique(reads).tolist() if f >= 0 and values[f] <= VALUES]
            tables = []
            for field in fields:
                ids = np.repeat(np.arange(values[field], dtype=np.int32)[:, None], len(FIELDS), 1)
                tables.append(
                    self._parts.extremes(
                        self._parts.encode(ids),
                        CODES[family],
                        (reads == field).astype(np.uint8),
                        table.values,
                        table.index,
                    )
                )
            rest = len(reads) - int(np.isin(reads, fields).sum())
            # Sums in single precision, as those of scores, in any order.
            slack = 2.0**-22 * len(reads) ** 2 * max(-low, high)
            limits = PartBounds(tables, rest * low - slack, rest * high + slack)
            out[family] = FamilyBounds(fields, limits)
        return out

    def gradient(
        self, encoding: Encoding, graph: ScoredGraph, coefficients: Values, tolerance: float = 1e-8
    ) -> tuple[np.ndarray, np.ndarray]:
        """sum over arcs and parts of coefficient * features: distinct rows (k,), values (k, 16).

        Coefficients up to `tolerance` in size are left out.
        """
        gradient, arcs = Gradient(), graph.arcs
        self._arcs.add_gradient(
            gradient, encoding.arcs, arcs.heads, arcs.offsets, coefficients[LINK], tolerance
        )
        for family in self.families:
            self._parts.add_gradient(
                gradient,
                encoding.parts,
                arcs.layout,
                CODES[family],
                coefficients[family],
                tolerance,
            )
        return gradient.arrays()
