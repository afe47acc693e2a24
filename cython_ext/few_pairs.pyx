"""Belief propagation over a tree factor and some pairs of arcs, in odds (Riedel & Smith 2010).

The messages of bp.pyx, serial, for graphs in which few arcs are in pairs.  The tree factor alone
gives the belief mu_a in each arc, under the weights

    w_a = exp(score_a) R_a,    R_a = prod over the pairs of a of s

where s is a pair's message to a, as odds.  With T = mu / (1 - mu) of the other arc of a pair, S the
message to it, so that T / S come from it, and x the weight of both,

    s' = (S + x T) / (S + T)

and s keeps a share of what it was (``damping``).  So nothing but R of arcs in pairs passes between
the pairs and the tree factor; an iteration is one pass over each.

    pairs               O(pairs)
    tree factor         O(n^3): by an inverse (tree_pairs.pyx), in projective trees inside-outside
                        (spans.h; eisner.pyx where that leaves the range)
"""
from libc.math cimport INFINITY, exp, fabs, log
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from cython_ext cimport eisner
from cython_ext.batch cimport reserve
from cython_ext.blocks cimport borrow, give_back
from cython_ext.clock cimport now
from cython_ext.layout cimport Layout, Places, checked
from cython_ext.propagators cimport odds_of_pair
from cython_ext.semiring cimport exponentials, largest_change
from cython_ext.spans cimport scale_columns, span_room, span_sums, stands
from cython_ext.tree_pairs cimport TreePairs


cdef extern from "relaxation.h" nogil:
    void unlikely_heads(const double* mu, Py_ssize_t stride, Py_ssize_t n, double* out)


cdef double SURE = 1e150         # odds beyond it and below its inverse are as good as certain
cdef double STRONGEST = 50.0     # |theta| of a pair, and the sum of an arc's
cdef double STRONGEST_SUM = 600.0
cdef double WIDEST = 300.0       # range of a word's scores


cdef inline Py_ssize_t at(FewPairs self, int a) noexcept nogil:
    """Where an arc is in the matrices."""
    return self.p.heads[a] * self.stride + self.p.modifiers[a]


cdef class FewPairs:
    """The messages of one sentence.

    layout : Layout
    scores : (arcs,) float64, finite
    projective, single_root : bool, of the tree factor

    Memory: 40 bytes a pair, O(n^2) besides.
    """

    def __cinit__(self):
        self.block = NULL
        self.pair = NULL

    def __init__(self, Layout layout, const double[::1] scores, bint projective,
                 bint single_root):
        cdef Places* p = &layout.places
        cdef Py_ssize_t size, spans, i
        cdef int a, m
        cdef double top, low
        self.layout, self.p, self.keep = layout, p, scores
        self.score = checked("candidate arcs", scores, p.arcs)
        self.single_root = single_root
        self.stride = (p.n + 4) // 4 * 4
        size = (p.n + 1) * self.stride
        spans = span_room(p.n) if projective else 0
        self.block = borrow((4 * size + self.stride + spans) * sizeof(double)
                            + p.arcs * (sizeof(Arc) + sizeof(int32_t)), &self.block_size)
        memset(self.block, 0, (4 * size + self.stride + spans) * sizeof(double))
        self.base = <double*>self.block
        self.old = self.base + size
        self.others = self.old + 3 * size
        self.spans = self.others + self.stride
        self.arc = <Arc*>(self.spans + spans)
        self.place = <int32_t*>(self.arc + p.arcs)
        memset(self.place, 0, p.arcs * sizeof(int32_t))
        self.projective = projective
        if projective:
            self.W, self.mu = self.old + size, self.old + 2 * size
        else:
            self.tree = TreePairs(layout, None, single_root)
            self.W, self.mu = self.tree.W, self.tree.mu
        with nogil:
            for i in range(size):
                self.base[i] = -INFINITY
            for m in range(1, p.n + 1):
                top, low = -INFINITY, INFINITY
                for a in range(p.offsets[m - 1], p.offsets[m]):
                    top, low = max(top, self.score[a]), min(low, self.score[a])
                self.wide |= top - low > WIDEST
                for a in range(p.offsets[m - 1], p.offsets[m]):
                    self.base[at(self, a)] = self.score[a] - top
            exponentials(self.base, size, 0.0)
        self.usable = projective or not self.wide

    def __dealloc__(self):
        give_back(self.block, self.block_size)
        free(self.pair)

    def add_pairs(self, const int32_t[::1] first, const int32_t[::1] second,
                  const double[::1] theta):
        """More pairs of arcs (k,), with scores (k,) that are finite; their messages are 1."""
        cdef Py_ssize_t count = theta.shape[0], i
        if first.shape[0] != count or second.shape[0] != count:
            raise ValueError("pairs and their scores differ in number")
        checked("pairs", theta, count)
        for i in range(count):
            if not (0 <= first[i] < self.p.arcs and 0 <= second[i] < self.p.arcs
                    and first[i] != second[i]):
                raise ValueError(f"pair {i} is not of two candidate arcs")
        if not self.make_room(count):
            raise MemoryError
        for i in range(count):
            self.take(first[i], second[i], theta[i], exp(theta[i]))

    cdef bint make_room(self, Py_ssize_t count) noexcept nogil:
        """For so many pairs more; False if memory is short."""
        return reserve(<void**>&self.pair, &self.room, self.pairs + count, sizeof(Pair))

    cdef void take(self, int first, int second, double theta, double x) noexcept nogil:
        """One pair more, for which there is room; x = e^theta."""
        cdef double size = fabs(theta)
        cdef Pair* pair = self.pair + self.pairs
        pair.first, pair.second = self.join(first, size), self.join(second, size)
        pair.x, pair.to_first, pair.to_second = x, 1.0, 1.0
        self.usable &= size <= STRONGEST
        self.pairs += 1

    cdef void reset(self) noexcept nogil:
        """All messages to 1."""
        cdef int i
        for i in range(self.pairs):
            self.pair[i].to_first = self.pair[i].to_second = 1.0
        for i in range(self.arcs):
            self.arc[i].R = 1.0
        self.current = False

    cdef int join(self, int a, double strength) noexcept nogil:
        """The place of an arc in the list, where it is from now on."""
        cdef Arc* arc
        if self.place[a] == 0:
            arc = self.arc + self.arcs
            arc.number, arc.at, arc.R, arc.strength = a, at(self, a), 1.0, 0.0
            self.arcs += 1
            self.place[a] = self.arcs
        arc = self.arc + self.place[a] - 1
        arc.strength += strength
        self.usable &= arc.strength <= STRONGEST_SUM
        return self.place[a] - 1

    def run(self, int iterations, double damping, double tolerance):
        """Iterate from the messages as they are: pairs, then the tree factor, and this once before.

        Stops after ``iterations``, or when no belief changed by ``tolerance`` or more.  Releases
        the GIL.

        Returns (iterations, the largest change of a belief in the last one), or None if the
        candidate arcs hold no tree, or numbers leave the range: bp.pyx knows what to do.
        """
        cdef int done
        cdef double change
        cdef bint fine
        with nogil:
            fine = self.iterate(iterations, damping, tolerance, &done, &change)
        return (done, change) if fine else None

    cdef bint iterate(self, int iterations, double damping, double tolerance, int* done,
                      double* change) noexcept nogil:
        cdef Py_ssize_t size = (self.p.n + 1) * self.stride
        cdef double most
        done[0], change[0] = 0, 0.0
        if not self.usable:
            return False
        if not self.current:
            self.current = self.pass_tree()
        while self.current and done[0] < iterations:
            most = 0.0
            if self.pairs:
                memcpy(self.old, self.mu, size * sizeof(double))
                self.pass_pairs(damping)
                self.current = self.pass_tree()
                most = largest_change(self.mu, self.old, size)
            done[0] += 1
            change[0] = most
            if most < tolerance:
                break
        return self.current

    cdef void pass_pairs(self, double damping) noexcept nogil:
        """New messages of all pairs, and R."""
        cdef Arc* arc
        cdef Arc* first
        cdef Arc* second
        cdef Pair* pair
        cdef int i
        cdef double start = now()
        unlikely_heads(self.mu, self.stride, self.p.n, self.others)
        for i in range(self.arcs):
            arc = self.arc + i
            arc.odds, arc.R = self.odds(arc), 1.0
        for i in range(self.pairs):
            pair = self.pair + i
            first, second = self.arc + pair.first, self.arc + pair.second
            odds_of_pair(pair.x, first.odds, second.odds, damping, &pair.to_first,
                         &pair.to_second)
            first.R *= pair.to_first
            second.R *= pair.to_second
        self.spent[0] += now() - start

    cdef double odds(self, Arc* arc) noexcept nogil:
        """mu / (1 - mu), which is what the other heads have."""
        cdef double mu = self.mu[arc.at], others = 1.0 - mu
        if others < 0.5:
            others = self.others[self.p.modifiers[arc.number]]
        return min(SURE, max(1.0 / SURE, mu / max(others, 1.0 / SURE)))

    cdef bint pass_tree(self) noexcept nogil:
        """False without a tree, or with too few digits of one."""
        cdef Py_ssize_t n = self.p.n, s = self.stride
        cdef Arc* arc
        cdef int i
        cdef double start = now()
        cdef bint fine
        memcpy(self.W, self.base, (n + 1) * s * sizeof(double))
        for i in range(self.arcs):
            arc = self.arc + i
            self.W[arc.at] *= arc.R
        fine = self.sum_spans() if self.projective else self.tree.solve()
        self.spent[1] += now() - start
        return fine

    cdef bint sum_spans(self) noexcept nogil:
        """The projective tree factor: sums of products, or in logs where they leave the range."""
        cdef Py_ssize_t n = self.p.n, s = self.stride, i
        cdef double total = 0.0
        cdef void* chart
        cdef int a
        if not self.wide:
            scale_columns(self.W, s, n, self.others)
            total = span_sums(self.W, s, n, self.single_root, self.mu, s, False, self.spans)
            if stands(total, n):
                return True
            memset(self.spans, 0, span_room(n) * sizeof(double))
        chart = malloc(eisner.gradient_bytes(n))
        if chart == NULL:
            return False
        for i in range((n + 1) * s):
            self.W[i] = -INFINITY
        for a in range(self.p.arcs):
            self.W[at(self, a)] = self.score[a]
        for i in range(self.arcs):
            self.W[self.arc[i].at] += log(self.arc[i].R)
        total = eisner.sum_product(self.W, s, n, self.single_root, self.mu, s, <double*>chart, -1)
        free(chart)
        return total > -INFINITY

    def beliefs(self, double[::1] out):
        """Belief in each arc, (arcs,)."""
        cdef int a
        for a in range(self.p.arcs):
            out[a] = min(1.0, max(0.0, self.mu[at(self, a)]))

    def log_odds(self, double[::1] out, bint into_tree=False):
        """Log-odds of the belief in each arc, or those that the tree factor is told, (arcs,)."""
        cdef Arc arc
        cdef int a
        unlikely_heads(self.mu, self.stride, self.p.n, self.others)
        for a in range(self.p.arcs):
            arc.number, arc.at, arc.R = a, at(self, a), 1.0
            if self.place[a]:
                arc.R = self.arc[self.place[a] - 1].R
            out[a] = self.score[a] + log(arc.R) if into_tree else log(self.odds(&arc))

    def times(self):
        """Seconds in the passes over pairs and over the tree factor."""
        return [self.spent[0], self.spent[1]]
