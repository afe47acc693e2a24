"""Projective trees with adjacent-sibling parts: best tree, log Z and marginals in O(n^3).

McDonald & Pereira (2006) over candidate arcs.  The children of h on one side are x_1, x_2, ...
outwards, and s_j is the score of the arc h -> x_j.

    C[h, e]  complete: h has all its children on the side of e, and everything up to e descends
             from it;  C[h, h] = seq[START, END] on either side
    I[h, j]  incomplete: x_j was just added as a child, and lacks its outer half;  I[h, 0] = one
    J[h, j]  the same as the outermost child
    S[x, y]  gap: x and y are adjacent children of a head outside, with all between them

    S[x, y] = (+)_r C[x, r] (x) C[y, r']                             r, r' adjacent, between them
    I[h, j] = s_j (x) (+)_{i<j} I[h, i] (x) gap_i (x) seq[x_i, x_j]
              gap_0 = C[x_j, word next to h],  gap_i = S[x_i, x_j]
    J[h, j] = I[h, j] (x) seq[x_j, END]
    C[h, e] = (+)_j J[h, j] (x) C[x_j, e]                            x_j no further out than e

Goal: C[0, n].  With a single root, i is 0 only for the children of the root.  A gap does not depend
on the head outside, and is computed when the first one asks for it.

All sums run along rows.  A row of C holds C[h, e] at e to the left and at e + 1 to the right, so
the two halves that meet between two words are at one index.  The other tables have a row for each
end e, with those on its left at 0, 1, ..., e and those on its right at e + 1 (word n), ..., n + 1
(e itself): outward order for any head on that side.  Where all arcs are candidates a sum runs along
such a row as it stands, else along a copy of the children's places.

The outside pass hands expected counts down, as in grandsib.pyx.
"""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from cython_ext.blocks cimport borrow, give_back
from cython_ext.grandsib cimport log_rows, max_rows, share_rows
from cython_ext.layout cimport Layout, Places, checked, side_count, triangle
from cython_ext.semiring cimport LOG, MAX


cdef struct Side:                # the children of a head on one side
    int head
    int right                    # 1, or 0 on the left
    int step                     # 1, or -1 on the left
    int total                    # children
    int count                    # of them, those no further out than the end that was reached
    const int32_t* arcs          # the j-th is arcs[step * (j - 1)]
    int* words                   # x_0 = head, x_1, x_2, ...
    Py_ssize_t items             # where I[h, 0] is
    int64_t parts                # seq[START, x_1]
    int64_t ends                 # seq[START, END]


cdef struct Items:
    double* C                    # (n+1, n+2)
    double* to                   # (n+1, n+2) the same values by end: to[e, h] = C[h, e]
    double* S                    # (n+1, n+2) by either of the two words; INFINITY: not asked for
    double* I                    # (arcs + 2 (n+1),) of each side 0, 1, ...
    double* J
    double* row                  # SCRATCH (n+1,)


cdef struct Chart:
    Places* p
    int n
    Py_ssize_t width             # of a row of C, to and S
    int semiring                 # MAX or LOG
    bint single_root
    bint full                    # all arcs are candidates
    const double* link
    const double* childseq       # NULL: all zero
    Items items
    Side* sides                  # (2 (n+1),) left and right of 0, 1, ...
    int* stack                   # SCRATCH (6 (n+1),)
    void* room                   # all of these, and its size
    size_t size


cdef inline Py_ssize_t span(Chart* c, int h, int e, int right) noexcept nogil:
    """Where C[h, e] is."""
    return h * c.width + e + right


cdef inline Py_ssize_t place(Chart* c, int e, int h, int right) noexcept nogil:
    """Where h, or a word on the way to it, is in the row of an end e; `right`: e is right of h."""
    return e * c.width + (h if right else c.n + 1 + e - h)


cdef inline Py_ssize_t start(Chart* c, Side* side, int e) noexcept nogil:
    """Where the inner half of e as a child is in C: gap_0."""
    return span(c, e, side.head + side.step, 1 - side.right)


cdef inline int arc(Side* side, int j) noexcept nogil:
    """The arc to the j-th child outwards, j >= 1."""
    return side.arcs[side.step * (j - 1)]


cdef inline const double* seq(Chart* c, Side* side, int j) noexcept nogil:
    """seq[x_0, x_j], seq[x_1, x_j], ..., or NULL."""
    if c.childseq == NULL:
        return NULL
    return c.childseq + side.parts + triangle(j)


cdef inline double end_score(Chart* c, Side* side, int j) noexcept nogil:
    return 0.0 if c.childseq == NULL else c.childseq[side.ends + j]


cdef inline int ways(Chart* c, Side* side, int j) noexcept nogil:
    """Over how many i the sum of I[h, j] runs."""
    return 1 if side.head == 0 and c.single_root else j


cdef inline double reduce(Chart* c, const double* x, const double* y, const double* extra,
                          Py_ssize_t n) noexcept nogil:
    cdef double out = -INFINITY
    if n:
        if c.semiring == MAX:
            max_rows(x, y, 0, extra, 0, 1, n, &out, 1)
        else:
            log_rows(x, y, 0, extra, 0, 1, n, &out, 1)
    return out


cdef inline double gap(Chart* c, int low, int high) noexcept nogil:
    """S[low, high], of spans that are narrower than low..high."""
    cdef double* S = c.items.S
    cdef Py_ssize_t at = place(c, high, low, 1)
    if S[at] == INFINITY:
        S[at] = reduce(c, c.items.C + span(c, low, low, 1), c.items.C + span(c, high, low + 1, 0),
                       NULL, high - low)
        S[place(c, low, high, 0)] = S[at]
    return S[at]


cdef inline double* copied_gaps(Chart* c, Side* side, int e, int count) noexcept nogil:
    """gap_0, gap_1, ... of the arc h -> e in the scratch row."""
    cdef double* row = c.items.row
    cdef int i
    row[0] = c.items.C[start(c, side, e)]
    if side.right:
        for i in range(1, count):
            row[i] = gap(c, side.words[i], e)
    else:
        for i in range(1, count):
            row[i] = gap(c, e, side.words[i])
    return row


cdef inline double* gaps(Chart* c, Side* side, int e, int count) noexcept nogil:
    """gap_0, gap_1, ... of the arc h -> e.

    In a full graph S[x_1, e], S[x_2, e], ... stand in the row of e, next to S[h, e].  That is asked
    for only by wider spans, which the inside pass has yet to reach and the outside pass has left
    behind, so its place is lent to gap_0.
    """
    cdef double* row
    if not c.full:
        return copied_gaps(c, side, e, count)
    row = c.items.S + place(c, e, side.head, side.right)
    row[0] = c.items.C[start(c, side, e)]
    if count > 1:                # the others were asked for by the heads between
        if side.right:
            gap(c, side.words[1], e)
        else:
            gap(c, e, side.words[1])
    return row


cdef inline double* copied_halves(Chart* c, Side* side, int e, int count) noexcept nogil:
    """C[x_1, e], C[x_2, e], ... in the scratch row."""
    cdef double* row = c.items.row
    cdef const double* to = c.items.to + place(c, e, 0, side.right)
    cdef int j
    for j in range(count):
        row[j] = to[side.step * side.words[j + 1]]
    return row


cdef inline double* halves(Chart* c, Side* side, int e, int count) noexcept nogil:
    """C[x_1, e], C[x_2, e], ..."""
    if c.full:
        return c.items.to + place(c, e, side.head, side.right) + 1
    return copied_halves(c, side, e, count)


cdef inline void set_span(Chart* c, Side* side, int e, double value) noexcept nogil:
    c.items.C[span(c, side.head, e, side.right)] = value
    c.items.to[place(c, e, side.head, side.right)] = value


cdef void begin(Chart* c) noexcept nogil:
    """The sides of all heads, and the items of no width."""
    cdef Places* p = c.p
    cdef int h, right, j
    cdef int* words = <int*>(c.sides + 2 * (c.n + 1))
    cdef Py_ssize_t items = 0
    cdef Side* side
    for h in range(c.n + 1):
        for right in range(2):
            side = c.sides + 2 * h + right
            side.head, side.right, side.step = h, right, 1 if right else -1
            side.total = side_count(p, <int>h, <int>right)
            side.count = 0
            side.arcs = p.children + p.first[h] + p.n_left[h] - (1 - right)
            side.words, side.items = words + items, items
            side.parts = p.childseq[2 * h + right]
            side.ends = side.parts + triangle(side.total + 1)
            side.words[0] = h
            for j in range(1, side.total + 1):
                side.words[j] = p.modifiers[arc(side, j)]
            c.items.I[items] = 0.0
            items += side.total + 1
            if h or right:
                set_span(c, side, h, end_score(c, side, 0))
    c.stack = words + items
    for items in range((c.n + 1) * c.width):
        c.items.S[items] = INFINITY


cdef double inside(Chart* c) noexcept nogil:
    cdef int n = c.n, low, d, right, e, j, count
    cdef Side* side
    cdef double* I
    cdef double* J
    cdef double* row
    begin(c)
    for d in range(1, n + 1):
        for low in range(n + 1 - d):
            for right in range(0 if low else 1, 2):
                side, e = c.sides + 2 * (low if right else low + d) + right, low + d * right
                I, J = c.items.I + side.items, c.items.J + side.items
                if side.count < side.total and side.words[side.count + 1] == e:
                    side.count += 1
                    j = side.count
                    count = ways(c, side, j)
                    row = gaps(c, side, e, count)
                    I[j] = c.link[arc(side, j)] + reduce(c, I, row, seq(c, side, j), count)
                    J[j] = I[j] + end_score(c, side, j)
                    if c.full:
                        row[0] = INFINITY        # given back: S[h, e] is not known yet
                row = halves(c, side, e, side.count)
                set_span(c, side, e, reduce(c, J + 1, row, NULL, side.count))
    return c.items.C[span(c, 0, n, 1)]


cdef inline int argmax(Chart* c, const double* x, const double* y, const double* extra,
                       int n) noexcept nogil:
    """Lowest index of the largest sum; it adds in the order in which `reduce` does."""
    cdef double value = reduce(c, x, y, extra, n)
    cdef int i = 0
    while i + 1 < n and x[i] + y[i] + (extra[i] if extra != NULL else 0.0) != value:
        i += 1
    return i


cdef void walk(Chart* c, int* heads) noexcept nogil:
    """Read the best tree off the chart, top down.

    Of equal ways it takes the innermost last child, the innermost sibling, and the split that
    leaves fewest words to the lower of two heads.
    """
    cdef Side* side
    cdef int* top = c.stack                      # triples head, end, right
    cdef int e, m, x, low, high, j, i, r
    heads[0] = -1
    top[0], top[1], top[2] = 0, c.n, 1
    top += 3
    while top > c.stack:
        top -= 3
        side, e = c.sides + 2 * top[0] + top[2], top[1]
        if e == side.head:
            continue
        j = side.total
        while side.step * side.words[j] > side.step * e:
            j -= 1
        j = 1 + argmax(c, c.items.J + side.items + 1, copied_halves(c, side, e, j), NULL, j)
        m = side.words[j]
        top[0], top[1], top[2] = m, e, side.right
        top += 3
        while j:
            heads[m] = side.head
            i = ways(c, side, j)
            i = argmax(c, c.items.I + side.items, copied_gaps(c, side, m, i), seq(c, side, j), i)
            x = side.words[i]
            if i == 0:
                top[0], top[1], top[2] = m, x + side.step, 1 - side.right
                top += 3
            else:
                low, high = min(x, m), max(x, m)
                r = low + argmax(c, c.items.C + span(c, low, low, 1),
                                 c.items.C + span(c, high, low + 1, 0), NULL, high - low)
                top[0], top[1], top[2] = low, r, 1
                top[3], top[4], top[5] = high, r + 1, 0
                top += 6
            m, j = x, i


cdef void share_gap(Chart* c, Items* counts, int low, int high) noexcept nogil:
    cdef Py_ssize_t at = place(c, high, low, 1), mirrored = place(c, low, high, 0)
    cdef Py_ssize_t left = span(c, low, low, 1), right = span(c, high, low + 1, 0)
    cdef double given = counts.S[at] + counts.S[mirrored]
    counts.S[at] = counts.S[mirrored] = 0.0      # from here on gap_0 may stand there
    share_rows(&given, c.items.S + at, 0, c.items.C + left, c.items.C + right, 0, NULL, 0, 1,
               high - low, counts.C + left, counts.C + right, NULL)


cdef void share_span(Chart* c, Items* counts, Side* side, int e) noexcept nogil:
    cdef Py_ssize_t at = place(c, e, side.head, side.right), first = side.items + 1
    cdef Py_ssize_t base = place(c, e, 0, side.right)
    cdef double given = counts.C[span(c, side.head, e, side.right)] + counts.to[at]
    cdef double* to_row = counts.to + at + 1
    cdef int j
    if not given > 0.0:
        return
    if not c.full:
        to_row = counts.row
        memset(to_row, 0, side.count * sizeof(double))
    share_rows(&given, c.items.to + at, 0, c.items.J + first, halves(c, side, e, side.count), 0,
               NULL, 0, 1, side.count, counts.J + first, to_row, NULL)
    if not c.full:
        for j in range(side.count):
            counts.to[base + side.step * side.words[j + 1]] += to_row[j]


cdef void share_arc(Chart* c, Items* counts, Side* side, int e, double given,
                    double* mu_childseq) noexcept nogil:
    cdef int j = side.count, i, count = ways(c, side, j)
    cdef double total = c.items.I[side.items + j] - c.link[arc(side, j)]
    cdef Py_ssize_t base = place(c, e, 0, side.right)
    cdef double* row = gaps(c, side, e, count)
    cdef double* to_row = counts.S + place(c, e, side.head, side.right)
    if mu_childseq != NULL:
        mu_childseq += side.parts + triangle(j)
    if not c.full:
        to_row = counts.row
        memset(to_row, 0, count * sizeof(double))
    share_rows(&given, &total, 0, c.items.I + side.items, row, 0, seq(c, side, j), 0, 1, count,
               counts.I + side.items, to_row, mu_childseq)
    counts.C[start(c, side, e)] += to_row[0]
    if not c.full:
        for i in range(1, count):
            counts.S[base + side.step * side.words[i]] += to_row[i]


cdef void outside(Chart* c, Items* counts, double* mu_link, double* mu_childseq) noexcept nogil:
    """Expected counts of all items, from the goal downwards."""
    cdef int n = c.n, h, e, d, low, right, j
    cdef Side* side
    cdef double given
    counts.C[span(c, 0, n, 1)] = 1.0
    for d in range(n, 0, -1):
        for low in range(n + 1 - d):
            if low:
                share_gap(c, counts, low, low + d)
            for right in range(0 if low else 1, 2):
                side, e = c.sides + 2 * (low if right else low + d) + right, low + d * right
                j = side.count
                share_span(c, counts, side, e)
                if j and side.words[j] == e:
                    given = counts.I[side.items + j] + counts.J[side.items + j]
                    mu_link[arc(side, j)] = given
                    if given > 0.0:
                        share_arc(c, counts, side, e, given, mu_childseq)
                    side.count -= 1
    if mu_childseq == NULL:
        return
    for h in range(n + 1):
        for right in range(0 if h else 1, 2):
            side = c.sides + 2 * h + right
            mu_childseq[side.ends] = (counts.C[span(c, h, h, right)]
                                      + counts.to[place(c, h, h, right)])
            for j in range(1, side.total + 1):
                mu_childseq[side.ends + j] = counts.J[side.items + j]


cdef double* lay_out(Items* items, double* at, Py_ssize_t n, Py_ssize_t arcs) noexcept nogil:
    """Tables from `at` on; returns where they end."""
    cdef Py_ssize_t spans = (n + 1) * (n + 2), each = arcs + 2 * (n + 1)
    items.C, items.to, items.S = at, at + spans, at + 2 * spans
    items.I = at + 3 * spans
    items.J = items.I + each
    items.row = items.J + each
    return items.row + n + 1


cdef int prepare(Chart* c, Layout layout, const double[::1] link, const double[::1] childseq,
                 bint single_root, Items* counts) except -1:
    """Room for everything, to be given back by the caller, with zero counts unless NULL."""
    cdef Places* p = &layout.places
    cdef size_t n = p.n
    cdef size_t size = (3 * (n + 1) * (n + 2) + 2 * (p.arcs + 2 * (n + 1)) + n + 1) * sizeof(double)
    cdef double* at
    c.link = checked("candidate arcs", link, p.arcs, True)
    c.childseq = checked("parts childseq", childseq, p.childseq[2 * n + 2], True)
    c.room = borrow((1 if counts == NULL else 2) * size + 2 * (n + 1) * sizeof(Side)
                    + (p.arcs + 8 * (n + 1)) * sizeof(int), &c.size)
    c.p, c.n, c.width = p, p.n, p.n + 2
    c.semiring, c.single_root = MAX if counts == NULL else LOG, single_root
    c.full = p.arcs == p.n * p.n
    at = lay_out(&c.items, <double*>c.room, n, p.arcs)
    if counts != NULL:
        memset(at, 0, size)
        at = lay_out(counts, at, n, p.arcs)
    c.sides = <Side*>at
    return 0


def best_tree(Layout layout, const double[::1] link, const double[::1] childseq, bint single_root,
              int[::1] heads):
    """Score of the best tree, whose heads (n+1,) are written, or -inf if there is none.

    Scores in the order of the layout; childseq None: all zero.  Releases the GIL.
    """
    cdef Chart c
    cdef double value
    prepare(&c, layout, link, childseq, single_root, NULL)
    with nogil:
        value = inside(&c)
        if value > -INFINITY:
            walk(&c, &heads[0])
    give_back(c.room, c.size)
    return value


def expectations(Layout layout, const double[::1] link, const double[::1] childseq,
                 bint single_root, double[::1] mu_link, double[::1] mu_childseq):
    """log Z, or -inf if there is no tree; marginals into arrays of zeros.

    mu_childseq is as long as childseq, None where that is None.
    """
    cdef Chart c
    cdef Items counts
    cdef double value
    cdef double* parts = NULL
    if (childseq is None) != (mu_childseq is None):
        raise ValueError("childseq and mu_childseq go together")
    prepare(&c, layout, link, childseq, single_root, &counts)
    if mu_childseq is not None:
        parts = &mu_childseq[0]
    with nogil:
        value = inside(&c)
        if value > -INFINITY:
            outside(&c, &counts, &mu_link[0], parts)
    give_back(c.room, c.size)
    return value
