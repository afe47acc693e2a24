"""Log-linear labels for the arcs of a given tree: rows of features, scores, and training steps.

score[m, r] = sum over templates t of table[row(t, m), r], with row(t, m) the hash of the template's
atoms at fixed places around the arc into m.  A row holds one weight for each label, so that one
memory access serves all labels.
"""
from libc.math cimport exp, log, sqrtf
from libc.stdint cimport int32_t, uint64_t

import numpy as np

from cython_ext.hashing cimport END_ID, GOLDEN, PREFETCH, START_ID, mix

cdef extern from * nogil:
    """
    #include "simd.h"

    /* total = sum of the rows of a word; those of the next word, if any, are asked for meanwhile */
    KERNEL void sum_word(const float *table, index_t width, const int32_t *rows,
                         const int32_t *next, index_t count, float *restrict total)
    {
        for (index_t r = 0; r < width; r++)
            total[r] = 0.0f;
        for (index_t k = 0; k < count; k++) {
            if (next && next[k] >= 0)
                for (index_t r = 0; r < width; r += 16)
                    PREFETCH(table + next[k] * width + r);
            if (rows[k] >= 0) {
                const float *row = table + rows[k] * width;
                for (index_t r = 0; r < width; r++)
                    total[r] += row[r];
            }
        }
    }
    """
    void sum_word(const float *table, Py_ssize_t width, const int32_t *rows, const int32_t *next,
                  Py_ssize_t count, float *total)


cdef enum:
    N_PLACES = 7

# The word, its head, its head's head; the siblings next to it; its outermost children.
PLACES = ("M", "H", "G", "L", "R", "A", "Z")


cdef void find_places(const int32_t[::1] heads, int m, int[N_PLACES] at) noexcept nogil:
    """Positions of PLACES for the arc into m; -1 where there is none.  O(n)."""
    cdef int n = <int>heads.shape[0] - 1, h = heads[m], k
    at[0] = m
    at[1] = h
    at[2] = heads[h]
    for k in range(3, N_PLACES):
        at[k] = -1
    for k in range(1, n + 1):
        if heads[k] == h and k != m:
            if k < m:
                at[3] = k
            elif at[4] < 0:
                at[4] = k
        elif heads[k] == m:
            if at[5] < 0:
                at[5] = k
            at[6] = k


def feature_rows(const int32_t[:, ::1] ids, const int32_t[:, ::1] morph,
                 const int32_t[::1] heads, const int32_t[:, :, ::1] templates,
                 const uint64_t[::1] seeds, const int32_t[::1] morph_place, int bits):
    """Rows of every word's features given the tree.  O(n * (n + templates)).  Releases the GIL.

    ids: (n+1, fields), morph: (n+1, W) single features, 0 for none.  heads: (n+1,), a full tree.
    templates: (T, A, 3) atoms (place, field, offset), place -1 ends a template; morph_place: (T,) place
    whose single features the template repeats over, or -1.
    Returns (n, S) int32, -1 where a single feature is missing.
    """
    cdef int n = <int>ids.shape[0] - 1, width = <int>morph.shape[1], n_atoms = <int>templates.shape[1]
    cdef int t, a, m, k, p, place, value, distance, columns = 0
    cdef uint64_t h
    cdef int[N_PLACES] at
    for t in range(templates.shape[0]):
        columns += 1 if morph_place[t] < 0 else width
    result = np.empty((n, columns), np.int32)
    cdef int32_t[:, ::1] rows = result
    with nogil:
        for m in range(1, n + 1):
            find_places(heads, m, at)
            distance = m - heads[m]
            if distance < 0:
                distance = -distance
            distance = distance if distance <= 3 else 4 if distance <= 6 else 5
            if heads[m] > m:
                distance = -distance
            k = 0
            for t in range(templates.shape[0]):
                h = seeds[t] + (1 if heads[m] > m else 0)
                for a in range(n_atoms):
                    place = templates[t, a, 0]
                    if place < 0:
                        break
                    if place == N_PLACES:                    # the distance atom
                        value = 100 + distance
                    else:
                        p = at[place]
                        if p < 0:
                            value = START_ID
                        else:
                            p += templates[t, a, 2]
                            value = START_ID if p < 0 else END_ID if p > n else ids[p, templates[t, a, 1]]
                    h = mix(h ^ (<uint64_t>(value + 1) * GOLDEN))
                if morph_place[t] < 0:
                    rows[m - 1, k] = <int32_t>(h >> (64 - bits))
                    k += 1
                else:
                    p = at[morph_place[t]]
                    for a in range(width):
                        value = 0 if p < 0 else morph[p, a]
                        if value == 0:
                            rows[m - 1, k] = -1
                        else:
                            rows[m - 1, k] = <int32_t>(
                                mix(h ^ (<uint64_t>value * <uint64_t>0xD6E8FEB86659FD93)) >> (64 - bits))
                        k += 1
    return result


cdef inline void fetch(const int32_t[:, ::1] rows, const float[:, ::1] table,
                       Py_ssize_t m) noexcept nogil:
    """Ask for all rows of word m+1 at once: one wait for memory hides behind another."""
    cdef Py_ssize_t k, r
    for k in range(rows.shape[1]):
        if rows[m, k] >= 0:
            for r in range(0, table.shape[1], 16):
                PREFETCH(&table[rows[m, k], r])


def scores(const int32_t[:, ::1] rows, const float[:, ::1] table, float[:, ::1] out):
    """out[m] = sum of the table's rows of word m+1; rows below 0 are skipped.  Releases the GIL."""
    cdef Py_ssize_t m, n = rows.shape[0]
    with nogil:
        for m in range(n):
            if m == 0:
                fetch(rows, table, 0)
            sum_word(&table[0, 0], table.shape[1], &rows[m, 0],
                     &rows[m + 1, 0] if m + 1 < n else NULL, rows.shape[1], &out[m, 0])


def train(const int32_t[:, ::1] rows, const int32_t[::1] gold, const float[:, ::1] allowed,
          float[:, ::1] table, float[:, ::1] squares, double rate, double confident=0.999):
    """One AdaGrad step (Duchi et al. 2011) a word on log p(gold label); returns the summed loss.

    rows: (words, S); gold: (words,) labels; allowed: (words, R) 0 or -inf, added to the scores.
    table, squares: (2**bits, R), changed in place.  Words are taken in the given order; a word whose
    gold label has a probability above `confident` is passed over, since its step would be tiny.
    """
    cdef Py_ssize_t m, k, r, n_labels = table.shape[1]
    cdef double loss = 0.0, total
    cdef float top, g, eta = <float>rate
    p_array = np.empty(n_labels, np.float32)
    cdef float[::1] p = p_array
    cdef float *row
    cdef float *square
    with nogil:
        for m in range(rows.shape[0]):
            if m == 0:
                fetch(rows, table, 0)
            if m + 1 < rows.shape[0]:
                fetch(rows, table, m + 1)
            for r in range(n_labels):
                p[r] = allowed[m, r]
            for k in range(rows.shape[1]):
                if rows[m, k] >= 0:
                    row = &table[rows[m, k], 0]
                    for r in range(n_labels):
                        p[r] += row[r]
            top = p[0]
            for r in range(n_labels):
                top = max(top, p[r])
            total = 0.0
            for r in range(n_labels):
                p[r] = <float>exp(p[r] - top)
                total += p[r]
            for r in range(n_labels):
                p[r] = -p[r] / <float>total
            loss -= log(max(1e-30, -p[gold[m]]))
            if -p[gold[m]] > confident:
                continue
            p[gold[m]] += 1.0
            for k in range(rows.shape[1]):
                if rows[m, k] >= 0:
                    row = &table[rows[m, k], 0]
                    square = &squares[rows[m, k], 0]
                    for r in range(n_labels):
                        g = p[r]
                        square[r] += g * g
                        row[r] += eta * g / (sqrtf(square[r]) + <float>1e-4)
    return loss
