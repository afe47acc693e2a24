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
from libc.math cimport INFINITY, exp, expm1, fabs, log, log1p
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

import numpy as np

from cython_ext.layout cimport GRAND_, SIB_, Layout, Places, triangle


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
    cdef double* w                       # (arcs,)

    def __cinit__(self):
        self.K = self.w = NULL

    def __init__(self, Layout layout, const double[::1] scores, bint single_root):
        cdef Places* p = &layout.places
        cdef Py_ssize_t width = p.n + 1
        cdef int m, a
        cdef double top
        if scores.shape[0] != p.arcs:
            raise ValueError(f"{p.arcs} candidate arcs have {scores.shape[0]} scores")
        self.layout, self.p, self.single_root = layout, p, single_root
        self.K = <double*>malloc(width * width * sizeof(double))
        self.w = <double*>malloc(p.arcs * sizeof(double))
        if self.K == NULL or self.w == NULL:
            raise MemoryError
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
        if self.K[0]:
            raise ValueError("the candidate arcs hold no tree, or too few digits of one")

    def __dealloc__(self):
        free(self.K)
        free(self.w)

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
        cdef const double* row = self.K + a * (self.p.n + 1)
        cdef int h = self.p.heads[arc], m = self.p.modifiers[arc]
        if not self.single_root:
            return row[m] - row[h]               # column 0 is 0
        if h == 0:
            return row[1]
        return (row[m] if m != 1 else 0.0) - (row[h] if h != 1 else 0.0)

    cdef inline double one(self, int e) noexcept nogil:
        return self.w[e] * self.T(self.p.modifiers[e], e)

    cdef inline double both(self, int e, int f) noexcept nogil:
        cdef int m = self.p.modifiers[e], k = self.p.modifiers[f]
        cdef double a = self.one(e), b = self.one(f)
        return a * b - self.w[e] * self.w[f] * self.T(m, f) * self.T(k, e)

    def marginals(self):
        """Of each arc, (arcs,) float64."""
        cdef int a
        array = np.empty(self.p.arcs)
        cdef double[::1] out = array
        for a in range(self.p.arcs):
            out[a] = self.one(a)
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
    const double[::1] scores=None,
    double strongest=0.0,
    double eps=0.0,
    const uint8_t[::1] taken=None,
):
    """Parts whose arcs are both true with probability above ``least``.

    With ``scores`` (parts,), none above ``strongest`` in size, only those that could have a
    (reverse) gain above ``eps``, by

        gain <= mu (e^theta - 1 - theta) <= mu theta^2 / 2 e^strongest

    and with ``taken`` (parts,) none that is.

    ``projective``, ``one_root``: whether a hard factor makes trees so; parts of arcs that are in no
    tree together, by their ends alone, are left out.  The probabilities are within the bounds that
    the beliefs of the two arcs put on them.

    Returns places (k,) int64, their two arcs (2, k) int32, probabilities (k,) float64.
    O(arcs + pairs of arcs with beliefs above ``least``).
    """
    cdef Places* p = &layout.places
    cdef int a, c, g, h, m, i, j, count = 0, start, size = 256
    cdef int32_t* live = <int32_t*>malloc((p.arcs + p.n + 2) * sizeof(int32_t))
    cdef int32_t* first = <int32_t*>malloc((p.n + 2) * sizeof(int32_t))
    cdef int64_t place
    cdef double mu, half_exp = 0.5 * exp(strongest)
    if live == NULL or first == NULL:
        free(live)
        free(first)
        raise MemoryError
    places_array = np.empty(size, np.int64)
    arcs_array = np.empty((2, size), np.int32)
    mu_array = np.empty(size)
    cdef int64_t[::1] places = places_array
    cdef int32_t[:, ::1] arcs = arcs_array
    cdef double[::1] out = mu_array
    try:
        first[0] = 0
        for h in range(p.n + 1):                 # live children of each head
            first[h + 1] = first[h]
            for i in range(p.first[h], p.first[h + 1]):
                if beliefs[p.children[i]] > least:
                    live[first[h + 1]] = p.children[i]
                    first[h + 1] += 1
        for h in range(1 if one_root and family == SIB_ else 0, p.n + 1):
            for i in range(first[h], first[h + 1]):
                a = live[i]
                m = p.modifiers[a]
                # SIB: a and a child before it.  GRAND: a and a child of its modifier.
                start = first[h] if family == SIB_ else first[m]
                for j in range(start, i if family == SIB_ else first[m + 1]):
                    c = live[j]
                    if family == GRAND_:
                        g = p.modifiers[c]
                        if g == h or (projective and (m < h < g or g < h < m)):
                            continue
                    if tree is not None:
                        mu = tree.both(a, c)
                    else:
                        mu = beliefs[a] * beliefs[c]
                    mu = max(mu, beliefs[a] + beliefs[c] - 1.0)
                    mu = min(mu, min(beliefs[a], beliefs[c]))
                    if not mu > least:
                        continue
                    if family == SIB_:
                        place = p.sib[h] + triangle(p.rank[a]) + p.rank[c]
                    else:
                        place = p.grand[a] + p.rank[c]
                    if taken is not None and taken[place]:
                        continue
                    if scores is not None and not mu * scores[place] ** 2 * half_exp > eps:
                        continue
                    if count == size:
                        size *= 2
                        places_array = np.resize(places_array, size)
                        arcs_array = np.concatenate([arcs_array, np.empty_like(arcs_array)], axis=1)
                        mu_array = np.resize(mu_array, size)
                        places, arcs, out = places_array, arcs_array, mu_array
                    places[count], arcs[0, count], arcs[1, count] = place, a, c
                    out[count] = mu
                    count += 1
    finally:
        free(live)
        free(first)
    return places_array[:count], arcs_array[:, :count], mu_array[:count]


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
