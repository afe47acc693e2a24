"""Dual decomposition by block coordinate ascent, over fewer and fewer arcs; branch and bound.

Arcs have the same copies as in automata.pyx, dn + up + own = s.  But the tree is relaxed to a head
for each word, so that all subproblems have cheap max-marginals: the difference that an arc makes to
the best choice.  An automaton h is visited:

    dn[h -> x] += own[h -> x] - max_{g != h} own[g -> x]        own[h -> x] less by as much
    up[g -> h] += own[g -> h]                                   own[g -> h] = 0
    own[g -> h] += SHARE (best with g - best)                   up[g -> h] less by as much
    own[h -> x] += SHARE (best with x - best without x)         dn[h -> x] less by as much

the last line for one x after the other.  No line makes the dual larger:

    D = sum_h automaton(h) + sum_m max_g own[g -> m]

At the start words have all of the scores, and what parts may add to an arc at most,

    own[h -> x] = s + max_g grand[g -> h, x] + max_{i<x} seq[i, x] + seq[x, END] - seq[i, END]

Then an automaton wants no child: of any children it may leave out the outermost.  So x may be left
out of the automaton, exactly, for as long as dn stays the same: it sleeps until h -> x is the best
arc into x.  When a child k wakes, each x asleep between h and k is given what it may add before k
and not before END,

    max_{i<x} seq[i, x] + seq[x, k] - seq[i, k]

so that of any children the outermost asleep may be left out: own[h -> x] gets more, at no cost while
another arc into x is as good; else x wakes, too.

An automaton waits for a visit only where the best arcs into words are others than it would have:
when none waits they agree on D.  One with no child awake keeps nothing back, SHARE = 1, and has
nothing more to say until one wakes: it is idle.

After each sweep over those that wait, the best tree by own is scored, and tree(own) in place of the
sum over words is a smaller dual.  Where the best arcs into words are a cycle, all arcs that enter
it get what it is better, and D loses as much, for each tree has such an arc; and so do all others
into two words whose best arcs cross, if trees are projective.  Often the best tree is found on the
way: the best arcs, but that each cycle is entered where it is least worse, and that all but one of
several roots get the next best head.  Where that is a tree it loses no more than any tree must.

Then arcs leave.  No tree with the arc g -> m scores more than D less what own loses by it, and
where that is below the best score met the arc is dropped.  Of a word with one arc left the head is
known, and no automaton has a choice about it.  Arcs leave, too, which an automaton cannot have next
to what is known, as a second root, and those which would close a cycle of known heads: they would
hold the words to what no tree has, with a dual that falls for ever by less.

If the bounds do not meet in some sweeps, an undecided word gets the best arc, or anything else:
depth first, both from the multipliers of before.

With K candidates each way a visit costs O(K^3), less where children sleep.

The sweeps are those of A. Globerson and T. Jaakkola, "Fixing max-product: convergent message
passing algorithms for MAP LP-relaxations", NIPS 2007, but that max-marginals are handed out one by
one, and not in whole.
"""
from libc.math cimport INFINITY, fabs
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport realloc
from libc.string cimport memcmp, memcpy, memset

from cython_ext.automata cimport (
    Automata, best_tree, build, fits, read_multipliers, score, split_scores,
)
from cython_ext.blocks cimport borrow, give_back
from cython_ext.layout cimport Layout, Places, cross, outward, side_count, sided_arc, triangle

cdef extern from "chains.h":
    enum: LANES
    void look_outwards(const double* N, const double* seq, const double* more, const char* sure,
                       Py_ssize_t count, Py_ssize_t rows, double* E) noexcept nogil
    double share_inwards(const double* W, const double* N, const double* E, const double* seq,
                         const double* more, const char* sure, Py_ssize_t count, Py_ssize_t rows,
                         double share, double top, double tie, double* F,
                         double* change) noexcept nogil
    void collect(const double* seq, const int* at, Py_ssize_t count, double* to) noexcept nogil
    void gather(double add, const double* grand, const int64_t* places, Py_ssize_t rows,
                double* to) noexcept nogil
    void add_rows(const double* x, const double* y, Py_ssize_t rows, double* to) noexcept nogil
    double most_before(const double* seq, Py_ssize_t j, Py_ssize_t k) noexcept nogil
    void most_at_end(const double* seq, Py_ssize_t count, double* most,
                     Py_ssize_t step) noexcept nogil
    void most_of_rows(const double* grand, const int* skip, Py_ssize_t heads, Py_ssize_t count,
                      double* most) noexcept nogil

cdef double SHARE = 0.7                  # of max-marginals, that is handed out
cdef double ROUNDING = 1e-9              # bounds meet
cdef double LESS = 0.5                   # of the gap where arcs were dropped last, to drop more
cdef int STACK = 8                       # problems of branch and bound that there is room for
cdef int NODE_SWEEPS = 4                 # at most, of a problem of branch and bound
cdef double LITTLE = 0.1                 # of the gap, if a cycle is better by no more
cdef double APART = 0.1                  # of the gap, that the arcs of a decision best differ by
cdef double FALL = 0.1                   # of the gap in a sweep; else the dual does not fall
cdef int NONE = -1                       # no arc
cdef double[2] KEEPS                     # what `own` of an arc gets that is dropped, or kept
KEEPS[0], KEEPS[1] = -INFINITY, 0.0


cdef struct Side:                        # SCRATCH: what is left of one side of an automaton
    int count
    int* kids                            # (count,) arcs to the children
    char* sure                           # (width,) the child's head is known
    const double* V                      # (rows,) as in automata.pyx
    double* none                         # (rows,) the same without children
    double* N                            # (width, rows) as in chains.h, and the next
    double* E
    const double* seq
    const double* more
    double* own_seq                      # (triangle(width),)
    double* own_more                     # (triangle(width), rows)


cdef struct Ascent:
    Automata d
    void* room                           # and its size
    size_t size
    double primal                        # the best score met
    double dual                          # of the arcs that are left
    double cuts                          # that the copies' scores of a tree exceed its own by
    double gap                           # when arcs were last dropped
    double* top                          # (n+1,) the largest `own` into a word
    double* adds                         # (arcs,) what a child asleep may add to CHILDSEQ parts
    int* pick                            # (n+1,) the arc with the largest `own` into a word
    int* rows                            # (arcs,) by word, those that are left
    int* kids                            # (arcs,) by head and side, outwards, those awake; look_out
                                         # takes away those that are no longer left
    int* n_rows                          # (n+1,)
    int* n_kids                          # (n+1, 2)
    int* waits                           # (n+1,) automata to be visited
    int* idle                            # (n+1,) those that were visited without children awake
    int* awake                           # (arcs,)
    size_t ints                          # in these eight
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
    double* change                       # (width,)
    int64_t* grand                       # (rows,) where GRAND parts of a head start
    char* lost                           # (n+1,) words with arcs that are found to be in no tree
    bint loses                           # whether there are any
    bint still                           # a sweep did nothing, nor would another
    int* cycle                           # (n+1,) words
    int* woken                           # (arcs,) children that woke; `rouse` is to be called
    int n_woken
    int* order                           # (n+1,) of visits
    int* scored                          # (n+1,) picks after the last sweep
    bint straight                        # they were a tree
    int* at                              # (width,) places of START, the children, END
    double* most                         # (1 + 2 widest,)
    int widest                           # children of a head
    int* place                           # (n+1,) row of a word that may be the head, from 1; else 0


cdef inline int padded(int rows) noexcept nogil:
    return (rows + LANES - 1) // LANES * LANES


cdef inline int* kids_of(Ascent* s, int h, int side) noexcept nogil:
    cdef Places* p = s.d.p
    return s.kids + p.first[h] + (p.n_left[h] if side else 0)


cdef inline double slack(double value) noexcept nogil:
    return ROUNDING * max(1.0, fabs(value))


cdef inline bint closed(Ascent* s) noexcept nogil:
    return s.dual == -INFINITY or s.dual - s.primal <= slack(s.dual)


cdef void weigh(Ascent* s, int side) noexcept nogil:
    """seq and more of a side, for the places s.at."""
    cdef Automata* d = &s.d
    cdef Places* p = d.p
    cdef Side* own = &s.sides[side]
    cdef int count = own.count, i, j, r, rows = s.width
    cdef int64_t start = p.childseq[2 * s.h + side], block, row, k
    cdef const double* parts
    own.seq, own.more = own.own_seq, NULL
    if d.childseq == NULL:
        memset(own.own_seq, 0, triangle(count + 2) * sizeof(double))
    elif count < side_count(p, s.h, side) or s.lone:
        collect(d.childseq + start, s.at, count, own.own_seq)
    else:
        own.seq = d.childseq + start
    if s.lone:                           # one child, and no more
        for j in range(1, count + 2):
            for i in range(j):
                if (i == 0) != (j <= count):
                    own.own_seq[triangle(j) + i] = -INFINITY
    if s.chooses and d.grandsib != NULL:
        own.more = own.own_more
        block = start - p.childseq[2 * s.h]
        for r in range(rows):
            parts = d.grandsib + p.grandsib[s.arc[min(r, s.heads - 1)]] + block
            k = r
            for j in range(1, count + 2):
                row = triangle(s.at[j])
                for i in range(j):
                    own.own_more[k] = parts[row + s.at[i]]
                    k += rows


cdef void look_out(Ascent* s, int side) noexcept nogil:
    """All of a side, but for what needs the other; what its words have becomes the automaton's."""
    cdef Automata* d = &s.d
    cdef Places* p = d.p
    cdef Side* own = &s.sides[side]
    cdef int* kids = kids_of(s, s.h, side)
    cdef int awake = s.n_kids[2 * s.h + side], count = 0, rows = s.width, r, j, m, b
    cdef int64_t none
    cdef double dn, rival
    cdef double* to
    cdef double* N = own.N
    cdef const double* grand
    for j in range(awake):
        b = kids[j]
        if d.own[b] == -INFINITY:        # dropped
            continue
        kids[count] = b
        count += 1
        m = p.modifiers[b]
        s.at[count] = outward(p, b)
        own.sure[count] = s.n_rows[m] == 1
        if not own.sure[count]:
            rival = second(s, m) if s.pick[m] == b else s.top[m]
            d.dn[b] += d.own[b] - rival
            d.own[b] = rival
        to, dn = N + count * rows, d.dn[b]
        grand = d.grand + p.rank[b] if s.chooses and d.grand != NULL else NULL
        gather(dn, grand, s.grand, rows, to)
        if s.place[m]:
            to[s.place[m] - 1] = -INFINITY
    own.kids, own.count = kids, count
    s.n_kids[2 * s.h + side] = count
    if count == 0:
        none = p.childseq[2 * s.h + side] + triangle(side_count(p, s.h, side) + 1)
        dn = d.childseq[none] if d.childseq != NULL else 0.0
        own.V = own.none
        for r in range(rows):
            own.none[r] = -INFINITY if s.lone else dn
        if s.chooses and d.grandsib != NULL:
            for r in range(s.heads):
                own.none[r] += d.grandsib[p.grandsib[s.arc[r]] + none - p.childseq[2 * s.h]]
        return
    s.at[0], s.at[count + 1] = 0, side_count(p, s.h, side) + 1
    weigh(s, side)
    look_outwards(N, own.seq, own.more, own.sure, count, rows, own.E)
    own.V = own.E


cdef double hand_out(Ascent* s, int side, double top) noexcept nogil:
    """Shares of the max-marginals of the children of a side, from the innermost on outwards.

    Takes and returns the automaton's value.
    """
    cdef Automata* d = &s.d
    cdef Side* own = &s.sides[side]
    cdef int* kids = own.kids
    cdef int count = own.count, rows = s.width, r, j, b, m
    cdef double rival
    add_rows(s.up, s.sides[1 - side].V, rows, s.W)
    top = share_inwards(s.W, own.N, own.E, own.seq, own.more, own.sure, count, rows, SHARE, top,
                        slack(top), s.F, s.change)
    for j in range(1, count + 1):
        if not own.sure[j]:
            b = kids[j - 1]
            m = d.p.modifiers[b]
            rival = d.own[b]
            if s.change[j] == -INFINITY:
                forbid(s, b)
                continue
            d.dn[b] -= s.change[j]
            d.own[b] += s.change[j]
            if s.change[j] > 0.0:
                choose(s, m, b, d.own[b])
            elif s.pick[m] == b:
                choose(s, m, leader(s, m, b), rival)
    own.V = s.F + (count + 1) * rows
    return top


cdef double second(Ascent* s, int m) noexcept nogil:
    """The largest `own` into a word but for its pick's."""
    cdef int* rows = s.rows + s.d.p.offsets[m - 1]
    cdef double best = -INFINITY, next = -INFINITY, value
    cdef int i
    for i in range(s.n_rows[m]):         # without branches that cannot be foretold
        value = s.d.own[rows[i]]
        next = max(next, min(best, value))
        best = max(best, value)
    return next


cdef int leader(Ascent* s, int m, int but) noexcept nogil:
    """The arc with the largest `own` into a word but for one, which it is if there is no other."""
    cdef int* rows = s.rows + s.d.p.offsets[m - 1]
    cdef double best = -INFINITY
    cdef bint better
    cdef int i, a, arc = but
    for i in range(s.n_rows[m]):
        a = rows[i]
        better = (s.d.own[a] > best) & (a != but)
        best = s.d.own[a] if better else best
        arc = a if better else arc
    return arc


cdef void wake(Ascent* s, int arc) noexcept nogil:
    """The child is one of its head from now on."""
    cdef Places* p = s.d.p
    cdef int h = p.heads[arc], m = p.modifiers[arc], j
    cdef int side = m > h
    cdef int* kids = kids_of(s, h, side)
    if not s.awake[arc]:
        s.awake[arc] = True
        s.woken[s.n_woken] = arc
        s.n_woken += 1
        j = s.n_kids[2 * h + side]
        s.n_kids[2 * h + side] += 1
        while j and (p.modifiers[kids[j - 1]] > m) == side and p.modifiers[kids[j - 1]] != m:
            kids[j] = kids[j - 1]
            j -= 1
        kids[j] = arc


cdef double insertion(Automata* d, int h, int side, int a, int j, int k) noexcept nogil:
    """What the j-th child on a side adds to CHILDSEQ and GRANDSIB parts before the k-th, at most.

    a: arc into h, for GRANDSIB; negative: without.
    """
    cdef Places* p = d.p
    cdef int64_t start = p.childseq[2 * h + side], row = triangle(j), next = triangle(k)
    cdef const double* seq = d.childseq + start if d.childseq != NULL else NULL
    cdef const double* more
    cdef double best = -INFINITY
    cdef int i
    if d.grandsib == NULL or a < 0:
        return most_before(seq, j, k) if seq != NULL else 0.0
    more = d.grandsib + p.grandsib[a] + start - p.childseq[2 * h]
    if seq == NULL:
        return most_before(more, j, k)
    for i in range(j):
        best = max(best, seq[row + i] + more[row + i] - seq[next + i] - more[next + i])
    return best + seq[next + j] + more[next + j]


cdef double insertion_of_all(Ascent* s, int h, int side, int arc, int j, int k) noexcept nogil:
    """The most that this is with GRAND parts and an arc into h that is left; arc: to the child."""
    cdef Automata* d = &s.d
    cdef Places* p = d.p
    cdef int* rows = s.rows + p.offsets[h - 1]
    cdef int r, a
    cdef double value, best = -INFINITY
    for r in range(s.n_rows[h]):
        a = rows[r]
        if p.heads[a] != p.modifiers[arc]:
            value = insertion(d, h, side, a, j, k)
            if d.grand != NULL:
                value += d.grand[p.grand[a] + p.rank[arc]]
            best = max(best, value)
    return best


cdef void rouse(Ascent* s) noexcept nogil:
    """Children asleep before those that woke are given what they may add there, or wake."""
    cdef Automata* d = &s.d
    cdef Places* p = d.p
    cdef int h, side, a, j, k
    cdef double more
    while s.n_woken:
        s.n_woken -= 1
        a = s.woken[s.n_woken]
        h = p.heads[a]
        side, k = p.modifiers[a] > h, outward(p, a)
        for j in range(1, k):
            a = sided_arc(p, h, side, j)
            if s.awake[a] or d.own[a] == -INFINITY:
                continue
            if d.grandsib == NULL:
                more = insertion(d, h, side, NONE, j, k) - s.adds[a]
            else:
                more = insertion_of_all(s, h, side, a, j, k) + d.dn[a]
            if more > 0.0 and d.own[a] + more <= s.top[p.modifiers[a]]:
                s.adds[a] += more
                d.own[a] += more
                d.dn[a] -= more
            elif more > 0.0:
                wake(s, a)


cdef void wake_all(Ascent* s, int last) noexcept nogil:
    """The children that are left of the heads up to the last."""
    cdef Places* p = s.d.p
    cdef int h, side, j, a, count
    for h in range(last + 1):
        for side in range(2):
            count = 0
            for j in range(1, side_count(p, h, side) + 1):
                a = sided_arc(p, h, side, j)
                s.awake[a] = True
                if s.d.own[a] > -INFINITY:
                    kids_of(s, h, side)[count] = a
                    count += 1
            s.n_kids[2 * h + side] = count


cdef void choose(Ascent* s, int m, int arc, double top) noexcept nogil:
    """The pick of a word; whom another one concerns waits."""
    cdef Places* p = s.d.p
    if arc != s.pick[m]:
        s.waits[p.heads[s.pick[m]]] = s.waits[p.heads[arc]] = s.waits[m] = True
        s.pick[m] = arc
        wake(s, arc)
    s.top[m] = top


cdef void choose_all(Ascent* s) noexcept nogil:
    """The best arcs into all words; their heads wait."""
    cdef int m
    for m in range(1, s.d.p.n + 1):
        s.top[m], s.pick[m] = -INFINITY, 0
        if s.n_rows[m]:
            s.pick[m] = max(leader(s, m, NONE), 0)
            s.top[m] = s.d.own[s.pick[m]]
            s.waits[s.d.p.heads[s.pick[m]]] = True
            wake(s, s.pick[m])
    rouse(s)


cdef void line_up(Ascent* s) noexcept nogil:
    """Words are visited after their heads by the first picks, those in and below cycles last.

    So what an automaton makes of a word's head is known when its children are looked at.
    """
    cdef int n = s.d.p.n, m, h, i = 0, count = 1
    cdef int* first = s.d.back           # modifier of a head; 0: none, -1: lined up
    cdef int* next = s.d.back + n + 1
    memset(first, 0, (n + 1) * sizeof(int))
    for m in range(n, 0, -1):
        h = s.d.p.heads[s.pick[m]] if s.n_rows[m] else 0
        next[m], first[h] = first[h], m
    s.order[0] = 0
    while i < count:
        h = s.order[i]
        m, first[h] = first[h], -1
        while m > 0:
            s.order[count] = m
            count += 1
            m = next[m]
        i += 1
    for m in range(1, n + 1):
        if first[m] >= 0:
            s.order[count] = m
            count += 1


cdef void visit(Ascent* s, int h) noexcept nogil:
    cdef Automata* d = &s.d
    cdef Places* p = d.p
    cdef int r, side, j, a, best = 0
    cdef double top, change, share
    cdef bint better
    s.h, s.chooses, s.lone = h, d.choose and h > 0, h == 0 and d.single_root
    s.heads = s.n_rows[h] if s.chooses else 1
    s.arc = s.rows + p.offsets[h - 1] if h else NULL
    s.width = padded(s.heads)
    if s.chooses:
        for r in range(s.heads):
            a = s.arc[r]
            d.up[a] += d.own[a]
            d.own[a] = 0.0
            s.up[r] = d.up[a]
            s.grand[r] = p.grand[a]
            s.place[p.heads[a]] = r + 1
    else:
        s.up[0] = s.grand[0] = 0
    for r in range(s.heads, s.width):
        s.up[r], s.grand[r] = -INFINITY, s.grand[0]
    if h == 0:
        s.sides[0].count, s.sides[0].V = 0, s.sides[0].none
        for r in range(s.width):
            s.sides[0].none[r] = 0.0
    for side in range(0 if h else 1, 2):
        look_out(s, side)
    top = -INFINITY
    for r in range(s.heads):
        s.W[r] = s.up[r] + s.sides[0].V[r] + s.sides[1].V[r]
        better = s.W[r] > top
        top = s.W[r] if better else top
        best = r if better else best
        if s.chooses:
            s.place[p.heads[s.arc[r]]] = 0
    if s.chooses and top > -INFINITY:
        share = SHARE if s.sides[0].count + s.sides[1].count else 1.0
        for r in range(s.heads):
            change = share * (s.W[r] - top)
            if change > -INFINITY:
                d.own[s.arc[r]] += change
                d.up[s.arc[r]] -= change
                s.up[r] -= change
            else:
                forbid(s, s.arc[r])
        choose(s, h, s.arc[best], 0.0)
    for side in range(0 if h else 1, 2):
        for j in range(1, s.sides[side].count + 1):
            if not s.sides[side].sure[j]:
                top = hand_out(s, side, top)
                break
    d.value[h] = top
    s.waits[h] = False
    s.idle[h] = h and s.sides[0].count + s.sides[1].count == 0
    if s.loses:
        lose(s)
    rouse(s)


cdef bint drop(Ascent* s, double gap) noexcept nogil:
    """The arcs whose words lose more than the gap by them; whether there are any."""
    cdef Automata* d = &s.d
    cdef int* rows
    cdef int m, i, a, count
    cdef double least
    cdef bint found = False, kept
    for m in range(1, d.p.n + 1):
        if s.n_rows[m] == 1:
            continue
        rows, count, least = s.rows + d.p.offsets[m - 1], 0, s.top[m] - gap
        for i in range(s.n_rows[m]):     # without branches that cannot be foretold
            a = rows[i]
            kept = d.own[a] >= least
            d.own[a] += KEEPS[kept]
            rows[count] = a
            count += kept
        found |= count < s.n_rows[m]
        s.n_rows[m] = count
    return found


cdef void forbid(Ascent* s, int arc) noexcept nogil:
    """The arc is in no tree, or decided against; `lose` drops it, once nothing reads its lists."""
    s.d.own[arc] = -INFINITY
    s.lost[s.d.p.modifiers[arc]] = True
    s.loses = True


cdef void lose(Ascent* s) noexcept nogil:
    """Drops the arcs that were forbidden."""
    cdef int m, i, count, arc
    cdef int* rows
    s.loses = s.still = False
    for m in range(1, s.d.p.n + 1):
        if not s.lost[m]:
            continue
        s.lost[m] = False
        rows, count = s.rows + s.d.p.offsets[m - 1], 0
        for i in range(s.n_rows[m]):
            if s.d.own[rows[i]] > -INFINITY:
                rows[count] = rows[i]
                count += 1
        s.n_rows[m] = count
        if s.d.own[s.pick[m]] == -INFINITY:
            arc = leader(s, m, s.pick[m])
            choose(s, m, arc, s.d.own[arc])
    rouse(s)


cdef void close_paths(Ascent* s) noexcept nogil:
    """Drops arcs from words that are known to be below those which they enter.  There is a tree."""
    cdef Places* p = s.d.p
    cdef int m, i, h
    cdef int* rows
    for m in range(1, p.n + 1):
        rows = s.rows + p.offsets[m - 1]
        for i in range(s.n_rows[m] if s.n_rows[m] > 1 else 0):
            h = p.heads[rows[i]]
            while h and h != m and s.n_rows[h] == 1:
                h = p.heads[s.pick[h]]
            if h == m:
                forbid(s, rows[i])
    if s.loses:
        lose(s)


cdef void favour(Ascent* s, int m, double gain) noexcept nogil:
    """All arcs into a word but its pick get so much."""
    cdef int* rows = s.rows + s.d.p.offsets[m - 1]
    cdef int i
    for i in range(s.n_rows[m]):
        s.waits[s.d.p.heads[rows[i]]] = True
        if rows[i] != s.pick[m]:
            s.d.own[rows[i]] += gain
    s.waits[m] = True


cdef void part(Ascent* s) noexcept nogil:
    """Makes the dual smaller where picks cross: a tree has another arc into one of the words."""
    cdef int m, k
    cdef const int32_t* heads = s.d.p.heads
    cdef double least
    for m in range(2, s.d.p.n + 1):
        for k in range(1, m):
            if cross(heads[s.pick[m]], m, heads[s.pick[k]], k):
                least = min(s.top[m] - second(s, m), s.top[k] - second(s, k))
                s.cuts += least
                if least > 0.0 and least < INFINITY:
                    s.still = False
                    favour(s, m, least)
                    favour(s, k, least)


cdef double entry(Ascent* s, const int* met, int mark, int count, int* arc) noexcept nogil:
    """By how much the picks of the first so many s.cycle, which have this mark, are better than an
    arc that enters them; the least, and that arc."""
    cdef Places* p = s.d.p
    cdef double least = INFINITY
    cdef int* rows
    cdef int k, i, m
    for k in range(count):
        m = s.cycle[k]
        rows = s.rows + p.offsets[m - 1]
        for i in range(s.n_rows[m]):
            if s.top[m] - s.d.own[rows[i]] < least and met[p.heads[rows[i]]] != mark:
                least, arc[0] = s.top[m] - s.d.own[rows[i]], rows[i]
    return least


cdef int below(Ascent* s, int* met, int mark, int count) noexcept nogil:
    """Appends the words that are below the cycle by picks, with its mark; how many there are."""
    cdef const int32_t* heads = s.d.p.heads
    cdef int m, h, walked
    for m in range(1, s.d.p.n + 1):
        h, walked = m, 0
        while h and met[h] != mark and walked <= s.d.p.n:
            h, walked = heads[s.pick[h]], walked + 1
        if met[h] == mark and h:
            h = m
            while met[h] != mark:
                met[h] = mark
                s.cycle[count] = h
                count += 1
                h = heads[s.pick[h]]
    return count


cdef double one_root(Ascent* s) noexcept nogil:
    """All roots of the tree but one get their next best heads; what that loses.

    The one is that which would lose most, so no tree with a single root loses less.
    """
    cdef Automata* d = &s.d
    cdef Places* p = d.p
    cdef int m, i, a, arc, kept = 0
    cdef int* rows
    cdef double best, loss = 0.0, most = 0.0
    for m in range(1, p.n + 1):
        if d.heads[m] != 0:
            continue
        rows, best, arc = s.rows + p.offsets[m - 1], -INFINITY, s.pick[m]
        for i in range(s.n_rows[m]):
            a = rows[i]
            if p.heads[a] and d.own[a] > best:
                best, arc = d.own[a], a
        d.into[m], d.heads[m] = arc, p.heads[arc]
        loss += min(most, s.top[m] - best)
        if kept == 0 or s.top[m] - best > most:
            kept, most = m, s.top[m] - best
    if kept:
        d.into[kept], d.heads[kept] = s.pick[kept], 0
    return loss


cdef void open_cycles(Ascent* s) noexcept nogil:
    """Makes the dual smaller where the picks are a cycle; the tree enters it where it is best.

    An arc enters the words of the cycle in every tree, so those arcs get what the cycle is better;
    or, where that is little, those into the cycle and all that is below it, if it is more.
    """
    cdef Automata* d = &s.d
    cdef Places* p = d.p
    cdef int n = p.n, m, h, a, i, k, count, more, mark, arc = 0, other = 0
    cdef int* met = d.back
    cdef int* rows
    cdef double least, large
    memset(met, 0, (n + 1) * sizeof(int))
    for m in range(1, n + 1):
        h = m
        while h and not met[h]:
            met[h] = m
            h = p.heads[s.pick[h]]
        if not h or met[h] != m:
            continue
        mark, count = -m, 0
        while met[h] == m:
            met[h] = mark
            s.cycle[count] = h
            count += 1
            h = p.heads[s.pick[h]]
        least = entry(s, met, mark, count, &arc)
        if least == INFINITY:            # no arc enters
            s.cuts = INFINITY
            return
        d.into[p.modifiers[arc]], d.heads[p.modifiers[arc]] = arc, p.heads[arc]
        if least < LITTLE * (s.dual - s.primal):
            more = below(s, met, mark, count)
            large = entry(s, met, mark, more, &other)
            if large > least:
                least, count = large, more
            else:
                for k in range(count, more):
                    met[s.cycle[k]] = n + 1
        for k in range(count):
            h = s.cycle[k]
            rows = s.rows + p.offsets[h - 1]
            for i in range(s.n_rows[h]):
                a = rows[i]
                if met[p.heads[a]] != mark:
                    d.own[a] += least
                    s.waits[p.heads[a]] = True
            s.waits[h] = True
        s.cuts += least


cdef void uncross(Ascent* s) noexcept nogil:
    """Drops arcs that cross those of words with one arc left."""
    cdef Places* p = s.d.p
    cdef int k, m, i
    cdef int* rows
    for k in range(1, p.n + 1):
        if s.n_rows[k] != 1:
            continue
        for m in range(1, p.n + 1):
            rows = s.rows + p.offsets[m - 1]
            for i in range(s.n_rows[m]):
                if cross(p.heads[rows[i]], m, p.heads[s.pick[k]], k):
                    forbid(s, rows[i])
        if s.loses:
            lose(s)


cdef void sweep(Ascent* s, int[::1] heads) noexcept nogil:
    """Visits automata that wait, makes the bounds better and drops arcs.

    heads: OUT (n+1,) of a better tree.
    """
    cdef Automata* d = &s.d
    cdef int n = d.p.n, h, m
    cdef double value = 0.0, words = 0.0, tree, found, gap, apart
    cdef bint known
    if d.projective:
        uncross(s)
    s.still = True
    for m in range(n + 1):
        h = s.order[m]
        if s.waits[h]:
            if not s.idle[h] or s.n_kids[2 * h] + s.n_kids[2 * h + 1]:
                visit(s, h)
                s.still = False
            else:
                s.waits[h] = False
        value += d.value[h]
    for m in range(1, n + 1):
        words += s.top[m]
        d.into[m], d.heads[m] = s.pick[m], d.p.heads[s.pick[m]]
    if words == -INFINITY:
        s.dual = -INFINITY
        return
    tree = words
    known = s.straight and memcmp(s.scored, s.pick, (n + 1) * sizeof(int)) == 0
    if not known:
        memcpy(s.scored, s.pick, (n + 1) * sizeof(int))
        s.straight = fits(d)
    if not s.straight:
        found, apart = s.cuts, one_root(s) if d.single_root else 0.0
        open_cycles(s)
        s.still = s.still and s.cuts == found
        if s.cuts == INFINITY:
            tree = -INFINITY
        else:
            tree = words - apart if fits(d) else best_tree(d)
    if tree == -INFINITY:
        s.dual = -INFINITY
        return
    s.dual = min(s.dual, value + min(words, tree) - s.cuts)
    if not known:
        found = score(d)
        if found > s.primal:
            s.primal = found
            memcpy(&heads[0], d.heads, (n + 1) * sizeof(int))
    if closed(s):
        return
    if not s.straight:
        if d.projective:
            part(s)
            s.dual = min(s.dual, value + words - s.cuts)
        close_paths(s)
    gap = words + value - s.cuts - s.primal
    if gap < LESS * s.gap:
        s.gap = gap
        if drop(s, gap + slack(s.primal)):
            s.still = False


cdef bint undecided(Ascent* s, int* word) noexcept nogil:
    """A word with more than one arc; False: all heads are known.

    Those with another head in the best tree come first.  Then the best two arcs should differ by
    some of the gap, so that either way the dual may fall.
    """
    cdef double margin, least = INFINITY
    cdef bint differs, best = False
    cdef int m
    for m in range(1, s.d.p.n + 1):
        if s.n_rows[m] > 1:
            margin = fabs(s.top[m] - second(s, m) - APART * (s.dual - s.primal))
            differs = s.d.into[m] != s.pick[m]
            if (differs and not best) or (differs == best and margin < least):
                best, least, word[0] = differs, margin, m
    return least < INFINITY


cdef void decide(Ascent* s, int m, bint chosen) noexcept nogil:
    """Leaves only the pick of a word, or all but that."""
    cdef int arc = s.pick[m], i
    cdef int* rows = s.rows + s.d.p.offsets[m - 1]
    for i in range(s.n_rows[m]):
        if (rows[i] == arc) != chosen:
            forbid(s, rows[i])
    lose(s)


cdef size_t state_bytes(Ascent* s) noexcept nogil:
    cdef size_t arcs = s.d.p.arcs, n = s.d.p.n
    return (4 * arcs + 2 * n + 4) * sizeof(double) + (s.ints + 1) // 2 * 2 * sizeof(int)


cdef void keep(Ascent* s, char* to) noexcept nogil:
    """The state of a problem, to be gone on with."""
    cdef size_t arcs = s.d.p.arcs, n = s.d.p.n
    cdef double* at = <double*>to
    memcpy(at, s.d.dn, 3 * arcs * sizeof(double))            # dn, up, own
    at += 3 * arcs
    memcpy(at, s.d.value, (n + 1) * sizeof(double))
    memcpy(at + n + 1, s.top, (n + 1 + arcs) * sizeof(double))       # and adds
    at += 2 * n + 2 + arcs
    at[0], at[1] = s.dual, s.cuts
    memcpy(at + 2, s.pick, s.ints * sizeof(int))


cdef void resume(Ascent* s, const char* kept) noexcept nogil:
    cdef size_t arcs = s.d.p.arcs, n = s.d.p.n
    cdef const double* at = <const double*>kept
    memcpy(s.d.dn, at, 3 * arcs * sizeof(double))
    at += 3 * arcs
    memcpy(s.d.value, at, (n + 1) * sizeof(double))
    memcpy(s.top, at + n + 1, (n + 1 + arcs) * sizeof(double))
    at += 2 * n + 2 + arcs
    s.dual, s.cuts, s.gap = at[0], at[1], INFINITY
    memcpy(s.pick, at + 2, s.ints * sizeof(int))


cdef void insertions(Automata* d, int h, int a, double* most) noexcept nogil:
    """What each child of h, by rank, adds at most as the outermost; a: as for `insertion`."""
    cdef Places* p = d.p
    cdef int side, count, j, rank, step
    for side in range(0 if h else 1, 2):
        count, step = side_count(p, h, side), 1 if side else -1
        rank = p.n_left[h] - (0 if side else 1)
        if a < 0 and d.childseq != NULL:
            most_at_end(d.childseq + p.childseq[2 * h + side], count, most + rank, step)
            continue
        for j in range(1, count + 1):
            most[rank + step * (j - 1)] = insertion(d, h, side, a, j, count + 1)


cdef void leave_all(Ascent* s) noexcept nogil:
    """Words have the scores of arcs and all that parts may add to them, so that automata want no
    child, but for the root's, which may have to.  Its children are awake."""
    cdef Automata* d = &s.d
    cdef Places* p = d.p
    cdef int h, side, k, a, count, low, high
    cdef int* skip = d.back
    cdef double* most = s.most + 1
    cdef double* ways = most + s.widest
    cdef const int32_t* kids
    cdef int64_t none
    for a in range(p.arcs):
        d.up[a] = 0.0
    for h in range(p.n + 1):
        s.waits[h] = h == 0
        s.idle[h] = h > 0
        d.value[h] = 0.0
        kids, count = p.children + p.first[h], p.first[h + 1] - p.first[h]
        if h == 0 or not d.choose:
            insertions(d, h, NONE, most)
            for k in range(count):
                d.dn[kids[k]] = -most[k]
                s.adds[kids[k]] = most[k]
        else:
            low, high = p.offsets[h - 1], p.offsets[h]
            for k in range(count):
                s.place[p.modifiers[kids[k]]] = k + 1
            for a in range(low, high):
                skip[a - low] = s.place[p.heads[a]]
            for k in range(count):
                s.place[p.modifiers[kids[k]]] = 0
            if d.grandsib == NULL:
                most_of_rows(d.grand + p.grand[low], skip, high - low, count, most)
                insertions(d, h, NONE, ways)
                for k in range(count):
                    s.adds[kids[k]] = ways[k]
                    d.dn[kids[k]] = -(most[k] + ways[k]) if most[k] > -INFINITY else 0.0
            else:
                for k in range(count):
                    s.adds[kids[k]] = 0.0
                    most[k] = -INFINITY
                for a in range(low, high):
                    insertions(d, h, a, ways)
                    for k in range(count):
                        if d.grand != NULL:
                            ways[k] += d.grand[p.grand[a] + k]
                        if k + 1 != skip[a - low]:
                            most[k] = max(most[k], ways[k])
                for k in range(count):
                    d.dn[kids[k]] = -most[k] if most[k] > -INFINITY else 0.0
        for side in range(0 if h else 1, 2):
            none = p.childseq[2 * h + side] + triangle(side_count(p, h, side) + 1)
            if d.childseq != NULL:
                d.value[h] += d.childseq[none]
            if d.grandsib != NULL and h:
                for a in range(p.offsets[h - 1], p.offsets[h]):
                    d.up[a] -= d.grandsib[p.grandsib[a] + none - p.childseq[2 * h]]
    for a in range(p.arcs):
        if d.link[a] == -INFINITY:
            d.dn[a] = d.up[a] = d.own[a] = -INFINITY
        else:
            d.own[a] = d.link[a] - d.dn[a] - d.up[a]
    wake_all(s, 0)


cdef int furnish(Ascent* s) except -1:
    """Room, to be given back by the caller; all arcs that are not forbidden are left."""
    cdef Places* p = s.d.p
    cdef int n = p.n, h, side, a, rows = 1, width = 0
    cdef int64_t pairs, table
    cdef double* at
    s.widest = 0
    for h in range(n + 1):
        width = max(width, side_count(p, h, 0), side_count(p, h, 1))
        s.widest = max(s.widest, p.first[h + 1] - p.first[h])
        if h and s.d.choose:
            rows = max(rows, p.offsets[h] - p.offsets[h - 1])
    width, rows = width + 2, padded(rows)
    pairs = triangle(width)
    table = pairs * (1 + (rows if s.d.grandsib != NULL else 0))
    s.ints = 3 * p.arcs + 6 * (n + 1)
    s.room = borrow(((5 * width + 5) * rows + 2 * table + width + n + 1 + p.arcs
                     + 2 * s.widest + 1) * sizeof(double)
                    + (s.ints + p.arcs + width + 4 * (n + 1)) * sizeof(int)
                    + 2 * width + n + 1, &s.size)
    at = <double*>s.room
    for side in range(2):
        s.sides[side].N, s.sides[side].E = at, at + width * rows
        s.sides[side].none = at + 2 * width * rows
        s.sides[side].own_seq = at + (2 * width + 1) * rows
        s.sides[side].own_more = s.sides[side].own_seq + pairs
        at = s.sides[side].own_seq + table
    s.F, s.up = at, at + width * rows
    s.W, s.grand, s.change = s.up + rows, <int64_t*>(s.up + 2 * rows), s.up + 3 * rows
    s.top, s.adds = s.change + width, s.change + width + n + 1
    s.most = s.adds + p.arcs
    s.pick = <int*>(s.most + 2 * s.widest + 1)
    s.rows = s.pick + n + 1
    s.kids = s.rows + p.arcs
    s.n_rows = s.kids + p.arcs
    s.n_kids = s.n_rows + n + 1
    s.waits = s.n_kids + 2 * (n + 1)
    s.idle = s.waits + n + 1
    s.awake = s.idle + n + 1
    s.order = s.awake + p.arcs
    s.woken, s.n_woken = s.order + n + 1, 0
    s.scored = s.woken + p.arcs
    s.at = s.scored + n + 1
    s.place = s.at + width
    s.cycle = s.place + n + 1
    s.sides[0].sure = <char*>(s.cycle + n + 1)
    s.sides[1].sure = s.sides[0].sure + width
    s.lost = s.sides[1].sure + width
    s.loses = s.straight = False
    s.pick[0] = NONE
    memset(s.lost, 0, n + 1)
    memset(s.place, 0, (n + 1) * sizeof(int))
    memset(s.awake, 0, p.arcs * sizeof(int))
    memset(s.n_kids, 0, 2 * (n + 1) * sizeof(int))
    for h in range(n + 1):
        s.n_rows[h] = s.idle[h] = 0
        for a in range(p.offsets[h - 1] if h else 0, p.offsets[h] if h else 0):
            if s.d.link[a] > -INFINITY:
                s.rows[p.offsets[h - 1] + s.n_rows[h]] = a
                s.n_rows[h] += 1
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
    int[::1] heads,              # OUT   (n+1,) the best tree met, if it scores more than `known`
    const double[:, ::1] start=None,     # IN   (2, arcs) multipliers; None: words have all of the
                                         #      scores and the most that parts may add
    double[:, ::1] multipliers=None,     # OUT  (2, arcs) of dn and up before branching, or None
    double[::1] left=None,               # OUT  (arcs,) scores, -inf of arcs dropped before
                                         #      branching, or None
):
    """(primal, dual, sweeps, nodes); dual is -inf if there is no tree.

    Trees that score more than primal have none of the dropped arcs.  Releases the GIL.
    """
    cdef Ascent s
    cdef int n = layout.places.n, arcs = layout.places.arcs, a, k = 0, kept = 0, word = 0
    cdef int done = 0
    cdef double dual, gap
    cdef size_t size, stack_size
    cdef char* stack
    cdef char* grown
    build(&s.d, layout, scores, childseq, grand, grandsib, projective, single_root)
    s.room, s.size = NULL, 0
    try:
        furnish(&s)
        size = state_bytes(&s)
        stack = <char*>borrow(STACK * size, &stack_size)
    except MemoryError:
        give_back(s.room, s.size)
        give_back(s.d.room, s.d.size)
        raise
    s.primal, s.dual, s.cuts, s.gap = known, INFINITY, 0.0, INFINITY
    with nogil:
        if start is not None:
            split_scores(&s.d, split, start)
            for a in range(n + 1):
                s.waits[a] = True
            wake_all(&s, n)
        else:
            leave_all(&s)
        choose_all(&s)
        line_up(&s)
        while k < sweeps:
            sweep(&s, heads)
            k += 1
            if closed(&s) or s.still:
                break
        if multipliers is not None:
            read_multipliers(&s.d, split, multipliers)
        if left is not None:
            for a in range(arcs):
                left[a] = scores[a] if s.d.own[a] > -INFINITY else -INFINITY
        dual = s.dual
        while done < nodes and dual > -INFINITY:
            # The problem at hand is divided, or is done with: the one that was kept last is next.
            if not closed(&s) and undecided(&s, &word):
                if (kept + 2) * size > stack_size:
                    grown = <char*>realloc(stack, 2 * stack_size)
                    if grown == NULL:
                        break
                    stack, stack_size = grown, 2 * stack_size
                keep(&s, stack + (kept + 1) * size)
                decide(&s, word, False)
                keep(&s, stack + kept * size)
                resume(&s, stack + (kept + 1) * size)
                decide(&s, word, True)
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
                if closed(&s) or s.still or s.dual - s.primal > (1.0 - FALL) * gap:
                    break
        if dual > -INFINITY:
            dual = max(s.dual, s.primal)
            for a in range(kept):
                resume(&s, stack + a * size)
                dual = max(dual, s.dual)
    give_back(stack, stack_size)
    give_back(s.room, s.size)
    give_back(s.d.room, s.d.size)
    return s.primal, dual, k, done
