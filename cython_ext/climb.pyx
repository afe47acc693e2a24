"""Hill climbing over single head changes, under all families of parts (McDonald & Pereira 2006).

What an arc a = (h -> m) brings to the tree as it stands without an arc into m, g being the head
of h and x, y the neighbours of m among the children of h on its side:

    attach[a] = link[a] + grand[g -> h, m] + seq(x, m) + seq(m, y) - seq(x, y)
                + (+)_s sib[h, m, s]                      s: other children of h
                + (+)_i nocross[m, i]                     i: words whose arcs a crosses
                + (+)_c grand[a, c] + (+)_(c, d) grandsib[a, c, d]

    seq(x, y) = childseq[h, x, y] + grandsib[g -> h, x, y]

with c, and (c, d) next to each other, among the children of m.  Moving m from arc b to arc a
changes the score by attach[a] - attach[b], for neither depends on the arc into m.

So the table lasts from round to round, and a round only reads it.  Moving w from head o to head h
changes the entries of the arcs out of o, h and w and into o and h; all of them if there are
NOCROSS parts.

With a single root r, moving a word m to the root is a change of two heads: r becomes a child of
m.  Before it, m was below r, and the children of m stay, so the result is a tree again.
"""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from cython_ext.blocks cimport borrow, give_back
from cython_ext.grandsib cimport Chart, inside, prepare, walk
from cython_ext.layout cimport (
    Layout, Places, checked, cross, find_arc, outward, side_count, triangle,
)
from cython_ext.semiring cimport MAX

cdef double LEAST_GAIN = 1e-10
cdef double SURE_GAIN = 1e-3     # a smaller one may be by rounding, where scores are large


cdef struct Climb:
    Places* p
    bint projective
    int root                     # the only root, or 0 where there may be several
    const double* link
    const double* sib            # NULL without parts, as the next four
    const double* childseq
    const double* grand
    const double* grandsib
    const double* nocross
    double* attach               # (arcs,)
    double* under                # (arcs,) of it the parts with children of the modifier
    int* arc                     # (n+1,) the arc into each word; of the root -1
    int* nearest                 # (2n+2,) [2h + side] the innermost child of h; 0: none
    int* next                    # (n+1,) the next child of the same head outwards; 0: none
    void* room                   # all of these, and its size
    size_t size


cdef struct Move:
    int arc                      # -1: there is none
    int root_arc                 # the new arc into the old root; -1: it stays
    double gain


cdef double chains(Climb* c, int h, const double* parts) noexcept nogil:
    """Sum over adjacent children of h; ``parts`` are in the order of its CHILDSEQ parts."""
    cdef Places* p = c.p
    cdef const double* rows
    cdef double value = 0.0
    cdef int side, x, inner, outer
    for side in range(0 if h else 1, 2):
        rows = parts + (p.childseq[2 * h + side] - p.childseq[2 * h])
        inner, x = 0, c.nearest[2 * h + side]
        while x:
            outer = outward(p, c.arc[x])
            value += rows[triangle(outer) + inner]
            inner, x = outer, c.next[x]
        value += rows[triangle(side_count(p, h, side) + 1) + inner]
    return value


cdef void look_below(Climb* c, int m) noexcept nogil:
    """Fill ``under`` for the arcs into m: GRAND and GRANDSIB parts over the children of m."""
    cdef Places* p = c.p
    cdef int first = p.offsets[m - 1], end = p.offsets[m], side, x, a, rank
    for a in range(first, end):
        c.under[a] = 0.0
        if c.grandsib != NULL:
            c.under[a] = chains(c, m, c.grandsib + p.grandsib[a])
    if c.grand == NULL:
        return
    for side in range(2):
        x = c.nearest[2 * m + side]
        while x:
            rank = p.rank[c.arc[x]]
            for a in range(first, end):
                c.under[a] += c.grand[p.grand[a] + rank]
            x = c.next[x]


cdef double pairs(Climb* c, int a) noexcept nogil:
    """SIB and NOCROSS parts of the arc a and any other."""
    cdef Places* p = c.p
    cdef int h = p.heads[a], m = p.modifiers[a], rank = p.rank[a], side, x, other
    cdef double value = 0.0
    if c.sib != NULL:
        for side in range(2):
            x = c.nearest[2 * h + side]
            while x:
                other = p.rank[c.arc[x]]
                if other != rank:
                    value += c.sib[p.sib[h] + triangle(max(rank, other)) + min(rank, other)]
                x = c.next[x]
    if c.nocross != NULL:
        for x in range(1, p.n + 1):
            if x != m and cross(h, m, p.heads[c.arc[x]], x):
                value += c.nocross[triangle(max(x, m) - 1) + min(x, m) - 1]
    return value


cdef inline double inserted(const double* rows, int inner, int at, int outer) noexcept nogil:
    return (rows[triangle(at) + inner] + rows[triangle(outer) + at]
            - rows[triangle(outer) + inner])


cdef double attach(Climb* c, int a) noexcept nogil:
    """What a brings, as defined above, with ``under`` up to date.

    O(children of its head), O(n) with NOCROSS.
    """
    cdef Places* p = c.p
    cdef int h = p.heads[a], side = p.modifiers[a] > h, at = outward(p, a), above = c.arc[h]
    cdef int inner = 0, outer = side_count(p, h, side) + 1, place, x
    cdef double value = c.link[a]
    if c.grand != NULL and h:
        value += c.grand[p.grand[above] + p.rank[a]]
    value += c.under[a]
    if c.sib != NULL or c.nocross != NULL:
        value += pairs(c, a)
    if c.childseq == NULL and c.grandsib == NULL:
        return value
    x = c.nearest[2 * h + side]
    while x:
        place = outward(p, c.arc[x])
        if place > at:
            outer = place
            break
        if place < at:
            inner = place
        x = c.next[x]
    if c.childseq != NULL:
        value += inserted(c.childseq + p.childseq[2 * h + side], inner, at, outer)
    if c.grandsib != NULL and h:
        value += inserted(
            c.grandsib + p.grandsib[above] + (p.childseq[2 * h + side] - p.childseq[2 * h]),
            inner, at, outer)
    return value


cdef void insert_all(Climb* c, int h, int side, const double* rows) noexcept nogil:
    """Add to every arc out of h on a side what it changes in the sequence of children."""
    cdef Places* p = c.p
    cdef const int32_t* arcs = p.children + p.first[h] + p.n_left[h] - (0 if side else 1)
    cdef int step = 1 if side else -1, end = side_count(p, h, side) + 1
    cdef int x = c.nearest[2 * h + side], inner = 0, outer, last, at = 1
    cdef const double* row
    cdef const double* own = rows                # of `at`
    outer = outward(p, c.arc[x]) if x else end
    while True:
        row = rows + triangle(outer)
        while at < outer:
            c.attach[arcs[0]] += own[inner] + row[at] - row[inner]
            own += at
            at += 1
            arcs += step
        if outer == end:
            return
        x, last = c.next[x], inner
        inner, outer = outer, outward(p, c.arc[x]) if x else end
        c.attach[arcs[0]] += inserted(rows, last, at, outer)
        own += at
        at += 1
        arcs += step


cdef void attach_all(Climb* c, int h) noexcept nogil:
    """`attach` of every arc out of h, each child of h passed once."""
    cdef Places* p = c.p
    cdef const int32_t* arcs = p.children + p.first[h]
    cdef const double* row = NULL
    cdef int side, i, above = c.arc[h]
    cdef double value
    if p.first[h] == p.first[h + 1]:
        return
    if c.grand != NULL and h:
        row = c.grand + p.grand[above]
    for i in range(p.first[h + 1] - p.first[h]):
        value = c.link[arcs[i]]
        if row != NULL:
            value += row[i]
        value += c.under[arcs[i]]
        if c.sib != NULL or c.nocross != NULL:
            value += pairs(c, arcs[i])
        c.attach[arcs[i]] = value
    for side in range(2):
        if side_count(p, h, side) == 0:
            continue
        if c.childseq != NULL:
            insert_all(c, h, side, c.childseq + p.childseq[2 * h + side])
        if c.grandsib != NULL and h:
            insert_all(c, h, side, c.grandsib + p.grandsib[above]
                       + (p.childseq[2 * h + side] - p.childseq[2 * h]))


cdef double total(Climb* c) noexcept nogil:
    """Score of the tree."""
    cdef double value = 0.0, twice = 0.0
    cdef int h
    for h in range(c.p.n + 1):
        if c.childseq != NULL:
            value += chains(c, h, c.childseq + c.p.childseq[2 * h])
        if h:
            value += c.link[c.arc[h]] + c.under[c.arc[h]]
            if c.sib != NULL or c.nocross != NULL:
                twice += pairs(c, c.arc[h])
    return value + 0.5 * twice


cdef void hang(Climb* c, const int* heads, bint single_root) noexcept nogil:
    """Make a tree of arcs, and of the lists of children, which are empty."""
    cdef Places* p = c.p
    cdef int m, h, a
    c.arc[0], c.root = -1, 0
    for m in range(1, p.n + 1):          # inwards: each child is nearer than those before it
        h, a = heads[m], p.offsets[m - 1]
        while p.heads[a] < h:
            a += 1
        c.arc[m] = a
        if h > m:
            c.next[m], c.nearest[2 * h] = c.nearest[2 * h], m
        elif h == 0 and single_root:
            c.root = m
    for m in range(p.n, 0, -1):
        h = heads[m]
        if h < m:
            c.next[m], c.nearest[2 * h + 1] = c.nearest[2 * h + 1], m


cdef void insert(Climb* c, int a) noexcept nogil:
    """Make a the arc into its modifier, which has none."""
    cdef int h = c.p.heads[a], m = c.p.modifiers[a]
    cdef int* slot = c.nearest + 2 * h + (m > h)
    while slot[0] and (slot[0] < m) == (m > h):
        slot = c.next + slot[0]
    c.next[m], slot[0] = slot[0], m
    c.arc[m] = a


cdef void move(Climb* c, int a) noexcept nogil:
    """Make a the arc into its modifier, instead of the one that it has."""
    cdef int m = c.p.modifiers[a], h = c.p.heads[c.arc[m]]
    cdef int* slot = c.nearest + 2 * h + (m > h)
    while slot[0] != m:
        slot = c.next + slot[0]
    slot[0] = c.next[m]
    insert(c, a)


cdef void refresh(Climb* c, int x) noexcept nogil:
    """Compute the entries of the arcs out of x and into it, whose children are others now."""
    cdef int a
    if x and (c.grand != NULL or c.grandsib != NULL):
        look_below(c, x)
        for a in range(c.p.offsets[x - 1], c.p.offsets[x]):
            c.attach[a] = attach(c, a)
    attach_all(c, x)


cdef void refresh_all(Climb* c) noexcept nogil:
    cdef Places* p = c.p
    cdef const double* row
    cdef int x, a, h
    if c.grandsib != NULL:
        for x in range(1, p.n + 1):
            look_below(c, x)
    else:                                # the same, from each child to what is above it
        memset(c.under, 0, p.arcs * sizeof(double))
        for x in range(1, p.n + 1):
            h = p.heads[c.arc[x]]
            if h and c.grand != NULL:
                row = c.grand + p.rank[c.arc[x]]
                for a in range(p.offsets[h - 1], p.offsets[h]):
                    c.under[a] += row[p.grand[a]]
    for x in range(p.n + 1):
        attach_all(c, x)


cdef bint descends(Climb* c, int x, int m) noexcept nogil:
    while x and x != m:
        x = c.p.heads[c.arc[x]]
    return x == m


cdef bint crosses(Climb* c, int a) noexcept nogil:
    """Whether a crosses an arc of the tree, the one into its own modifier left aside.  O(n)."""
    cdef int h = c.p.heads[a], m = c.p.modifiers[a], x
    for x in range(1, c.p.n + 1):
        if x != m and cross(h, m, c.p.heads[c.arc[x]], x):
            return True
    return False


cdef double exchange(Climb* c, int a, int b) noexcept nogil:
    """Gain of making the root arc a and the arc b, from its modifier to the only root."""
    cdef int old = c.arc[c.p.modifiers[a]]
    cdef double gain = c.attach[a] - c.attach[old]
    move(c, a)
    if c.p.heads[old] == c.root:
        look_below(c, c.root)
    gain += attach(c, b) - attach(c, c.arc[c.root])
    move(c, old)
    if c.p.heads[old] == c.root:
        look_below(c, c.root)
    return gain


cdef Move steepest(Climb* c) noexcept nogil:
    """The best move; of equal ones that of the first word to the first head.

    O(arcs), and O(n) for each move that is better than those before it.
    """
    cdef Places* p = c.p
    cdef Move best
    cdef int m, a, b, end
    cdef double gain, now
    best.arc, best.root_arc, best.gain = -1, -1, LEAST_GAIN
    for m in range(1, p.n + 1):
        if m == c.root:
            continue
        a, end, now = p.offsets[m - 1], p.offsets[m], c.attach[c.arc[m]]
        if c.root and p.heads[a] == 0:
            b = find_arc(p, m, c.root)
            if b >= 0:
                gain = exchange(c, a, b)
                # This is enough: an arc that crosses b and not the old root arc spans m, and so
                # crosses the new root arc.
                if gain > best.gain and not (c.projective and crosses(c, a)):
                    best.arc, best.root_arc, best.gain = a, b, gain
            a += 1
        while a < end:
            gain = c.attach[a] - now
            if gain > best.gain and not (
                descends(c, p.heads[a], m) or (c.projective and crosses(c, a))
            ):
                best.arc, best.root_arc, best.gain = a, -1, gain
            a += 1
    return best


cdef void take(Climb* c, int a) noexcept nogil:
    """Move, and bring the table up to date."""
    cdef int m = c.p.modifiers[a], o = c.p.heads[c.arc[m]]
    move(c, a)
    if c.nocross != NULL:
        refresh_all(c)
    elif c.sib != NULL or c.childseq != NULL or c.grand != NULL or c.grandsib != NULL:
        refresh(c, o)
        refresh(c, c.p.heads[a])
        attach_all(c, m)


cdef int ascend(Climb* c, Move best, int* heads, double* score) noexcept nogil:
    """Climb from the best move on, and keep ``heads`` and the score up to date; the moves."""
    cdef Places* p = c.p
    cdef int m, moves = 0
    cdef bint doubtful
    cdef double before = 0.0, after
    while best.arc >= 0:
        doubtful = best.gain < SURE_GAIN or moves >= p.n
        if doubtful:
            before = total(c)
        take(c, best.arc)
        if best.root_arc >= 0:
            take(c, best.root_arc)
        after = total(c) if doubtful else score[0] + best.gain
        if doubtful and not after > before:  # without end perhaps
            break
        score[0] = after
        moves += 1
        m = p.modifiers[best.arc]
        heads[m] = p.heads[best.arc]
        if best.root_arc >= 0:
            heads[c.root], c.root = m, m
        best = steepest(c)
    return moves


cdef int lay_out(
    Climb* c, Layout layout, const double[::1] scores, const double[::1] sib,
    const double[::1] childseq, const double[::1] grand, const double[::1] grandsib,
    const double[::1] nocross, bint projective,
) except -1:
    """Room for everything, to be given back by the caller."""
    cdef Places* p = &layout.places
    c.p, c.projective = p, projective
    c.link = checked("candidate arcs", scores, p.arcs)
    c.sib = checked("parts sib", sib, p.sib[p.n + 1])
    c.childseq = checked("parts childseq", childseq, p.childseq[2 * p.n + 2])
    c.grand = checked("parts grand", grand, p.grand[p.arcs])
    c.grandsib = checked("parts grandsib", grandsib, p.grandsib[p.arcs])
    c.nocross = checked("parts nocross", nocross, triangle(p.n))
    c.room = borrow(2 * p.arcs * sizeof(double) + 4 * (p.n + 1) * sizeof(int), &c.size)
    c.attach = <double*>c.room
    c.under = c.attach + p.arcs
    c.arc = <int*>(c.under + p.arcs)
    c.next = c.arc + p.n + 1
    c.nearest = c.next + p.n + 1
    memset(c.next, 0, 3 * (p.n + 1) * sizeof(int))
    return 0


def climb(
    Layout layout,
    const double[::1] scores,            # IN   (arcs,)
    const double[::1] sib,               # IN   (parts,) or None, as the next four
    const double[::1] childseq,
    const double[::1] grand,
    const double[::1] grandsib,
    const double[::1] nocross,
    bint projective,
    bint single_root,
    int[::1] heads,                      # IN, OUT  (n+1,) a tree of the kind wanted
):
    """Climb from a tree to one that no move makes better: its score, the moves, what they gained.

    Scores must be finite.  That ``heads`` is a tree of the kind wanted, over candidate arcs, is the
    caller's promise.  Releases the GIL.  O(arcs) time at first and for a round, O(arcs / n) for a
    move, on average; times children with SIB or GRANDSIB, times n with NOCROSS.  O(arcs + n)
    memory.
    """
    cdef Climb c
    cdef int moves
    cdef double score, start
    lay_out(&c, layout, scores, sib, childseq, grand, grandsib, nocross, projective)
    with nogil:
        hang(&c, &heads[0], single_root)
        refresh_all(&c)
        score = start = total(&c)
        moves = ascend(&c, steepest(&c), &heads[0], &score)
    give_back(c.room, c.size)
    return score, moves, score - start


def best(
    Layout layout,
    const double[::1] scores,            # IN   as for climb
    const double[::1] sib,
    const double[::1] childseq,
    const double[::1] grand,
    const double[::1] grandsib,
    const double[::1] nocross,
    bint projective,
    bint single_root,
    int[::1] heads,                      # OUT  (n+1,)
):
    """Climb from the best projective tree under CHILDSEQ, GRAND and GRANDSIB; results as of climb.

    -inf for the score if there is none, and ``heads`` undefined.  Scores must be finite.  Releases
    the GIL.  Time and memory of grandsib.best_tree and of climb.
    """
    cdef Climb c
    cdef Chart chart
    cdef bint partial
    cdef int moves = 0
    cdef double score, start
    lay_out(&c, layout, scores, sib, childseq, grand, grandsib, nocross, projective)
    chart.scores.link, chart.scores.childseq = c.link, c.childseq
    chart.scores.grand, chart.scores.grandsib = c.grand, c.grandsib
    try:
        prepare(&chart, c.p, single_root, MAX, NULL)
    except MemoryError:
        give_back(c.room, c.size)
        raise
    with nogil:
        score = start = inside(&chart)
        if score > -INFINITY:
            walk(&chart, &heads[0], chart.stack)
            hang(&c, &heads[0], single_root)
            # Under the families of the program no projective tree is better.
            partial = c.sib != NULL or c.nocross != NULL
            if partial or not projective:
                refresh_all(&c)
                if partial:
                    score = start = total(&c)
                moves = ascend(&c, steepest(&c), &heads[0], &score)
    give_back(chart.room, chart.size)
    give_back(c.room, c.size)
    return score, moves, score - start if moves else 0.0
