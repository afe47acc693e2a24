"""Projective trees with adjacent-sibling parts: best tree, log Z and marginals in O(n^3).

McDonald & Pereira (2006) over candidate arcs.  The children of h on one side are x_1, x_2, ...
outwards, and s_j is the score of the arc h -> x_j.

    C[h, e]  complete: h has all its children on the side of e, and everything up to e descends
             from it;  C[h, h] = seq[START, END] on either side
    I[h, j]  incomplete: x_j was just added as a child, and lacks its outer half;  I[h, 0] = one
    T[j, i]  x_i and x_j are adjacent children of h, with all between them

    T[j, 0] = s_j + seq[START, x_j] + C[x_j, word next to h]
    T[j, i] = s_j + seq[x_i, x_j] + (+)_r C[x_i, r] (x) C[x_j, r']   r, r' adjacent, between them
    I[h, j] = (+)_{i<j} I[h, i] (x) T[j, i]
    C[h, e] = (+)_j I[h, j] (x) seq[x_j, END] (x) C[x_j, e]          x_j no further out than e

Goal: C[0, n].  With a single root, i is 0 only for the children of the root.

A row of C holds C[h, e] at e to the left and at e + 1 to the right, so the two halves that meet
between two words are at one index and all sums run along rows.  The outside pass hands expected
counts down, as in grandsib.pyx.
"""
from libc.math cimport INFINITY
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from cython_ext.grandsib cimport check, log_rows, max_rows, share_rows
from cython_ext.layout cimport Layout, Places, find_arc, outward, triangle
from cython_ext.semiring cimport LOG, MAX


cdef struct Chart:
    Places* p
    int n
    Py_ssize_t width             # of a row of C
    int semiring                 # MAX or LOG
    bint single_root
    const double* link
    const double* childseq       # NULL: all zero
    double* C                    # (n+1, n+2)
    double* T                    # as the CHILDSEQ parts
    double* I                    # (arcs + 2 (n+1),) of each side 0, 1, ...
    double* J                    # the same, with the END part
    double* column               # SCRATCH (n+1,)
    int* within                  # (2 (n+1),) children of a side up to the end that was reached
    double* C_count              # expected counts
    double* T_count
    double* I_count
    double* J_count
    double* column_count


cdef inline int children(Places* p, int h, int side) noexcept nogil:
    return p.first[h + 1] - p.first[h] - p.n_left[h] if side else p.n_left[h]


cdef inline int child(Places* p, int h, int side, int j) noexcept nogil:
    """The arc to the j-th child outwards, j >= 1."""
    return p.children[p.first[h] + p.n_left[h] + (j - 1 if side else -j)]


cdef inline Py_ssize_t item(Places* p, int h, int side) noexcept nogil:
    """Where I[h, 0] of a side is."""
    return p.first[h] + 2 * h + (p.n_left[h] + 1 if side else 0)


cdef inline double reduce(Chart* c, const double* x, const double* y, Py_ssize_t n) noexcept nogil:
    cdef double out = -INFINITY
    if n:
        if c.semiring == MAX:
            max_rows(x, y, 0, NULL, 0, 1, n, &out, 1)
        else:
            log_rows(x, y, 0, NULL, 0, 1, n, &out, 1)
    return out


cdef inline double gap(Chart* c, int x, int y, const double** left, const double** right) noexcept nogil:
    """The sum over r between two adjacent children, and the rows it runs along."""
    cdef int low = min(x, y), high = max(x, y)
    left[0] = c.C + low * c.width + low + 1
    right[0] = c.C + high * c.width + low + 1
    return reduce(c, left[0], right[0], high - low)


cdef inline double score(Chart* c, int b, int64_t part) noexcept nogil:
    return c.link[b] + (c.childseq[part] if c.childseq != NULL else 0.0)


cdef inline double end_score(Chart* c, int h, int side, int j) noexcept nogil:
    """seq[x_j, END], x_0 being START."""
    if c.childseq == NULL:
        return 0.0
    return c.childseq[c.p.childseq[2 * h + side] + triangle(children(c.p, h, side) + 1) + j]


cdef inline void gather(Chart* c, int h, int side, int e, int count) noexcept nogil:
    """column[j-1] = C[x_j, e]."""
    cdef int j
    for j in range(count):
        c.column[j] = c.C[c.p.modifiers[child(c.p, h, side, j + 1)] * c.width + e + side]


cdef double inside(Chart* c) noexcept nogil:
    cdef Places* p = c.p
    cdef int n = c.n, h, e, d, low, side, b, j, i
    cdef int64_t row
    cdef Py_ssize_t at
    cdef const double* left
    cdef const double* right
    for at in range((n + 1) * c.width):
        c.C[at] = -INFINITY
    for h in range(n + 1):
        for side in range(0 if h else 1, 2):
            c.C[h * c.width + h + side] = end_score(c, h, side, 0)
            c.I[item(p, h, side)] = 0.0
            c.within[2 * h + side] = 0
    for d in range(1, n + 1):
        for low in range(n + 1 - d):
            for side in range(2):
                h, e = (low, low + d) if side else (low + d, low)
                if e == 0:
                    continue
                at = item(p, h, side)
                b = find_arc(p, h, e)
                if b >= 0:
                    j = outward(p, b)
                    row = p.childseq[2 * h + side] + triangle(j)
                    c.T[row] = score(c, b, row) + c.C[e * c.width + h + side]
                    for i in range(1, j):
                        if h == 0 and c.single_root:
                            c.T[row + i] = -INFINITY
                        else:
                            c.T[row + i] = score(c, b, row + i) + gap(
                                c, p.modifiers[child(p, h, side, i)], e, &left, &right)
                    c.I[at + j] = reduce(c, c.I + at, c.T + row, j)
                    c.J[at + j] = c.I[at + j] + end_score(c, h, side, j)
                    c.within[2 * h + side] = j
                j = c.within[2 * h + side]
                if j:
                    gather(c, h, side, e, j)
                    c.C[h * c.width + e + side] = reduce(c, c.J + at + 1, c.column, j)
    return c.C[n + 1]


cdef inline int argmax(const double* x, const double* y, int n, double value) noexcept nogil:
    cdef int i = 0
    while i + 1 < n and x[i] + y[i] != value:
        i += 1
    return i


cdef void walk(Chart* c, int* heads, int* stack) noexcept nogil:
    """Read the best tree off the chart, top down; the lowest of equal ways is taken."""
    cdef Places* p = c.p
    cdef int depth = 1, h, e, m, x, side, j, i, r
    cdef Py_ssize_t at
    cdef const double* left
    cdef const double* right
    cdef double value
    heads[0] = -1
    stack[0], stack[1], stack[2] = 0, c.n, 1
    while depth:
        depth -= 1
        h, e, side = stack[3 * depth], stack[3 * depth + 1], stack[3 * depth + 2]
        if h == e:
            continue
        at = item(p, h, side)
        j = children(p, h, side)
        while not (p.modifiers[child(p, h, side, j)] <= e if side
                   else p.modifiers[child(p, h, side, j)] >= e):
            j -= 1
        gather(c, h, side, e, j)
        j = 1 + argmax(c.J + at + 1, c.column, j, c.C[h * c.width + e + side])
        m = p.modifiers[child(p, h, side, j)]
        stack[3 * depth], stack[3 * depth + 1], stack[3 * depth + 2] = m, e, side
        depth += 1
        while j:
            heads[m] = h
            i = argmax(c.I + at, c.T + p.childseq[2 * h + side] + triangle(j), j, c.I[at + j])
            if i == 0:
                stack[3 * depth], stack[3 * depth + 1] = m, h + 1 if side else h - 1
                stack[3 * depth + 2] = 1 - side
                depth += 1
            else:
                x = p.modifiers[child(p, h, side, i)]
                value = gap(c, x, m, &left, &right)
                r = min(x, m) + argmax(left, right, max(x, m) - min(x, m), value)
                stack[3 * depth], stack[3 * depth + 1], stack[3 * depth + 2] = min(x, m), r, 1
                stack[3 * depth + 3], stack[3 * depth + 4] = max(x, m), r + 1
                stack[3 * depth + 5] = 0
                depth += 2
                m = x
            j = i


cdef void outside(Chart* c, double* mu_link, double* mu_childseq) noexcept nogil:
    """Expected counts of all items, from the goal downwards."""
    cdef Places* p = c.p
    cdef int n = c.n, h, e, d, low, side, b, j, i, x, count
    cdef int64_t row, ends
    cdef Py_ssize_t at, to
    cdef double total
    cdef const double* left
    cdef const double* right
    c.C_count[n + 1] = 1.0
    for d in range(n, 0, -1):
        for low in range(n + 1 - d):
            for side in range(2):
                h, e = (low, low + d) if side else (low + d, low)
                if e == 0:
                    continue
                at = item(p, h, side)
                count = c.within[2 * h + side]
                to = h * c.width + e + side
                if count and c.C_count[to] > 0.0:
                    gather(c, h, side, e, count)
                    for j in range(count):
                        c.column_count[j] = 0.0
                    share_rows(c.C_count + to, c.C + to, 0, c.J + at + 1, c.column, 0, NULL, 0, 1,
                               count, c.J_count + at + 1, c.column_count, NULL)
                    for j in range(count):
                        x = p.modifiers[child(p, h, side, j + 1)]
                        c.C_count[x * c.width + e + side] += c.column_count[j]
                b = find_arc(p, h, e)
                if b < 0:
                    continue
                j = outward(p, b)
                c.within[2 * h + side] = j - 1
                c.I_count[at + j] += c.J_count[at + j]
                mu_link[b] = c.I_count[at + j]
                if mu_link[b] == 0.0:
                    continue
                row = p.childseq[2 * h + side] + triangle(j)
                share_rows(c.I_count + at + j, c.I + at + j, 0, c.I + at, c.T + row, 0, NULL, 0, 1, j,
                           c.I_count + at, c.T_count + row, NULL)
                c.C_count[e * c.width + h + side] += c.T_count[row]
                for i in range(1, j):
                    if c.T_count[row + i] > 0.0:
                        x = p.modifiers[child(p, h, side, i)]
                        total = gap(c, x, e, &left, &right)
                        share_rows(c.T_count + row + i, &total, 0, left, right, 0, NULL, 0, 1,
                                   max(x, e) - min(x, e), c.C_count + (left - c.C),
                                   c.C_count + (right - c.C), NULL)
    if mu_childseq == NULL:
        return
    for h in range(n + 1):
        for side in range(0 if h else 1, 2):
            count = children(p, h, side)
            row = p.childseq[2 * h + side]
            ends = row + triangle(count + 1)
            for i in range(ends - row):
                mu_childseq[row + i] = c.T_count[row + i]
            mu_childseq[ends] = c.C_count[h * c.width + h + side]
            for j in range(1, count + 1):
                mu_childseq[ends + j] = c.J_count[item(p, h, side) + j]


cdef void* prepare(Chart* c, Layout layout, const double[::1] link, const double[::1] childseq,
                   bint single_root, int semiring) except NULL:
    """Allocate everything, zeroed, in one piece to be freed."""
    cdef Places* p = &layout.places
    cdef size_t n = p.n, tables = 1 if semiring == MAX else 2
    cdef size_t spans = (n + 1) * (n + 2), parts = p.childseq[2 * n + 2]
    cdef size_t items = p.arcs + 2 * (n + 1), i
    cdef double* at
    cdef void* memory
    check("candidate arcs", link, p.arcs)
    check("parts childseq", childseq, parts)
    memory = calloc(1, tables * (spans + parts + 2 * items + n + 1) * sizeof(double)
                    + 12 * (n + 1) * sizeof(int))
    if memory == NULL:
        raise MemoryError
    c.p, c.n, c.width = p, p.n, p.n + 2
    c.semiring, c.single_root = semiring, single_root
    c.link = &link[0]
    c.childseq = NULL
    if childseq is not None:
        c.childseq = &childseq[0]
    at = <double*>memory
    c.C, c.T = at, at + spans
    c.I = c.T + parts
    c.J = c.I + items
    c.column = c.J + items
    at = c.column + n + 1
    if semiring != MAX:
        c.C_count, c.T_count = at, at + spans
        c.I_count = c.T_count + parts
        c.J_count = c.I_count + items
        c.column_count = c.J_count + items
        at = c.column_count + n + 1
    c.within = <int*>at
    return memory


def best_tree(Layout layout, const double[::1] link, const double[::1] childseq, bint single_root,
              int[::1] heads):
    """Score of the best tree, whose heads (n+1,) are written, or -inf if there is none.

    Scores in the order of the layout; childseq None: all zero.  Releases the GIL.
    """
    cdef Chart c
    cdef double value
    cdef void* memory = prepare(&c, layout, link, childseq, single_root, MAX)
    with nogil:
        value = inside(&c)
        if value > -INFINITY:
            walk(&c, &heads[0], c.within + 2 * (c.n + 1))
        free(memory)
    return value


def expectations(Layout layout, const double[::1] link, const double[::1] childseq,
                 bint single_root, double[::1] mu_link, double[::1] mu_childseq):
    """log Z, or -inf if there is no tree; marginals into arrays of zeros, mu_childseq may be None."""
    cdef Chart c
    cdef double value
    cdef double* parts = NULL
    cdef void* memory = prepare(&c, layout, link, childseq, single_root, LOG)
    if mu_childseq is not None:
        parts = &mu_childseq[0]
    with nogil:
        value = inside(&c)
        if value > -INFINITY:
            outside(&c, &mu_link[0], parts)
        free(memory)
    return value
