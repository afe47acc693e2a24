"""Dual decomposition: head automata and a tree that must agree (Koo et al. 2010).

A graph with LINK s, CHILDSEQ seq, GRAND and GRANDSIB is cut into one problem for each head h and
one over trees.  The automaton of h chooses its own head g and, of its candidate children, any set
without g.  With the children of a side x_1, x_2, ... outwards and the arc a = (g -> h):

    B[0] = 0
    B[j] = dn[x_j] + grand[a, x_j] + max_{i<j} B[i] + seq[x_i, x_j] + grandsib[a, x_i, x_j]
    V[a, side] = max_j B[j] + seq[x_j, END] + grandsib[a, x_j, END]

    automaton(h) = max_a up[a] + V[a, left] + V[a, right]
    tree = max over trees y of sum_{a in y} own[a]

O(K) sides of O(K^2) for a head with K candidates each way; O(n^4) over all arcs.  Without GRAND and
GRANDSIB an automaton chooses no head, and all is O(n^3).  With a single root, the root's automaton
has one child.

An arc has three copies, as a child z, as the head of a word w, and in the tree y, among which its
score is split, so that always dn + up + own = s.  Their sum of maxima is a dual: no tree scores
more.  Where a copy differs from the tree's, its score moves by the step size to the tree's copy:

    dn -= alpha (z - y)      up -= alpha (w - y)      own += alpha (z - y) + alpha (w - y)

When all copies agree, the tree is the best one.

A change always goes against the choice of the automaton that it concerns, so automata whose copies
agree with the tree keep their solutions, and are not solved again.
"""
from libc.math cimport INFINITY
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

from cython_ext cimport arborescence, eisner, lagrangian
from cython_ext.blocks cimport borrow, give_back
from cython_ext.lagrangian cimport Track
from cython_ext.layout cimport (
    Layout, Places, checked, cross, find_arc, outward, side_count, sided_arc, triangle,
)


cdef double chain(Automata* d, int h, int side, int a) noexcept nogil:
    """V[a, side] exactly, and the way back from its last child; a >= arcs: no head is chosen."""
    cdef Places* p = d.p
    cdef int count = side_count(p, h, side), i, j, best, b
    cdef int* back = d.back + side * (p.n + 2)
    cdef bint chooses = a < p.arcs, lone = h == 0 and d.single_root
    cdef const double* seq = NULL
    cdef const double* gsib = NULL
    cdef const double* grand = NULL
    cdef const double* zeros = d.zeros
    cdef const double* row
    cdef const double* other
    cdef double* B = d.B
    cdef int low, ways
    cdef double top, term, add
    if d.childseq != NULL:
        seq = d.childseq + p.childseq[2 * h + side]
    if chooses and d.grandsib != NULL:
        gsib = d.grandsib + p.grandsib[a] + p.childseq[2 * h + side] - p.childseq[2 * h]
    if chooses and d.grand != NULL:
        grand = d.grand + p.grand[a]
    B[0] = 0.0
    for j in range(1, count + 2):
        add = 0.0
        if j <= count:
            b = sided_arc(p, h, side, j)
            add = d.dn[b]
            if grand != NULL:
                add += grand[p.rank[b]]
            if chooses and p.modifiers[b] == p.heads[a]:
                add = -INFINITY
            if add == -INFINITY:
                B[j] = add
                continue
        top, best = -INFINITY, 0
        low, ways = 1 if lone and j > count else 0, 1 if lone and j <= count else j
        row, other = zeros, zeros
        if seq != NULL:
            row = seq + triangle(j)
        if gsib != NULL:
            other = gsib + triangle(j)
            for i in range(low, ways):
                term = B[i] + row[i] + other[i]
                best = i if term > top else best
                top = term if term > top else top
        else:
            for i in range(low, ways):
                term = B[i] + row[i]
                best = i if term > top else best
                top = term if term > top else top
        B[j] = top + add
        back[j] = best
    d.V[2 * a + side] = B[count + 1]
    d.loose[2 * a + side] = 0
    d.walked[side] = a
    return B[count + 1]


cdef void adopt(Automata* d, int h, int side, int a) noexcept nogil:
    """z of a side, by the way back of V[a, side]."""
    cdef Places* p = d.p
    cdef int j
    cdef int* back = d.back + side * (p.n + 2)
    if d.walked[side] != a:
        chain(d, h, side, a)
    for j in range(1, side_count(p, h, side) + 1):
        d.z[sided_arc(p, h, side, j)] = 0
    j = back[side_count(p, h, side) + 1]
    while j > 0:
        d.z[sided_arc(p, h, side, j)] = 1
        j = back[j]


cdef void solve_head(Automata* d, int h) noexcept nogil:
    """The best choice of an automaton.

    Of the bounds V only the largest are made exact, until one that is exact is at the top.
    """
    cdef Places* p = d.p
    cdef int side, a, low, high, best
    cdef double value, top
    cdef bint chooses = d.choose and h > 0, exact = False
    low = p.offsets[h - 1] if chooses else p.arcs + h
    high = p.offsets[h] if chooses else low + 1
    d.walked[0] = d.walked[1] = -1
    while not exact:
        best, top = low, -INFINITY
        for a in range(low, high):
            value = d.up[a] if chooses else 0.0
            if value > -INFINITY:
                value += d.V[2 * a] + d.V[2 * a + 1]
                if value > top:
                    top, best = value, a
        exact = True
        for side in range(2):
            if d.loose[2 * best + side]:
                chain(d, h, side, best)
                exact = False
    d.value[h] = top
    for side in range(0 if h else 1, 2):
        if d.stale[2 * h + side] or best != d.state[h]:
            adopt(d, h, side, best)
            d.stale[2 * h + side] = 0
    d.state[h] = best


cdef void loosen(Automata* d, int h, int side, double change) noexcept nogil:
    """A dn on this side rose by so much, or fell."""
    cdef Places* p = d.p
    cdef bint chooses = d.choose and h > 0
    cdef int a, low = p.offsets[h - 1] if chooses else p.arcs + h
    for a in range(low, p.offsets[h] if chooses else low + 1):
        d.V[2 * a + side] += max(0.0, change)
        d.loose[2 * a + side] = 1
    d.stale[2 * h + side] = 1


cdef double greedy(Automata* d) noexcept nogil:
    """The best arc into each word; their sum."""
    cdef Places* p = d.p
    cdef int a, m, best
    cdef double top, value = 0.0
    for m in range(1, p.n + 1):
        best, top = p.offsets[m - 1], -INFINITY
        for a in range(p.offsets[m - 1], p.offsets[m]):
            if d.own[a] > top:
                best, top = a, d.own[a]
        d.into[m], d.heads[m] = best, p.heads[best]
        value += top
    return value


cdef bint fits(Automata* d) noexcept nogil:
    """Whether the heads are a tree of the graph's kind."""
    cdef int n = d.p.n, m, k, roots = 0
    for m in range(1, n + 1):
        roots += d.heads[m] == 0
    if d.single_root and roots != 1:
        return False
    memset(d.back, 0, (n + 1) * sizeof(int))     # the walk that a word was met in
    for m in range(1, n + 1):
        k = m
        while k and not d.back[k]:
            d.back[k] = m
            k = d.heads[k]
        if k and d.back[k] == m:
            return False
    return not d.projective or not crossing(d)


cdef bint crossing(Automata* d) noexcept nogil:
    """Whether two arcs of the tree cross."""
    cdef int m, k
    for m in range(2, d.p.n + 1):
        for k in range(1, m):
            if cross(d.heads[m], m, d.heads[k], k):
                return True
    return False


cdef double best_tree(Automata* d) noexcept nogil:
    """By `own`, and its arcs; -inf if there is none."""
    cdef Places* p = d.p
    cdef int n = p.n, m, a
    cdef double value
    for a in range((n + 1) * (n + 1)):
        d.matrix[a] = -INFINITY
    for a in range(p.arcs):
        d.matrix[p.heads[a] * (n + 1) + p.modifiers[a]] = d.own[a]
    if d.projective:
        value = eisner.decode(d.matrix, n + 1, n, d.single_root, d.heads, d.scratch)
    else:
        value = arborescence.decode(d.matrix, n + 1, n, d.single_root, d.heads, d.scratch)
    if value > -INFINITY:
        for m in range(1, n + 1):
            d.into[m] = find_arc(p, d.heads[m], m)
    return value


cdef double solve_tree(Automata* d) noexcept nogil:
    """As `best_tree`, but quickly if the best arcs into the words are one."""
    cdef double value = greedy(d)
    return value if value > -INFINITY and fits(d) else best_tree(d)


cdef double adjacent(Automata* d, int h, int side, int inner, int outer) noexcept nogil:
    """CHILDSEQ and GRANDSIB of two places among the children of a side, in the tree."""
    cdef Places* p = d.p
    cdef int64_t place = p.childseq[2 * h + side] + triangle(outer) + inner
    cdef double value = d.childseq[place] if d.childseq != NULL else 0.0
    if d.grandsib != NULL and h:
        value += d.grandsib[p.grandsib[d.into[h]] + place - p.childseq[2 * h]]
    return value


cdef double score(Automata* d) noexcept nogil:
    """Of the tree, under all families.  O(n)."""
    cdef Places* p = d.p
    cdef int n = p.n, h, m, side, at, k, count
    cdef int* last = d.back                      # by head, the place of the outermost on a side
    cdef int* words = d.back + n + 1             # on this side of their heads, outwards
    cdef double value = 0.0
    for m in range(1, n + 1):
        value += d.link[d.into[m]]
        if d.grand != NULL and d.heads[m]:
            value += d.grand[p.grand[d.into[d.heads[m]]] + p.rank[d.into[m]]]
    if d.childseq == NULL and d.grandsib == NULL:
        return value
    for side in range(2):
        memset(last, 0, (n + 1) * sizeof(int))
        count = 0
        for k in range(1, n + 1):                # without branches that cannot be foretold
            m = k if side else n + 1 - k
            words[count] = m
            count += (d.heads[m] < m) == side
        for k in range(count):
            m = words[k]
            h, at = d.heads[m], outward(p, d.into[m])
            value += adjacent(d, h, side, last[h], at)
            last[h] = at
        for h in range(1 - side, n + 1):
            value += adjacent(d, h, side, last[h], side_count(p, h, side) + 1)
    return value


cdef void renew(Automata* d, int h) noexcept nogil:
    """All that is known of an automaton's solution is forgotten."""
    cdef int side
    for side in range(0 if h else 1, 2):
        loosen(d, h, side, INFINITY)
    d.moved[h] = 1


cdef void forget(Automata* d) noexcept nogil:
    """All solutions of automata."""
    cdef int h
    for h in range(d.p.n + 1):
        d.state[h] = -1
        renew(d, h)


cdef int build(Automata* d, Layout layout, const double[::1] scores,
               const double[::1] childseq, const double[::1] grand,
               const double[::1] grandsib, bint projective, bint single_root) except -1:
    """Room for a graph, d.room, to be given back by the caller.  Scores of copies are not set, and
    before automata are solved, `forget` has to be called."""
    cdef Places* p = &layout.places
    cdef int n = p.n, arcs = p.arcs, rows = arcs + n + 1
    cdef size_t tree = eisner.scratch_bytes(n) if projective else arborescence.scratch_bytes(n)
    cdef size_t doubles = 3 * arcs + 2 * rows + 3 * n + 5
    cdef size_t ints = 3 * (n + 1) + 2 * (n + 2), chars = arcs + 2 * rows + 3 * (n + 1)
    cdef size_t cleared = (doubles * sizeof(double) + ints * sizeof(int) + chars + 7) // 8 * 8
    memset(d, 0, sizeof(Automata))
    d.p, d.projective, d.single_root = p, projective, single_root
    d.link = checked("arcs", scores, arcs, True)
    d.childseq = checked("adjacent siblings", childseq, p.childseq[2 * n + 2])
    d.grand = checked("grandparents", grand, p.grand[arcs])
    d.grandsib = checked("grand-siblings", grandsib, p.grandsib[arcs])
    d.choose = d.grand != NULL or d.grandsib != NULL
    d.room = borrow(cleared + (n + 1) * (n + 1) * sizeof(double) + tree, &d.size)
    memset(d.room, 0, cleared)
    d.dn = <double*>d.room
    d.up = d.dn + arcs
    d.own = d.up + arcs
    d.V = d.own + arcs
    d.value = d.V + 2 * rows
    d.B = d.value + n + 1
    d.zeros = d.B + n + 2
    d.matrix = <double*>(<char*>d.room + cleared)
    d.scratch = d.matrix + (n + 1) * (n + 1)
    d.state = <int*>(d.dn + doubles)
    d.heads = d.state + n + 1
    d.into = d.heads + n + 1
    d.back = d.into + n + 1
    d.z = <char*>(d.back + 2 * (n + 2))
    d.loose = d.z + arcs
    d.stale = d.loose + 2 * rows
    d.moved = d.stale + 2 * (n + 1)
    d.heads[0] = -1
    return 0


cdef void split_scores(Automata* d, double split, const double[:, ::1] multipliers) noexcept nogil:
    """Scores of the copies: shares of the arcs' and multipliers."""
    cdef double share = split / 2 if d.choose else split
    cdef int a
    for a in range(d.p.arcs):
        if d.link[a] == -INFINITY:
            d.dn[a] = d.up[a] = d.own[a] = -INFINITY
            continue
        d.dn[a] = share * d.link[a] + multipliers[0, a]
        d.up[a] = share * d.link[a] + multipliers[1, a] if d.choose else 0.0
        d.own[a] = d.link[a] - d.dn[a] - d.up[a]


cdef void read_multipliers(Automata* d, double split, double[:, ::1] multipliers) noexcept nogil:
    """The inverse of `split_scores`."""
    cdef double share = split / 2 if d.choose else split
    cdef int a
    for a in range(d.p.arcs):
        multipliers[0, a] = multipliers[1, a] = 0.0
        if d.link[a] > -INFINITY:
            multipliers[0, a] = d.dn[a] - share * d.link[a]
            if d.choose:
                multipliers[1, a] = d.up[a] - share * d.link[a]


cdef inline int z_less_y(Automata* d, int a) noexcept nogil:
    return d.z[a] - (d.into[d.p.modifiers[a]] == a)


cdef inline int w_less_y(Automata* d, int a) noexcept nogil:
    cdef int m = d.p.modifiers[a]
    return (d.state[m] == a) - (d.into[m] == a) if d.choose else 0


cdef int disagreement(Automata* d) noexcept nogil:
    """Copies that differ from the tree's."""
    cdef int a, out = 0
    for a in range(d.p.arcs):
        out += (z_less_y(d, a) != 0) + (w_less_y(d, a) != 0)
    return out


cdef void shift(Automata* d, double alpha) noexcept nogil:
    """Moves the scores of copies that differ from the tree's."""
    cdef Places* p = d.p
    cdef int a, z, w
    for a in range(p.arcs):
        z, w = z_less_y(d, a), w_less_y(d, a)
        if z:
            d.dn[a] -= alpha * z
            loosen(d, p.heads[a], p.modifiers[a] > p.heads[a], -alpha * z)
            d.moved[p.heads[a]] = 1
        if w:
            d.up[a] -= alpha * w
            d.moved[p.modifiers[a]] = 1
        if z or w:
            d.own[a] += alpha * (z + w)


def solve(
    Layout layout not None,
    const double[::1] scores,    # IN    (arcs,); -inf forbids an arc
    const double[::1] childseq,  # IN    None without parts of a family
    const double[::1] grand,
    const double[::1] grandsib,
    bint projective,
    bint single_root,
    int rule,
    double scale,                # IN    of the steps; 0: of the first gap
    double split,                # IN    share of an arc's score that the automata start with
    int iterations,              # IN    at most, at least 1
    double[:, ::1] multipliers,  # INOUT (2, arcs) dn and up above their shares; those of the dual
    int[::1] heads,              # OUT   (n+1,) the best tree met
    double[::1] averages not None, # OUT   (arcs,) zeros that become the mean of all copies
    float[::1] resolved,         # OUT   (iterations,) share of the automata that were solved
):
    """(primal, dual, iterations, whether all copies agreed); primal is -inf if there is no tree.

    An iteration takes as long as the automata that it solves, and O(n^2), projective O(n^3), for
    the tree.  Releases the GIL.
    """
    cdef Automata d
    cdef Track track
    cdef int n = layout.places.n, arcs = layout.places.arcs, a, h, k = 0, differ = -1, solved
    cdef double dual, tree, primal, step
    build(&d, layout, scores, childseq, grand, grandsib, projective, single_root)
    with nogil:
        forget(&d)
        split_scores(&d, split, multipliers)
        lagrangian.start(&track, rule, scale)
        while k < iterations:
            solved, dual = 0, 0.0
            for h in range(n + 1):
                if d.moved[h]:
                    solve_head(&d, h)
                    d.moved[h] = 0
                    solved += 1
                dual += d.value[h]
            resolved[k] = <float>solved / (n + 1)
            k += 1
            tree = solve_tree(&d)
            if tree == -INFINITY:
                break
            dual += tree
            primal = score(&d)
            if primal > track.primal:
                memcpy(&heads[0], d.heads, (n + 1) * sizeof(int))
            if dual < track.dual:
                read_multipliers(&d, split, multipliers)
            for a in range(arcs):
                h = d.p.modifiers[a]
                averages[a] += d.z[a] + (d.into[h] == a) + (d.choose and d.state[h] == a)
            differ = disagreement(&d)
            step = lagrangian.advance(&track, dual, primal, differ)
            if differ == 0 or lagrangian.closed(&track):
                break
            shift(&d, step)
        for a in range(arcs):
            averages[a] /= k * (3 if d.choose else 2)
    give_back(d.room, d.size)
    return track.primal, track.dual, k, differ == 0
