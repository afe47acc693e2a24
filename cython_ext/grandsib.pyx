"""Projective trees with grandparent and grand-sibling parts: best tree, log Z, marginals, O(n^4).

Koo & Collins (2010), models 0 and 1, over candidate arcs.  Every span of a head h carries the arc
a = (g -> h) into h, and g stands outside the span; the root's spans carry a virtual arc, number
`arcs`.  The children of h on one side are x_1, x_2, ... outwards, and c_j is the arc h -> x_j.

    C[a, e]  complete: h has all its children on the side of e, and everything up to e descends
             from it;  C[a, h] = end[h, START] on either side
    I[a, j]  incomplete: x_j was just added as a child, and lacks its outer half;  I[a, 0] = one
    T[j, i]  x_i and x_j are adjacent children of h, with all between them

With a sibling part (model 1):

    T[j, 0] = s[c_j] + sb[0, j] + C[c_j, word next to h]
    T[j, i] = s[c_j] + sb[i, j] + (+)_r C[c_i, r] (x) C[c_j, r']     r, r' adjacent, between them
    I[a, j] = gp[a, j] + (+)_{i<j} I[a, i] (x) T[j, i] (x) gs[a, i, j]
    J[a, j] = I[a, j] + sb[j, END] + gs[a, j, END]
    C[a, e] = (+)_j J[a, j] (x) C[c_j, e]                            x_j no further out than e

and without (model 0), C[a, h] being one and C[a, e] a head that may still take children:

    I[a, j] = gp[a, j] + s[c_j] + (+)_r C[a, r] (x) C[c_j, r']       J = I

Below the virtual arc there is no gp and no gs.  The goal is C[virtual, n].  Single root: for the
virtual arc i is 0 only, or r the root itself only.

Spans [i, j] go by j ascending, then i descending.  A row of C holds C[a, e] at e to the left and at
e + 1 to the right, so the two halves that meet between two words are at one index, and all sums
run along rows: over r in C, over i in I and T, over j in J and a column gathered from C once for
all arcs into h.

The outside pass hands expected counts down instead of outside scores: of the count of an item
each way to build it gets the share exp(way - item).  It needs one exp for each way, no logarithm,
and nothing at all for items of count zero.
"""
from libc.math cimport INFINITY
from libc.stdint cimport int64_t
from libc.string cimport memset

from cython_ext.blocks cimport borrow, give_back
from cython_ext.layout cimport Layout, Places, checked, side_count, triangle
from cython_ext.semiring cimport LOG, MAX


cdef size_t item_sizes(Places* p, size_t* sizes) noexcept nogil:
    """Doubles in C, I (and J), T; returns their sum."""
    sizes[0] = (p.arcs + 1) * <size_t>(p.n + 2)
    sizes[1] = p.grand[p.arcs] + 2 * p.arcs + p.first[1] + 2
    sizes[2] = p.childseq[2 * p.n + 2]
    return sizes[0] + 2 * sizes[1] + sizes[2]


cdef double* lay_out(Items* items, Places* p, double* memory) noexcept nogil:
    cdef size_t sizes[3]
    cdef size_t total = item_sizes(p, sizes)
    items.C = memory
    items.I = items.C + sizes[0]
    items.J = items.I + sizes[1]
    items.T = items.J + sizes[1]
    return memory + total


cdef int check(Scores* s, Places* p, const double[::1] scores, const double[::1] childseq,
               const double[::1] grand, const double[::1] grandsib) except -1:
    s.link = checked("candidate arcs", scores, p.arcs, True)
    s.childseq = checked("parts childseq", childseq, p.childseq[2 * p.n + 2], True)
    s.grand = checked("parts grand", grand, p.grand[p.arcs], True)
    s.grandsib = checked("parts grandsib", grandsib, p.grandsib[p.arcs], True)
    return 0


cdef int prepare(Chart* chart, Places* p, bint single_root, int semiring,
                 Items* expected) except -1:
    """Room for everything, to be given back by the caller; chart.scores are those checked."""
    cdef size_t sizes[3]
    cdef size_t size = item_sizes(p, sizes), tables = 1 if expected == NULL else 2
    cdef double* memory
    size = ((tables * size + 2 * p.n) * sizeof(double) + 2 * (p.n + 1) * sizeof(Side)
            + 2 * (p.n + 2) * sizeof(int))
    memory = <double*>borrow(size, &chart.size)
    memset(memory, 0, size)
    chart.room = memory
    chart.p = p
    chart.single_root, chart.semiring = single_root, semiring
    chart.siblings = chart.scores.childseq != NULL or chart.scores.grandsib != NULL
    chart.width = p.n + 2
    chart.column = lay_out(&chart.items, p, memory)
    if expected != NULL:
        chart.column = lay_out(expected, p, chart.column)
    chart.to_column = chart.column + p.n
    chart.sides = <Side*>(chart.to_column + p.n)
    chart.stack = <int*>(chart.sides + 2 * (p.n + 1))
    return 0


cdef void begin(Chart* chart) noexcept nogil:
    """The sides, and all items of no width."""
    cdef Places* p = chart.p
    cdef Scores* s = &chart.scores
    cdef Side* side
    cdef double* C = chart.items.C
    cdef Py_ssize_t h, right, a, i
    cdef int64_t rows = 0, end
    for i in range((p.arcs + 1) * chart.width):
        C[i] = -INFINITY
    for h in range(p.n + 1):
        for right in range(2):
            side = &chart.sides[2 * h + right]
            side.head, side.right = <int>h, <int>right
            side.lo = p.offsets[h - 1] if h else p.arcs
            side.hi = p.offsets[h] if h else p.arcs + 1
            side.mid = side.lo
            while side.mid < side.hi and (h == 0 or p.heads[side.mid] < h):
                side.mid += 1
            side.gate = side.mid
            side.count = 0
            side.total = side_count(p, <int>h, <int>right)
            side.arcs = p.children + p.first[h] + p.n_left[h] - (0 if right else 1)
            side.step = 1 if right else -1
            side.parts = p.childseq[2 * h + right]
            side.block = side.parts - p.childseq[2 * h]
            side.stride = p.first[h + 1] - p.first[h] + 2
            side.rows = rows + (p.n_left[h] + 1 if right else 0)
            end = triangle(side.total + 1)
            for a in range(side.lo, side.hi):
                span_row(side, chart.items.I, <int>a)[0] = 0.0
                C[a * chart.width + h + right] = 0.0
                if s.childseq != NULL and (h or right):
                    C[a * chart.width + h + right] += s.childseq[side.parts + end]
                if s.grandsib != NULL and h:
                    C[a * chart.width + h + right] += s.grandsib[p.grandsib[a] + side.block + end]
        rows += side.stride * (side.hi - side.lo)


cdef int ranges(Side* side, int* bounds) noexcept nogil:
    """The arcs into the head with g outside the span, as one or two ranges."""
    if side.right:
        bounds[0], bounds[1], bounds[2], bounds[3] = side.lo, side.mid, side.gate, side.hi
    else:
        bounds[0], bounds[1], bounds[2], bounds[3] = side.lo, side.gate, side.mid, side.hi
    if bounds[1] == bounds[2]:
        bounds[1] = bounds[3]
        return 1
    return 2


cdef inline void reduce_rows(
    Chart* chart, const double* x, const double* rows, Py_ssize_t stride, const double* extra,
    Py_ssize_t extra_stride, Py_ssize_t count, Py_ssize_t n, double* out, Py_ssize_t step,
) noexcept nogil:
    if chart.semiring == MAX:
        max_rows(x, rows, stride, extra, extra_stride, count, n, out, step)
    else:
        log_rows(x, rows, stride, extra, extra_stride, count, n, out, step)


cdef void gaps(Chart* chart, Side* side, Py_ssize_t j) noexcept nogil:
    """T[j, .]"""
    cdef Py_ssize_t h = side.head, b = child(side, j), i, c, n, at = 0, w = chart.width
    cdef const double* childseq = chart.scores.childseq
    cdef double* C = chart.items.C
    cdef double* T = chart.items.T + side.parts + triangle(j)
    T[0] = C[b * w + h + side.right]
    for i in range(1, j):
        if h == 0 and chart.single_root:
            T[i] = -INFINITY
            continue
        c = child(side, i)
        n = between(chart.p.modifiers[c], chart.p.modifiers[b], &at)
        reduce_rows(chart, C + b * w + at, C + c * w + at, 0, NULL, 0, 1, n, T + i, 0)
    for i in range(j):
        T[i] += chart.scores.link[b]
        if childseq != NULL:
            T[i] += childseq[side.parts + triangle(j) + i]


cdef void attach(Chart* chart, Side* side, Py_ssize_t j, Py_ssize_t lo,
                 Py_ssize_t hi) noexcept nogil:
    """I[a, j] and J[a, j] for the arcs lo <= a < hi, lo < hi."""
    cdef Places* p = chart.p
    cdef Scores* s = &chart.scores
    cdef Py_ssize_t h = side.head, b = child(side, j), n, at = 0, a, w = chart.width
    cdef double* C = chart.items.C
    cdef double* I = span_row(side, chart.items.I, <int>lo)
    cdef double* J = span_row(side, chart.items.J, <int>lo)
    cdef int64_t end = triangle(side.total + 1) + j
    if chart.siblings:
        reduce_rows(chart, chart.items.T + side.parts + triangle(j), I, side.stride,
                    grandsib_row(chart, side, lo, j), grandsib_stride(chart, side),
                    hi - lo, j, I + j, side.stride)
    else:
        n = between(h, p.modifiers[b], &at)
        if h == 0 and chart.single_root:
            n = 1
        reduce_rows(chart, C + b * w + at, C + lo * w + at, w, NULL, 0, hi - lo, n, I + j,
                    side.stride)
    for a in range(lo, hi):
        if not chart.siblings:
            I[j] += s.link[b]
        if s.grand != NULL and h:
            I[j] += s.grand[p.grand[a] + rank(side, j)]
        J[j] = I[j]
        if s.childseq != NULL:
            J[j] += s.childseq[side.parts + end]
        if s.grandsib != NULL and h:
            J[j] += s.grandsib[p.grandsib[a] + side.block + end]
        I += side.stride
        J += side.stride


cdef void link(Chart* chart, Side* side) noexcept nogil:
    """All items for the child that was just counted."""
    cdef Py_ssize_t r
    cdef int bounds[4]
    if chart.siblings:
        gaps(chart, side, side.count)
    for r in range(ranges(side, bounds)):
        if bounds[2 * r] < bounds[2 * r + 1]:
            attach(chart, side, side.count, bounds[2 * r], bounds[2 * r + 1])


cdef inline void gather(Chart* chart, Side* side, Py_ssize_t at) noexcept nogil:
    """The column: C[c_j, e] over j."""
    cdef Py_ssize_t j
    for j in range(side.count):
        chart.column[j] = chart.items.C[side.arcs[side.step * j] * chart.width + at]


cdef void complete(Chart* chart, Side* side, Py_ssize_t e) noexcept nogil:
    """C[a, e] for all arcs a into the head."""
    cdef Py_ssize_t at = e + side.right, r
    cdef int bounds[4]
    gather(chart, side, at)
    for r in range(ranges(side, bounds)):
        if bounds[2 * r] < bounds[2 * r + 1]:
            reduce_rows(chart, chart.column,
                        span_row(side, chart.items.J, bounds[2 * r]) + 1, side.stride, NULL, 0,
                        bounds[2 * r + 1] - bounds[2 * r], side.count,
                        chart.items.C + bounds[2 * r] * chart.width + at, chart.width)


cdef bint advance(Chart* chart, Side* side, int e) noexcept nogil:
    """Move the end of the spans one word out, to e; whether it is a child, now counted."""
    cdef Places* p = chart.p
    if side.right:
        while side.gate < side.hi and p.heads[side.gate] <= e:
            side.gate += 1
    else:
        while side.gate > side.lo and p.heads[side.gate - 1] >= e:
            side.gate -= 1
    if side.count == side.total or p.modifiers[child(side, side.count + 1)] != e:
        return False
    side.count += 1
    return True


cdef inline void build(Chart* chart, Side* side, int e) noexcept nogil:
    """The items from the head to e."""
    if advance(chart, side, e):
        link(chart, side)
    if side.count:
        complete(chart, side, e)


cdef double inside(Chart* chart) noexcept nogil:
    """Fill all items; return the goal."""
    cdef int i, j
    begin(chart)
    for j in range(1, chart.p.n + 1):
        for i in range(j - 1, -1, -1):
            if i:
                build(chart, &chart.sides[2 * j], i)
            build(chart, &chart.sides[2 * i + 1], j)
    return chart.items.C[chart.p.arcs * chart.width + chart.p.n + 1]


cdef void share_complete(Chart* chart, Items* expected, Side* side, Py_ssize_t e) noexcept nogil:
    """The reverse of ``complete``."""
    cdef Py_ssize_t at = e + side.right, r, w = chart.width, j
    cdef int a
    cdef int bounds[4]
    gather(chart, side, at)
    memset(chart.to_column, 0, side.count * sizeof(double))
    for r in range(ranges(side, bounds)):
        a = bounds[2 * r]
        share_rows(expected.C + a * w + at, chart.items.C + a * w + at, w,
                   chart.column, span_row(side, chart.items.J, a) + 1, side.stride, NULL, 0,
                   bounds[2 * r + 1] - a, side.count,
                   chart.to_column, span_row(side, expected.J, a) + 1, NULL)
    for j in range(side.count):
        expected.C[side.arcs[side.step * j] * w + at] += chart.to_column[j]


cdef void share_link(Chart* chart, Items* expected, Counts* counts, Side* side,
                     Py_ssize_t j) noexcept nogil:
    """The reverse of ``link``."""
    cdef Places* p = chart.p
    cdef Scores* s = &chart.scores
    cdef Py_ssize_t h = side.head, b = child(side, j), m = p.modifiers[b], i, n, at = 0, r, a, c
    cdef Py_ssize_t w = chart.width
    cdef int64_t end = triangle(side.total + 1) + j, part = side.parts + triangle(j)
    cdef double* T = chart.items.T + part
    cdef double* to_T = expected.T + part
    cdef double* I
    cdef double* to_I
    cdef double* C = chart.items.C
    cdef double* to_C = expected.C
    cdef double* to_grandsib
    cdef double last
    cdef bint only_child = h == 0 and chart.single_root
    cdef int bounds[4]
    n = between(h, m, &at)
    if only_child:
        n = 1
    for r in range(ranges(side, bounds)):
        for a in range(bounds[2 * r], bounds[2 * r + 1]):
            I = span_row(side, chart.items.I, <int>a) + j
            to_I = span_row(side, expected.I, <int>a) + j
            last = span_row(side, expected.J, <int>a)[j]
            to_I[0] += last
            counts.link[b] += to_I[0]
            if s.childseq != NULL:
                counts.childseq[side.parts + end] += last
            if s.grandsib != NULL and h:
                counts.grandsib[p.grandsib[a] + side.block + end] = last
            if s.grand != NULL and h:
                counts.grand[p.grand[a] + rank(side, j)] = to_I[0]
                I[0] -= s.grand[p.grand[a] + rank(side, j)]
            if not chart.siblings:
                I[0] -= s.link[b]
        a = bounds[2 * r]
        c = bounds[2 * r + 1] - a
        I = span_row(side, chart.items.I, <int>a)
        to_I = span_row(side, expected.I, <int>a)
        if not chart.siblings:
            share_rows(to_I + j, I + j, side.stride, C + b * w + at, C + a * w + at, w, NULL, 0,
                       c, n, to_C + b * w + at, to_C + a * w + at, NULL)
            continue
        to_grandsib = NULL
        if s.grandsib != NULL and h:
            to_grandsib = counts.grandsib + p.grandsib[a] + side.block + triangle(j)
        share_rows(to_I + j, I + j, side.stride, T, I, side.stride,
                   grandsib_row(chart, side, a, j), grandsib_stride(chart, side), c, j,
                   to_T, to_I, to_grandsib)
    if not chart.siblings:
        return
    to_C[b * w + h + side.right] += to_T[0]
    for i in range(j):
        T[i] -= s.link[b]
        if s.childseq != NULL:
            counts.childseq[part + i] = to_T[i]
            T[i] -= s.childseq[part + i]
        if i:
            c = child(side, i)
            n = between(p.modifiers[c], m, &at)
            share_rows(to_T + i, T + i, 0, C + b * w + at, C + c * w + at, 0, NULL, 0, 1, n,
                       to_C + b * w + at, to_C + c * w + at, NULL)


cdef inline void share(Chart* chart, Items* expected, Counts* counts, Side* side,
                       int e) noexcept nogil:
    """The reverse of ``build``."""
    if side.count:
        share_complete(chart, expected, side, e)
        if chart.p.modifiers[child(side, side.count)] == e:
            share_link(chart, expected, counts, side, side.count)
    retreat(chart, side, e)


cdef void retreat(Chart* chart, Side* side, int e) noexcept nogil:
    """The reverse of ``advance``."""
    cdef Places* p = chart.p
    if side.count and p.modifiers[child(side, side.count)] == e:
        side.count -= 1
    if side.right:
        while side.gate > side.mid and p.heads[side.gate - 1] >= e:
            side.gate -= 1
    else:
        while side.gate < side.mid and p.heads[side.gate] <= e:
            side.gate += 1


cdef void outside(Chart* chart, Items* expected, Counts* counts) noexcept nogil:
    """Expected counts of all arcs and parts; they are zero on entry.  The reverse of ``inside``."""
    cdef Places* p = chart.p
    cdef int i, j
    expected.C[p.arcs * chart.width + p.n + 1] = 1.0
    for j in range(p.n, 0, -1):
        for i in range(j):
            share(chart, expected, counts, &chart.sides[2 * i + 1], j)
            if i:
                share(chart, expected, counts, &chart.sides[2 * j], i)
    share_begin(chart, expected, counts)


cdef void share_begin(Chart* chart, Items* expected, Counts* counts) noexcept nogil:
    """The reverse of ``begin``."""
    cdef Places* p = chart.p
    cdef Side* side
    cdef int i, a
    cdef double empty
    cdef int64_t end
    for i in range(2, 2 * p.n + 2):
        side = &chart.sides[i]
        end = triangle(side.total + 1)
        for a in range(side.lo, side.hi):
            empty = expected.C[a * chart.width + side.head + side.right]
            if counts.childseq != NULL:
                counts.childseq[side.parts + end] += empty
            if counts.grandsib != NULL:
                counts.grandsib[p.grandsib[a] + side.block + end] = empty


cdef inline Py_ssize_t last_best(const double* x, const double* row, const double* extra,
                                 Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, best = 0
    cdef double value, top = -INFINITY
    for i in range(n):
        value = x[i] + row[i]
        if extra != NULL:
            value += extra[i]
        if value >= top:
            top, best = value, i
    return best


cdef void walk(
    Chart* chart,
    int* heads,                  # OUT      (n+1,)
    int* stack,                  # SCRATCH  (2 n + 4,) spans: arc, end
) noexcept nogil:
    """Read the best tree off the chart, top down.

    The best way to build each item of the tree is found again.  Of equal ways it is the last: the
    outermost child, the outermost sibling, most words to the lower of two heads.
    """
    cdef Places* p = chart.p
    cdef Side* side
    cdef Py_ssize_t a, b, c, e, h, i, j, m, n, x, near, far, at = 0, w = chart.width, depth = 1
    cdef double* C = chart.items.C
    heads[0] = -1
    stack[0], stack[1] = p.arcs, p.n
    while depth:
        depth -= 1
        a, e = stack[2 * depth], stack[2 * depth + 1]
        h = 0 if a == p.arcs else p.modifiers[a]
        side = &chart.sides[2 * h + (e > h)]
        side.count = 0
        while side.count < side.total:
            m = p.modifiers[child(side, side.count + 1)]
            if m > e if side.right else m < e:
                break
            side.count += 1
        gather(chart, side, e + side.right)
        j = 1 + last_best(chart.column, span_row(side, chart.items.J, <int>a) + 1, NULL,
                          side.count)
        b = child(side, j)
        if p.modifiers[b] != e:
            stack[2 * depth], stack[2 * depth + 1] = <int>b, <int>e
            depth += 1
        while j:
            b = child(side, j)
            m = p.modifiers[b]
            heads[m] = <int>h
            i = 0
            if chart.siblings:
                i = last_best(chart.items.T + side.parts + triangle(j),
                              span_row(side, chart.items.I, <int>a),
                              grandsib_row(chart, side, a, j), j)
            c = child(side, i) if i else a
            x = p.modifiers[c] if i else h
            if i == 0 and (chart.siblings or (h == 0 and chart.single_root)):
                at = h + side.right
            else:
                n = between(x, m, &at)
                at += last_best(C + b * w + at, C + c * w + at, NULL, n)
            near, far = at - side.right, at - 1 + side.right
            if near != x:
                stack[2 * depth], stack[2 * depth + 1] = <int>c, <int>near
                depth += 1
            if far != m:
                stack[2 * depth], stack[2 * depth + 1] = <int>b, <int>far
                depth += 1
            j = i


def best_tree(
    Layout layout,
    const double[::1] scores,            # IN   (arcs,)
    const double[::1] childseq,          # IN   (parts,) or None, as the next two
    const double[::1] grand,
    const double[::1] grandsib,
    bint single_root,
    int[::1] heads,                      # OUT  (n+1,)
):
    """Score of the best tree, or -inf, and ``heads`` undefined, when there is none.

    ValueError for NaN, inf, or another number of scores.  Releases the GIL.  O(n^4) time over all
    arcs, O(n^2 K^2) with K heads and K children a word.  O(arcs n) memory.
    """
    cdef Chart chart
    cdef double value
    check(&chart.scores, &layout.places, scores, childseq, grand, grandsib)
    prepare(&chart, &layout.places, single_root, MAX, NULL)
    with nogil:
        value = inside(&chart)
        if value > -INFINITY:
            walk(&chart, &heads[0], chart.stack)
    give_back(chart.room, chart.size)
    return value


def expectations(
    Layout layout,
    const double[::1] scores,            # IN   as for best_tree
    const double[::1] childseq,
    const double[::1] grand,
    const double[::1] grandsib,
    bint single_root,
    double[::1] arc_marginals,           # OUT  (arcs,) zeros on entry, as the next three
    double[::1] childseq_marginals,      # OUT  (parts,) or None with the scores
    double[::1] grand_marginals,
    double[::1] grandsib_marginals,
):
    """log Z and marginals, or -inf, and zeros, when there is no tree.

    Releases the GIL.  Time and memory as for best_tree, the memory twice.
    """
    cdef Chart chart
    cdef Items expected
    cdef Counts counts
    cdef double log_z
    counts.link = &arc_marginals[0]
    counts.childseq = NULL if childseq is None else &childseq_marginals[0]
    counts.grand = NULL if grand is None or grand.shape[0] == 0 else &grand_marginals[0]
    counts.grandsib = NULL if grandsib is None else &grandsib_marginals[0]
    check(&chart.scores, &layout.places, scores, childseq, grand, grandsib)
    prepare(&chart, &layout.places, single_root, LOG, &expected)
    with nogil:
        log_z = inside(&chart)
        if log_z > -INFINITY:
            outside(&chart, &expected, &counts)
    give_back(chart.room, chart.size)
    return log_z
