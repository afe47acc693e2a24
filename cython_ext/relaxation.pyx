"""Which pairs of arcs are worth a factor (Riedel & Smith 2010): pair marginals and gains.

A tree factor's own belief is a distribution over trees with arc weights w, and its pair marginals
come from the inverse K of its Laplacian (a determinantal process):

    P(e, f) = mu_e mu_f - w_e w_f T[m_e, f] T[m_f, e]          e = h_e -> m_e,  mu_e = w_e T[m_e, e]

    T[a, h -> m] = K[a,m] - K[a,h],  T[a, 0 -> m] = K[a,m]                          several roots
    T[a, h -> m] = [m != 1] K[a,m] - [h != 1] K[a,h],  T[a, 0 -> m] = K[a,1]        single root

Adding a factor of weight theta whose arcs are both true with probability mu moves the distribution
by

    gain = log(1 - mu + mu e^theta) - mu theta                        (eq. 3)  D(without || with)

or, the other way round, theta mu' - log(1 - mu + mu e^theta) with mu' = mu e^theta / (...).
"""
from libc.math cimport INFINITY, ceil, exp, expm1, fabs, log, log1p
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc

import numpy as np

from cython_ext.layout cimport GRAND_, SIB_, Layout, Places, triangle


cdef enum:
    TABLES = 8                           # of bounds, at most
    STEPS = 16                           # for each unit of |theta|
    FAR = 640                            # steps: beyond them anything is worth a look

# An upper bound on gain / mu by |theta|, in steps: of positive, of negative, of forward gains.
cdef double WORTH[3][FAR + 2]


cdef void fill_worth() noexcept nogil:
    cdef int i
    cdef double size
    for i in range(FAR + 1):
        size = (i + 1e-9) / STEPS
        WORTH[0][i], WORTH[1][i] = expm1(size) - size, expm1(-size) + size
        WORTH[2][i] = size * exp(size)
    for i in range(3):
        WORTH[i][0], WORTH[i][FAR + 1] = 0.0, INFINITY


fill_worth()


cdef struct Bounds:                      # PartBounds of parser.graph
    int count
    int positions                        # n + 1
    double factor, low, high
    const int32_t* ids                   # (count, positions)
    int size[TABLES]
    const float* triples[TABLES]
    const float* pairs[3 * TABLES]       # without the third, the second, the first


cdef inline double worth(double low, double high, double eps, bint forward) noexcept nogil:
    """At least gain / mu for a theta from low to high; 0 if no mu makes it gain more than eps.

        gain <= theta^2 / 8,    gain <= mu (e^theta - 1 - theta),    forward gain <= mu |t| e^|t|
    """
    cdef double positive = max(0.0, high), negative = max(0.0, -low)
    cdef double size = max(positive, negative)
    if size * size <= 8.0 * eps:
        return 0.0
    if forward:
        return WORTH[2][<int>min(FAR + 1.0, ceil(size * STEPS))]
    return max(WORTH[0][<int>min(FAR + 1.0, ceil(positive * STEPS))],
               WORTH[1][<int>min(FAR + 1.0, ceil(negative * STEPS))])


cdef inline double worth_of_part(const Bounds* b, int i, int j, int k, double eps,
                                 bint forward) noexcept nogil:
    cdef double low = b.low, high = b.high
    cdef const int32_t* ids = b.ids
    cdef const float* entry
    cdef int t
    for t in range(b.count):
        entry = b.triples[t] + 2 * ((<Py_ssize_t>ids[i] * b.size[t] + ids[j]) * b.size[t] + ids[k])
        low += entry[0]
        high += entry[1]
        ids += b.positions
    return worth(b.factor * low, b.factor * high, eps, forward)


cdef inline double worth_of_arc(const Bounds* b, int without, int i, int j, double eps,
                                bint forward) noexcept nogil:
    """Of any part in which two positions are i and j."""
    cdef double low = b.low, high = b.high
    cdef const int32_t* ids = b.ids
    cdef const float* entry
    cdef int t
    for t in range(b.count):
        entry = b.pairs[3 * t + without] + 2 * (<Py_ssize_t>ids[i] * b.size[t] + ids[j])
        low += entry[0]
        high += entry[1]
        ids += b.positions
    return worth(b.factor * low, b.factor * high, eps, forward)


cdef int read_bounds(Bounds* b, bounds, double factor) except -1:
    """Pointers into arrays that ``bounds`` keeps."""
    cdef const float[:, :, :, ::1] triples
    cdef const float[:, :, ::1] pairs
    cdef const int32_t[:, ::1] ids = bounds.ids
    cdef int t, i
    b.count, b.positions = <int>ids.shape[0], <int>ids.shape[1]
    b.factor, b.low, b.high = factor, bounds.low, bounds.high
    if b.count > TABLES:
        raise ValueError(f"at most {TABLES} tables of bounds, got {b.count}")
    b.ids = NULL
    if b.count:
        b.ids = &ids[0, 0]
    for t in range(b.count):
        triples = bounds.tables[t]
        b.size[t], b.triples[t] = <int>triples.shape[0], &triples[0, 0, 0, 0]
        for i in range(3):
            pairs = bounds.pairs[t][i]
            b.pairs[3 * t + i] = &pairs[0, 0, 0]
    return 0


cdef struct Found:
    int64_t place
    int32_t first
    int32_t second
    double mu


cdef class TreePairs:
    """Marginals of one and of two arcs under a distribution over all trees.

    layout : Layout
    scores : (arcs,) float64 log weights, finite
    single_root : bool

    O(n^3) time, O(n^2) memory; each pair O(1).
    """

    cdef Layout layout
    cdef Places* p
    cdef bint single_root
    cdef double* K                       # (n+1, n+1), row and column 0 are 0
    cdef double* transposed              # (n+1, n+1), with a single root column 1 of K as row 0, and
                                         # then column 1 of K is 0
    cdef double* w                       # (arcs,)
    cdef double* mu                      # (arcs,) marginals

    def __cinit__(self):
        self.K = self.w = self.mu = NULL

    def __init__(self, Layout layout, const double[::1] scores, bint single_root):
        cdef Places* p = &layout.places
        cdef Py_ssize_t width = p.n + 1
        cdef int m, a, h
        cdef double top
        if scores.shape[0] != p.arcs:
            raise ValueError(f"{p.arcs} candidate arcs have {scores.shape[0]} scores")
        self.layout, self.p, self.single_root = layout, p, single_root
        self.K = <double*>malloc(2 * width * width * sizeof(double))
        self.w = <double*>malloc(p.arcs * sizeof(double))
        self.mu = <double*>malloc(p.arcs * sizeof(double))
        if self.K == NULL or self.w == NULL or self.mu == NULL:
            raise MemoryError
        self.transposed = self.K + width * width
        with nogil:
            for m in range(1, p.n + 1):
                top = -INFINITY
                for a in range(p.offsets[m - 1], p.offsets[m]):
                    top = max(top, scores[a])
                for a in range(p.offsets[m - 1], p.offsets[m]):
                    self.w[a] = exp(scores[a] - top)
            self.laplacian()
            if not invert(self.K, width, p.n):
                self.K[0] = 1.0                  # no tree
            for h in range(width):
                for m in range(width):
                    self.transposed[h * width + m] = self.K[m * width + h]
            if single_root:
                for m in range(width):
                    self.transposed[m] = self.transposed[width + m]
                    self.transposed[width + m] = self.K[m * width + 1] = 0.0
            for a in range(p.arcs):
                self.mu[a] = self.w[a] * self.T(p.modifiers[a], a)
        if self.K[0]:
            raise ValueError("the candidate arcs hold no tree, or too few digits of one")

    def __dealloc__(self):
        free(self.K)
        free(self.w)
        free(self.mu)

    cdef void laplacian(self) noexcept nogil:
        """L[h,m] = -w, diagonal the sum into m; for one root without the root's, which row 1 holds
        instead (Koo et al. 2007)."""
        cdef Places* p = self.p
        cdef Py_ssize_t width = p.n + 1, i
        cdef int a, h, m
        for i in range(width * width):
            self.K[i] = 0.0
        for a in range(p.arcs):
            h, m = p.heads[a], p.modifiers[a]
            if h:
                self.K[h * width + m] -= self.w[a]
            if h or not self.single_root:
                self.K[m * width + m] += self.w[a]
        if self.single_root:
            for m in range(1, p.n + 1):
                self.K[width + m] = 0.0
            for a in range(p.arcs):
                if p.heads[a] == 0:
                    self.K[width + p.modifiers[a]] = self.w[a]

    cdef inline double T(self, int a, int arc) noexcept nogil:
        cdef Py_ssize_t width = self.p.n + 1
        cdef int h = self.p.heads[arc], m = self.p.modifiers[arc]
        if h == 0 and self.single_root:
            return self.transposed[a]
        return self.K[a * width + m] - self.K[a * width + h]         # column 0 is 0

    cdef inline double both(self, int e, int f) noexcept nogil:
        cdef int m = self.p.modifiers[e], k = self.p.modifiers[f]
        return self.mu[e] * self.mu[f] - self.w[e] * self.w[f] * self.T(m, f) * self.T(k, e)

    cdef inline void run(self, int e, const int32_t* others, int count, double* out) noexcept nogil:
        """``both`` of e and each of some arcs, which all have the same head, not 0 for one root.

        With h the head of the others: T[m, h -> k] = K[m,k] - K[m,h] and, along k,
        T[k, e] = K'[m,k] - K'[h_e,k].
        """
        cdef Py_ssize_t width = self.p.n + 1
        cdef int h = self.p.heads[e], m = self.p.modifiers[e], i, k, f
        cdef const double* row = self.K + m * width
        cdef const double* column = self.transposed + m * width
        cdef const double* less = self.transposed + h * width
        cdef double own = self.mu[e], w = self.w[e], base
        if count == 0:
            return
        base = row[self.p.heads[others[0]]]
        if h == 0 and self.single_root:
            column, less = less, self.K      # row 0 of K is 0
        for i in range(count):
            f = others[i]
            k = self.p.modifiers[f]
            out[i] = own * self.mu[f] - w * self.w[f] * (row[k] - base) * (column[k] - less[k])

    def marginals(self):
        """Of each arc, (arcs,) float64."""
        cdef int a
        array = np.empty(self.p.arcs)
        cdef double[::1] out = array
        for a in range(self.p.arcs):
            out[a] = self.mu[a]
        return array

    def joint(self, const int32_t[::1] first, const int32_t[::1] second):
        """Of two arcs each, (pairs,) float64."""
        cdef Py_ssize_t i
        array = np.empty(first.shape[0])
        cdef double[::1] out = array
        for i in range(first.shape[0]):
            out[i] = self.both(first[i], second[i])
        return array


cdef bint invert(double* A, Py_ssize_t stride, int n) noexcept nogil:
    """Invert rows and columns 1..n in place by Gauss-Jordan with row pivots; False if singular."""
    cdef int i, j, k, best
    cdef double pivot, factor, size
    cdef double* row
    cdef double* other
    cdef int* order = <int*>malloc((n + 1) * sizeof(int))
    if order == NULL:
        return False
    for k in range(1, n + 1):
        best, size = k, 0.0
        for i in range(k, n + 1):
            if fabs(A[i * stride + k]) > size:
                best, size = i, fabs(A[i * stride + k])
        if not size > 0.0:
            free(order)
            return False
        order[k] = best
        row, other = A + k * stride, A + best * stride
        if best != k:
            for j in range(1, n + 1):
                row[j], other[j] = other[j], row[j]
        pivot = 1.0 / row[k]
        row[k] = 1.0
        for j in range(1, n + 1):
            row[j] *= pivot
        for i in range(1, n + 1):
            if i == k:
                continue
            other = A + i * stride
            factor = other[k]
            if factor == 0.0:
                continue
            other[k] = 0.0
            for j in range(1, n + 1):
                other[j] -= factor * row[j]
    for k in range(n, 0, -1):                    # undo the row exchanges on the columns
        if order[k] != k:
            for i in range(1, n + 1):
                A[i * stride + k], A[i * stride + order[k]] = (
                    A[i * stride + order[k]], A[i * stride + k])
    free(order)
    return True


def candidates(
    Layout layout,
    int family,                          # GRAND or SIB
    const double[::1] beliefs,           # IN   (arcs,)
    TreePairs tree,                      # or None: products of beliefs
    bint projective,
    bint one_root,
    double least,
    const uint8_t[::1] taken=None,
    const double[::1] scores=None,
    bounds=None,
    double factor=1.0,
    double eps=0.0,
    bint forward=False,
):
    """Parts whose arcs are both true with probability above ``least``.

    ``taken`` (parts,): without these.  With ``scores`` (parts,), or the PartBounds ``bounds`` of
    them and a factor: only those whose gain could be above ``eps``, by ``worth``.
    ``projective``, ``one_root``: whether a hard factor makes
    trees so; parts of arcs that are in no tree together, by their ends alone, are left out.  The
    probabilities are within the bounds that the beliefs of the two arcs put on them.

    Returns places (k,) int64, their two arcs (2, k) int32, probabilities (k,) float64.
    O(arcs + pairs of arcs that could be, by the belief in each).
    """
    cdef Places* p = &layout.places
    cdef int a, c, g, h, m, k, i, j, start, end
    cdef Bounds b
    cdef bint bounded = bounds is not None, sib = family == SIB_
    cdef Py_ssize_t count = 0, size = 4 * (p.n + 1)
    cdef int32_t* live = <int32_t*>malloc((p.arcs + p.n + 2) * sizeof(int32_t))
    cdef int32_t* first = <int32_t*>malloc((p.n + 2) * sizeof(int32_t))
    cdef double* joint = <double*>malloc((p.n + 2) * sizeof(double))
    cdef double* caps = <double*>malloc((p.arcs + 1) * sizeof(double))      # of live: gain / mu
    cdef Found* found = <Found*>malloc(size * sizeof(Found))
    cdef Found* larger
    cdef double mu, most, cap = INFINITY
    cdef bint fine = (live != NULL and first != NULL and joint != NULL and caps != NULL
                      and found != NULL)
    if bounded:
        read_bounds(&b, bounds, factor)
    with nogil:
        if fine:
            first[0] = 0
            for h in range(p.n + 1):             # live children of each head
                first[h + 1] = first[h]
                for i in range(p.first[h], p.first[h + 1]):
                    a = p.children[i]
                    if not beliefs[a] > least:
                        continue
                    if bounded and sib:          # its place may be the second or the third
                        cap = max(worth_of_arc(&b, 0, h, p.modifiers[a], eps, forward),
                                  worth_of_arc(&b, 1, h, p.modifiers[a], eps, forward))
                    elif bounded:                # below a grandparent
                        cap = worth_of_arc(&b, 2, h, p.modifiers[a], eps, forward)
                    if not beliefs[a] * cap > eps:
                        continue
                    caps[first[h + 1]] = cap
                    live[first[h + 1]] = a
                    first[h + 1] += 1
            h = 1 if one_root and sib else 0
            i = first[h] if sib else 0
            while fine and i < (first[p.n + 1] if sib else p.arcs):
                a = live[i] if sib else i
                h, m = p.heads[a], p.modifiers[a]
                if sib:
                    cap = caps[i]
                elif not beliefs[a] > least:
                    i += 1
                    continue
                elif bounded:                    # g -> h above another arc
                    cap = worth_of_arc(&b, 0, h, m, eps, forward)
                    if not beliefs[a] * cap > eps:
                        i += 1
                        continue
                # SIB: a and a child before it.  GRAND: a and a child of its modifier.
                start = first[h] if sib else first[m]
                end = i if sib else first[m + 1]
                if tree is not None:
                    tree.run(a, live + start, end - start, joint)
                if count + p.n >= size:
                    size = 2 * size
                    larger = <Found*>realloc(found, size * sizeof(Found))
                    fine = larger != NULL
                    if not fine:
                        break
                    found = larger
                for j in range(end - start):
                    c = live[start + j]
                    mu = joint[j] if tree is not None else beliefs[a] * beliefs[c]
                    mu = max(mu, beliefs[a] + beliefs[c] - 1.0)
                    mu = min(mu, min(beliefs[a], beliefs[c]))
                    if not (mu > least and mu * min(cap, caps[start + j]) > eps):
                        continue
                    if sib:
                        found[count].place = p.sib[h] + triangle(p.rank[a]) + p.rank[c]
                    else:
                        g = p.modifiers[c]
                        if g == h or (projective and (m < h < g or g < h < m)):
                            continue
                        found[count].place = p.grand[a] + p.rank[c]
                    if taken is not None and taken[found[count].place]:
                        continue
                    if scores is not None:
                        most = scores[found[count].place]
                        if not mu * worth(most, most, eps, forward) > eps:
                            continue
                    if bounded:
                        k = p.modifiers[c]
                        if sib and m > h:        # k < m, and the nearer one comes first
                            m, k = k, m
                        most = worth_of_part(&b, h, m, k, eps, forward)
                        m = p.modifiers[a]
                        if not mu * most > eps:
                            continue
                    found[count].first, found[count].second = a, c
                    found[count].mu = mu
                    count += 1
                i += 1
    free(live)
    free(first)
    free(joint)
    free(caps)
    if not fine:
        free(found)
        raise MemoryError
    places_array = np.empty(count, np.int64)
    arcs_array = np.empty((2, count), np.int32)
    mu_array = np.empty(count)
    cdef int64_t[::1] places = places_array
    cdef int32_t[:, ::1] arcs = arcs_array
    cdef double[::1] out = mu_array
    for i in range(count):
        places[i], out[i] = found[i].place, found[i].mu
        arcs[0, i], arcs[1, i] = found[i].first, found[i].second
    free(found)
    return places_array, arcs_array, mu_array


def largest_size(const double[::1] scores):
    """max |scores|, 0 for none.  ValueError unless all are finite."""
    cdef double low = 0.0, high = 0.0
    cdef bint bad = False
    cdef Py_ssize_t i
    with nogil:
        for i in range(scores.shape[0]):
            bad |= not fabs(scores[i]) < INFINITY
            low, high = min(low, scores[i]), max(high, scores[i])
    if bad:
        raise ValueError("parts have scores that are not finite")
    return max(-low, high)


cdef inline double log_mean(double mu, double theta) noexcept nogil:
    """log(1 - mu + mu e^theta)"""
    if theta > 30.0:
        return theta + log(mu + (1.0 - mu) * exp(-theta))
    return log1p(mu * expm1(theta))


def gains(const double[::1] mu, const double[::1] theta, bint forward):
    """Gain of each factor, (k,) float64, never below 0.  ``forward``: D(with || without)."""
    cdef Py_ssize_t i
    cdef double middle, value
    array = np.empty(mu.shape[0])
    cdef double[::1] out = array
    for i in range(mu.shape[0]):
        middle = log_mean(mu[i], theta[i])
        if forward:
            value = theta[i] * (mu[i] * exp(theta[i] - middle)) - middle
        else:
            value = middle - mu[i] * theta[i]
        out[i] = max(0.0, value)
    return array
