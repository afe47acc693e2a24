# What the scoring of parts shares with that of arcs: rows of weights, and where gradients gather.
from libc.stdint cimport int32_t, uint32_t, uint64_t

cdef enum:
    SLOTS_ = 16


cdef extern from "simd.h" nogil:
    int locate(const uint64_t *index, uint32_t *rows, int k, int low)


cdef inline int distance_bin(int d) noexcept nogil:
    """1, 2, 3, 4, 5, 6..10, more: the bins of McDonald et al. (2005)."""
    if d <= 5:
        return d - 1
    return 5 if d <= 10 else 6


cdef struct Accumulator:
    Py_ssize_t n
    Py_ssize_t room           # rows that values and rows have space for
    Py_ssize_t mask           # size of the index - 1, a power of two
    int32_t *index            # -1 or a position in rows
    uint32_t *rows
    float *values

cdef float *acc_row(Accumulator *acc, uint32_t row) noexcept nogil


cdef class Gradient:
    cdef Accumulator *sums


cdef void hash_atoms(const int32_t *ids, int fields, const int32_t *atoms, const uint64_t *seeds,
                     Py_ssize_t expressions, int width, int t, int n, uint32_t *out) noexcept nogil
