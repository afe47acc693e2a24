from libc.stdint cimport int32_t

from cython_ext.layout cimport Layout, Places


cdef inline double* whole_vectors(double* memory) noexcept nogil:
    """The first place from which rows are whole vectors of four; memory has room for 3 more."""
    return memory + (4 - <size_t>memory // sizeof(double) % 4) % 4


cdef class TreePairs:
    cdef Layout layout
    cdef Places* p
    cdef bint single_root
    cdef readonly bint solved
    cdef Py_ssize_t stride
    cdef void* block                     # all that follows, and its size
    cdef size_t block_size
    cdef double* W                       # (stride, stride) and the next three: weights, over each word's
    cdef double* K                       # largest; the inverse, row and column 0 are 0; its
    cdef double* KT                      # transpose, see `T`; marginals
    cdef double* mu
    cdef double* scratch                 # (12, stride)

    cdef bint solve(self) noexcept nogil
    cdef double T(self, int a, int arc) noexcept nogil
    cdef double both(self, int e, int f) noexcept nogil
    cdef Py_ssize_t above(self, int g, int m, int head, double* out, double least,
                          const double* cap, double product, Py_ssize_t first, Py_ssize_t end,
                          int32_t* found) noexcept nogil
