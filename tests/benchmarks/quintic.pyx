"""Grand-siblings in O(n^5), as in Smith & Eisner (2008), section 8.4: best tree and log Z.

The recurrences of cython_ext/grandsib.pyx, but for T: the two halves that meet between adjacent
children are summed anew for every grandparent,

    I[g, h, m] = (+)_{k, r}  I[g, h, k] (x) C[h, k, r] (x) C[h, m, r'] (x) part(g, h, k, m)

Not part of the package: it is here to be timed, with the same inner loops as the O(n^4) form.
"""
from libc.math cimport INFINITY
from libc.stdlib cimport free

from cython_ext.grandsib cimport (
    Chart, Side, advance, attach, begin, complete, gaps, prepare, ranges, walk,
)
from cython_ext.layout cimport Layout
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


def best_tree(Layout layout, const double[::1] scores, const double[::1] childseq,
              const double[::1] grand, const double[::1] grandsib, bint single_root,
              int[::1] heads):
    """As in cython_ext.grandsib."""
    cdef Chart chart
    cdef double value
    cdef void* memory = prepare(&chart, layout, scores, childseq, grand, grandsib, single_root, MAX,
                                NULL)
    chart.siblings = True
    with nogil:
        value = inside(&chart)
        if value > -INFINITY:
            walk(&chart, &heads[0], chart.stack)
        free(memory)
    return value


def log_partition(Layout layout, const double[::1] scores, const double[::1] childseq,
                  const double[::1] grand, const double[::1] grandsib, bint single_root):
    """log Z, or -inf when there is no tree."""
    cdef Chart chart
    cdef double log_z
    cdef void* memory = prepare(&chart, layout, scores, childseq, grand, grandsib, single_root, LOG,
                                NULL)
    chart.siblings = True
    with nogil:
        log_z = inside(&chart)
        free(memory)
    return log_z
