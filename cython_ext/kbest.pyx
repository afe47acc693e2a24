"""The k best trees, projective or not, around either exact decoder.

Partition (Lawler 1972; Murty 1968).  A candidate is the best tree of one cell of a partition of
all trees: those with given heads for the words before ``position`` and without some heads for the
word at ``position``.  When it is the best candidate it goes out, and the rest of its cell is split
by the first word that differs from it: at most n decodings for each tree.
"""
from libc.math cimport INFINITY
from libc.stdlib cimport free
from libc.string cimport memcpy

from cython_ext cimport arborescence, eisner
from cython_ext.batch cimport allocate, decoder_t


cdef struct Pool:
    Py_ssize_t n
    Py_ssize_t capacity
    Py_ssize_t count
    double* score                # (capacity,) -inf where given out
    int* position                # (capacity,)
    int* heads                   # (capacity, n+1)
    char* forbidden              # (capacity, n+1) heads that the word at position may not take


cdef Py_ssize_t worst(Pool* pool) noexcept nogil:
    cdef Py_ssize_t i, at = 0
    for i in range(1, pool.count):
        if pool.score[i] < pool.score[at]:
            at = i
    return at


cdef Py_ssize_t best(Pool* pool) noexcept nogil:
    cdef Py_ssize_t i, at = 0
    for i in range(1, pool.count):
        if pool.score[i] > pool.score[at]:
            at = i
    return at


cdef void keep(Pool* pool, double score, Py_ssize_t position, const int* heads,
               const char* forbidden) noexcept nogil:
    """Add a candidate; when the pool is full it replaces the worst, if it is better."""
    cdef Py_ssize_t at = pool.count, width = pool.n + 1
    if score == -INFINITY:
        return
    if pool.count < pool.capacity:
        pool.count += 1
    else:
        at = worst(pool)
        if score <= pool.score[at]:
            return
    pool.score[at] = score
    pool.position[at] = <int>position
    memcpy(pool.heads + at * width, heads, width * sizeof(int))
    memcpy(pool.forbidden + at * width, forbidden, width)


cdef Py_ssize_t enumerate_best(
    const double* scores,        # IN       (n+1, stride)
    Py_ssize_t stride,
    bint single_root,
    decoder_t decode,
    Pool* pool,                  # SCRATCH  capacity k
    double* fixed,               # SCRATCH  (n+1, n+1) scores of one cell
    int* tree,                   # SCRATCH  (2, n+1)
    char* forbidden,             # SCRATCH  (2, n+1)
    void* scratch,
    int[:, ::1] heads,           # OUT      (k, >= n+1)
    double[::1] values,          # OUT      (k,)
) noexcept nogil:
    cdef Py_ssize_t n = pool.n, width = n + 1, found = 0, at, first, m, h, only
    cdef int* parent = tree + width
    cdef char* inherited = forbidden + width
    cdef double score
    for h in range(width):
        forbidden[h] = 0
    keep(pool, decode(scores, stride, n, single_root, tree, scratch), 1, tree, forbidden)
    while found < heads.shape[0] and pool.count:
        at = best(pool)
        if pool.score[at] == -INFINITY:
            break
        values[found] = pool.score[at]
        memcpy(parent, pool.heads + at * width, width * sizeof(int))
        memcpy(inherited, pool.forbidden + at * width, width)
        memcpy(&heads[found, 0], parent, width * sizeof(int))
        first = pool.position[at]
        pool.score[at] = -INFINITY
        found += 1
        if found == heads.shape[0]:
            break
        for h in range(width):
            memcpy(fixed + h * width, scores + h * stride, width * sizeof(double))
        for m in range(1, first):
            fix(fixed, width, m, parent[m])
        for m in range(first, n + 1):
            for h in range(width):
                forbidden[h] = inherited[h] if m == first else 0
                if forbidden[h]:
                    fixed[h * width + m] = -INFINITY
            forbidden[parent[m]] = 1
            score = fixed[parent[m] * width + m]
            fixed[parent[m] * width + m] = -INFINITY
            keep(pool, decode(fixed, width, n, single_root, tree, scratch), m, tree, forbidden)
            fixed[parent[m] * width + m] = score
            fix(fixed, width, m, parent[m])
    return found


cdef inline void fix(double* fixed, Py_ssize_t width, Py_ssize_t m, Py_ssize_t head) noexcept nogil:
    cdef Py_ssize_t h
    for h in range(width):
        if h != head:
            fixed[h * width + m] = -INFINITY


def k_best(
    const double[:, ::1] scores,         # IN   (N, N)
    Py_ssize_t n,
    bint single_root,
    bint projective,
    int[:, ::1] heads,                   # OUT  (k, >= n+1)
    double[::1] values,                  # OUT  (k,)
):
    """The k = heads.shape[0] best distinct trees, without checks; how many there are, up to k.

    Releases the GIL.  At most 1 + (k - 1) n decodings, O(k n) memory.
    """
    cdef Py_ssize_t width = n + 1, k = heads.shape[0], found = 0
    cdef decoder_t decode = eisner.decode if projective else arborescence.decode
    cdef size_t room = eisner.scratch_bytes(n) if projective else arborescence.scratch_bytes(n)
    cdef Pool pool
    cdef void* scratch = allocate(
        room + (width * width + k) * sizeof(double)
        + ((k + 2) * width + k) * sizeof(int) + (k + 2) * width)
    cdef double* fixed = <double*>(<char*>scratch + room)
    cdef int* tree
    with nogil:
        pool.n, pool.capacity, pool.count = n, k, 0
        pool.score = fixed + width * width
        pool.heads = <int*>(pool.score + k)
        tree = pool.heads + k * width
        pool.position = tree + 2 * width
        pool.forbidden = <char*>(pool.position + k)
        found = enumerate_best(
            &scores[0, 0], scores.shape[1], single_root, decode, &pool, fixed, tree,
            pool.forbidden + k * width, scratch, heads, values)
        free(scratch)
    return found
