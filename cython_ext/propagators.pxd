# Messages of the factors of belief propagation, each from what comes into it.
#
# kap[i] is the log-odds that comes from variable i, lam[i] the log-odds that goes to it: the factor's
# belief in true over its belief in false, without what i itself said (Smith & Eisner 2008, eq. 8).
# Nothing is divided out and no sum is a difference of large ones.  LOG sums, MAX maximises.
#
# No message leaves [-CAP, CAP]: infinities would meet, and +CAP from a word's only head is certain.
from libc.math cimport INFINITY, exp, log, log1p
from libc.stdint cimport int32_t

from cython_ext.semiring cimport (
    LOG, MAX, SUM, add_scaled, dot, exponentials, logarithms, plus, zero,
)


cdef enum:
    CAP = 1000000


cdef inline double capped(double x) noexcept nogil:
    return min(<double>CAP, max(-<double>CAP, x))


cdef inline double softplus(double x) noexcept nogil:
    """log (1 + e^x)"""
    return x + log1p(exp(-x)) if x > 0.0 else log1p(exp(x))


cdef inline double with_false(double x, int semiring) noexcept nogil:
    """0 (+) x: a variable's total over false and true."""
    if semiring == MAX:
        return max(0.0, x)
    return softplus(x)


cdef inline double sigmoid(double x) noexcept nogil:
    cdef double y
    if x >= 0.0:
        return 1.0 / (1.0 + exp(-x))
    y = exp(x)
    return y / (1.0 + y)


cdef inline double pair_message(double theta, double kap, int semiring) noexcept nogil:
    """To one arc of a pair from the other:  lam = (0 (+) theta + kap) - (0 (+) kap);  O(1).

    theta = -inf: not both.
    """
    if semiring == MAX:
        return capped(max(0.0, theta + kap) - max(0.0, kap))
    if kap > 0.0:                # no difference of two that are both near kap
        return capped(plus(-kap, theta, LOG) - log1p(exp(-kap)))
    return capped(softplus(theta + kap) - log1p(exp(kap)))


cdef inline void odds_of_pair(double x, double t, double T, double old, double* s,
                              double* S) noexcept nogil:
    """Messages to both arcs of a pair of weight x, as odds, with one division;  O(1).

        s' = (S + x T) / (S + T)

    where t, T are odds of the two arcs with all messages; both keep the share ``old`` of what they
    were.  The caller bounds all of them so that no product overflows.
    """
    cdef double one = s[0], other = S[0], below = one + t, Below = other + T
    cdef double r = (1.0 - old) / (below * Below)
    s[0] = old * one + (other + x * T) * (below * r)
    S[0] = old * other + (one + x * t) * (Below * r)


cdef inline double pair_total(double theta, double a, double b, int semiring) noexcept nogil:
    """log Z of a pair:  0 (+) a (+) b (+) theta + a + b"""
    return plus(plus(0.0, a, semiring), plus(b, theta + a + b, semiring), semiring)


cdef inline void exactly_one(
    const double* kap,           # IN       (n,)
    const double* weight,        # IN       (n,) log weights of the n outcomes, or NULL: all 0
    int n,
    int semiring,
    double* e,                   # SCRATCH  (n + 3,)
    double* lam,                 # OUT      (n,)
) noexcept nogil:
    """lam[i] = weight[i] - (+)_{j != i} kap[j] + weight[j];  O(n).

    Of the terms only the largest, when it is left out, leaves a sum much smaller than the total.
    """
    cdef int i, best = 0
    cdef double top = -INFINITY, second = -INFINITY, total = 0.0, others = 0.0, own
    for i in range(n):
        e[i] = kap[i] + (weight[i] if weight != NULL else 0.0)
        if e[i] > top:
            second, top, best = top, e[i], i
        elif e[i] > second:
            second = e[i]
    if second > -INFINITY and semiring != MAX:
        if top - second > 600.0:
            for i in range(n):
                if i != best:
                    others += exp(e[i] - second)
            second += log(others)
            exponentials(e, n, top)
            total = 1.0
        else:
            exponentials(e, n, top)
            for i in range(n):
                if i != best:
                    others += e[i]
            second = top + log(others)
            total = others + e[best]
    if semiring != MAX and total > 0.0 and weight != NULL:
        for i in range(n):
            e[i] = total - e[i] if i != best else 1.0
        logarithms(e, weight, n, lam)
        for i in range(n):
            lam[i] = capped(-lam[i] - top)
        lam[best] = capped(weight[best] - second)
        return
    for i in range(n):
        own = weight[i] if weight != NULL else 0.0
        if i == best:
            lam[i] = capped(own - second)
        elif semiring == MAX or total == 0.0:
            lam[i] = capped(own - top)
        else:
            lam[i] = capped(own - top - log(total - e[i]))


# ---- CHILDSEQ: the children of a head on one side, outwards ----------------------------------------


cdef struct Chain:
    int count                    # candidate children, 1..count; 0 is START, count + 1 END
    const double* theta          # scores as a triangle: row j, place i for i followed by j
    double scale                 # of theta
    const double* weights        # exp(scale theta), or NULL where that is out of range
    double most                  # max scale |theta|
    double* kap                  # (count + 1,) from 1
    double* lam                  # (count + 1,) from 1
    double* alpha                # (count + 2,) of prefixes that end in child i, its odds included
    double* enter                # (count + 1,) alpha without the child's odds
    double* beta                 # (count + 2,) of suffixes after child i
    double* odds                 # (count + 4,)


cdef inline const double* row(const double* triangle, int j) noexcept nogil:
    return triangle + (<Py_ssize_t>j * (j - 1)) // 2


cdef inline double run_chain(Chain* c, int* semiring) noexcept nogil:
    """Forward and backward; log Z.  ``semiring`` in: LOG or MAX; out: that of the tables.

        alpha[b] = q[b] (x) (+)_{a < b} alpha[a] (x) f[a,b]             alpha[START] = one
        beta[a]  = f[a,END] (+) (+)_{b > a} f[a,b] (x) q[b] (x) beta[b]
        false[b] = (+)_{a < b} alpha[a] (x) (beta[a] so far, from all beyond b)
        lam[b]   = alpha[b] / q[b] (x) beta[b] / false[b]

    O(count^2).  In the probability domain where the odds cannot overflow.
    """
    cdef int k = c.count, a, b
    cdef const double* f
    cdef double total = 0.0, value, rest
    for b in range(1, k + 1):
        total += max(0.0, c.kap[b] + c.most)
    if semiring[0] == LOG and c.weights != NULL and total < 300.0:
        semiring[0] = SUM
        for b in range(1, k + 1):
            c.odds[b] = max(c.kap[b], -600.0)
        exponentials(c.odds + 1, k, 0.0)
        c.alpha[0] = 1.0
        for b in range(1, k + 1):
            c.enter[b] = dot(c.alpha, row(c.weights, b), b)
            c.alpha[b] = c.odds[b] * c.enter[b]
        f = row(c.weights, k + 1)
        for a in range(k + 1):
            c.beta[a] = f[a]
        for b in range(k, 0, -1):
            value = dot(c.alpha, c.beta, b)
            c.lam[b] = capped(log(c.enter[b] * c.beta[b] / value))
            add_scaled(c.odds[b] * c.beta[b], row(c.weights, b), c.beta, b)
        return log(c.beta[0])
    c.alpha[0] = 0.0
    for b in range(1, k + 1):
        f, value = row(c.theta, b), -INFINITY
        for a in range(b):
            value = plus(value, c.alpha[a] + c.scale * f[a], semiring[0])
        c.enter[b] = value
        c.alpha[b] = value + c.kap[b]
    f = row(c.theta, k + 1)
    for a in range(k + 1):
        c.beta[a] = c.scale * f[a]
    for b in range(k, 0, -1):
        f, value = row(c.theta, b), -INFINITY
        for a in range(b):
            value = plus(value, c.alpha[a] + c.beta[a], semiring[0])
        c.lam[b] = capped(c.enter[b] + c.beta[b] - value)
        rest = c.kap[b] + c.beta[b]
        for a in range(b):
            c.beta[a] = plus(c.beta[a], c.scale * f[a] + rest, semiring[0])
    return c.beta[0]


cdef inline void chain_beliefs(Chain* c, int semiring, double log_z, double* out) noexcept nogil:
    """Belief in each part, a triangle like theta; after ``run_chain``."""
    cdef int k = c.count, a, b
    cdef const double* f
    cdef double rest
    for b in range(1, k + 2):
        if semiring == SUM:
            rest = (c.odds[b] * c.beta[b] if b <= k else 1.0) / c.beta[0]
            f = row(c.weights, b)
            for a in range(b):
                out[a] = c.alpha[a] * f[a] * rest
        else:
            rest = (c.kap[b] + c.beta[b] if b <= k else 0.0) - log_z
            f = row(c.theta, b)
            for a in range(b):
                out[a] = exp(min(0.0, c.alpha[a] + c.scale * f[a] + rest))
        out += b


# ---- NOCROSS: two words, their heads, and whether the arcs cross -----------------------------------
#
# Each word has exactly one head, so it sends the factor as many numbers as it has candidate heads,
# and with x = exp(theta)
#
#     R[i] = sum over the heads k of l:  q_l[k] x^(whether arc i of j crosses arc k of l)


cdef struct Word:
    int position
    int count                    # candidate heads
    const int32_t* heads         # (count,) ascending
    const int32_t* before        # (n + 2,) how many of them are < x
    double* kap                  # (count + 3,) what it says of each head, as logs
    double* q                    # (count + 3,) the same as numbers
    double* prefix               # (count + 1,) sums of q
    double* ratio                # (count,) R or its log
    double* lam                  # (count,)
    double top                   # the largest kap, if q is over it


cdef inline void crossing_range(Word* j, int i, Word* l, int* low, int* high, bint* inside
                                ) noexcept nogil:
    """Which heads of l make its arc cross the i-th of j: those in [low, high), or outside it.

    The ends of j's arc are on neither side and do not cross it.
    """
    cdef int h = j.heads[i], first = min(h, j.position), last = max(h, j.position)
    if l.position == h:
        low[0] = high[0] = 0
        inside[0] = True
    elif first < l.position < last:
        low[0], high[0] = l.before[first], l.before[last + 1]
        inside[0] = False
    else:
        low[0], high[0] = l.before[first + 1], l.before[last]
        inside[0] = True


cdef inline void add_prefix(Word* w) noexcept nogil:
    cdef int i
    w.prefix[0] = 0.0
    for i in range(w.count):
        w.prefix[i + 1] = w.prefix[i] + w.q[i]


cdef inline double crossing_of(Word* j, int i, Word* l) noexcept nogil:
    """What l says, in sum, of heads whose arcs cross arc i of j."""
    cdef int low, high
    cdef bint inside
    crossing_range(j, i, l, &low, &high, &inside)
    if inside:
        return l.prefix[high] - l.prefix[low]
    return l.prefix[low] + (l.prefix[l.count] - l.prefix[high])


cdef inline void crossing_sums(Word* j, Word* l, double x) noexcept nogil:
    """R of j by l's prefix sums: all + (x - 1) crossing.  O(count)."""
    cdef int i
    for i in range(j.count):
        j.ratio[i] = l.prefix[l.count] + (x - 1.0) * crossing_of(j, i, l)


cdef inline bint by_prefix_sums(double theta, int semiring) noexcept nogil:
    """Whether all + (x - 1) crossing keeps its digits."""
    return semiring == LOG and -10.0 <= theta <= 10.0


cdef inline double crossing_logs(Word* j, Word* l, double theta, int semiring) noexcept nogil:
    """log R of j, whatever the range of kap; log Z.  O(counts), or O(their product) term by term.
    """
    cdef int i, k, low, high
    cdef bint inside
    cdef double value, log_z = -INFINITY
    if by_prefix_sums(theta, semiring):
        l.top = -INFINITY
        for k in range(l.count):
            l.q[k] = l.kap[k]
            l.top = max(l.top, l.kap[k])
        exponentials(l.q, l.count, l.top)
        add_prefix(l)
        crossing_sums(j, l, exp(theta))
        for i in range(j.count):
            j.ratio[i] = l.top + log(j.ratio[i])
    else:
        for i in range(j.count):
            crossing_range(j, i, l, &low, &high, &inside)
            value = -INFINITY
            for k in range(l.count):
                value = plus(value, l.kap[k] + (theta if (low <= k < high) == inside else 0.0),
                             semiring)
            j.ratio[i] = value
    for i in range(j.count):
        log_z = plus(log_z, j.kap[i] + j.ratio[i], semiring)
    return log_z


cdef inline double run_joined(Word* j, Word* l, double theta, int semiring) noexcept nogil:
    """lam of both words where EXACTLY1 of each is part of the factor; log Z.

        lam[i] = log R[i] - log sum_{k != i} q[k] R[k]          (Smith & Eisner 2008, eq. 9)
    """
    cdef double log_z
    crossing_logs(l, j, theta, semiring)
    log_z = crossing_logs(j, l, theta, semiring)   # last, as expected_crossing wants it
    exactly_one(l.kap, l.ratio, l.count, semiring, l.q, l.lam)
    exactly_one(j.kap, j.ratio, j.count, semiring, j.q, j.lam)
    return log_z


cdef inline double run_heads(Word* j, Word* l, double theta, int semiring) noexcept nogil:
    """lam of both words whose heads are variables of their own; log Z.  kap must be normalised.

        lam[i] = log R[i] - log sum_k q[k] R[k]
    """
    cdef int i
    cdef double log_z
    crossing_logs(l, j, theta, semiring)
    log_z = crossing_logs(j, l, theta, semiring)
    for i in range(j.count):
        j.lam[i] = capped(j.ratio[i] - log_z)
    for i in range(l.count):
        l.lam[i] = capped(l.ratio[i] - log_z)
    return log_z


cdef inline double expected_crossing(Word* j, Word* l, double theta, double log_z, int semiring
                                     ) noexcept nogil:
    """Belief in a crossing, after one of the two above with its log Z.  Costs as for them."""
    cdef int i, k, low, high
    cdef bint inside
    cdef double value = 0.0
    for i in range(j.count):
        if by_prefix_sums(theta, semiring):
            value += crossing_of(j, i, l) * exp(min(700.0, j.kap[i] + l.top + theta - log_z))
            continue
        crossing_range(j, i, l, &low, &high, &inside)
        for k in range(l.count):
            if (low <= k < high) == inside:
                value += exp(min(0.0, j.kap[i] + l.kap[k] + theta - log_z))
    return min(1.0, value)
