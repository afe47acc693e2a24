"""Which pairs of arcs are worth a factor (Riedel & Smith 2010): candidates and their gains.

Adding a factor of weight theta whose arcs are both true with probability mu moves the distribution
by

    gain = log(1 - mu + mu e^theta) - mu theta                        (eq. 3)  D(without || with)

or, the other way round, theta mu' - log(1 - mu + mu e^theta) with mu' = mu e^theta / (...).
"""
from libc.math cimport INFINITY, NAN, exp, expm1, fabs, log, log1p
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

import numpy as np

from cython_ext.batch cimport reserve
from cython_ext.clock cimport now
from cython_ext.few_pairs cimport FewPairs
from cython_ext.layout cimport SIB_, Layout, Places, checked, triangle
from cython_ext.tree_pairs cimport TreePairs


cdef extern from "simd.h" nogil:
    Py_ssize_t above(const double* x, double least, const double* factor, double product,
                     Py_ssize_t first, Py_ssize_t n, int32_t* out)


cdef enum:
    TABLES = 8                           # of bounds, at most
    GROWTHS = 640


cdef struct Bounds:                      # of a sentence's parts
    int count
    int positions                        # n + 1
    double factor, low, high
    const int32_t* ids                   # (count, positions)
    int size[TABLES]
    const float* triples[TABLES]
    const float* pairs[3 * TABLES]       # the first two, the first and any other, the last two


cdef class PartBounds:
    """Where the scores of a family's parts lie, by what stands at the three positions of each.

    A score is at least and at most the sum of an entry of each table, and of ``low`` and ``high``.

    tables : list of (values, values, values, 2) float32
        Least and largest summand, by the ids of the three positions.
    low, high : float
        Least and largest sum of all other summands.

    Attributes
    ----------
    lowest, highest : float
        No score is outside.
    """

    cdef Bounds tables
    cdef object keep
    cdef readonly double lowest, highest

    def __init__(self, list tables, double low, double high):
        cdef const float[:, :, :, ::1] triples
        cdef const float[:, :, ::1] pairs
        cdef int t, i
        if len(tables) > TABLES:
            raise ValueError(f"at most {TABLES} tables of bounds, got {len(tables)}")
        self.tables.count, self.tables.low, self.tables.high = len(tables), low, high
        self.lowest, self.highest = low, high
        self.keep = [np.ascontiguousarray(table, np.float32) for table in tables]
        for t in range(self.tables.count):
            triples = table = self.keep[t]
            self.tables.size[t], self.tables.triples[t] = len(table), &triples[0, 0, 0, 0]
            self.lowest += table.min()
            self.highest += table.max()
            two, outer, last = (
                np.stack([table[..., 0].min(k), table[..., 1].max(k)], -1) for k in (2, 1, 0))
            other = np.stack([np.minimum(two, outer)[..., 0], np.maximum(two, outer)[..., 1]], -1)
            for i, both in enumerate((two, other, last)):
                pairs = both
                self.tables.pairs[3 * t + i] = &pairs[0, 0, 0]
                self.keep.append(both)


cdef double GROWTH[GROWTHS + 1]          # e^t - 1 - t in steps of 1/16


cdef void fill_growth() noexcept nogil:
    cdef int i
    for i in range(GROWTHS):
        GROWTH[i] = expm1(i / 16.0) - i / 16.0
    GROWTH[GROWTHS] = INFINITY


fill_growth()


cdef inline double worth(double low, double high, double eps, bint forward) noexcept nogil:
    """At least gain / mu for a theta from low to high; 0 if no mu makes it gain more than eps.

        gain <= theta^2 / 8,    gain <= mu (e^theta - 1 - theta),    forward gain <= mu |t| e^|t|

    where e^t - 1 - t is at most t^2 (1/2 + (e - 5/2) t) for t from 0 to 1, and for t below 0 at most
    t^2 / 2 and |t|.
    """
    cdef double positive = max(0.0, high), negative = max(0.0, -low)
    cdef double size = max(positive, negative), above
    if size * size <= 8.0 * eps:
        return 0.0
    if forward:
        return size * exp(size)
    if positive <= 1.0:
        above = positive * positive * (0.5 + 0.21828182845904554 * positive)
    else:
        above = GROWTH[<int>min(<double>GROWTHS, 1.0 + 16.0 * positive)]
    return max(above, negative * min(1.0, 0.5 * negative))


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


cdef void worth_of_arcs(const Bounds* b, int without, int i, double eps, bint forward,
                        double* out, double* scratch) noexcept nogil:
    """out[j], j = 0..n: the largest worth of parts in which two positions are i and j.

    scratch: (2, n+1)
    """
    cdef double* low = scratch
    cdef double* high = scratch + b.positions
    cdef const int32_t* ids = b.ids
    cdef const float* row
    cdef int t, j
    for j in range(b.positions):
        low[j], high[j] = b.low, b.high
    for t in range(b.count):
        row = b.pairs[3 * t + without] + 2 * <Py_ssize_t>ids[i] * b.size[t]
        for j in range(b.positions):
            low[j] += row[2 * ids[j]]
            high[j] += row[2 * ids[j] + 1]
        ids += b.positions
    for j in range(b.positions):
        out[j] = worth(b.factor * low[j], b.factor * high[j], eps, forward)


cdef double largest_size(const double* scores, int64_t size) noexcept nogil:
    """max |scores|, 0 for none."""
    cdef double low = 0.0, high = 0.0
    cdef int64_t i
    for i in range(size):
        low, high = min(low, scores[i]), max(high, scores[i])
    return max(-low, high)


cdef inline double log_mean(double mu, double theta) noexcept nogil:
    """log(1 - mu + mu e^theta)"""
    if theta > 30.0:
        return theta + log(mu + (1.0 - mu) * exp(-theta))
    return log1p(mu * expm1(theta))


cdef inline double gain_of(double mu, double theta, bint forward) noexcept nogil:
    cdef double middle = log_mean(mu, theta)
    if forward:
        return max(0.0, theta * (mu * exp(theta - middle)) - middle)
    return max(0.0, middle - mu * theta)


cdef inline bint worthwhile(double mu, double theta, double eps, bint forward) noexcept nogil:
    """Whether the gain is above eps; without exp and log where that is clear.

    With w = e^theta - 1 - theta and x = mu (w + theta), the gain log(1 + x) - mu theta is at most
    mu w, and at least mu w - x^2 when x > -0.68.
    """
    cdef double w, x
    if not forward and fabs(theta) < 0.6:        # the series lacks less than a thousandth of w
        w = theta * theta * (0.5 + theta * (1.0 / 6 + theta * (1.0 / 24 + theta * (1.0 / 120))))
        x = mu * (w + theta)
        if 1.001 * mu * w <= eps:
            return False
        if 0.999 * mu * w - 1.001 * x * x > eps:
            return True
    return gain_of(mu, theta, forward) > eps


def gains(const double[::1] mu, const double[::1] theta, bint forward):
    """Gain of each factor, (k,) float64, never below 0.  ``forward``: D(with || without)."""
    cdef Py_ssize_t i
    array = np.empty(mu.shape[0])
    cdef double[::1] out = array
    for i in range(mu.shape[0]):
        out[i] = gain_of(mu[i], theta[i], forward)
    return array


cdef struct Found:
    int64_t place
    int32_t first
    int32_t second
    double mu                            # that both arcs are true
    double theta                         # the score


cdef struct List:
    Found* of
    Py_ssize_t count
    Py_ssize_t room


cdef bint make_room(List* found, Py_ssize_t count) noexcept nogil:
    """For so many more; False if memory is short."""
    return reserve(<void**>&found.of, &found.room, found.count + count, sizeof(Found))


cdef class Separation:
    """The search for parts of a family that gain more than eps, and what it has taken.

    Only pairs of arcs are looked at that could, by the probability of their arcs and bounds on
    their scores (``worth``); and of those by their own probability and bounds.  Scores that are
    computed when they are asked for are asked of what passes these.

    layout : Layout
    family : GRAND or SIB
    scores : (parts,) float64, finite; or LazyParts of parser.graph
    eps : float, and forward : bool, of the gain
    projective, one_root : bool, whether a hard factor makes trees so
        Parts of arcs that are in no tree together, by their ends alone, are left out.

    Attributes
    ----------
    size, added, scored : int
        Parts; those that were taken; and scores that were computed or, if they were there, looked
        through.
    seconds : float
        Of computing scores.
    """

    cdef Layout layout
    cdef Places* p
    cdef readonly int family
    cdef readonly int64_t size
    cdef readonly Py_ssize_t added, scored
    cdef readonly double seconds
    cdef bint sib, forward, projective, one_root
    cdef double eps
    cdef readonly double least           # arcs must be more likely
    cdef const double* scores            # (parts,) or NULL
    cdef object lazy                     # LazyParts, or None
    cdef object keep
    cdef Bounds bounds
    cdef Py_ssize_t stride
    cdef double* caps                    # (n+1, stride) see `fill_caps`
    cdef double* caps_above
    cdef double* joint                   # (2, stride) of a row of pairs, and scratch
    cdef int32_t* number                 # (n+1, stride) of arcs
    cdef int32_t* likely                 # (stride,)
    cdef uint8_t* taken                  # (parts,)
    cdef List found                      # of this round, in the order of parts, and of the last
    cdef List last
    cdef List chosen

    def __cinit__(self):
        self.caps = NULL
        self.number = NULL
        self.taken = NULL
        memset(&self.found, 0, sizeof(List))
        memset(&self.last, 0, sizeof(List))
        memset(&self.chosen, 0, sizeof(List))

    def __init__(self, Layout layout, int family, scores, double eps, bint forward,
                 bint projective, bint one_root):
        cdef Places* p = &layout.places
        cdef Py_ssize_t size, i
        cdef const int32_t[:, ::1] ids
        cdef const double[::1] values
        cdef double low, high
        cdef PartBounds bounds
        cdef int a
        self.layout, self.p, self.family, self.sib = layout, p, family, family == SIB_
        self.eps, self.forward = eps, forward
        self.projective, self.one_root = projective, one_root
        self.size = layout.size(family)
        self.stride = (p.n + 4) // 4 * 4
        self.scores, self.lazy = NULL, None
        if isinstance(scores, np.ndarray):
            values = self.keep = scores
            self.scores = checked("parts", values, self.size)
            self.scored = self.size
            high = largest_size(self.scores, self.size)
            low = -high
        else:
            self.lazy = scores
            bounds = self.keep = scores.bounds
            ids = scores.ids
            self.bounds = bounds.tables
            if ids.shape[0] != self.bounds.count or ids.shape[1] != p.n + 1:
                raise ValueError(f"{self.bounds.count} tables of bounds and {p.n + 1} positions have "
                                 f"{ids.shape[0]} rows of {ids.shape[1]} ids")
            self.bounds.positions, self.bounds.factor = <int>ids.shape[1], scores.factor
            self.bounds.ids = &ids[0, 0] if self.bounds.count else NULL
            low, high = scores.factor * bounds.lowest, scores.factor * bounds.highest
        self.least = worth(low, high, 0.0, forward)
        self.least = eps / self.least if self.least > 0.0 else 0.0
        size = (p.n + 1) * self.stride
        self.caps = <double*>malloc((2 * size + 2 * self.stride) * sizeof(double))
        self.number = <int32_t*>malloc((size + self.stride) * sizeof(int32_t))
        self.taken = <uint8_t*>calloc(max(1, self.size), sizeof(uint8_t))
        if self.caps == NULL or self.number == NULL or self.taken == NULL:
            raise MemoryError
        self.caps_above, self.joint = self.caps + size, self.caps + 2 * size
        memset(self.caps, 0, (2 * size + 2 * self.stride) * sizeof(double))
        self.likely = self.number + size
        for a in range(p.arcs):
            self.number[p.heads[a] * self.stride + p.modifiers[a]] = a
        if self.lazy is not None:
            self.fill_caps()
        else:
            for i in range(2 * size):
                self.caps[i] = INFINITY

    def __dealloc__(self):
        free(self.caps)
        free(self.number)
        free(self.taken)
        free(self.found.of)
        free(self.last.of)
        free(self.chosen.of)

    cdef void fill_caps(self) noexcept nogil:
        """At least gain / mu of any part with an arc in the second place, and of GRAND in the first.

        The second place of SIB may be that of the nearer or of the farther one.
        """
        cdef Py_ssize_t s = self.stride
        cdef double* scratch = self.joint
        cdef int h
        for h in range(self.p.n + 1):
            worth_of_arcs(&self.bounds, 1 if self.sib else 2, h, self.eps, self.forward,
                          self.caps + h * s, scratch)
            if not self.sib:
                worth_of_arcs(&self.bounds, 0, h, self.eps, self.forward,
                              self.caps_above + h * s, scratch)

    cdef bint possible(self, int h, int m, int k, const Found* pair) noexcept nogil:
        """Whether h -> m with its sibling h -> k, or with m -> k, may gain more than eps."""
        cdef double most
        if self.scores != NULL:
            most = self.scores[pair.place]
            most = worth(most, most, self.eps, self.forward)
        elif self.sib and m > h:                 # k < m, and the nearer one comes first
            most = worth_of_part(&self.bounds, h, k, m, self.eps, self.forward)
        else:
            most = worth_of_part(&self.bounds, h, m, k, self.eps, self.forward)
        return pair.mu * most > self.eps and not self.taken[pair.place]

    cdef bint find(self, const double* mu, TreePairs tree) noexcept nogil:
        """The parts that may gain more than eps, by beliefs ``mu`` (n+1, stride); False: no memory.

        ``tree`` has the probability of two arcs; without it, it is the product of beliefs, within
        the bounds that these put on it.
        """
        cdef Places* p = self.p
        cdef Py_ssize_t s = self.stride
        cdef double belief, cap, other
        cdef Found* pair
        cdef int i, j, a, h, m, k, head, end, live
        self.found.count = 0
        for i in range(p.arcs):
            a = p.children[i] if self.sib else i         # in the order of the parts
            h, m = p.heads[a], p.modifiers[a]
            belief = mu[h * s + m]
            if not belief > self.least or (self.sib and self.one_root and h == 0):
                continue
            cap = (self.caps if self.sib else self.caps_above)[h * s + m]
            if not belief * cap > self.eps:
                continue
            # SIB: a and a child before it.  GRAND: a and a child of its modifier.
            head, end = h if self.sib else m, m if self.sib else p.n + 1
            if tree is not None:
                tree.run(h, m, head, self.joint)
            else:
                for k in range(1, end):
                    other = mu[head * s + k]
                    self.joint[k] = min(belief, min(other, max(belief * other, belief + other - 1.0)))
            if not make_room(&self.found, p.n):
                return False
            live = <int>above(self.joint, max(self.least, self.eps / cap), self.caps + head * s,
                              self.eps, 1, end, self.likely)
            for j in range(live):
                k = self.likely[j]
                if not self.sib and (k == h or (self.projective and (m < h < k or k < h < m))):
                    continue
                pair = self.found.of + self.found.count
                pair.first, pair.second, pair.mu = a, self.number[head * s + k], self.joint[k]
                pair.place = (
                    p.sib[h] + triangle(p.rank[a]) + p.rank[pair.second] if self.sib
                    else p.grand[a] + p.rank[pair.second])
                self.found.count += self.possible(h, m, k, pair)
        return True

    cdef int score(self) except -1:
        """Scores of what was found; those of the last round are at hand."""
        cdef Py_ssize_t i, j = 0, count = 0
        cdef List* found = &self.found
        cdef int64_t[::1] places
        cdef const double[::1] values
        cdef double start
        if self.scores != NULL:
            for i in range(found.count):
                found.of[i].theta = self.scores[found.of[i].place]
            return 0
        array = np.empty(found.count, np.int64)
        places = array
        for i in range(found.count):
            while j < self.last.count and self.last.of[j].place < found.of[i].place:
                j += 1
            if j < self.last.count and self.last.of[j].place == found.of[i].place:
                found.of[i].theta = self.last.of[j].theta
            else:
                found.of[i].theta = NAN
                places[count] = found.of[i].place
                count += 1
        if count:
            start = now()
            values = self.lazy[array[:count]]
            self.seconds += now() - start
            self.scored += count
            count = 0
            for i in range(found.count):
                if found.of[i].theta != found.of[i].theta:
                    found.of[i].theta = values[count]
                    count += 1
        return 0

    cdef bint choose(self) noexcept nogil:
        """Those found that gain more than eps; they count as taken.  False: no memory."""
        cdef Py_ssize_t i
        cdef Found* pair
        self.chosen.count = 0
        if not make_room(&self.chosen, self.found.count):
            return False
        for i in range(self.found.count):
            pair = self.found.of + i
            if worthwhile(pair.mu, pair.theta, self.eps, self.forward):
                self.taken[pair.place] = True
                self.chosen.of[self.chosen.count] = pair[0]
                self.chosen.count += 1
        self.added += self.chosen.count
        self.found, self.last = self.last, self.found
        return True

    def separate(self, const int64_t[::1] places, const int32_t[:, :] arcs, const double[::1] mu):
        """Those of some parts, by place, that gain more than eps; from now on they are taken.

        arcs: (2, k) as of ``candidates``; mu: (k,) probability that both are true.

        Returns places (k,) int64, first and second arcs (k,) int32, scores (k,) float64.
        """
        cdef Places* p = self.p
        cdef Found* pair
        cdef Py_ssize_t i
        cdef int a, c
        self.found.count = 0
        if not make_room(&self.found, places.shape[0]):
            raise MemoryError
        for i in range(places.shape[0]):
            pair = self.found.of + self.found.count
            a, c = arcs[0, i], arcs[1, i]
            pair.place, pair.first, pair.second, pair.mu = places[i], a, c, mu[i]
            self.found.count += self.possible(p.heads[a], p.modifiers[a], p.modifiers[c], pair)
        self.score()
        if not self.choose():
            raise MemoryError
        return arrays(&self.chosen)[:4]


cdef tuple arrays(const List* found):
    """places, first, second, theta and mu."""
    cdef Py_ssize_t i, count = found.count
    places, first, second, theta, mu = (
        np.empty(count, kind) for kind in (np.int64, np.int32, np.int32, np.float64, np.float64)
    )
    cdef int64_t[::1] place_of = places
    cdef int32_t[::1] first_of = first
    cdef int32_t[::1] second_of = second
    cdef double[::1] theta_of = theta
    cdef double[::1] mu_of = mu
    for i in range(count):
        place_of[i], first_of[i], second_of[i] = (
            found.of[i].place, found.of[i].first, found.of[i].second)
        theta_of[i], mu_of[i] = found.of[i].theta, found.of[i].mu
    return places, first, second, theta, mu


def candidates(Layout layout, int family, const double[::1] beliefs, TreePairs tree,
               bint projective, bint one_root, double least):
    """Parts whose arcs are both true with probability above ``least``.

    beliefs : (arcs,)
    tree : probability of two arcs; None: the product of beliefs, within their bounds
    projective, one_root : whether a hard factor makes trees so
        Parts of arcs that are in no tree together, by their ends alone, are left out.

    Returns places (k,) int64, their two arcs (2, k) int32, probabilities (k,) float64.
    O(arcs + pairs of arcs that could be, by the belief in each).
    """
    cdef Places* p = &layout.places
    cdef Separation all_parts = Separation(
        layout, family, Anything(layout.size(family), p.n + 1), 0.0, False, projective, one_root)
    cdef double[:, ::1] mu = np.zeros((p.n + 1, all_parts.stride))
    cdef int a
    for a in range(p.arcs):
        mu[p.heads[a], p.modifiers[a]] = beliefs[a]
    all_parts.least = least
    if not all_parts.find(&mu[0, 0], tree):
        raise MemoryError
    places, first, second, _, both = arrays(&all_parts.found)
    return places, np.stack([first, second]), both


class Anything:
    """Parts of unknown scores."""

    def __init__(self, size, positions):
        self.bounds, self.factor = PartBounds([], -INFINITY, INFINITY), 1.0
        self.ids = np.zeros((0, positions), np.int32)


def relax_few(FewPairs messages, list separations, double rounds, int iterations, double tolerance,
              bint product, bint cold):
    """Algorithm 1 of Riedel & Smith (2010): solve, add each pair that gains enough, solve again.

    messages : without pairs
    separations : of the same layout
    rounds : float, separations at most
    iterations, tolerance : of a solution
    product : bool, whether the probability of two arcs is the product of beliefs
    cold : bool, whether each solution begins anew

    Returns rounds, solutions, iterations, the largest last change of a belief, and seconds of
    separation without those of scoring; or None where ``FewPairs.run`` does.
    """
    cdef int done, all_done = 0, solutions = 0
    cdef double change, spent = 0.0, start
    cdef Separation each
    cdef Py_ssize_t added, i, r = 0
    cdef TreePairs tree = None if product else messages.tree
    cdef bint fine
    added = 0
    while True:
        with nogil:
            if cold and added:
                messages.reset()
            fine = messages.iterate(iterations, tolerance, &done, &change)
        if not fine:
            return None
        all_done += done
        solutions += 1
        if r >= rounds:
            break
        r += 1
        start = now()
        added = 0
        for each in separations:
            with nogil:
                fine = each.find(messages.mu, tree)
            if not fine:
                raise MemoryError
            each.score()
            with nogil:
                fine = each.choose() and messages.make_room(each.chosen.count)
                for i in range(each.chosen.count if fine else 0):
                    messages.take(each.chosen.of[i].first, each.chosen.of[i].second,
                                  each.chosen.of[i].theta)
            if not fine:
                raise MemoryError
            added += each.chosen.count
        spent += now() - start
        if not added:
            break
    for each in separations:
        spent -= each.seconds
    return r, solutions, all_done, change, spent
