"""A trigram tagger, of which a hidden Markov model is a case."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from parser.inference.lagrangian import Maximum


@dataclass(frozen=True)
class Tagger:
    """theta[i, a, b, c] of tag c for word i after tags a, b; words before the first have tag 0."""

    theta: np.ndarray

    def score(self, tags: list[int]) -> float:
        contexts = zip([0, 0, *tags], [0, *tags], tags, strict=False)
        return sum(self.theta[i, a, b, c] for i, (a, b, c) in enumerate(contexts))

    def best(self, u: np.ndarray) -> Maximum:
        """Viterbi: chart[b, c] = max_a chart[a, b] + theta[i, a, b, c] + u[i, c]."""
        size = self.theta.shape[1]
        chart = np.full((size, size), -np.inf)
        chart[0, 0] = 0.0
        back = []
        for theta, unary in zip(self.theta, u, strict=True):
            values = chart[:, :, None] + theta + unary
            back.append(values.argmax(axis=0))
            chart = values.max(axis=0)
        b, c = np.unravel_index(chart.argmax(), chart.shape)
        value, tags = chart[b, c], []
        for before in reversed(back):
            tags.append(int(c))
            b, c = before[b, c], b
        return Maximum(value, np.eye(size)[tags[::-1]], tags[::-1])

    def sequences(self) -> Iterator[list[int]]:
        n, size = self.theta.shape[:2]
        return map(list, product(range(size), repeat=n))
