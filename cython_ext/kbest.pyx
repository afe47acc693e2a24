"""The k best trees, projective or not.

Of all trees by partition (Camerini, Fratta and Maffioli 1980).  A cell is the trees with some arcs
and without some others.  Its best tree has gone out, its best tree but one is a candidate.  When
that is the best of the candidates it goes out, and an arc that only the best tree has splits the
cell: with it and without it, the two trees are the best of one half each.  So each tree takes two
runs of ``arborescence.decode_two``.

Of projective trees from the spans of one decoding, lazily (Huang & Chiang 2005, algorithm 3).  A
span of Eisner's algorithm has a list of derivations, best first, as long as was asked for.  Each
is a split with one derivation of either part, (split, i, j) by their places in the lists of the
parts, and a tree has one derivation only.  Next in the list comes the best of what can follow
those before it:

    the best split, i = j = 0          at first
    (split, 0, 0)  of the next split   after (split, 0, 0)
    (split, i, j + 1)                  after (split, i, j)
    (split, i + 1, 0)                  after (split, i, 0)

so that everything comes once, and after what it is not better than.
"""
from libc.math cimport INFINITY
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from cython_ext cimport arborescence, eisner
from cython_ext.batch cimport allocate
from cython_ext.semiring cimport all_below_infinity


cdef enum:
    NONE = -1
    LEAF = 0                     # the span of one word, and its derivation


cdef struct Rule:                # of a cell: an arc that its trees have, or do without
    int head
    int word
    bint has
    int before                   # the rule before it, or NONE


cdef struct Cells:
    Py_ssize_t n
    bint single_root
    const double* scores         # (n+1, stride)
    Py_ssize_t stride
    Rule* rules                  # (2 k,)
    Py_ssize_t n_rules
    int* best                    # (k, n+1)
    int* next                    # (k, n+1) the best trees but one
    double* score                # (k,) theirs; -inf: there is none
    int* rule                    # (k,) the last one of each cell
    double* allowed              # SCRATCH  (n+1, n+1) scores of one cell
    int* tree                    # SCRATCH  (n+1,)
    void* scratch                # of ``decode_two``


cdef void look_on(Cells* c, Py_ssize_t cell) noexcept nogil:
    """Find the best tree of a cell but one."""
    cdef Py_ssize_t width = c.n + 1, given = 0, h, i
    cdef int at = c.rule[cell]
    cdef Rule* rule
    cdef int* word = c.tree                      # those with a given head
    cdef double* row
    while at != NONE:
        if c.rules[at].has:
            word[given] = c.rules[at].word
            given += 1
        at = c.rules[at].before
    for h in range(width):
        row = c.allowed + h * width
        memcpy(row, c.scores + h * c.stride, width * sizeof(double))
        for i in range(given):
            row[word[i]] = -INFINITY
    at = c.rule[cell]
    while at != NONE:
        rule = c.rules + at
        c.allowed[rule.head * width + rule.word] = (
            c.scores[rule.head * c.stride + rule.word] if rule.has else -INFINITY)
        at = rule.before
    c.score[cell] = arborescence.decode_two(
        c.allowed, width, c.n, c.single_root, c.best + cell * width, c.next + cell * width,
        c.tree, c.scratch)


cdef void restrict(Cells* c, Py_ssize_t cell, int before, int head, int word,
                   bint has) noexcept nogil:
    c.rules[c.n_rules] = Rule(head, word, has, before)
    c.rule[cell] = <int>c.n_rules
    c.n_rules += 1


cdef Py_ssize_t enumerate_best(
    Cells* c,
    int[:, ::1] heads,           # OUT      (k, >= n+1)
    double[::1] values,          # OUT      (k,)
) noexcept nogil:
    """How many trees there are, up to k."""
    cdef Py_ssize_t width = c.n + 1, found = 1, cell, i
    cdef int word, before
    cdef int* best
    cdef int* next
    values[0] = arborescence.decode(c.scores, c.stride, c.n, c.single_root, c.best, c.scratch)
    if values[0] == -INFINITY:
        return 0
    memcpy(&heads[0, 0], c.best, width * sizeof(int))
    c.n_rules, c.rule[0] = 0, NONE
    while found < heads.shape[0]:
        if found == 1:
            look_on(c, 0)
        else:                                    # the two halves of the cell split last
            look_on(c, cell)
            look_on(c, found - 1)
        cell = 0
        for i in range(1, found):
            if c.score[i] > c.score[cell]:
                cell = i
        if c.score[cell] == -INFINITY:
            break
        values[found] = c.score[cell]
        best, next = c.best + cell * width, c.next + cell * width
        memcpy(&heads[found, 0], next, width * sizeof(int))
        memcpy(c.best + found * width, next, width * sizeof(int))
        word = 1
        while best[word] == next[word]:
            word += 1
        before = c.rule[cell]
        restrict(c, cell, before, best[word], word, True)
        restrict(c, found, before, best[word], word, False)
        found += 1
    return found


cdef enum Kind:
    COMPLETE                     # C[h, e] of eisner.pyx
    INCOMPLETE                   # I[h, e]
    GOAL                         # of one root: the words, with its arc


cdef struct Derivation:
    double score
    int split
    int left                     # derivations of the parts; NONE: the best, not looked at yet
    int right
    int next                     # in the list of its span; NONE: not known, or there is none
    int up                       # skew heap of candidates, until it is in the list
    int down


cdef struct Span:
    Kind kind
    int h                        # of GOAL 0
    int e
    int first                    # the list; NONE before it has any
    int last
    int heap                     # what may come next; NONE: nothing
    bint followed                # what can follow the last is in the heap
    bint over                    # the list has all derivations


cdef struct Forest:
    eisner.Chart* chart
    int* index                   # (2, n+1, n+1) spans by kind, h and e; NONE.  GOAL: as I[0, 0]
    Span* spans
    Derivation* derivations
    Py_ssize_t n_spans
    Py_ssize_t n_derivations
    Py_ssize_t room              # of either


cdef bint make_room(Forest* f) noexcept nogil:
    """For a step of ``extend``: two spans, each with a derivation, or three derivations.

    False when out of memory.
    """
    cdef Py_ssize_t room = 2 * f.room
    cdef void* memory
    if max(f.n_spans, f.n_derivations) + 8 <= f.room:
        return True
    memory = realloc(f.spans, room * sizeof(Span))
    if memory == NULL:
        return False
    f.spans = <Span*>memory
    memory = realloc(f.derivations, room * sizeof(Derivation))
    if memory == NULL:
        return False
    f.derivations = <Derivation*>memory
    f.room = room
    return True


cdef int merge(Derivation* d, int a, int b) noexcept nogil:
    """Two skew heaps in one; of equal scores the older candidate comes first."""
    cdef int top = NONE, right
    cdef int* slot = &top
    while a != NONE and b != NONE:
        if d[b].score > d[a].score or (d[b].score == d[a].score and b < a):
            a, b = b, a
        slot[0] = a
        right = d[a].down
        d[a].down = d[a].up
        slot = &d[a].up
        a = right
    slot[0] = b if a == NONE else a
    return top


cdef inline double joined(Forest* f, Span* x, int split, double left, double right) noexcept nogil:
    """Score of a derivation, of INCOMPLETE without its arc; added up as in eisner.pyx."""
    if x.kind == INCOMPLETE:
        return left + right
    return (f.chart.w[x.h * f.chart.w_stride + split] + left) + right


cdef void add(Forest* f, Span* x, int split, int left, int right, double score) noexcept nogil:
    """A candidate for the list of x."""
    cdef int new = <int>f.n_derivations
    cdef Derivation* d = f.derivations + new
    f.n_derivations += 1
    d.score, d.split, d.left, d.right = score, split, left, right
    d.next = d.up = d.down = NONE
    x.heap = merge(f.derivations, x.heap, new)


cdef void add_split(Forest* f, Span* x, int past) noexcept nogil:
    """The split that comes after this one, if any; NONE: the best.

    Of equal ones in the order in which ``walk`` of eisner.pyx prefers them.
    """
    cdef Py_ssize_t s = f.chart.stride
    cdef double* left = f.chart.I + x.h * s      # with one root, row 0 is that of the goal
    cdef double* right
    cdef double value, bound = INFINITY, top = -INFINITY
    cdef int low = min(x.h, x.e), high = max(x.h, x.e), best = NONE, i, split
    cdef bint passed = False, down = x.kind == INCOMPLETE or (x.kind == COMPLETE and x.h < x.e)
    if x.kind == INCOMPLETE:
        left, right = f.chart.C + low * s, f.chart.C + high * s + 1
    elif x.kind == COMPLETE:
        right = f.chart.CT + x.e * s
        if x.h < x.e:
            low, high = low + 1, high + 1
    else:
        right = f.chart.CT + f.chart.n * s
        low, high = 1, <int>f.chart.n + 1
    if past != NONE:
        bound = left[past] + right[past]
    for i in range(high - low):
        split = high - 1 - i if down else low + i
        value = left[split] + right[split]
        if value > top and (value < bound or (passed and value == bound)):
            top, best = value, split
        passed |= split == past
    if best != NONE:
        add(f, x, best, NONE, NONE, top)


cdef int span_of(Forest* f, Kind kind, int h, int e) noexcept nogil:
    cdef Py_ssize_t width = f.chart.n + 1
    cdef int* slot = f.index + ((kind != COMPLETE) * width + h) * width + e
    cdef Span* x
    if kind == COMPLETE and h == e:
        return LEAF
    if slot[0] == NONE:
        slot[0] = <int>f.n_spans
        x = f.spans + f.n_spans
        f.n_spans += 1
        x.kind, x.h, x.e = kind, h, e
        x.first = x.last = x.heap = NONE
        x.followed, x.over = True, False
        add_split(f, x, NONE)
    return slot[0]


cdef int part(Forest* f, Span* x, int split, bint right) noexcept nogil:
    if x.kind == COMPLETE:
        return span_of(f, COMPLETE, split, x.e) if right else span_of(f, INCOMPLETE, x.h, split)
    if x.kind == INCOMPLETE:
        if right:
            return span_of(f, COMPLETE, max(x.h, x.e), split + 1)
        return span_of(f, COMPLETE, min(x.h, x.e), split)
    return span_of(f, COMPLETE, split, <int>f.chart.n if right else 1)


cdef bint lacks(Forest* f, int span, int derivation) noexcept nogil:
    """Whether the list of a span has to grow before what comes after a derivation is known."""
    return f.derivations[derivation].next == NONE and not f.spans[span].over


cdef int follow(Forest* f, Span* x) noexcept nogil:
    """Add what can follow the last derivation of x; or a span whose list has to grow before."""
    cdef Derivation* d = f.derivations + x.last
    cdef int split = d.split, left = d.left, right = d.right, other
    cdef int left_span = part(f, x, split, False), right_span = part(f, x, split, True)
    cdef bint first = right == f.spans[right_span].first
    if lacks(f, right_span, right):
        return right_span
    if first and lacks(f, left_span, left):
        return left_span
    other = f.derivations[right].next
    if other != NONE:
        add(f, x, split, left, other,
            joined(f, x, split, f.derivations[left].score, f.derivations[other].score))
    if first:
        other = f.derivations[left].next
        if other != NONE:
            add(f, x, split, other, right,
                joined(f, x, split, f.derivations[other].score, f.derivations[right].score))
        if left == f.spans[left_span].first:
            add_split(f, x, split)
    x.followed = True
    return NONE


cdef int settle(Forest* f, Span* x) noexcept nogil:
    """Look up the parts of the next derivation of x; or a span whose list has to grow before."""
    cdef Derivation* d = f.derivations + x.heap
    cdef int split = d.split, left, right
    if d.left != NONE:
        return NONE
    left, right = part(f, x, split, False), part(f, x, split, True)
    if f.spans[left].first == NONE:
        return left
    if f.spans[right].first == NONE:
        return right
    d.left, d.right = f.spans[left].first, f.spans[right].first
    return NONE


cdef bint extend(Forest* f, int span, int* stack) noexcept nogil:
    """One derivation more for the list of a span, or all is in it; False when out of memory."""
    cdef Py_ssize_t depth = 1
    cdef int before
    cdef Span* x
    stack[0] = span
    while depth:
        if not make_room(f):
            return False
        x = f.spans + stack[depth - 1]
        before = NONE if x.followed else follow(f, x)
        if before == NONE and x.heap != NONE:
            before = settle(f, x)
        if before != NONE:
            stack[depth] = before
            depth += 1
            continue
        depth -= 1
        if x.heap == NONE:
            x.over = True
            continue
        if x.last == NONE:
            x.first = x.heap
        else:
            f.derivations[x.last].next = x.heap
        x.last = x.heap
        x.heap = merge(f.derivations, f.derivations[x.last].up, f.derivations[x.last].down)
        x.followed = False
    return True


cdef void read_tree(Forest* f, int span, int derivation, int* heads, int* stack) noexcept nogil:
    cdef Py_ssize_t depth = 1
    cdef Span* x
    cdef Derivation* d
    heads[0] = NONE
    stack[0], stack[1] = span, derivation
    while depth:
        depth -= 1
        if stack[2 * depth] == LEAF:
            continue
        x = f.spans + stack[2 * depth]
        d = f.derivations + stack[2 * depth + 1]
        if x.kind == INCOMPLETE:
            heads[x.e] = x.h
        elif x.kind == GOAL:
            heads[d.split] = 0
        stack[2 * depth], stack[2 * depth + 1] = part(f, x, d.split, False), d.left
        stack[2 * depth + 2], stack[2 * depth + 3] = part(f, x, d.split, True), d.right
        depth += 2


cdef Py_ssize_t read_best(
    Forest* f,                   # with a chart whose best tree is one
    int* stack,                  # SCRATCH  (4 n + 8,)
    int[:, ::1] heads,           # OUT      (k, >= n+1)
    double[::1] values,          # OUT      (k,)
) noexcept nogil:
    """How many trees there are, up to k; NONE when out of memory."""
    cdef Py_ssize_t n = f.chart.n, found, m
    cdef int goal, last = NONE
    cdef Span* leaf = f.spans
    memset(f.index, 0xff, 2 * (n + 1) * (n + 1) * sizeof(int))
    f.n_spans = f.n_derivations = 1
    leaf.first = leaf.last = LEAF
    leaf.heap, leaf.followed, leaf.over = NONE, True, True
    f.derivations[LEAF].score, f.derivations[LEAF].next = 0.0, NONE
    goal = span_of(f, GOAL, 0, 0) if f.chart.first else span_of(f, COMPLETE, 0, <int>n)
    for found in range(heads.shape[0]):
        if not extend(f, goal, stack):
            return NONE
        if f.spans[goal].over:
            return found
        last = f.spans[goal].last
        read_tree(f, goal, last, &heads[found, 0], stack)
        values[found] = 0.0
        for m in range(1, n + 1):                # in the order of words, whatever the splits
            values[found] += f.chart.w[heads[found, m] * f.chart.w_stride + m]
    return heads.shape[0]


cdef Py_ssize_t projective_k_best(const double[:, ::1] scores, Py_ssize_t n, bint single_root,
                                  int[:, ::1] heads, double[::1] values) except NONE:
    cdef eisner.Chart chart
    cdef Forest f
    cdef Py_ssize_t found = 0
    cdef size_t chart_bytes = eisner.scratch_bytes(n)
    cdef void* scratch = allocate(
        chart_bytes + (2 * (n + 1) * (n + 1) + 4 * n + 8) * sizeof(int))
    f.chart = &chart
    f.index = <int*>(<char*>scratch + chart_bytes)
    f.room = 16 * (n + 1)
    f.spans = <Span*>malloc(f.room * sizeof(Span))
    f.derivations = <Derivation*>malloc(f.room * sizeof(Derivation))
    with nogil:
        if f.spans == NULL or f.derivations == NULL:
            found = NONE
        elif eisner.best_spans(&chart, &scores[0, 0], scores.shape[1], n, single_root,
                               scratch) > -INFINITY:
            found = read_best(&f, f.index + 2 * (n + 1) * (n + 1), heads, values)
        free(f.spans)
        free(f.derivations)
        free(scratch)
    if found == NONE:
        raise MemoryError
    return found


cdef Py_ssize_t any_k_best(const double[:, ::1] scores, Py_ssize_t n, bint single_root,
                           int[:, ::1] heads, double[::1] values) except NONE:
    cdef Py_ssize_t width = n + 1, k = heads.shape[0], found = 0
    cdef size_t room = arborescence.second_bytes(n)
    cdef Cells c
    c.scratch = allocate(
        room + (width * width + k) * sizeof(double) + 2 * k * sizeof(Rule)
        + ((2 * k + 1) * width + k) * sizeof(int))
    with nogil:
        c.n, c.single_root = n, single_root
        c.scores, c.stride = &scores[0, 0], scores.shape[1]
        c.allowed = <double*>(<char*>c.scratch + room)
        c.score = c.allowed + width * width
        c.rules = <Rule*>(c.score + k)
        c.rule = <int*>(c.rules + 2 * k)
        c.tree = c.rule + k
        c.best = c.tree + width
        c.next = c.best + k * width
        found = enumerate_best(&c, heads, values)
        free(c.scratch)
    return found


def k_best(
    const double[:, ::1] scores,         # IN   (N, N)
    Py_ssize_t n,
    bint single_root,
    bint projective,
    int[:, ::1] heads,                   # OUT  (k, >= n+1)
    double[::1] values,                  # OUT  (k,)
):
    """The k = heads.shape[0] best distinct trees; how many there are, up to k; 0 if a score is bad.

    Releases the GIL.  Of all trees O(k n^2 + k^2) time, O(n^2 + k n) memory.  Of projective
    trees one decoding, O(n^2) for the second tree, and for each further one O(n) for the spans on
    a path, at worst O(n^2); O(n^2) memory, and O(1) for each span on the path.
    """
    if not all_below_infinity(&scores[0, 0], scores.shape[1], n):
        return 0
    if projective:
        return projective_k_best(scores, n, single_root, heads, values)
    return any_k_best(scores, n, single_root, heads, values)
