"""Hashed first-order features: scoring arcs and turning arc weights into a gradient.

A feature is a row of SLOTS = 16 weights, one cache line of float32, found by hashing.  An arc uses
three of them: the feature alone, the feature with "the arc points right", and the feature with
direction and distance bin.  So one memory access serves three conjunctions.

A template is a head expression, a modifier expression and a kind; its rows for the arc h -> m are

    row = (H[h, template] + M[m, template] + x) >> shift      for x in extras(kind)

in 32-bit arithmetic.  H and M hold the hashes of the template's expressions at each token, computed
once per sentence, so that the rows of an arc are one vectorised addition of two arrays.
extras(PLAIN) is {0}; for the other kinds it is a set of hashes that depends on the arc:

    DISTANCE   {|h - m|, capped}                 NEAREST   {how often h's and m's tags stand between}
    BETWEEN    {tag of each word between}        SPAN      {the set of these tags, as one value}
    MORPH      {(feature of h, feature of m)}    HEAD_MORPH, MODIFIER_MORPH   {feature of h}, {of m}

Templates that look at one end only are summed once per token over all 16 slots.
Cost of scoring: O(arcs * (templates + distinct tags between)) row reads.
"""
from libc.math cimport fabs, sqrtf
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

import numpy as np

from cython_ext.hashing cimport END_ID, GOLDEN, PREFETCH, START_ID, mix

cdef extern from * nogil:
    """
    #include "simd.h"

    /* out = sum of k rows; those that come next are asked for meanwhile, not all at once. */
    KERNEL void sum_slots(const float *w, const uint32_t *rows, int k, const uint32_t *next,
                          int next_k, double *restrict out)
    {
        double total[16] = {0.0};
        for (int i = 0; i < k || i < next_k; i++) {
            if (i < next_k)
                PREFETCH(w + (index_t)next[i] * 16);
            if (i < k)
                for (int s = 0; s < 16; s++)
                    total[s] += w[(index_t)rows[i] * 16 + s];
        }
        memcpy(out, total, sizeof total);
    }
    """
    void sum_slots(const float *w, const uint32_t *rows, int k, const uint32_t *next, int next_k,
                   double *out)


cdef enum:
    N_KINDS = 9
    MAX_DISTANCE = 40

SLOTS = SLOTS_
# Kinds, by the letter that names them in a template (parser/features/templates.py).
PLAIN, DISTANCE, NEAREST, SPAN, BETWEEN_COARSE, BETWEEN_FINE, MORPH, HEAD_MORPH, MODIFIER_MORPH = range(9)
cdef enum:
    K_PLAIN = 0
    K_DISTANCE = 1
    K_NEAREST = 2
    K_SPAN = 3
    K_BETWEEN_COARSE = 4
    K_BETWEEN_FINE = 5
    K_MORPH = 6
    K_HEAD_MORPH = 7
    K_MODIFIER_MORPH = 8


cdef inline uint32_t tagged(uint64_t kind, uint64_t value) noexcept nogil:
    return <uint32_t>mix((kind << 56) ^ (value * GOLDEN) ^ <uint64_t>0xA24BAED4963EE407)


cdef inline int bin_slot(int h, int m) noexcept nogil:
    return 2 + distance_bin(m - h) if h < m else 9 + distance_bin(h - m)


cdef void hash_atoms(const int32_t *ids, int fields, const int32_t *atoms, const uint64_t *seeds,
                     Py_ssize_t expressions, int width, int t, int n, uint32_t *out) noexcept nogil:
    """Hashes of all expressions at position t, by ids (n+1, fields).

    An expression is so many atoms, rows (field, offset), field -1 ends them.  Of the positions -1
    and n + 1, which stand for a part's START and END, all atoms are the same.
    """
    cdef uint64_t h
    cdef int at, value, a
    cdef bint inside = 0 <= t <= n
    cdef Py_ssize_t e
    for e in range(expressions):
        h = seeds[e]
        for a in range(width):
            if atoms[2 * a] < 0:
                break
            at = t + atoms[2 * a + 1] if inside else t
            value = START_ID if at < 0 else END_ID if at > n else ids[at * fields + atoms[2 * a]]
            h = mix(h ^ (<uint64_t>(value + 1) * GOLDEN))
        out[e] = <uint32_t>(h >> 32)
        atoms += 2 * width


cdef struct Tokens:
    int n
    int morph_width
    uint32_t *head            # (n+1, templates): hash of the template's head expression at a token
    uint32_t *modifier        # (n+1, templates): the same for its modifier expression
    uint32_t *alone_head      # (n+1, one-ended templates)
    uint32_t *alone_modifier
    int32_t *coarse
    int32_t *fine
    int32_t *n_morph          # (n+1,) single morphological features of a token
    uint32_t *morph_head      # (n+1, width) their hashes, for when the token is the head
    uint32_t *morph_modifier


cdef class Encoded:
    """A sentence as hashes: what scoring needs, and nothing that depends on the weights."""
    cdef Tokens tokens

    def __cinit__(self):
        memset(&self.tokens, 0, sizeof(Tokens))

    @property
    def n(self):
        """Number of words."""
        return self.tokens.n

    def __dealloc__(self):
        free(self.tokens.head)
        free(self.tokens.modifier)
        free(self.tokens.alone_head)
        free(self.tokens.alone_modifier)
        free(self.tokens.coarse)
        free(self.tokens.fine)
        free(self.tokens.n_morph)
        free(self.tokens.morph_head)
        free(self.tokens.morph_modifier)


cdef struct Task:
    Tokens *sentence
    const int32_t *heads
    const int32_t *offsets
    double *scores


cdef struct Scratch:
    uint32_t *rows            # rows of three arcs, one after another on their way through memory
    Py_ssize_t capacity
    uint32_t *extras[N_KINDS]
    int n_extras[N_KINDS]
    int32_t *count_coarse     # by tag: how often it stands between
    int32_t *count_fine
    uint32_t span             # sum of the hashes of the distinct fine tags between


cdef struct Walk:
    int arc                   # the arc h -> m that the walk has reached
    int h
    int m
    int step                  # -1 while heads are to the left of m, 1 to the right
    int next                  # the arc to look at next, between first and last of m
    int first
    int last
    int t                     # the word that comes between next


cdef class Templates:
    """Compiled templates.  Arrays as made by parser.features.templates.

    expressions: (E, A, 2) int32, atoms (field, offset) of each expression, field -1 for none;
    seeds: (E,) uint64; the first n_head are expressions of the head.
    pairs: (T, 3) int32 (head expression, modifier expression, kind), sorted by kind;
    alone_head, alone_modifier: (U, 2) int32 (expression, kind) of the one-ended templates.
    bits: the table has 2**bits rows.  coarse, fine: fields that the tags between are taken from.
    """
    cdef readonly int bits, n_head, n_modifier
    cdef int coarse_field, fine_field
    cdef int32_t[:, :, ::1] expressions
    cdef uint64_t[::1] seeds
    cdef int32_t[:, ::1] pairs, alone_head, alone_modifier
    cdef int32_t[::1] kinds
    cdef int uses[N_KINDS]

    def __init__(self, expressions, seeds, int n_head, pairs, alone_head, alone_modifier, int bits,
                 int coarse_field, int fine_field):
        self.expressions = np.ascontiguousarray(expressions, np.int32)
        self.seeds = np.ascontiguousarray(seeds, np.uint64)
        self.n_head = n_head
        self.n_modifier = self.expressions.shape[0] - n_head
        self.pairs = np.ascontiguousarray(pairs, np.int32).reshape(-1, 3)
        self.alone_head = np.ascontiguousarray(alone_head, np.int32).reshape(-1, 2)
        self.alone_modifier = np.ascontiguousarray(alone_modifier, np.int32).reshape(-1, 2)
        self.bits = bits
        self.coarse_field = coarse_field
        self.fine_field = fine_field
        self.kinds = np.ascontiguousarray(np.asarray(self.pairs)[:, 2])
        cdef int k
        cdef Py_ssize_t t
        for k in range(N_KINDS):
            self.uses[k] = 0
        for t in range(self.pairs.shape[0]):
            self.uses[self.pairs[t, 2]] += 1

    def encode(self, const int32_t[:, ::1] ids, const int32_t[:, ::1] morph):
        """Hash every expression at every position.  O(n * atoms).

        ids: (n+1, F) values of the fields, row 0 the root; morph: (n+1, W) ids of single
        morphological features, 0 for none.
        """
        cdef Encoded encoded = Encoded()
        cdef Tokens *out = &encoded.tokens
        cdef int n = <int>ids.shape[0] - 1, width = <int>morph.shape[1]
        cdef int pairs = <int>self.pairs.shape[0]
        cdef int alone_head = <int>self.alone_head.shape[0]
        cdef int alone_modifier = <int>self.alone_modifier.shape[0]
        cdef int t, i, k, fields = <int>ids.shape[1]
        cdef const int32_t *pair = &self.pairs[0, 0] if pairs else NULL
        cdef uint32_t *hashes = NULL
        out.n = n
        out.morph_width = width
        out.head = <uint32_t *>malloc((n + 1) * pairs * sizeof(uint32_t) + 1)
        out.modifier = <uint32_t *>malloc((n + 1) * pairs * sizeof(uint32_t) + 1)
        out.alone_head = <uint32_t *>malloc((n + 1) * alone_head * sizeof(uint32_t) + 1)
        out.alone_modifier = <uint32_t *>malloc((n + 1) * alone_modifier * sizeof(uint32_t) + 1)
        out.coarse = <int32_t *>malloc((n + 1) * sizeof(int32_t))
        out.fine = <int32_t *>malloc((n + 1) * sizeof(int32_t))
        out.n_morph = <int32_t *>malloc((n + 1) * sizeof(int32_t))
        out.morph_head = <uint32_t *>malloc((n + 1) * width * sizeof(uint32_t) + 1)
        out.morph_modifier = <uint32_t *>malloc((n + 1) * width * sizeof(uint32_t) + 1)
        hashes = <uint32_t *>malloc(self.expressions.shape[0] * sizeof(uint32_t))
        if not (out.head and out.modifier and out.alone_head and out.alone_modifier and out.coarse
                and out.fine and out.n_morph and out.morph_head and out.morph_modifier and hashes):
            free(hashes)
            raise MemoryError
        with nogil:
            for t in range(n + 1):
                out.coarse[t] = ids[t, self.coarse_field]
                out.fine[t] = ids[t, self.fine_field]
                k = 0
                for i in range(width):
                    if morph[t, i]:
                        out.morph_head[t * width + k] = tagged(K_HEAD_MORPH, morph[t, i])
                        out.morph_modifier[t * width + k] = tagged(K_MODIFIER_MORPH, morph[t, i])
                        k += 1
                out.n_morph[t] = k
                hash_atoms(&ids[0, 0], fields, &self.expressions[0, 0, 0], &self.seeds[0],
                           self.expressions.shape[0], <int>self.expressions.shape[1], t, n, hashes)
                for i in range(pairs):
                    out.head[t * pairs + i] = hashes[pair[3 * i]]
                    out.modifier[t * pairs + i] = hashes[self.n_head + pair[3 * i + 1]]
                for i in range(alone_head):
                    out.alone_head[t * alone_head + i] = hashes[self.alone_head[i, 0]]
                for i in range(alone_modifier):
                    out.alone_modifier[t * alone_modifier + i] = hashes[
                        self.n_head + self.alone_modifier[i, 0]]
        free(hashes)
        return encoded

    def score(self, list sentences, list arcs, const float[:, ::1] weights,
              const uint64_t[::1] index=None):
        """Scores of the candidate arcs of sentences, modifier-major: a list of (arcs,) float64.

        The GIL is released once for all of them, so that threads with a batch each do not wait for
        one another.

        sentences: list of Encoded.  arcs: list of parser.graph.Arcs.  weights: (2**bits, 16), or the
        values of a CompactTable with its index.
        """
        cdef Py_ssize_t i, size = len(sentences)
        cdef const int32_t[::1] heads, offsets
        cdef double[::1] out
        cdef const uint64_t *find = NULL
        cdef const float *w = NULL
        cdef int failed = 0
        results = [np.zeros(len(each)) for each in arcs]
        if weights.shape[0] == 0:
            return results
        w = &weights[0, 0]
        if index is not None:
            find = &index[0]
        cdef Task *tasks = <Task *>malloc(size * sizeof(Task) + 1)
        if tasks == NULL:
            raise MemoryError
        for i in range(size):
            heads, offsets = arcs[i].heads, arcs[i].offsets
            out = results[i]
            tasks[i].sentence = &(<Encoded?>sentences[i]).tokens
            tasks[i].heads = &heads[0]
            tasks[i].offsets = &offsets[0]
            tasks[i].scores = &out[0]
        with nogil:
            for i in range(size):
                failed |= self.score_sentence(&tasks[i], w, find)
        free(tasks)
        if failed:
            raise MemoryError
        return results

    cdef int score_sentence(self, Task *task, const float *w, const uint64_t *find) noexcept nogil:
        """1 if memory is short."""
        cdef Scratch scratch
        cdef Tokens *s = task.sentence
        cdef double *alone = <double *>calloc(2 * (s.n + 1) * SLOTS_, sizeof(double))
        cdef int failed = self.open_scratch(s, &scratch) or alone == NULL
        if not failed:
            failed = self.sum_alone(s, w, find, alone)
        if not failed:
            self.score_arcs(s, task.heads, task.offsets, w, find, alone, &scratch, task.scores)
        self.close_scratch(&scratch)
        free(alone)
        return failed

    def add_gradient(self, Gradient gradient, Encoded encoded, const int32_t[::1] heads,
                     const int32_t[::1] offsets, const double[::1] coefficients,
                     double tolerance=1e-8):
        """gradient += sum_a coefficients[a] * features(a).

        Arcs with |coefficient| <= tolerance are left out.  Linear in the rows touched; releases the
        GIL.
        """
        cdef Tokens *sentence = &encoded.tokens
        cdef Scratch scratch
        cdef int failed = 0
        with nogil:
            failed = self.open_scratch(sentence, &scratch)
            if not failed:
                failed = self.accumulate(sentence, &heads[0], &offsets[0], &coefficients[0], tolerance,
                                         &scratch, gradient.sums)
            self.close_scratch(&scratch)
        if failed:
            raise MemoryError

    # ---- per token -----------------------------------------------------------------------------

    cdef int alone_rows(self, Tokens *s, int t, bint head, uint32_t *rows) noexcept nogil:
        """Rows of the one-ended templates at position t; their number."""
        cdef int32_t[:, ::1] table = self.alone_head if head else self.alone_modifier
        cdef uint32_t *hashes = (s.alone_head if head else s.alone_modifier) + t * table.shape[0]
        cdef uint32_t *morph = (s.morph_head if head else s.morph_modifier) + t * s.morph_width
        cdef int shift = 32 - self.bits, k = 0, i
        cdef Py_ssize_t u
        for u in range(table.shape[0]):
            if table[u, 1] == K_PLAIN:
                rows[k] = hashes[u] >> shift
                k += 1
            else:
                for i in range(s.n_morph[t]):
                    rows[k] = (hashes[u] + morph[i]) >> shift
                    k += 1
        return k

    cdef int sum_alone(self, Tokens *s, const float *w, const uint64_t *find,
                       double *alone) noexcept nogil:
        """alone[0, h] and alone[1, m]: all 16 slots summed over the one-ended templates.

        1 if memory is short.
        """
        cdef int n = s.n, p, k = 0, next_k
        cdef Py_ssize_t size = max(self.alone_head.shape[0], self.alone_modifier.shape[0])
        cdef uint32_t *memory
        cdef uint32_t *rows
        cdef uint32_t *next
        size = size * (s.morph_width + 1) + 1
        memory = <uint32_t *>malloc(2 * size * sizeof(uint32_t))
        if memory == NULL:
            return 1
        rows, next = memory, memory + size
        # Heads 0..n, then modifiers 0..n, of which the root has none; each step sums what the one
        # before it asked for.
        for p in range(2 * n + 3):
            next_k = 0
            if p <= 2 * n + 1 and p != n + 1:
                next_k = self.alone_rows(s, p if p <= n else p - n - 1, p <= n, next)
                if find != NULL:
                    next_k = locate(find, next, next_k, 0)
            sum_slots(w, rows, k, next, next_k, alone + max(0, p - 1) * SLOTS_)
            rows, next, k = next, rows, next_k
        free(memory)
        return 0

    # ---- per arc -------------------------------------------------------------------------------

    cdef int open_scratch(self, Tokens *s, Scratch *x) noexcept nogil:
        cdef int k, t, top_coarse = 3, top_fine = 3, w = s.morph_width
        cdef Py_ssize_t per_arc = 0
        cdef int size
        memset(x, 0, sizeof(Scratch))
        for t in range(s.n + 1):
            top_coarse = max(top_coarse, s.coarse[t])
            top_fine = max(top_fine, s.fine[t])
        for k in range(N_KINDS):
            if k == K_BETWEEN_COARSE or k == K_BETWEEN_FINE:
                size = s.n + 1
            elif k == K_MORPH:
                size = w * w
            elif k == K_HEAD_MORPH or k == K_MODIFIER_MORPH:
                size = w
            else:
                size = 1
            per_arc += size * self.uses[k]
            x.extras[k] = <uint32_t *>malloc((size + 1) * sizeof(uint32_t))
            if x.extras[k] == NULL:
                return 1
        x.capacity = per_arc
        x.rows = <uint32_t *>malloc((3 * per_arc + 1) * sizeof(uint32_t))
        x.count_coarse = <int32_t *>calloc(top_coarse + 1, sizeof(int32_t))
        x.count_fine = <int32_t *>calloc(top_fine + 1, sizeof(int32_t))
        x.extras[K_PLAIN][0] = 0
        x.n_extras[K_PLAIN] = 1
        return 0 if x.rows and x.count_coarse and x.count_fine else 1

    cdef void close_scratch(self, Scratch *x) noexcept nogil:
        cdef int k
        for k in range(N_KINDS):
            free(x.extras[k])
        free(x.rows)
        free(x.count_coarse)
        free(x.count_fine)

    cdef void clear_between(self, Tokens *s, Scratch *x) noexcept nogil:
        cdef int t
        for t in range(s.n + 1):
            x.count_coarse[s.coarse[t]] = 0
            x.count_fine[s.fine[t]] = 0
        x.n_extras[K_BETWEEN_COARSE] = 0
        x.n_extras[K_BETWEEN_FINE] = 0
        x.span = 0

    cdef void add_between(self, Tokens *s, Scratch *x, int t) noexcept nogil:
        """Word t now stands between."""
        cdef uint32_t h
        if x.count_coarse[s.coarse[t]] == 0:
            x.extras[K_BETWEEN_COARSE][x.n_extras[K_BETWEEN_COARSE]] = tagged(K_BETWEEN_COARSE, s.coarse[t])
            x.n_extras[K_BETWEEN_COARSE] += 1
        x.count_coarse[s.coarse[t]] += 1
        if x.count_fine[s.fine[t]] == 0:
            h = tagged(K_BETWEEN_FINE, s.fine[t])
            x.extras[K_BETWEEN_FINE][x.n_extras[K_BETWEEN_FINE]] = h
            x.n_extras[K_BETWEEN_FINE] += 1
            x.span += <uint32_t>mix(h)                   # a sum: the set's hash does not depend on order
        x.count_fine[s.fine[t]] += 1

    cdef bint next_arc(self, Tokens *s, const int32_t *heads, const int32_t *offsets, Scratch *x,
                       Walk *at) noexcept nogil:
        """Go to the next candidate arc; x then holds what stands between its ends.  0 at the end.

        From each modifier the walk goes to the left, then to the right, so that the words between
        grow one at a time.  A walk starts with all fields 0.
        """
        while True:
            if at.first <= at.next < at.last:
                at.arc = at.next
                at.next += at.step
                at.h = heads[at.arc]
                while at.t != at.h:
                    self.add_between(s, x, at.t)
                    at.t += at.step
                return True
            if at.step < 0:
                at.step = 1
                at.next = at.first
                while at.next < at.last and heads[at.next] < at.m:
                    at.next += 1
            else:
                if at.m == s.n:
                    return False
                at.m += 1
                at.first = offsets[at.m - 1]
                at.last = offsets[at.m]
                at.step = -1
                at.next = at.last - 1
                while at.next >= at.first and heads[at.next] > at.m:
                    at.next -= 1
            at.t = at.m + at.step
            self.clear_between(s, x)

    cdef int arc_rows(self, Tokens *s, Scratch *x, int h, int m, uint32_t *rows) noexcept nogil:
        """Rows of the two-ended templates for h -> m, given the words between; their number."""
        cdef int pairs = <int>self.pairs.shape[0], plain = self.uses[K_PLAIN]
        cdef uint32_t *head = s.head + h * pairs
        cdef uint32_t *modifier = s.modifier + m * pairs
        cdef int shift = 32 - self.bits, k = 0, i, j, kind, t, w = s.morph_width
        cdef uint32_t *extras
        cdef int distance = m - h if h < m else h - m
        cdef uint32_t base
        if self.uses[K_DISTANCE]:
            x.extras[K_DISTANCE][0] = tagged(K_DISTANCE, min(distance, MAX_DISTANCE))
            x.n_extras[K_DISTANCE] = 1
        if self.uses[K_NEAREST]:
            x.extras[K_NEAREST][0] = tagged(K_NEAREST, min(x.count_coarse[s.coarse[h]], 2) * 3
                                            + min(x.count_coarse[s.coarse[m]], 2))
            x.n_extras[K_NEAREST] = 1
        if self.uses[K_SPAN]:
            x.extras[K_SPAN][0] = tagged(K_SPAN, x.span)
            x.n_extras[K_SPAN] = 1
        if self.uses[K_MORPH]:
            for i in range(s.n_morph[h]):
                for j in range(s.n_morph[m]):
                    x.extras[K_MORPH][k] = s.morph_head[h * w + i] + s.morph_modifier[m * w + j]
                    k += 1
            x.n_extras[K_MORPH] = k
        if self.uses[K_HEAD_MORPH]:
            for i in range(s.n_morph[h]):
                x.extras[K_HEAD_MORPH][i] = s.morph_head[h * w + i]
            x.n_extras[K_HEAD_MORPH] = s.n_morph[h]
        if self.uses[K_MODIFIER_MORPH]:
            for i in range(s.n_morph[m]):
                x.extras[K_MODIFIER_MORPH][i] = s.morph_modifier[m * w + i]
            x.n_extras[K_MODIFIER_MORPH] = s.n_morph[m]
        for t in range(plain):                 # sorted by kind, PLAIN first
            rows[t] = (head[t] + modifier[t]) >> shift
        k = plain
        for t in range(plain, pairs):
            base = head[t] + modifier[t]
            kind = self.kinds[t]
            extras = x.extras[kind]
            for i in range(x.n_extras[kind]):
                rows[k + i] = (base + extras[i]) >> shift
            k += x.n_extras[kind]
        return k

    cdef void score_arcs(self, Tokens *s, const int32_t *heads, const int32_t *offsets,
                         const float *w, const uint64_t *find, const double *alone, Scratch *x,
                         double *out) noexcept nogil:
        cdef int t, slot, turn = 0
        cdef bint right
        cdef Walk at
        cdef Flight[3] flights
        cdef Flight *flight
        cdef const double *from_head
        cdef const double *from_modifier
        for t in range(3):
            flights[t].rows = x.rows + t * x.capacity
            flights[t].arc = -1
        memset(&at, 0, sizeof(Walk))
        while self.next_arc(s, heads, offsets, x, &at):
            slot = bin_slot(at.h, at.m)
            right = at.h < at.m
            from_head = alone + at.h * SLOTS_
            from_modifier = alone + (s.n + 1 + at.m) * SLOTS_
            out[at.arc] = from_head[0] + from_head[slot] + from_modifier[0] + from_modifier[slot]
            if right:
                out[at.arc] += from_head[1] + from_modifier[1]
            flight = &flights[turn]
            flight.arc = at.arc
            flight.slot = slot
            flight.right = right
            flight.k = self.arc_rows(s, x, at.h, at.m, flight.rows)
            advance(flights, turn, w, find, out)
            turn = (turn + 1) % 3
        for t in range(2):
            flights[turn].arc = -1
            advance(flights, turn, w, find, out)
            turn = (turn + 1) % 3

    cdef int accumulate(self, Tokens *s, const int32_t *heads, const int32_t *offsets,
                        const double *coefficients, double tolerance, Scratch *x,
                        Accumulator *acc) noexcept nogil:
        cdef int side, t, k, i, slot, n = s.n, failed = 0
        cdef float c
        cdef bint right
        cdef Walk at
        cdef float *value
        cdef float *alone = <float *>calloc(2 * (n + 1) * SLOTS_, sizeof(float))
        cdef uint8_t *used = <uint8_t *>calloc(2 * (n + 1), 1)
        cdef Py_ssize_t size = max(self.alone_head.shape[0], self.alone_modifier.shape[0])
        cdef uint32_t *rows = <uint32_t *>malloc((size * (s.morph_width + 1) + 1) * sizeof(uint32_t))
        if alone == NULL or used == NULL or rows == NULL:
            failed = 1
        memset(&at, 0, sizeof(Walk))
        while not failed and self.next_arc(s, heads, offsets, x, &at):
            if fabs(coefficients[at.arc]) <= tolerance:
                continue
            c = <float>coefficients[at.arc]
            slot = bin_slot(at.h, at.m)
            right = at.h < at.m
            add_slots(alone + at.h * SLOTS_, c, slot, right)
            add_slots(alone + (n + 1 + at.m) * SLOTS_, c, slot, right)
            used[at.h] = 1
            used[n + 1 + at.m] = 1
            k = self.arc_rows(s, x, at.h, at.m, x.rows)
            for i in range(k):
                value = acc_row(acc, x.rows[i])
                if value == NULL:
                    failed = 1
                    break
                add_slots(value, c, slot, right)
        for side in range(2):
            for t in range(n + 1):
                if failed or not used[side * (n + 1) + t]:
                    continue
                k = self.alone_rows(s, t, side == 0, rows)
                for i in range(k):
                    value = acc_row(acc, rows[i])
                    if value == NULL:
                        failed = 1
                        break
                    for slot in range(SLOTS_):
                        value[slot] += alone[(side * (n + 1) + t) * SLOTS_ + slot]
        free(alone)
        free(used)
        free(rows)
        return failed


cdef inline double sum_rows(const float *w, const uint32_t *rows, int k, int slot,
                            bint right) noexcept nogil:
    # Two running sums, so that one addition need not wait for the other.
    cdef float even = 0.0, odd = 0.0
    cdef const float *row
    cdef const float *next
    cdef int i = 0
    while i + 1 < k:
        row = w + <Py_ssize_t>rows[i] * SLOTS_
        next = w + <Py_ssize_t>rows[i + 1] * SLOTS_
        if right:
            even += row[0] + row[1] + row[slot]
            odd += next[0] + next[1] + next[slot]
        else:
            even += row[0] + row[slot]
            odd += next[0] + next[slot]
        i += 2
    if i < k:
        row = w + <Py_ssize_t>rows[i] * SLOTS_
        even += row[0] + row[slot]
        if right:
            even += row[1]
    return <double>even + odd


cdef struct Flight:
    uint32_t *rows
    int arc                   # -1: nothing
    int k
    int slot
    bint right


cdef inline void advance(Flight *flights, int turn, const float *w, const uint64_t *find,
                         double *out) noexcept nogil:
    """Ask for what the newest arc needs, go on with the one before it, add up the oldest.

    Each step reads only what was asked for one arc earlier, so that the waits for memory overlap.
    """
    cdef Flight *newest = &flights[turn]
    cdef Flight *middle = &flights[(turn + 2) % 3]
    cdef Flight *oldest = &flights[(turn + 1) % 3]
    cdef int i
    if newest.arc >= 0 and find != NULL:
        for i in range(newest.k):
            PREFETCH(find + (newest.rows[i] >> 5))
    if middle.arc >= 0:
        if find != NULL:
            middle.k = locate(find, middle.rows, middle.k, 0)
        for i in range(middle.k):
            PREFETCH(w + <Py_ssize_t>middle.rows[i] * SLOTS_)
    if oldest.arc >= 0:
        out[oldest.arc] += sum_rows(w, oldest.rows, oldest.k, oldest.slot, oldest.right)


cdef inline void add_slots(float *row, float c, int slot, bint right) noexcept nogil:
    row[0] += c
    row[slot] += c
    if right:
        row[1] += c


# ---- rows met so far: an open-addressing table from row number to 16 values ---------------------

cdef class Gradient:
    """A sparse sum of features, row by row."""

    def __cinit__(self):
        self.sums = open_accumulator()
        if self.sums == NULL:
            raise MemoryError

    def __dealloc__(self):
        close_accumulator(self.sums)

    def arrays(self):
        """Distinct rows (k,) int64, in order of first use, and their values (k, 16) float32."""
        cdef Accumulator *acc = self.sums
        cdef Py_ssize_t i
        rows_array = np.empty(acc.n, np.int64)
        values_array = np.empty((acc.n, SLOTS_), np.float32)
        cdef long long[::1] rows = rows_array
        cdef float[:, ::1] values = values_array
        if acc.n:
            with nogil:
                for i in range(acc.n):
                    rows[i] = acc.rows[i]
                memcpy(&values[0, 0], acc.values, acc.n * SLOTS_ * sizeof(float))
        return rows_array, values_array


cdef Accumulator *open_accumulator() noexcept nogil:
    cdef Accumulator *acc = <Accumulator *>calloc(1, sizeof(Accumulator))
    if acc == NULL:
        return NULL
    acc.room = 0
    if grow(acc, 4096):
        close_accumulator(acc)
        return NULL
    return acc


cdef void close_accumulator(Accumulator *acc) noexcept nogil:
    if acc != NULL:
        free(acc.index)
        free(acc.rows)
        free(acc.values)
        free(acc)


cdef int grow(Accumulator *acc, Py_ssize_t room) noexcept nogil:
    """Make space for `room` rows; the index is kept at most half full.  1 if memory is short."""
    cdef Py_ssize_t i, at, size = 2 * room
    cdef uint32_t *rows = <uint32_t *>malloc(room * sizeof(uint32_t))
    cdef float *values = <float *>malloc(room * SLOTS_ * sizeof(float))
    cdef int32_t *index = <int32_t *>malloc(size * sizeof(int32_t))
    if rows == NULL or values == NULL or index == NULL:
        free(rows)
        free(values)
        free(index)
        return 1
    memset(index, 0xFF, size * sizeof(int32_t))
    for i in range(acc.n):
        rows[i] = acc.rows[i]
        at = (rows[i] * <uint32_t>0x9E3779B1) & (size - 1)
        while index[at] >= 0:
            at = (at + 1) & (size - 1)
        index[at] = <int32_t>i
    for i in range(acc.n * SLOTS_):
        values[i] = acc.values[i]
    free(acc.index)
    free(acc.rows)
    free(acc.values)
    acc.rows = rows
    acc.values = values
    acc.index = index
    acc.room = room
    acc.mask = size - 1
    return 0


cdef float *acc_row(Accumulator *acc, uint32_t row) noexcept nogil:
    """The 16 values of a row, zero when it is met first; NULL if memory is short."""
    cdef Py_ssize_t at = (row * <uint32_t>0x9E3779B1) & acc.mask
    cdef int32_t i
    cdef int s
    while True:
        i = acc.index[at]
        if i < 0:
            break
        if acc.rows[i] == row:
            return acc.values + <Py_ssize_t>i * SLOTS_
        at = (at + 1) & acc.mask
    if acc.n == acc.room:
        if grow(acc, 2 * acc.room):
            return NULL
        return acc_row(acc, row)
    acc.index[at] = <int32_t>acc.n
    acc.rows[acc.n] = row
    for s in range(SLOTS_):
        acc.values[acc.n * SLOTS_ + s] = 0.0
    acc.n += 1
    return acc.values + (acc.n - 1) * SLOTS_


# ---- sparse updates of a table ------------------------------------------------------------------

cdef enum:
    AHEAD = 12                # rows asked for before they are needed, so that waits overlap


def add(float[:, ::1] table, float[:, ::1] sums, const long long[::1] rows,
        const float[:, ::1] values, double step, double counter):
    """table[rows] += step * values and sums[rows] += counter * step * values, rows distinct.

    sums serves averaging over steps (average = table - sums / steps).  Releases the GIL.
    """
    cdef Py_ssize_t i, s, n = rows.shape[0]
    cdef float d, first = <float>step, second = <float>(counter * step)
    cdef float *row
    cdef float *total
    with nogil:
        for i in range(n):
            if i + AHEAD < n:
                PREFETCH(&table[rows[i + AHEAD], 0])
                PREFETCH(&sums[rows[i + AHEAD], 0])
            row = &table[rows[i], 0]
            total = &sums[rows[i], 0]
            for s in range(SLOTS_):
                d = values[i, s]
                row[s] += first * d
                total[s] += second * d


def adagrad(float[:, ::1] table, float[:, ::1] squares, float[:, ::1] sums, const long long[::1] rows,
            const float[:, ::1] gradient, double rate, double counter):
    """Ascend: squares += g^2; step = rate g / sqrt(squares); table += step; sums += counter * step.

    Duchi et al. (2011), diagonal.  sums as in `add`.  Releases the GIL.
    """
    cdef Py_ssize_t i, s, n = rows.shape[0]
    cdef float g, step
    with nogil:
        for i in range(n):
            if i + AHEAD < n:
                PREFETCH(&table[rows[i + AHEAD], 0])
                PREFETCH(&squares[rows[i + AHEAD], 0])
                PREFETCH(&sums[rows[i + AHEAD], 0])
            for s in range(SLOTS_):
                g = gradient[i, s]
                if g != 0.0:
                    squares[rows[i], s] += g * g
                    step = <float>rate * g / (sqrtf(squares[rows[i], s]) + <float>1e-6)
                    table[rows[i], s] += step
                    sums[rows[i], s] += <float>counter * step


def average_sizes(const float[:, ::1] table, const float[:, ::1] sums, double steps,
                  float[::1] sizes):
    """sizes[row] = max |table - sums / steps| over the row: 0 exactly where both rows are 0.

    Releases the GIL.
    """
    cdef Py_ssize_t i, s
    cdef float size, value, share = <float>(1.0 / steps)
    with nogil:
        for i in range(table.shape[0]):
            size = 0.0
            for s in range(SLOTS_):
                value = table[i, s] - share * sums[i, s]
                value = value if value > 0 else -value
                size = value if value > size else size
            sizes[i] = size

