"""Counts that add up, and the percentages made of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Ratio(NamedTuple):
    """``right`` out of ``total``, as a percentage."""

    right: int
    total: int

    @property
    def percent(self) -> float:
        """0 where nothing was counted, as in the 2018 script; ``total`` tells the two apart."""
        return 100.0 * self.right / self.total if self.total else 0.0


class Counts(NamedTuple):
    """Words, and how many of them have the right head, the right relation, both."""

    words: int = 0
    heads: int = 0
    relations: int = 0
    both: int = 0

    @classmethod
    def of(cls, heads_right: np.ndarray, relations_right: np.ndarray) -> Counts:
        both = np.count_nonzero(heads_right & relations_right)
        right = np.count_nonzero(heads_right), np.count_nonzero(relations_right)
        return cls(len(heads_right), *map(int, (*right, both)))

    def plus(self, other: Counts) -> Counts:
        return Counts(*map(sum, zip(self, other, strict=True)))


class Overlap(NamedTuple):
    """Items in gold, items in the system's answer, items that agree."""

    gold: int = 0
    system: int = 0
    right: int = 0

    @property
    def precision(self) -> float:
        return Ratio(self.right, self.system).percent

    @property
    def recall(self) -> float:
        return Ratio(self.right, self.gold).percent

    @property
    def f1(self) -> float:
        return Ratio(2 * self.right, self.gold + self.system).percent

    def plus(self, other: Overlap) -> Overlap:
        return Overlap(*map(sum, zip(self, other, strict=True)))
