"""Hashed features of parts: scoring SIB, CHILDSEQ, GRAND, GRANDSIB, NOCROSS, and their gradients.

A part is two to four positions, as in parser.graph.FAMILIES.  A template is an expression for each
of them and a kind; its feature in a part is half a row of the table of arc features: 8 weights, the
feature alone and with the distance bin of the outermost arc.  The half row is

    half = (E_0[i_0, template] + E_1[i_1, template] + ... + x[kind]) >> shift

in 32-bit arithmetic, as for arcs (features.pyx).  E_k holds the hashes of the k-th expressions at
each token, so that what parts share is added once: E_g + E_h for an arc g -> h, and so on, and one
vectorised addition is left for each part.  x depends on the part:

    PLAIN   the family          ORDER   and the order of the positions (directions of the arcs)
    GAP     and the distance bin between the siblings, or of the grandparent's arc

START and END of a sibling sequence are the tokens -1 and n + 1.
Cost: O(parts * templates) reads of half a cache line; nothing is stored but the scores.
"""
from libc.math cimport INFINITY, fabs, sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

import numpy as np

from cython_ext.features cimport (
    SLOTS_, Accumulator, Gradient, acc_row, distance_bin, hash_atoms, locate,
)
from cython_ext.hashing cimport GOLDEN, PREFETCH, mix
from cython_ext.layout cimport (
    CHILDSEQ_, GRAND_, GRANDSIB_, N_FAMILIES, NOCROSS_, SIB_, Layout, Places, side_count,
    sided_child, triangle,
)

cdef enum:
    WIDTH = 4                 # positions of a part, at most
    N_KINDS = 3
    HALF = 8                  # weights of a feature
    IN_FLIGHT = 32            # single parts whose weights are asked for at once
    AHEAD = 32                # half rows that are asked for before they are read, about
    FLIGHTS = 2 * 8 + 1
    BINS = 7                  # of distances
    ORDERS = 8
    GAPS = 8

PLAIN, ORDER, GAP = range(N_KINDS)
POSITIONS = {SIB_: 3, CHILDSEQ_: 3, GRAND_: 3, GRANDSIB_: 4, NOCROSS_: 2}


cdef struct Table:
    int positions
    int templates
    int ends[N_KINDS]         # templates are sorted by kind; where each kind ends
    int salt
    uint32_t x[ORDERS * GAPS][N_KINDS]     # what a part's order and gap add


# What it takes to score single parts of SIB or GRAND of a sentence.
cdef struct Recipe:
    int templates
    int shift
    const Table *table
    const uint32_t *hashes[3]
    const float *weights
    const uint64_t *find


cdef class EncodedParts:
    """A sentence as hashes of the expressions of parts."""
    cdef int n
    cdef uint32_t *hashes[N_FAMILIES][WIDTH]   # (n+3, templates) from token -1 on

    def __cinit__(self):
        memset(self.hashes, 0, sizeof(self.hashes))

    def __dealloc__(self):
        cdef int f, k
        for f in range(N_FAMILIES):
            for k in range(WIDTH):
                free(self.hashes[f][k])


cdef struct Flight:
    uint32_t *halves
    int k
    int slot
    double *score             # NULL: nothing


cdef struct Pass:
    # One walk over the parts of a family: scoring, or adding to a gradient.
    Table *table
    Places *places
    uint32_t **hashes
    const float *weights
    const uint64_t *find
    double *scores            # scoring, if not NULL
    const double *coefficients
    double tolerance
    Accumulator *gradient
    uint32_t *base            # sums of expressions that parts share, two levels
    uint32_t *inner_base
    Flight[FLIGHTS] flights
    int distance              # parts between two steps of one
    int turn
    int failed
    const uint32_t *x         # (N_KINDS,) see Table
    int shift


cdef class PartTemplates:
    """Compiled templates of parts.  Arrays as made by parser.features.part_templates.

    expressions: (E, A, 2) int32, atoms (field, offset), field -1 for none; seeds: (E,) uint64.
    tables: for a family's number (T, positions + 1) int32, an expression for each position and the
    kind, sorted by kind.  bits: the table has 2**bits rows of two features.
    """
    cdef readonly int bits
    cdef int32_t[:, :, ::1] expressions
    cdef uint64_t[::1] seeds
    cdef dict members
    cdef Table tables[N_FAMILIES]
    cdef int widest

    def __init__(self, expressions, seeds, dict tables, int bits):
        cdef int f, k
        self.expressions = np.ascontiguousarray(expressions, np.int32)
        self.seeds = np.ascontiguousarray(seeds, np.uint64)
        self.bits = bits
        self.members = {}
        self.widest = 0
        for f in range(N_FAMILIES):
            self.tables[f].positions = POSITIONS[f]
            self.tables[f].templates = 0
            self.tables[f].salt = f + 1
            fill_extras(&self.tables[f])
            if f in tables:
                members = np.ascontiguousarray(tables[f], np.int32)
                self.members[f] = members
                self.tables[f].templates = len(members)
                self.widest = max(self.widest, len(members))
                for k in range(N_KINDS):
                    self.tables[f].ends[k] = int(np.searchsorted(members[:, -1], k, side="right"))

    def encode(self, const int32_t[:, ::1] ids):
        """Hash every expression at every position.  O(n * atoms).  ids: (n+1, F), row 0 the root."""
        cdef EncodedParts out = EncodedParts()
        cdef int n = <int>ids.shape[0] - 1, f, k, t, i, templates
        cdef int32_t[:, ::1] members
        cdef Py_ssize_t width = self.expressions.shape[0]
        cdef int32_t *chosen
        cdef uint32_t *target
        cdef uint32_t *hashed
        out.n = n
        if width == 0:
            return out
        chosen = <int32_t *>malloc((self.widest + 1) * sizeof(int32_t))
        hashed = <uint32_t *>malloc((n + 3) * width * sizeof(uint32_t))
        if chosen == NULL or hashed == NULL:
            free(chosen)
            free(hashed)
            raise MemoryError
        with nogil:
            for t in range(-1, n + 2):
                hash_atoms(&ids[0, 0], <int>ids.shape[1], &self.expressions[0, 0, 0], &self.seeds[0],
                           width, <int>self.expressions.shape[1], t, n, hashed + (t + 1) * width)
        for f in self.members:
            members = self.members[f]
            templates = self.tables[f].templates
            for k in range(self.tables[f].positions):
                target = <uint32_t *>malloc((n + 3) * templates * sizeof(uint32_t) + 1)
                if target == NULL:
                    free(chosen)
                    free(hashed)
                    raise MemoryError
                out.hashes[f][k] = target
                with nogil:
                    for i in range(templates):
                        chosen[i] = members[i, k]
                    for t in range(n + 3):
                        for i in range(templates):
                            target[t * templates + i] = hashed[t * width + chosen[i]]
        free(chosen)
        free(hashed)
        return out

    def score(self, list sentences, list layouts, int family, const float[:, ::1] weights,
              const uint64_t[::1] index=None):
        """Scores of all parts of a family, in the order of each layout: a list of (parts,) float64.

        sentences: list of EncodedParts; weights, index: as for Templates.score.  Releases the GIL
        once for all of them.
        """
        cdef Py_ssize_t i, size = len(sentences)
        cdef double[::1] out
        cdef Pass *passes
        cdef int failed = 0
        results = [np.zeros(layout.size(family)) for layout in layouts]
        if weights.shape[0] == 0 or self.tables[family].templates == 0:
            return results
        passes = <Pass *>malloc(size * sizeof(Pass) + 1)
        if passes == NULL:
            raise MemoryError
        for i in range(size):
            self.prepare(&passes[i], family, sentences[i], layouts[i])
            passes[i].weights = &weights[0, 0]
            if index is not None:
                passes[i].find = &index[0]
            out = results[i]
            if out.shape[0]:
                passes[i].scores = &out[0]
        with nogil:
            for i in range(size):
                if passes[i].scores != NULL:
                    failed |= self.walk(&passes[i], family)
        free(passes)
        if failed:
            raise MemoryError
        return results

    def score_some(self, EncodedParts encoded, Layout layout, int family,
                   const int64_t[::1] parts, const float[:, ::1] weights,
                   const uint64_t[::1] index=None):
        """Scores of the parts of SIB or GRAND at some places, (k,) float64: those of ``score``.

        O(k (templates + log arcs)).  Releases the GIL.
        """
        cdef Pass run
        cdef double[::1] out
        cdef Py_ssize_t count = parts.shape[0], i
        cdef int64_t size = layout.size(family)
        result = np.zeros(count)
        if family != SIB_ and family != GRAND_:
            raise ValueError("parts are scored one by one in SIB and GRAND only")
        for i in range(count):
            if not 0 <= parts[i] < size:
                raise ValueError(f"place {parts[i]} is not among {size} parts")
        if count == 0 or weights.shape[0] == 0 or self.tables[family].templates == 0:
            return result
        out = result
        self.prepare(&run, family, encoded, layout)
        run.weights = &weights[0, 0]
        if index is not None:
            run.find = &index[0]
        run.scores = &out[0]
        with nogil:
            self.walk(&run, family, &parts[0], count)
        if run.failed:
            raise MemoryError
        return result

    def fields_of(self, int family):
        """Of each template the one field that it reads, of the positions themselves, else -1."""
        expressions = np.asarray(self.expressions)
        fields = []
        for member in self.members.get(family, ()):
            atoms = expressions[member[:self.tables[family].positions]]
            read = {tuple(atom) for atom in atoms[atoms[..., 0] >= 0].tolist()}
            field, offset = read.pop() if len(read) == 1 else (-1, 0)
            fields.append(-1 if offset else field)
        return np.array(fields, np.int32)

    def extremes(self, EncodedParts values, int family, const uint8_t[::1] chosen,
                 const float[:, ::1] weights, const uint64_t[::1] index=None):
        """Least and largest sum of some templates' weights, by what stands at the three positions.

        Of SIB or GRAND.  values: of a sentence in which each token stands for one that parts may
        have; chosen: (templates,).  Returns (tokens, tokens, tokens, 2) float32, over all orders,
        distances and gaps, but for rounding.  O(tokens^3 templates).
        """
        cdef Pass run
        cdef float[:, :, :, ::1] out
        cdef int size = values.n + 1, x, y, z
        if family != SIB_ and family != GRAND_:
            raise ValueError("there are bounds for SIB and GRAND only")
        if chosen.shape[0] != self.tables[family].templates:
            raise ValueError(f"{chosen.shape[0]} choices of {self.tables[family].templates} templates")
        result = np.zeros((size, size, size, 2), np.float32)
        if weights.shape[0] == 0 or chosen.shape[0] == 0:
            return result
        out = result
        memset(&run, 0, sizeof(Pass))
        run.table, run.hashes, run.shift = &self.tables[family], values.hashes[family], 31 - self.bits
        run.weights = &weights[0, 0]
        if index is not None:
            run.find = &index[0]
        with nogil:
            for x in range(size):
                for y in range(size):
                    for z in range(size):
                        find_extremes(&run, x, y, z, 8 if family == GRAND_ else 4, &chosen[0],
                                      &out[x, y, z, 0])
        return result

    def add_gradient(self, Gradient gradient, EncodedParts encoded, Layout layout, int family,
                     const double[::1] coefficients, double tolerance=1e-8):
        """gradient += sum_p coefficients[p] * features(p); small coefficients are left out."""
        cdef Pass run
        if coefficients.shape[0] == 0 or self.tables[family].templates == 0:
            return
        self.prepare(&run, family, encoded, layout)
        run.coefficients = &coefficients[0]
        run.tolerance = tolerance
        run.gradient = gradient.sums
        with nogil:
            self.walk(&run, family)
        if run.failed:
            raise MemoryError

    cdef prepare(self, Pass *run, int family, EncodedParts encoded, Layout layout):
        memset(run, 0, sizeof(Pass))
        run.table = &self.tables[family]
        run.places = &layout.places
        run.hashes = encoded.hashes[family]
        run.shift = 31 - self.bits             # half rows
        run.distance = max(1, min((FLIGHTS - 1) // 2, AHEAD // max(1, run.table.templates)))
        if encoded.n != layout.places.n:
            raise ValueError("the sentence and the layout have different lengths")

    cdef int walk(self, Pass *run, int family, const int64_t *parts=NULL,
                  Py_ssize_t count=0) noexcept nogil:
        """All parts, or those of ``parts``.  1 if memory is short."""
        cdef int size = run.table.templates, k
        cdef uint32_t *memory = <uint32_t *>malloc((2 + FLIGHTS) * size * sizeof(uint32_t))
        if memory == NULL:
            run.failed = 1
            return 1
        run.base = memory
        run.inner_base = memory + size
        for k in range(FLIGHTS):
            run.flights[k].halves = memory + (2 + k) * size
        if parts != NULL:
            walk_some(run, family, parts, count)
        elif family == GRAND_:
            walk_grand(run)
        elif family == NOCROSS_:
            walk_nocross(run)
        elif family == SIB_:
            walk_sib(run)
        else:
            walk_sequences(run, family == GRANDSIB_)
        if run.scores != NULL:
            for k in range(2 * run.distance):
                run.flights[run.turn].score = NULL
                advance(run)
        free(memory)
        return run.failed


cdef class PartScorer:
    """Scores of single parts of SIB or GRAND of a sentence, computed when they are asked for.

    templates : PartTemplates; encoded, layout, family, weights, index : as for its ``score_some``,
    to which a call with places (k,) int64 goes.  Other kernels call ``score``, without the GIL;
    for these alone there may be no layout, and tokens of no sentence.
    """

    def __cinit__(self):
        self.recipe = NULL

    def __init__(self, PartTemplates templates, EncodedParts encoded, Layout layout, int family,
                 const float[:, ::1] weights, const uint64_t[::1] index=None):
        cdef Recipe *recipe
        cdef int k
        if family != SIB_ and family != GRAND_:
            raise ValueError("parts are scored one by one in SIB and GRAND only")
        if layout is not None and encoded.n != layout.places.n:
            raise ValueError("the sentence and the layout have different lengths")
        self.templates, self.encoded, self.layout = templates, encoded, layout
        self.family, self.weights, self.index = family, weights, index
        self.recipe = recipe = <Recipe *>malloc(sizeof(Recipe))
        if recipe == NULL:
            raise MemoryError
        recipe.table = &templates.tables[family]
        recipe.templates = recipe.table.templates if weights.shape[0] else 0
        recipe.shift = 31 - templates.bits
        recipe.weights = &weights[0, 0] if weights.shape[0] else NULL
        recipe.find = &index[0] if index is not None else NULL
        for k in range(3):
            recipe.hashes[k] = encoded.hashes[family][k] + recipe.templates      # of token 0

    def __dealloc__(self):
        free(self.recipe)

    def __call__(self, const int64_t[::1] places):
        """Scores (k,) float64."""
        return self.templates.score_some(self.encoded, self.layout, self.family, places,
                                         self.weights, self.index)

    cdef bint score(self, const Triple *parts, Py_ssize_t count, double *out,
                    const int32_t *tokens=NULL) noexcept nogil:
        """Scores of so many parts, as they would be in an array of all; False: no memory.

        ``tokens``: which of the encoded stands at each position; NULL: that of the position.
        Rows of weights are asked for before they are read, some parts later.
        """
        cdef Recipe *r = <Recipe *>self.recipe
        cdef int size = r.templates, i, t
        cdef Py_ssize_t first = 0, last
        cdef uint32_t *memory
        cdef int32_t[IN_FLIGHT] found
        if size == 0:
            memset(out, 0, count * sizeof(double))
            return True
        memory = <uint32_t *>malloc(IN_FLIGHT * size * sizeof(uint32_t))
        if memory == NULL:
            return False
        while first < count:
            last = min(count, first + IN_FLIGHT)
            for i in range(<int>(last - first)):
                add_hashes(r, self.family, parts + first + i, tokens, memory + i * size)
                found[i] = size
                if r.find != NULL:
                    for t in range(size):
                        PREFETCH(r.find + (memory[i * size + t] >> 6))
            for i in range(<int>(last - first)):
                if r.find != NULL:
                    found[i] = locate(r.find, memory + i * size, size, 1)
                for t in range(found[i]):
                    PREFETCH(r.weights + <Py_ssize_t>memory[i * size + t] * HALF)
            for i in range(<int>(last - first)):
                out[first + i] = add_weights(r, self.family, parts + first + i,
                                             memory + i * size, found[i])
            first = last
        free(memory)
        return True


cdef inline void add_hashes(const Recipe *r, int family, const Triple *part,
                            const int32_t *tokens, uint32_t *halves) noexcept nogil:
    """The half rows of a part's features."""
    cdef const uint32_t *a = r.hashes[0] + (tokens[part.x] if tokens else part.x) * r.templates
    cdef const uint32_t *b = r.hashes[1] + (tokens[part.y] if tokens else part.y) * r.templates
    cdef const uint32_t *c = r.hashes[2] + (tokens[part.z] if tokens else part.z) * r.templates
    cdef const uint32_t *extras
    cdef int low = part.y, high = part.z, order, gap, kind, t, begin = 0
    cdef uint32_t x
    if family == SIB_:
        low, high = min(low, high), max(low, high)
        order, gap = (part.x < low) | (part.x < high) << 1, distance_bin(high - low)
    else:
        order = (part.x < part.y) | (part.y < part.z) << 1 | (part.x < part.z) << 2
        gap = distance_bin(span(part.x, part.y))
    extras = r.table.x[order * GAPS + gap]
    for kind in range(N_KINDS):
        x = extras[kind]
        for t in range(begin, r.table.ends[kind]):
            halves[t] = (a[t] + b[t] + c[t] + x) >> r.shift
        begin = r.table.ends[kind]


cdef inline float add_weights(const Recipe *r, int family, const Triple *part,
                              const uint32_t *halves, int count) noexcept nogil:
    """Their sum, in the order of ``advance``."""
    cdef int slot = 1 + distance_bin(span(part.x if family == SIB_ else part.y, part.z)), t
    cdef const float *value
    cdef float sum = 0.0
    for t in range(count):
        value = r.weights + <Py_ssize_t>halves[t] * HALF
        sum += value[0] + value[slot]
    return sum


cdef inline const uint32_t *row(Pass *run, int k, int token) noexcept nogil:
    return run.hashes[k] + (token + 1) * run.table.templates


cdef inline void add_rows(const uint32_t *a, const uint32_t *b, uint32_t *out, int size) noexcept nogil:
    cdef int t
    for t in range(size):
        out[t] = a[t] + b[t]


cdef inline void set_extras(Pass *run, int order, int gap) noexcept nogil:
    run.x = run.table.x[order * GAPS + gap]


cdef void fill_extras(Table *table) noexcept nogil:
    cdef uint64_t family = table.salt
    cdef int order, gap
    cdef uint32_t *x
    for order in range(ORDERS):
        for gap in range(GAPS):
            x = table.x[order * GAPS + gap]
            x[0] = <uint32_t>mix(family * GOLDEN)
            x[1] = <uint32_t>mix((family << 8 | <uint64_t>(order + 1)) * GOLDEN)
            x[2] = <uint32_t>mix((family << 16 | <uint64_t>(gap + 1) << 8 | <uint64_t>(order + 1))
                                 * GOLDEN)


cdef inline void take(Pass *run, int64_t part, const uint32_t *shared, const uint32_t *last,
                      int distance) noexcept nogil:
    """Score one part, or add its features to the gradient."""
    cdef Flight *flight = &run.flights[run.turn]
    cdef int t, kind, begin = 0, end
    cdef uint32_t x
    cdef float c
    cdef float *values
    if run.scores == NULL and fabs(run.coefficients[part]) <= run.tolerance:
        return
    for kind in range(N_KINDS):
        end = run.table.ends[kind]
        x = run.x[kind]
        for t in range(begin, end):
            flight.halves[t] = (shared[t] + last[t] + x) >> run.shift
        begin = end
    flight.slot = 1 + distance_bin(distance) if distance else 0
    if run.scores != NULL:
        flight.k = run.table.templates
        flight.score = run.scores + part
        advance(run)
        return
    c = <float>run.coefficients[part]
    for t in range(run.table.templates):
        values = acc_row(run.gradient, flight.halves[t] >> 1)
        if values == NULL:
            run.failed = 1
            return
        values += (flight.halves[t] & 1) * HALF
        values[0] += c
        if flight.slot:
            values[flight.slot] += c


cdef inline void advance(Pass *run) noexcept nogil:
    """Ask for what the newest part needs, go on with one before it, add up the oldest.

    As for arcs: each step reads only what was asked for some parts earlier.
    """
    cdef int count = 2 * run.distance + 1, next = run.turn + 1 if run.turn + 1 < count else 0
    cdef int half_way = run.turn - run.distance
    cdef Flight *newest = &run.flights[run.turn]
    cdef Flight *middle = &run.flights[half_way if half_way >= 0 else half_way + count]
    cdef Flight *oldest = &run.flights[next]
    cdef const float *value
    cdef float sum = 0.0
    cdef int i
    if newest.score != NULL and run.find != NULL:
        for i in range(newest.k):
            PREFETCH(run.find + (newest.halves[i] >> 6))
    if middle.score != NULL:
        if run.find != NULL:
            middle.k = locate(run.find, middle.halves, middle.k, 1)
        for i in range(middle.k):
            PREFETCH(run.weights + <Py_ssize_t>middle.halves[i] * HALF)
    if oldest.score != NULL:
        if oldest.slot:
            for i in range(oldest.k):
                value = run.weights + <Py_ssize_t>oldest.halves[i] * HALF
                sum += value[0] + value[oldest.slot]
        else:
            for i in range(oldest.k):
                sum += run.weights[<Py_ssize_t>oldest.halves[i] * HALF]
        oldest.score[0] = sum
        oldest.score = NULL
    run.turn = next


cdef void find_extremes(Pass *run, int x, int y, int z, int orders, const uint8_t *chosen,
                        float *out) noexcept nogil:
    """Least and largest sum over orders and distance bins; of gaps, template by template."""
    cdef const uint32_t *a = row(run, 0, x)
    cdef const uint32_t *b = row(run, 1, y)
    cdef const uint32_t *c = row(run, 2, z)
    cdef const float *value
    cdef float[HALF] low, high, least, most
    cdef float w
    cdef uint32_t half
    cdef int order, gap, t, kind, s
    out[0], out[1] = INFINITY, -INFINITY
    for order in range(orders):
        for s in range(HALF):
            low[s] = high[s] = 0.0
        for t in range(run.table.templates):
            if not chosen[t]:
                continue
            kind = 0 if t < run.table.ends[0] else 1 if t < run.table.ends[1] else 2
            for gap in range(BINS if kind == 2 else 1):
                set_extras(run, order, gap)
                half = (a[t] + b[t] + c[t] + run.x[kind]) >> run.shift
                value = NULL
                if run.find == NULL or locate(run.find, &half, 1, 1):
                    value = run.weights + <Py_ssize_t>half * HALF
                for s in range(1, HALF):
                    w = 0.0 if value == NULL else value[0] + value[s]
                    least[s] = w if gap == 0 else min(least[s], w)
                    most[s] = w if gap == 0 else max(most[s], w)
            for s in range(1, HALF):
                low[s] += least[s]
                high[s] += most[s]
        for s in range(1, HALF):
            out[0], out[1] = min(out[0], low[s]), max(out[1], high[s])


cdef inline int span(int a, int b) noexcept nogil:
    return b - a if a < b else a - b


cdef inline void take_grand(Pass *run, int a, int k, int64_t part) noexcept nogil:
    """The arc a = g -> h, whose sum is the base, with the k-th child of h."""
    cdef Places *p = run.places
    cdef int g = p.heads[a], h = p.modifiers[a], m = p.modifiers[p.children[p.first[h] + k]]
    if m == g:
        return
    set_extras(run, (g < h) | (h < m) << 1 | (g < m) << 2, distance_bin(span(g, h)))
    take(run, part, run.base, row(run, 2, m), span(h, m))


cdef inline void take_sib(Pass *run, int h, int i, int j, int64_t part) noexcept nogil:
    """The i-th and the j-th child of h, i < j."""
    cdef Places *p = run.places
    cdef int s = p.modifiers[p.children[p.first[h] + i]], m = p.modifiers[p.children[p.first[h] + j]]
    cdef int near, far
    # On one side of the head the nearer one comes first, as in CHILDSEQ.
    near, far = (m, s) if m < h else (s, m)
    add_rows(row(run, 0, h), row(run, 1, near), run.base, run.table.templates)
    set_extras(run, (h < s) | (h < m) << 1, distance_bin(m - s))
    take(run, part, run.base, row(run, 2, far), span(h, far))


cdef inline void start_grand(Pass *run, int a) noexcept nogil:
    add_rows(row(run, 0, run.places.heads[a]), row(run, 1, run.places.modifiers[a]), run.base,
             run.table.templates)


cdef void walk_grand(Pass *run) noexcept nogil:
    cdef Places *p = run.places
    cdef int a, k
    for a in range(p.arcs):
        start_grand(run, a)
        for k in range(p.first[p.modifiers[a] + 1] - p.first[p.modifiers[a]]):
            take_grand(run, a, k, p.grand[a] + k)


cdef void walk_sib(Pass *run) noexcept nogil:
    cdef Places *p = run.places
    cdef int h, i, j
    for h in range(p.n + 1):
        for j in range(1, p.first[h + 1] - p.first[h]):
            for i in range(j):
                take_sib(run, h, i, j, p.sib[h] + triangle(j) + i)


cdef inline int which(const int64_t *starts, int count, int64_t place) noexcept nogil:
    """The last of ``count`` that starts at the place or before it."""
    cdef int low = 0, high = count, middle
    while high - low > 1:
        middle = (low + high) >> 1
        if starts[middle] <= place:
            low = middle
        else:
            high = middle
    return low


cdef void walk_some(Pass *run, int family, const int64_t *parts, Py_ssize_t count) noexcept nogil:
    """Parts of GRAND or SIB at some places; they are numbered as they come."""
    cdef Places *p = run.places
    cdef int a = -1, last = -1, h = 0, j
    cdef int64_t place
    cdef Py_ssize_t at
    for at in range(count):
        if family == GRAND_:
            if a < 0 or not p.grand[a] <= parts[at] < p.grand[a + 1]:
                a = which(p.grand, p.arcs, parts[at])
            if a != last:
                start_grand(run, a)
                last = a
            take_grand(run, a, <int>(parts[at] - p.grand[a]), at)
        else:
            if not p.sib[h] <= parts[at] < p.sib[h + 1]:
                h = which(p.sib, p.n + 1, parts[at])
            place = parts[at] - p.sib[h]
            j = <int>((1.0 + sqrt(1.0 + 8.0 * <double>place)) / 2.0)
            take_sib(run, h, <int>(place - triangle(j)), j, at)


cdef void walk_nocross(Pass *run) noexcept nogil:
    cdef int i, j
    for j in range(2, run.places.n + 1):
        for i in range(1, j):
            set_extras(run, 0, 0)
            take(run, triangle(j - 1) + i - 1, row(run, 0, i), row(run, 1, j), j - i)


cdef void walk_sequences(Pass *run, bint grand) noexcept nogil:
    """CHILDSEQ, or GRANDSIB: the sequences of each head, under each of its heads."""
    cdef Places *p = run.places
    cdef int size = run.table.templates, a, g = -1, h, side, j, i, count, outer, inner, gap
    cdef int base = 1 if grand else 0, reach
    cdef int64_t part
    cdef int order
    cdef const uint32_t *above
    for a in range(p.arcs if grand else p.n + 1):
        if grand:
            g, h = p.heads[a], p.modifiers[a]
            add_rows(row(run, 0, g), row(run, 1, h), run.inner_base, size)
            above = run.inner_base
        else:
            h = a
            above = row(run, 0, h)
        for side in range(0 if h else 1, 2):
            count = side_count(p, h, side)
            part = p.childseq[2 * h + side]
            if grand:
                part += p.grandsib[a] - p.childseq[2 * h]
            for j in range(1, count + 2):
                outer = sided_child(p, h, side, j) if j <= count else p.n + 1
                if outer == g:
                    part += j
                    continue
                add_rows(above, row(run, base + 2, outer), run.base, size)
                for i in range(j):
                    inner = sided_child(p, h, side, i) if i else -1
                    if i == 0 or inner != g:
                        order = side
                        if grand:
                            order |= (g < h) << 1 | (g < outer) << 2
                        reach = h if i == 0 else inner         # where the outer child's side begins
                        gap = 0 if j > count else distance_bin(span(reach, outer))
                        set_extras(run, order, gap)
                        take(run, part, run.base, row(run, base + 1, inner),
                             span(h, outer) if j <= count else span(h, reach))
                    part += 1
