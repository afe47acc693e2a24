"""Sentences into scored graphs, and weights of arcs and parts back into gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cython_ext.features import Encoded, Gradient
from cython_ext.layout import Layout
from cython_ext.parts import EncodedParts, PartScorer, PartTemplates
from parser.features.part_templates import compile_parts, has_gaps
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
    templates: PartTemplates | None  # None: there are no parts
    ids: np.ndarray  # (n+1, fields) int32

    @cached_property
    def parts(self) -> EncodedParts | None:
        """Hashes of parts, made when they are asked for."""
        return self.templates and self.templates.encode(self.ids)

    @property
    def n(self) -> int:
        """Words."""
        return self.arcs.n


@dataclass
class SinglePartScorer:
    """Scores of the parts of a family at some places; nothing is hashed before it is asked."""

    sentence: Encoding
    layout: Layout
    code: int
    table: tuple
    fields: list[int]

    def of_tokens(self, ids: np.ndarray) -> PartScorer:
        """The scorer of parts of tokens (k,) with `fields` ids (k, fields), and nothing else."""
        templates = self.sentence.templates
        assert templates is not None
        every = np.zeros((len(ids), len(FIELDS)), np.int32)
        every[:, self.fields] = ids
        return PartScorer(templates, templates.encode(every), None, self.code, *self.table)

    @cached_property
    def scorer(self) -> PartScorer:
        """What kernels ask, without the GIL."""
        sentence = self.sentence
        assert sentence.templates is not None
        return PartScorer(sentence.templates, sentence.parts, self.layout, self.code, *self.table)

    def __call__(self, places: np.ndarray) -> np.ndarray:
        return self.scorer(places)


MANY = 1024  # a field with more values has no table of bounds
VALUES = 128  # with more it has one of
FIRST = 64  # those that were the first to appear, as the frequent ones mostly are
DECISIVE = 3  # fields that decide the scores of parts; with more these are not kept


@dataclass(frozen=True)
class FamilyBounds:
    """Bounds on the scores of a family's parts, for a table of weights.

    Attributes
    ----------
    fields : list of int
        What the tables of `bounds` go by, and then others that also decide the score of a part.
    bounds : PartBounds
    """

    fields: list[int]
    bounds: PartBounds

    @cached_property
    def rows(self) -> np.ndarray:
        """The fields, as an index."""
        return np.array(self.fields, np.intp)


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
        self.part_set = part_set
        self._bounds: tuple[CompactTable | None, dict[str, FamilyBounds]] = (None, {})
        self.families = [family for family in CODES if family in set(factors)]
        absent = vocabulary.absent
        self._arcs = compile_templates(arc_templates(absent, arc_set), FIELDS, bits)
        self._parts = compile_parts(frozenset(self.families), part_set, absent, FIELDS, bits)

    def encode(self, sentence: Sentence) -> Encoding:
        """Hashes of a sentence.  O(n * templates); does not depend on weights."""
        return self.encode_ids(*self.vocabulary.encode(sentence))

    def encode_ids(self, ids: np.ndarray, morph: np.ndarray) -> Encoding:
        """The same from the arrays of Vocabulary.encode."""
        return Encoding(self._arcs.encode(ids, morph), self._parts if self.families else None, ids)

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
        lazy = lazy or {}
        eager = not set(self.families) <= lazy.keys()
        encoded = [s.parts for s in sentences] if eager else []
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
        score = SinglePartScorer(sentence, layout, code, table, bounds.fields)
        return LazyParts(layout.size(code), score, bounds.bounds, sentence.ids.T[bounds.rows])

    def bounds(self, table: CompactTable, families: Iterable[str]) -> dict[str, FamilyBounds]:
        """Bounds on the scores of parts, for those of the families that are GRAND or SIB.

        Templates that read one field only, with few values, are bounded by all triples of values,
        O(values^3 templates); each of the others by the largest weights of the whole table.  Those
        of the last table are kept, and with them the scores of parts that were computed.
        """
        if self._bounds[0] is not table:
            self._bounds = table, {}
        kept = self._bounds[1]
        missing = set(families) - kept.keys()
        if missing:
            kept |= self._find_bounds(table, missing)
        return {family: kept[family] for family in families if family in kept}

    def _find_bounds(self, table: CompactTable, families: Iterable[str]) -> dict[str, FamilyBounds]:
        halves = table.values.reshape(-1, 8)
        scores = halves[:, :1] + halves[:, 1:]  # of a feature, by distance
        low, high = float(scores.min(initial=0.0)), float(scores.max(initial=0.0))
        values = {FIELDS.index(f): len(self.vocabulary.values[f]) + FIRST_FREE for f in FIELDS}
        out = {}
        for family in {GRAND, SIB} & set(self.families) & set(families):
            reads = self._parts.fields_of(CODES[family])
            fields = [f for f in np.unique(reads).tolist() if f >= 0 and values[f] <= MANY]
            tables = []
            for field in fields:
                size = values[field] if values[field] <= VALUES else FIRST
                ids = np.repeat(np.arange(size, dtype=np.int32)[:, None], len(FIELDS), 1)
                own = reads == field
                extremes = self._parts.extremes(
                    self._parts.encode(ids),
                    CODES[family],
                    own.astype(np.uint8),
                    table.values,
                    table.index,
                )
                if size < values[field]:
                    every = np.empty((size + 1, size + 1, size + 1, 2), np.float32)
                    every[...] = own.sum() * low, own.sum() * high
                    every[:size, :size, :size] = extremes
                    extremes = every
                tables.append(extremes)
            rest = len(reads) - int(np.isin(reads, fields).sum())
            # Sums in single precision, as those of scores, in any order.
            slack = 2.0**-22 * len(reads) ** 2 * max(-low, high)
            others = [f for f in np.unique(reads).tolist() if f not in fields]
            decisive = len(fields) + len(others)
            if min(others, default=0) < 0 or has_gaps(family, self.part_set) or decisive > DECISIVE:
                others, decisive = [], 0
            fields += others
            limits = PartBounds(tables, rest * low - slack, rest * high + slack, decisive)
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
