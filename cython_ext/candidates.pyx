"""Which candidate arcs are left: a few of each word, marked by one byte an arc."""
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, malloc

import numpy as np


def likely(
    const double[::1] marginals,         # IN   (arcs,)
    const int32_t[::1] offsets,          # IN   (n+1,) the arcs into each word
    int most,
    double threshold,
    uint8_t[::1] keep,                   # OUT  (arcs,)
):
    """Mark at most so many arcs of a word, those with the highest marginals (ties: the first).

    And of them those with at least ``threshold`` times the highest.  Releases the GIL.
    O(arcs), and times ``most`` where so many are not enough.
    """
    cdef int n = <int>offsets.shape[0] - 1, m, a, i, count
    cdef double top
    cdef int* best = <int*>malloc((min(most, marginals.shape[0]) + 1) * sizeof(int))
    if best == NULL:
        raise MemoryError
    with nogil:
        for m in range(n):
            top = 0.0
            count = 0
            for a in range(offsets[m], offsets[m + 1]):
                top = max(top, marginals[a])
            for a in range(offsets[m], offsets[m + 1]):
                keep[a] = marginals[a] >= threshold * top
                count += keep[a]
            if count <= most:
                continue
            count = 0                                  # best[:count], in descending order
            for a in range(offsets[m], offsets[m + 1]):
                if not keep[a]:
                    continue
                keep[a] = False
                i = count
                while i and marginals[best[i - 1]] < marginals[a]:
                    if i < most:
                        best[i] = best[i - 1]
                    i -= 1
                if i < most:
                    best[i] = a
                    count = min(count + 1, most)
            for i in range(count):
                keep[best[i]] = True
    free(best)


def mark(const int32_t[::1] arcs, uint8_t[::1] keep):
    """Mark these arcs, too; how many of them were not."""
    cdef Py_ssize_t i
    cdef int added = 0
    for i in range(arcs.shape[0]):
        added += not keep[arcs[i]]
        keep[arcs[i]] = True
    return added


def select(
    const int32_t[::1] heads,            # IN   (arcs,)
    const int32_t[::1] modifiers,        # IN   (arcs,)
    const int32_t[::1] offsets,          # IN   (n+1,)
    const uint8_t[::1] keep,             # IN   (arcs,)
):
    """The same three arrays of the marked arcs alone; None if that is all of them.

    ValueError names a word that is left without a head.  Releases the GIL.  O(arcs).
    """
    cdef int n = <int>offsets.shape[0] - 1, m, a, count = 0, without = 0
    cdef int32_t[::1] out_heads, out_modifiers, out_offsets
    with nogil:
        for a in range(keep.shape[0]):
            count += keep[a] != 0
    if count == keep.shape[0]:
        return None
    arrays = np.empty(count, np.int32), np.empty(count, np.int32), np.empty(n + 1, np.int32)
    out_heads, out_modifiers, out_offsets = arrays
    with nogil:
        count = 0
        for m in range(n):
            out_offsets[m] = count
            for a in range(offsets[m], offsets[m + 1]):
                if keep[a]:
                    out_heads[count], out_modifiers[count] = heads[a], modifiers[a]
                    count += 1
            if count == out_offsets[m] and not without:
                without = m + 1
        out_offsets[n] = count
    if without:
        raise ValueError(f"word {without} is left without a possible head")
    return arrays
