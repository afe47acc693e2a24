"""Predicates on head vectors: ``heads[m]`` is the head of word ``m``; ``heads[0]`` is -1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product


def is_tree(heads: Sequence[int]) -> bool:
    """Every word has a head among the other positions and reaches the root.  O(n).

    Examples
    --------
    >>> is_tree([-1, 2, 0]), is_tree([-1, 2, 1])
    (True, False)
    """
    reaches = [True] + [False] * (len(heads) - 1)
    for start in range(1, len(heads)):
        word, path = start, []
        while not reaches[word]:
            head = heads[word]
            if not 0 <= head < len(heads) or len(path) == len(heads):
                return False
            path.append(word)
            word = head
        for word in path:
            reaches[word] = True
    return True


def is_projective(heads: Sequence[int]) -> bool:
    """No two arcs of a tree cross, arcs from the root (position 0) included.  O(n).

    Equivalently, every word strictly inside an arc descends from the arc's head.

    Examples
    --------
    >>> is_projective([-1, 2, 0, 2]), is_projective([-1, 3, 0, 2])
    (True, False)
    """
    open_arcs: list[int] = []  # right ends of the arcs around the current position
    last = len(heads)
    starts: list[list[int]] = [[] for _ in heads]
    for modifier in range(1, last):
        starts[min(modifier, heads[modifier])].append(max(modifier, heads[modifier]))
    for position in range(last):
        while open_arcs and open_arcs[-1] <= position:
            open_arcs.pop()
        for end in sorted(starts[position], reverse=True):
            if open_arcs and open_arcs[-1] < end:
                return False
            open_arcs.append(end)
    return True


def enumerate_trees(n: int, *, projective: bool, single_root: bool) -> Iterator[tuple[int, ...]]:
    """Every tree over n words, by trying all (n+1)^n head vectors.  An oracle for tests.

    Yields
    ------
    tuple of int, length n+1
        In lexicographic order.

    Examples
    --------
    >>> list(enumerate_trees(2, projective=True, single_root=True))
    [(-1, 0, 1), (-1, 2, 0)]
    """
    for choice in product(range(n + 1), repeat=n):
        heads = (-1, *choice)
        if single_root and choice.count(0) != 1:
            continue
        if is_tree(heads) and (not projective or is_projective(heads)):
            yield heads
