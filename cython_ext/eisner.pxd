cdef struct Chart:
    Py_ssize_t n
    Py_ssize_t first             # 0 when word 0 is in the chart, 1 when it is not
    Py_ssize_t stride
    int semiring
    const double* w              # (n+1, w_stride) weights: scores, or scaled exp of scores
    Py_ssize_t w_stride
    double shift                 # log of what each tree's weight was divided by
    double* C
    double* CT
    double* I
    double* IT
    double* oC                   # outside of C, and its transpose
    double* oCT
    double* V                    # symmetric: link of i < j, then (outside of link) of i, j
    double* tables               # for w


cdef size_t scratch_bytes(Py_ssize_t n) noexcept nogil
cdef double decode(const double* scores, Py_ssize_t stride, Py_ssize_t n, bint single_root,
                   int* heads, void* scratch) noexcept nogil
cdef size_t gradient_bytes(Py_ssize_t n) noexcept nogil
cdef double gradient(const double* scores, Py_ssize_t stride, Py_ssize_t n, bint single_root,
                     int semiring, double* out, void* scratch) noexcept nogil
cdef double sum_product(const double* scores, Py_ssize_t stride, Py_ssize_t n, bint single_root,
                        double* mu, Py_ssize_t mu_stride, double* scratch, int method) noexcept nogil
cdef double best_spans(Chart* chart, const double* scores, Py_ssize_t stride, Py_ssize_t n,
                       bint single_root, void* scratch) noexcept nogil
