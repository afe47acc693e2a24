"""Candidate arcs, factor families and their scores: numbers only, no words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

LINK, SIB, CHILDSEQ, GRAND, GRANDSIB, NOCROSS = (
    "link",
    "sib",
    "childseq",
    "grand",
    "grandsib",
    "nocross",
)
# Indices of a part, family by family.  LINK is the arcs themselves.
FAMILIES = {
    LINK: ("head", "modifier"),
    SIB: ("head", "modifier", "sibling"),
    CHILDSEQ: ("head", "modifier", "sibling"),
    GRAND: ("grandparent", "head", "modifier"),
    GRANDSIB: ("grandparent", "head", "modifier", "sibling"),
    NOCROSS: ("modifier", "other"),
}


class GraphError(ValueError):
    """A graph that cannot be built, or that an engine cannot use."""


@dataclass(frozen=True)
class Parts:
    """One family of factors, as structure of arrays.

    Attributes
    ----------
    index : ndarray of int32, (k, parts)
        Positions in the sentence, one row for each name in FAMILIES.
    scores : ndarray of float64, (parts,)
        Log potential of the factor when all its arcs are in the tree.
    """

    index: np.ndarray
    scores: np.ndarray


def all_arcs(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Heads, modifiers and offsets of all n*n arcs of a sentence of n words, modifier-major.

    int32; the arcs into word m are offsets[m-1]..offsets[m]-1, heads ascending.  Read-only.
    GraphError, before anything is allocated, if scoring so many arcs would take over 4 GiB.
    """
    size = n * n * BYTES_PER_ARC
    if size > BYTES_LIMIT:
        raise GraphError(
            f"{n} words have {n * n} candidate arcs, which take {size / 2**30:.1f} GiB; "
            f"the limit is {BYTES_LIMIT / 2**30:.0f} GiB"
        )
    return _short(n) if n <= SHORT else _all_arcs(n)


# Indices, scores, and the matrices that engines make of them.
BYTES_PER_ARC = 40
BYTES_LIMIT = 4 * 2**30
SHORT = 128  # sentences come in few lengths up to here, so that their arcs are worth keeping


def _all_arcs(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    heads = np.broadcast_to(np.arange(n + 1, dtype=np.int32), (n, n + 1))
    modifiers = np.repeat(np.arange(1, n + 1, dtype=np.int32), n)
    heads = heads[heads != np.arange(1, n + 1)[:, None]]
    offsets = np.arange(0, n * n + 1, n, dtype=np.int32)
    for array in (heads, modifiers, offsets):
        array.flags.writeable = False
    return heads, modifiers, offsets


_short = lru_cache(maxsize=SHORT)(_all_arcs)


@dataclass(frozen=True)
class ScoredGraph:
    """A sentence as inference sees it.

    Position 0 is the root, words are 1..n.  Arcs are stored modifier-major, heads ascending.

    Attributes
    ----------
    n : int
    heads, modifiers : ndarray of int32, (arcs,)
    offsets : ndarray of int32, (n+1,)
        The arcs into word m are ``offsets[m-1]..offsets[m]-1``.
    scores : ndarray of float64, (arcs,)
        Log potentials, natural log.
    projective, single_root : bool
        The tree constraint.
    parts : mapping from family to Parts
        Families besides LINK.
    """

    n: int
    heads: np.ndarray
    modifiers: np.ndarray
    offsets: np.ndarray
    scores: np.ndarray
    projective: bool = False
    single_root: bool = True
    parts: Mapping[str, Parts] = field(default_factory=dict)

    @property
    def families(self) -> frozenset[str]:
        """Names of the families that the graph has scores for."""
        return frozenset({LINK, *self.parts})

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
        n = len(matrix) - 1
        heads, modifiers, offsets = all_arcs(n)
        scores = matrix[heads, modifiers]
        if not (scores < np.inf).all():
            a = int(np.argmin(scores < np.inf))
            raise GraphError(
                f"arc_scores[{heads[a]}, {modifiers[a]}] is {scores[a]}; "
                "use finite scores, or -inf to forbid an arc"
            )
        keep = scores > -np.inf
        if not keep.all():
            offsets = np.concatenate([[0], np.cumsum(keep)[offsets[1:] - 1]]).astype(np.int32)
            heads, modifiers, scores = heads[keep], modifiers[keep], scores[keep]
        return cls(n, heads, modifiers, offsets, scores, projective, single_root)

    def matrix(self) -> np.ndarray:
        """Scores as (n+1, n+1) ``[head, modifier]``, -inf where there is no candidate arc."""
        return self.spread(self.scores, -np.inf)

    def spread(self, values: np.ndarray, fill: float = 0.0) -> np.ndarray:
        """Per-arc values as (n+1, n+1) ``[head, modifier]``."""
        matrix = np.full((self.n + 1, self.n + 1), fill)
        matrix[self.heads, self.modifiers] = values
        return matrix

    def gather(self, matrix: np.ndarray) -> np.ndarray:
        """Per-arc values of a matrix ``[head, modifier]``: the inverse of `spread`."""
        return matrix[self.heads, self.modifiers]

    def indicator(self, tree: np.ndarray) -> np.ndarray:
        """1.0 for each candidate arc of the tree ``heads`` (n+1,), else 0.0."""
        return (tree[self.modifiers] == self.heads).astype(np.float64)
