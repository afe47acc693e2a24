from libc.stdint cimport int32_t

from cython_ext.layout cimport Layout, Places
from cython_ext.tree_pairs cimport TreePairs


cdef struct Arc:                 # in some pair
    int number
    Py_ssize_t at                # in the matrices
    double odds                  # of its belief
    double R
    double strength              # sum of |theta|


cdef struct Pair:
    int first                    # in the list of arcs
    int second
    double x                     # e^theta
    double to_first              # messages, as odds
    double to_second


cdef class FewPairs:
    cdef readonly TreePairs tree         # of trees that need not be projective, else None
    cdef Layout layout
    cdef Places* p
    cdef const double* score
    cdef object keep
    cdef bint single_root, projective
    cdef bint usable                     # scores and messages stay within range
    cdef bint wide                       # the scores of a word have too large a range for exp
    cdef bint current                    # mu is that of the messages
    cdef Py_ssize_t stride
    cdef void* block                     # all that follows but the pairs, and its size
    cdef size_t block_size
    cdef double* base                    # (n+1, stride) exp(score) over each word's largest
    cdef double* W                       # (n+1, stride) with the messages
    cdef double* mu                      # (n+1, stride)
    cdef double* old                     # (n+1, stride)
    cdef double* others                  # (stride,) see `odds`
    cdef double* spans                   # scratch of the projective tree factor
    cdef int32_t* place                  # (arcs,) in the list of arcs, plus one; 0: in no pair
    cdef Arc* arc
    cdef int arcs
    cdef Pair* pair
    cdef int pairs
    cdef Py_ssize_t room
    cdef double spent[2]

    cdef void take(self, int first, int second, double theta, double x) noexcept nogil
    cdef bint make_room(self, Py_ssize_t count) noexcept nogil
    cdef int join(self, int a, double strength) noexcept nogil
    cdef void reset(self) noexcept nogil
    cdef bint iterate(self, int iterations, double damping, double tolerance, int* done,
                      double* change) noexcept nogil
    cdef void pass_pairs(self, double damping) noexcept nogil
    cdef double odds(self, Arc* arc) noexcept nogil
    cdef bint pass_tree(self) noexcept nogil
    cdef bint sum_spans(self) noexcept nogil
