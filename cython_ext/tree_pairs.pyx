"""Marginals of arcs and of pairs of arcs under a distribution over all trees.

They come from the inverse K of the Laplacian of arc weights w (a determinantal process):

    P(e) = mu_e = w_e T[m_e, e]                                    e = h_e -> m_e
    P(e, f) = mu_e mu_f - w_e w_f T[m_e, f] T[m_f, e]

    T[a, h -> m] = K[a,m] - K[a,h],  T[a, 0 -> m] = K[a,m]                          several roots
    T[a, h -> m] = [m != 1] K[a,m] - [h != 1] K[a,h],  T[a, 0 -> m] = K[a,1]        single root

The inversion loses the digits by which trees are less likely than cycles; that marginals of each
word sum to one says whether enough are left.
"""
from libc.math cimport INFINITY, exp
from libc.stdint cimport int32_t
from libc.string cimport memset

import numpy as np

from cython_ext.blocks cimport borrow, give_back
from cython_ext.layout cimport Layout, Places


cdef extern from "relaxation.h" nogil:
    bint invert(double* A, Py_ssize_t stride, Py_ssize_t n, int* order, double* scratch)
    bint invert_dominant(double* A, Py_ssize_t stride, Py_ssize_t n, double* scratch)
    void laplacian(double* W, double* L, Py_ssize_t stride, Py_ssize_t n, bint single_root,
                   double* scratch)
    double inverse_marginals(const double* W, const double* KT, const double* diagonal, double* mu,
                             Py_ssize_t stride, Py_ssize_t n, bint single_root, double* scratch)
    Py_ssize_t likely_marginals(double b, double w, const double* mu, const double* W,
                                const double* row, double base, const double* column,
                                const double* less, double* out, double least,
                                const double* cap, double product, Py_ssize_t first, Py_ssize_t n,
                                int32_t* found)
    void transpose(const double* A, double* out, Py_ssize_t stride, Py_ssize_t n)


cdef double SUMS_TO_ONE = 1e-9


cdef class TreePairs:
    """Marginals of one and of two arcs of a sentence.

    layout : Layout
    scores : (arcs,) float64 log weights, finite; None: nothing is solved yet
    single_root : bool

    O(n^3) time, O(n^2) memory; each pair O(1).

    Attributes
    ----------
    solved : bool
        No: the arcs hold no tree, or the inverse too few digits of one.
    """

    def __cinit__(self):
        self.block = NULL

    def __init__(self, Layout layout, const double[::1] scores, bint single_root):
        cdef Places* p = &layout.places
        cdef Py_ssize_t size
        cdef int m, a
        cdef double top
        self.layout, self.p, self.single_root = layout, p, single_root
        self.stride = (p.n + 4) // 4 * 4
        size = self.stride * self.stride
        self.block = borrow((4 * size + 12 * self.stride + 4) * sizeof(double), &self.block_size)
        self.W = whole_vectors(<double*>self.block)
        self.K = self.W + size
        self.KT = self.K + size
        self.mu = self.KT + size
        self.scratch = self.mu + size
        memset(self.W, 0, (4 * size + 12 * self.stride) * sizeof(double))
        if scores is None:
            return
        if scores.shape[0] != p.arcs:
            raise ValueError(f"{p.arcs} candidate arcs have {scores.shape[0]} scores")
        for m in range(1, p.n + 1):
            top = -INFINITY
            for a in range(p.offsets[m - 1], p.offsets[m]):
                top = max(top, scores[a])
            for a in range(p.offsets[m - 1], p.offsets[m]):
                self.W[p.heads[a] * self.stride + m] = exp(scores[a] - top)
        self.solved = self.solve()

    def __dealloc__(self):
        give_back(self.block, self.block_size)

    cdef bint solve(self) noexcept nogil:
        """Everything from W; False without a tree, or with too few digits of one.

        L[h,m] = -w, diagonal the sum into m; for one root without the root's, which row 1 holds
        instead (Koo et al. 2007).
        """
        cdef Py_ssize_t s = self.stride, n = self.p.n, m
        cdef double* scratch = self.scratch
        laplacian(self.W, self.K, s, n, self.single_root, scratch)
        if self.single_root:
            if not invert(self.K, s, n, <int*>scratch, scratch + s):
                return False
        elif not invert_dominant(self.K, s, n, scratch):
            return False
        transpose(self.K, self.KT, s, n)
        if self.single_root:
            for m in range(s):
                self.KT[m] = self.KT[s + m]
                self.KT[s + m] = 0.0
            for m in range(n + 1):
                self.K[m * s + 1] = 0.0
        for m in range(1, n + 1):
            scratch[m] = self.K[m * s + m]
        return inverse_marginals(self.W, self.KT, scratch, self.mu, s, n, self.single_root,
                                 scratch + s) <= SUMS_TO_ONE

    cdef double T(self, int a, int arc) noexcept nogil:
        cdef int h = self.p.heads[arc], m = self.p.modifiers[arc]
        if h == 0 and self.single_root:
            return self.KT[a]
        return self.K[a * self.stride + m] - self.K[a * self.stride + h]     # column 0 is 0

    cdef double both(self, int e, int f) noexcept nogil:
        cdef Places* p = self.p
        cdef Py_ssize_t s = self.stride
        cdef Py_ssize_t i = p.heads[e] * s + p.modifiers[e], j = p.heads[f] * s + p.modifiers[f]
        return self.mu[i] * self.mu[j] - self.W[i] * self.W[j] * (
            self.T(p.modifiers[e], f) * self.T(p.modifiers[f], e))

    cdef Py_ssize_t above(self, int g, int m, int head, double* out, double least,
                          const double* cap, double product, Py_ssize_t first, Py_ssize_t end,
                          int32_t* found) noexcept nogil:
        """P(g -> m, head -> k) for k < end, within bounds.  With one root, the head is not 0.

        ``found`` gets those k from ``first`` on where it is above ``least`` and, times cap[k],
        above ``product``; returns how many.

        T[m, head -> k] = K[m,k] - K[m,head] and, along k, T[k, g -> m] = KT[m,k] - KT[g,k].
        """
        cdef Py_ssize_t s = self.stride
        cdef const double* row = self.K + m * s
        cdef const double* column = self.KT + m * s
        cdef const double* less = self.KT + g * s
        if g == 0:
            if self.single_root:
                column = less
            less = self.K                        # row 0 is 0
        return likely_marginals(
            self.mu[g * s + m], self.W[g * s + m], self.mu + head * s, self.W + head * s, row,
            row[head], column, less, out, least, cap, product, first, end, found)

    def marginals(self):
        """Of each arc, (arcs,) float64."""
        cdef Places* p = self.p
        cdef int a
        array = np.empty(p.arcs)
        cdef double[::1] out = array
        for a in range(p.arcs):
            out[a] = self.mu[p.heads[a] * self.stride + p.modifiers[a]]
        return array

    def joint(self, const int32_t[::1] first, const int32_t[::1] second):
        """Of two arcs each, (pairs,) float64."""
        cdef Py_ssize_t i
        array = np.empty(first.shape[0])
        cdef double[::1] out = array
        for i in range(first.shape[0]):
            out[i] = self.both(first[i], second[i])
        return array
