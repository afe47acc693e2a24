"""Non-projective trees: log Z, marginals and samples by eliminating words one at a time.

Words k = n..1 leave the graph; each leaves behind the arcs h -> k -> m that ran through it:

    d_k     = (+)_h w[h,k]                       over the heads h < k that are left
    p[h,k]  = w[h,k] / d_k
    w[h,m] (+)= p[h,k] (x) w[k,m]                for all h, m < k that are left

and Z = prod_k d_k: the matrix-tree theorem (Tutte 1984; Koo, Globerson, Carreras and Collins 2007)
computed without one subtraction, as Grassmann, Taksar and Heyman (1985) do for Markov chains, so
that every p is accurate to rounding whatever the range of the weights.  Marginals follow by going
back through the elimination (see ``adjoint``).  Samples are those of random walks (``wander``), or
come by putting the words back (``put_back``).

Single root: root weights are worth an infinitesimal each, and Z is the coefficient of the first
power.  So d_k leaves out the root except for the last word, and p[0,k] may exceed 1.  A word that
no other word is left to head takes the root itself: the words after it keep no root arcs but those
through it, and for them the root is a head like any other.  ``taker`` is that word; 1 if there is
none; n + 1, beyond all words, when several roots are allowed.

The factor F and its transpose FT hold p above the diagonal and below it the w[k,m] of words gone:

    F[h,k] = p[h,k],  F[k,m] = w[k,m],   h, m < k

Scaled weights do with F below the diagonal and FT too, which is all rows: there four words
leave at once, and what runs through all words gone before is added to their rows in one go
(elimination.h, and fused.h for the products).  For logs, of scores of any range, the same is done
for one word along two rows, padded with log 0.

Of a batch, sentences of up to ``SHORT`` words go by fours, side by side (lanes.h).

From ``DENSE`` words on, LU of the Laplacian by LAPACK is faster and is tried first; below, its
threads cost more than they save.  Its result
stands if the share of trees among all choices of heads, Z / prod_m (sum of column m), bounds the
cancellation in its pivots and, for marginals, if every column sums to one.
"""
from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from libc.math cimport INFINITY, NAN, exp, fabs, log
from libc.stdint cimport uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from cython_ext.batch cimport allocate, sum_one, words
from cython_ext.elimination cimport (
    PANEL, adjoint_weights, eliminate_weights, log_choices, weights_times,
)
from cython_ext.semiring cimport (
    LOG, SUM, all_below_infinity, draw, log_plus_rows, logarithms, one, plus, scaled_weights,
    times, wide_columns, zero,
)

cdef extern from "lanes.h" nogil:
    enum: LANES
    size_t lane_bytes(Py_ssize_t n)
    void sum_lanes(const double** scores, Py_ssize_t stride, const Py_ssize_t* length,
                   Py_ssize_t n, bint single_root, double least, double** mu,
                   Py_ssize_t mu_stride, double* log_z, void* memory)


AUTO, SCALED, LOG_DOMAIN, LAPACK = -1, SUM, LOG, 2     # `method` of the functions below

cdef enum:
    DENSE = 400
    SHORT = 24
    BY_LAPACK = 2

cdef double LEAST = 2e-16

# By pointer, so that building needs no scipy.
ctypedef void (*getrf_t)(int* m, int* n, double* a, int* lda, int* pivots, int* info) noexcept nogil
ctypedef void (*getri_t)(int* n, double* a, int* lda, int* pivots, double* work, int* lwork,
                         int* info) noexcept nogil
cdef getrf_t getrf = NULL
cdef getri_t getri = NULL


cdef inline bint uses_lapack(Py_ssize_t n, int method) noexcept nogil:
    return method == BY_LAPACK or (method < 0 and n >= DENSE)


cdef int load_lapack(Py_ssize_t n, int method) except -1:
    """Fetch the pointers before the first call on n words that needs them.

    Not with this module: few sentences are that long, and importing scipy.linalg takes longer than
    importing all the rest.
    """
    global getrf, getri
    if getri == NULL and uses_lapack(n, method):
        from scipy.linalg import cython_lapack
        getrf = <getrf_t>pointer(cython_lapack, "dgetrf")
        getri = <getri_t>pointer(cython_lapack, "dgetri")    # last: it tells other threads of both
    return 0


cdef void* pointer(module, name) except NULL:
    capsule = module.__pyx_capi__[name]
    return PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))


cdef struct Elimination:
    Py_ssize_t n
    Py_ssize_t stride
    int semiring
    Py_ssize_t taker             # d_k leaves out the root for k > taker
    double shift                 # log of what each tree's weight was divided by
    double choices               # log prod_m (sum of column m), of the scaled weights
    double* w                    # (n+1, stride) weights as given
    double* F
    double* FT
    double* A                    # d log Z / d w, and for logs its transpose
    double* AT
    double* d                    # (stride,)
    double* x                    # (PANEL, stride), as y
    double* y
    double* term


cdef inline Py_ssize_t width(Py_ssize_t n) noexcept nogil:
    """Of a row: n + 1 and at least four more, a multiple of four."""
    return (n + 8) & ~3


cdef inline size_t table_size(Py_ssize_t n) noexcept nogil:
    return (n + 4) * width(n)


cdef inline size_t full_bytes(Py_ssize_t n) noexcept nogil:
    return (5 * table_size(n) + (2 + 2 * PANEL) * width(n)) * sizeof(double) + 64


cdef void lay_out(Elimination* e, double* memory, Py_ssize_t n) noexcept nogil:
    cdef size_t size = table_size(n)
    e.n = n
    e.stride = width(n)
    e.w = <double*>((<size_t>memory + 63) & ~<size_t>63)
    e.F = e.w + size
    e.FT = e.F + size
    e.A = e.FT + size
    e.AT = e.A + size
    e.d = e.AT + size
    e.x = e.d + e.stride
    e.y = e.x + PANEL * e.stride
    e.term = e.y + PANEL * e.stride


cdef double eliminate_logs(Elimination* e) noexcept nogil:
    """Fill F, FT and d; return log Z of the weights in ``e.w``, or -inf."""
    cdef Py_ssize_t n = e.n, s = e.stride, h, m, k, i, left
    cdef double* F = e.F
    cdef double* FT = e.FT
    cdef double log_z = 0.0, total
    for i in range(<Py_ssize_t>table_size(n)):
        F[i] = FT[i] = -INFINITY
    for k in range(n, 0, -1):
        left = n - k                             # words gone before k
        for i in range(k):
            e.x[i] = e.w[i * s + k]
            e.y[i] = e.w[k * s + i]
        if left:
            # w[h,k] (+)= (+)_j p[h,j] (x) w[j,k];   w[k,m] (+)= (+)_j p[k,j] (x) w[j,m],   j > k
            log_plus_rows(FT + k * s + k + 1, F + k + 1, s, k, left, e.term, 1)
            add(e.x, e.term, k)
            log_plus_rows(F + k * s + k + 1, FT + k + 1, s, k, left, e.term, 1)
            add(e.y, e.term, k)
        total = add_up(e.x, 1 if k > e.taker else 0, k)
        if total == -INFINITY and e.taker == 1 and k > 1:
            take_root(e, k)
            total = e.x[0]
        if total == -INFINITY:
            return -INFINITY
        log_z += total
        e.d[k] = total
        for h in range(k):
            F[h * s + k] = FT[k * s + h] = e.x[h] - total
        for m in range(1, k):
            F[k * s + m] = FT[m * s + k] = e.y[m]
    return log_z


cdef double add_up(const double* x, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t i
    cdef double total = 0.0, top = -INFINITY
    for i in range(start, end):
        top = max(top, x[i])
    if top == -INFINITY:
        return top
    for i in range(start, end):
        total += exp(x[i] - top)
    return top + log(total)


cdef void take_root(Elimination* e, Py_ssize_t k) noexcept nogil:
    """Cut the words before k off from the root, but for what will run through k."""
    cdef Py_ssize_t m
    e.taker = k
    for m in range(1, k):
        e.w[m] = -INFINITY
    for m in range(k + 1, e.n + 1):
        e.F[m] = -INFINITY                       # p[0,m] stays in FT for the words from k on


cdef inline void add(double* x, const double* term, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        x[i] = plus(x[i], term[i], LOG)


cdef void adjoint(Elimination* e) noexcept nogil:
    """Fill A = d log Z / d w, one word put back after the other.

    From the A of the words below k, all sums of positive terms but for one bounded difference:

        A[k,m] = sum_h p[h,k] A[h,m]
        B[h]   = sum_m A[h,m] w[k,m],   Bbar = sum_h p[h,k] B[h]      (Bbar <= k - 1)
        A[h,k] = (1 - Bbar + B[h]) / d_k       where d_k contains h, else B[h] / d_k

    The difference has 16 digits after the point and no more: below LEAST it is noise, and LEAST is
    what it is taken for, so that no arc of a tree is held to be in none.
    """
    if e.semiring == SUM:
        adjoint_weights(e.F, e.FT, e.d, e.A, e.AT, e.x, e.y, e.stride, e.n, e.taker == 1,
                        LEAST)
    else:
        adjoint_logs(e)


cdef void adjoint_logs(Elimination* e) noexcept nogil:
    """The logs of A and its transpose."""
    cdef Py_ssize_t n = e.n, s = e.stride, h, m, k, i
    cdef double* A = e.A
    cdef double* AT = e.AT
    cdef double bar, own, value
    for i in range(<Py_ssize_t>table_size(n)):
        A[i] = AT[i] = -INFINITY
    for k in range(1, n + 1):
        log_plus_rows(e.FT + k * s, AT + s, s, k - 1, k, e.x + 1, 1)
        log_plus_rows(e.F + k * s, A, s, k, k, e.y, 1)
        for m in range(1, k):
            A[k * s + m] = AT[m * s + k] = e.x[m]
        bar = 0.0
        for h in range(k):
            bar += exp(e.FT[k * s + h] + e.y[h])
        for h in range(k):
            own = 0.0 if h == 0 and k > e.taker else 1.0 - bar
            if own == 0.0 or e.y[h] > 700.0:     # B[h] is out of the range of exp, or all there is
                value = e.y[h] - e.d[k]
            else:
                value = log(max(LEAST, own + exp(e.y[h]))) - e.d[k]
            A[h * s + k] = AT[k * s + h] = value
        if k == e.taker:
            for m in range(1, k):
                A[m] = AT[m * s] = -INFINITY


cdef void marginals_of(Elimination* e, double* mu, Py_ssize_t mu_stride) noexcept nogil:
    """mu = w (x) A, after `adjoint`."""
    cdef Py_ssize_t n = e.n, s = e.stride, h, m
    if e.semiring == SUM:
        weights_times(e.w, e.A, s, n, mu, mu_stride)
        return
    for h in range(n + 1):
        mu[h * mu_stride] = 0.0
        for m in range(1, n + 1):
            mu[h * mu_stride + m] = min(1.0, exp(e.w[h * s + m] + e.A[h * s + m]))
        mu[h * mu_stride + h] = 0.0


cdef double prepare(Elimination* e, const double* scores, Py_ssize_t stride, bint single_root,
                    int method) noexcept nogil:
    """Eliminate scaled weights, or logs where those do not reach; log Z, or -inf without a tree.

    d Z / d w is at most prod_m (sum of column m) for weights at every stage, so what underflows
    does not count as long as Z is above 1e-308 times that by a wide margin.
    """
    cdef Py_ssize_t n = e.n, s = e.stride, h, m
    cdef double log_z
    e.taker = 1 if single_root else n + 1
    if method != LOG:
        e.semiring = SUM
        scale(e, scores, stride)
        memcpy(e.F, e.w, (n + 1) * s * sizeof(double))
        log_z = eliminate_weights(e.F, e.FT, e.d, s, n, single_root)
        # Z > prod also means that a p[0,k] overflowed; NaN fails both.
        if method == SUM or -600.0 < log_z - e.choices < 1.0:
            return e.shift + log_z
    e.semiring = LOG
    for h in range(n + 1):
        for m in range(1, n + 1):
            e.w[h * s + m] = scores[h * stride + m]
        e.w[h * s] = e.w[h * s + h] = -INFINITY
    return eliminate_logs(e)


cdef void scale(Elimination* e, const double* scores, Py_ssize_t stride) noexcept nogil:
    """Scaled weights, with the logs of the scale (``term``) and of the product of column sums."""
    cdef Py_ssize_t m
    scaled_weights(scores, stride, e.n, e.term, e.w, e.stride)
    e.shift = 0.0
    for m in range(1, e.n + 1):
        e.shift += e.term[m]
    e.choices = log_choices(e.w, e.y, e.stride, e.n)


cdef double by_lapack(Elimination* e, const double* scores, Py_ssize_t stride, bint single_root,
                      double* mu, Py_ssize_t mu_stride) noexcept nogil:
    """log Z, and marginals unless ``mu`` is NULL, from LU factors; NaN where they are not exact.

    The Laplacian has columns that sum to the root weights, or for one root to zero with row 1
    replaced by the root weights (Koo et al. 2007).  FORTRAN order: column m of the Laplacian,
    that is all heads of m, is contiguous in L.
    """
    cdef int n = <int>e.n, info = 0, size = 64 * n
    cdef Py_ssize_t s = e.stride, h, m
    cdef double* L = e.F
    cdef double* K = L
    cdef int* pivots = <int*>e.d
    cdef double log_z = 0.0, total, value
    cdef bint negative = False
    cdef double* work
    scale(e, scores, stride)
    for m in range(1, n + 1):
        total = 0.0 if single_root else e.w[m]
        for h in range(1, n + 1):
            value = e.w[h * s + m]
            total += value
            L[(m - 1) * n + h - 1] = -value
        L[(m - 1) * n + m - 1] = total
        if single_root:
            L[(m - 1) * n] = e.w[m]
    getrf(&n, &n, L, &n, pivots, &info)
    if info:
        return NAN
    for m in range(n):
        log_z += log(fabs(L[m * n + m]))
        negative ^= (L[m * n + m] < 0.0) ^ (pivots[m] != m + 1)
    if negative or not (-14.0 < log_z - e.choices < 1.0):
        return NAN
    if mu == NULL:
        return e.shift + log_z
    if <size_t>size > 3 * table_size(n):
        size = <int>(3 * table_size(n))
    work = e.FT
    getri(&n, L, &n, pivots, work, &size, &info)
    # K[m,h] of the inverse lies at K[h * n + m]; words count from 0 in it.
    for m in range(n):
        e.x[m] = K[m * n + m]
        e.y[m] = 0.0
    for h in range(n):
        mu[(h + 1) * mu_stride] = 0.0
        for m in range(n):
            if single_root:
                value = (0.0 if m == 0 else e.x[m]) - (0.0 if h == 0 else K[h * n + m])
            else:
                value = e.x[m] - K[h * n + m]
            value *= e.w[(h + 1) * s + m + 1]
            e.y[m] += value
            mu[(h + 1) * mu_stride + m + 1] = min(1.0, max(0.0, value))
        mu[(h + 1) * mu_stride + h + 1] = 0.0
    mu[0] = 0.0
    for m in range(n):
        value = e.w[m + 1] * (K[m] if single_root else e.x[m])
        mu[m + 1] = min(1.0, max(0.0, value))
        if not fabs(e.y[m] + value - 1.0) < 1e-9:
            return NAN
    return e.shift + log_z


cdef double sum_product(
    const double* scores, Py_ssize_t stride, Py_ssize_t n, bint single_root,
    double* mu, Py_ssize_t mu_stride, double* scratch, int method,
) noexcept nogil:
    """log Z, or -inf without a tree; marginals too unless ``mu`` is NULL."""
    cdef Elimination e
    cdef double log_z
    lay_out(&e, scratch, n)
    if uses_lapack(n, method):
        log_z = by_lapack(&e, scores, stride, single_root, mu, mu_stride)
        if method == BY_LAPACK or log_z == log_z:
            return log_z
    log_z = prepare(&e, scores, stride, single_root, method)
    if mu != NULL and log_z > -INFINITY:
        adjoint(&e)
        marginals_of(&e, mu, mu_stride)
    return log_z


cdef struct Sentences:
    const double* scores         # (batch, size, size)
    double* mu                   # the same, or NULL
    double* log_z
    Py_ssize_t size
    bint single_root
    double* scratch              # for one sentence
    void* side_by_side           # for LANES short ones


cdef void sum_alone(Sentences* batch, Py_ssize_t b, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t first = b * batch.size * batch.size
    batch.log_z[b] = sum_product(
        batch.scores + first, batch.size, n, batch.single_root,
        NULL if batch.mu == NULL else batch.mu + first, batch.size, batch.scratch, -1)


cdef void sum_group(Sentences* batch, const Py_ssize_t* group, const Py_ssize_t* length,
                    Py_ssize_t count) noexcept nogil:
    """Up to LANES short sentences, the last one the longest."""
    cdef const double* scores[LANES]
    cdef double* mu[LANES]
    cdef double log_z[LANES]
    cdef Py_ssize_t lengths[LANES]
    cdef Py_ssize_t i, j, first
    if count == 1:
        sum_alone(batch, group[0], length[0])
        return
    for i in range(LANES):
        j = min(i, count - 1)                    # what is left over does the last one again
        first = group[j] * batch.size * batch.size
        scores[i], lengths[i] = batch.scores + first, length[j]
        if batch.mu != NULL:
            mu[i] = batch.mu + first
    sum_lanes(scores, batch.size, lengths, lengths[LANES - 1], batch.single_root, LEAST,
              NULL if batch.mu == NULL else mu, batch.size, log_z, batch.side_by_side)
    for i in range(count):
        if log_z[i] == log_z[i]:
            batch.log_z[group[i]] = log_z[i]
        else:
            sum_alone(batch, group[i], length[i])


cdef Py_ssize_t sum_all(
    Sentences* batch,
    const int[::1] lengths,
    Py_ssize_t count,
    Py_ssize_t* first,           # SCRATCH  (SHORT + 1,)
    Py_ssize_t* following,       # SCRATCH  (count,)
) noexcept nogil:
    """log Z of every sentence, short ones in the order of their lengths; as ``sums``."""
    cdef Py_ssize_t b, n, size = batch.size, waiting = 0
    cdef Py_ssize_t group[LANES]
    cdef Py_ssize_t length[LANES]
    for n in range(SHORT + 1):
        first[n] = -1
    for b in range(count - 1, -1, -1):
        n = words(lengths, b, size)
        batch.log_z[b] = -INFINITY
        if not all_below_infinity(batch.scores + b * size * size, size, n):
            continue
        if n > SHORT:
            sum_alone(batch, b, n)
        else:
            following[b] = first[n]
            first[n] = b
    for n in range(SHORT + 1):
        b = first[n]
        while b >= 0:
            group[waiting], length[waiting] = b, n
            waiting += 1
            if waiting == LANES:
                sum_group(batch, group, length, waiting)
                waiting = 0
            b = following[b]
    if waiting:
        sum_group(batch, group, length, waiting)
    for b in range(count):
        if batch.log_z[b] == -INFINITY:
            return b
    return -1


cdef size_t scratch_bytes(Py_ssize_t n) noexcept nogil:
    """Room that ``gradient`` needs."""
    return full_bytes(n)


cdef double gradient(
    const double* scores,        # IN       (n+1, stride) scores[head, modifier]
    Py_ssize_t stride,
    Py_ssize_t n,
    bint single_root,
    double* out,                 # OUT      (n+1, stride)
    void* scratch,               # SCRATCH  scratch_bytes(n)
) noexcept nogil:
    """log Z, or -inf without a tree; out = log d log Z / d exp(scores), whatever their range.

    Of an arc with marginal mu it is log mu - score, and does not depend on its own score.  What is
    below LEAST of d_k is not told from it.
    """
    cdef Elimination e
    cdef Py_ssize_t h
    cdef double log_z
    lay_out(&e, <double*>scratch, n)
    log_z = prepare(&e, scores, stride, single_root,
                    LOG if wide_columns(scores, stride, n, e.x) else -1)
    if log_z == -INFINITY:
        return log_z
    adjoint(&e)
    for h in range(n + 1):
        if e.semiring == SUM:
            logarithms(e.A + h * e.stride + 1, e.term + 1, n, out + h * stride + 1)
        else:
            memcpy(out + h * stride + 1, e.A + h * e.stride + 1, n * sizeof(double))
    return log_z


cdef void mirror(Elimination* e) noexcept nogil:
    """The halves of F and FT that scaled weights do without."""
    cdef Py_ssize_t s = e.stride, k, h
    for k in range(1, e.n + 1):
        for h in range(k):
            e.F[h * s + k] = e.FT[k * s + h]
            e.FT[h * s + k] = e.F[k * s + h]


cdef inline void reroute(Elimination* e, Py_ssize_t m, int* heads, int* via,
                         double* uniform) noexcept nogil:
    """Draw which later word, or none (0), the present arc into m runs through."""
    cdef Py_ssize_t s = e.stride, h = heads[m], j, start = max(h, m), count = e.n - start
    e.x[0] = e.w[h * s + m]
    for j in range(1, count + 1):
        # Row 0 of F is what the words before the taker see of the root; FT has all of it.
        e.x[j] = e.FT[(start + j) * s] if h == 0 and m >= e.taker else e.F[h * s + start + j]
        e.x[j] = times(e.x[j], e.FT[m * s + start + j], e.semiring)
    j = draw(e.x, e.y, count + 1, uniform, e.semiring, False)
    via[m] = <int>(start + j) if j else 0


cdef void put_back(
    Elimination* e,
    const double* uniform,       # IN       (2 n,)
    double* left,                # SCRATCH  (n+1,) what is left of each word's second uniform
    int* heads,                  # OUT      (n+1,)
    int* via,                    # SCRATCH  (n+1,)
    int* below,                  # SCRATCH  (n+1,)
) noexcept nogil:
    """One exact sample, by putting the words back in the order 1..n.

    A tree over the words before k, drawn from the eliminated graph, becomes a tree with k: of its
    arcs, those drawn to run through k now start there; k takes any head that is not below them,
    in proportion to p[h,k].  That is exact because, for fixed arcs out of k, the products of
    p over all acyclic choices of the rerouted heads add up to the p that is left for k.  With one
    root, k takes the root only when every word is below it.
    """
    cdef Py_ssize_t n = e.n, s = e.stride, k, m, h
    cdef bint rerouted, free_word
    heads[0] = -1
    for h in range(n + 1):
        e.y[h] = one(e.semiring)
    for k in range(1, n + 1):
        rerouted = free_word = False
        for m in range(1, k):
            below[m] = via[m] == k
            rerouted |= via[m] == k
        if rerouted:
            for m in range(1, k):
                if via[m] != k:
                    h = heads[m]
                    while h > 0 and via[h] != k:
                        h = heads[h]
                    below[m] = h > 0
        for h in range(1, k):
            free_word |= not below[h]
            e.x[h] = zero(e.semiring) if below[h] else e.FT[k * s + h]
        e.x[0] = zero(e.semiring) if k > e.taker and free_word else e.FT[k * s]
        left[0] = uniform[2 * k - 2]
        left[k] = uniform[2 * k - 1]
        heads[k] = <int>draw(e.x, e.y, k, left, e.semiring, False)
        for m in range(1, k):
            if via[m] == k:
                heads[m] = <int>k
                reroute(e, m, heads, via, left + m)
        reroute(e, k, heads, via, left + k)


cdef struct Walks:
    Py_ssize_t n
    Py_ssize_t stride
    double* below                # [m, h] sum of the weights of the heads up to h
    int* guide                   # [m, i] the first head for draws from i / n on
    double* root                 # sums of the probabilities of the words to be the only root; NULL
    int* root_guide
    uint64_t state
    Py_ssize_t patience          # steps for one sample


cdef inline double uniform(Walks* walks) noexcept nogil:
    """splitmix64 (Steele, Lea and Flood 2014)."""
    cdef uint64_t z
    walks.state += <uint64_t>0x9e3779b97f4a7c15
    z = walks.state
    z = (z ^ (z >> 30)) * <uint64_t>0xbf58476d1ce4e5b9
    z = (z ^ (z >> 27)) * <uint64_t>0x94d049bb133111eb
    z ^= z >> 31
    return (z >> 11) * (1.0 / 9007199254740992.0)


cdef void guide_to(const double* below, int* guide, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, h = 0
    for i in range(n):
        while h < n and not below[h] > i * (below[n] / n):
            h += 1
        guide[i] = <int>h


cdef inline Py_ssize_t drawn(Walks* walks, const double* below, const int* guide) noexcept nogil:
    """In proportion to the differences of the sums: by inversion, from near the place on."""
    cdef Py_ssize_t n = walks.n, h
    cdef double u = uniform(walks), x = u * below[n]
    h = guide[<Py_ssize_t>(u * n)]
    while h and below[h - 1] > x:                # the guide was rounded
        h -= 1
    while h < n and not below[h] > x:
        h += 1
    while h and below[h] == below[h - 1]:        # u was rounded to 1
        h -= 1
    return h


cdef void prepare_walks(Walks* walks, Elimination* e, bint single_root) noexcept nogil:
    """From scaled weights eliminated.  Takes the place of A and AT.

    That word k is the only root has probability w[0,k] A[0,k], with the A of ``adjoint``, whose
    row 0 comes in O(n^2): A[0,1] = 1 / d_1, A[0,k] = sum_m A[0,m] w[k,m] / d_k over m < k.
    """
    cdef Py_ssize_t n = e.n, s = e.stride, h, m
    cdef double total
    walks.n, walks.stride, walks.root = n, s, NULL
    walks.patience = 50 * n + 1000
    walks.below = e.A
    walks.guide = <int*>e.AT
    for m in range(1, n + 1):
        total = 0.0
        for h in range(n + 1):
            if h or not single_root:
                total += e.w[h * s + m]
            walks.below[m * s + h] = total
        guide_to(walks.below + m * s, walks.guide + m * s, n)
    if single_root:
        walks.root = e.A
        walks.root_guide = walks.guide
        e.x[1] = 1.0 / e.d[1]
        for h in range(2, n + 1):
            total = 0.0
            for m in range(1, h):
                total += e.x[m] * e.F[h * s + m]
            e.x[h] = total / e.d[h]
        walks.root[0] = 0.0
        for h in range(1, n + 1):
            walks.root[h] = walks.root[h - 1] + e.w[h] * e.x[h]
        guide_to(walks.root, walks.root_guide, n)


cdef bint wander(Walks* walks, const double* uniform, int* heads, Py_ssize_t* root,
                 int* placed) noexcept nogil:
    """One exact sample by loop-erased random walks (Wilson 1996), False when out of patience.

    From each word go to a random head, and from there, until the root or a word with its place is
    reached: the last step out of each word is its head.  A single root is drawn first, and is
    where the walks end; it is also handed back.  How many steps it takes is independent of the tree
    with this root (Propp and Wilson 1998): to give up and sample another such tree favours none.
    """
    cdef Py_ssize_t n = walks.n, s = walks.stride, m, word, steps = 0
    walks.state = <uint64_t>(uniform[0] * 9007199254740992.0) << 11
    walks.state ^= <uint64_t>(uniform[1] * 9007199254740992.0)
    for m in range(n + 1):
        placed[m] = 0
    placed[0] = 1
    heads[0] = -1
    if walks.root != NULL:
        word = drawn(walks, walks.root, walks.root_guide)
        heads[word] = 0
        placed[word] = 1
        root[0] = word
    for m in range(1, n + 1):
        word = m
        while not placed[word]:
            steps += 1
            if steps > walks.patience:
                return False
            heads[word] = <int>drawn(walks, walks.below + word * s, walks.guide + word * s)
            word = heads[word]
        word = m
        while not placed[word]:
            placed[word] = 1
            word = heads[word]
    return True


cdef void give_root(
    Elimination* e,
    const double* scores,
    Py_ssize_t stride,
    Py_ssize_t n,
    Py_ssize_t root,
    double* own,                 # SCRATCH  (n+1, n+1)
    double* memory,              # SCRATCH  full_bytes(n)
) noexcept nogil:
    """Eliminate again, with one root arc only: for samples with this root."""
    cdef Py_ssize_t h
    for h in range(n + 1):
        memcpy(own + h * (n + 1), scores + h * stride, (n + 1) * sizeof(double))
        own[h] = 0.0 if h == root else -INFINITY
    lay_out(e, memory, n)
    prepare(e, own, n + 1, True, -1)
    if e.semiring == SUM:
        mirror(e)


def marginals(const double[:, ::1] scores, Py_ssize_t n, bint single_root, double[:, ::1] mu,
              int method=-1):
    """log Z of the first n words, without checks; ``mu`` (>= n+1, >= n+1) gets the marginals.

    ``scores`` is (N, N), N > n, [head, modifier], free of NaN and +inf.  -inf, and ``mu``
    undefined, when there is no tree.  ``method`` is AUTO, SCALED, LOG_DOMAIN or LAPACK; the last
    gives NaN where it is not exact.  Releases the GIL.  O(n^3) time, O(n^2) memory.
    """
    load_lapack(n, method)
    return sum_one(sum_product, full_bytes(n), scores, n, single_root, mu, method)


def sums(
    const double[:, :, ::1] scores,      # IN   (batch, N, N)
    const int[::1] lengths,              # IN   (batch,) words of each sentence, or None: N - 1
    bint single_root,
    double[:, :, ::1] mu,                # OUT  (batch, N, N) zeros on entry, or None: log Z only
    double[::1] log_z,                   # OUT  (batch,)
):
    """log Z and marginals of each sentence; the first one that is bad or has no tree, or -1."""
    cdef Py_ssize_t count = scores.shape[0], n = scores.shape[1] - 1, failed
    cdef Sentences batch
    cdef size_t memory, lanes = lane_bytes(min(n, SHORT)) + 64
    if not count:
        return -1
    load_lapack(n, -1)
    memory = <size_t>allocate(lanes + full_bytes(n) + (SHORT + 1 + count) * sizeof(Py_ssize_t))
    with nogil:
        batch.scores = &scores[0, 0, 0]
        batch.mu = NULL if mu is None else &mu[0, 0, 0]
        batch.log_z = &log_z[0]
        batch.size = n + 1
        batch.single_root = single_root
        batch.side_by_side = <void*>((memory + 63) & ~<size_t>63)
        batch.scratch = <double*>(memory + lanes)
        failed = sum_all(&batch, lengths, count,
                         <Py_ssize_t*>(memory + lanes + full_bytes(n)),
                         <Py_ssize_t*>(memory + lanes + full_bytes(n)) + SHORT + 1)
        free(<void*>memory)
    return failed


def sample(
    const double[:, ::1] scores,         # IN   (N, N)
    Py_ssize_t n,
    bint single_root,
    const double[:, ::1] uniforms,       # IN   (size, 2 n) in [0, 1)
    int[:, ::1] heads,                   # OUT  (size, n+1)
    int method=-1,
):
    """One exact sample per row of ``uniforms``; log Z, or -inf if a score is bad or without a tree.

    Releases the GIL.  O(n^3) once.  Then for each sample mostly O(n), the steps of random walks,
    seeded by the first two numbers; O(n^2) where those take long, and in logs.
    """
    cdef Elimination e
    cdef Elimination rooted
    cdef Walks walks
    cdef bint impatient
    cdef Py_ssize_t root = 0
    cdef double log_z
    cdef Py_ssize_t k
    cdef void* scratch = allocate(
        2 * full_bytes(n) + ((n + 1) * (n + 1) + 2 * (n + 8)) * sizeof(double))
    cdef double* own = <double*>(<char*>scratch + 2 * full_bytes(n))
    cdef double* left = own + (n + 1) * (n + 1)
    cdef int* via
    with nogil:
        lay_out(&e, <double*>scratch, n)
        log_z = -INFINITY
        if all_below_infinity(&scores[0, 0], scores.shape[1], n):
            log_z = prepare(&e, &scores[0, 0], scores.shape[1], single_root, method)
        via = <int*>(left + e.stride)
        if log_z > -INFINITY:
            impatient = e.semiring == LOG
            memset(&walks, 0, sizeof(Walks))
            if not impatient:
                prepare_walks(&walks, &e, single_root)
                mirror(&e)
            for k in range(uniforms.shape[0]):
                if impatient:
                    put_back(&e, &uniforms[k, 0], left, &heads[k, 0], via, via + e.stride)
                elif not wander(&walks, &uniforms[k, 0], &heads[k, 0], &root, via):
                    impatient = True
                    if root:
                        give_root(&rooted, &scores[0, 0], scores.shape[1], n, root, own,
                                  <double*>(<char*>scratch + full_bytes(n)))
                    put_back(&rooted if root else &e, &uniforms[k, 0], left, &heads[k, 0], via,
                             via + e.stride)
        free(scratch)
    return log_z
