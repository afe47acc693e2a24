"""Grand-siblings in O(n^5), as in Smith & Eisner (2008), section 8.4: best tree and marginals.

The recurrences of cython_ext/grandsib.pyx, but for T: the two halves that meet between adjacent
children are summed anew for every grandparent,

    I[g, h, m] = (+)_{k, r}  I[g, h, k] (x) C[h, k, r] (x) C[h, m, r'] (x) part(g, h, k, m)

and outside, what a grandparent counts of two adjacent children goes to the halves at once, not
first to a sum over grandparents.

Not part of the package: it is here to be timed, with the same inner loops as the O(n^4) form.
"""
from libc.math cimport INFINITY
from libc.stdint cimport int64_t
from libc.string cimport memset

from cython_ext.blocks cimport give_back
from cython_ext.grandsib cimport (
    Chart, Counts, Items, Side, advance, attach, begin, between, check, child, complete, gaps,
    grandsib_row, prepare, ranges, rank, retreat, share_begin, share_complete, share_rows, span_row,
    walk,
)
from cython_ext.layout cimport Layout, Places, triangle
from cython_ext.semiring cimport LOG, MAX


cdef void build(Chart* chart, Side* side, int e) noexcept nogil:
    cdef Py_ssize_t r, a
    cdef int bounds[4]
    if advance(chart, side, e):
        for r in range(ranges(side, bounds)):
            for a in range(bounds[2 * r], bounds[2 * r + 1]):
                gaps(chart, side, side.count)
                attach(chart, side, side.count, a, a + 1)
    if side.count:
        complete(chart, side, e)


cdef double inside(Chart* chart) noexcept nogil:
    cdef int i, j
    begin(chart)
    for j in range(1, chart.p.n + 1):
        for i in range(j - 1, -1, -1):
            if i:
                build(chart, &chart.sides[2 * j], i)
            build(chart, &chart.sides[2 * i + 1], j)
    return chart.items.C[chart.p.arcs * chart.width + chart.p.n + 1]


cdef void share_link(Chart* chart, Items* expected, Counts* counts, Side* side, Py_ssize_t j,
                     Py_ssize_t a) noexcept nogil:
    """The reverse of ``gaps`` and ``attach`` for one arc into the head."""
    cdef Places* p = chart.p
    cdef Py_ssize_t h = side.head, b = child(side, j), m = p.modifiers[b], w = chart.width, i, n
    cdef Py_ssize_t at = 0, c
    cdef int64_t end = triangle(side.total + 1) + j, part = side.parts + triangle(j)
    cdef double* T = chart.items.T + part
    cdef double* to_T = chart.to_column
    cdef double* gap = chart.column              # T without the scores of the child
    cdef double* I = span_row(side, chart.items.I, <int>a)
    cdef double* to_I = span_row(side, expected.I, <int>a)
    cdef double* C = chart.items.C
    cdef double* to_C = expected.C
    cdef double* to_grandsib = NULL
    cdef double last = span_row(side, expected.J, <int>a)[j]
    to_I[j] += last
    counts.link[b] += to_I[j]
    counts.childseq[side.parts + end] += last
    if h:
        counts.grandsib[p.grandsib[a] + side.block + end] = last
        to_grandsib = counts.grandsib + p.grandsib[a] + side.block + triangle(j)
        if counts.grand != NULL:
            counts.grand[p.grand[a] + rank(side, j)] = to_I[j]
            I[j] -= chart.scores.grand[p.grand[a] + rank(side, j)]
    memset(to_T, 0, j * sizeof(double))
    share_rows(to_I + j, I + j, 0, T, I, 0, grandsib_row(chart, side, a, j), 0, 1, j, to_T, to_I,
               to_grandsib)
    to_C[b * w + h + side.right] += to_T[0]
    for i in range(j):
        counts.childseq[part + i] += to_T[i]
        gap[i] = T[i] - chart.scores.link[b] - chart.scores.childseq[part + i]
        if i:
            c = child(side, i)
            n = between(p.modifiers[c], m, &at)
            share_rows(to_T + i, gap + i, 0, C + b * w + at, C + c * w + at, 0, NULL, 0, 1, n,
                       to_C + b * w + at, to_C + c * w + at, NULL)


cdef void share(Chart* chart, Items* expected, Counts* counts, Side* side, int e) noexcept nogil:
    """The reverse of ``build``."""
    cdef Py_ssize_t r, a
    cdef int bounds[4]
    if side.count:
        share_complete(chart, expected, side, e)
        if chart.p.modifiers[child(side, side.count)] == e:
            for r in range(ranges(side, bounds)):
                for a in range(bounds[2 * r], bounds[2 * r + 1]):
                    share_link(chart, expected, counts, side, side.count, a)
    retreat(chart, side, e)


cdef void outside(Chart* chart, Items* expected, Counts* counts) noexcept nogil:
    cdef int i, j
    expected.C[chart.p.arcs * chart.width + chart.p.n + 1] = 1.0
    for j in range(chart.p.n, 0, -1):
        for i in range(j):
            share(chart, expected, counts, &chart.sides[2 * i + 1], j)
            if i:
                share(chart, expected, counts, &chart.sides[2 * j], i)
    share_begin(chart, expected, counts)


def best_tree(Layout layout, const double[::1] scores, const double[::1] childseq,
              const double[::1] grand, const double[::1] grandsib, bint single_root,
              int[::1] heads):
    """As in cython_ext.grandsib."""
    cdef Chart chart
    cdef double value
    check(&chart.scores, &layout.places, scores, childseq, grand, grandsib)
    prepare(&chart, &layout.places, single_root, MAX, NULL)
    chart.siblings = True
    with nogil:
        value = inside(&chart)
        if value > -INFINITY:
            walk(&chart, &heads[0], chart.stack)
    give_back(chart.room, chart.size)
    return value


def expectations(Layout layout, const double[::1] scores, const double[::1] childseq,
                 const double[::1] grand, const double[::1] grandsib, bint single_root,
                 double[::1] arc_marginals, double[::1] childseq_marginals,
                 double[::1] grand_marginals, double[::1] grandsib_marginals):
    """As in cython_ext.grandsib, with all families there."""
    cdef Chart chart
    cdef Items expected
    cdef Counts counts
    cdef double log_z
    check(&chart.scores, &layout.places, scores, childseq, grand, grandsib)
    prepare(&chart, &layout.places, single_root, LOG, &expected)
    counts.link, counts.childseq = &arc_marginals[0], &childseq_marginals[0]
    counts.grandsib = &grandsib_marginals[0]
    counts.grand = &grand_marginals[0] if grand.shape[0] else NULL
    with nogil:
        log_z = inside(&chart)
        if log_z > -INFINITY:
            outside(&chart, &expected, &counts)
    give_back(chart.room, chart.size)
    return log_z
