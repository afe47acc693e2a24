# Step sizes and bounds of Lagrangian relaxation; cimported by kernels that run their own loop.
cdef enum:
    CONSTANT = 0
    DECREASING = 1
    DUAL_PROGRESS = 2
    HALVING = 3
    POLYAK = 4
    BOUNDED_POLYAK = 5


cdef struct Track:
    int rule
    double scale                 # c; 0: to be set by the first gap
    int iterations
    int increases                # t: iterations in which the dual went up
    double last                  # dual of the iteration before
    double dual                  # least so far
    double primal                # largest so far


cdef void start(Track* track, int rule, double scale) noexcept nogil
cdef double advance(Track* track, double dual, double primal, double disagreement) noexcept nogil
cdef bint closed(Track* track) noexcept nogil
