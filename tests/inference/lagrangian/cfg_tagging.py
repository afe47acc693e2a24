"""Parsing and tagging at once: CKY and Viterbi, which share the tags of the words.

A tree is (tag, i) or (symbol, left, right).  Tags are the first symbols.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product, repeat

import numpy as np

from parser.inference.lagrangian import Decomposition, Maximum
from tests.inference.lagrangian.tagger import Tagger


def tags_of(tree: tuple) -> list[int]:
    return [tree[0]] if len(tree) == 2 else tags_of(tree[1]) + tags_of(tree[2])


@dataclass(frozen=True)
class Grammar:
    """In Chomsky normal form: rules[X, Y, Z] of X -> Y Z, words[i, tag]; the root is symbol -1."""

    rules: np.ndarray
    words: np.ndarray

    def score(self, tree: tuple) -> float:
        if len(tree) == 2:
            return self.words[tree[1], tree[0]]
        symbol, left, right = tree
        return self.rules[symbol, left[0], right[0]] + self.score(left) + self.score(right)

    def best(self, u: np.ndarray) -> Maximum:
        """CKY: chart[i, j, X] = max_k,Y,Z chart[i, k, Y] + chart[k, j, Z] + rules[X, Y, Z]."""
        n, tags = self.words.shape
        symbols = len(self.rules)
        chart = np.full((n, n + 1, symbols), -np.inf)
        back = {}
        chart[np.arange(n), np.arange(1, n + 1), :tags] = self.words + u
        for width in range(2, n + 1):
            for i in range(n + 1 - width):
                j = i + width
                splits = np.arange(i + 1, j)
                pairs = chart[i, splits, :, None] + chart[splits, j, None, :]
                values = (pairs.max(axis=0) + self.rules).reshape(symbols, -1)
                chart[i, j] = values.max(axis=1)
                for x, (y, z) in enumerate(map(divmod, values.argmax(axis=1), repeat(symbols))):
                    back[i, j, x] = (int(splits[pairs[:, y, z].argmax()]), int(y), int(z))

        def tree(i: int, j: int, symbol: int) -> tuple:
            if j == i + 1:
                return (symbol, i)
            k, y, z = back[i, j, symbol]
            return (symbol, tree(i, k, y), tree(k, j, z))

        best = tree(0, n, symbols - 1)
        return Maximum(chart[0, n, -1], np.eye(tags)[tags_of(best)], best)

    def trees(self) -> Iterator[tuple]:
        """All that have a score, by definition."""

        def spanning(i: int, j: int, symbol: int) -> Iterator[tuple]:
            if j == i + 1:
                if symbol < self.words.shape[1] and self.words[i, symbol] > -np.inf:
                    yield (symbol, i)
                return
            for y, z in np.argwhere(self.rules[symbol] > -np.inf).tolist():
                for k in range(i + 1, j):
                    for left, right in product(spanning(i, k, y), spanning(k, j, z)):
                        yield (symbol, left, right)

        return spanning(0, len(self.words), len(self.rules) - 1)


def combined(grammar: Grammar, tagger: Tagger) -> Decomposition:
    """A solution is a tree, with its tags."""

    def complete(tree: tuple, _: list[int]) -> tuple[float, tuple]:
        return grammar.score(tree) + tagger.score(tags_of(tree)), tree

    return Decomposition(grammar.best, tagger.best, complete)
