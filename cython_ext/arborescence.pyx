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

The best tree but one (Camerini, Fratta and Maffioli 1980): each arc of the best tree A is the
choice of a node, a word or a supernode, and A stays a tree if that node takes another arc f, one
that does not come from a word below it in A.  This loses

    best_node - (score of f, less what its word has given up inside the node)

and the least of these losses is that of the best tree other than A.  Root arcs change for root
arcs only when the root is single.
"""
from libc.math cimport INFINITY
from libc.stdint cimport int64_t

from cython_ext.batch cimport decode_batch, decode_one
from cython_ext.semiring cimport (
    argmax, argmax_entering, argmax_outside, begin_supernode, give_up, join_supernode,
)

cdef enum:
    UNSEEN = 0
    ON_PATH = 1
    ATTACHED = 2


cdef inline Py_ssize_t column_size(Py_ssize_t n) noexcept nogil:
    return (n + 4) // 4 * 4


cdef size_t scratch_bytes(Py_ssize_t n) noexcept nogil:
    """Room that ``decode`` needs."""
    return ((n + 1) * column_size(n) * 2 + 10 * (2 * n + 4)) * 8


cdef size_t second_bytes(Py_ssize_t n) noexcept nogil:
    """Room that ``decode_two`` needs."""
    return scratch_bytes(n) + (6 * column_size(n) + 3 * (2 * n + 4)) * 8


cdef struct Second:
    const int* best              # IN       (n+1,) the best tree
    int* heads                   # OUT      (n+1,) the best tree but one, if there is one
    bint found                   # OUT
    double* place                # SCRATCH  by word: place in a walk down the best tree
    double* last                 # SCRATCH  by word: the last place of the words below it
    double* given_up             # SCRATCH  by word: what all nodes around it have given up
    double* loss                 # SCRATCH  by node, of the best other arc: how much, head, word
    int64_t* head
    int64_t* word


cdef void walk_over(Second* second, Py_ssize_t n, int64_t* child, int64_t* sibling,
                    int64_t* stack) noexcept nogil:
    """Number the words of the best tree."""
    cdef Py_ssize_t m, depth = 1, place = 0
    for m in range(n + 1):
        child[m] = 0
    for m in range(n, 0, -1):
        sibling[m] = child[second.best[m]]
        child[second.best[m]] = m
    stack[0] = 0
    second.place[0] = 0.0
    while depth:
        m = stack[depth - 1]
        if child[m]:
            stack[depth] = child[m]
            child[m] = sibling[child[m]]
            place += 1
            second.place[stack[depth]] = place
            depth += 1
        else:
            second.last[m] = place
            depth -= 1


cdef inline void consider(
    Second* second,
    Py_ssize_t node,
    double value,                # IN       of its best arc
    Py_ssize_t h,                #          from h
    Py_ssize_t m,                #          to m
    double* column,              # IN       its arcs from other heads, and the words that they enter
    const int64_t* enters,
    Py_ssize_t size,
    const double* row,           # IN       scores of the arcs from h
    const int64_t* top,
    Py_ssize_t n,
) noexcept nogil:
    """The best arc for a node but one."""
    cdef double own = column[h], other, same = -INFINITY
    cdef Py_ssize_t k
    column[h] = -INFINITY
    k = argmax_outside(column, second.place, second.place[m], second.last[m], size, &other)
    column[h] = own
    second.head[node], second.word[node] = k, enters[k]
    if node > n:                                 # by the same head, into another word
        k = argmax_entering(row, second.given_up, top, node, m, n + 1, &same)
        if same > other:
            other = same
            second.head[node], second.word[node] = h, k
    second.loss[node] = value - other


cdef double decode(
    const double* scores,        # IN       (n+1, stride) scores[head, modifier]
    Py_ssize_t stride,
    Py_ssize_t n,                # IN       words, at least 1
    bint single_root,
    int* heads,                  # OUT      (n+1,)
    void* scratch,               # SCRATCH  scratch_bytes(n)
) noexcept nogil:
    """Best tree; returns its score, or -inf (heads undefined) when there is no tree."""
    return grow(scores, stride, n, single_root, heads, scratch, NULL)


cdef double decode_two(
    const double* scores,        # IN       as for ``decode``
    Py_ssize_t stride,
    Py_ssize_t n,
    bint single_root,
    const int* best,             # IN       (n+1,) a best tree
    int* heads,                  # OUT      (n+1,) the best tree other than that
    int* again,                  # SCRATCH  (n+1,)
    void* scratch,               # SCRATCH  second_bytes(n)
) noexcept nogil:
    """Best tree but one; its score, or -inf (heads undefined) when there is no other tree."""
    cdef Py_ssize_t size = column_size(n), nodes = 2 * n + 4, m
    cdef Second second
    cdef bint same = True
    cdef double value = 0.0
    second.best, second.heads, second.found = best, heads, False
    second.place = <double*>(<char*>scratch + scratch_bytes(n))
    second.last = second.place + size
    second.given_up = second.last + size
    second.loss = second.given_up + size
    second.head = <int64_t*>(second.loss + nodes)
    second.word = second.head + nodes
    for m in range(size):
        second.place[m] = -1.0
        second.given_up[m] = 0.0
    walk_over(&second, n, second.word + nodes, second.word + nodes + size,
              second.word + nodes + 2 * size)
    grow(scores, stride, n, single_root, again, scratch, &second)
    for m in range(1, n + 1):
        same &= again[m] == best[m]
    if same and not second.found:
        return -INFINITY
    for m in range(n + 1):
        if not same:                             # as good, or rounding says it is better
            heads[m] = again[m]
    for m in range(1, n + 1):
        value += scores[heads[m] * stride + m]
    return value


cdef double grow(
    const double* scores,
    Py_ssize_t stride,
    Py_ssize_t n,
    bint single_root,
    int* heads,
    void* scratch,
    Second* second,              # or NULL
) noexcept nogil:
    """``decode``; also the best tree but one, if the best is the one that was expected."""
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
                arc_head[node] = h = 0
                arc_word[node] = root_enters[slot[node]]
                if second != NULL:               # its column is -inf: another root arc
                    consider(second, node, root[slot[node]], 0, arc_word[node],
                             columns + slot[node] * size, enters + slot[node] * size, size,
                             scores, top, n)
                break
            best[node] = value
            arc_head[node] = h
            arc_word[node] = enters[slot[node] * size + h]
            if second != NULL:
                consider(second, node, value, h, arc_word[node], columns + slot[node] * size,
                         enters + slot[node] * size, size, scores + h * stride, top, n)
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
            if second != NULL:
                give_up(second.given_up, best[member], top, member, n + 1)
            begin_supernode(columns + kept * size, best[member], top, member, supernode, size)
            root[kept] -= best[member]
            while member != node:
                length -= 1
                member = path[length]
                other = slot[member]
                parent[member] = supernode
                if second != NULL:
                    give_up(second.given_up, best[member], top, member, n + 1)
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

    node = expand(supernode, arc_head, arc_word, parent, state, heads, second)
    if node:
        second.found = True
        for m in range(1, supernode + 1):
            state[m] = ATTACHED
        arc_head[node], arc_word[node] = second.head[node], second.word[node]
        expand(supernode, arc_head, arc_word, parent, state, second.heads, NULL)
    value = 0.0
    for m in range(1, n + 1):
        value += scores[heads[m] * stride + m]
    return value


cdef Py_ssize_t expand(
    Py_ssize_t supernode,        # IN       the last one
    const int64_t* arc_head,
    const int64_t* arc_word,
    const int64_t* parent,
    int64_t* state,              # IN OUT   all ATTACHED
    int* heads,                  # OUT
    Second* second,
) noexcept nogil:
    """From the last contraction down: the arc of a supernode fixes the head of the word that it
    enters, and with it every smaller supernode around that word.

    The node that loses least by another arc, 0 if none has another.
    """
    cdef Py_ssize_t node, m, least = 0
    cdef double loss = INFINITY
    for node in range(supernode, 0, -1):
        if state[node] == UNSEEN:                # fixed by an arc of a larger supernode
            continue
        if second != NULL and second.loss[node] < loss:
            loss, least = second.loss[node], node
        m = arc_word[node]
        heads[m] = <int>arc_head[node]
        while m != node:
            state[m] = UNSEEN
            m = parent[m]
    heads[0] = -1
    return least


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
