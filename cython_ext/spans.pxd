# Sums over projective trees in scaled arithmetic (spans.h), and when they stand.
from libc.math cimport isfinite, log

cdef extern from "spans.h" nogil:
    Py_ssize_t span_room(Py_ssize_t n)
    void scale_columns(double* W, Py_ssize_t stride, Py_ssize_t n, double* top)
    double span_sums(const double* W, Py_ssize_t stride, Py_ssize_t n, bint single_root,
                     double* out, Py_ssize_t out_stride, bint derivatives, double* scratch)


cdef inline bint stands(double total, Py_ssize_t n) noexcept nogil:
    """Whether a sum over projective trees of weights up to 1 has all its digits.

    There are fewer than (27/4)^n trees, so what underflows changes it by no more than
    1e-308 (27/4)^n; it stands where it exceeds that by a factor of e^100.  Beyond it, and where
    (27/4)^n itself overflows, the log domain takes over.
    """
    return isfinite(total) and log(total) > n * 1.9095425048844386 - 600.0
