# The chart of grandsib.pyx and the steps of its passes.
from libc.stdint cimport int32_t, int64_t

from cython_ext.layout cimport Places, triangle


cdef extern from * nogil:
    """
    #include "simd.h"

    /* Rows have neighbours and no padding.  A length that is no multiple of LANES ends in a group
     * that overlaps the one before; what was counted there is masked by -INFINITY. */
    static const double masks[2 * LANES - 1] = {
        -INFINITY, -INFINITY, -INFINITY, 0.0, 0.0, 0.0, 0.0};

    /* group[lane] = x[i + lane] + row[i + lane] (+ extra[i + lane]) */
    INLINE void load(const double *x, const double *row, const double *extra, index_t i,
                     double *group)
    {
        FOR_LANES { group[lane] = x[i + lane] + row[i + lane]; }
        if (extra)
            FOR_LANES { group[lane] += extra[i + lane]; }
    }

    /* The last of n terms: a masked group, or all of fewer than LANES; where it starts in them. */
    INLINE index_t load_last(const double *x, const double *row, const double *extra, index_t n,
                             double *group)
    {
        if (n < LANES) {
            double a = x[0] + row[0] + (extra ? extra[0] : 0.0), b = -INFINITY, c = -INFINITY;
            if (n > 1)
                b = x[1] + row[1] + (extra ? extra[1] : 0.0);
            if (n > 2)
                c = x[2] + row[2] + (extra ? extra[2] : 0.0);
            group[0] = a, group[1] = b, group[2] = c, group[3] = -INFINITY;
            return 0;
        }
        load(x, row, extra, n - LANES, group);
        if (n % LANES) {
            const double *mask = masks + n % LANES - 1;
            FOR_LANES { group[lane] += mask[lane]; }
        }
        return n - LANES;
    }

    /* group[lane] = exp(group[lane] - shift) */
    INLINE void exponentiate(double *group, double shift)
    {
        double y[LANES];
        FOR_LANES { y[lane] = cut_off(group[lane] - shift); }
        FOR_LANES { group[lane] = exp_cut(y[lane]); }
    }

    INLINE double max_of(const double *x, const double *row, const double *extra, index_t n)
    {
        double top = -INFINITY;
        if (n >= LANES) {
            double t[LANES], v[LANES];
            load(x, row, extra, n - LANES, t);
            for (index_t i = 0; i + LANES < n; i += LANES) {
                load(x, row, extra, i, v);
                FOR_LANES { t[lane] = v[lane] > t[lane] ? v[lane] : t[lane]; }
            }
            return largest(t);
        }
        for (index_t i = 0; i < n; i++) {
            double v = x[i] + row[i] + (extra ? extra[i] : 0.0);
            top = v > top ? v : top;
        }
        return top;
    }

    INLINE double log_of(const double *x, const double *row, const double *extra, index_t n)
    {
        double t[LANES], v[LANES], top;
        if (n == 1)
            return x[0] + row[0] + (extra ? extra[0] : 0.0);
        load_last(x, row, extra, n, t);
        top = n < LANES ? largest(t) : max_of(x, row, extra, n);
        if (!(top > -INFINITY)) /* (-inf) - (-inf) would be NaN */
            return -INFINITY;
        exponentiate(t, top);
        for (index_t i = 0; i + LANES < n; i += LANES) {
            load(x, row, extra, i, v);
            exponentiate(v, top);
            FOR_LANES { t[lane] += v[lane]; }
        }
        return top + log(sum(t));
    }

    /* For each of count rows:  out[r] = max_i / log sum_i exp  x[i] + rows[r][i] (+ extra[r][i]),
     * i < n, n >= 1. */

    KERNEL void max_rows(const double *x, const double *rows, index_t stride, const double *extra,
                         index_t extra_stride, index_t count, index_t n, double *out, index_t step)
    {
        if (extra)
            for (index_t r = 0; r < count; r++)
                out[r * step] = max_of(x, rows + r * stride, extra + r * extra_stride, n);
        else
            for (index_t r = 0; r < count; r++)
                out[r * step] = max_of(x, rows + r * stride, NULL, n);
    }

    KERNEL void log_rows(const double *x, const double *rows, index_t stride, const double *extra,
                         index_t extra_stride, index_t count, index_t n, double *out, index_t step)
    {
        if (extra)
            for (index_t r = 0; r < count; r++)
                out[r * step] = log_of(x, rows + r * stride, extra + r * extra_stride, n);
        else
            for (index_t r = 0; r < count; r++)
                out[r * step] = log_of(x, rows + r * stride, NULL, n);
    }

    INLINE void share_of(double given, double total, const double *x, const double *row,
                         const double *extra, index_t n, double *to_x, double *to_row,
                         double *to_extra)
    {
        double t[LANES];
        index_t i = 0, start;
        for (; i + LANES <= n; i += LANES) {
            load(x, row, extra, i, t);
            exponentiate(t, total);
            FOR_LANES { t[lane] *= given; }
            FOR_LANES { to_x[i + lane] += t[lane]; }
            FOR_LANES { to_row[i + lane] += t[lane]; }
            if (extra)
                FOR_LANES { to_extra[i + lane] = t[lane]; }
        }
        if (i == n)
            return;
        start = load_last(x, row, extra, n, t);
        exponentiate(t, total);
        for (; i < n; i++) {
            double part = given * t[i - start];
            to_x[i] += part;
            to_row[i] += part;
            if (extra)
                to_extra[i] = part;
        }
    }

    /* The reverse of log_rows: row r hands out counts[r] in shares exp(term - totals[r]). */
    KERNEL void share_rows(const double *counts, const double *totals, index_t step,
                           const double *x, const double *rows, index_t stride,
                           const double *extra, index_t extra_stride, index_t count, index_t n,
                           double *to_x, double *to_rows, double *to_extra)
    {
        for (index_t r = 0; r < count; r++) {
            double given = counts[r * step], total = totals[r * step];
            index_t at = r * stride, extra_at = r * extra_stride;
            if (!(given > 0.0))
                continue;
            if (extra)
                share_of(given, total, x, rows + at, extra + extra_at, n, to_x, to_rows + at,
                         to_extra + extra_at);
            else
                share_of(given, total, x, rows + at, NULL, n, to_x, to_rows + at, NULL);
        }
    }
    """
    void max_rows(const double* x, const double* rows, Py_ssize_t stride, const double* extra,
                  Py_ssize_t extra_stride, Py_ssize_t count, Py_ssize_t n, double* out,
                  Py_ssize_t step)
    void log_rows(const double* x, const double* rows, Py_ssize_t stride, const double* extra,
                  Py_ssize_t extra_stride, Py_ssize_t count, Py_ssize_t n, double* out,
                  Py_ssize_t step)
    void share_rows(const double* counts, const double* totals, Py_ssize_t step, const double* x,
                    const double* rows, Py_ssize_t stride, const double* extra,
                    Py_ssize_t extra_stride, Py_ssize_t count, Py_ssize_t n, double* to_x,
                    double* to_rows, double* to_extra)


cdef struct Side:                # the children of a head on one side
    int head
    int right                    # 1, or 0 on the left
    int total                    # children
    int count                    # of them, those no further out than the end of the span
    int lo, mid, hi              # arcs into the head: g < h in lo..mid-1, g > h in mid..hi-1
    int gate                     # where in them the g's begin, or end, that are further out
    const int32_t* arcs          # outwards: the j-th is arcs[step * (j - 1)]
    int step
    int64_t parts                # CHILDSEQ parts of the side
    int64_t block                # the same within the parts of one GRANDSIB arc
    int64_t rows                 # I of the first arc into the head
    int64_t stride               # from there to the next arc


cdef struct Scores:              # of the families; NULL for a family that is absent
    const double* link
    const double* childseq
    const double* grand
    const double* grandsib


cdef struct Counts:              # expected counts of the families, as Scores
    double* link
    double* childseq
    double* grand
    double* grandsib


cdef struct Items:
    double* C                    # (arcs + 1, n + 2)
    double* I                    # of an arc into h: left 0, 1, ..., right 0, 1, ...
    double* J
    double* T                    # as the CHILDSEQ parts


cdef struct Chart:
    Places* p
    Scores scores
    Items items
    Side* sides                  # (2 (n + 1),) left and right of 0, 1, ...
    bint single_root
    bint siblings                # model 1
    int semiring                 # MAX or LOG
    Py_ssize_t width             # of a row of C
    double* column               # SCRATCH (n,)
    double* to_column            # SCRATCH (n,)
    int* stack                   # SCRATCH (2 n + 4,)
    void* room                   # all of these, and its size
    size_t size


cdef inline int child(Side* side, Py_ssize_t j) noexcept nogil:
    """The arc to the j-th child outwards, j >= 1."""
    return side.arcs[side.step * (j - 1)]


cdef inline double* span_row(Side* side, double* I, int a) noexcept nogil:
    """I[a, 0] of a table I or J."""
    return I + side.rows + (a - side.lo) * side.stride


cdef inline Py_ssize_t between(Py_ssize_t x, Py_ssize_t y, Py_ssize_t* at) noexcept nogil:
    """Ways to split the words from x to y, and where they begin in the rows of C."""
    at[0] = min(x, y) + 1
    return max(x, y) - min(x, y)


cdef inline const double* grandsib_row(Chart* chart, Side* side, Py_ssize_t a,
                                       Py_ssize_t j) noexcept nogil:
    if chart.scores.grandsib == NULL or side.head == 0:
        return NULL
    return chart.scores.grandsib + chart.p.grandsib[a] + side.block + triangle(j)


cdef inline Py_ssize_t grandsib_stride(Chart* chart, Side* side) noexcept nogil:
    return chart.p.childseq[2 * side.head + 2] - chart.p.childseq[2 * side.head]


cdef inline Py_ssize_t rank(Side* side, Py_ssize_t j) noexcept nogil:
    """Place of the j-th child outwards among all children of the head."""
    return side.stride - 3 - side.total + j if side.right else side.total - j


cdef int check(Scores* s, Places* p, const double[::1] scores, const double[::1] childseq,
               const double[::1] grand, const double[::1] grandsib) except -1
cdef int prepare(Chart* chart, Places* p, bint single_root, int semiring,
                 Items* expected) except -1
cdef void begin(Chart* chart) noexcept nogil
cdef double inside(Chart* chart) noexcept nogil
cdef int ranges(Side* side, int* bounds) noexcept nogil
cdef bint advance(Chart* chart, Side* side, int e) noexcept nogil
cdef void gaps(Chart* chart, Side* side, Py_ssize_t j) noexcept nogil
cdef void attach(Chart* chart, Side* side, Py_ssize_t j, Py_ssize_t lo,
                 Py_ssize_t hi) noexcept nogil
cdef void complete(Chart* chart, Side* side, Py_ssize_t e) noexcept nogil
cdef void share_complete(Chart* chart, Items* expected, Side* side, Py_ssize_t e) noexcept nogil
cdef void retreat(Chart* chart, Side* side, int e) noexcept nogil
cdef void share_begin(Chart* chart, Items* expected, Counts* counts) noexcept nogil
cdef void walk(Chart* chart, int* heads, int* stack) noexcept nogil
