"""First-order projective trees: best tree, log Z, marginals and samples in O(n^3).

Spans (Eisner 1996).  Charts are indexed [head, end]; the order of the indices says which way a
span points, so there is no direction index:

    C[h, e]  complete: h governs h..e and takes no more modifiers in it;   C[h, h] = one
    I[h, m]  incomplete: the arc h -> m was just added, m lacks its outer modifiers

One recursion serves all three semirings (see semiring.pxd).  With i < j:

    link   = (+)_r  C[i, r] (x) C[j, r+1]           i <= r < j
    I[i,j] = w[i,j] (x) link,   I[j,i] = w[j,i] (x) link
    C[i,j] = I[i,j] (+) (+)_m  I[i, m] (x) C[m, j]  i < m < j
    C[j,i] = I[j,i] (+) (+)_m  I[j, m] (x) C[m, i]  i < m < j

With several roots, word 0 is in the chart and the goal is C[0, n]; with one root only words are,
and the goal is (+)_m w[0,m] (x) C[m,1] (x) C[m,n].

Each chart is kept with its transpose, so that every sum runs along two rows.  Rows are n + 8 long
and hold the zero of the semiring where nothing was computed, so sums may run over in groups of
four: one factor of whatever they read in excess is zero.  The outside sums reach the edge of the
chart on one side only; those that end inside start in the padding of the row before.

Log Z and marginals go by spans.h where its range allows it, and by charts of logs where not.
"""
from libc.math cimport INFINITY, exp, log
from libc.stdlib cimport free
from libc.string cimport memset

from cython_ext.batch cimport allocate, decode_batch, decode_one, sum_batch, sum_one
from cython_ext.semiring cimport (
    LOG, MAX, SUM, all_below_infinity, draw, one, plus, reduce3, scaled_weights, times, zero,
)
from cython_ext.spans cimport span_room, span_sums, stands

AUTO, SCALED, LOG_DOMAIN = -1, SUM, LOG      # `method` of the functions below


cdef inline size_t table_size(Py_ssize_t n) noexcept nogil:
    return (n + 1) * (n + 8) + 8


cdef void lay_out(Chart* chart, double* memory, Py_ssize_t n, bint single_root) noexcept nogil:
    cdef size_t size = table_size(n)
    chart.n = n
    chart.first = 1 if single_root else 0
    chart.stride = n + 8
    chart.C = memory + 8
    chart.CT = chart.C + size
    chart.I = chart.CT + size
    chart.IT = chart.I + size
    chart.oC = chart.IT + size
    chart.oCT = chart.oC + size
    chart.V = chart.oCT + size
    chart.tables = memory + 7 * size


cdef void clear(double* table, Py_ssize_t n, int semiring) noexcept nogil:
    cdef Py_ssize_t i
    if semiring == SUM:
        memset(table - 8, 0, table_size(n) * sizeof(double))
        return
    for i in range(-8, <Py_ssize_t>table_size(n) - 8):
        table[i] = -INFINITY


cdef double inside(Chart* chart) noexcept nogil:
    """Fill C, CT and I, and V with link unless it is NULL; the goal in the chart's semiring."""
    cdef Py_ssize_t n = chart.n, s = chart.stride, first = chart.first, d, i, j
    cdef int semiring = chart.semiring
    cdef double* C = chart.C
    cdef double* CT = chart.CT
    cdef double* I = chart.I
    cdef double t[3]
    clear(C, n, semiring)
    clear(CT, n, semiring)
    clear(I, n, semiring)
    if chart.V != NULL:
        clear(chart.V, n, semiring)
    for i in range(n + 1):
        C[i * s + i] = CT[i * s + i] = one(semiring)
    for d in range(1, n + 1 - first):
        for i in range(first, n + 1 - d):
            j = i + d
            reduce3(C + i * s + i, C + j * s + i + 1,
                    I + i * s + i + 1, CT + j * s + i + 1,
                    I + j * s + i, CT + i * s + i, d, t, semiring)
            if chart.V != NULL:
                chart.V[i * s + j] = t[0]
            I[i * s + j] = times(chart.w[i * chart.w_stride + j], t[0], semiring)
            C[i * s + j] = CT[j * s + i] = plus(t[1], I[i * s + j], semiring)
            if i > 0:
                I[j * s + i] = times(chart.w[j * chart.w_stride + i], t[0], semiring)
                C[j * s + i] = CT[i * s + j] = plus(t[2], I[j * s + i], semiring)
    if first == 0:
        return C[n]
    for j in range(1, n + 1):                    # row 0 of I is free when only words are in it
        I[j] = times(chart.w[j], CT[s + j], semiring)
    reduce3(I + 1, CT + n * s + 1, I + 1, CT + n * s + 1, I + 1, CT + n * s + 1, n, t, semiring)
    return t[0]


cdef inline double inside_scores(
    Chart* chart, const double* scores, Py_ssize_t stride, int semiring,
) noexcept nogil:
    """``inside`` over the scores as they are, in LOG or MAX."""
    chart.semiring, chart.shift = semiring, 0.0
    chart.w, chart.w_stride = scores, stride
    return inside(chart)


cdef void outside(
    Chart* chart,
    double goal,
    double* mu,                  # OUT      (n+1, mu_stride) marginals
    Py_ssize_t mu_stride,
    bint derivatives=False,      # IN       log d log Z / d w instead
) noexcept nogil:
    """The reverse of ``inside``, in LOG or MAX: spans by falling width, from all that used them."""
    cdef Py_ssize_t n = chart.n, s = chart.stride, first = chart.first, d, i, j, k, left, right
    cdef int semiring = chart.semiring
    cdef double* C = chart.C
    cdef double* CT = chart.CT
    cdef double* I = chart.I
    cdef double* IT = chart.IT
    cdef double* oC = chart.oC
    cdef double* oCT = chart.oCT
    cdef double* V = chart.V
    cdef double x[3]
    cdef double y[3]
    cdef double o, via, link
    clear(IT, n, semiring)
    clear(oC, n, semiring)
    clear(oCT, n, semiring)
    for i in range(n + 1):
        mu[i * mu_stride] = mu[i * mu_stride + i] = 0.0
        for j in range(n + 1):
            IT[j * s + i] = I[i * s + j]
    if first == 0:
        oC[n] = oCT[n * s] = one(semiring)
    else:
        for i in range(1, n + 1):
            mu[i] = CT[s + i] + CT[n * s + i] - goal if derivatives else exp(
                I[i] + CT[n * s + i] - goal)
            # C[i, 1] and C[i, n] are the two halves of a root child's sentence.
            oC[i * s + n] = oCT[n * s + i] = I[i]
            o = times(chart.w[i], CT[n * s + i], semiring)
            oC[i * s + 1] = oCT[s + i] = o
    for d in range(n - first, 0, -1):
        for i in range(first, n + 1 - d):
            j = i + d
            left, right = i - first, n - j
            k = i - (left + 3) // 4 * 4          # the sums over h < i end at i - 1
            x[0] = x[1] = x[2] = zero(semiring)
            y[0] = y[1] = y[2] = zero(semiring)
            if left:
                # C[i,j]: oC[h,j] I[h,i];  C[j,i]: V[h,j] C[h,i-1];  I[j,i]: oC[j,h] C[i,h]
                reduce3(oCT + j * s + k, IT + i * s + k,
                        V + j * s + k, CT + (i - 1) * s + k,
                        oC + j * s + k, C + i * s + k, left, x, semiring)
            if right:
                # C[i,j]: V[i,h] C[h,j+1];  C[j,i]: oC[h,i] I[h,j];  I[i,j]: oC[i,h] C[j,h]
                reduce3(V + i * s + j + 1, CT + (j + 1) * s + j + 1,
                        oCT + i * s + j + 1, IT + j * s + j + 1,
                        oC + i * s + j + 1, C + j * s + j + 1, right, y, semiring)
            o = plus(oC[i * s + j], plus(x[0], y[0], semiring), semiring)
            oC[i * s + j] = oCT[j * s + i] = o
            o = plus(o, y[2], semiring)
            link = V[i * s + j]
            mu[i * mu_stride + j] = o + link - goal if derivatives else exp(o + I[i * s + j] - goal)
            via = times(o, chart.w[i * chart.w_stride + j], semiring)
            if i > 0:
                o = plus(oC[j * s + i], plus(x[1], y[1], semiring), semiring)
                oC[j * s + i] = oCT[i * s + j] = o
                o = plus(o, x[2], semiring)
                mu[j * mu_stride + i] = o + link - goal if derivatives else exp(
                    o + I[j * s + i] - goal)
                via = plus(via, times(o, chart.w[j * chart.w_stride + i], semiring), semiring)
            V[i * s + j] = V[j * s + i] = via


cdef void walk(
    Chart* chart,
    const double* uniform,       # IN       (2 n,) or NULL when the semiring is MAX
    int* heads,                  # OUT      (n+1,)
    int* stack,                  # SCRATCH  (4 n + 8,)
) noexcept nogil:
    """Read one tree off the inside chart, top down: the best or, by ``uniform``, a sample.

    The charts hold values only.  Which split gave them is worked out again here, for the 2 n
    spans of one tree instead of all n^2.  Of equal splits the one that leaves most words to the
    lower of two heads is taken.
    """
    cdef Py_ssize_t s = chart.stride, depth = 0, used = 0, h, e, m, r, low, high
    cdef int semiring = chart.semiring
    cdef double* C = chart.C
    cdef double u = 0.0
    heads[0] = -1
    if chart.first == 0:
        stack[0], stack[1] = 0, <int>chart.n
        depth = 1
    else:
        if semiring != MAX:
            u = uniform[used]
            used += 1
        m = 1 + draw(chart.I + 1, chart.CT + chart.n * s + 1, chart.n, &u, semiring, False)
        heads[m] = 0
        stack[0], stack[1], stack[2], stack[3] = <int>m, 1, <int>m, <int>chart.n
        depth = 2
    while depth:
        depth -= 1
        h, e = stack[2 * depth], stack[2 * depth + 1]
        if h == e:
            continue
        if semiring != MAX:
            u = uniform[used]
            used += 1
        low, high = (h + 1, e + 1) if h < e else (e, h)
        m = low + draw(chart.I + h * s + low, chart.CT + e * s + low, high - low, &u, semiring,
                       h < e)
        heads[m] = <int>h
        low, high = (h, m) if h < m else (m, h)
        if semiring != MAX:
            u = uniform[used]
            used += 1
        r = low + draw(C + low * s + low, C + high * s + low + 1, high - low, &u, semiring, True)
        stack[2 * depth], stack[2 * depth + 1] = <int>m, <int>e
        stack[2 * depth + 2], stack[2 * depth + 3] = <int>low, <int>r
        stack[2 * depth + 4], stack[2 * depth + 5] = <int>high, <int>r + 1
        depth += 3


cdef size_t scratch_bytes(Py_ssize_t n) noexcept nogil:
    """Room that ``decode`` needs."""
    return (3 * table_size(n) + 3 * (n + 4)) * sizeof(double)


cdef double best_spans(
    Chart* chart,
    const double* scores,        # IN       as for ``decode``
    Py_ssize_t stride,
    Py_ssize_t n,
    bint single_root,
    void* scratch,               # OUT      scratch_bytes(n): C, CT and I of the chart
) noexcept nogil:
    """The best score of each span; that of the best tree returned."""
    lay_out(chart, <double*>scratch, n, single_root)
    chart.V = NULL
    return inside_scores(chart, scores, stride, MAX)


cdef double decode(
    const double* scores,        # IN       (n+1, stride) scores[head, modifier]
    Py_ssize_t stride,
    Py_ssize_t n,                # IN       words, at least 1
    bint single_root,
    int* heads,                  # OUT      (n+1,)
    void* scratch,               # SCRATCH  scratch_bytes(n)
) noexcept nogil:
    """Best projective tree; returns its score, or -inf (heads undefined) if there is no tree."""
    cdef Chart chart
    cdef double value = 0.0
    cdef Py_ssize_t m
    if best_spans(&chart, scores, stride, n, single_root, scratch) == -INFINITY:
        return -INFINITY
    walk(&chart, NULL, heads, <int*>(<double*>scratch + 3 * table_size(n)))
    for m in range(1, n + 1):                    # in the order of words, whatever the splits
        value += scores[heads[m] * stride + m]
    return value


cdef inline size_t full_bytes(Py_ssize_t n) noexcept nogil:
    """Room for a chart, or for spans with the weights and what their columns were divided by."""
    return (table_size(n) + n + 8 + max(7 * table_size(n) + 4 * (n + 4), span_room(n))) * sizeof(double)


cdef double sum_inside(
    Chart* chart,
    const double* scores,
    Py_ssize_t stride,
    int method,
) noexcept nogil:
    """Inside pass over a chart laid out in ``full_bytes``: scaled, or in logs where it must be."""
    cdef Py_ssize_t n = chart.n, m
    cdef double* shift = chart.tables + table_size(n)
    cdef double goal
    if method != LOG:
        scaled_weights(scores, stride, n, shift, chart.tables, chart.stride)
        chart.semiring = SUM
        chart.w, chart.w_stride = chart.tables, chart.stride
        chart.shift = 0.0
        for m in range(1, n + 1):
            chart.shift += shift[m]
        goal = inside(chart)
        if method == SUM or stands(goal, n):
            return goal
    return inside_scores(chart, scores, stride, LOG)


cdef inline double log_goal(Chart* chart, double goal) noexcept nogil:
    if goal == zero(chart.semiring):
        return -INFINITY
    return chart.shift + (log(goal) if chart.semiring == SUM else goal)


cdef double sum_product(
    const double* scores, Py_ssize_t stride, Py_ssize_t n, bint single_root,
    double* mu, Py_ssize_t mu_stride, double* scratch, int method,
) noexcept nogil:
    """log Z, or -inf without a tree; marginals too unless ``mu`` is NULL."""
    cdef Chart chart
    cdef double* weights = scratch
    cdef double* shift = scratch + table_size(n)
    cdef double* spans = shift + n + 8
    cdef double goal, total = 0.0
    cdef Py_ssize_t m
    if method != LOG:
        scaled_weights(scores, stride, n, shift, weights, n + 8)
        memset(spans, 0, span_room(n) * sizeof(double))
        goal = span_sums(weights, n + 8, n, single_root, mu, mu_stride, False, spans)
        if method == SUM or stands(goal, n):
            for m in range(1, n + 1):
                total += shift[m]
            for m in range(n + 1 if mu != NULL else 0):
                mu[m * mu_stride] = mu[m * mu_stride + m] = 0.0
            return total + log(goal)
    lay_out(&chart, scratch, n, single_root)
    goal = inside_scores(&chart, scores, stride, LOG)
    if mu != NULL and goal > -INFINITY:
        outside(&chart, goal, mu, mu_stride)
    return goal


cdef size_t gradient_bytes(Py_ssize_t n) noexcept nogil:
    """Room that ``gradient`` needs."""
    return full_bytes(n)


cdef double gradient(
    const double* scores,        # IN       (n+1, stride) scores[head, modifier]
    Py_ssize_t stride,
    Py_ssize_t n,
    bint single_root,
    int semiring,                # IN       LOG or MAX
    double* out,                 # OUT      (n+1, stride)
    void* scratch,               # SCRATCH  gradient_bytes(n)
) noexcept nogil:
    """log Z, or -inf without a tree; out = log d log Z / d exp(scores), whatever their range.

    Of an arc with marginal mu it is log mu - score, and does not depend on its own score.  MAX: the
    score of the best tree, and how much of it the best tree with the arc has without its score.
    """
    cdef Chart chart
    cdef double goal
    lay_out(&chart, <double*>scratch, n, single_root)
    goal = inside_scores(&chart, scores, stride, semiring)
    if goal > -INFINITY:
        outside(&chart, goal, out, stride, True)
    return goal


def best_tree(const double[:, ::1] scores, Py_ssize_t n, bint single_root, int[::1] heads):
    """Best tree of the first n words; its score, or -inf if a score is bad or there is no tree.

    ``scores`` is (N, N), N > n, [head, modifier]; NaN and +inf are bad.  ``heads`` (>= n+1,) is
    written.  Sizes are the caller's promise.  Releases the GIL.  O(n^3) time, O(n^2) memory.
    """
    return decode_one(decode, scratch_bytes(n), scores, n, single_root, heads)


def best_trees(
    const double[:, :, ::1] scores,      # IN   (batch, N, N)
    const int[::1] lengths,              # IN   (batch,) words of each sentence, or None: N - 1
    bint single_root,
    int[:, ::1] heads,                   # OUT  (batch, N), padded with -1
    double[::1] values,                  # OUT  (batch,)
):
    """Best tree of each sentence; the first one with a bad score or without a tree, or -1."""
    return decode_batch(decode, scratch_bytes(scores.shape[1] - 1), scores, lengths, single_root,
                        heads, values)


def marginals(const double[:, ::1] scores, Py_ssize_t n, bint single_root, double[:, ::1] mu,
              int method=-1):
    """log Z of the first n words, without checks; ``mu`` (>= n+1, >= n+1) gets the marginals.

    -inf, and ``mu`` undefined, when there is no tree.  ``method`` is AUTO, SCALED or LOG_DOMAIN.
    Releases the GIL.  O(n^3) time, O(n^2) memory.
    """
    return sum_one(sum_product, full_bytes(n), scores, n, single_root, mu, method)


def sums(
    const double[:, :, ::1] scores,      # IN   (batch, N, N)
    const int[::1] lengths,              # IN   (batch,) words of each sentence, or None: N - 1
    bint single_root,
    double[:, :, ::1] mu,                # OUT  (batch, N, N) zeros on entry, or None: log Z only
    double[::1] log_z,                   # OUT  (batch,)
):
    """log Z and marginals of each sentence; the first one that is bad or has no tree, or -1."""
    return sum_batch(sum_product, full_bytes(scores.shape[1] - 1), scores, lengths, single_root, mu,
                     log_z)


def sample(
    const double[:, ::1] scores,         # IN   (N, N)
    Py_ssize_t n,
    bint single_root,
    const double[:, ::1] uniforms,       # IN   (size, 2 n) in [0, 1)
    int[:, ::1] heads,                   # OUT  (size, n+1)
    int method=-1,
):
    """One exact sample per row of ``uniforms``; log Z, or -inf if a score is bad or without a tree.

    Releases the GIL.  O(n^3) once, then O(n^2) at worst for each sample.
    """
    cdef Chart chart
    cdef double goal, log_z = -INFINITY
    cdef Py_ssize_t k
    cdef void* scratch = allocate(full_bytes(n))
    with nogil:
        lay_out(&chart, <double*>scratch, n, single_root)
        chart.semiring, goal = SUM, 0.0
        if all_below_infinity(&scores[0, 0], scores.shape[1], n):
            goal = sum_inside(&chart, &scores[0, 0], scores.shape[1], method)
        if goal != zero(chart.semiring):
            log_z = log_goal(&chart, goal)
            for k in range(uniforms.shape[0]):
                walk(&chart, &uniforms[k, 0], &heads[k, 0],
                     <int*>(chart.tables + table_size(n) + n + 8))
        free(scratch)
    return log_z
