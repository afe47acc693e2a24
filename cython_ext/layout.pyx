"""Where the parts of a sentence stand in their arrays.

The candidate arcs of a sentence determine all its parts, and this order of them:

    SIB       by head; the children y_0 < y_1 < ... of a head as a triangle: (y_i, y_j), i < j, at
              j (j-1) / 2 + i
    CHILDSEQ  by head, left side before right; the children x_1, x_2, ... of one side, counted
              outwards, as a triangle: row j holds (x_i, x_j) for i < j, x_0 being START, at
              j (j-1) / 2 + i; the row after the last child is END's.  The root has no left side.
    GRAND     by arc g -> h; then the children of h, ascending
    GRANDSIB  by arc g -> h; then the CHILDSEQ parts of h
    NOCROSS   the words as a triangle: (j, l), j < l, at (l-1) (l-2) / 2 + j - 1

So parts need no stored indices, and a dynamic program runs along them.  A GRAND or GRANDSIB part
with g among the children has a place, too; it is in no tree, and its score is not looked at.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

import numpy as np

SIB, CHILDSEQ, GRAND, GRANDSIB, NOCROSS = SIB_, CHILDSEQ_, GRAND_, GRANDSIB_, NOCROSS_


cdef class Layout:
    """The places of all parts over candidate arcs.

    heads, modifiers: (arcs,) int32, modifier-major, heads ascending; offsets: (n+1,) int32.
    O(arcs) time and memory.
    """

    def __cinit__(self):
        memset(&self.places, 0, sizeof(Places))

    def __init__(self, const int32_t[::1] heads, const int32_t[::1] modifiers,
                 const int32_t[::1] offsets):
        cdef Places *p = &self.places
        cdef int n = <int>offsets.shape[0] - 1, arcs = <int>heads.shape[0], a, h, left, right
        cdef int64_t size
        if arcs == 0:
            raise ValueError("no candidate arcs")
        self.heads, self.modifiers, self.offsets = heads, modifiers, offsets
        p.n, p.arcs = n, arcs
        p.heads, p.modifiers, p.offsets = &heads[0], &modifiers[0], &offsets[0]
        p.children = <int32_t *>malloc(arcs * sizeof(int32_t))
        p.rank = <int32_t *>malloc(arcs * sizeof(int32_t))
        p.first = <int32_t *>malloc((n + 2) * sizeof(int32_t))
        p.n_left = <int32_t *>malloc((n + 1) * sizeof(int32_t))
        p.sib = <int64_t *>malloc((n + 2) * sizeof(int64_t))
        p.childseq = <int64_t *>malloc((2 * n + 3) * sizeof(int64_t))
        p.grand = <int64_t *>malloc((arcs + 1) * sizeof(int64_t))
        p.grandsib = <int64_t *>malloc((arcs + 1) * sizeof(int64_t))
        if not (p.children and p.rank and p.first and p.n_left and p.sib and p.childseq and p.grand
                and p.grandsib):
            raise MemoryError
        with nogil:
            memset(p.first, 0, (n + 2) * sizeof(int32_t))
            memset(p.n_left, 0, (n + 1) * sizeof(int32_t))
            for a in range(arcs):
                p.first[p.heads[a] + 1] += 1
                p.n_left[p.heads[a]] += p.modifiers[a] < p.heads[a]
            for h in range(n + 1):
                p.first[h + 1] += p.first[h]
            for a in range(arcs):                  # modifiers ascend, so ranks do
                h = p.heads[a]
                p.children[p.first[h]] = a
                p.first[h] += 1
            for h in range(n, -1, -1):             # undo the shift
                p.first[h + 1] = p.first[h]
            p.first[0] = 0
            p.sib[0] = p.childseq[0] = 0
            for h in range(n + 1):
                for a in range(p.first[h], p.first[h + 1]):
                    p.rank[p.children[a]] = a - p.first[h]
                left, right = p.n_left[h], p.first[h + 1] - p.first[h] - p.n_left[h]
                p.sib[h + 1] = p.sib[h] + triangle(left + right)
                p.childseq[2 * h + 1] = p.childseq[2 * h] + (triangle(left + 2) if h else 0)
                p.childseq[2 * h + 2] = p.childseq[2 * h + 1] + triangle(right + 2)
            p.grand[0] = p.grandsib[0] = 0
            for a in range(arcs):
                h = p.modifiers[a]
                p.grand[a + 1] = p.grand[a] + p.first[h + 1] - p.first[h]
                p.grandsib[a + 1] = p.grandsib[a] + p.childseq[2 * h + 2] - p.childseq[2 * h]

    def __dealloc__(self):
        cdef Places *p = &self.places
        free(p.children)
        free(p.rank)
        free(p.first)
        free(p.n_left)
        free(p.sib)
        free(p.childseq)
        free(p.grand)
        free(p.grandsib)

    def size(self, int family):
        """Places in the array of a family."""
        cdef Places *p = &self.places
        if family == SIB_:
            return p.sib[p.n + 1]
        if family == CHILDSEQ_:
            return p.childseq[2 * p.n + 2]
        if family == GRAND_:
            return p.grand[p.arcs]
        if family == GRANDSIB_:
            return p.grandsib[p.arcs]
        return triangle(p.n)

    def index(self, int family):
        """Positions of each part, (positions, parts) int32, in the order of FAMILIES.

        START is the head itself, END is -1 on the left and n+1 on the right.
        """
        cdef Places *p = &self.places
        cdef int a, h, g, i, j, k, base, side, count, outer
        cdef int width = 2 if family == NOCROSS_ else 4 if family == GRANDSIB_ else 3
        array = np.empty((width, self.size(family)), np.int32)
        cdef int32_t[:, ::1] out = array
        cdef int64_t at = 0
        with nogil:
            if family == NOCROSS_:
                for j in range(2, p.n + 1):
                    for i in range(1, j):
                        out[0, at], out[1, at] = i, j
                        at += 1
            elif family == GRAND_:
                for a in range(p.arcs):
                    h = p.modifiers[a]
                    for k in range(p.first[h], p.first[h + 1]):
                        out[0, at], out[1, at], out[2, at] = p.heads[a], h, p.modifiers[p.children[k]]
                        at += 1
            elif family == SIB_:
                for h in range(p.n + 1):
                    base = p.first[h]
                    for j in range(1, p.first[h + 1] - base):
                        for i in range(j):
                            out[0, at] = h
                            out[1, at] = p.modifiers[p.children[base + i]]
                            out[2, at] = p.modifiers[p.children[base + j]]
                            at += 1
            else:
                base = 1 if family == GRANDSIB_ else 0
                for a in range(p.arcs if family == GRANDSIB_ else p.n + 1):
                    h = p.modifiers[a] if family == GRANDSIB_ else a
                    for side in range(0 if h else 1, 2):
                        count = side_count(p, h, side)
                        for j in range(1, count + 2):
                            outer = sided_child(p, h, side, j) if j <= count else (
                                p.n + 1 if side else -1)
                            for i in range(j):
                                if base:
                                    out[0, at] = p.heads[a]
                                out[base, at] = h
                                out[base + 1, at] = sided_child(p, h, side, i) if i else h
                                out[base + 2, at] = outer
                                at += 1
        return array

    def arcs_of(self, const int32_t[::1] tree):
        """The arcs of a tree, (n+1,) int32, -1 at 0.  tree: (n+1,) heads.

        O(n log n).  ValueError names an arc that is not a candidate.
        """
        cdef Places *p = &self.places
        cdef int n = p.n, m
        if tree.shape[0] != n + 1:
            raise ValueError(f"a tree over {n} words has {n + 1} heads, got {tree.shape[0]}")
        array = np.empty(n + 1, np.int32)
        cdef int32_t[::1] arcs = array
        arcs[0] = -1
        for m in range(1, n + 1):
            arcs[m] = find_arc(p, tree[m], m)
            if arcs[m] < 0:
                raise ValueError(f"the arc from {tree[m]} to {m} is not a candidate")
        return array

    def spread(self, const double[::1] values, double fill):
        """Values of arcs (arcs,) as (n+1, n+1) [head, modifier], float64; others are ``fill``."""
        cdef Places *p = &self.places
        cdef Py_ssize_t width = p.n + 1, i
        cdef int a
        if values.shape[0] != p.arcs:
            raise ValueError(f"{p.arcs} candidate arcs have {values.shape[0]} values")
        matrix = np.empty((width, width))
        cdef double[:, ::1] view = matrix
        cdef double *out = &view[0, 0]
        with nogil:
            for i in range(width * width):
                out[i] = fill
            for a in range(p.arcs):
                out[p.heads[a] * width + p.modifiers[a]] = values[a]
        return matrix

    def fired(self, int family, const int32_t[::1] tree):
        """Places of the parts that are in a tree, int64.  tree: (n+1,) heads.

        O(n), for SIB and NOCROSS O(n^2).  ValueError names an arc that is not a candidate.
        """
        cdef int32_t[::1] arcs = self.arcs_of(tree)
        array = np.empty(most_fired(&self.places, family), np.int64)
        cdef int64_t[::1] out = array
        cdef int64_t count = 0
        if array.size:
            with nogil:
                count = fire(&self.places, family, &tree[0], &arcs[0], &out[0])
        return array[:count]

    def score(self, const int32_t[::1] tree, const double[::1] scores, parts):
        """Score of a tree under arcs and families, parts: (family, its scores (parts,)) each.

        As the sums of `fired`, without the arrays.
        """
        cdef Places *p = &self.places
        cdef int32_t[::1] arcs = self.arcs_of(tree)
        cdef const double[::1] own
        cdef int64_t *places
        cdef int64_t i, count, most = 1
        cdef double total = 0.0
        if scores.shape[0] != p.arcs:
            raise ValueError(f"{p.arcs} candidate arcs have {scores.shape[0]} scores")
        for i in range(1, p.n + 1):
            total += scores[arcs[i]]
        for family, own in parts:
            if own.shape[0] != self.size(family):
                raise ValueError(f"{self.size(family)} parts have {own.shape[0]} scores")
            most = max(most, most_fired(p, family))
        places = <int64_t *>malloc(most * sizeof(int64_t))
        if places == NULL:
            raise MemoryError
        for family, own in parts:
            count = fire(p, family, &tree[0], &arcs[0], places)
            for i in range(count):
                total += own[places[i]]
        free(places)
        return total


cdef inline int64_t most_fired(Places *p, int family) noexcept nogil:
    """No tree has more parts of a family."""
    return triangle(p.n) if family == SIB_ or family == NOCROSS_ else 3 * p.n + 2


cdef int64_t fire(Places *p, int family, const int32_t *tree, const int32_t *arcs,
                  int64_t *out) noexcept nogil:
    """Places of the parts of a tree, given its arcs by word; how many."""
    cdef int n = p.n, m, h, last, side, step, at, i
    cdef int64_t k = 0, block
    if family == NOCROSS_:
        for m in range(2, n + 1):
            for i in range(1, m):
                if cross(tree[i], i, tree[m], m):
                    out[k] = triangle(m - 1) + i - 1
                    k += 1
    elif family == GRAND_:
        for m in range(1, n + 1):
            if tree[m]:
                out[k] = p.grand[arcs[tree[m]]] + p.rank[arcs[m]]
                k += 1
    elif family == SIB_:
        for m in range(2, n + 1):
            h = tree[m]
            for i in range(1, m):
                if tree[i] == h:
                    out[k] = p.sib[h] + triangle(p.rank[arcs[m]]) + p.rank[arcs[i]]
                    k += 1
    else:
        for h in range(1 if family == GRANDSIB_ else 0, n + 1):
            block = p.grandsib[arcs[h]] - p.childseq[2 * h] if family == GRANDSIB_ else 0
            for side in range(0 if h else 1, 2):
                step = 1 if side else -1
                last = 0
                m = h + step
                while 1 <= m <= n:
                    if tree[m] == h:
                        at = outward(p, arcs[m])
                        out[k] = block + p.childseq[2 * h + side] + triangle(at) + last
                        k += 1
                        last = at
                    m += step
                at = side_count(p, h, side) + 1
                out[k] = block + p.childseq[2 * h + side] + triangle(at) + last
                k += 1
    return k
