from libc.stdint cimport int32_t

from cython_ext.layout cimport Layout, Places


cdef class TreePairs:
    cdef Layout layout
    cdef Places* p
    cdef bint single_root
    cdef readonly bint solved
    cdef Py_ssize_t stride
    cdef double* memory
    cdef double* W                       # (n+1, stride) and the next three: weights, over each word's
    cdef double* K                       # largest; the inverse, row and column 0 are 0; its
    cdef double* KT                      # transpose, see `T`; marginals
    cdef double* mu
    cdef double* column                  # (stride,)

    cdef bint solve(self) noexcept nogil
    cdef double T(self, int a, int arc) noexcept nogil
    cdef double both(self, int e, int f) noexcept nogil
    cdef void run(self, int g, int h, int head, double* out) noexcept nogil
