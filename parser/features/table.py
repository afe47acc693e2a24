"""Weights of hashed rows: dense while training, compact in a finished model."""

from __future__ import annotations

import numpy as np

from cython_ext.features import SLOTS

LINE = 64  # bytes of a cache line, and of a row
BLOCK = 32  # rows that share one word of the index


class CompactTable:
    """The rows of a 2**bits table that are not zero, and an index that finds them.

    Most features that a parser asks for were never seen in training.  One bit a row answers those
    from a table that fits in the cache, and only the others cost a memory access.

    Attributes
    ----------
    bits : int
    rows : ndarray of uint32, (k,), ascending
    values : ndarray of float32, (k, 16)
    index : ndarray of uint64, (2**bits / 32,)
        Low half: which of 32 rows are there; high half: how many rows stand before them.
    """

    def __init__(self, bits: int, rows: np.ndarray, values: np.ndarray) -> None:
        if rows.shape != (len(values),) or values.shape[1:] != (SLOTS,):
            raise ValueError(f"rows {rows.shape} and values {values.shape} do not match")
        if len(rows) and (rows[-1] >= 1 << bits or (rows[1:] <= rows[:-1]).any()):
            raise ValueError("rows are not ascending numbers below 2**bits")
        self.bits = bits
        self.rows = np.ascontiguousarray(rows, np.uint32)
        self.values = in_lines(values)
        present = np.zeros((1 << bits) // BLOCK, np.uint64)
        blocks = self.rows // BLOCK
        np.bitwise_or.at(present, blocks, np.uint64(1) << (self.rows % BLOCK).astype(np.uint64))
        before = np.searchsorted(self.rows, np.arange(len(present), dtype=np.int64) * BLOCK)
        self.index = present | (before.astype(np.uint64) << np.uint64(32))


def empty_lines(count: int) -> np.ndarray:
    """(count, SLOTS) float32, whose rows are whole cache lines, in large pages where numpy has
    them."""
    memory = np.empty((count + 1) * LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + count * LINE].view(np.float32).reshape(count, SLOTS)


def in_lines(values: np.ndarray) -> np.ndarray:
    """The values as of `empty_lines`: themselves if they are, else a copy."""
    if (
        values.dtype == np.float32
        and values.flags.c_contiguous
        and values.ctypes.data % LINE == 0
        and values.flags.writeable
    ):
        return values
    out = empty_lines(len(values))
    out[...] = values
    return out
