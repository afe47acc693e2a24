"""Which pairs of arcs are worth a factor (Riedel & Smith 2010): candidates and their gains.

Adding a factor of weight theta whose arcs are both true with probability mu moves the distribution
by

    gain = log(1 - mu + mu e^theta) - mu theta                        (eq. 3)  D(without || with)

or, the other way round, theta mu' - log(1 - mu + mu e^theta) with mu' = mu e^theta / (...).
"""
from libc.math cimport INFINITY, NAN, ceil, exp, exp2, expm1, fabs, log, log1p, log2
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

import numpy as np

from cython_ext cimport arborescence, eisner
from cython_ext.batch cimport reserve
from cython_ext.blocks cimport borrow, give_back
from cython_ext.clock cimport now
from cython_ext.features cimport distance_bin
from cython_ext.few_pairs cimport FewPairs
from cython_ext.hashing cimport PREFETCH, mix
from cython_ext.layout cimport GRAND_, SIB_, Layout, Places, checked, find_arc, triangle
from cython_ext.parts cimport PartScorer, Triple
from cython_ext.tree_pairs cimport TreePairs, whole_vectors


cdef extern from "relaxation.h" nogil:
    void worths(const double* low, const double* high, double factor, double eps, bint forward,
                Py_ssize_t n, double* out)
    Py_ssize_t likely_products(double b, const double* mu, double* out, double least,
                               const double* cap, double product, Py_ssize_t first, Py_ssize_t n,
                               int32_t* found)
    void pair_gains(const double* mu, const double* theta, bint forward, Py_ssize_t n, double* x,
                    double* v, double* shift, double* out)
    uint8_t raise_to(const uint8_t* row, const int32_t* which, Py_ssize_t count, uint8_t* most)
    int find_tag(const uint32_t* tags, uint32_t tag)


cdef enum:
    TABLES = 8                           # of bounds, at most
    KINDS = 96                           # of positions, whose worth is kept between sentences
    STEP = 16                            # by so many there is room for more
    VECTORS = 6                          # of numbers of the pairs at work
    WAYS = 8                             # scores that share a line of the cache
    LINE_BITS = 14                       # of the number of lines
    KIND_BITS = 12                       # of that of a kind
    KEY_BITS = 3 * KIND_BITS + 6
    DECISIVE = 3                         # ids that make a kind, at most


cdef struct Bounds:
    int count
    double low, high
    int size[TABLES]
    const float* tables[TABLES]          # (size, size, size, 2)


cdef class PartBounds:
    """Where the scores of a family's parts lie, by what stands at the three positions of each.

    A score is at least and at most the sum of an entry of each table, and of ``low`` and ``high``.

    tables : list of (values, values, values, 2) float32
        Least and largest summand, by the ids of the three positions; the last row stands for all
        ids from its number on.
    low, high : float
        Least and largest sum of all other summands.
    decisive : int
        Ids of a position that decide a score, with the order of the positions and the distance from
        the head to the last: those of the tables first, and others.  At most 3; scores that were
        computed are kept for other sentences.  0: there is more to it.

    Attributes
    ----------
    lowest, highest : float
        No score is outside.
    closed : bool
        Scores that are computed from now on are not kept.
    """

    cdef Bounds tables
    cdef list keep
    cdef dict worths                     # by factor, eps, forward and the shape of the parts
    cdef Known known                     # or None
    cdef readonly double lowest, highest

    def __init__(self, list tables, double low, double high, int decisive=0):
        cdef const float[:, :, :, ::1] triples
        cdef int t
        if len(tables) > TABLES:
            raise ValueError(f"at most {TABLES} tables of bounds, got {len(tables)}")
        if not (decisive == 0 or len(tables) <= decisive <= DECISIVE):
            raise ValueError(f"at most {DECISIVE} decisive ids, those of {len(tables)} tables "
                             f"included, got {decisive}")
        if decisive:
            self.known = Known(decisive)
        self.tables.count, self.tables.low, self.tables.high = len(tables), low, high
        self.lowest, self.highest = low, high
        self.worths = {}
        self.keep = [np.ascontiguousarray(table, np.float32) for table in tables]
        for t in range(self.tables.count):
            triples = table = self.keep[t]
            self.tables.size[t], self.tables.tables[t] = len(table), &triples[0, 0, 0, 0]
            self.lowest += table.min()
            self.highest += table.max()

    @property
    def closed(self):
        return self.known is None or self.known.closed

    @closed.setter
    def closed(self, bint closed):
        if self.known is not None:
            self.known.closed = closed


cdef struct Line:
    uint32_t[WAYS] tags                  # 0: nothing
    float[WAYS] values


cdef class Known:
    """Scores of parts, exactly, by the kinds of their positions, for scores that these decide.

    A kind is a position's ids.  A line holds scores whose keys have the same ``LINE_BITS``, with
    the rest of the key as tag; when it is full, one makes room for the next.  Under the GIL.
    """

    cdef int rows                        # of ids
    cdef void* memory
    cdef Line* lines
    cdef uint64_t* ids                   # (1 << KIND_BITS,) hashed: of a kind, 0: none
    cdef int16_t* number                 # and its number
    cdef list kinds                      # ids of each
    cdef PartScorer scorer               # whose tokens are the kinds, or None
    cdef int encoded                     # so many
    cdef uint32_t turn
    cdef bint closed                     # no more are kept

    def __cinit__(self, int rows):
        self.rows, self.turn, self.closed = rows, 0, False
        self.kinds, self.encoded = [], 0
        self.memory = calloc((1 << LINE_BITS) + 1, sizeof(Line))
        self.ids = <uint64_t*>calloc(1 << KIND_BITS, sizeof(uint64_t))
        self.number = <int16_t*>malloc((1 << KIND_BITS) * sizeof(int16_t))
        if self.memory == NULL or self.ids == NULL or self.number == NULL:
            raise MemoryError
        self.lines = <Line*>((<size_t>self.memory // sizeof(Line) + 1) * sizeof(Line))

    def __dealloc__(self):
        free(self.memory)
        free(self.ids)
        free(self.number)

    cdef int kind(self, const int32_t* ids, Py_ssize_t step) except -2:
        """Of a position; -1: there is no room for one more, or an id is too large."""
        cdef uint64_t all_ids = 1
        cdef int mask = (1 << KIND_BITS) - 1, k
        for k in range(self.rows):
            if not 0 <= ids[k * step] < 1 << 20:
                return -1
            all_ids = all_ids << 20 | <uint64_t>ids[k * step]
        k = <int>mix(all_ids) & mask
        while self.ids[k] and self.ids[k] != all_ids:
            k = (k + 1) & mask
        if self.ids[k] == 0:
            if len(self.kinds) > mask // 2:
                return -1
            self.ids[k], self.number[k] = all_ids, <int16_t>len(self.kinds)
            self.kinds.append([ids[row * step] for row in range(self.rows)])
        return self.number[k]

    cdef PartScorer scorer_of_kinds(self, lazy):
        """None: it is not there."""
        if self.encoded < len(self.kinds):
            make = getattr(lazy.score, "of_tokens", None)
            self.scorer = make(np.array(self.kinds, np.int32)) if make is not None else None
            self.encoded = <int>len(self.kinds)
        return self.scorer

    cdef inline float* find(self, uint64_t key) noexcept nogil:
        """NULL if it is not known."""
        cdef Line* line = self.lines + (key & ((1 << LINE_BITS) - 1))
        cdef int way = find_tag(line.tags, 1 + <uint32_t>(key >> LINE_BITS))
        return line.values + way if way >= 0 else NULL

    cdef void put(self, uint64_t key, float score) noexcept nogil:
        cdef Line* line = self.lines + (key & ((1 << LINE_BITS) - 1))
        cdef int way = find_tag(line.tags, 0)
        if self.closed:
            return
        if way < 0:
            way = self.turn % WAYS
            self.turn += 1
        line.tags[way], line.values[way] = 1 + <uint32_t>(key >> LINE_BITS), score


cdef inline uint64_t key_of(const Triple* part, bint sib, const int32_t* kind) noexcept nogil:
    """What decides a part's score; 0: not all is known.  As ``add_hashes`` of parts.pyx.

    Mixed so that all of it decides the lowest bits; no two parts' are the same.
    """
    cdef int x = kind[part.x], y = kind[part.y], z = kind[part.z], low, high, order, far
    cdef uint64_t key, mask = (<uint64_t>1 << KEY_BITS) - 1
    if (x | y | z) < 0:
        return 0
    if sib:
        low, high = min(part.y, part.z), max(part.y, part.z)
        order, far = (part.x < low) | (part.x < high) << 1, part.x - part.z
    else:
        order = (part.x < part.y) | (part.y < part.z) << 1 | (part.x < part.z) << 2
        far = part.y - part.z
    key = <uint64_t>((x << KIND_BITS | y)) << KIND_BITS | <uint64_t>z
    key = key << 6 | <uint64_t>(order << 3 | (1 + distance_bin(far if far > 0 else -far)))
    key = (key * <uint64_t>0x9E3779B97F4A7C15) & mask
    key = ((key ^ key >> 21) * <uint64_t>0xBF58476D1CE4E5B9) & mask
    return key ^ key >> 21


cdef class Worths:
    """At least gain / mu of parts, by the kinds of their positions: what the tables tell apart.

    It is 0 if no mu makes a part gain more than eps.  For a theta from low to high:

        gain <= theta^2 / 8,    gain <= mu (e^theta - 1 - theta),    forward gain <= mu |t| e^|t|

    where e^-y >= 1 - y + y^2 / 2 - y^3 / 6 for y = theta / 8 > 0 bounds e^theta, for theta up to 1
    e^theta - 1 - theta <= theta^2 (1/2 + (e - 5/2) theta), and for theta = -y < 0 it is at most
    y^2 / 2 - y^3 / 6 + y^4 / 24 and y.

    Kinds are added as sentences bring them, up to ``room``, O(kinds^2) each, under the GIL; what is
    there never changes.  Of each part a byte, from which ``size_of`` has the number, up to a tenth
    larger.
    """

    cdef PartBounds bounds
    cdef double factor, eps
    cdef bint forward, sib
    cdef int room, count
    cdef int32_t* ids                    # (room, TABLES)
    cdef int16_t* of_known               # (1 << KIND_BITS,) 1 + the kind of each of ``Known``
    cdef uint8_t* worth                  # (room, room, room)
    cdef double[256] size_of
    cdef double* low                     # (3, room)

    def __cinit__(self, PartBounds bounds, double factor, double eps, bint forward, bint sib,
                  int room):
        self.bounds, self.factor, self.eps = bounds, factor, eps
        self.forward, self.sib, self.room, self.count = forward, sib, (room + 3) // 4 * 4, 0
        room = self.room
        self.worth = <uint8_t*>malloc(<size_t>room * room * room)
        self.low = <double*>malloc(3 * room * sizeof(double))
        self.ids = <int32_t*>malloc(room * TABLES * sizeof(int32_t))
        self.of_known = <int16_t*>calloc(1 << KIND_BITS, sizeof(int16_t))
        if self.worth == NULL or self.low == NULL or self.ids == NULL or self.of_known == NULL:
            raise MemoryError
        self.size_of[0], self.size_of[255] = 0.0, INFINITY
        for room in range(1, 255):
            self.size_of[room] = exp2((room - 128) / 8.0)

    def __dealloc__(self):
        free(self.worth)
        free(self.low)
        free(self.ids)
        free(self.of_known)

    cdef int kind(self, const int32_t* ids, Py_ssize_t step):
        """Of a position with so many ids, ``step`` apart; -1: there is no room for one more."""
        cdef int count = self.bounds.tables.count, k, t
        cdef int32_t* own
        for k in range(self.count):
            t = 0
            while t < count and self.ids[k * TABLES + t] == min(
                    ids[t * step], self.bounds.tables.size[t] - 1):
                t += 1
            if t == count:
                return k
        if self.count == self.room:
            return -1
        own = self.ids + self.count * TABLES
        for t in range(count):
            own[t] = min(ids[t * step], self.bounds.tables.size[t] - 1)
        self.count += 1
        for k in range(self.count):
            for t in range(self.count):
                if k == self.count - 1 or t == self.count - 1:
                    self.fill(k, t, 0)
                else:
                    self.fill(k, t, self.count - 1)
        return self.count - 1

    cdef void fill(self, int i, int j, int start) noexcept nogil:
        """Parts of kinds i, j and those from ``start`` on."""
        cdef const Bounds* b = &self.bounds.tables
        cdef const float* row
        cdef const int32_t* ids
        cdef double* low = self.low
        cdef double* high = low + self.room
        cdef double* out = high + self.room
        cdef int k, t, length = self.count - start, room = self.room
        for k in range((length + 3) // 4 * 4):
            low[k], high[k] = b.low, b.high
        for t in range(b.count):
            ids = self.ids + t
            row = b.tables[t] + 2 * b.size[t] * (
                <Py_ssize_t>ids[i * TABLES] * b.size[t] + ids[j * TABLES])
            for k in range(length):
                low[k] += row[2 * ids[(start + k) * TABLES]]
                high[k] += row[2 * ids[(start + k) * TABLES] + 1]
        worths(low, high, self.factor, self.eps, self.forward, length, out)
        for k in range(length):
            out[k] *= 1.000001                   # for rounding
            self.worth[(i * room + j) * room + start + k] = self.code(out[k])


    cdef uint8_t code(self, double worth) noexcept nogil:
        cdef int code
        if worth <= 0.0:
            return 0
        if not worth < self.size_of[254]:
            return 255
        code = max(1, <int>ceil(128.0 + 8.0 * log2(max(worth, self.size_of[1]))))
        return <uint8_t>(code + (self.size_of[code] < worth))

    cdef Worths larger(self):
        """The same with more room."""
        cdef int k
        cdef Worths out = Worths(self.bounds, self.factor, self.eps, self.forward, self.sib,
                                 self.room + STEP)
        for k in range(self.count):
            out.kind(self.ids + k * TABLES, 1)
        return out


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


def gains(const double[::1] mu, const double[::1] theta, bint forward):
    """Gain of each factor, (k,) float64, never below 0.  ``forward``: D(with || without)."""
    cdef Py_ssize_t i
    array = np.empty(mu.shape[0])
    cdef double[::1] out = array
    for i in range(mu.shape[0]):
        out[i] = gain_of(mu[i], theta[i], forward)
    return array


cdef double most_gain(double low, double high, bint forward) noexcept nogil:
    """One of them, with eps = 0."""
    cdef double[4] lows, highs, out
    cdef int i
    for i in range(4):
        lows[i], highs[i] = low, high
    worths(lows, highs, 1.0, 0.0, forward, 1, out)
    return out[0]


def most_gains(const double[::1] low, const double[::1] high, double eps, bint forward):
    """What ``Worths`` hold of scores from low to high, (k,) float64: at least gain / mu."""
    cdef Py_ssize_t count = low.shape[0], i
    padded = np.zeros((3, (count + 4) // 4 * 4))
    cdef double[:, ::1] rows = padded
    for i in range(count):
        rows[0, i], rows[1, i] = low[i], high[i]
    worths(&rows[0, 0], &rows[1, 0], 1.0, eps, forward, count, &rows[2, 0])
    return padded[2, :count]


cdef struct Found:
    int64_t place
    int32_t first
    int32_t second
    Triple at
    double mu                            # that both arcs are true
    double theta                         # the score
    double x                             # e^theta, of what was chosen


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
    cdef PartScorer scorer               # of it, or None: not yet, or it is asked in Python
    cdef Known known                     # or None
    cdef int32_t* known_kind             # (n+1,) of positions
    cdef double factor                   # of the scores that it gives
    cdef object keep
    cdef Worths worths                   # or None
    cdef int32_t* kind                   # (n+1,) of positions
    cdef Py_ssize_t stride
    cdef void* block                     # all that follows up to `taken`, and its size
    cdef size_t block_size
    cdef double* caps                    # (n+1, stride) at least gain / mu of parts with an arc in
    cdef double* caps_above              # the second place, and in the first
    cdef double* joint                   # (stride,) of a row of pairs
    cdef int32_t* number                 # (n+1, stride) of arcs
    cdef int32_t* likely                 # (stride,)
    cdef int32_t* rows                   # (arcs,)
    cdef uint8_t* taken                  # (parts,)
    cdef List found                      # of this round, in the order of parts, and of the last
    cdef List last
    cdef List chosen
    cdef Py_ssize_t room                 # of the next two
    cdef double* numbers                 # (VECTORS, room)
    cdef uint64_t* keys                  # (room,)
    cdef Triple* asked                   # (room,)

    def __cinit__(self):
        self.block = NULL
        self.numbers = NULL
        self.asked = NULL
        self.keys = NULL
        self.room = 0
        memset(&self.found, 0, sizeof(List))
        memset(&self.last, 0, sizeof(List))
        memset(&self.chosen, 0, sizeof(List))

    def __init__(self, Layout layout, int family, scores, double eps, bint forward,
                 bint projective, bint one_root):
        cdef Places* p = &layout.places
        cdef Py_ssize_t size, i
        cdef size_t cleared
        cdef const double[::1] values
        cdef double low, high, most
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
            self.factor = 1.0
        else:
            self.lazy, self.factor = scores, scores.factor
            bounds = self.keep = scores.bounds
            self.known = bounds.known
            low, high = self.factor * bounds.lowest, self.factor * bounds.highest
        most = most_gain(low, high, forward)
        self.least = eps / most if most > 0.0 else 0.0
        size = (p.n + 1) * self.stride
        cleared = (2 * size + self.stride + 4) * sizeof(double) + self.size + 8
        self.block = borrow(cleared + (size + 3 * self.stride + p.arcs + 1) * sizeof(int32_t),
                            &self.block_size)
        memset(self.block, 0, cleared)
        self.caps = whole_vectors(<double*>self.block)
        self.caps_above, self.joint = self.caps + size, self.caps + 2 * size
        self.taken = <uint8_t*>(<double*>self.block + 2 * size + self.stride + 4)
        self.number = <int32_t*>(self.taken + (self.size + 7) // 8 * 8)
        self.likely, self.kind = self.number + size, self.number + size + self.stride
        self.known_kind = self.kind + self.stride
        self.rows = self.known_kind + self.stride
        for a in range(p.arcs):
            self.number[p.heads[a] * self.stride + p.modifiers[a]] = a
        if self.lazy is not None:
            self.find_kinds(bounds, scores.ids)
            self.fill_caps()
        else:
            for i in range(2 * size):
                self.caps[i] = INFINITY

    def __dealloc__(self):
        give_back(self.block, self.block_size)
        free(self.numbers)
        free(self.asked)
        free(self.keys)
        free(self.found.of)
        free(self.last.of)
        free(self.chosen.of)

    cdef int find_kinds(self, PartBounds bounds, const int32_t[:, ::1] ids) except -1:
        """The kinds of positions, and what parts of them may gain."""
        cdef int n = self.p.n, count = bounds.tables.count, i = 0, k
        cdef const int32_t* of_root = NULL
        cdef bint shared = True
        kind = self.factor, self.eps, self.forward, self.sib
        if ids.shape[0] != max(count, bounds.known.rows if bounds.known else 0) or (
                ids.shape[1] != n + 1):
            raise ValueError(f"{count} tables of bounds and {n + 1} positions have {ids.shape[0]} "
                             f"rows of {ids.shape[1]} ids")
        if ids.shape[0]:
            of_root = &ids[0, 0]
        self.worths = bounds.worths.get(kind)
        if self.worths is None:
            self.worths = bounds.worths[kind] = Worths(bounds, *kind, STEP)
        while i <= n:
            k = self.known.kind(of_root + i, n + 1) if self.known is not None else -1
            self.known_kind[i] = k
            if k >= 0 and self.worths.of_known[k]:
                self.kind[i] = self.worths.of_known[k] - 1
            else:
                self.kind[i] = self.worths.kind(of_root + i, n + 1)
                if self.kind[i] >= 0 and k >= 0:
                    self.worths.of_known[k] = <int16_t>(self.kind[i] + 1)
            i += 1
            if self.kind[i - 1] < 0:
                i = 0
                if shared and self.worths.room >= KINDS:     # the sentence's own kinds alone
                    shared, self.worths = False, Worths(bounds, *kind, min(n + 1, <int>KINDS))
                else:
                    self.worths = self.worths.larger()
                if shared:
                    bounds.worths[kind] = self.worths
        return 0

    cdef int fill_caps(self) except -1:
        """The most that parts are worth, of those that the sentence has, by two of their kinds.

        O(n^2 + kinds^3), of the sentence.
        """
        cdef Py_ssize_t room = self.worths.room, s = self.stride, size, count = 0, x, y, i
        cdef int n = self.p.n, h, m
        cdef uint8_t* second
        cdef uint8_t* first
        cdef int32_t* kinds
        cdef int32_t* place                       # of a kind among those of the sentence
        size = n + 2
        kinds = <int32_t*>malloc((2 * size + room) * sizeof(int32_t))
        second = <uint8_t*>calloc(2 * size, size)
        if kinds == NULL or second == NULL:
            free(kinds)
            free(second)
            raise MemoryError
        first, place = second + size * size, kinds + size
        for i in range(room):
            place[i] = -1
        for i in range(1, n + 1):
            if place[self.kind[i]] < 0:
                place[self.kind[i]] = <int32_t>count
                kinds[count] = self.kind[i]
                count += 1
        kinds[count] = self.kind[0]               # the root is above only
        for x in range(count + 1):
            for y in range(count):
                i = x if self.sib else y
                first[x * size + y] = raise_to(
                    self.worths.worth + (kinds[x] * room + kinds[y]) * room, kinds, count,
                    second + i * size)
        for h in range(n + 1):
            x = place[self.kind[h]] if h else count
            for m in range(1, n + 1):
                y = place[self.kind[m]]
                self.caps_above[h * s + m] = self.worths.size_of[first[x * size + y]]
                self.caps[h * s + m] = self.worths.size_of[
                    max(second[x * size + y], first[x * size + y] if self.sib else 0)]
        free(kinds)
        free(second)
        return 0

    cdef bint make_numbers(self, Py_ssize_t count) noexcept nogil:
        """Room for so many pairs at work."""
        cdef Py_ssize_t room
        cdef bint fine
        if count + 4 <= self.room:
            return True
        free(self.numbers)
        free(self.asked)
        free(self.keys)
        room = (2 * count + 8) // 4 * 4
        self.numbers = <double*>malloc(VECTORS * room * sizeof(double))
        self.asked = <Triple*>malloc(room * sizeof(Triple))
        self.keys = <uint64_t*>malloc(room * sizeof(uint64_t))
        fine = self.numbers != NULL and self.asked != NULL and self.keys != NULL
        self.room = room if fine else 0
        return fine

    cdef void add(self, int a, int c, double mu) noexcept nogil:
        """A pair of arcs to those found: of two siblings the second is left of the first."""
        cdef Places* p = self.p
        cdef Found* pair = self.found.of + self.found.count
        cdef int h = p.heads[a], m = p.modifiers[a], k = p.modifiers[c]
        pair.first, pair.second, pair.mu, pair.at.x = a, c, mu, h
        if not self.sib:
            pair.at.y, pair.at.z = m, k
            pair.place = p.grand[a] + p.rank[c]
        else:
            # On one side of the head the nearer one comes first.
            pair.at.y, pair.at.z = (k, m) if m > h else (m, k)
            pair.place = p.sib[h] + triangle(p.rank[a]) + p.rank[c]
        self.found.count += 1

    cdef inline bint possible(self, int h, int m, int k, double mu) noexcept nogil:
        """Whether the score's bounds let h -> m gain more than eps with h -> k, or with m -> k."""
        cdef const int32_t* kind = self.kind
        cdef Py_ssize_t room
        if self.worths is None:
            return True
        room = self.worths.room
        if self.sib and m > h:
            m, k = k, m
        return mu * self.worths.size_of[
            self.worths.worth[(kind[h] * room + kind[m]) * room + kind[k]]] > self.eps

    cdef bint keep_possible(self) noexcept nogil:
        """Of those found, what is not taken and whose score, if it is there, may gain enough."""
        cdef Py_ssize_t count = self.found.count, kept = 0, i
        cdef double* theta
        cdef double* most
        cdef Found* pair
        if self.scores == NULL:
            for i in range(count):
                if not self.taken[self.found.of[i].place]:
                    if kept < i:
                        self.found.of[kept] = self.found.of[i]
                    kept += 1
            self.found.count = kept
            return True
        if not self.make_numbers(count):
            return False
        theta, most = self.numbers, self.numbers + self.room
        for i in range(count):
            theta[i] = self.scores[self.found.of[i].place]
        for i in range(count, (count + 3) // 4 * 4):
            theta[i] = 0.0
        worths(theta, theta, 1.0, self.eps, self.forward, count, most)
        for i in range(count):
            pair = self.found.of + i
            self.found.of[kept] = pair[0]
            kept += pair.mu * most[i] > self.eps and not self.taken[pair.place]
        self.found.count = kept
        return True

    cdef Py_ssize_t likely_arcs(self, const double* mu) noexcept nogil:
        """``rows``: arcs, as the first of two, whose parts may gain more than eps, in order."""
        cdef Places* p = self.p
        cdef Py_ssize_t count = 0, at
        cdef const double* caps = self.caps if self.sib else self.caps_above
        cdef int i, a, start = p.first[1] if self.sib and self.one_root else 0
        for i in range(start, p.arcs):
            a = p.children[i] if self.sib else i         # in the order of the parts
            at = p.heads[a] * self.stride + p.modifiers[a]
            self.rows[count] = a
            count += (mu[at] > self.least) & (mu[at] * caps[at] > self.eps)
        return count

    cdef bint find(self, const double* mu, TreePairs tree) noexcept nogil:
        """The parts that may gain more than eps, by beliefs ``mu`` (n+1, stride); False: no memory.

        ``tree`` has the probability of two arcs; without it, it is the product of beliefs, within
        the bounds that these put on it.
        """
        cdef Places* p = self.p
        cdef Py_ssize_t s = self.stride, i, live, j
        cdef double cap, least
        cdef const double* caps
        cdef int a, h, m, k, head, end
        self.found.count = 0
        for i in range(self.likely_arcs(mu)):
            a = self.rows[i]
            h, m = p.heads[a], p.modifiers[a]
            # SIB: a and a child before it.  GRAND: a and a child of its modifier.
            head, end = h if self.sib else m, m if self.sib else p.n + 1
            cap = (self.caps if self.sib else self.caps_above)[h * s + m]
            caps, least = self.caps + head * s, max(self.least, self.eps / cap)
            if tree is not None:
                live = tree.above(h, m, head, self.joint, least, caps, self.eps, 1, end,
                                  self.likely)
            else:
                live = likely_products(mu[h * s + m], mu + head * s, self.joint, least, caps,
                                       self.eps, 1, end, self.likely)
            if live == 0:
                continue
            if not make_room(&self.found, live):
                return False
            for j in range(live):
                k = self.likely[j]
                if not self.sib and (k == h or (self.projective and (m < h < k or k < h < m))):
                    continue
                if self.possible(h, m, k, self.joint[k]):
                    self.add(a, self.number[head * s + k], self.joint[k])
        return self.keep_possible()

    cdef int score(self) except -1:
        """Scores of what was found; those of the last round are at hand."""
        cdef Py_ssize_t i, j = 0, count = 0
        cdef List* found = &self.found
        cdef const float* score
        cdef double* values
        cdef double start
        if self.scores != NULL:
            for i in range(found.count):
                found.of[i].theta = self.scores[found.of[i].place]
            return 0
        if not self.make_numbers(found.count):
            raise MemoryError
        start = now()
        for i in range(found.count):
            while j < self.last.count and self.last.of[j].place < found.of[i].place:
                j += 1
            if j < self.last.count and self.last.of[j].place == found.of[i].place:
                found.of[i].theta = self.last.of[j].theta
                continue
            found.of[i].theta = NAN
            self.scored += 1
            if self.known is not None:
                self.keys[i] = key_of(&found.of[i].at, self.sib, self.known_kind)
                PREFETCH(self.known.lines + (self.keys[i] & ((1 << LINE_BITS) - 1)))
        for i in range(found.count):
            if found.of[i].theta == found.of[i].theta:
                continue
            if self.known is not None and self.keys[i]:
                score = self.known.find(self.keys[i])
                if score != NULL:
                    found.of[i].theta = self.factor * score[0]
                    continue
            self.asked[count] = found.of[i].at
            count += 1
        if count:
            self.ask(count)
            values = self.numbers
            count = 0
            for i in range(found.count):
                if found.of[i].theta != found.of[i].theta:
                    found.of[i].theta = self.factor * values[count]
                    if self.known is not None and self.keys[i]:
                        self.known.put(self.keys[i], <float>values[count])
                    count += 1
        self.seconds += now() - start
        return 0

    cdef int ask(self, Py_ssize_t count) except -1:
        """``numbers``: scores, without the factor, of what was asked, which has no theta yet."""
        cdef int64_t[::1] places
        cdef const double[::1] values
        cdef PartScorer scorer = None
        cdef Py_ssize_t i, k = 0
        cdef bint fine = True
        if self.known is not None:
            for i in range(self.p.n + 1):
                fine &= self.known_kind[i] >= 0
            if fine:
                scorer = self.known.scorer_of_kinds(self.lazy)
            if scorer is not None:
                with nogil:
                    fine = scorer.score(self.asked, count, self.numbers, self.known_kind)
                if not fine:
                    raise MemoryError
                return 0
        if self.scorer is None:
            scorer = getattr(self.lazy.score, "scorer", None)
            if type(scorer) is PartScorer:
                self.scorer = scorer
        if self.scorer is not None:
            with nogil:
                fine = self.scorer.score(self.asked, count, self.numbers)
            if not fine:
                raise MemoryError
            return 0
        array = np.empty(count, np.int64)
        places = array
        for i in range(self.found.count):
            if self.found.of[i].theta != self.found.of[i].theta:
                places[k] = self.found.of[i].place
                k += 1
        values = self.lazy.score(array)
        for i in range(count):
            self.numbers[i] = values[i]
        return 0

    cdef bint choose(self) noexcept nogil:
        """Those found that gain more than eps; they count as taken.  False: no memory."""
        cdef Py_ssize_t count = self.found.count, room, i
        cdef double* mu
        cdef double* theta
        cdef double* x
        cdef double* gain
        cdef Found* pair
        cdef bint worthwhile
        self.chosen.count = 0
        if not (make_room(&self.chosen, count + 1) and self.make_numbers(count)):
            return False
        room = self.room
        mu, theta, x, gain = (self.numbers, self.numbers + room, self.numbers + 2 * room,
                              self.numbers + 5 * room)
        for i in range(count):
            mu[i], theta[i] = self.found.of[i].mu, self.found.of[i].theta
        for i in range(count, (count + 3) // 4 * 4):
            mu[i] = theta[i] = 0.0
        pair_gains(mu, theta, self.forward, (count + 3) // 4 * 4, x, x + room, x + 2 * room, gain)
        for i in range(count):
            pair = self.found.of + i
            worthwhile = gain[i] > self.eps
            if not (fabs(theta[i]) <= 30.0 and fabs(gain[i] - self.eps) > 1e-12):
                x[i] = exp(theta[i])
                worthwhile = gain_of(mu[i], theta[i], self.forward) > self.eps
            self.taken[pair.place] |= worthwhile
            self.chosen.of[self.chosen.count] = pair[0]
            self.chosen.of[self.chosen.count].x = x[i]
            self.chosen.count += worthwhile
        self.added += self.chosen.count
        self.found, self.last = self.last, self.found
        return True

    cdef bint find_fired(self, const int* heads) noexcept nogil:
        """The parts of a tree; False: no memory."""
        cdef Places* p = self.p
        cdef Py_ssize_t s = self.stride
        cdef int m, k, h
        self.found.count = 0
        for m in range(1, p.n + 1):
            h = heads[m]
            if not make_room(&self.found, p.n):
                return False
            if not self.sib:
                if h:
                    self.add(self.number[heads[h] * s + h], self.number[h * s + m], 1.0)
                continue
            for k in range(1, m):
                if heads[k] == h:
                    self.add(self.number[h * s + m], self.number[h * s + k], 1.0)
        return True

    cdef double of_tree(self, const int* heads) except? -1.0:
        """The score of a tree's parts."""
        cdef Py_ssize_t i, scored = self.scored
        cdef double total = 0.0, seconds = self.seconds
        if not self.find_fired(heads):
            raise MemoryError
        self.last.count = 0                      # not sorted by place
        self.score()
        for i in range(self.found.count):
            total += self.found.of[i].theta
        self.scored, self.seconds = scored, seconds
        return total

    def separate(self, const int64_t[::1] places, const int32_t[:, :] arcs, const double[::1] mu):
        """Those of some parts, by place, that gain more than eps; from now on they are taken.

        arcs: (2, k) as of ``candidates``; mu: (k,) probability that both are true.

        Returns places (k,) int64, first and second arcs (k,) int32, scores (k,) float64.
        """
        cdef Places* p = self.p
        cdef Py_ssize_t i
        cdef int a, c
        self.found.count = 0
        if not make_room(&self.found, places.shape[0]):
            raise MemoryError
        for i in range(places.shape[0]):
            a, c = arcs[0, i], arcs[1, i]
            if self.possible(p.heads[a], p.modifiers[a], p.modifiers[c], mu[i]):
                self.add(a, c, mu[i])
        if not self.keep_possible():
            raise MemoryError
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
        self.ids, self.score = np.zeros((0, positions), np.int32), None


def relax_few(Layout layout, const double[::1] scores, grand, sib, bint projective,
              bint single_root, double rounds, double eps, bint forward, bint product, bint cold,
              int iterations, double damping, double tolerance, int trees):
    """Algorithm 1 of Riedel & Smith (2010): solve, add each pair that gains enough, solve again.

    layout, scores, projective, single_root : as for ``FewPairs``
    grand, sib : as for ``Separation``, or None
    rounds : float, separations at most
    eps, forward : of the gain
    product : bool, whether the probability of two arcs is the product of beliefs
    cold : bool, whether each solution begins anew
    iterations, damping, tolerance : of a solution
    trees : whether the tree of most expected correct heads is projective; -1: it is not wanted

    Returns the messages; heads (n+1,) int32 and their score, or None and 0; beliefs (arcs,);
    iterations; the largest last change of a belief; (rounds, solutions, parts added, in all, and
    scored); and seconds of (pairs, tree factor, separation, scoring, decoding).  Or None,
    where ``FewPairs.run`` has that, or there is no tree to decode.
    """
    cdef FewPairs messages = FewPairs(layout, scores, projective, single_root)
    cdef Separation each
    cdef TreePairs tree = None if product else messages.tree
    cdef int done, all_done = 0, solutions = 0
    cdef double change, spent = 0.0, start, value = 0.0, decoding = 0.0, scoring = 0.0
    cdef Py_ssize_t added = 0, i, r = 0, all_added = 0, total = 0, scored = 0
    cdef bint fine
    cdef double[::1] out
    cdef int[::1] tree_heads
    separations = {
        family: Separation(layout, family, parts, eps, forward, projective, single_root)
        for family, parts in ((GRAND_, grand), (SIB_, sib)) if parts is not None}
    while True:
        with nogil:
            if cold and added:
                messages.reset()
            fine = messages.iterate(iterations, damping, tolerance, &done, &change)
        if not fine:
            return None
        all_done += done
        solutions += 1
        if r >= rounds:
            break
        r += 1
        start = now()
        added = 0
        for each in separations.values():
            with nogil:
                fine = each.find(messages.mu, tree)
            if not fine:
                raise MemoryError
            each.score()
            with nogil:
                fine = each.choose() and messages.make_room(each.chosen.count)
                for i in range(each.chosen.count if fine else 0):
                    messages.take(each.chosen.of[i].first, each.chosen.of[i].second,
                                  each.chosen.of[i].theta, each.chosen.of[i].x)
            if not fine:
                raise MemoryError
            added += each.chosen.count
        spent += now() - start
        if not added:
            break
    start = now()
    heads = None
    if trees >= 0:
        heads = np.empty(layout.places.n + 1, np.int32)
        tree_heads = heads
        if not decode(messages, trees, &tree_heads[0]):
            return None
        for i in range(1, layout.places.n + 1):
            value += scores[find_arc(&layout.places, tree_heads[i], <int>i)]
        for each in separations.values():
            value += each.of_tree(&tree_heads[0])
    marginals = np.empty(layout.places.arcs)
    out = marginals
    messages.beliefs(out)
    for each in separations.values():
        all_added += each.added
        total += each.size
        scored += each.scored
        scoring += each.seconds
    decoding = now() - start
    return (messages, heads, value, marginals, all_done, change,
            (r, solutions, all_added, total, scored),
            (messages.spent[0], messages.spent[1], spent - scoring, scoring, decoding))


cdef bint decode(FewPairs messages, bint projective, int* heads) except -1:
    """The tree of most expected correct heads; False: there is none."""
    cdef Py_ssize_t n = messages.p.n, s = messages.stride, i
    cdef Places* p = messages.p
    cdef double* weights = messages.old
    cdef double best
    cdef int a
    cdef void* scratch = malloc(max(arborescence.scratch_bytes(n), eisner.scratch_bytes(n)))
    if scratch == NULL:
        raise MemoryError
    with nogil:
        for i in range((n + 1) * s):
            weights[i] = -INFINITY
        for a in range(p.arcs):
            i = p.heads[a] * s + p.modifiers[a]
            weights[i] = min(1.0, max(0.0, messages.mu[i]))
        if projective:
            best = eisner.decode(weights, s, n, messages.single_root, heads, scratch)
        else:
            best = arborescence.decode(weights, s, n, messages.single_root, heads, scratch)
        heads[0] = -1
        free(scratch)
    return best > -INFINITY
