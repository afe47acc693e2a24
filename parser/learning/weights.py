"""Weights in training: the table, and what averaging needs."""

from __future__ import annotations

import numpy as np

from cython_ext import features as kernel

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

    def average(self) -> np.ndarray:
        """Mean of the table over all steps so far."""
        return self.table - self.sums / np.float32(self.steps)

    def arrays(self) -> dict[str, np.ndarray]:
        """For a checkpoint; `restore` takes them back."""
        return {"table": self.table, "sums": self.sums, "steps": np.array(self.steps)}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        self.table[:] = arrays["table"]
        self.sums[:] = arrays["sums"]
        self.steps = int(arrays["steps"])


def largest_rows(table: np.ndarray, share: float) -> np.ndarray:
    """The table with all rows zero but the given share of the non-zero ones, by largest weight.

    Most rows belong to features met once on the wrong arc; the smallest three quarters change no
    score in the second decimal, and without them a model is a quarter of the size.
    """
    size = np.maximum(table.max(1), -table.min(1))
    used = np.flatnonzero(size)
    drop = len(used) - round(share * len(used))
    if drop:
        table = table.copy()
        table[used[np.argpartition(size[used], drop - 1)[:drop]]] = 0
    return table
