# Where the parts of a sentence stand in their arrays; cimported by every kernel that reads them.
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t

cdef extern from "simd.h" nogil:
    bint all_finite(const double* x, Py_ssize_t n, bint hard)


cdef enum:
    SIB_ = 0
    CHILDSEQ_ = 1
    GRAND_ = 2
    GRANDSIB_ = 3
    NOCROSS_ = 4
    N_FAMILIES = 5


cdef inline int64_t triangle(int64_t row) noexcept nogil:
    """Entries before this row of a triangle: row 1 has one entry, row 2 two, ..."""
    return row * (row - 1) >> 1


cdef struct Places:
    int n
    int arcs
    const int32_t *heads         # (arcs,) as in ScoredGraph
    const int32_t *modifiers
    const int32_t *offsets       # (n+1,)
    int32_t *children            # (arcs,) arcs by head, then by modifier, ascending
    int32_t *first               # (n+2,) children of h: children[first[h]:first[h+1]]
    int32_t *n_left              # (n+1,) how many of them are left of h
    int32_t *rank                # (arcs,) place of an arc among the children of its head
    int64_t *sib                 # (n+2,) where the parts of head h start
    int64_t *childseq            # (2n+3,) of head h on the left: [2h], on the right: [2h+1]
    int64_t *grand               # (arcs+1,) of arc g -> h
    int64_t *grandsib            # (arcs+1,) of arc g -> h


cdef inline int find_arc(Places *p, int h, int m) noexcept nogil:
    """The arc h -> m, or -1 if it is not a candidate.  O(log K)."""
    cdef int low = p.offsets[m - 1], high = p.offsets[m], middle
    while low < high:
        middle = (low + high) >> 1
        if p.heads[middle] < h:
            low = middle + 1
        else:
            high = middle
    return low if low < p.offsets[m] and p.heads[low] == h else -1


cdef inline int outward(Places *p, int arc) noexcept nogil:
    """Place of a child on its side of the head, counted from the head: 1, 2, ..."""
    cdef int h = p.heads[arc]
    if h < p.modifiers[arc]:
        return p.rank[arc] - p.n_left[h] + 1
    return p.n_left[h] - p.rank[arc]


cdef inline bint cross(int g, int i, int h, int m) noexcept nogil:
    """Whether the arcs g -> i and h -> m cross."""
    cdef int low = min(g, i), high = max(g, i)
    cdef bint h_in = low < h < high, m_in = low < m < high
    if h == low or h == high or m == low or m == high:
        return False
    return h_in != m_in


cdef inline int side_count(Places *p, int h, int side) noexcept nogil:
    """Candidate children of h on a side: 0 left, 1 right."""
    return p.first[h + 1] - p.first[h] - p.n_left[h] if side else p.n_left[h]


cdef inline int sided_arc(Places *p, int h, int side, int j) noexcept nogil:
    """The arc to the j-th candidate child on a side, counted outwards from 1."""
    return p.children[p.first[h] + p.n_left[h] + (j - 1 if side else -j)]


cdef inline int sided_child(Places *p, int h, int side, int j) noexcept nogil:
    """The j-th candidate child on a side, counted outwards from 1."""
    return p.modifiers[sided_arc(p, h, side, j)]


cdef inline const double* checked(
    what, const double[::1] scores, int64_t count, bint hard=False
) except? NULL:
    """The scores; NULL for None.  ValueError unless there is one for each, finite, hard: or -inf."""
    if scores is None:
        return NULL
    if scores.shape[0] != count:
        raise ValueError(f"{count} {what} have {scores.shape[0]} scores")
    if count == 0:
        return NULL
    if not all_finite(&scores[0], count, hard):
        raise ValueError(f"{what} have scores that are not finite")
    return &scores[0]


cdef class Layout:
    cdef Places places
    cdef const int32_t[::1] heads, modifiers, offsets
