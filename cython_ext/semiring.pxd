# The three semirings of the dynamic programs: one recursion, several answers.
#
#   MAX   (max, +)        best tree           zero = -inf, one = 0
#   SUM   (+, *)          log Z, marginals    zero = 0,    one = 1   fast, limited range
#   LOG   (logaddexp, +)  log Z, marginals    zero = -inf, one = 0   any range
from libc.math cimport INFINITY, exp, log, log1p
from libc.stdint cimport int64_t


cdef extern from "simd.h" nogil:
    void max_plus3(const double*, const double*, const double*, const double*,
                   const double*, const double*, Py_ssize_t n, double* out)
    void sum_product3(const double*, const double*, const double*, const double*,
                      const double*, const double*, Py_ssize_t n, double* out)
    void log_plus3(const double*, const double*, const double*, const double*,
                   const double*, const double*, Py_ssize_t n, double* out)
    void sum_product_rows(const double* x, const double* rows, Py_ssize_t stride,
                          Py_ssize_t count, Py_ssize_t n, double* out, Py_ssize_t step)
    void log_plus_rows(const double* x, const double* rows, Py_ssize_t stride,
                       Py_ssize_t count, Py_ssize_t n, double* out, Py_ssize_t step)
    bint all_below_infinity(const double* scores, Py_ssize_t stride, Py_ssize_t n)
    void scaled_weights(const double* scores, Py_ssize_t stride, Py_ssize_t n, double* shift,
                        double* weights, Py_ssize_t weight_stride)
    bint wide_columns(const double* scores, Py_ssize_t stride, Py_ssize_t n, double* top)
    void logarithms(const double* x, const double* shift, Py_ssize_t n, double* out)
    Py_ssize_t argmax(const double* column, Py_ssize_t n, double* value)
    void begin_supernode(double* column, double given_up, int64_t* top, int64_t member,
                         int64_t supernode, Py_ssize_t n)
    void join_supernode(double* column, int64_t* enters, const double* other,
                        const int64_t* other_enters, double given_up, int64_t* top,
                        int64_t member, int64_t supernode, Py_ssize_t n)
    void give_up(double* given_up, double amount, const int64_t* top, int64_t member, Py_ssize_t n)
    Py_ssize_t argmax_outside(const double* column, const double* place, double low, double high,
                              Py_ssize_t n, double* value)
    Py_ssize_t argmax_entering(const double* row, const double* given_up, const int64_t* top,
                               int64_t node, Py_ssize_t m, Py_ssize_t n, double* value)
    double largest_change(const double* x, const double* y, Py_ssize_t n)
    void exponentials(double* x, Py_ssize_t n, double shift)
    double add_sizes(const double* x, double* P, Py_ssize_t n, double* most)
    double dot(const double* x, const double* y, Py_ssize_t n)
    void add_scaled(double a, const double* x, double* y, Py_ssize_t n)


cdef enum:
    SUM = 0
    LOG = 1
    MAX = 2


cdef inline double zero(int semiring) noexcept nogil:
    return 0.0 if semiring == SUM else -INFINITY


cdef inline double one(int semiring) noexcept nogil:
    return 1.0 if semiring == SUM else 0.0


cdef inline double times(double a, double b, int semiring) noexcept nogil:
    return a * b if semiring == SUM else a + b


cdef inline double plus(double a, double b, int semiring) noexcept nogil:
    if semiring == SUM:
        return a + b
    if semiring == MAX:
        return b if b > a else a                 # no branch: which is larger cannot be foreseen
    if b > a:
        a, b = b, a
    if b == -INFINITY:
        return a
    return a + log1p(exp(b - a))


cdef inline void reduce3(
    const double* a0, const double* b0, const double* a1, const double* b1,
    const double* a2, const double* b2, Py_ssize_t n, double* out, int semiring,
) noexcept nogil:
    """out[c] = (+)_i a_c[i] (x) b_c[i] over i < n, for c = 0, 1, 2."""
    if semiring == SUM:
        sum_product3(a0, b0, a1, b1, a2, b2, n, out)
    elif semiring == LOG:
        log_plus3(a0, b0, a1, b1, a2, b2, n, out)
    else:
        max_plus3(a0, b0, a1, b1, a2, b2, n, out)


cdef inline Py_ssize_t draw(
    const double* a, const double* b, Py_ssize_t n, double* uniform, int semiring, bint highest,
) noexcept nogil:
    """An index drawn in proportion to a[i] (x) b[i]; when MAX its lowest or highest argmax.

    What is left of the uniform after the draw is again uniform and is handed back in place.
    """
    cdef Py_ssize_t i, last = 0
    cdef double term, total = 0.0, below = 0.0, top = -INFINITY
    if semiring != SUM:
        for i in range(n):
            if a[i] + b[i] > top or (highest and a[i] + b[i] == top):
                top = a[i] + b[i]
                last = i
        if semiring == MAX or top == -INFINITY:
            return last
    for i in range(n):
        total += a[i] * b[i] if semiring == SUM else exp(a[i] + b[i] - top)
    total *= uniform[0]
    for i in range(n):
        term = a[i] * b[i] if semiring == SUM else exp(a[i] + b[i] - top)
        if term > 0.0:
            last = i
            if below + term > total:
                uniform[0] = (total - below) / term
                return i
            below += term
    return last
