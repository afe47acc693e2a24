"""Weights in training: the table, and what averaging needs."""

from __future__ import annotations

import numpy as np

from cython_ext import features as kernel
from parser.features import CompactTable

Gradient = tuple[np.ndarray, np.ndarray]  # distinct rows (k,) and values (k, 16)


class Weights:
    """A dense table and the average of all its states.

    average = table - sums / steps, where each change d made at step c adds c * d to sums: the lazy
    form of averaging over every step, also those without a change (Collins 2002; Daume 2006).
    """

    def __init__(self, bits: int) -> None:
        self.table = np.zeros((1 << bits, kernel.SLOTS), np.float32)
        self.sums = np.zeros_like(self.table)
        self.steps = 1

    def add(self, gradient: Gradient, step: float) -> None:
        """table += step * gradient."""
        kernel.add(self.table, self.sums, *gradient, step, self.steps)

    def decay(self, factor: float) -> None:
        """table *= factor, in one dense pass."""
        self.sums += np.float32(self.steps * (factor - 1)) * self.table
        self.table *= np.float32(factor)

    def average(self, share: float) -> CompactTable:
        """Mean of the table over all steps so far: the share of its rows with the largest weights.

        Most rows belong to features met once on the wrong arc; the smallest three quarters change
        no score in the second decimal, and without them a model is a quarter of the size.
        """
        sizes = np.empty(len(self.table), np.float32)
        kernel.average_sizes(self.table, self.sums, self.steps, sizes)
        used = np.flatnonzero(sizes)
        drop = len(used) - round(share * len(used))
        if drop:
            used = np.sort(used[np.argpartition(sizes[used], drop - 1)[drop:]])
        values = self.table[used] - self.sums[used] / np.float32(self.steps)
        return CompactTable(len(self.table).bit_length() - 1, used.astype(np.uint32), values)

    def arrays(self) -> dict[str, np.ndarray]:
        """For a checkpoint; `restore` takes them back."""
        return {"table": self.table, "sums": self.sums, "steps": np.array(self.steps)}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        self.table[:] = arrays["table"]
        self.sums[:] = arrays["sums"]
        self.steps = int(arrays["steps"])
