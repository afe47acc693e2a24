"""The best labels of a grid, as two spanning trees that have to agree on each label."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np

from parser.inference.lagrangian import Decomposition, Maximum

Edge = tuple[int, int]


@dataclass(frozen=True)
class Field:
    """A pairwise Markov random field: unary (nodes, labels), pairs[i, j] (labels, labels)."""

    unary: np.ndarray
    pairs: dict[Edge, np.ndarray]

    def score(self, labels: np.ndarray) -> np.ndarray:
        """Of one labelling, or of each row."""
        labels = np.asarray(labels)
        nodes = self.unary[np.arange(len(self.unary)), labels].sum(axis=-1)
        return nodes + sum(t[labels[..., i], labels[..., j]] for (i, j), t in self.pairs.items())

    def labellings(self) -> np.ndarray:
        nodes, labels = self.unary.shape
        return np.array(list(product(range(labels), repeat=nodes)))

    def best(self, u: np.ndarray) -> Maximum:
        """Max-product from the leaves to node 0; the edges, each away from it, are a tree.

        up[i] = unary[i] + sum over children j of max_b pairs[i, j][:, b] + up[j, b]
        """
        up, back = self.unary + u, {}
        outward = self._outward()
        for i, j, table in reversed(outward):
            values = table + up[j]
            back[j] = values.argmax(axis=1)
            up[i] += values.max(axis=1)
        labels = np.full(len(up), up[0].argmax())
        for i, j, _ in outward:
            labels[j] = back[j][labels[i]]
        return Maximum(up[0].max(), np.eye(up.shape[1])[labels], labels)

    def _outward(self) -> list[tuple[int, int, np.ndarray]]:
        reached, outward = [0], []
        for i in reached:
            for (a, b), table in self.pairs.items():
                for here, there, turned in ((a, b, table), (b, a, table.T)):
                    if here == i and there not in reached:
                        reached.append(there)
                        outward.append((i, there, turned))
        return outward


def grid_edges(rows: int, columns: int) -> list[Edge]:
    across = [
        (r * columns + c, r * columns + c + 1) for r in range(rows) for c in range(columns - 1)
    ]
    down = [
        (r * columns + c, (r + 1) * columns + c) for r in range(rows - 1) for c in range(columns)
    ]
    return across + down


def combs(field: Field, columns: int) -> tuple[Field, Field]:
    """All rows joined by the first column, and all columns joined by the first row.

    What is in both has half of its score in each.
    """
    along = {edge for edge in field.pairs if edge[1] == edge[0] + 1}
    spine = {edge for edge in field.pairs if edge not in along and edge[0] % columns == 0}
    top = {edge for edge in along if edge[1] < columns}

    def tree(edges: Iterable[Edge]) -> Field:
        halved = spine | top
        pairs = {edge: field.pairs[edge] * (0.5 if edge in halved else 1.0) for edge in edges}
        return Field(field.unary / 2, pairs)

    return tree(sorted(along | spine)), tree(sorted((field.pairs.keys() - along) | top))


def two_trees(field: Field, columns: int) -> Decomposition:
    """A solution is the labels of one of the trees."""
    one, two = combs(field, columns)

    def complete(*labellings: np.ndarray) -> tuple[float, np.ndarray]:
        best = max(labellings, key=field.score)
        return float(field.score(best)), best

    return Decomposition(one.best, two.best, complete)
