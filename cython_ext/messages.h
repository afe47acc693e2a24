/* Inner loops of bp.pyx.  Rows are read and written in whole groups of LANES: what is past their
 * ends is finite, and of no weight where it could count. */
#ifndef ARCWISE_MESSAGES_H
#define ARCWISE_MESSAGES_H

#include "simd.h"

/* The largest |x[i]|; INFINITY if one is not finite. */
KERNEL double largest_size(const double *x, index_t n)
{
    double top[LANES];
    int64_t bad = 0;
    index_t i = 0;
    FOR_LANES { top[lane] = 0.0; }
    for (; i + LANES <= n; i += LANES) {
        FOR_LANES {
            double size = fabs(x[i + lane]);
            bad += !(size < INFINITY);
            top[lane] = size > top[lane] ? size : top[lane];
        }
    }
    for (int lane = 0; i < n; i++, lane++) {
        double size = fabs(x[i]);
        bad += !(size < INFINITY);
        top[lane] = size > top[lane] ? size : top[lane];
    }
    return bad ? INFINITY : largest(top);
}

/* exp(y) for |y| <= 700, within 4e-13 of it: less work than exp_cut, by exp(y / 4)^4. */
INLINE double exp_near(double y)
{
    const double round_to_int = 6755399441055744.0; /* 1.5 * 2^52: the sum keeps no fraction */
    double t = y * 1.4426950408889634 + round_to_int;
    double k = t - round_to_int;
    double r = (y - k * 0.6931471805599453) * 0.25, r2 = r * r;
    double low = (1.0 + r) + r2 * (1.0 / 2.0 + r * (1.0 / 6.0));
    double high = (1.0 / 24.0 + r * (1.0 / 120.0)) + r2 * (1.0 / 720.0 + r * (1.0 / 5040.0));
    double p = low + (r2 * r2) * high;
    int64_t bits, power;
    p *= p;
    p *= p;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&power, &t, sizeof power);
    bits += (int64_t)((uint64_t)power << 52); /* times 2^k */
    memcpy(&p, &bits, sizeof p);
    return p;
}

/* out[i] = exp(scale x[i]), 1 after the end up to a whole group. */
INLINE void weights_of(const double *x, double scale, index_t n, double *restrict out)
{
    index_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        FOR_LANES { out[i + lane] = exp_near(scale * x[i + lane]); }
    }
    for (int lane = 0; i < n && lane < LANES; lane++)
        out[i + lane] = i + lane < n ? exp_near(scale * x[i + lane]) : 1.0;
}

/* Weights of LANES sides together, lanes innermost: exp(scale theta[lane]), a triangle whose last row
 * is END's.  The longest comes first, the shortest last; what others have not is 1. */
KERNEL void weights_of_sides(const double *const *theta, const int *count, double scale,
                             double *restrict x)
{
    index_t rows = count[0] + 1, last = rows * (rows - 1) / 2, common = count[LANES - 1] + 1;
    index_t i = 0, end = last + rows;
    for (; i < common * (common - 1) / 2; i++) {
        FOR_LANES { x[i * LANES + lane] = exp_near(scale * theta[lane][i]); }
    }
    for (; i < end; i++) {
        for (int lane = 0; lane < LANES; lane++) {
            index_t own = count[lane] + 1, before = own * (own - 1) / 2, at = i;
            if (i >= last) /* of END */
                at = i - last < own ? before + i - last : end;
            else if (i >= before)
                at = end;
            x[i * LANES + lane] = at < end ? theta[lane][at] : 0.0;
        }
    }
    for (i = common * (common - 1) / 2; i < end; i++) {
        FOR_LANES { x[i * LANES + lane] = exp_near(scale * x[i * LANES + lane]); }
    }
}

/* x[i] = exp(scale x[i]); room for a whole group. */
KERNEL void to_weights(double *x, double scale, index_t n)
{
    for (index_t i = 0; i < n; i += LANES) {
        FOR_LANES { x[i + lane] = exp_near(scale * x[i + lane]); }
    }
}

INLINE double within(double range, double x)
{
    x = x < range ? x : range;
    return x > -range ? x : -range;
}

/* out[i] = exp(x[at[i]]), of x within +-range; out has room for LANES more, which become 1. */
KERNEL void odds_at(const double *x, const int32_t *at, double range, index_t n,
                    double *restrict out)
{
    for (index_t i = 0; i < n; i++)
        out[i] = x[at[i]];
    for (int lane = 0; lane < LANES; lane++)
        out[n + lane] = 0.0;
    for (index_t i = 0; i < n; i += LANES) {
        FOR_LANES { out[i + lane] = exp_near(within(range, out[i + lane])); }
    }
}

/* out[i] = 1 / (1 + exp(-x[i])), of x within +-range; room as above. */
KERNEL void sigmoids(const double *x, double range, index_t n, double *restrict out)
{
    for (index_t i = 0; i < n; i += LANES) {
        FOR_LANES { out[i + lane] = 1.0 / (1.0 + exp_near(within(range, -x[i + lane]))); }
    }
}

/* sum[i] = base[i] + what the families, of which some are NULL, say. */
KERNEL void add_families(const double *base, double *const *families, int count, index_t n,
                         double *restrict sum)
{
    memcpy(sum, base, (size_t)n * sizeof(double));
    for (int k = 0; k < count; k++) {
        const double *own = families[k];
        for (index_t i = 0; own && i < n; i++)
            sum[i] += own[i];
    }
}

/* Pairs of one arc with a run of others.  x: weight of both; t, T: odds of the one arc and of the
 * others, with all messages; s, S: messages of the pairs to it and to them, as odds.  From the one to a
 * pair go the odds q = t / s, so to the other, and with T and S to the one,
 *
 *     S' = (1 + x q) / (1 + q) = (s + x t) / (s + t)
 *
 * and each message keeps the share `old` of what it was.  Both quotients take one division; the
 * caller bounds t, T, s and x so that no product overflows.  P[i] *= S'[i]; returns the product of s'.
 * Past the end of a row x = s = S = 1: a pair that is none.  At first all messages are 1 and not there
 * yet. */
INLINE double pairs_of_row(int first, double old, double t, const double *restrict T,
                           const double *restrict x, double *restrict s, double *restrict S,
                           double *restrict P, index_t n)
{
    double product[LANES];
    FOR_LANES { product[lane] = 1.0; }
    for (index_t i = 0; i < n; i += LANES) {
        FOR_LANES {
            double own = first ? 1.0 : s[i + lane], Own = first ? 1.0 : S[i + lane];
            double below = own + t, Below = Own + T[i + lane];
            double r = 1.0 / (below * Below);
            double to = (Own + x[i + lane] * T[i + lane]) * (below * r);
            double To = (own + x[i + lane] * t) * (Below * r);
            if (old > 0.0) {
                to = old * own + (1.0 - old) * to;
                To = old * Own + (1.0 - old) * To;
            }
            s[i + lane] = to;
            S[i + lane] = To;
            P[i + lane] *= To;
            product[lane] *= to;
        }
    }
    return (product[0] * product[1]) * (product[2] * product[3]);
}

typedef struct { /* pairs of the arc at one place with those at places first..first+count-1 */
    int place, first, count;
    int low, high; /* low..high-1 of these are in no tree together with it */
    int64_t start; /* of its parts */
    int64_t at;    /* of its messages */
} row_t;

/* All rows, with odds T of all places and messages to_one and to_run; P, of ones, becomes the product
 * of the messages to each place.  At first, weights x = exp(scale theta), too. */
KERNEL void pair_rows(const row_t *rows, index_t count, int first, const double *restrict theta,
                      double scale, double old, const double *restrict T, double *restrict x,
                      double *restrict to_one, double *restrict to_run, double *restrict P)
{
    for (index_t r = 0; r < count; r++) {
        const row_t row = rows[r];
        double *s = to_one + row.at, *S = to_run + row.at, *weights = x + row.at, product;
        if (first) {
            weights_of(theta + row.start, scale, row.count, weights);
            for (int i = row.low; i < row.high; i++)
                weights[i] = 1.0;
            product = pairs_of_row(1, old, T[row.place], T + row.first, weights, s, S,
                                   P + row.first, row.count);
        } else
            product = pairs_of_row(0, old, T[row.place], T + row.first, weights, s, S,
                                   P + row.first, row.count);
        P[row.place] *= product;
    }
}

/* CHILDSEQ on LANES sides at once, of k children, 1..k outwards: with w the weights as triangles and
 * q the odds of the children,
 *
 *     alpha[b] = q[b] enter[b],   enter[b] = sum_{a < b} alpha[a] w[a,b]        alpha[START] = 1
 *     beta[a]  = w[a,END] + sum_{b > a} w[a,b] q[b] beta[b]
 *     lam[b]   = enter[b] beta[b] / sum_{a < b} alpha[a] (beta[a] from all beyond b)
 *
 * Everything has the lanes innermost.  A child that is not there has q near 0 and weights above 0.
 * Returns what no alpha exceeds, of weights up to `most`. */
#if defined(__GNUC__)
typedef double lanes_t __attribute__((vector_size(LANES * sizeof(double)), aligned(8), may_alias));
#define STEP 1 /* a vector holds the lanes, ... */
#else
typedef double lanes_t;
#define STEP LANES /* ... or each goes alone */
#endif

INLINE void run_chains(const lanes_t *w, const lanes_t *q, index_t k, lanes_t *alpha,
                       lanes_t *enter, lanes_t *beta, lanes_t *lam)
{
    const lanes_t *row = w;
    const lanes_t none = q[0] - q[0];
    alpha[0] = none + 1.0;
    for (index_t b = 1; b <= k; row += b * STEP, b++) {
        lanes_t t0 = row[0], t1 = none, t2 = none, t3 = none;
        index_t a = 1;
        for (; a + 3 < b; a += 4) {
            t0 += alpha[a * STEP] * row[a * STEP];
            t1 += alpha[(a + 1) * STEP] * row[(a + 1) * STEP];
            t2 += alpha[(a + 2) * STEP] * row[(a + 2) * STEP];
            t3 += alpha[(a + 3) * STEP] * row[(a + 3) * STEP];
        }
        for (; a < b; a++)
            t1 += alpha[a * STEP] * row[a * STEP];
        t0 = (t0 + t1) + (t2 + t3);
        enter[b * STEP] = t0;
        alpha[b * STEP] = q[(b - 1) * STEP] * t0;
    }
    for (index_t a = 0; a <= k; a++)
        beta[a * STEP] = row[a * STEP];
    for (index_t b = k; b > 0; b--) {
        lanes_t own = beta[b * STEP], rest = q[(b - 1) * STEP] * own, t0 = none, t1 = none;
        index_t a = 0;
        row -= b * STEP;
        for (; a + 1 < b; a += 2) {
            lanes_t beta0 = beta[a * STEP], beta1 = beta[(a + 1) * STEP];
            t0 += alpha[a * STEP] * beta0;
            t1 += alpha[(a + 1) * STEP] * beta1;
            beta[a * STEP] = beta0 + rest * row[a * STEP];
            beta[(a + 1) * STEP] = beta1 + rest * row[(a + 1) * STEP];
        }
        if (a < b) {
            t0 += alpha[a * STEP] * beta[a * STEP];
            beta[a * STEP] += rest * row[a * STEP];
        }
        lam[(b - 1) * STEP] = enter[b * STEP] * own / (t0 + t1);
    }
}

KERNEL double chain_messages(double most, const double *w, const double *q, index_t k,
                             double *alpha, double *enter, double *beta, double *lam)
{
    double total[LANES];
    FOR_LANES { total[lane] = 1.0; }
    for (index_t b = 0; b < k; b++) {
        FOR_LANES {
            double own = most * q[b * LANES + lane];
            total[lane] *= own > 1.0 ? own : 1.0;
        }
    }
    for (int lane = 0; lane < STEP; lane++)
        run_chains((const lanes_t *)(w + lane), (const lanes_t *)(q + lane), k,
                   (lanes_t *)(alpha + lane), (lanes_t *)(enter + lane), (lanes_t *)(beta + lane),
                   (lanes_t *)(lam + lane));
    return largest(total);
}

INLINE index_t whole_groups(index_t n)
{
    return (n + LANES - 1) & -LANES;
}

/* A word as its NOCROSS factors see it. */
typedef struct {
    int position, count;
    const int32_t *heads;  /* (count,) ascending */
    const int32_t *before; /* (n + 2,) how many of them are < x */
    const double *T;       /* (count,) belief in each over the largest */
    double *P;             /* (count,) product of the messages to each, over true */
} crossing_word;

/* R[i] = all + slope prefix[heads < head of arc i + shift], arcs first..last-1. */
INLINE void crossing_run(const int32_t *heads, index_t first, index_t last, int shift,
                         const int32_t *before, const double *prefix, double all, double slope,
                         double *restrict R)
{
    before += shift;
    for (index_t i = first; i < last; i++)
        R[i] = all + slope * prefix[before[heads[i]]];
}

/* A NOCROSS factor of two words, a.position < b.position, with weight x: new messages lam, over true,
 * from the old ones.  With q = T lam, and R[i] the sum of q of the other word's heads, times x where
 * its arc crosses arc i,
 *
 *     lam[i] = sum_k q[k] R[k] / sum_k q[k] R[i]
 *
 * The heads whose arcs cross an arc are those inside it, if the other word is outside, or those
 * outside; not its ends.  Messages of either word are whole groups, 1 past the end; T and P may be
 * read there, and P times 1.  scratch: 6 rows of n + 12. */
KERNEL void crossing_messages(const crossing_word *a, const crossing_word *b, double x,
                              double *restrict lam, double *restrict scratch, index_t size)
{
    index_t A = a->count, B = b->count, common, i, low, high;
    double *q = scratch, *p = q + size, *R = p + size;
    double *Q = R + size, *S = Q + size, *U = S + size, *Lam = lam + whole_groups(A);
    double total = 0.0, all = 0.0, mean, sums[LANES];
    int j = a->position, l = b->position;
    x -= 1.0;
    for (i = 0; i < A; i += LANES) {
        FOR_LANES { q[i + lane] = a->T[i + lane] * lam[i + lane]; }
    }
    for (i = 0; i < B; i += LANES) {
        FOR_LANES { Q[i + lane] = b->T[i + lane] * Lam[i + lane]; }
    }
    p[0] = S[0] = 0.0;
    common = A < B ? A : B;
    for (i = 0; i < common; i++) {
        p[i + 1] = total = total + q[i];
        S[i + 1] = all = all + Q[i];
    }
    for (i = common; i < A; i++)
        p[i + 1] = total = total + q[i];
    for (i = common; i < B; i++)
        S[i + 1] = all = all + Q[i];
    /* heads of a: before it, up to b, b itself, beyond */
    low = a->before[j];
    high = a->before[l];
    mean = S[b->before[j]];
    crossing_run(a->heads, 0, low, 1, b->before, S, all + x * mean, -x, R);
    crossing_run(a->heads, low, high, 0, b->before, S, all - x * S[b->before[j + 1]], x, R);
    R[high] = all;
    crossing_run(a->heads, a->before[l + 1], A, 1, b->before, S, all + x * (all + mean), -x, R);
    /* heads of b: before a, a itself, up to b, beyond */
    low = b->before[j];
    high = b->before[l];
    mean = p[a->before[l + 1]];
    crossing_run(b->heads, 0, low, 0, a->before, p, total + x * (total - mean), x, U);
    U[low] = total;
    crossing_run(b->heads, b->before[j + 1], high, 1, a->before, p,
                 total + x * p[a->before[l]], -x, U);
    crossing_run(b->heads, high, B, 0, a->before, p, total - x * mean, x, U);
    for (i = 0; i < LANES; i++)
        q[A + i] = R[A + i] = 0.0;
    FOR_LANES { sums[lane] = 0.0; }
    for (i = 0; i < A; i += LANES) {
        FOR_LANES { sums[lane] += q[i + lane] * R[i + lane]; }
    }
    mean = sum(sums) / total;
    for (i = 0; i < LANES; i++)
        R[A + i] = mean;
    for (i = 0; i < A; i += LANES) {
        FOR_LANES { lam[i + lane] = mean / R[i + lane]; }
        FOR_LANES { a->P[i + lane] *= lam[i + lane]; }
    }
    mean = sum(sums) / all;
    for (i = 0; i < LANES; i++)
        U[B + i] = mean;
    for (i = 0; i < B; i += LANES) {
        FOR_LANES { Lam[i + lane] = mean / U[i + lane]; }
        FOR_LANES { b->P[i + lane] *= Lam[i + lane]; }
    }
}

/* For each word, whose arcs are at offsets[m]..offsets[m+1]-1: E = tot - fam, what the tree factor is
 * told, less the word's largest, which is its shift.  Returns the widest range of a word. */
KERNEL double tree_inputs(const double *tot, const double *fam, const int32_t *offsets, index_t words,
                          double *restrict E, double *restrict shift)
{
    double widest = 0.0;
    for (index_t m = 0; m < words; m++) {
        index_t end = offsets[m + 1];
        double top = -INFINITY, low = INFINITY;
        for (index_t i = offsets[m]; i < end; i++) {
            double own = tot[i] - fam[i];
            E[i] = own;
            top = own > top ? own : top;
            low = own < low ? own : low;
        }
        for (index_t i = offsets[m]; i < end; i++) {
            E[i] -= top;
            shift[i] = top;
        }
        widest = top - low > widest ? top - low : widest;
    }
    return widest;
}

/* rest[i] = what the other arcs of the same word have of E A, no difference of large sums. */
KERNEL void tree_rests(const double *E, const double *A, const int32_t *offsets, index_t words,
                       double *restrict rest)
{
    for (index_t i = 0; i < offsets[words]; i++)
        rest[i] = E[i] * A[i];
    for (index_t m = 0; m < words; m++) {
        double *own = rest + offsets[m], t[LANES], top = own[0], others;
        index_t n = offsets[m + 1] - offsets[m], best = 0, i = 0;
        for (index_t k = 1; k < n; k++) {
            best = own[k] > top ? k : best;
            top = own[k] > top ? own[k] : top;
        }
        own[best] = 0.0;
        FOR_LANES { t[lane] = 0.0; }
        for (; i + LANES <= n; i += LANES) {
            FOR_LANES { t[lane] += own[i + lane]; }
        }
        for (int lane = 0; i < n; i++, lane++)
            t[lane] += own[i];
        others = sum(t);
        for (index_t k = 0; k < n; k++)
            own[k] = (others + top) - own[k];
        own[best] = others;
    }
}

/* What the tree factor says to arc i, with A[i] = d log Z / d weight and rest[i] what others have of
 * its word:  lam[i] = log A[i] - log rest[i] - shift[i], within +-cap; rest is scratch afterwards. */
KERNEL void tree_messages(const double *A, double *restrict rest, const double *shift, double cap,
                          index_t n, double *restrict lam)
{
    for (index_t i = 0; i < n; i++)
        rest[i] = A[i] / rest[i];
    logarithms(rest, shift, n, lam);
    for (index_t i = 0; i < n; i++) {
        double y = rest[i] < INFINITY ? lam[i] : cap;
        lam[i] = within(cap, y);
    }
}

#endif
