"""Structure of head vectors: roots, cycles, crossing arcs.

A head vector has n+1 entries for n words; ``heads[m]`` is the head of word m, 0 is the root,
``heads[0]`` is -1.  A word whose head is not known has -1 too, and then contributes no arc.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def roots(heads: Sequence[int] | np.ndarray) -> np.ndarray:
    """Words whose head is the root, in ascending order.  O(n).

    Parameters
    ----------
    heads : array_like of int, shape (n+1,)

    Returns
    -------
    ndarray of intp, shape (number of roots,)

    Examples
    --------
    >>> roots([-1, 2, 0, 0]).tolist()
    [2, 3]
    """
    return np.flatnonzero(np.asarray(heads) == 0)


def find_cycle(heads: Sequence[int] | np.ndarray) -> list[int]:
    """One cycle of a head vector, or an empty list.  O(n log n), vectorised.

    Parameters
    ----------
    heads : array_like of int, shape (n+1,)
        Values from -1 to n.

    Returns
    -------
    list of int
        Words, each followed by its head, the last one's head being the first; it starts with
        the lowest word of the cycle.  A word that is its own head is a cycle of one.

    Examples
    --------
    >>> find_cycle([-1, 3, 0, 4, 1])
    [1, 3, 4]
    >>> find_cycle([-1, 2, 0])
    []
    """
    # Pointer doubling: after k rounds each word points to its 2^k-th ancestor.
    ancestors = np.maximum(heads, 0)
    for _ in range(len(ancestors).bit_length()):
        ancestors = ancestors[ancestors]
    if not ancestors.any():
        return []
    # Whatever is more than n steps up can only be on a cycle.
    start = word = int(ancestors[ancestors.argmax()])
    cycle = [start]
    while (word := int(heads[word])) != start:
        cycle.append(word)
    lowest = cycle.index(min(cycle))
    return cycle[lowest:] + cycle[:lowest]


def projective(heads: Sequence[int] | np.ndarray) -> bool:
    """Whether no two arcs cross, arcs from the root at position 0 included.  O(n).

    For a tree this is the usual definition: every word between a head and its modifier descends
    from the head.

    Parameters
    ----------
    heads : array_like of int, shape (n+1,)

    Examples
    --------
    >>> projective([-1, 2, 0, 2]), projective([-1, 3, 0, 2, 1])
    (True, False)
    """
    heads = np.asarray(heads).tolist()
    size = len(heads)
    inward: list[list[int]] = [[] for _ in range(size)]  # left ends of the arcs that end here
    for modifier, head in enumerate(heads):
        if head >= 0 and head != modifier:  # a loop covers nothing
            inward[max(head, modifier)].append(min(head, modifier))
    outward: list[list[int]] = [[] for _ in range(size)]  # right ends, the farthest first
    for right in range(size - 1, -1, -1):
        for left in inward[right]:
            outward[left].append(right)

    open_ends: list[int] = []  # of arcs that cover this position; the nearest is on top
    for position in range(size):
        while open_ends and open_ends[-1] == position:
            open_ends.pop()
        for right in outward[position]:
            if open_ends and open_ends[-1] < right:
                return False
            open_ends.append(right)
    return True


def crossing_arcs(heads: Sequence[int] | np.ndarray) -> np.ndarray:
    """For each word, the number of arcs that its own arc crosses.  O(n^2) time, O(n) memory.

    Two arcs cross when exactly one end of the one lies strictly between the ends of the other,
    and all four ends differ.  Arcs from the root at position 0 count.

    Parameters
    ----------
    heads : array_like of int, shape (n+1,)

    Returns
    -------
    counts : ndarray of int64, shape (n+1,)
        ``counts[0]`` is 0.  ``(counts > 0).sum()`` arcs cross another, ``counts.sum() // 2``
        pairs of arcs cross; a tree is projective exactly when all are 0.

    Examples
    --------
    >>> crossing_arcs([-1, 3, 0, 2, 1]).tolist()
    [0, 1, 2, 0, 1]
    """
    heads = np.asarray(heads)
    words = np.flatnonzero(heads >= 0)
    left, right = np.minimum(heads[words], words), np.maximum(heads[words], words)
    counts = np.zeros(len(heads), dtype=np.int64)
    block = max(1, 2**18 // max(1, len(words)))  # keeps the comparison table small
    for first in range(0, len(words), block):
        rows = slice(first, first + block)
        lo, hi = left[rows, None], right[rows, None]
        leaves_right = (lo < left) & (left < hi) & (hi < right)
        leaves_left = (left < lo) & (lo < right) & (right < hi)
        counts[words[rows]] = (leaves_right | leaves_left).sum(axis=1)
    return counts
