"""Lexicalised parsing and dependency parsing at once: two charts, which share the dependencies.

A lexicalised tree is (tag, word) or (symbol, head word, left, right), where one of the two parts
has the same head word, and the other's head depends on it.  The second-order dependency parser
knows siblings.  Words are 1, ..., n, and 0 is the root.

The second application of Rush et al. (2010).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from parser.inference.lagrangian import Decomposition, Maximum
from parser.trees import enumerate_trees

Heads = tuple[int, ...]  # of the words 1, ..., n


def head_of(tree: tuple) -> int:
    return tree[1]


def dependencies(tree: tuple, above: int = 0) -> dict[int, int]:
    """The head of each word, by word."""
    out = {head_of(tree): above}
    for part in tree[2:]:
        if head_of(part) == head_of(tree):
            out |= dependencies(part, above)
        else:
            out |= dependencies(part, head_of(tree))
    return out


def heads_of(tree: tuple) -> Heads:
    return tuple(head for _, head in sorted(dependencies(tree).items()))


def arcs_of(heads: Heads) -> np.ndarray:
    """(n+1, n+1), 1.0 for each [head, modifier]."""
    arcs = np.zeros((len(heads) + 1, len(heads) + 1))
    arcs[list(heads), range(1, len(heads) + 1)] = 1.0
    return arcs


@dataclass(frozen=True)
class Lexicalized:
    """rules[side, X, Y, Z] of X -> Y Z with the head on a side: 0 left, 1 right; bilexical[h, m] of
    dependencies, which a rule makes; tags[i, tag], i = 1, ..., n.  Tags are the first symbols, the
    root is the last."""

    rules: np.ndarray
    bilexical: np.ndarray
    tags: np.ndarray

    def score(self, tree: tuple) -> float:
        return self.bilexical[0, head_of(tree)] + self._below(tree)

    def _below(self, tree: tuple) -> float:
        if len(tree) == 2:
            return self.tags[tree[1], tree[0]]
        symbol, head, left, right = tree
        side = int(head_of(right) == head)
        rule = self.rules[side, symbol, left[0], right[0]]
        arc = self.bilexical[head, head_of(left if side else right)]
        return rule + arc + self._below(left) + self._below(right)

    def best(self, u: np.ndarray) -> Maximum:
        """CKY with heads, O(n^5): chart[i, j, h, X] = max over k, Y, Z and the other head m of

        chart[i, k, h, Y] + chart[k, j, m, Z] + rules[0, X, Y, Z] + bilexical[h, m] + u[h, m]
        chart[i, k, m, Y] + chart[k, j, h, Z] + rules[1, X, Y, Z] + bilexical[h, m] + u[h, m]
        """
        n, symbols = len(self.tags) - 1, self.rules.shape[1]
        arcs = self.bilexical + u
        chart = np.full((n + 2, n + 2, n + 1, symbols), -np.inf)
        back: dict[tuple[int, int, int, int], tuple[int, int, int, int, int]] = {}
        for h in range(1, n + 1):
            chart[h, h + 1, h, : self.tags.shape[1]] = self.tags[h]
        for width in range(2, n + 1):
            for i in range(1, n + 2 - width):
                j = i + width
                for k in range(i + 1, j):
                    for first in range(i, k):
                        for second in range(k, j):
                            pairs = chart[i, k, first, :, None] + chart[k, j, second, None, :]
                            for side, h, m in ((0, first, second), (1, second, first)):
                                values = (self.rules[side] + pairs + arcs[h, m]).reshape(
                                    symbols, -1
                                )
                                for x in np.flatnonzero(values.max(1) > chart[i, j, h]):
                                    chart[i, j, h, x] = values[x].max()
                                    y, z = divmod(int(values[x].argmax()), symbols)
                                    back[i, j, h, int(x)] = (k, first, second, y, z)

        def tree(i: int, j: int, h: int, symbol: int) -> tuple:
            if j == i + 1:
                return (symbol, h)
            k, first, second, y, z = back[i, j, h, symbol]
            return (symbol, h, tree(i, k, first, y), tree(k, j, second, z))

        goals = chart[1, n + 1, :, -1] + arcs[0]
        h = int(goals.argmax())
        best = tree(1, n + 1, h, symbols - 1)
        return Maximum(goals[h], arcs_of(heads_of(best)), best)

    def trees(self) -> Iterator[tuple]:
        """All that have a score, by definition."""

        def spanning(i: int, j: int, symbol: int) -> Iterator[tuple]:
            if j == i + 1:
                if symbol < self.tags.shape[1] and self.tags[i, symbol] > -np.inf:
                    yield (symbol, i)
                return
            for side, y, z in np.argwhere(self.rules[:, symbol] > -np.inf).tolist():
                for k in range(i + 1, j):
                    for left in spanning(i, k, y):
                        for right in spanning(k, j, z):
                            yield (symbol, head_of(right if side else left), left, right)

        return spanning(1, len(self.tags), self.rules.shape[1] - 1)


@dataclass(frozen=True)
class Siblings:
    """theta[h, s, m] of an arc h -> m next to its inner sibling s, s = h for the innermost."""

    theta: np.ndarray

    def score(self, heads: Heads) -> float:
        value = 0.0
        for m, h in enumerate(heads, 1):
            between = range(min(h, m) + 1, max(h, m))
            inner = [s for s in between if heads[s - 1] == h]
            s = (max(inner) if m > h else min(inner)) if inner else h
            value += self.theta[h, s, m]
        return value

    def best(self, u: np.ndarray) -> Maximum:
        """Eisner's chart with siblings (McDonald & Pereira 2006), O(n^3); the root has one child.

        Spans lead from a head to an end on either side: complete[h, e], incomplete[h, m] that a
        head and its outermost child make, and sibling[a, b] of two children next to each other.
        """
        n = len(self.theta) - 1
        scores = self.theta + u[:, None, :]
        complete = {(i, i): (0.0, ()) for i in range(n + 1)}
        incomplete: dict[tuple[int, int], tuple[float, tuple]] = {}
        sibling: dict[tuple[int, int], tuple[float, tuple]] = {}

        def join(score: float, *parts: tuple[float, tuple], arc: tuple = ()) -> tuple[float, tuple]:
            return sum((p[0] for p in parts), score), sum((p[1] for p in parts), arc)

        for width in range(1, n + 1):
            for i in range(n + 1 - width):
                j = i + width
                sibling[i, j] = max(
                    join(0.0, complete[i, k], complete[j, k + 1]) for k in range(i, j)
                )
                for h, m, step in ((i, j, 1), (j, i, -1)):
                    if m == 0:  # the root has no head
                        continue
                    ways = [
                        join(scores[h, h, m], complete[h, h], complete[m, h + step], arc=((m, h),))
                    ]
                    if h:
                        ways += [
                            join(
                                scores[h, s, m],
                                incomplete[h, s],
                                sibling[min(s, m), max(s, m)],
                                arc=((m, h),),
                            )
                            for s in range(h + step, m, step)
                        ]
                    incomplete[h, m] = max(ways)
                for h, e, step in ((i, j, 1), (j, i, -1)):
                    if e == 0:
                        continue
                    ways = [
                        join(0.0, incomplete[h, m], complete[m, e])
                        for m in range(h + step, e + step, step)
                    ]
                    complete[h, e] = max(ways)
        value, arcs = complete[0, n]
        heads = tuple(head for _, head in sorted(arcs))
        return Maximum(value, arcs_of(heads), heads)

    def trees(self) -> Iterator[Heads]:
        """All projective trees with one child of the root."""
        n = len(self.theta) - 1
        for heads in enumerate_trees(n, projective=True, single_root=True):
            yield tuple(int(h) for h in heads[1:])


def combined(grammar: Lexicalized, parser: Siblings) -> Decomposition:
    """A solution is a lexicalised tree, with its dependencies."""

    def complete(tree: tuple, _: Heads) -> tuple[float, tuple]:
        return grammar.score(tree) + parser.score(heads_of(tree)), tree

    return Decomposition(grammar.best, parser.best, complete)
