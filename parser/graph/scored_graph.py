"""Candidate arcs, factor families and their scores: numbers only, no words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike

from cython_ext import candidates, layout
from cython_ext.layout import Layout
from cython_ext.relaxation import PartBounds

LINK, SIB, CHILDSEQ, GRAND, GRANDSIB, NOCROSS, PAIR = (
    "link",
    "sib",
    "childseq",
    "grand",
    "grandsib",
    "nocross",
    "pair",  # any two arcs; of graphs, not of models, whose features need one of the shapes above
)
# Positions of a part, family by family.  LINK is the arcs themselves.
FAMILIES = {
    LINK: ("head", "modifier"),
    SIB: ("head", "modifier", "sibling"),
    CHILDSEQ: ("head", "inner", "outer"),
    GRAND: ("grandparent", "head", "modifier"),
    GRANDSIB: ("grandparent", "head", "inner", "outer"),
    NOCROSS: ("modifier", "other"),
}
# Their numbers in the kernels.
CODES = {
    SIB: layout.SIB,
    CHILDSEQ: layout.CHILDSEQ,
    GRAND: layout.GRAND,
    GRANDSIB: layout.GRANDSIB,
    NOCROSS: layout.NOCROSS,
}
# A number for each arc and for each part: scores, indicators of trees, marginals, gradients.
Values = Mapping[str, np.ndarray]


class GraphError(ValueError):
    """A graph that cannot be built, or that an engine cannot use."""


# Indices, scores, and the matrices that engines make of an arc; scores and marginals of a part.
BYTES_PER_ARC = 40
BYTES_PER_PART = 16
BYTES_LIMIT = 4 * 2**30
SHORT = 128  # sentences come in few lengths up to here, so that their arcs are worth keeping


@dataclass(frozen=True)
class Arcs:
    """Candidate arcs of a sentence, modifier-major, heads ascending.

    Attributes
    ----------
    heads, modifiers : ndarray of int32, (arcs,)
    offsets : ndarray of int32, (n+1,)
        The arcs into word m are ``offsets[m-1]..offsets[m]-1``.
    """

    heads: np.ndarray
    modifiers: np.ndarray
    offsets: np.ndarray

    @property
    def n(self) -> int:
        """Words."""
        return len(self.offsets) - 1

    def __len__(self) -> int:
        return len(self.heads)

    @cached_property
    def layout(self) -> Layout:
        """Where the parts over these arcs stand in their arrays (cython_ext/layout.pyx)."""
        return Layout(self.heads, self.modifiers, self.offsets)

    def select(self, keep: np.ndarray) -> Arcs:
        """Those arcs for which the boolean array (arcs,) holds.

        GraphError names a word that is left without a head.
        """
        try:
            left = candidates.select(self.heads, self.modifiers, self.offsets, keep.view(np.uint8))
        except ValueError as error:
            raise GraphError(*error.args) from None
        return Arcs(*left) if left else self

    def including(self, tree: np.ndarray) -> Arcs:
        """These arcs and those of the tree ``heads`` (n+1,)."""
        width = self.n + 1
        own = self.modifiers.astype(np.int64) * width + self.heads
        wanted = np.arange(1, width, dtype=np.int64) * width + tree[1:]
        both = np.union1d(own, wanted)
        if len(both) == len(own):
            return self
        modifiers, heads = (each.astype(np.int32) for each in np.divmod(both, width))
        offsets = np.searchsorted(modifiers, np.arange(1, width + 1)).astype(np.int32)
        return Arcs(heads, modifiers, offsets)

    def check_size(self, families: Iterable[str]) -> None:
        """GraphError if the parts of these families would take over 4 GiB; allocates nothing."""
        for family in families:
            if family == LINK:
                continue
            count = self.layout.size(CODES[family])
            if count * BYTES_PER_PART > BYTES_LIMIT:
                raise GraphError(
                    f"{self.n} words with {len(self)} candidate arcs have {count} parts {family}, "
                    f"which take {count * BYTES_PER_PART / 2**30:.1f} GiB; the limit is "
                    f"{BYTES_LIMIT / 2**30:.0f} GiB"
                )


def all_arcs(n: int) -> Arcs:
    """All n*n arcs of a sentence of n words.  Read-only.

    GraphError, before anything is allocated, if scoring so many arcs would take over 4 GiB.
    """
    size = n * n * BYTES_PER_ARC
    if size > BYTES_LIMIT:
        raise GraphError(
            f"{n} words have {n * n} candidate arcs, which take {size / 2**30:.1f} GiB; "
            f"the limit is {BYTES_LIMIT / 2**30:.0f} GiB"
        )
    return _short(n) if n <= SHORT else _all_arcs(n)


def _all_arcs(n: int) -> Arcs:
    heads = np.broadcast_to(np.arange(n + 1, dtype=np.int32), (n, n + 1))
    modifiers = np.repeat(np.arange(1, n + 1, dtype=np.int32), n)
    heads = heads[heads != np.arange(1, n + 1)[:, None]]
    offsets = np.arange(0, n * n + 1, n, dtype=np.int32)
    for array in (heads, modifiers, offsets):
        array.flags.writeable = False
    return Arcs(heads, modifiers, offsets)


_short = lru_cache(maxsize=SHORT)(_all_arcs)


@dataclass
class LazyParts:
    """Scores of parts that are computed when they are asked for.

    Takes the place of an array (parts,) in a graph for engines that say so by `Engine.lazy`:
    ``parts[places]`` are the scores at some places, and ``np.asarray(parts)`` are all.

    Attributes
    ----------
    size : int
        Number of parts.
    score : function of places (k,) int64, of their scores (k,); kernels ask a PartScorer without
        the GIL
    bounds : PartBounds
    ids : ndarray of int32, (tables, n+1)
        What stands at each position, for each table of bounds.
    factor : float, 0 or more
        What `score` and the bounds are multiplied by.
    """

    size: int
    score: Callable[[np.ndarray], np.ndarray]
    bounds: PartBounds
    ids: np.ndarray
    factor: float = 1.0

    __array_ufunc__ = None  # numbers times this are __rmul__'s

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, places: np.ndarray) -> np.ndarray:
        scores = self.score(places)
        return scores if self.factor == 1.0 else self.factor * scores

    def __rmul__(self, factor: float) -> LazyParts:
        return replace(self, factor=factor * self.factor)

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        return self[np.arange(len(self))]


@dataclass(frozen=True)
class ScoredGraph:
    """A sentence as inference sees it.

    Position 0 is the root, words are 1..n.

    Attributes
    ----------
    arcs : Arcs
    scores : ndarray of float64, (arcs,)
        Log potentials, natural log.
    projective, single_root : bool
        The tree constraint.
    parts : mapping from family to ndarray of float64, (parts,)
        Scores of all parts of the families besides LINK, in the order of ``arcs.layout``; or
        LazyParts.
    pairs : ndarray of int32, (2, pairs)
        With ``parts["pair"]``: any two arcs, by their numbers, whose score counts when both are in
        the tree; -inf when they cannot be.
    """

    arcs: Arcs
    scores: np.ndarray
    projective: bool = False
    single_root: bool = True
    parts: Values = field(default_factory=dict)
    pairs: np.ndarray | None = None

    @property
    def n(self) -> int:
        """Words."""
        return self.arcs.n

    @property
    def heads(self) -> np.ndarray:
        """(arcs,) int32."""
        return self.arcs.heads

    @property
    def modifiers(self) -> np.ndarray:
        """(arcs,) int32."""
        return self.arcs.modifiers

    @property
    def families(self) -> frozenset[str]:
        """Names of the families that the graph has scores for."""
        return frozenset({LINK, *self.parts})

    @property
    def values(self) -> Values:
        """The scores of all families, LINK's included."""
        return {LINK: self.scores, **self.parts}

    @classmethod
    def from_matrix(
        cls, arc_scores: ArrayLike, *, projective: bool = False, single_root: bool = True
    ) -> ScoredGraph:
        """Candidate arcs of a matrix ``[head, modifier]``: those with a score above -inf.

        Column 0 and the diagonal are ignored.  ValueError for a shape that is not square or for
        NaN or +inf.
        """
        matrix = np.asarray(arc_scores, np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
            raise GraphError(
                f"arc scores must have shape (n+1, n+1) with n >= 1, got {matrix.shape}"
            )
        arcs = all_arcs(len(matrix) - 1)
        scores = matrix[arcs.heads, arcs.modifiers]
        if not (scores < np.inf).all():
            a = int(np.argmin(scores < np.inf))
            raise GraphError(
                f"arc_scores[{arcs.heads[a]}, {arcs.modifiers[a]}] is {scores[a]}; "
                "use finite scores, or -inf to forbid an arc"
            )
        keep = scores > -np.inf
        return cls(arcs.select(keep), scores[keep], projective, single_root)

    def scaled(self, factor: float) -> ScoredGraph:
        """The same graph with all scores times a factor."""
        if factor == 1.0:
            return self
        parts = {family: factor * scores for family, scores in self.parts.items()}
        kind = self.projective, self.single_root
        return ScoredGraph(self.arcs, factor * self.scores, *kind, parts, self.pairs)

    def index(self, family: str) -> np.ndarray:
        """Positions of each part of a family, (positions, parts) int32, as FAMILIES names them.

        Of PAIR the numbers of its arcs.  In CHILDSEQ and GRANDSIB, START is the head itself, END
        is -1 on the left and n+1 on the right.  Parts whose grandparent is one of the modifiers are
        listed, and are in no tree.
        """
        if family == LINK:
            return np.stack([self.heads, self.modifiers])
        if family == PAIR:
            assert self.pairs is not None
            return self.pairs
        return self.arcs.layout.index(CODES[family])

    def matrix(self) -> np.ndarray:
        """Arc scores as (n+1, n+1) ``[head, modifier]``, -inf where there is no candidate arc."""
        return self.spread(self.scores, -np.inf)

    def spread(self, values: np.ndarray, fill: float = 0.0) -> np.ndarray:
        """Per-arc values as (n+1, n+1) ``[head, modifier]``."""
        return self.arcs.layout.spread(np.ascontiguousarray(values, np.float64), fill)

    def gather(self, matrix: np.ndarray) -> np.ndarray:
        """Per-arc values of a matrix ``[head, modifier]``: the inverse of `spread`."""
        return matrix[self.heads, self.modifiers]

    def fired(self, family: str, tree: np.ndarray) -> np.ndarray:
        """Places of the parts (for LINK: arcs) that are in the tree ``heads`` (n+1,).

        ValueError for a tree with an arc that is not a candidate.
        """
        if family == LINK:
            return self.arcs.layout.arcs_of(np.ascontiguousarray(tree, np.int32))[1:]
        if family == PAIR:
            return np.flatnonzero((tree[self.modifiers] == self.heads)[self.pairs].all(0))
        return self.arcs.layout.fired(CODES[family], np.ascontiguousarray(tree, np.int32))

    def indicator(self, tree: np.ndarray) -> dict[str, np.ndarray]:
        """1.0 for each arc and each part that is in the tree ``heads`` (n+1,), else 0.0."""
        out = {}
        for family, scores in self.values.items():
            out[family] = np.zeros(len(scores))
            out[family][self.fired(family, tree)] = 1.0
        return out

    def score(self, tree: np.ndarray) -> float:
        """Score of the tree ``heads`` (n+1,) under all families."""
        heads = np.ascontiguousarray(tree, np.int32)
        total, stored = 0.0, []
        for family, scores in self.parts.items():
            if family == PAIR or isinstance(scores, LazyParts):
                total += float(scores[self.fired(family, heads)].sum())
            else:
                stored.append((CODES[family], scores))
        return total + self.arcs.layout.score(heads, self.scores, stored)


def dot(a: Values, b: Values) -> float:
    """Inner product over all families of a; b may have more."""
    return sum(float(a[family] @ b[family]) for family in a)


def subtract(a: Values, b: Values) -> dict[str, np.ndarray]:
    """a - b, family by family."""
    return {family: a[family] - b[family] for family in a}
