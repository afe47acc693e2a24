"""AD3: alternating directions dual decomposition (Martins et al. 2011, 2015).

A tree, head automata (automata.pyx), and a factor for each SIB part and each two arcs that cross
under a NOCROSS part.  An arc a with score s_a has a copy in each of its d_a factors: in the tree,
as a child in the automaton of its head, as the head in the automaton of its word, and in pairs.
With averages mu and multipliers lam, which sum to 0 over the copies of an arc, an iteration is

    nu_f = argmin over the marginal polytope of factor f of
           |nu - t|^2 / 2 - (extra scores . extra marginals) / eta,
           t_ia = mu_a + (s_a / d_a + lam_ia) / eta
    mu_a = mean of its nu,    lam_ia -= eta (nu_ia - mu_a)

and goes on until all nu equal mu, which then is the optimum of the linear program.

A pair's problem has a closed form.  A tree's or an automaton's is solved by an active set: weights
w >= 0, sum w = 1 of some configurations x_c with extra scores e_c, nu = sum w_c x_c, solve

    min |nu - t|^2 / 2 - e . w / eta      x_c . (nu - t) - e_c / eta = -tau   for all c in the set

and the best configuration under t - nu comes into the set if its value is above tau, until there is
none.  Sets last from iteration to iteration.  Factors whose t did not change are skipped.

The dual is the sum of the factors' best values under s_a / d_a + lam, a bound at any time.
"""
from libc.math cimport INFINITY, fabs, sqrt
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from cython_ext.automata cimport (
    Automata, build, forget, renew, score, solve_head, solve_tree,
)
from cython_ext.blocks cimport give_back
from cython_ext.layout cimport Layout, Places, checked, cross, triangle

cdef enum:
    SIZE = 16                    # configurations in an active set
    STEPS = 12                   # of an active set in one iteration


cdef double SAME = 1e-12         # a change of t that changes no solution
cdef double RIDGE = 1e-10        # configurations may be affinely dependent


cdef struct Active:
    int count
    int width                    # largest configuration
    int* copies                  # (SIZE, width) of each configuration
    int* length                  # (SIZE,)
    double* weight               # (SIZE,)
    double* extra                # (SIZE,)
    double* gram                 # (SIZE, SIZE)


cdef struct Problem:
    Automata d
    int pairs
    int copies                   # tree, child, head: arc + 0, 1, 2 times arcs; pairs from 3 arcs on
    int* arc                     # (copies,)
    double* joint                # (pairs,)
    double* share                # (arcs,) s_a / d_a
    int* degree                  # (arcs,)
    double* mu                   # (arcs,)
    double* lam                  # (copies,)
    double* nu                   # (copies,)
    double* t                    # (copies,)
    double* old                  # (copies,) t at the last solution
    char* mark                   # (copies,)
    Active* active               # (n+2,) of the automata; of the tree at n+1
    double eta


cdef inline double clip(double x) noexcept nogil:
    return min(1.0, max(0.0, x))


cdef void solve_pair(double a, double b, double c, double* x, double* y) noexcept nogil:
    """min (x - a)^2 / 2 + (y - b)^2 / 2 - c z, max(0, x + y - 1) <= z <= min(x, y)."""
    cdef double u
    if c < 0:                    # z = x - z' with z' the joint of x and 1 - y
        solve_pair(a + c, 1.0 - b, -c, x, y)
        y[0] = 1.0 - y[0]
    elif a > b + c:
        x[0], y[0] = clip(a), clip(b + c)
    elif b > a + c:
        x[0], y[0] = clip(a + c), clip(b)
    else:
        u = clip((a + b + c) / 2)
        x[0] = y[0] = u


cdef int find_best(Problem* p, int f, int* copies, double* value, double* extra) noexcept nogil:
    """The best configuration of a factor under eta (t - nu) and its extra scores: its length."""
    cdef Automata* d = &p.d
    cdef Places* q = d.p
    cdef int arcs = q.arcs, n = q.n, k = 0, a, i
    cdef double plain = 0.0
    if f == n + 1:
        for a in range(arcs):
            d.own[a] = p.eta * (p.t[a] - p.nu[a])
        value[0] = solve_tree(d) / p.eta
        extra[0] = 0.0
        for i in range(1, n + 1):
            copies[i - 1] = d.into[i]
        return n
    for i in range(q.first[f], q.first[f + 1]):
        a = q.children[i]
        d.dn[a] = p.eta * (p.t[arcs + a] - p.nu[arcs + a])
    if d.choose and f:
        for a in range(q.offsets[f - 1], q.offsets[f]):
            d.up[a] = p.eta * (p.t[2 * arcs + a] - p.nu[2 * arcs + a])
    renew(d, f)
    solve_head(d, f)
    value[0] = d.value[f] / p.eta
    for i in range(q.first[f], q.first[f + 1]):
        a = q.children[i]
        if d.z[a]:
            copies[k] = arcs + a
            plain += d.dn[a]
            k += 1
    if d.choose and f:
        copies[k] = 2 * arcs + d.state[f]
        plain += d.up[d.state[f]]
        k += 1
    extra[0] = d.value[f] - plain
    return k


cdef bint solve_weights(Problem* p, Active* s, double* w, double* tau) noexcept nogil:
    """The minimum over weights that sum to 1, of any sign.  O(SIZE^3)."""
    cdef double[(SIZE + 1) * (SIZE + 2)] rows
    cdef int n = s.count, wide = n + 2, i, j, k, best
    cdef double b, factor
    for i in range(n):
        b = s.extra[i] / p.eta
        for j in range(s.length[i]):
            b += p.t[s.copies[i * s.width + j]]
        for j in range(n):
            rows[i * wide + j] = s.gram[i * SIZE + j]
        rows[i * wide + i] += RIDGE
        rows[i * wide + n] = 1.0
        rows[i * wide + n + 1] = b
        rows[n * wide + i] = 1.0
    rows[n * wide + n] = 0.0
    rows[n * wide + n + 1] = 1.0
    for k in range(n + 1):
        best = k
        for i in range(k + 1, n + 1):
            if fabs(rows[i * wide + k]) > fabs(rows[best * wide + k]):
                best = i
        if fabs(rows[best * wide + k]) < 1e-14:
            return False
        if best != k:
            for j in range(k, wide):
                rows[k * wide + j], rows[best * wide + j] = (
                    rows[best * wide + j], rows[k * wide + j])
        for i in range(n + 1):
            if i != k:
                factor = rows[i * wide + k] / rows[k * wide + k]
                if factor:
                    for j in range(k, wide):
                        rows[i * wide + j] -= factor * rows[k * wide + j]
    for i in range(n):
        w[i] = rows[i * wide + n + 1] / rows[i * wide + i]
    tau[0] = rows[n * wide + n + 1] / rows[n * wide + n]
    return True


cdef void drop(Active* s, int c) noexcept nogil:
    """Takes a configuration out of a set; the last one gets its place."""
    cdef int last = s.count - 1, i
    if c != last:
        memcpy(s.copies + c * s.width, s.copies + last * s.width, s.length[last] * sizeof(int))
        s.length[c], s.weight[c], s.extra[c] = s.length[last], s.weight[last], s.extra[last]
        for i in range(last):
            s.gram[c * SIZE + i] = s.gram[i * SIZE + c] = s.gram[last * SIZE + i]
        s.gram[c * SIZE + c] = s.gram[last * SIZE + last]
    s.count = last


cdef bint admit(Problem* p, Active* s, int length, double extra) noexcept nogil:
    """Takes the configuration at `count` into a set, with weight 0; False if it is there."""
    cdef int c = s.count, i, j, common
    cdef int* own = s.copies + c * s.width
    for j in range(length):
        p.mark[own[j]] = 1
    s.length[c], s.weight[c], s.extra[c] = length, 0.0, extra
    for i in range(c + 1):
        common = 0
        for j in range(s.length[i]):
            common += p.mark[s.copies[i * s.width + j]]
        s.gram[c * SIZE + i] = s.gram[i * SIZE + c] = common
    for j in range(length):
        p.mark[own[j]] = 0
    for i in range(c):
        if s.length[i] == length and s.gram[c * SIZE + i] == length:
            return False
    s.count += 1
    return True


cdef void average(Problem* p, int f) noexcept nogil:
    """nu of a factor, by the weights of its set."""
    cdef Places* q = p.d.p
    cdef Active* s = p.active + f
    cdef int arcs = q.arcs, i, j, a
    if f == q.n + 1:
        memset(p.nu, 0, arcs * sizeof(double))
    else:
        for i in range(q.first[f], q.first[f + 1]):
            p.nu[arcs + q.children[i]] = 0.0
        if p.d.choose and f:
            for a in range(q.offsets[f - 1], q.offsets[f]):
                p.nu[2 * arcs + a] = 0.0
    for i in range(s.count):
        for j in range(s.length[i]):
            p.nu[s.copies[i * s.width + j]] += s.weight[i]


cdef void solve_active(Problem* p, int f) noexcept nogil:
    """nu of the tree or of an automaton."""
    cdef Active* s = p.active + f
    cdef double[SIZE + 1] w
    cdef double tau = 0.0, value = 0.0, extra = 0.0, ratio, least
    cdef int step, i, out, length
    if s.count == 0:
        average(p, f)            # of nothing: zeros
        length = find_best(p, f, s.copies, &value, &extra)
        admit(p, s, length, extra)
        s.weight[0] = 1.0
    for step in range(STEPS):
        if not solve_weights(p, s, w, &tau):
            break
        out, ratio = -1, 1.0
        for i in range(s.count):
            if w[i] < -1e-12 and s.weight[i] < ratio * (s.weight[i] - w[i]):
                out, ratio = i, s.weight[i] / (s.weight[i] - w[i])
        if out >= 0:             # as far as the weights stay above 0
            for i in range(s.count):
                s.weight[i] += ratio * (w[i] - s.weight[i])
            drop(s, out)
            continue
        for i in range(s.count):
            s.weight[i] = max(0.0, w[i])
        average(p, f)
        if s.count == SIZE:
            out, least = 0, INFINITY
            for i in range(s.count):
                if s.weight[i] < least:
                    out, least = i, s.weight[i]
            drop(s, out)
        length = find_best(p, f, s.copies + s.count * s.width, &value, &extra)
        if value <= tau + 1e-10 or not admit(p, s, length, extra):
            return
    least = 0.0
    for i in range(s.count):
        least += s.weight[i]
    for i in range(s.count):
        s.weight[i] /= least
    average(p, f)


cdef bint changed(Problem* p, int copy) noexcept nogil:
    """Whether t of a copy differs from what it was when its factor was solved."""
    cdef bint out = fabs(p.t[copy] - p.old[copy]) > SAME
    if out:
        p.old[copy] = p.t[copy]
    return out


cdef int solve_factors(Problem* p) noexcept nogil:
    """All nu; returns how many trees and automata were solved."""
    cdef Places* q = p.d.p
    cdef int arcs = q.arcs, f, i, a, solved = 0, k
    cdef double c
    cdef bint stale
    for i in range(p.copies):
        a = p.arc[i]
        p.t[i] = p.mu[a] + (p.share[a] + p.lam[i]) / p.eta
    for f in range(q.n + 2):
        stale = p.active[f].count == 0
        if f == q.n + 1:
            for a in range(arcs):
                stale |= changed(p, a)
        else:
            for i in range(q.first[f], q.first[f + 1]):
                stale |= changed(p, arcs + q.children[i])
            if p.d.choose and f:
                for a in range(q.offsets[f - 1], q.offsets[f]):
                    stale |= changed(p, 2 * arcs + a)
        if stale:
            solve_active(p, f)
            solved += 1
    for k in range(p.pairs):
        i = 3 * arcs + 2 * k
        c = p.joint[k] / p.eta
        solve_pair(p.t[i], p.t[i + 1], c, p.nu + i, p.nu + i + 1)
    return solved


cdef double dual_value(Problem* p) noexcept nogil:
    """The sum of the factors' best values under their shares and multipliers."""
    cdef Automata* d = &p.d
    cdef Places* q = d.p
    cdef int arcs = q.arcs, a, h, k, i
    cdef double value, x, y
    for a in range(arcs):
        d.own[a] = p.share[a] + p.lam[a]
        d.dn[a] = p.share[a] + p.lam[arcs + a]
        if d.choose:
            d.up[a] = p.share[a] + p.lam[2 * arcs + a]
    value = solve_tree(d)
    for h in range(q.n + 1):
        renew(d, h)
        solve_head(d, h)
        value += d.value[h]
    for k in range(p.pairs):
        i = 3 * arcs + 2 * k
        x = p.share[p.arc[i]] + p.lam[i]
        y = p.share[p.arc[i + 1]] + p.lam[i + 1]
        value += max(0.0, max(x, max(y, x + y + p.joint[k])))
    return value


cdef double full_score(Problem* p) noexcept nogil:
    """Of the tree found last, under all families."""
    cdef int k, i
    cdef double value = score(&p.d)
    for k in range(p.pairs):
        i = 3 * p.d.p.arcs + 2 * k
        if in_tree(p, p.arc[i]) and in_tree(p, p.arc[i + 1]):
            value += p.joint[k]
    return value


cdef inline bint in_use(Problem* p, int copy) noexcept nogil:
    """Whether there is such a copy: of automata that choose no head there are none above words."""
    return p.d.choose or not 2 * p.d.p.arcs <= copy < 3 * p.d.p.arcs


cdef inline bint in_tree(Problem* p, int a) noexcept nogil:
    return p.d.into[p.d.p.modifiers[a]] == a


cdef int list_pairs(Problem* p, const double* sib, const double* nocross, bint fill) noexcept nogil:
    """Counts the pairs with a score, or writes them down."""
    cdef Places* q = p.d.p
    cdef int h, i, j, a, b, l, m, k = 0
    cdef double c
    if sib != NULL:
        for h in range(q.n + 1):
            if h == 0 and p.d.single_root:
                continue         # no tree has two children of the root
            for j in range(1, q.first[h + 1] - q.first[h]):
                for i in range(j):
                    c = sib[q.sib[h] + triangle(j) + i]
                    if c:
                        if fill:
                            p.joint[k] = c
                            p.arc[3 * q.arcs + 2 * k] = q.children[q.first[h] + i]
                            p.arc[3 * q.arcs + 2 * k + 1] = q.children[q.first[h] + j]
                        k += 1
    if nocross != NULL:
        for l in range(2, q.n + 1):
            for m in range(1, l):
                c = nocross[triangle(l - 1) + m - 1]
                if not c:
                    continue
                for a in range(q.offsets[l - 1], q.offsets[l]):
                    for b in range(q.offsets[m - 1], q.offsets[m]):
                        if cross(q.heads[a], l, q.heads[b], m):
                            if fill:
                                p.joint[k] = c
                                p.arc[3 * q.arcs + 2 * k] = a
                                p.arc[3 * q.arcs + 2 * k + 1] = b
                            k += 1
    return k


def solve(
    Layout layout not None,
    const double[::1] scores,    # IN  (arcs,) finite
    const double[::1] sib,       # IN  None without parts of a family
    const double[::1] childseq,
    const double[::1] grand,
    const double[::1] grandsib,
    const double[::1] nocross,
    bint projective,
    bint single_root,
    double eta,
    int iterations,              # IN  at most
    double residual,             # IN  root mean squares of nu - mu and of the change of mu to stop at
    int interval,                # IN  iterations between two bounds
    int[::1] heads,              # OUT (n+1,) the best tree met
    double[::1] values,          # OUT (arcs,) mu
    float[::1] resolved,         # OUT (iterations,) share of the tree and automata that were solved
):
    """(primal, dual, iterations); primal is -inf if there is no tree.  Releases the GIL."""
    cdef Problem p
    cdef Places* q = &layout.places
    cdef int n = q.n, arcs = q.arcs, a, i, f, k = 0, width, solved
    cdef double primal = -INFINITY, dual = INFINITY, off = INFINITY, moved = INFINITY, mean, value
    cdef void* room
    cdef char* at
    cdef size_t doubles, ints
    memset(&p, 0, sizeof(Problem))
    cdef const double* of_sib = checked("siblings", sib, q.sib[n + 1])
    cdef const double* of_nocross = checked("crossings", nocross, triangle(n))
    build(&p.d, layout, scores, childseq, grand, grandsib, projective, single_root)
    forget(&p.d)
    p.pairs = list_pairs(&p, of_sib, of_nocross, False)
    p.copies = 3 * arcs + 2 * p.pairs
    p.eta = eta
    doubles = p.pairs + 2 * arcs + 4 * p.copies + (n + 2) * (2 * SIZE + SIZE * SIZE)
    ints = p.copies + arcs + (n + 2) * SIZE
    for f in range(n + 2):
        ints += SIZE * active_width(q, f)
    room = calloc(doubles * sizeof(double) + ints * sizeof(int) + p.copies
                  + (n + 2) * sizeof(Active), 1)
    if room == NULL:
        give_back(p.d.room, p.d.size)
        raise MemoryError
    p.active = <Active*>room
    p.joint = <double*>(p.active + n + 2)
    p.share = p.joint + p.pairs
    p.mu = p.share + arcs
    p.lam = p.mu + arcs
    p.nu = p.lam + p.copies
    p.t = p.nu + p.copies
    p.old = p.t + p.copies
    at = <char*>(p.old + p.copies)
    for f in range(n + 2):
        p.active[f].weight = <double*>at
        p.active[f].extra = p.active[f].weight + SIZE
        p.active[f].gram = p.active[f].extra + SIZE
        at = <char*>(p.active[f].gram + SIZE * SIZE)
    p.arc = <int*>at
    p.degree = p.arc + p.copies
    at = <char*>(p.degree + arcs)
    for f in range(n + 2):
        width = active_width(q, f)
        p.active[f].width = width
        p.active[f].length = <int*>at
        p.active[f].copies = p.active[f].length + SIZE
        at = <char*>(p.active[f].copies + SIZE * width)
    p.mark = at
    with nogil:
        list_pairs(&p, of_sib, of_nocross, True)
        for i in range(3 * arcs):
            p.arc[i] = i % arcs
        for i in range(p.copies):
            p.degree[p.arc[i]] += in_use(&p, i)
        for a in range(arcs):
            p.share[a] = p.d.link[a] / p.degree[a]
            p.mu[a] = 0.5
            p.d.own[a] = p.d.link[a]
        if solve_tree(&p.d) == -INFINITY:
            iterations = 0
        while k < iterations:
            solved = solve_factors(&p)
            resolved[k] = <float>solved / (n + 2)
            k += 1
            memset(&values[0], 0, arcs * sizeof(double))
            for i in range(p.copies):
                if in_use(&p, i):
                    values[p.arc[i]] += p.nu[i] / p.degree[p.arc[i]]
            off = moved = mean = 0.0
            for i in range(p.copies):
                if in_use(&p, i):
                    a = p.arc[i]
                    off += (p.nu[i] - values[a]) ** 2
                    moved += (values[a] - p.mu[a]) ** 2
                    mean += 1.0
                    p.lam[i] -= p.eta * (p.nu[i] - values[a])
            off, moved = sqrt(off / mean), sqrt(moved / mean)
            memcpy(p.mu, &values[0], arcs * sizeof(double))
            if k % interval == 0 or k == iterations or (off < residual and moved < residual):
                for a in range(arcs):
                    p.d.own[a] = p.mu[a]
                solve_tree(&p.d)
                value = full_score(&p)
                if value > primal:
                    primal = value
                    memcpy(&heads[0], p.d.heads, (n + 1) * sizeof(int))
                dual = min(dual, dual_value(&p))
                if (dual - primal <= 1e-9 * max(1.0, fabs(dual))
                        or (off < residual and moved < residual)):
                    break
            if k % 10 == 0:      # residuals of one size: balanced progress
                if off > 100.0 * moved and p.eta < 1e3 * eta:
                    p.eta *= 2.0
                elif moved > 10.0 * off and p.eta > 1e-2 * eta:
                    p.eta /= 2.0
    give_back(p.d.room, p.d.size)
    free(room)
    return primal, dual, k


cdef int active_width(Places* q, int f) noexcept nogil:
    """The largest configuration of an automaton, or of the tree at n+1."""
    return q.n if f == q.n + 1 else q.first[f + 1] - q.first[f] + 1
