"""Loopy belief propagation over arcs (Smith & Eisner 2008).

Variables are the candidate arcs.  fam[F][a] is what all factors of family F say about arc a, in
log-odds, and

    tot[a] = score[a] + sum_F fam[F][a]            its belief is sigmoid(tot[a])
    kap    = tot[a] - lam                          to a factor that says lam   (eq. 3)

A pass over a family reads ``tot`` and the family's own messages, and writes both anew.  The families,
with the time of a pass:

    GRAND, SIB      pairs in rows (an arc, and a run of others)         O(parts)
    PAIRS           pairs of any two arcs, NOT2 and NO2CYCLE too        O(pairs)
    CHILDSEQ        forward-backward on each side of each head          O(parts)
    NOCROSS         two words, by prefix sums                           O(n arcs)
    UNARY           EXACTLY1 or ATMOST1                                 O(arcs)
    TREE            matrix-tree theorem or inside-outside               O(n^3)

Where it can, a pass over rows, pairs, and CHILDSEQ stays in the domain of odds, without exp or log
but for two of each arc: with |theta| <= 50 and at most 600 in sum for each arc no product leaves the
range, and odds beyond e^+-150 are as good as certain.  Otherwise, with damping of log-odds, and for
max-product, it goes by log-odds.
"""
from libc.math cimport INFINITY, NAN, exp, fabs, log, log1p
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

import numpy as np

from cython_ext cimport arborescence, eisner, matrix_tree
from cython_ext.blocks cimport borrow, give_back
from cython_ext.clock cimport now
from cython_ext.elimination cimport PANEL, adjoint_weights, eliminate_weights, log_choices
from cython_ext.layout cimport Layout, Places, checked, side_count, sided_arc, triangle
from cython_ext.propagators cimport (
    CAP, Chain, Word, add_prefix, chain_beliefs, crossing_of, crossing_sums, exactly_one,
    expected_crossing, odds_of_pair, pair_message, pair_total, run_chain, run_heads, run_joined,
    sigmoid, with_false,
)
from cython_ext.semiring cimport (
    LOG, MAX, add_sizes, exponentials, largest_change, logarithms, plus,
)
from cython_ext.spans cimport span_room, span_sums, stands

cdef extern from "messages.h" nogil:
    double largest_size(const double* x, Py_ssize_t n)
    ctypedef struct row_t:
        int place
        int first
        int count
        int low
        int high
        int64_t start
        int64_t at
    void pair_rows(const row_t* rows, Py_ssize_t count, bint first, const double* theta,
                   double scale, double old, const double* T, double* x, double* to_one,
                   double* to_run, double* P)
    void weights_of(const double* x, double scale, Py_ssize_t n, double* out)
    void weights_of_sides(const double** theta, const int* count, double scale, double* x)
    void to_weights(double* x, double scale, Py_ssize_t n)
    void odds_at(const double* x, const int32_t* at, double range, Py_ssize_t n, double* out)
    double chain_messages(double most, const double* w, const double* q, Py_ssize_t k,
                          double* alpha, double* enter, double* beta, double* lam)
    Py_ssize_t whole_groups(Py_ssize_t n)
    ctypedef struct crossing_word:
        int position
        int count
        const int32_t* heads
        const int32_t* before
        const double* T
        double* P
    void crossing_messages(const crossing_word* a, const crossing_word* b, double x, double* lam,
                           double* scratch, Py_ssize_t size)
    double tree_inputs(const double* tot, const double* fam, const int32_t* offsets,
                       Py_ssize_t words, double* E, double* shift)
    void tree_rests(const double* E, const double* A, const int32_t* offsets, Py_ssize_t words,
                    double* rest)
    void tree_messages(const double* A, double* rest, const double* shift, double cap,
                       Py_ssize_t n, double* lam)
    void sigmoids(const double* x, double range, Py_ssize_t n, double* out)
    void add_families(const double* base, double** families, int count, Py_ssize_t n, double* sum)
    enum: LANES

cdef enum:
    GRAND_ROWS = 0
    SIB_ROWS = 1
    PAIRS = 2
    CHAINS = 3
    CROSSINGS = 4
    UNARY = 5
    TREE_ = 6
    N_KINDS = 7

cdef enum:
    NONE_ = 0
    BY_MATRIX_TREE = 1
    BY_INSIDE_OUTSIDE = 2
    EXACTLY1_ = 3
    ATMOST1_ = 4

cdef enum:
    SERIAL_ = 0
    PARALLEL_ = 1
    RESIDUAL_ = 2

cdef enum:
    BELIEFS_ = 0
    LOG_ODDS_ = 1
    INTO_TREE_ = 2

NONE, TREE, PTREE = NONE_, BY_MATRIX_TREE, BY_INSIDE_OUTSIDE       # `constraint`
EXACTLY1, ATMOST1 = EXACTLY1_, ATMOST1_
SERIAL, PARALLEL, RESIDUAL = SERIAL_, PARALLEL_, RESIDUAL_         # `schedule`
BELIEFS, LOG_ODDS, INTO_TREE = BELIEFS_, LOG_ODDS_, INTO_TREE_     # `by`
TIMES = ("grand", "sib", "pair", "childseq", "nocross", "unary", "tree")

cdef double RANGE = 150.0        # of log-odds in rows
cdef double WHOLE = 700.0        # of log-odds in beliefs
cdef double STRONGEST = 50.0     # |theta| of a pair, and the sum of an arc's, in the odds domain
cdef double STRONGEST_SUM = 600.0
cdef double STRONGEST_CHAIN = 16.0   # a third: three scores make a message
cdef double WIDEST = 300.0       # range of what a word says to the tree factor, in its scaled form
cdef double LEAST = 2e-16        # as in matrix_tree.pyx


cdef inline void blend(double* lam, const double* new, int count, double damping) noexcept nogil:
    """Messages as they are and as they should be, damped."""
    cdef int k
    for k in range(count):
        lam[k] += (1.0 - damping) * (new[k] - lam[k])


cdef inline double next_message(double lam, double new, double damping, double old) noexcept nogil:
    """Of a pair: damped in log-odds, or as odds with a share ``old`` of the old."""
    if old > 0.0:
        return plus(log(old) + lam, log1p(-old) + new, LOG)
    return lam + (1.0 - damping) * (new - lam)


cdef struct Rows:
    int kind
    int count
    row_t* row
    const double* theta          # (parts,) as given
    int64_t parts
    double strength              # max |theta|, scaled
    bint fresh                   # no messages yet, which is as if all were of no weight; for odds
    bint odds                    # the domain of the three below
    double* x                    # (parts,) e^theta or theta; 1 or 0 where there is no factor
    double* to_one               # (parts,) messages: odds, or log-odds
    double* to_run


cdef struct Side:                # of a head, for CHILDSEQ
    int head
    int right
    int count


cdef class BeliefPropagation:
    """The messages of one sentence.

    layout : Layout
    scores : (arcs,) float64, finite
    grand, sib, childseq, nocross : (parts,) float64, finite, or None
    first, second : (pairs,) int32 arcs of pairs, and theta (pairs,) float64, -inf: not both
    constraint : NONE, TREE, PTREE, EXACTLY1 or ATMOST1
    single_root : bool, of TREE and PTREE
    joined : bool, whether EXACTLY1 of both words is part of each NOCROSS factor
    maximise : bool, max-product instead of sum-product
    by_logs : bool, all messages by log-odds: wanted for damping and ``take_messages``
    scale : float, of the scores, but for ``theta`` of pairs

    Memory: 24 bytes for each part of GRAND and SIB, 16 for CHILDSEQ, 8 (n - 1) arcs with NOCROSS.
    """

    cdef Layout layout
    cdef Places* p
    cdef object keep
    cdef double scale
    cdef const double* score             # as given, and the next two
    cdef const double* childseq
    cdef const double* nocross
    cdef Py_ssize_t n_pairs
    cdef int32_t* first                  # (pairs,) and the next three
    cdef int32_t* second
    cdef double* theta
    cdef double* to_first                # messages
    cdef double* to_second
    cdef double old_share                # of a message in the next one, as odds; 0: see `run`
    cdef bint pair_odds                  # their domain, and (pairs,) e^theta for odds
    cdef double* pair_x
    cdef double* pair_strength           # (arcs,) sum of |theta|
    cdef int constraint, semiring
    cdef bint single_root
    cdef bint by_logs                    # all messages go by log-odds
    cdef Rows rows[2]
    cdef void* block                     # all that follows but for NOCROSS, and its size
    cdef size_t block_size
    cdef double* base                    # (arcs,) scores, scaled
    cdef double* tot                     # (arcs,)
    cdef double* old                     # (arcs,) beliefs before an iteration
    cdef double* fam[7]                  # (arcs,) or NULL for a family that is not there
    cdef double* pair_fam                # (arcs,) of PAIRS, when there are some
    cdef double* T                       # (arcs + 8,) and P, D: of the family at work, by arc or by
    cdef double* P                       # place, that is among the children of heads
    cdef double* D
    cdef double* E                       # (arcs + 8,) what the tree factor is told
    cdef double chain_strength           # max |theta| of CHILDSEQ, scaled
    cdef bint chain_odds                 # the domain of its messages
    cdef bint chains_fresh               # no weights yet
    cdef Side* sides                     # (2n + LANES,) longest first, for odds
    cdef int groups                      # LANES of them each, the last one filled up
    cdef double* chain_x                 # e^theta of LANES sides together, lanes innermost
    cdef int32_t* chain_arc              # (rows of lanes,) the arcs of a group's first children, of
    cdef int64_t chain_size              # its second ones, ...; ``arcs`` for one that is not there
    cdef double* chain_lam               # (rows of lanes,) messages, as odds
    cdef double* chain_q                 # (rows of lanes,) what comes into them
    cdef double* lanes                   # (4, n + 2, LANES) scratch
    cdef double* weights                 # e^theta of CHILDSEQ, side by side, or NULL; else
    cdef char* side_open                 # (2n + 2,) whether it has them already
    cdef int32_t* pairs_from             # (arcs + 2,) of each arc in pairs_of, for RESIDUAL
    cdef int32_t* pairs_of               # (2 pairs,)
    cdef double* zeros                   # (arcs,)
    cdef double* sent                    # (arcs,) tot when an arc last sent, for RESIDUAL
    cdef bint joined
    cdef bint crossing_odds              # the domain of the messages of NOCROSS
    cdef double* crossing_theta          # (n (n-1) / 2,) scores, scaled
    cdef void* crossings                 # all that follows, and its size
    cdef size_t crossings_size
    cdef double* crossing                # (n (n-1) / 2, ...) messages, of both words
    cdef double* crossing_x              # (n (n-1) / 2,) exp of the scores
    cdef int64_t* crossing_start         # (n (n-1) / 2 + 1,)
    cdef int32_t* before                 # (n+1, n+2) heads of a word that are < x
    cdef double* scratch                 # 10 vectors of n + 12, of the factor at work
    cdef double* matrix                  # (2, n+1, n+1)
    cdef void* tree_scratch
    cdef double spent[7]

    def __cinit__(self):
        self.block = NULL
        self.crossings = NULL
        self.crossing = NULL
        self.theta = self.to_first = self.to_second = self.pair_x = self.pair_strength = NULL
        self.pair_odds = True
        self.first = self.second = NULL
        self.n_pairs = 0
        self.pairs_from = self.pairs_of = NULL
        memset(self.rows, 0, sizeof(self.rows))
        memset(self.fam, 0, sizeof(self.fam))
        memset(self.spent, 0, sizeof(self.spent))

    def __init__(self, Layout layout, const double[::1] scores, const double[::1] grand,
                 const double[::1] sib, const double[::1] childseq, const double[::1] nocross,
                 const int32_t[::1] first, const int32_t[::1] second, const double[::1] theta,
                 int constraint, bint single_root, bint joined=False, bint maximise=False,
                 bint by_logs=False, double scale=1.0):
        cdef Places* p = &layout.places
        cdef Py_ssize_t n = p.n, i
        cdef int kind
        cdef bint present[7]
        self.layout, self.p = layout, p
        self.keep = (scores, grand, sib, childseq, nocross)
        self.constraint, self.single_root, self.joined = constraint, single_root, joined
        self.semiring = MAX if maximise else LOG
        self.by_logs = maximise or by_logs
        self.scale = scale
        self.score = checked("candidate arcs", scores, p.arcs)
        self.rows[GRAND_ROWS].theta = sized("parts grand", grand, p.grand[p.arcs],
                                            &self.rows[GRAND_ROWS].strength)
        self.rows[SIB_ROWS].theta = sized("parts sib", sib, p.sib[n + 1],
                                          &self.rows[SIB_ROWS].strength)
        self.childseq = sized("parts childseq", childseq, p.childseq[2 * n + 2],
                              &self.chain_strength)
        self.chain_strength *= scale
        self.nocross = checked("parts nocross", nocross, triangle(n))
        present[:] = [grand is not None, sib is not None, False, childseq is not None,
                      nocross is not None and n > 1, constraint in (EXACTLY1_, ATMOST1_),
                      constraint in (BY_MATRIX_TREE, BY_INSIDE_OUTSIDE)]
        self.block = borrow(self.lay_out(NULL, present), &self.block_size)
        self.lay_out(<char*>self.block, present)
        for i in range(p.arcs):
            self.base[i] = scale * self.score[i]
        memset(self.zeros, 0, (p.arcs + LANES * (n + 2)) * sizeof(double))
        for i in range(8):
            self.T[p.arcs + i] = 0.0
        for kind in range(N_KINDS):
            if self.fam[kind] != NULL:
                memset(self.fam[kind], 0, (p.arcs + 8) * sizeof(double))
        for kind in range(2):
            if present[kind]:
                self.begin_rows(kind)
        if theta is not None:
            self.add_pairs(first, second, theta)
        if present[CHAINS]:
            self.begin_chains()
        if present[CROSSINGS]:
            self.prepare_crossings()
        self.add_up()

    def __dealloc__(self):
        give_back(self.block, self.block_size)
        free(self.first)
        free(self.second)
        free(self.theta)
        free(self.to_first)
        free(self.to_second)
        free(self.pair_x)
        free(self.pair_strength)
        free(self.pairs_from)
        free(self.pairs_of)
        give_back(self.crossings, self.crossings_size)

    # ---- setting up ----------------------------------------------------------------------------

    cdef size_t lay_out(self, char* block, const bint* present) noexcept nogil:
        """Where everything is in a block; the size of that."""
        cdef Places* p = self.p
        cdef size_t n = p.n, vector = (p.arcs + 8) * sizeof(double), size
        cdef int64_t parts
        cdef int kind
        cdef char* at = block
        cdef Rows* rows
        self.base = <double*>carve(&at, vector)
        self.tot = <double*>carve(&at, vector)
        self.old = <double*>carve(&at, vector)
        self.T = <double*>carve(&at, vector)
        self.P = <double*>carve(&at, vector)
        self.D = <double*>carve(&at, vector)
        self.E = <double*>carve(&at, vector)
        self.zeros = <double*>carve(&at, vector + LANES * (n + 2) * sizeof(double))
        self.sent = <double*>carve(&at, vector)
        self.scratch = <double*>carve(&at, 10 * (n + 12) * sizeof(double))
        for kind in range(N_KINDS):
            # PAIRS may come later
            self.fam[kind] = NULL
            if present[kind]:
                self.fam[kind] = <double*>carve(&at, vector)
        self.pair_fam = <double*>carve(&at, vector)
        for kind in range(2):
            if not present[kind]:
                continue
            rows = &self.rows[kind]
            rows.kind = kind
            rows.parts = parts = p.grand[p.arcs] if kind == GRAND_ROWS else p.sib[n + 1]
            rows.row = <row_t*>carve(&at, p.arcs * sizeof(row_t))
            size = (parts + (LANES - 1) * p.arcs) * sizeof(double)
            rows.x = <double*>carve(&at, size)
            rows.to_one = <double*>carve(&at, size)
            rows.to_run = <double*>carve(&at, size)
        self.weights = NULL
        if present[CHAINS]:
            self.side_open = carve(&at, 2 * n + 2)
            if self.semiring != MAX and self.chain_strength <= STRONGEST:
                self.weights = <double*>carve(&at, (side_start(p, n + 1, 0) + 8) * sizeof(double))
            self.sides = <Side*>carve(&at, (2 * n + LANES) * sizeof(Side))
            # A group takes what its longest side does, and no more than the sides before it.
            self.chain_x = <double*>carve(
                &at, (p.childseq[2 * n + 2] + LANES * triangle(n + 2)) * sizeof(double))
            self.lanes = <double*>carve(&at, 4 * (n + 2) * LANES * sizeof(double))
            size = (p.arcs + LANES * (n + 2)) * sizeof(double)
            self.chain_arc = <int32_t*>carve(&at, size)
            self.chain_lam = <double*>carve(&at, size)
            self.chain_q = <double*>carve(&at, size)
        if present[CROSSINGS]:
            self.crossing_theta = <double*>carve(&at, triangle(n) * sizeof(double))
        self.matrix = <double*>carve(&at, 2 * (n + 1) * (n + 1) * sizeof(double))
        size = max(eisner.scratch_bytes(n), arborescence.scratch_bytes(n)
                   + (n + 1) * (n + 2) * sizeof(double))
        if self.constraint == BY_MATRIX_TREE:
            size = max(size, matrix_tree.scratch_bytes(n))
        elif self.constraint == BY_INSIDE_OUTSIDE:
            size = max(size, eisner.gradient_bytes(n),
                       (2 * (n + 4) * (n + 8) + span_room(n)) * sizeof(double) + 64)
        self.tree_scratch = carve(&at, size)
        return at - block

    def add_pairs(self, const int32_t[::1] first, const int32_t[::1] second,
                  const double[::1] theta):
        """More pairs, as in the constructor; messages stay as they are, and new ones are 0."""
        cdef Py_ssize_t i, before = self.n_pairs, count = before + theta.shape[0]
        cdef bint odds = self.pair_odds and not self.by_logs
        if first.shape[0] != theta.shape[0] or second.shape[0] != theta.shape[0]:
            raise ValueError("pairs and their scores differ in number")
        if count == before:
            return
        checked("pairs", theta, theta.shape[0], hard=True)
        self.first = <int32_t*>grown(self.first, count * sizeof(int32_t))
        self.second = <int32_t*>grown(self.second, count * sizeof(int32_t))
        self.theta = <double*>grown(self.theta, count * sizeof(double))
        self.to_first = <double*>grown(self.to_first, count * sizeof(double))
        self.to_second = <double*>grown(self.to_second, count * sizeof(double))
        self.pair_x = <double*>grown(self.pair_x, (count + 4) * sizeof(double))
        if self.pair_strength == NULL:
            self.pair_strength = doubles(self.p.arcs)
        for i in range(count - before):
            if not (0 <= first[i] < self.p.arcs and 0 <= second[i] < self.p.arcs
                    and first[i] != second[i]):
                raise ValueError(f"pair {i} is not of two candidate arcs")
        for i in range(count - before):
            self.first[before + i], self.second[before + i] = first[i], second[i]
            self.theta[before + i] = self.pair_x[before + i] = theta[i]
            self.pair_strength[first[i]] += fabs(theta[i])
            self.pair_strength[second[i]] += fabs(theta[i])
            odds &= fabs(theta[i]) <= STRONGEST
            odds &= self.pair_strength[first[i]] <= STRONGEST_SUM
            odds &= self.pair_strength[second[i]] <= STRONGEST_SUM
        if self.pair_odds and not odds:
            for i in range(before):
                self.to_first[i], self.to_second[i] = log(self.to_first[i]), log(self.to_second[i])
        self.pair_odds = odds
        if odds:
            exponentials(self.pair_x + before, count - before, 0.0)
        for i in range(before, count):
            self.to_first[i] = self.to_second[i] = 1.0 if odds else 0.0
        self.n_pairs = count
        if self.fam[PAIRS] == NULL:
            self.fam[PAIRS] = self.pair_fam
            memset(self.pair_fam, 0, self.p.arcs * sizeof(double))
        free(self.pairs_from)
        free(self.pairs_of)
        self.pairs_from = self.pairs_of = NULL

    cdef void begin_rows(self, int kind) noexcept nogil:
        """The rows of GRAND or SIB, and the domain of their messages, which are as good as none.

        What is in no tree together: of GRAND, g -> h with h -> m, where m is g or, in projective
        trees, beyond g; of SIB, the root's two children, if the tree factor wants one.
        """
        cdef Rows* rows = &self.rows[kind]
        cdef Places* p = self.p
        cdef int a, g, h, j, i, low, end
        cdef int64_t at = 0
        cdef row_t* row = rows.row
        if kind == GRAND_ROWS:
            for h in range(1, p.n + 1):
                low, end = p.first[h], p.first[h + 1]
                if low == end:
                    continue
                for a in range(p.offsets[h - 1], p.offsets[h]):
                    g = p.heads[a]
                    while low < end and p.modifiers[p.children[low]] < g:
                        low += 1
                    row.place = p.first[g] + p.rank[a]
                    row.first, row.count = p.first[h], end - p.first[h]
                    row.start = p.grand[a]
                    row.low = row.high = low - row.first
                    row.high += low < end and p.modifiers[p.children[low]] == g
                    if self.constraint == BY_INSIDE_OUTSIDE:
                        if g < h:
                            row.low = 0
                        else:
                            row.high = row.count
                    row += 1
        else:
            for h in range(p.n + 1):
                for j in range(1, p.first[h + 1] - p.first[h]):
                    row.place, row.first, row.count = p.first[h] + j, p.first[h], j
                    row.start = p.sib[h] + triangle(j)
                    row.low = row.high = 0
                    if h == 0 and self.single_root and self.fam[TREE_] != NULL:
                        row.high = row.count
                    row += 1
        rows.count = <int>(row - rows.row)
        rows.fresh = rows.odds = not self.by_logs and self.moderate(rows)
        for j in range(rows.count):
            row = rows.row + j
            row.at = row.start
            if rows.odds:                        # aligned, with room for whole groups
                row.at = at
                at += whole_groups(row.count)
                continue
            for i in range(row.count):
                rows.to_one[row.at + i] = rows.to_run[row.at + i] = 0.0
                rows.x[row.at + i] = (
                    0.0 if row.low <= i < row.high else self.scale * rows.theta[row.start + i])

    cdef bint moderate(self, Rows* rows) noexcept nogil:
        """Whether messages may go as odds, mostly from the largest score alone; ``strength``."""
        cdef int a, r
        cdef row_t* row
        cdef const double* theta
        cdef double own = 0.0
        rows.strength *= self.scale
        if rows.strength <= STRONGEST and 2 * self.p.n * rows.strength <= STRONGEST_SUM:
            return True
        rows.strength = 0.0
        memset(self.P, 0, self.p.arcs * sizeof(double))
        for r in range(rows.count):
            row = rows.row + r
            theta = rows.theta + row.start
            self.P[row.place] += add_sizes(theta, self.P + row.first, row.low, &rows.strength)
            self.P[row.place] += add_sizes(theta + row.high, self.P + row.first + row.high,
                                           row.count - row.high, &rows.strength)
        rows.strength *= self.scale
        for a in range(self.p.arcs):
            own = max(own, self.scale * self.P[a])
        return rows.strength <= STRONGEST and own <= STRONGEST_SUM

    cdef void begin_chains(self) noexcept nogil:
        """Sides by fours of nearly one length, and their domain."""
        cdef Places* p = self.p
        cdef Side* side
        cdef int* next_of = <int*>self.scratch   # of a count: where its next side goes
        cdef int h, right, count, i, j, lane, sides = 0
        cdef int64_t at = 0
        memset(self.side_open, 0, 2 * p.n + 2)
        self.chain_odds = (self.weights != NULL and not self.by_logs
                           and self.chain_strength <= STRONGEST_CHAIN)
        self.chains_fresh = True
        if not self.chain_odds:
            return
        memset(next_of, 0, (p.n + 2) * sizeof(int))
        for h in range(p.n + 1):
            for right in range(0 if h else 1, 2):
                next_of[side_count(p, h, right)] += 1
        for count in range(p.n, 0, -1):
            i = next_of[count]
            next_of[count] = sides
            sides += i
        self.groups = (sides + LANES - 1) // LANES
        for i in range(sides, LANES * self.groups):
            self.sides[i].head = self.sides[i].right = self.sides[i].count = 0
        for h in range(p.n + 1):
            for right in range(0 if h else 1, 2):
                count = side_count(p, h, right)
                if count:
                    side = self.sides + next_of[count]
                    next_of[count] += 1
                    side.head, side.right, side.count = h, right, count
        for i in range(self.groups):
            side = self.sides + LANES * i
            for j in range(1, side.count + 1):
                for lane in range(LANES):
                    self.chain_arc[at] = p.arcs
                    if j <= side[lane].count:
                        self.chain_arc[at] = sided_arc(p, side[lane].head, side[lane].right, j)
                    self.chain_lam[at] = 1.0
                    at += 1
        self.chain_size = at

    cdef void weigh_sides(self, Side* side, double* x) noexcept nogil:
        """The weights of LANES sides, of which the first is the longest."""
        cdef const double* theta[LANES]
        cdef int count[LANES]
        cdef int lane
        for lane in range(LANES):
            theta[lane] = self.childseq + self.p.childseq[2 * side[lane].head + side[lane].right]
            count[lane] = side[lane].count
        weights_of_sides(theta, count, self.scale, x)

    cdef const double* side_weights(self, int h, int side) noexcept nogil:
        """e^theta of a side."""
        cdef double* weights = self.weights + side_start(self.p, h, side)
        if not self.side_open[2 * h + side]:
            weights_of(self.childseq + self.p.childseq[2 * h + side], self.scale,
                       triangle(side_count(self.p, h, side) + 2), weights)
            self.side_open[2 * h + side] = True
        return weights

    cdef int prepare_crossings(self) except -1:
        """Places and domain of the messages of NOCROSS: odds where the prefix sums keep their
        digits and no product of an arc's messages leaves the range."""
        cdef Places* p = self.p
        cdef Py_ssize_t i = 0, pairs = triangle(p.n), width = p.n + 2
        cdef int j, m, h
        cdef int64_t at = 0, messages = 0
        cdef double strength = 0.0
        for m in range(1, p.n + 1):
            messages += (p.n - 1) * whole_groups(p.offsets[m] - p.offsets[m - 1])
        self.crossings = borrow((messages + pairs + 4) * sizeof(double)
                                + (pairs + 1) * sizeof(int64_t)
                                + (p.n + 1) * width * sizeof(int32_t), &self.crossings_size)
        self.crossing = <double*>self.crossings
        self.crossing_x = self.crossing + messages
        self.crossing_start = <int64_t*>(self.crossing_x + pairs + 4)
        self.before = <int32_t*>(self.crossing_start + pairs + 1)
        for m in range(2, p.n + 1):
            for j in range(1, m):
                self.crossing_start[i] = at
                at += whole_groups(p.offsets[m] - p.offsets[m - 1])
                at += whole_groups(p.offsets[j] - p.offsets[j - 1])
                i += 1
        self.crossing_start[pairs] = at
        for m in range(1, p.n + 1):
            j = p.offsets[m - 1]
            for h in range(width):
                self.before[m * width + h] = j - p.offsets[m - 1]
                j += j < p.offsets[m] and p.heads[j] == h
        for i in range(pairs):
            self.crossing_theta[i] = self.crossing_x[i] = self.scale * self.nocross[i]
            strength = max(strength, fabs(self.crossing_theta[i]))
        self.crossing_odds = not (self.by_logs or self.joined or strength > 10.0
                                  or strength * p.n > STRONGEST_SUM)
        if self.crossing_odds:
            exponentials(self.crossing_x, pairs, 0.0)
        for at in range(messages):
            self.crossing[at] = 1.0 if self.crossing_odds else 0.0
        return 0

    cdef void add_up(self) noexcept nogil:
        add_families(self.base, self.fam, N_KINDS, self.p.arcs, self.tot)

    # ---- passes --------------------------------------------------------------------------------

    cdef void gather(self) noexcept nogil:
        """T: odds of each arc by place, within e^+-RANGE."""
        odds_at(self.tot, self.p.children, RANGE, self.p.arcs, self.T)

    cdef void pass_rows(self, Rows* rows, double damping) noexcept nogil:
        cdef Places* p = self.p
        cdef double* fam = self.fam[rows.kind]
        cdef row_t* row
        cdef int r, i
        cdef int64_t at
        cdef double one, other
        if rows.odds:
            self.pass_row_odds(rows)
            return
        for i in range(p.arcs):
            self.T[i] = self.tot[p.children[i]]
            self.P[i] = 0.0
        for r in range(rows.count):
            row = rows.row + r
            for i in range(row.count):
                at = row.at + i
                one = pair_message(rows.x[at], self.T[row.first + i] - rows.to_run[at],
                                   self.semiring)
                other = pair_message(rows.x[at], self.T[row.place] - rows.to_one[at],
                                     self.semiring)
                rows.to_one[at] = next_message(rows.to_one[at], one, damping, self.old_share)
                rows.to_run[at] = next_message(rows.to_run[at], other, damping, self.old_share)
                self.P[row.place] += rows.to_one[at]
                self.P[row.first + i] += rows.to_run[at]
        for i in range(p.arcs):
            fam[p.children[i]] = self.P[i]

    cdef void pass_row_odds(self, Rows* rows) noexcept nogil:
        cdef Places* p = self.p
        cdef double* fam = self.fam[rows.kind]
        cdef int i
        self.gather()
        for i in range(p.arcs + LANES):
            self.P[i] = 1.0
        pair_rows(rows.row, rows.count, rows.fresh, rows.theta, self.scale, self.old_share, self.T,
                  rows.x, rows.to_one, rows.to_run, self.P)
        rows.fresh = False
        logarithms(self.P, self.zeros, p.arcs, self.T)
        for i in range(p.arcs):
            fam[p.children[i]] = self.T[i]

    cdef void pass_pair_odds(self) noexcept nogil:
        """As `pairs_of_row`, pair by pair."""
        cdef Py_ssize_t i
        cdef int a, b
        for a in range(self.p.arcs):
            self.T[a] = min(RANGE, max(-RANGE, self.tot[a]))
            self.P[a] = 1.0
        exponentials(self.T, self.p.arcs, 0.0)
        for i in range(self.n_pairs):
            a, b = self.first[i], self.second[i]
            odds_of_pair(self.pair_x[i], self.T[a], self.T[b], self.old_share, self.to_first + i,
                         self.to_second + i)
            self.P[a] *= self.to_first[i]
            self.P[b] *= self.to_second[i]
        logarithms(self.P, self.zeros, self.p.arcs, self.T)
        for a in range(self.p.arcs):
            self.fam[PAIRS][a] = self.T[a]

    cdef inline void into_pair(self, Py_ssize_t i, double* one, double* other) noexcept nogil:
        """What comes into pair i, as log-odds."""
        cdef double a = self.to_first[i], b = self.to_second[i]
        one[0] = self.tot[self.first[i]] - (log(a) if self.pair_odds else a)
        other[0] = self.tot[self.second[i]] - (log(b) if self.pair_odds else b)

    cdef void pass_pairs(self, double damping) noexcept nogil:
        if self.pair_odds:
            self.pass_pair_odds()
        else:
            self.pass_pair_logs(damping)

    cdef void pass_pair_logs(self, double damping) noexcept nogil:
        cdef Py_ssize_t i
        cdef double* fam = self.fam[PAIRS]
        cdef double one, other
        memset(fam, 0, self.p.arcs * sizeof(double))
        for i in range(self.n_pairs):
            one = pair_message(self.theta[i], self.tot[self.second[i]] - self.to_second[i],
                               self.semiring)
            other = pair_message(self.theta[i], self.tot[self.first[i]] - self.to_first[i],
                                 self.semiring)
            self.to_first[i] = next_message(self.to_first[i], one, damping, self.old_share)
            self.to_second[i] = next_message(self.to_second[i], other, damping, self.old_share)
            fam[self.first[i]] += self.to_first[i]
            fam[self.second[i]] += self.to_second[i]

    cdef double chain(self, Chain* c, int h, int side, int* semiring) noexcept nogil:
        """Run the chain of a side: log Z, its messages in c.lam, their domain in ``semiring``."""
        cdef Places* p = self.p
        cdef Py_ssize_t size = p.n + 12
        cdef int base = p.first[h] + p.n_left[h], j, a
        cdef int64_t start = p.childseq[2 * h + side]
        c.count = side_count(p, h, side)
        c.theta, c.scale, c.most = self.childseq + start, self.scale, self.chain_strength
        c.weights = NULL
        if self.weights != NULL:
            c.weights = self.side_weights(h, side)
        c.kap, c.lam, c.alpha = self.scratch, self.scratch + size, self.scratch + 2 * size
        c.enter, c.beta = self.scratch + 3 * size, self.scratch + 4 * size
        c.odds = self.scratch + 5 * size
        for j in range(1, c.count + 1):
            a = p.children[base + (j - 1 if side else -j)]
            c.kap[j] = self.tot[a] - self.fam[CHAINS][a]
        semiring[0] = self.semiring
        return run_chain(c, semiring)

    cdef bint pass_chain_odds(self) noexcept nogil:
        """LANES sides at once; False if numbers leave the range."""
        cdef Py_ssize_t size = (self.p.n + 2) * LANES
        cdef double* q = self.chain_q
        cdef double* lam = self.chain_lam
        cdef double* x = self.chain_x
        cdef double* fam = self.fam[CHAINS]
        cdef double most = exp(self.chain_strength)
        cdef int g, count
        cdef int64_t i
        self.tot[self.p.arcs] = -RANGE
        odds_at(self.tot, self.chain_arc, RANGE, self.chain_size, q)
        for i in range(self.chain_size):
            q[i] /= lam[i]
        for g in range(self.groups):
            count = self.sides[LANES * g].count
            if self.chains_fresh:
                self.weigh_sides(self.sides + LANES * g, x)
            if not chain_messages(most, x, q, count, self.lanes, self.lanes + size,
                                  self.lanes + 2 * size, lam) < 1e130:
                return False
            q += count * LANES
            lam += count * LANES
            x += triangle(count + 2) * LANES
        self.chains_fresh = False
        logarithms(self.chain_lam, self.zeros, self.chain_size, self.chain_q)
        for i in range(self.chain_size):
            fam[self.chain_arc[i]] = self.chain_q[i]
        return True

    cdef void pass_chains(self, double damping) noexcept nogil:
        self.chain_odds = self.chain_odds and self.pass_chain_odds()
        if not self.chain_odds:
            self.pass_chain_logs(damping)

    cdef void pass_chain_logs(self, double damping) noexcept nogil:
        cdef Places* p = self.p
        cdef Chain c
        cdef int h, side, j, a, semiring
        for h in range(p.n + 1):
            for side in range(0 if h else 1, 2):
                if side_count(p, h, side) == 0:
                    continue
                self.chain(&c, h, side, &semiring)
                for j in range(1, c.count + 1):
                    a = sided_arc(p, h, side, j)
                    self.fam[CHAINS][a] += (1.0 - damping) * (c.lam[j] - self.fam[CHAINS][a])

    cdef void pass_crossings(self, double damping) noexcept nogil:
        if self.crossing_odds:
            self.pass_crossing_odds()
        else:
            self.pass_crossing_logs(damping)

    cdef inline void word(self, Word* w, int m, double* memory) noexcept nogil:
        cdef Places* p = self.p
        cdef Py_ssize_t size = p.n + 12
        cdef int first = p.offsets[m - 1]
        w.position, w.count = m, p.offsets[m] - first
        w.heads, w.before = p.heads + first, self.before + m * (p.n + 2)
        w.kap, w.q, w.prefix = memory, memory + size, memory + 2 * size
        w.ratio, w.lam = memory + 3 * size, memory + 4 * size

    cdef void gather_heads(self) noexcept nogil:
        """T: belief in each arc over its word's largest, by arc."""
        cdef Places* p = self.p
        cdef int a, m
        cdef double top
        for m in range(1, p.n + 1):
            top = -INFINITY
            for a in range(p.offsets[m - 1], p.offsets[m]):
                self.T[a] = self.tot[a] - with_false(self.tot[a], LOG)
                top = max(top, self.T[a])
            for a in range(p.offsets[m - 1], p.offsets[m]):
                self.T[a] -= top
        exponentials(self.T, p.arcs, 0.0)

    cdef inline double hear(self, Word* j, Word* l, Py_ssize_t i, int a, int b) noexcept nogil:
        """What the words a < b say to their NOCROSS factor i, as numbers: its total."""
        cdef double* lam = self.crossing + self.crossing_start[i]
        cdef double total = 0.0
        cdef int k
        self.word(j, a, self.scratch)
        self.word(l, b, self.scratch + 5 * (self.p.n + 12))
        for k in range(j.count):
            j.q[k] = self.T[self.p.offsets[a - 1] + k] * lam[k]
        for k in range(l.count):
            l.q[k] = self.T[self.p.offsets[b - 1] + k] * lam[whole_groups(j.count) + k]
        add_prefix(j)
        add_prefix(l)
        crossing_sums(j, l, self.crossing_x[i])
        for k in range(j.count):
            total += j.q[k] * j.ratio[k]
        return total

    cdef void pass_crossing_odds(self) noexcept nogil:
        """By numbers instead of logs; messages are 1 / exp(lam)."""
        cdef Places* p = self.p
        cdef crossing_word one, other
        cdef Py_ssize_t i = 0
        cdef int a, b
        self.gather_heads()
        for a in range(p.arcs + LANES):
            self.P[a] = 1.0
        for b in range(2, p.n + 1):
            self.see(&other, b)
            for a in range(1, b):
                self.see(&one, a)
                crossing_messages(&one, &other, self.crossing_x[i],
                                  self.crossing + self.crossing_start[i], self.scratch, p.n + 12)
                i += 1
        logarithms(self.P, self.zeros, p.arcs, self.T)
        for a in range(p.arcs):
            self.fam[CROSSINGS][a] = -self.T[a]

    cdef inline void see(self, crossing_word* w, int m) noexcept nogil:
        cdef Places* p = self.p
        cdef int first = p.offsets[m - 1]
        w.position, w.count = m, p.offsets[m] - first
        w.heads, w.before = p.heads + first, self.before + m * (p.n + 2)
        w.T, w.P = self.T + first, self.P + first

    cdef double crossing_answers(self, double* expected) noexcept nogil:
        """Sum of log Z of the NOCROSS factors; their beliefs in a crossing OUT, unless NULL."""
        cdef Word j, l
        cdef Py_ssize_t i = 0
        cdef int a, b, k
        cdef double log_z, crossing, value = 0.0
        if self.crossing_odds:
            self.gather_heads()
        for b in range(2, self.p.n + 1):
            for a in range(1, b):
                if self.crossing_odds:
                    log_z = self.hear(&j, &l, i, a, b)
                    if expected != NULL:
                        crossing = 0.0
                        for k in range(j.count):
                            crossing += j.q[k] * crossing_of(&j, k, &l)
                        expected[i] = min(1.0, self.crossing_x[i] * crossing / log_z)
                    log_z = log(log_z / (j.prefix[j.count] * l.prefix[l.count]))
                else:
                    log_z = self.crossing_factor(&j, &l, i, a, b)
                    if expected != NULL:
                        expected[i] = expected_crossing(&j, &l, self.crossing_theta[i], log_z,
                                                        self.semiring)
                value += log_z
                i += 1
        return value

    cdef double crossing_factor(self, Word* j, Word* l, Py_ssize_t i, int a, int b) noexcept nogil:
        """Run the NOCROSS factor i of the words a < b: log Z, its messages in j.lam and l.lam."""
        cdef const double* lam = self.crossing + self.crossing_start[i]
        self.word(j, a, self.scratch)
        self.word(l, b, self.scratch + 5 * (self.p.n + 12))
        self.speak(j, lam)
        self.speak(l, lam + whole_groups(j.count))
        if self.joined:
            return run_joined(j, l, self.crossing_theta[i], self.semiring)
        return run_heads(j, l, self.crossing_theta[i], self.semiring)

    cdef inline void speak(self, Word* w, const double* lam) noexcept nogil:
        """What a word says to a NOCROSS factor."""
        cdef int k, first = self.p.offsets[w.position - 1]
        cdef double tot, total = -INFINITY
        for k in range(w.count):
            tot = self.tot[first + k]
            w.kap[k] = tot - lam[k]
            if not self.joined:
                w.kap[k] -= with_false(tot, self.semiring)
                total = plus(total, w.kap[k], self.semiring)
        if not self.joined:
            for k in range(w.count):
                w.kap[k] -= total

    cdef void pass_crossing_logs(self, double damping) noexcept nogil:
        cdef Places* p = self.p
        cdef double* fam = self.fam[CROSSINGS]
        cdef double* lam
        cdef Word j, l
        cdef Py_ssize_t i = 0
        cdef int a, b, k
        memset(fam, 0, p.arcs * sizeof(double))
        for b in range(2, p.n + 1):
            for a in range(1, b):
                self.crossing_factor(&j, &l, i, a, b)
                lam = self.crossing + self.crossing_start[i]
                blend(lam, j.lam, j.count, damping)
                blend(lam + whole_groups(j.count), l.lam, l.count, damping)
                for k in range(j.count):
                    fam[p.offsets[a - 1] + k] += lam[k]
                for k in range(l.count):
                    fam[p.offsets[b - 1] + k] += lam[whole_groups(j.count) + k]
                i += 1

    cdef double heads_of(self, int m, double* lam) noexcept nogil:
        """EXACTLY1 or ATMOST1 of word m: messages, and log Z.

        ATMOST1 is EXACTLY1 with one outcome more, no head.
        """
        cdef int first = self.p.offsets[m - 1], count = self.p.offsets[m] - first, k
        cdef double* kap = self.scratch
        cdef double log_z = -INFINITY
        for k in range(count):
            kap[k] = self.tot[first + k] - self.fam[UNARY][first + k]
        if self.constraint == ATMOST1_:
            kap[count] = 0.0
            count += 1
        exactly_one(kap, NULL, count, self.semiring, kap + self.p.n + 12, lam)
        for k in range(count):
            log_z = plus(log_z, kap[k], self.semiring)
        return log_z

    cdef void pass_unary(self, double damping) noexcept nogil:
        cdef double* lam = self.scratch + 4 * (self.p.n + 12)
        cdef int m
        for m in range(1, self.p.n + 1):
            self.heads_of(m, lam)
            blend(self.fam[UNARY] + self.p.offsets[m - 1], lam,
                  self.p.offsets[m] - self.p.offsets[m - 1], damping)

    cdef double tree_gradient(self) noexcept nogil:
        """log Z of the tree factor, and after the scores in ``matrix`` its derivatives' logs."""
        cdef Places* p = self.p
        cdef Py_ssize_t n = p.n, size = (n + 1) * (n + 1), i
        cdef int a, other
        cdef double* out = self.matrix + size
        cdef double best, value
        cdef double* scores
        cdef int* heads
        for i in range(size):
            self.matrix[i] = -INFINITY
        for a in range(p.arcs):
            self.matrix[p.heads[a] * (n + 1) + p.modifiers[a]] = self.tot[a] - self.fam[TREE_][a]
        if self.constraint == BY_INSIDE_OUTSIDE:
            return eisner.gradient(self.matrix, n + 1, n, self.single_root, self.semiring, out,
                                   self.tree_scratch)
        if self.semiring != MAX:
            return matrix_tree.gradient(self.matrix, n + 1, n, self.single_root, out,
                                        self.tree_scratch)
        # The best tree with each arc: O(n^4) in all.
        scores = <double*>self.tree_scratch
        heads = <int*>(scores + size)
        for i in range(size):
            scores[i] = self.matrix[i]
        best = arborescence.decode(scores, n + 1, n, self.single_root, heads, scores + size + n + 1)
        if best == -INFINITY:
            return best
        for a in range(p.arcs):
            i = p.heads[a] * (n + 1) + p.modifiers[a]
            for other in range(p.offsets[p.modifiers[a] - 1], p.offsets[p.modifiers[a]]):
                scores[p.heads[other] * (n + 1) + p.modifiers[a]] = -INFINITY
            scores[i] = self.matrix[i]
            value = arborescence.decode(scores, n + 1, n, self.single_root, heads,
                                        scores + size + n + 1)
            out[i] = value - self.matrix[i] - best
            for other in range(p.offsets[p.modifiers[a] - 1], p.offsets[p.modifiers[a]]):
                i = p.heads[other] * (n + 1) + p.modifiers[a]
                scores[i] = self.matrix[i]
        return best

    cdef bint pass_tree_scaled(self, double damping) noexcept nogil:
        """By weights, as in matrix_tree.pyx or spans.h; False if they may not reach.

            lam = log A - log sum_{others into the word} w A        with A = d log Z / d w
        """
        cdef Places* p = self.p
        cdef Py_ssize_t n = p.n, s = (n + 8) & ~3, table = (n + 4) * s
        cdef double* W = <double*>((<size_t>self.tree_scratch + 63) & ~<size_t>63)
        cdef double* A = W + table
        cdef double* AT = A + table
        cdef double* F = AT + table
        cdef double* FT = F + table
        cdef double* d = FT + table
        cdef double* x = d + s
        cdef double* B = x + PANEL * s
        cdef double* fam = self.fam[TREE_]
        cdef int a
        cdef double choices, log_z
        if tree_inputs(self.tot, fam, p.offsets, n, self.E, self.D) > WIDEST:
            return False
        to_weights(self.E, 1.0, p.arcs)
        memset(W, 0, table * sizeof(double))
        for a in range(p.arcs):
            W[p.heads[a] * s + p.modifiers[a]] = self.E[a]
        if self.constraint == BY_INSIDE_OUTSIDE:     # spans take the room behind A
            memset(AT, 0, span_room(n) * sizeof(double))
            if not stands(span_sums(W, s, n, self.single_root, A, s, True, AT), n):
                return False
        else:
            choices = log_choices(W, x, s, n)
            memcpy(F, W, (n + 1) * s * sizeof(double))
            log_z = eliminate_weights(F, FT, d, s, n, self.single_root)
            if not -600.0 < log_z - choices < 1.0:
                return False
            adjoint_weights(F, FT, d, A, AT, x, B, s, n, self.single_root, LEAST)
        for a in range(p.arcs):
            self.T[a] = A[p.heads[a] * s + p.modifiers[a]]
        tree_rests(self.E, self.T, p.offsets, n, self.P)
        tree_messages(self.T, self.P, self.D, CAP, p.arcs, self.E)
        blend(fam, self.E, p.arcs, damping)
        return True

    cdef bint pass_tree(self, double damping) noexcept nogil:
        """False without a tree."""
        cdef Places* p = self.p
        cdef Py_ssize_t size = p.n + 12
        cdef double* kap = self.scratch
        cdef double* weight = kap + size
        cdef double* lam = kap + 2 * size
        cdef double* fam
        cdef int m, k, first, count
        if self.semiring == LOG and self.pass_tree_scaled(damping):
            return True
        if self.tree_gradient() == -INFINITY:
            return False
        for m in range(1, p.n + 1):
            first, count = p.offsets[m - 1], p.offsets[m] - p.offsets[m - 1]
            fam = self.fam[TREE_] + first
            for k in range(count):
                kap[k] = self.tot[first + k] - fam[k]
                weight[k] = self.matrix[(p.n + 1 + p.heads[first + k]) * (p.n + 1) + m]
            exactly_one(kap, weight, count, self.semiring, kap + 3 * size, lam)
            blend(fam, lam, count, damping)
        return True

    cdef bint pass_over(self, int kind, double damping) noexcept nogil:
        """One pass over a family, if it is there; False when there is no tree."""
        cdef double start
        cdef bint fine = True
        if self.fam[kind] == NULL:
            return True
        start = now()
        if kind <= SIB_ROWS:
            self.pass_rows(&self.rows[kind], damping)
        elif kind == PAIRS:
            self.pass_pairs(damping)
        elif kind == CHAINS:
            self.pass_chains(damping)
        elif kind == CROSSINGS:
            self.pass_crossings(damping)
        elif kind == UNARY:
            self.pass_unary(damping)
        else:
            fine = self.pass_tree(damping)
        self.spent[kind] += now() - start
        return fine

    # ---- schedules -----------------------------------------------------------------------------

    def run(self, int schedule, int iterations, double damping, double pair_damping,
            double tolerance):
        """Iterate from the messages as they are.

        An iteration passes over every family once.  SERIAL: one after the other, the tree factor
        last, and once before the first iteration.  PARALLEL: all from the same totals.  RESIDUAL:
        like SERIAL, but pairs by ``settle``.  Of an old message the next keeps the share ``damping``
        of its log-odds; with ``pair_damping`` those of pairs keep this share of its odds instead.
        Stops after ``iterations``, or when no belief changed by ``tolerance`` or more.  Releases
        the GIL.

        Returns (iterations, the largest change of a belief in the last one), or None if the
        candidate arcs hold no tree.
        """
        cdef int done = 0, kind, a
        cdef double change = 0.0
        cdef bint fine = True
        self.old_share = pair_damping
        if schedule == RESIDUAL_:
            if not self.by_logs:
                raise ValueError("the residual schedule goes by log-odds")
            if self.n_pairs and self.pairs_of == NULL:
                self.index_pairs()
        with nogil:
            for a in range(self.p.arcs):
                self.sent[a] = NAN
            if schedule != PARALLEL_:
                fine = self.pass_over(TREE_, 0.0)
                self.add_up()
            self.look()
            memcpy(self.old, self.P, self.p.arcs * sizeof(double))
            while fine and done < iterations:
                for kind in range(N_KINDS):
                    if schedule == RESIDUAL_ and kind <= PAIRS:
                        if kind == 0:
                            self.settle(damping, tolerance)
                    else:
                        fine &= self.pass_over(kind, damping)
                    if schedule != PARALLEL_ and self.fam[kind] != NULL:
                        self.add_up()
                if schedule == PARALLEL_:
                    self.add_up()
                done += 1
                self.look()
                change = largest_change(self.P, self.old, self.p.arcs)
                memcpy(self.old, self.P, self.p.arcs * sizeof(double))
                if change < tolerance:
                    break
        return (done, change) if fine else None

    cdef void look(self) noexcept nogil:
        """P: beliefs in arcs, within e^-WHOLE of 0 and 1."""
        sigmoids(self.tot, WHOLE, self.p.arcs, self.P)

    cdef void settle(self, double damping, double tolerance) noexcept nogil:
        """Messages of GRAND, SIB and PAIRS by priority: of the arc whose total has changed most
        since it last sent, to all that it is in a pair with.

        The change bounds that of each of its messages (Sutton & McCallum 2007).  Until none is
        above ``tolerance``, or each arc could have sent once.  O(arcs (n + arcs)).
        """
        cdef Places* p = self.p
        cdef int a, best, count
        cdef double most, start = now()
        for count in range(p.arcs):
            best, most = -1, tolerance
            for a in range(p.arcs):
                if not fabs(self.tot[a] - self.sent[a]) <= most:
                    best, most = a, fabs(self.tot[a] - self.sent[a])
                    if most != most:             # NaN: it has not sent yet
                        break
            if best < 0:
                break
            self.send(best, damping)
        self.spent[PAIRS] += now() - start

    cdef void send(self, int a, double damping) noexcept nogil:
        """The messages of the pairs of arc a, to the others."""
        cdef Places* p = self.p
        cdef int h = p.heads[a], m = p.modifiers[a], rank = p.rank[a], b, i, at
        cdef Rows* rows = &self.rows[GRAND_ROWS]
        cdef int64_t place
        self.sent[a] = self.tot[a]
        if self.fam[GRAND_ROWS] != NULL:
            for i in range(p.first[m + 1] - p.first[m]):
                place = p.grand[a] + i
                self.deliver(GRAND_ROWS, rows.x[place], a, rows.to_one + place,
                             p.children[p.first[m] + i], rows.to_run + place, damping)
            for b in range(p.offsets[h - 1] if h else 0, p.offsets[h] if h else 0):
                place = p.grand[b] + rank
                self.deliver(GRAND_ROWS, rows.x[place], a, rows.to_run + place, b,
                             rows.to_one + place, damping)
        rows = &self.rows[SIB_ROWS]
        if self.fam[SIB_ROWS] != NULL:
            for i in range(p.first[h + 1] - p.first[h]):
                if i < rank:
                    place = p.sib[h] + triangle(rank) + i
                    self.deliver(SIB_ROWS, rows.x[place], a, rows.to_one + place,
                                 p.children[p.first[h] + i], rows.to_run + place, damping)
                elif i > rank:
                    place = p.sib[h] + triangle(i) + rank
                    self.deliver(SIB_ROWS, rows.x[place], a, rows.to_run + place,
                                 p.children[p.first[h] + i], rows.to_one + place, damping)
        if self.fam[PAIRS] != NULL:
            for at in range(self.pairs_from[a], self.pairs_from[a + 1]):
                i = self.pairs_of[at]
                if self.first[i] == a:
                    self.deliver(PAIRS, self.theta[i], a, self.to_first + i, self.second[i],
                                 self.to_second + i, damping)
                else:
                    self.deliver(PAIRS, self.theta[i], a, self.to_second + i, self.first[i],
                                 self.to_first + i, damping)

    cdef inline void deliver(self, int kind, double theta, int a, const double* to_a, int b,
                             double* to_b, double damping) noexcept nogil:
        cdef double new = pair_message(theta, self.tot[a] - to_a[0], self.semiring)
        cdef double change = next_message(to_b[0], new, damping, self.old_share) - to_b[0]
        to_b[0] += change
        self.fam[kind][b] += change
        self.tot[b] += change

    cdef int index_pairs(self) except -1:
        """Which pairs each arc is in."""
        cdef Py_ssize_t i
        cdef int arcs = self.p.arcs, a
        self.pairs_from = <int32_t*>calloc(arcs + 2, sizeof(int32_t))
        self.pairs_of = <int32_t*>malloc((2 * self.n_pairs + 1) * sizeof(int32_t))
        if self.pairs_from == NULL or self.pairs_of == NULL:
            raise MemoryError
        for i in range(self.n_pairs):
            self.pairs_from[self.first[i] + 2] += 1
            self.pairs_from[self.second[i] + 2] += 1
        for a in range(arcs):
            self.pairs_from[a + 2] += self.pairs_from[a + 1]
        for i in range(self.n_pairs):
            a = self.first[i]
            self.pairs_of[self.pairs_from[a + 1]] = <int32_t>i
            self.pairs_from[a + 1] += 1
            a = self.second[i]
            self.pairs_of[self.pairs_from[a + 1]] = <int32_t>i
            self.pairs_from[a + 1] += 1
        return 0

    # ---- answers -------------------------------------------------------------------------------

    def beliefs(self, double[::1] out):
        """Belief in each arc, (arcs,)."""
        self.look()
        memcpy(&out[0], self.P, self.p.arcs * sizeof(double))

    def log_odds(self, double[::1] out, bint into_tree=False):
        """Log-odds of the belief in each arc, or those that the tree factor is told, (arcs,)."""
        cdef int a
        for a in range(self.p.arcs):
            out[a] = self.tot[a]
            if into_tree and self.fam[TREE_] != NULL:
                out[a] -= self.fam[TREE_][a]

    def decode(self, int by, bint projective, bint single_root):
        """heads (n+1,) int32 of the best tree by BELIEFS, LOG_ODDS, or those that go INTO_TREE;
        None if there is none.  O(n^2) or, projective, O(n^3)."""
        cdef Py_ssize_t width = self.p.n + 1, i
        cdef int a
        cdef double found
        cdef double* value = self.tot
        if by == BELIEFS_:
            self.look()
            value = self.P
        elif by == INTO_TREE_ and self.fam[TREE_] != NULL:
            for a in range(self.p.arcs):
                self.T[a] = self.tot[a] - self.fam[TREE_][a]
            value = self.T
        array = np.empty(width, np.int32)
        cdef int[::1] heads = array
        with nogil:
            for i in range(width * width):
                self.matrix[i] = -INFINITY
            for a in range(self.p.arcs):
                self.matrix[self.p.heads[a] * width + self.p.modifiers[a]] = value[a]
            found = (eisner.decode if projective else arborescence.decode)(
                self.matrix, width, self.p.n, single_root, &heads[0], self.tree_scratch)
        return array if found > -INFINITY else None

    def answers(self, double[::1] grand, double[::1] sib, double[::1] pair,
                double[::1] childseq, double[::1] nocross):
        """Bethe log Z, and beliefs of factors OUT: that both arcs are, that two children are
        adjacent, that the arcs of two words cross.  Each (parts,), zeros on entry, or None; of
        pairs so many as fit.

            log Z = sum_V log Z_V + sum_F (log Z_F - sum_{V of F} log Z_V),    log Z_V = 0 (+) tot

        LINK is part of the arcs.  For max-product its counterpart.  Exact on graphs without loops;
        at a fixed point its gradient is the beliefs.  As long as an iteration, about.  Releases
        the GIL.
        """
        cdef Places* p = self.p
        cdef Chain c
        cdef Py_ssize_t i, fit = 0 if pair is None else pair.shape[0]
        cdef int h, m, side, semiring, a
        cdef double x, y, log_f, value = 0.0
        cdef double* own = self.old              # log Z of each arc
        cdef double* out[2]
        out[GRAND_ROWS] = NULL if grand is None or grand.shape[0] == 0 else &grand[0]
        out[SIB_ROWS] = NULL if sib is None or sib.shape[0] == 0 else &sib[0]
        with nogil:
            for a in range(p.arcs):
                own[a] = with_false(self.tot[a], self.semiring)
                value += own[a] * (
                    1 - (self.fam[CHAINS] != NULL) - (self.fam[UNARY] != NULL)
                    - (self.fam[TREE_] != NULL)
                    - (p.n - 1 if self.fam[CROSSINGS] != NULL and self.joined else 0))
            for i in range(2):
                if self.fam[i] != NULL:
                    value += self.row_answers(&self.rows[i], own, out[i])
            for i in range(self.n_pairs):
                self.into_pair(i, &x, &y)
                log_f = pair_total(self.theta[i], x, y, self.semiring)
                value += log_f - (own[self.first[i]] + own[self.second[i]])
                if i < fit:
                    pair[i] = exp(min(0.0, self.theta[i] + x + y - log_f))
            if self.fam[CHAINS] != NULL:
                for h in range(p.n + 1):
                    for side in range(0 if h else 1, 2):
                        log_f = self.chain(&c, h, side, &semiring)
                        value += log_f
                        if childseq is not None:
                            chain_beliefs(&c, semiring, log_f,
                                          &childseq[p.childseq[2 * h + side]])
            if self.fam[CROSSINGS] != NULL:
                value += self.crossing_answers(NULL if nocross is None else &nocross[0])
            if self.fam[UNARY] != NULL:
                for m in range(1, p.n + 1):
                    value += self.heads_of(m, self.scratch + 4 * (p.n + 12))
            if self.fam[TREE_] != NULL:
                value += self.tree_gradient()
            for a in range(p.arcs):
                own[a] = sigmoid(self.tot[a])
        return value

    cdef double row_answers(self, Rows* rows, const double* own, double* out) noexcept nogil:
        """Sum of log Z_F - log Z of both arcs; beliefs OUT, unless NULL."""
        cdef row_t* row
        cdef int r, i
        cdef int64_t at
        cdef double one, other, both, total, ratio = 1.0, value = 0.0
        if rows.odds:
            self.gather()
            for i in range(self.p.arcs):
                self.P[i] = 1.0 / (1.0 + self.T[i])
            if rows.fresh:
                for at in range(rows.parts + (LANES - 1) * rows.count):
                    rows.to_one[at] = rows.to_run[at] = 1.0
                for r in range(rows.count):
                    row = rows.row + r
                    weights_of(rows.theta + row.start, self.scale, row.count, rows.x + row.at)
                rows.fresh = False
        for r in range(rows.count):
            row = rows.row + r
            for i in range(row.count):
                if row.low <= i < row.high:
                    continue
                at = row.at + i
                if rows.odds:
                    one = self.T[row.place] / rows.to_one[at]
                    other = self.T[row.first + i] / rows.to_run[at]
                    both = rows.x[at] * one * other
                    total = 1.0 + one + other + both
                    ratio *= total * self.P[row.place] * self.P[row.first + i]
                    if not 1e-100 < ratio < 1e100:
                        value += log(ratio)
                        ratio = 1.0
                    if out != NULL:
                        out[row.start + i] = both / total
                else:
                    one = self.tot[self.p.children[row.place]] - rows.to_one[at]
                    other = self.tot[self.p.children[row.first + i]] - rows.to_run[at]
                    total = pair_total(rows.x[at], one, other, self.semiring)
                    value += total - own[self.p.children[row.place]]
                    value -= own[self.p.children[row.first + i]]
                    if out != NULL:
                        out[row.start + i] = exp(min(0.0, rows.x[at] + one + other - total))
        return value + log(ratio)

    def take_messages(self, BeliefPropagation other):
        """Start from the messages of another, of the same arcs and families, both ``by_logs``."""
        cdef int kind
        cdef int64_t i
        if not (self.by_logs and other.by_logs):
            raise ValueError("messages are taken over by log-odds")
        for kind in range(2):
            for i in range(self.rows[kind].parts):
                self.rows[kind].to_one[i] = other.rows[kind].to_one[i]
                self.rows[kind].to_run[i] = other.rows[kind].to_run[i]
        for i in range(self.n_pairs):
            self.to_first[i], self.to_second[i] = other.to_first[i], other.to_second[i]
        if self.crossing != NULL:
            for i in range(self.crossing_start[triangle(self.p.n)]):
                self.crossing[i] = other.crossing[i]
        for kind in range(N_KINDS):
            if self.fam[kind] != NULL:
                for i in range(self.p.arcs):
                    self.fam[kind][i] = other.fam[kind][i]
        self.add_up()

    def times(self):
        """Seconds spent in the passes of each family so far, in the order of TIMES."""
        return [self.spent[kind] for kind in range(N_KINDS)]


cdef void* grown(void* memory, size_t size) except NULL:
    cdef void* larger = realloc(memory, size)
    if larger == NULL:
        raise MemoryError
    return larger


cdef inline int64_t side_start(Places* p, Py_ssize_t h, int side) noexcept nogil:
    """Where the weights of a side are, each with room for a whole group after them."""
    return p.childseq[2 * h + side] + 4 * (2 * h + side)


cdef const double* sized(what, const double[::1] scores, int64_t count, double* most) except? NULL:
    """As ``checked``, with the largest size of a score."""
    most[0] = 0.0
    if scores is not None and count > 0 and scores.shape[0] == count:
        most[0] = largest_size(&scores[0], count)
        if most[0] < INFINITY:
            return &scores[0]
    return checked(what, scores, count)


cdef inline char* carve(char** at, size_t size) noexcept nogil:
    cdef char* start = at[0]
    at[0] += (size + 63) & ~<size_t>63
    return start


cdef double* doubles(int64_t count) except NULL:
    cdef double* memory = <double*>calloc(max(count, 1), sizeof(double))
    if memory == NULL:
        raise MemoryError
    return memory
