"""Whether the solution of one linear problem is still the best of another.

A problem is max c.z over a set of 0/1 vectors.  One was solved: objective p, solution s; another,
over the same set, has objective c = p + d.  A block is a range of coordinates of which every vector
has exactly one.  Slacks r >= 0 say how much s is better than any z, at least:

    p.s - p.z  >=  sum of r_i over the 1's of z in blocks, and over other coordinates where z_i != s_i

as reduced costs of a dual solution do; 0 where there are none.  With t the 1 of s in a block,

    c.z - c.s  <=  excess  =  sum over blocks of max(0, max_a (d_a - r_a) - d_t)
                              + sum over other coordinates of max(0, v_i - r_i)

    v_i = d_i where s is 0, -d_i where it is 1

so s is still the best where the excess is 0, and never worse than the best by more.
"""
from libc.math cimport INFINITY, fabs
from libc.stdint cimport int32_t
from libc.stdlib cimport free
from libc.string cimport memset

from cython_ext.batch cimport allocate
from cython_ext.layout cimport Layout, Places, checked, side_count, sided_child, triangle


def best_known(
    const double[::1] c,                 # IN  (d,)
    const int32_t[::1] ones,             # IN  coordinates that are 1, solution after solution
    const int32_t[::1] ends,             # IN  (solutions,) where each ends
):
    """The best of known solutions under c, the first of equal ones, and its value; (-1, -inf) if
    each is -inf or NaN.  O(ones)."""
    cdef Py_ssize_t i, at = 0, best = -1
    cdef double value, top = -INFINITY
    with nogil:
        for i in range(ends.shape[0]):
            value = 0.0
            while at < ends[i]:
                value += c[ones[at]]
                at += 1
            if value > top:
                best, top = i, value
    return best, top


def examine(
    const double[::1] c,                 # IN  (d,) new objective
    const double[::1] p,                 # IN  (d,) solved objective, finite
    const double[::1] slack,             # IN  (d,) >= 0, or None
    const int32_t[::1] ones,             # IN  coordinates that are 1 in the solution, ascending
    const int32_t[::1] blocks,           # IN  (blocks + 1,) where they start, the first at 0; or None
    double epsilon,
):
    """(whether v_i <= epsilon |c_i| for all i, excess without slacks, with half of them, with all).

    Chang et al. (2015), condition (4), and its extensions.  Excesses are +inf where c is NaN or
    +inf, or -inf on the solution.  O(d).
    """
    cdef Py_ssize_t b, a, first, t, size = c.shape[0], count = 0
    cdef Py_ssize_t at = 0
    cdef double d, r, own, plain, half, full
    cdef double all_plain = 0.0, all_half = 0.0, all_full = 0.0
    cdef bint near = True, sound = True, slacks = slack is not None
    if blocks is not None:
        count = blocks.shape[0] - 1
        at = blocks[count]
    if p.shape[0] != size or (slacks and slack.shape[0] != size) or ones.shape[0] < count:
        raise ValueError("problems over the same set have objectives of one length")
    with nogil:
        for b in range(count):
            t = ones[b]
            own = c[t] - p[t]
            near &= -own <= epsilon * fabs(c[t])
            plain = half = full = -INFINITY
            for a in range(blocks[b], blocks[b + 1]):
                d = c[a] - p[a]
                sound &= d < INFINITY
                if a == t:
                    continue
                near &= d <= epsilon * fabs(c[a])
                if d > plain:
                    plain = d
                if slacks:
                    r = slack[a]
                    if d - 0.5 * r > half:
                        half = d - 0.5 * r
                    if d - r > full:
                        full = d - r
            sound &= own > -INFINITY
            all_plain += max(0.0, plain - own)
            if slacks:
                all_half += max(0.0, half - own)
                all_full += max(0.0, full - own)
        t = count
        for a in range(at, size):
            d = c[a] - p[a]
            sound &= d < INFINITY
            if t < ones.shape[0] and ones[t] == a:
                t += 1
                d = -d
                sound &= d < INFINITY
            near &= d <= epsilon * fabs(c[a])
            all_plain += max(0.0, d)
            if slacks:
                all_half += max(0.0, d - 0.5 * slack[a])
                all_full += max(0.0, d - slack[a])
    if not sound:
        return False, INFINITY, INFINITY, INFINITY
    if not slacks:
        all_half = all_full = all_plain
    return bool(near), all_plain, all_half, all_full


def holds_single_root(
    const double[::1] c,                 # IN  (arcs,) new scores
    const double[::1] p,                 # IN  (arcs,) solved scores
    const double[::1] slack,             # IN  (arcs,)
    const int32_t[::1] ones,             # IN  (n,) arcs of the tree
    const int32_t[::1] blocks,           # IN  (n+1,) where the arcs into each word start
    const int32_t[::1] heads,            # IN  (arcs,)
):
    """Whether the excess is 0 when all arcs of the root are charged some rho.

    A tree with one of them pays rho whatever it is, so with r the word under the root and

        d_a - r_a <= d_t          for other arcs into other words
        d_a - r_a <= d_t + rho    for the root's arcs to other words
        d_a - r_a <= d_t - rho    for other arcs into r

    rho may be whatever the last two allow.  O(arcs).
    """
    cdef Py_ssize_t m, a
    cdef double own, value, least = -INFINITY, most = INFINITY
    cdef bint good = True
    for m in range(ones.shape[0]):
        own = c[ones[m]] - p[ones[m]]
        good &= -INFINITY < own < INFINITY
        for a in range(blocks[m], blocks[m + 1]):
            value = c[a] - p[a]
            good &= value < INFINITY
            value -= slack[a] + own
            if a == ones[m]:
                continue
            if heads[ones[m]] == 0:
                most = min(most, -value)
            elif heads[a] == 0:
                least = max(least, value)
            else:
                good &= value <= 0.0
    return bool(good and least <= most)


cdef inline double best_inner(
    Places* p, int h, int side, int j, int g, const double* seq, const double* gseq
) noexcept nogil:
    """max over inner children i before place j, none being g, of the sum of their parts."""
    cdef int i
    cdef double value, top = -INFINITY
    cdef Py_ssize_t row = triangle(j)
    for i in range(j):
        if i and sided_child(p, h, side, i) == g:
            continue
        value = (seq[row + i] if seq != NULL else 0.0) + (gseq[row + i] if gseq != NULL else 0.0)
        if value > top:
            top = value
    return top


def reach(
    Layout layout,
    const double[::1] arcs,              # IN  (arcs,)
    const double[::1] sib,               # IN  (parts,) or None, as the next three
    const double[::1] childseq,
    const double[::1] grand,
    const double[::1] grandsib,
):
    """A bound from above on the sum of arcs and parts of any tree.

    Each word has one head, one grandparent and one child of its head before it; each side of a
    word has one outermost child, or none:

        sum_m max_{h, g, i} (arc + grand + childseq + grandsib) + sum_{h, side} max_{g, i} (END's)

    with all its positive SIB parts for an arc.  ValueError for arrays of the wrong length or with
    NaN or +inf; -inf is in no tree.  O(arcs + parts).
    """
    cdef Places* p = &layout.places
    cdef const double* link = checked("candidate arcs", arcs, p.arcs, True)
    cdef const double* siblings = checked("parts sib", sib, p.sib[p.n + 1], True)
    cdef const double* seq = checked("parts childseq", childseq, p.childseq[2 * p.n + 2], True)
    cdef const double* up = checked("parts grand", grand, p.grand[p.arcs], True)
    cdef const double* gseq = checked("parts grandsib", grandsib, p.grandsib[p.arcs], True)
    cdef const double* row
    cdef double* top = <double*>allocate((p.n + 1) * sizeof(double))
    cdef double value, best, inner, total = 0.0
    cdef int h, side, j, i, k, a, m, count, arc
    with nogil:
        for m in range(p.n + 1):
            top[m] = -INFINITY
        for h in range(p.n + 1):
            for side in range(0 if h else 1, 2):
                count = side_count(p, h, side)
                row = seq + p.childseq[2 * h + side] if seq != NULL else NULL
                for j in range(1, count + 2):
                    m = sided_child(p, h, side, j) if j <= count else -1
                    k = p.n_left[h] + (j - 1 if side else -j)    # its rank, ascending
                    inner = best_inner(p, h, side, j, -1, row, NULL) if seq != NULL else 0.0
                    best = inner if h == 0 else -INFINITY
                    for a in range(p.offsets[h - 1] if h else 0, p.offsets[h] if h else 0):
                        if p.heads[a] == m:
                            continue
                        value = inner
                        if gseq != NULL:
                            value = best_inner(
                                p, h, side, j, p.heads[a], row,
                                gseq + p.grandsib[a] + (p.childseq[2 * h + side] - p.childseq[2 * h]))
                        if up != NULL and m >= 0:
                            value += up[p.grand[a] + k]
                        if value > best:
                            best = value
                    if m < 0:
                        total += best
                        continue
                    arc = p.children[p.first[h] + k]
                    best += link[arc]
                    if siblings != NULL:
                        for i in range(k):
                            best += max(0.0, siblings[p.sib[h] + triangle(k) + i])
                    if best > top[m]:
                        top[m] = best
        for m in range(1, p.n + 1):
            total += top[m]
        free(top)
    return total


# ---- slacks of spanning trees ------------------------------------------------------------------
#
# The tree polytope: one arc into each word, at least one into each set S of words.  A dual solution
# has y_m of any sign for a word and y_S <= 0 for a set; an arc h -> m has the slack
#
#     r = sum over v that hold m and not h, words and sets, of y_v - score(h -> m)  >= 0
#
# and the best tree uses arcs of slack 0 only.  Chu-Liu/Edmonds finds one: y_v is the best score of
# an arc into v, less what the words and sets within v give up for it.
#
# It is a corner, with slack 0 for all arcs of the cycles that were broken.  Any set S of words that
# the tree enters once, at m, may be charged more: arcs from within S to m gain what arcs into S at
# other words lose.  `spread` shares out the slack, so that a change of scores finds some on both
# sides.  With a single root the arcs of the root are charged together, by any amount.

cdef struct Dual:
    Py_ssize_t n
    double* r                    # (n+1, n+1) [modifier, head] score, then slack; inf: no arc
    double* column               # (n+1, n+1) [slot, head]
    double* y                    # (2n+2,) by word or set
    double* sums                 # (2n+2,) of y, from a word up to before a set that holds it
    int* parent                  # (2n+2,) the set that holds a word or set; 0: none
    int* slot                    # (2n+2,)
    int* state                   # (2n+2,) 0 unseen, 1 on the path, 2 attached
    int* stamp                   # (2n+2,)
    int* top                     # (n+1,) the largest set that holds a word
    int* path                    # (2n+2,)
    char* inside                 # (n+1,)


cdef bint contract(Dual* s) noexcept nogil:
    """Chu-Liu/Edmonds, growing paths; fills y and parent.  False if there is no tree.  O(n^2)."""
    cdef Py_ssize_t n = s.n, width = n + 1, m, h, at, length, start
    cdef int node, found, made = <int>n, member
    cdef double value
    cdef double* kept
    cdef double* other
    for m in range(1, width):
        s.top[m] = s.slot[m] = <int>m
        for h in range(width):
            s.column[m * width + h] = s.r[m * width + h]
    for start in range(1, width):
        if s.state[s.top[start]] == 2:
            continue
        s.path[0], length = s.top[start], 1
        s.state[s.path[0]] = 1
        while True:
            node = s.path[length - 1]
            kept = s.column + s.slot[node] * width
            at, value = 0, kept[0]
            for h in range(1, width):
                if kept[h] > value:
                    at, value = h, kept[h]
            if value == -INFINITY:
                return False
            s.y[node] = value
            if at == 0 or s.state[s.top[at]] == 2:
                break
            found = s.top[at]
            if s.state[found] == 0:
                s.state[found] = 1
                s.path[length] = found
                length += 1
                continue
            made += 1
            kept = s.column + s.slot[found] * width
            for h in range(width):
                kept[h] -= s.y[found]
            while True:
                length -= 1
                member = s.path[length]
                s.parent[member] = made
                if member == found:
                    break
                other = s.column + s.slot[member] * width
                for h in range(width):
                    if other[h] - s.y[member] > kept[h]:
                        kept[h] = other[h] - s.y[member]
            for h in range(1, width):
                if s.parent[s.top[h]] == made:
                    s.top[h] = made
                    kept[h] = -INFINITY
            s.slot[made] = s.slot[found]
            s.state[made] = 1
            s.path[length] = made
            length += 1
        for h in range(length):
            s.state[s.path[h]] = 2
    return True


cdef void measure(Dual* s) noexcept nogil:
    """Turn scores into slacks.  O(arcs depth of the sets)."""
    cdef Py_ssize_t width = s.n + 1, m, h
    cdef int node
    cdef double total
    for m in range(1, width):
        total, node = 0.0, <int>m
        while node:
            s.stamp[node], s.sums[node] = <int>m, total
            total += s.y[node]
            node = s.parent[node]
        for h in range(width):
            if s.r[m * width + h] == -INFINITY:
                s.r[m * width + h] = INFINITY
                continue
            node = <int>h
            while node and s.stamp[node] != m:
                node = s.parent[node]
            s.r[m * width + h] = max(
                0.0, (s.sums[node] if node else total) - s.r[m * width + h])


cdef double balance(Dual* s, int m, double least) noexcept nogil:
    """Charge the set ``inside``, which the tree enters at m, so that gain and loss are even.

    Returns the charge, at least ``least``.  O(n) for each word of the set.
    """
    cdef Py_ssize_t width = s.n + 1, h, k
    cdef double gain = INFINITY, loss = INFINITY, step
    for h in range(1, width):
        if s.inside[h] and h != m:
            gain = min(gain, s.r[m * width + h])
    for k in range(1, width):
        if s.inside[k] and k != m:
            for h in range(width):
                if not s.inside[h]:
                    loss = min(loss, s.r[k * width + h])
    if gain == loss:
        return 0.0
    step = INFINITY if loss == INFINITY else max(least, 0.5 * (loss - gain))
    if step == 0.0:
        return 0.0
    for h in range(1, width):
        if s.inside[h] and h != m and s.r[m * width + h] < INFINITY:
            s.r[m * width + h] = max(0.0, s.r[m * width + h] + step)
    for k in range(1, width):
        if s.inside[k] and k != m:
            for h in range(width):
                if not s.inside[h] and s.r[k * width + h] < INFINITY:
                    s.r[k * width + h] = max(0.0, s.r[k * width + h] - step)
    return step


cdef int nearest_below(Dual* s, const int[::1] tree, Py_ssize_t m) noexcept nogil:
    """The descendant of m that is nearest to being its head, the lowest of equal ones; 0: none."""
    cdef Py_ssize_t width = s.n + 1, h
    cdef int at = 0, node
    for h in range(1, width):
        if h == m or s.r[m * width + h] == INFINITY:
            continue
        if at and s.r[m * width + h] >= s.r[m * width + at]:
            continue
        node = <int>h
        while node > 0 and node != m:
            node = tree[node]
        if node == m:
            at = <int>h
    return at


cdef void spread(Dual* s, const int[::1] tree, bint single_root, int sweeps) noexcept nogil:
    """Share out slack: by the sets that Chu-Liu/Edmonds found; for each word by the path to
    `nearest_below`; by all words.  O(n) for each word of each set, each sweep."""
    cdef Py_ssize_t width = s.n + 1, m
    cdef int sweep, at, node, entries, top
    for sweep in range(sweeps):
        entries = top = 0
        for m in range(1, width):
            s.inside[m] = True
            if tree[m] == 0:
                entries, top = entries + 1, <int>m
        s.inside[0] = False
        if entries == 1:
            balance(s, top, -INFINITY if single_root else 0.0)
        for node in range(2 * <int>s.n + 1, <int>s.n, -1):
            if not s.y[node] < 0.0:
                continue
            entries = top = 0
            memset(s.inside, 0, width)
            for m in range(1, width):
                at = <int>m
                while at and at != node:
                    at = s.parent[at]
                s.inside[m] = at == node
            for m in range(1, width):
                if s.inside[m] and not s.inside[tree[m]]:
                    entries, top = entries + 1, <int>m
            if entries == 1:
                s.y[node] -= balance(s, top, s.y[node])
        for m in range(1, width):
            at = nearest_below(s, tree, m)
            if at:
                memset(s.inside, 0, width)
                s.inside[m] = True
                while at != m:
                    s.inside[at] = True
                    at = tree[at]
                balance(s, <int>m, 0.0)


def slacks(
    const int32_t[::1] heads,            # IN   (arcs,) candidate arcs, by modifier
    const int32_t[::1] modifiers,        # IN   (arcs,)
    const double[::1] scores,            # IN   (arcs,) finite
    const int[::1] tree,                 # IN   (n+1,) a best spanning tree
    bint single_root,
    double[::1] out,                     # OUT  (arcs,) 0 for the tree's, else >= 0, may be +inf
    int sweeps=3,
):
    """Slacks of arcs: the tree is better than another by at least the sum over the other's arcs.

    False, ``out`` undefined, if the tree is not the best of all spanning trees.  Edmonds (1967).
    O(n^2) but for `spread`; O(n^2) memory.
    """
    cdef Py_ssize_t n = tree.shape[0] - 1, width = n + 1, a, m, count = heads.shape[0]
    cdef Py_ssize_t nodes = 2 * n + 2
    cdef double low = INFINITY, high = -INFINITY, charge = 0.0, total = 0.0, unit
    cdef bint optimal = False
    cdef Dual s
    cdef void* memory = allocate(
        (2 * width * width + 2 * nodes) * sizeof(double) + (5 * nodes + width) * sizeof(int) + width)
    with nogil:
        s.n = n
        s.r = <double*>memory
        s.column = s.r + width * width
        s.y = s.column + width * width
        s.sums = s.y + nodes
        s.parent = <int*>(s.sums + nodes)
        s.slot = s.parent + nodes
        s.state = s.slot + nodes
        s.stamp = s.state + nodes
        s.path = s.stamp + nodes
        s.top = s.path + nodes
        s.inside = <char*>(s.top + width)
        memset(s.y, 0, nodes * sizeof(double))
        memset(s.parent, 0, 4 * nodes * sizeof(int))
        for a in range(width * width):
            s.r[a] = -INFINITY
        for a in range(count):
            low, high = min(low, scores[a]), max(high, scores[a])
        unit = max(fabs(low), fabs(high))
        if single_root:          # a charge on every arc of the root that no second one is worth
            charge = n * (high - low) + 1.0
        for a in range(count):
            s.r[modifiers[a] * width + heads[a]] = scores[a] - (charge if heads[a] == 0 else 0.0)
        s.top[0] = 0
        if contract(&s):
            for m in range(1, width):            # the value of the dual less that of the tree
                total += s.y[m] - s.r[m * width + tree[m]]
            for m in range(width, nodes):
                total += s.y[m]
            optimal = total <= 1e-11 * n * max(1.0, unit)
        if optimal:
            measure(&s)
            for m in range(1, width):
                s.r[m * width + tree[m]] = 0.0
            spread(&s, tree, single_root, sweeps)
            for a in range(count):
                out[a] = s.r[modifiers[a] * width + heads[a]]
        free(memory)
    return optimal
