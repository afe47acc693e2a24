"""Dual decomposition by block coordinate ascent, over fewer and fewer arcs; branch and bound.

Arcs have the same copies as in automata.pyx, dn + up + own = s.  But the tree is relaxed to a head
for each word, so that all subproblems have cheap max-marginals: the difference that an arc makes to
the best choice.  A sweep visits the automata h = 0, 1, ..., n:

    dn[h -> x] += own[h -> x] - max_{g != h} own[g -> x]        own[h -> x] less by as much
    up[g -> h] += own[g -> h]                                   own[g -> h] = 0
    own[g -> h] += SHARE (best with g - best)                   up[g -> h] less by as much
    own[h -> x] += SHARE (best with x - best without x)         dn[h -> x] less by as much

the last line for one x after the other.  No line makes the dual larger:

    D = sum_h automaton(h) + sum_m max_g own[g -> m]

After each sweep the best tree by own is scored, and tree(own) in place of the sum over words is a
smaller dual.  Where the best arcs into words are a cycle, all arcs that enter it get what it is
better, and D loses as much, for each tree has such an arc.

Then arcs leave.  No tree with the arc g -> m scores more than D less what own loses by it, and
where that is below the best score met the arc is dropped.  Of a word with one arc left the head is
known, and no automaton has a choice about it; one without any choice is not visited again.

If the bounds do not meet in some sweeps, the word whose two best arcs are the closest gets the best
one for its head, or anything else: depth first, both from the multipliers of before.

With K candidates each way a visit costs O(K^3), and a sweep O(n K^3), once; later a fraction.

The sweeps are those of A. Globerson and T. Jaakkola, "Fixing max-product: convergent message
passing algorithms for MAP LP-relaxations", NIPS 2007, but that max-marginals are handed out one by
one, and not in whole.
"""
from libc.math cimport INFINITY, fabs
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from cython_ext.automata cimport Automata, build, read_multipliers, score, solve_tree, split_scores
from cython_ext.layout cimport Layout, Places, outward, side_count, sided_arc, triangle

cdef extern from *:
    """
    #include "simd.h"

    /* to[k, r] = max(to[k, r], from[r] + weights[k]), k < count; rows in groups of LANES */
    KERNEL void spread(const double *from, const double *weights, int count, int rows, double *to)
    {
        for (int r = 0; r < rows; r += LANES) {
            double x[LANES];
            FOR_LANES x[lane] = from[r + lane];
            for (int k = 0; k < count; k++) {
                double *best = to + k * rows + r;
                const double weight = weights[k];
                FOR_LANES {
                    double term = x[lane] + weight;
                    best[lane] = term > best[lane] ? term : best[lane];
                }
            }
        }
    }

    /* max_{k, r} x[r] + y[k, r] + z[k, r] */
    KERNEL double best_sum(const double *x, const double *y, const double *z, int count, int rows)
    {
        double best[LANES];
        FOR_LANES best[lane] = -INFINITY;
        for (int k = 0; k < count; k++) {
            for (int r = 0; r < rows; r += LANES) {
                const double *one = y + k * rows + r, *other = z + k * rows + r;
                FOR_LANES {
                    double term = x[r + lane] + one[lane] + other[lane];
                    best[lane] = term > best[lane] ? term : best[lane];
                }
            }
        }
        return largest(best);
    }
    """
    enum: LANES
    void spread(const double* start, const double* weights, int count, int rows,
                double* to) noexcept nogil
    double best_sum(const double* x, const double* y, const double* z, int count,
                    int rows) noexcept nogil

cdef double SHARE = 0.6                  # of max-marginals, that is handed out
cdef double ROUNDING = 1e-9              # bounds meet
cdef int NODE_SWEEPS = 4                 # at most, of a problem of branch and bound
cdef double FALL = 0.1                   # of the gap in a sweep; else the dual does not fall


cdef struct Side:                        # SCRATCH: what is left of one side of an automaton
    int count
    int* at                              # (width,) places of START, the children, END
    char* sure                           # (width,) the child's head is known
    double* V                            # (rows,) as in automata.pyx
    double* N                            # (width, rows) what the j-th child adds: dn + grand
    double* E                            # (width, rows) the best from the j-th child on, with it


cdef struct Ascent:
    Automata d
    void* room
    double primal                        # the best score met
    double dual                          # of the arcs that are left
    double cuts                          # that the copies' scores of a tree exceed its own by
    int* rows                            # (arcs,) by word, those that are left
    int* kids                            # (arcs,) by head and side, outwards, those that are left
    int* n_rows                          # (n+1,)
    int* n_kids                          # (n+1, 2)
    int* settled                         # (n+1,) automata without a choice, visited since
    size_t ints                          # in these five
    bint chooses                         # SCRATCH of an automaton, as all that follows
    bint lone
    int h
    int heads                            # rows in use, of
    int width                            # so many, a multiple of LANES
    const int* arc                       # (heads,)
    Side[2] sides
    double* up                           # (rows,) -inf where not in use
    double* F                            # (width, rows) the best up to the j-th child
    double* W                            # (rows,) the other side and up
    double* weights                      # (width,)


cdef inline int padded(int rows) noexcept nogil:
    return (rows + LANES - 1) // LANES * LANES


cdef inline int* kids_of(Ascent* s, int h, int side) noexcept nogil:
    cdef Places* p = s.d.p
    return s.kids + p.first[h] + (p.n_left[h] if side else 0)


cdef inline double slack(double value) noexcept nogil:
    return ROUNDING * max(1.0, fabs(value))


cdef inline bint closed(Ascent* s) noexcept nogil:
    return s.dual == -INFINITY or s.dual - s.primal <= slack(s.dual)


cdef void step(Ascent* s, int side, int at, int first, int last, double* best,
               double* to) noexcept nogil:
    """to[i, r] = max(to[i, r], best[at, r] + seq + grandsib[r]), i = first, ..., last, of the parts
    of the places at and i."""
    cdef Automata* d = &s.d
    cdef Places* p = d.p
    cdef Side* own = &s.sides[side]
    cdef int i, r, rows = s.width, count = last + 1 - first, place = own.at[at]
    cdef int64_t start = p.childseq[2 * s.h + side], row = triangle(place)
    cdef const int* places = own.at + first
    cdef const double* parts
    cdef double* weights = s.weights
    if d.childseq == NULL:
        for i in range(count):
            weights[i] = 0.0
    elif at < first:
        parts = d.childseq + start + place
        for i in range(count):
            weights[i] = parts[triangle(places[i])]
    else:
        parts = d.childseq + start + row
        for i in range(count):
            weights[i] = parts[places[i]]
    if s.lone:
        for i in range(count):
            if (min(first + i, at) == 0) != (max(first + i, at) <= own.count):
                weights[i] = -INFINITY
    best, to = best + at * rows, to + first * rows
    if not s.chooses or d.grandsib == NULL:
        spread(best, weights, count, rows, to)
        return
    for r in range(s.heads):
        parts = d.grandsib + p.grandsib[s.arc[r]] + start - p.childseq[2 * s.h]
        for i in range(count):
            to[i * rows + r] = max(
                to[i * rows + r],
                best[r] + weights[i]
                + parts[triangle(places[i]) + place if at < first else row + places[i]],
            )


cdef inline int outer(Side* own, int j) noexcept nogil:
    """The furthest that may be next to j outwards: there is none beyond a sure child."""
    j += 1
    while j <= own.count and not own.sure[j]:
        j += 1
    return j


cdef inline int inner(Side* own, int j) noexcept nogil:
    j -= 1
    while j > 0 and not own.sure[j]:
        j -= 1
    return j


cdef void look_out(Ascent* s, int side) noexcept nogil:
    """N, E and V of a side, from the outermost child inwards."""
    cdef Automata* d = &s.d
    cdef Places* p = d.p
    cdef Side* own = &s.sides[side]
    cdef int* kids = kids_of(s, s.h, side)
    cdef int count = s.n_kids[2 * s.h + side], rows = s.width, r, i, j, g
    cdef double* N = own.N
    cdef double* E = own.E
    cdef const double* grand
    own.count, own.at[0], own.at[count + 1] = count, 0, side_count(p, s.h, side) + 1
    for j in range(1, count + 1):
        own.at[j] = outward(p, kids[j - 1])
        own.sure[j] = s.n_rows[p.modifiers[kids[j - 1]]] == 1
        for r in range(rows):
            N[j * rows + r] = d.dn[kids[j - 1]]
    if s.chooses:
        for r in range(s.heads):
            g = p.heads[s.arc[r]]
            if d.grand != NULL:
                grand = d.grand + p.grand[s.arc[r]]
                for j in range(count):
                    N[(j + 1) * rows + r] += grand[p.rank[kids[j]]]
            if (g > s.h) == side and g:
                for j in range(count):
                    if p.modifiers[kids[j]] == g:
                        N[(j + 1) * rows + r] = -INFINITY
    for i in range((count + 1) * rows):
        E[i] = -INFINITY
    for r in range(rows):
        E[(count + 1) * rows + r] = 0.0
    for j in range(count + 1, 0, -1):
        if j <= count:
            for r in range(j * rows, (j + 1) * rows):
                E[r] += N[r]
        step(s, side, j, inner(own, j), j - 1, E, E)
    for r in range(rows):
        own.V[r] = E[r]


cdef double hand_out(Ascent* s, int side, double top) noexcept nogil:
    """Shares of the max-marginals of the children of a side, from the innermost on outwards.

    Takes and returns the automaton's value.
    """
    cdef Automata* d = &s.d
    cdef Side* own = &s.sides[side]
    cdef int* kids = kids_of(s, s.h, side)
    cdef int count = own.count, rows = s.width, r, i, j
    cdef double* E
    cdef double* F = s.F
    cdef double* W = s.W
    cdef double chosen, without, change
    for i in range(rows, (count + 2) * rows):
        F[i] = -INFINITY
    for r in range(rows):
        W[r] = s.up[r] + s.sides[1 - side].V[r]
        F[r] = 0.0
    step(s, side, 0, 1, outer(own, 0), F, F)
    for j in range(1, count + 1):
        change = 0.0
        if not own.sure[j]:
            E = own.E + j * rows
            chosen, without = best_sum(W, F + j * rows, E, 1, rows), top
            if chosen >= top - slack(top):
                without = best_sum(W, F + (j + 1) * rows, E + rows, outer(own, j) - j, rows)
            if chosen > -INFINITY and without > -INFINITY:
                change = SHARE * (chosen - without)
                d.dn[kids[j - 1]] -= change
                d.own[kids[j - 1]] += change
                top = max(chosen - change, without)
        for r in range(j * rows, (j + 1) * rows):
            F[r] += own.N[r] - change
        step(s, side, j, j + 1, outer(own, j), F, F)
    for r in range(rows):
        own.V[r] = F[(count + 1) * rows + r]
    return top


cdef void collect(Ascent* s) noexcept nogil:
    """What words have of the arcs of an automaton becomes the automaton's."""
    cdef Automata* d = &s.d
    cdef Places* p = d.p
    cdef int side, i, j, a, b, m
    cdef int* kids
    cdef double rival, change
    if s.chooses:
        for i in range(s.heads):
            a = s.arc[i]
            d.up[a] += d.own[a]
            d.own[a] = 0.0
    for side in range(2):
        kids = kids_of(s, s.h, side)
        for j in range(s.n_kids[2 * s.h + side]):
            b = kids[j]
            m = p.modifiers[b]
            if s.n_rows[m] == 1:
                continue
            change, rival, d.own[b] = d.own[b], -INFINITY, -INFINITY
            for a in range(p.offsets[m - 1], p.offsets[m]):
                rival = max(rival, d.own[a])
            d.dn[b] += change - rival
            d.own[b] = rival


cdef void visit(Ascent* s, int h) noexcept nogil:
    cdef Automata* d = &s.d
    cdef Places* p = d.p
    cdef int r, side, j
    cdef double top, change
    s.h, s.chooses, s.lone = h, d.choose and h > 0, h == 0 and d.single_root
    s.heads = s.n_rows[h] if s.chooses else 1
    s.arc = s.rows + p.offsets[h - 1] if h else NULL
    s.width = padded(s.heads)
    collect(s)
    for r in range(s.width):
        s.sides[0].V[r] = 0.0
        s.up[r] = -INFINITY
    for r in range(s.heads):
        s.up[r] = d.up[s.arc[r]] if s.chooses else 0.0
    for side in range(0 if h else 1, 2):
        look_out(s, side)
    top = best_sum(s.up, s.sides[0].V, s.sides[1].V, 1, s.width)
    s.settled[h] = s.heads == 1
    if s.chooses and s.heads > 1:
        for r in range(s.heads):
            change = SHARE * (s.up[r] + s.sides[0].V[r] + s.sides[1].V[r] - top)
            if change > -INFINITY:
                d.own[s.arc[r]] += change
                d.up[s.arc[r]] -= change
                s.up[r] -= change
    for side in range(0 if h else 1, 2):
        for j in range(1, s.sides[side].count + 1):
            if not s.sides[side].sure[j]:
                top = hand_out(s, side, top)
                s.settled[h] = False
                break
    d.value[h] = top


cdef void drop(Ascent* s, int m, double least) noexcept nogil:
    """The arcs into a word with less by `own`; `sieve` has to follow."""
    cdef Automata* d = &s.d
    cdef int* rows = s.rows + d.p.offsets[m - 1]
    cdef int i, count = 0
    for i in range(s.n_rows[m]):
        if d.own[rows[i]] < least:
            d.own[rows[i]] = -INFINITY
        else:
            rows[count] = rows[i]
            count += 1
    s.n_rows[m] = count


cdef void sieve(Ascent* s) noexcept nogil:
    """Takes arcs that were dropped from the children of their heads."""
    cdef int h, side, j, count
    cdef int* kids
    for h in range(s.d.p.n + 1):
        for side in range(2):
            kids, count = kids_of(s, h, side), 0
            for j in range(s.n_kids[2 * h + side]):
                if s.d.own[kids[j]] > -INFINITY:
                    kids[count] = kids[j]
                    count += 1
            s.n_kids[2 * h + side] = count


cdef double strongest(Ascent* s, int m, int* arc, double* second) noexcept nogil:
    """The largest `own` into a word, its arc, and the next."""
    cdef int* rows = s.rows + s.d.p.offsets[m - 1]
    cdef double top = -INFINITY, value
    cdef int i
    second[0] = -INFINITY
    for i in range(s.n_rows[m]):
        value = s.d.own[rows[i]]
        if value > top:
            second[0], top, arc[0] = top, value, rows[i]
        elif value > second[0]:
            second[0] = value
    return top


cdef void cut(Ascent* s) noexcept nogil:
    """Makes the dual smaller where the best arcs into words are a cycle.

    An arc enters the words of the cycle in every tree, so those arcs get what the cycle is better.
    """
    cdef Automata* d = &s.d
    cdef Places* p = d.p
    cdef int n = p.n, m, h, a, i, turn
    cdef int* best = d.into
    cdef int* met = d.back
    cdef double least, second
    for m in range(n + 1):
        met[m] = 0
    for m in range(1, n + 1):
        strongest(s, m, &best[m], &second)
    for m in range(1, n + 1):
        h = m
        while h and not met[h]:
            met[h] = m
            h = p.heads[best[h]]
        if not h or met[h] != m:
            continue
        turn = h                         # met[] of the words of the cycle becomes -m
        while met[h] == m:
            met[h] = -m
            h = p.heads[best[h]]
        least = INFINITY
        while True:
            for i in range(s.n_rows[h]):
                a = s.rows[p.offsets[h - 1] + i]
                if met[p.heads[a]] != -m:
                    least = min(least, d.own[best[h]] - d.own[a])
            h = p.heads[best[h]]
            if h == turn:
                break
        if least == INFINITY:            # no arc enters
            s.cuts = INFINITY
            return
        while True:
            for i in range(s.n_rows[h]):
                a = s.rows[p.offsets[h - 1] + i]
                if met[p.heads[a]] != -m:
                    d.own[a] += least
            h = p.heads[best[h]]
            if h == turn:
                break
        s.cuts += least


cdef void sweep(Ascent* s, int[::1] heads) noexcept nogil:
    """Visits automata, makes the bounds better and drops arcs.  heads: OUT (n+1,) of a better tree.
    """
    cdef Automata* d = &s.d
    cdef int n = d.p.n, h, m, arc = 0
    cdef double value = 0.0, words = 0.0, tree, found, second
    for h in range(n + 1):
        if not s.settled[h]:
            visit(s, h)
        value += d.value[h]
    for m in range(1, n + 1):
        words += strongest(s, m, &arc, &second)
    tree = solve_tree(d)
    if tree == -INFINITY:
        s.dual = -INFINITY
        return
    s.dual = min(s.dual, value + min(words, tree) - s.cuts)
    found = score(d)
    if found > s.primal:
        s.primal = found
        memcpy(&heads[0], d.heads, (n + 1) * sizeof(int))
    if not closed(s) and tree < words - slack(words):
        cut(s)
        s.dual = min(s.dual, value + words - s.cuts)
    if not closed(s):
        words += value - s.cuts - s.primal
        for m in range(1, n + 1):
            drop(s, m, strongest(s, m, &arc, &second) - words - slack(s.primal))
        sieve(s)


cdef bint undecided(Ascent* s, int* arc) noexcept nogil:
    """The best arc into the word whose two best are the closest; False: all heads are known."""
    cdef double margin, least = INFINITY, second
    cdef int m, best = -1
    for m in range(1, s.d.p.n + 1):
        if s.n_rows[m] > 1:
            margin = strongest(s, m, &best, &second) - second
            if margin < least:
                least, arc[0] = margin, best
    return least < INFINITY


cdef void decide(Ascent* s, int arc, bint chosen) noexcept nogil:
    """Leaves only this arc into its word, or all but this."""
    cdef int m = s.d.p.modifiers[arc], i, count = 0
    cdef int* rows = s.rows + s.d.p.offsets[m - 1]
    for i in range(s.n_rows[m]):
        if (rows[i] == arc) == chosen:
            rows[count] = rows[i]
            count += 1
        else:
            s.d.own[rows[i]] = -INFINITY
    s.n_rows[m] = count
    sieve(s)


cdef size_t state_bytes(Ascent* s) noexcept nogil:
    cdef size_t arcs = s.d.p.arcs, n = s.d.p.n
    return (3 * arcs + n + 3) * sizeof(double) + (s.ints + 1) // 2 * 2 * sizeof(int)


cdef void keep(Ascent* s, char* to) noexcept nogil:
    """The state of a problem, to be gone on with."""
    cdef size_t arcs = s.d.p.arcs, n = s.d.p.n
    cdef double* at = <double*>to
    memcpy(at, s.d.dn, 3 * arcs * sizeof(double))            # dn, up, own
    memcpy(at + 3 * arcs, s.d.value, (n + 1) * sizeof(double))
    at[3 * arcs + n + 1], at[3 * arcs + n + 2] = s.dual, s.cuts
    memcpy(at + 3 * arcs + n + 3, s.rows, s.ints * sizeof(int))


cdef void resume(Ascent* s, const char* kept) noexcept nogil:
    cdef size_t arcs = s.d.p.arcs, n = s.d.p.n
    cdef const double* at = <const double*>kept
    memcpy(s.d.dn, at, 3 * arcs * sizeof(double))
    memcpy(s.d.value, at + 3 * arcs, (n + 1) * sizeof(double))
    s.dual, s.cuts = at[3 * arcs + n + 1], at[3 * arcs + n + 2]
    memcpy(s.rows, at + 3 * arcs + n + 3, s.ints * sizeof(int))


cdef int furnish(Ascent* s) except -1:
    """Room, to be freed by the caller; all arcs that are not forbidden are left."""
    cdef Places* p = s.d.p
    cdef int n = p.n, h, side, j, a, rows = 1, width = 0, count
    cdef double* at
    for h in range(n + 1):
        width = max(width, side_count(p, h, 0), side_count(p, h, 1))
        if h and s.d.choose:
            rows = max(rows, p.offsets[h] - p.offsets[h - 1])
    width, rows = width + 2, padded(rows)
    s.ints = 2 * p.arcs + 4 * (n + 1)
    s.room = malloc(((5 * width + 4) * rows + width) * sizeof(double)
                    + (s.ints + 2 * width) * sizeof(int) + 2 * width)
    if s.room == NULL:
        raise MemoryError
    at = <double*>s.room
    for side in range(2):
        s.sides[side].N, s.sides[side].E = at, at + width * rows
        s.sides[side].V = at + 2 * width * rows
        at += (2 * width + 1) * rows
    s.F, s.up = at, at + width * rows
    s.W, s.weights = s.up + rows, s.up + 2 * rows
    s.rows = <int*>(s.weights + width)
    s.kids = s.rows + p.arcs
    s.n_rows = s.kids + p.arcs
    s.n_kids = s.n_rows + n + 1
    s.settled = s.n_kids + 2 * (n + 1)
    for side in range(2):
        s.sides[side].at = s.settled + n + 1 + side * width
        s.sides[side].sure = <char*>(s.settled + n + 1 + 2 * width) + side * width
    for h in range(n + 1):
        s.settled[h] = s.n_rows[h] = 0
        for a in range(p.offsets[h - 1] if h else 0, p.offsets[h] if h else 0):
            if s.d.link[a] > -INFINITY:
                s.rows[p.offsets[h - 1] + s.n_rows[h]] = a
                s.n_rows[h] += 1
        for side in range(2):
            count = 0
            for j in range(1, side_count(p, h, side) + 1):
                a = sided_arc(p, h, side, j)
                if s.d.link[a] > -INFINITY:
                    kids_of(s, h, side)[count] = a
                    count += 1
            s.n_kids[2 * h + side] = count
    return 0


def solve(
    Layout layout not None,
    const double[::1] scores,    # IN    (arcs,); -inf forbids an arc
    const double[::1] childseq,  # IN    None without parts of a family
    const double[::1] grand,
    const double[::1] grandsib,
    bint projective,
    bint single_root,
    int sweeps,                  # IN    at most, over the whole problem; at least 1
    int nodes,                   # IN    at most so many problems of branch and bound
    double known,                # IN    score of a tree that is known; -inf without
    double split,                # IN    share of an arc's score that multipliers are above
    bint warm,                   # IN    start at the multipliers; else words have all of the scores
    double[:, ::1] multipliers,  # INOUT (2, arcs) of dn and up; of the last sweep before branching
    int[::1] heads,              # OUT   (n+1,) the best tree met, if it scores more than `known`
    double[::1] left,            # OUT   (arcs,) scores; -inf of arcs dropped before branching
):
    """(primal, dual, sweeps, nodes); dual is -inf if there is no tree.

    All trees that score more than primal have only arcs that are left.  Releases the GIL.
    """
    cdef Ascent s
    cdef int n = layout.places.n, arcs = layout.places.arcs, a, k = 0, kept = 0, room = 0, arc = 0
    cdef int done = 0
    cdef double dual, gap
    cdef size_t size
    cdef char* stack = NULL
    cdef char* grown
    cdef void* base = build(&s.d, layout, scores, childseq, grand, grandsib, projective,
                            single_root)
    try:
        furnish(&s)
    except MemoryError:
        free(base)
        raise
    s.primal, s.dual, s.cuts = known, INFINITY, 0.0
    with nogil:
        split_scores(&s.d, split if warm else 0.0, multipliers)
        while k < sweeps:
            sweep(&s, heads)
            k += 1
            if closed(&s):
                break
        read_multipliers(&s.d, split, multipliers)
        for a in range(arcs):
            left[a] = scores[a] if s.d.own[a] > -INFINITY else -INFINITY
        dual, size = s.dual, state_bytes(&s)
        while done < nodes and dual > -INFINITY:
            # The problem at hand is divided, or is done with: the one that was kept last is next.
            if not closed(&s) and undecided(&s, &arc):
                if kept + 2 > room:
                    room = 2 * room + 8
                    grown = <char*>realloc(stack, room * size)
                    if grown == NULL:
                        break
                    stack = grown
                keep(&s, stack + (kept + 1) * size)
                decide(&s, arc, False)
                keep(&s, stack + kept * size)
                resume(&s, stack + (kept + 1) * size)
                decide(&s, arc, True)
                kept += 1
            else:
                s.dual = -INFINITY
                while kept and closed(&s):
                    kept -= 1
                    resume(&s, stack + kept * size)
                if closed(&s):
                    break
            done += 1
            for a in range(NODE_SWEEPS):
                gap = s.dual - s.primal
                sweep(&s, heads)
                k += 1
                if closed(&s) or s.dual - s.primal > (1.0 - FALL) * gap:
                    break
        if dual > -INFINITY:
            dual = max(s.dual, s.primal)
            for a in range(kept):
                resume(&s, stack + a * size)
                dual = max(dual, s.dual)
        free(stack)
        free(s.room)
        free(base)
    return s.primal, dual, k, done
