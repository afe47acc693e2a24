# Scores of single parts, for kernels that ask for few of them.
from libc.stdint cimport int32_t, uint64_t


cdef struct Triple:              # positions of a part, in the order of its templates:
    int32_t x                    # SIB head, nearer, farther where both are on one side, else
    int32_t y                    # left, right; GRAND grandparent, head, modifier
    int32_t z


cdef class PartScorer:
    cdef object templates, encoded, layout
    cdef int family
    cdef const float[:, ::1] weights
    cdef const uint64_t[::1] index
    cdef void *recipe

    cdef bint score(self, const Triple *parts, Py_ssize_t count, double *out,
                    const int32_t *tokens=*) noexcept nogil
