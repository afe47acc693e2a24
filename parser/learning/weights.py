"""Weights in training: the table, and what averaging needs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from cython_ext import features as kernel
from parser.features import CompactTable, empty_lines

Gradient = tuple[np.ndarray, np.ndarray]  # distinct rows (k,) and values (k, 16)


class Weights:
    """A dense table and the average of all its states, later ones counting more.

    The state after t steps counts (t+1)^p - t^p, p = recency + 1, so nearly as t^recency (Shamir &
    Zhang 2013); with recency 0 all states count alike (Collins 2002).  These counts telescope:
    average = table - sums / steps^p, where each change d made at step c adds c^p * d to sums, also
    for steps without a change.
    """

    BLOCK = 1 << 14  # rows

    def __init__(self, bits: int, recency: float = 0.0) -> None:
        self.table = np.zeros((1 << bits, kernel.SLOTS), np.float32)
        self.sums = np.zeros_like(self.table)
        self.steps = 1
        self.recency = recency

    @property
    def counter(self) -> float:
        """steps^p."""
        return float(self.steps) ** (self.recency + 1)

    def add(self, gradient: Gradient, step: float) -> None:
        """table += step * gradient."""
        kernel.add(self.table, self.sums, *gradient, step, self.counter)

    def total(self, gradients: Sequence[Gradient]) -> Gradient:
        """Their sum, added in the order given.  Linear in the rows of all."""
        if len(gradients) == 1:
            return gradients[0]
        every = np.concatenate([rows for rows, _ in gradients])
        numbers = np.arange(len(every), dtype=np.int32)
        self._places[every] = numbers
        rows = every[self._places[every] == numbers]  # each where it is met last
        self._places[rows] = numbers[: len(rows)]
        values = np.zeros((len(rows), kernel.SLOTS), np.float32)
        for some, summands in gradients:
            values[self._places[some]] += summands
        return rows, values

    @cached_property
    def _places(self) -> np.ndarray:
        """By row of the table, its place in a sum that has it; anything for other rows."""
        return np.empty(len(self.table), np.int32)

    def decay(self, factor: float) -> None:
        """table *= factor, in one dense pass."""
        self.sums += np.float32(self.counter * (factor - 1)) * self.table
        self.table *= np.float32(factor)

    def average(self, share: float) -> CompactTable:
        """Mean of the table over all steps so far: the share of its rows with the largest weights.

        Most rows belong to features met once on the wrong arc.  Without the smaller half no dev
        score changes by more than noise; a quarter alone loses 0.1 UAS, and on Latin, which has few
        sentences, 0.6.
        """
        sizes = np.empty(len(self.table), np.float32)
        kernel.average_sizes(self.table, self.sums, self.counter, sizes)
        used = largest(sizes, share)
        values = np.take(self.sums, used, axis=0, out=empty_lines(len(used)), mode="clip")
        values /= np.float32(-self.counter)
        for first in range(0, len(used), self.BLOCK):  # a copy less: memory is at its peak here
            block = slice(first, first + self.BLOCK)
            values[block] += self.table[used[block]]
        return CompactTable(len(self.table).bit_length() - 1, used.astype(np.uint32), values)

    def arrays(self) -> dict[str, np.ndarray]:
        """For a checkpoint; `restore` takes them back."""
        return {"table": self.table, "sums": self.sums, "steps": np.array(self.steps)}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        self.table[:] = arrays["table"]
        self.sums[:] = arrays["sums"]
        self.steps = int(arrays["steps"])


def compact(table: np.ndarray, share: float) -> CompactTable:
    """A table as it is, and of its rows again the share with the largest weights."""
    used = largest(np.maximum(table.max(1), -table.min(1)), share)
    return CompactTable(len(table).bit_length() - 1, used.astype(np.uint32), table[used])


def largest(sizes: np.ndarray, share: float) -> np.ndarray:
    """The share of the numbers of those that are not 0, the largest of them, ascending."""
    used = np.flatnonzero(sizes)
    drop = len(used) - round(share * len(used))
    if drop:
        used = np.sort(used[np.argpartition(sizes[used], drop - 1)[drop:]])
    return used
