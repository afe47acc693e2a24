"""Word alignment by two hidden Markov models, one in each direction, which share their links.

A matrix of links has a row for each word of one language, a column for each of the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from parser.inference.lagrangian import Decomposition, Maximum
from tests.inference.lagrangian.tagger import Tagger


@dataclass(frozen=True)
class Direction:
    """Each row links to one of so many columns; or to none, if the model has a tag more."""

    model: Tagger
    columns: int

    @property
    def nulls(self) -> bool:
        return self.model.theta.shape[1] > self.columns

    def best(self, u: np.ndarray) -> Maximum:
        value, shared, tags = self.model.best(np.pad(u, ((0, 0), (0, int(self.nulls)))))
        return Maximum(value, shared[:, : self.columns], tags)

    def score(self, links: np.ndarray) -> float:
        """-inf unless each row has one link, or none where that is allowed."""
        counts = links.sum(axis=1)
        if (counts > 1).any() or (counts.min() == 0 and not self.nulls):
            return -np.inf
        return self.model.score(np.where(counts, links.argmax(axis=1), self.columns).tolist())

    def links(self, tags: list[int]) -> np.ndarray:
        return np.eye(self.columns + 1, dtype=int)[tags, : self.columns]


@dataclass(frozen=True)
class Alignment:
    """Rows of `forward` are the words of one language, of `backward` those of the other."""

    forward: Direction
    backward: Direction

    def score(self, links: np.ndarray) -> float:
        return self.forward.score(links) + self.backward.score(links.T)

    def decomposition(self) -> Decomposition:
        """A solution is a matrix of links: those of one direction, or what both have in common."""

        def backward(u: np.ndarray) -> Maximum:
            value, shared, tags = self.backward.best(u.T)
            return Maximum(value, shared.T, tags)

        def complete(tags: list[int], other: list[int]) -> tuple[float, np.ndarray]:
            one, two = self.forward.links(tags), self.backward.links(other).T
            candidates = [(self.score(links), links) for links in (one, two, one * two)]
            return max(candidates, key=lambda candidate: candidate[0])

        return Decomposition(self.forward.best, backward, complete)

    def everything(self) -> Iterator[np.ndarray]:
        """All matrices of links to which both directions give a score."""
        for tags in product(range(self.forward.model.theta.shape[1]), repeat=self.backward.columns):
            if self.score(links := self.forward.links(list(tags))) > -np.inf:
                yield links
