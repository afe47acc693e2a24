"""Maximum spanning arborescences: Chu-Liu/Edmonds on a dense graph in O(n^2).

Path growing (Gabow, Galil, Spencer and Tarjan 1986): from a word without a head follow best
incoming arcs backwards until the path meets what is already attached, or itself; a cycle becomes
one supernode.  Heads stay original words for ever; only the columns of a cycle's members are
merged, each less the arc that its member would give up:

    column[h] = max over members of (column_member[h] - best_member),   h outside the cycle

so a step costs O(n) in contiguous loops and no row is ever merged.

Single root is exact and lexicographic: root arcs are kept aside, carried through every
contraction, and taken by a supernode only when no other arc enters it.  That minimises the number
of root arcs first and maximises the score second; two root arcs mean that no single-root tree
exists.  Cycles never hold a root arc, so no root score is ever subtracted from another.
"""
from libc.math cimport INFINITY
from libc.stdint cimport int64_t

from cython_ext.batch cimport decode_batch, decode_one
from cython_ext.semiring cimport argmax, begin_supernode, join_supernode

cdef enum:
    UNSEEN = 0
    ON_PATH = 1
    ATTACHED = 2


cdef inline Py_ssize_t column_size(Py_ssize_t n) noexcept nogil:
    return (n + 4) // 4 * 4


cdef size_t scratch_bytes(Py_ssize_t n) noexcept nogil:
    """Room that ``decode`` needs."""
    return ((n + 1) * column_size(n) * 2 + 10 * (2 * n + 4)) * 8


cdef double decode(
    const double* scores,        # IN       (n+1, stride) scores[head, modifier]
    Py_ssize_t stride,
    Py_ssize_t n,                # IN       words, at least 1
    bint single_root,
    int* heads,                  # OUT      (n+1,)
    void* scratch,               # SCRATCH  scratch_bytes(n)
) noexcept nogil:
    """Best tree; returns its score, or -inf (heads undefined) when there is no tree."""
    cdef Py_ssize_t size = column_size(n), nodes = 2 * n + 4
    cdef double* columns = <double*>scratch
    cdef int64_t* enters = <int64_t*>(columns + (n + 1) * size)
    cdef double* best = <double*>(enters + (n + 1) * size)
    cdef double* root = best + nodes             # by slot: best root arc into the supernode
    cdef int64_t* root_enters = <int64_t*>(root + nodes)
    cdef int64_t* slot = root_enters + nodes     # supernode -> its row of columns
    cdef int64_t* parent = slot + nodes
    cdef int64_t* arc_head = parent + nodes      # chosen arc of each node: head, word entered
    cdef int64_t* arc_word = arc_head + nodes
    cdef int64_t* state = arc_word + nodes
    cdef int64_t* top = state + nodes            # original word -> supernode that holds it
    cdef int64_t* path = top + nodes
    cdef double* column
    cdef double value
    cdef bint root_taken = False
    cdef Py_ssize_t h, m, start, length, node, member, kept, other, supernode = n
    cdef Py_ssize_t first = 1 if single_root else 0

    for m in range(1, n + 1):
        column = columns + m * size
        column[0] = -INFINITY
        for h in range(first, n + 1):
            column[h] = scores[h * stride + m]
        for h in range(n + 1, size):
            column[h] = -INFINITY
        column[m] = -INFINITY
        for h in range(size):
            enters[m * size + h] = m
        root[m] = scores[m]
        root_enters[m] = slot[m] = m
    for m in range(size):
        top[m] = m if m <= n else -1             # padding belongs to no node
    for node in range(nodes):
        parent[node] = -1
        state[node] = UNSEEN

    for start in range(1, n + 1):
        if state[top[start]] == ATTACHED:
            continue
        path[0] = start
        state[start] = ON_PATH
        length = 1
        while True:
            node = path[length - 1]
            h = argmax(columns + slot[node] * size, size, &value)
            if value == -INFINITY:
                if not single_root or root_taken or root[slot[node]] == -INFINITY:
                    return -INFINITY
                root_taken = True
                arc_head[node] = 0
                arc_word[node] = root_enters[slot[node]]
                break
            best[node] = value
            arc_head[node] = h
            arc_word[node] = enters[slot[node] * size + h]
            if h == 0 or state[top[h]] == ATTACHED:
                break
            if state[top[h]] == UNSEEN:
                state[top[h]] = ON_PATH
                path[length] = top[h]
                length += 1
                continue
            # The path met itself: everything from top[h] to its end is one cycle.
            node = top[h]
            supernode += 1
            length -= 1
            member = path[length]
            kept = slot[member]
            parent[member] = supernode
            begin_supernode(columns + kept * size, best[member], top, member, supernode, size)
            root[kept] -= best[member]
            while member != node:
                length -= 1
                member = path[length]
                other = slot[member]
                parent[member] = supernode
                join_supernode(columns + kept * size, enters + kept * size,
                               columns + other * size, enters + other * size,
                               best[member], top, member, supernode, size)
                if root[other] - best[member] > root[kept]:
                    root[kept] = root[other] - best[member]
                    root_enters[kept] = root_enters[other]
            slot[supernode] = kept
            state[supernode] = ON_PATH
            path[length] = supernode
            length += 1
        for m in range(length):
            state[path[m]] = ATTACHED

    # Expand from the last contraction down: the arc of a supernode fixes the head of the word
    # that it enters, and with it every smaller supernode around that word.
    for node in range(supernode, 0, -1):
        if state[node] == UNSEEN:                # fixed by an arc of a larger supernode
            continue
        m = arc_word[node]
        heads[m] = <int>arc_head[node]
        while m != node:
            state[m] = UNSEEN
            m = parent[m]
    heads[0] = -1
    value = 0.0
    for m in range(1, n + 1):
        value += scores[heads[m] * stride + m]
    return value


def best_tree(const double[:, ::1] scores, Py_ssize_t n, bint single_root, int[::1] heads):
    """Best tree of the first n words; its score, or -inf if a score is bad or there is no tree.

    ``scores`` is (N, N), N > n, [head, modifier]; NaN and +inf are bad.  ``heads`` (>= n+1,) is
    written.  Sizes are the caller's promise.  Releases the GIL.  O(n^2) time and memory.
    """
    return decode_one(decode, scratch_bytes(n), scores, n, single_root, heads)


def best_trees(
    const double[:, :, ::1] scores,      # IN   (batch, N, N)
    const int[::1] lengths,              # IN   (batch,) words of each sentence, or None: N - 1
    bint single_root,
    int[:, ::1] heads,                   # OUT  (batch, N), padded with -1
    double[::1] values,                  # OUT  (batch,)
):
    """Best tree of each sentence; the first one with a bad score or without a tree, or -1."""
    return decode_batch(decode, scratch_bytes(scores.shape[1] - 1), scores, lengths, single_root,
                        heads, values)
