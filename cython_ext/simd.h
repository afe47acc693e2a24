/* Inner loops of the kernels, written so that a compiler vectorises them without -ffast-math.
 *
 * A reduction keeps LANES running values, so its order of operations is fixed by this file
 * and not by the compiler: every machine gives the same bits.  Reductions read their inputs
 * in whole groups of LANES; callers pad with the zero of the semiring, so that what is read
 * past the end adds nothing (see each kernel's note on its tables).
 *
 * On x86-64 with glibc each loop is compiled twice and the faster copy chosen at load time; those
 * of KERNEL_512, where registers of 512 bits pay, three times.
 */
#ifndef ARCWISE_SIMD_H
#define ARCWISE_SIMD_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LANES 4

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define KERNEL __attribute__((unused, target_clones("avx2", "default"))) static
#define KERNEL_512 __attribute__((unused, target_clones("avx512f", "avx2", "default"))) static
#elif defined(__GNUC__)
#define KERNEL __attribute__((unused)) static
#define KERNEL_512 KERNEL
#else
#define KERNEL static
#define KERNEL_512 KERNEL
#endif

#if defined(__GNUC__)
#define INLINE __attribute__((always_inline, unused)) static inline
#else
#define INLINE static inline
#endif

/* Unrolling a loop over lanes hides it from the vectoriser. */
#if defined(__GNUC__) && !defined(__clang__)
#define FOR_LANES _Pragma("GCC unroll 1") for (int lane = 0; lane < LANES; lane++)
#else
#define FOR_LANES for (int lane = 0; lane < LANES; lane++)
#endif

typedef ptrdiff_t index_t;

/* Below it exp is 0 here, which spares the slow denormals.  Cutting x off and taking exp are two
 * steps because GCC, given both in one loop, turns the cut-off case into a branch. */
#define CUTOFF (-708.0)

INLINE double cut_off(double x)
{
    return x < CUTOFF ? CUTOFF : x;
}

/* exp(y) for CUTOFF <= y <= 0, within one unit in the last place; 0 below -707.4.  Terms are added
 * in pairs and fours, so that few wait for one another. */
INLINE double exp_cut(double y)
{
    const double round_to_int = 6755399441055744.0; /* 1.5 * 2^52: the sum keeps no fraction */
    double t = y * 1.4426950408889634 + round_to_int;
    double k = t - round_to_int;
    double r = (y - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10;
    double r2 = r * r, r4 = r2 * r2;
    double c2 = 1.0 / 2.0 + r * (1.0 / 6.0), c4 = 1.0 / 24.0 + r * (1.0 / 120.0);
    double c6 = 1.0 / 720.0 + r * (1.0 / 5040.0), c8 = 1.0 / 40320.0 + r * (1.0 / 362880.0);
    double c10 = 1.0 / 3628800.0 + r * (1.0 / 39916800.0);
    double c12 = 1.0 / 479001600.0 + r * (1.0 / 6227020800.0);
    double p = (c2 + r2 * c4) + r4 * ((c6 + r2 * c8) + r4 * (c10 + r2 * c12));
    int64_t bits, power;
    p = 1.0 + (r + r2 * p);
    memcpy(&bits, &p, sizeof bits);
    memcpy(&power, &t, sizeof power);
    bits += (int64_t)((uint64_t)power << 52); /* times 2^k */
    memcpy(&p, &bits, sizeof p);
    k += 1021.0; /* 0 at the cut-off */
    return p * (k < 1.0 ? k : 1.0);
}

INLINE double largest(const double *lanes)
{
    double top = lanes[0];
    for (int lane = 1; lane < LANES; lane++)
        top = lanes[lane] > top ? lanes[lane] : top;
    return top;
}

INLINE double sum(const double *lanes)
{
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

/* Three reductions of one length n >= 1, in step, so that their latencies overlap.
 * out[c] = max_i / sum_i / log sum_i exp  of  a_c[i] (x) b_c[i],  i < n. */

KERNEL void max_plus3(const double *a0, const double *b0, const double *a1, const double *b1,
                      const double *a2, const double *b2, index_t n, double *out)
{
    double t0[LANES], t1[LANES], t2[LANES];
    FOR_LANES {
        t0[lane] = a0[lane] + b0[lane];
        t1[lane] = a1[lane] + b1[lane];
        t2[lane] = a2[lane] + b2[lane];
    }
    for (index_t i = LANES; i < n; i += LANES) {
        FOR_LANES {
            double v0 = a0[i + lane] + b0[i + lane];
            double v1 = a1[i + lane] + b1[i + lane];
            double v2 = a2[i + lane] + b2[i + lane];
            t0[lane] = v0 > t0[lane] ? v0 : t0[lane];
            t1[lane] = v1 > t1[lane] ? v1 : t1[lane];
            t2[lane] = v2 > t2[lane] ? v2 : t2[lane];
        }
    }
    out[0] = largest(t0);
    out[1] = largest(t1);
    out[2] = largest(t2);
}

KERNEL void sum_product3(const double *a0, const double *b0, const double *a1, const double *b1,
                         const double *a2, const double *b2, index_t n, double *out)
{
    double t0[LANES], t1[LANES], t2[LANES];
    FOR_LANES {
        t0[lane] = a0[lane] * b0[lane];
        t1[lane] = a1[lane] * b1[lane];
        t2[lane] = a2[lane] * b2[lane];
    }
    for (index_t i = LANES; i < n; i += LANES) {
        FOR_LANES {
            t0[lane] += a0[i + lane] * b0[i + lane];
            t1[lane] += a1[i + lane] * b1[i + lane];
            t2[lane] += a2[i + lane] * b2[i + lane];
        }
    }
    out[0] = sum(t0);
    out[1] = sum(t1);
    out[2] = sum(t2);
}

INLINE double log_plus(const double *a, const double *b, index_t n)
{
    double t[LANES], top, shift;
    FOR_LANES { t[lane] = a[lane] + b[lane]; }
    for (index_t i = LANES; i < n; i += LANES) {
        FOR_LANES {
            double v = a[i + lane] + b[i + lane];
            t[lane] = v > t[lane] ? v : t[lane];
        }
    }
    top = largest(t);
    shift = top > -INFINITY ? top : 0.0; /* all terms log 0: (-inf) - (-inf) would be NaN */
    FOR_LANES { t[lane] = cut_off(a[lane] + b[lane] - shift); }
    FOR_LANES { t[lane] = exp_cut(t[lane]); }
    for (index_t i = LANES; i < n; i += LANES) {
        double y[LANES];
        FOR_LANES { y[lane] = cut_off(a[i + lane] + b[i + lane] - shift); }
        FOR_LANES { t[lane] += exp_cut(y[lane]); }
    }
    return top + log(sum(t));
}

KERNEL void log_plus3(const double *a0, const double *b0, const double *a1, const double *b1,
                      const double *a2, const double *b2, index_t n, double *out)
{
    out[0] = log_plus(a0, b0, n);
    out[1] = log_plus(a1, b1, n);
    out[2] = log_plus(a2, b2, n);
}

/* One vector with many rows, n >= 1: out[r * step] = sum_i / log sum_i exp  x[i] (x) rows[r][i]. */

KERNEL void sum_product_rows(const double *x, const double *rows, index_t stride, index_t count,
                             index_t n, double *out, index_t step)
{
    index_t r = 0;
    for (; r + 3 < count; r += 4) {
        const double *a = rows + r * stride, *b = a + stride, *c = b + stride, *d = c + stride;
        double t0[LANES], t1[LANES], t2[LANES], t3[LANES];
        FOR_LANES {
            t0[lane] = x[lane] * a[lane];
            t1[lane] = x[lane] * b[lane];
            t2[lane] = x[lane] * c[lane];
            t3[lane] = x[lane] * d[lane];
        }
        for (index_t i = LANES; i < n; i += LANES) {
            FOR_LANES {
                double v = x[i + lane];
                t0[lane] += v * a[i + lane];
                t1[lane] += v * b[i + lane];
                t2[lane] += v * c[i + lane];
                t3[lane] += v * d[i + lane];
            }
        }
        out[r * step] = sum(t0);
        out[(r + 1) * step] = sum(t1);
        out[(r + 2) * step] = sum(t2);
        out[(r + 3) * step] = sum(t3);
    }
    for (; r < count; r++) {
        const double *a = rows + r * stride;
        double t[LANES];
        FOR_LANES { t[lane] = x[lane] * a[lane]; }
        for (index_t i = LANES; i < n; i += LANES) {
            FOR_LANES { t[lane] += x[i + lane] * a[i + lane]; }
        }
        out[r * step] = sum(t);
    }
}

KERNEL void log_plus_rows(const double *x, const double *rows, index_t stride, index_t count,
                          index_t n, double *out, index_t step)
{
    for (index_t r = 0; r < count; r++)
        out[r * step] = log_plus(x, rows + r * stride, n);
}

/* Scores.  Those that count are rows 0..n, columns 1..n, without the diagonal. */

/* 1 if all x[i] are finite, hard: or -inf. */
KERNEL int all_finite(const double *x, index_t n, int hard)
{
    int64_t bad = 0;
    double least = hard ? -INFINITY : -1.7976931348623157e308;
    for (index_t i = 0; i < n; i++)
        bad += !(x[i] >= least) | !(x[i] < INFINITY);
    return bad == 0;
}

/* 1 unless a score that counts is NaN or +inf. */
KERNEL int all_below_infinity(const double *scores, index_t stride, index_t n)
{
    int64_t bad = 0;
    for (index_t h = 0; h <= n; h++) {
        const double *row = scores + h * stride;
        for (index_t m = 1; m <= n; m++)
            bad += !(row[m] < INFINITY);
    }
    for (index_t m = 1; bad && m <= n; m++)
        bad -= !(scores[m * stride + m] < INFINITY);
    return bad == 0;
}

/* top[m] = max_h scores[h, m] without the diagonal; top[0] = -inf. */
INLINE void column_tops(const double *scores, index_t stride, index_t n, double *restrict top)
{
    for (index_t m = 0; m <= n; m++)
        top[m] = -INFINITY;
    for (index_t h = 0; h <= n; h++) {
        const double *row = scores + h * stride;
        double own = top[h];
        for (index_t m = 1; m <= n; m++)
            top[m] = row[m] > top[m] ? row[m] : top[m];
        top[h] = own;
    }
}

/* inverse[m] = 1 / max_h weights[h, m], of whole rows; 0 where all weights are 0. */
INLINE void invert_tops(const double *weights, index_t stride, index_t n, double *restrict inverse)
{
    for (index_t m = 0; m < stride; m++)
        inverse[m] = 0.0;
    for (index_t h = 0; h <= n; h++) {
        const double *row = weights + h * stride;
        for (index_t m = 0; m < stride; m++)
            inverse[m] = row[m] > inverse[m] ? row[m] : inverse[m];
    }
    for (index_t m = 0; m < stride; m++)
        inverse[m] = inverse[m] > 0.0 ? 1.0 / inverse[m] : 0.0;
}

/* 1 if finite scores of a word differ so much that some weight over its largest would underflow;
 * top has room for n + 1. */
KERNEL int wide_columns(const double *scores, index_t stride, index_t n, double *restrict top)
{
    int64_t wide = 0;
    column_tops(scores, stride, n, top);
    for (index_t h = 0; h <= n; h++) {
        const double *row = scores + h * stride;
        for (index_t m = 1; m <= n; m++)
            wide += (row[m] > -INFINITY) & (top[m] - row[m] > 300.0);
    }
    for (index_t m = 1; wide && m <= n; m++) { /* the diagonal does not count */
        double x = scores[m * stride + m];
        wide -= (x > -INFINITY) & (top[m] - x > 300.0);
    }
    return wide != 0;
}

/* shift[m] = max_h scores[h, m]; weights[h, m] = exp(scores[h, m] - shift[m]), 0 on the diagonal
 * and where a column is all -inf.  Every tree has one arc per column, so this divides the weight
 * of each tree by exp(sum of shift).  Rows of weights have room for LANES - 1 more. */
KERNEL_512 void scaled_weights(const double *scores, index_t stride, index_t n, double *shift,
                               double *weights, index_t weight_stride)
{
    column_tops(scores, stride, n, shift);
    for (index_t h = 0; h <= n; h++) {
        const double *row = scores + h * stride;
        double *out = weights + h * weight_stride;
        out[0] = 0.0;
        for (index_t m = 1; m <= n; m++) {
            double top = shift[m] > -INFINITY ? shift[m] : 0.0; /* no (-inf) - (-inf) */
            double x = row[m] - top;
            out[m] = cut_off(x < 0.0 ? x : 0.0);
        }
        for (index_t m = n + 1; m < n + LANES; m++)
            out[m] = CUTOFF;
        index_t m = 1;
        for (; m + 2 * LANES <= n + LANES; m += 2 * LANES) { /* a register of 512 bits */
            for (int i = 0; i < 2 * LANES; i++)
                out[m + i] = exp_cut(out[m + i]);
        }
        for (; m <= n; m += LANES) {
            FOR_LANES { out[m + lane] = exp_cut(out[m + lane]); }
        }
        out[h] = 0.0;
    }
}

/* Columns of Chu-Liu/Edmonds. */

/* Lowest index of the largest value; n is a multiple of LANES. */
KERNEL index_t argmax(const double *column, index_t n, double *value)
{
    double t[LANES];
    index_t h = 0;
    FOR_LANES { t[lane] = column[lane]; }
    for (index_t i = LANES; i < n; i += LANES) {
        FOR_LANES { t[lane] = column[i + lane] > t[lane] ? column[i + lane] : t[lane]; }
    }
    *value = largest(t);
    while (h < n && column[h] != *value)
        h++;
    return h;
}

/* First member of a cycle: its column, less the arc given up, starts the supernode's column. */
KERNEL void begin_supernode(double *column, double given_up, int64_t *top, int64_t member,
                            int64_t supernode, index_t n)
{
    for (index_t h = 0; h < n; h++) {
        int inside = top[h] == member;
        column[h] = inside ? -INFINITY : column[h] - given_up;
        top[h] = inside ? supernode : top[h];
    }
}

/* Every further member: the better of the two at each head, and the word that it enters. */
KERNEL void join_supernode(double *restrict column, int64_t *restrict enters,
                           const double *restrict other, const int64_t *restrict other_enters,
                           double given_up, int64_t *restrict top, int64_t member,
                           int64_t supernode, index_t n)
{
    for (index_t h = 0; h < n; h++) {
        int inside = (top[h] == member) | (top[h] == supernode);
        double value = other[h] - given_up;
        int better = value > column[h];
        double kept = better ? value : column[h];
        enters[h] = better ? other_enters[h] : enters[h];
        column[h] = inside ? -INFINITY : kept;
        top[h] = inside ? supernode : top[h];
    }
}

/* The largest |x[i] - y[i]|. */
KERNEL double largest_change(const double *x, const double *y, index_t n)
{
    double top[LANES];
    index_t i = 0;
    FOR_LANES { top[lane] = 0.0; }
    for (; i + LANES <= n; i += LANES) {
        FOR_LANES {
            double size = fabs(x[i + lane] - y[i + lane]);
            top[lane] = size > top[lane] ? size : top[lane];
        }
    }
    for (int lane = 0; i < n; i++, lane++) {
        double size = fabs(x[i] - y[i]);
        top[lane] = size > top[lane] ? size : top[lane];
    }
    return largest(top);
}

/* given_up += amount for the words inside a member. */
KERNEL void give_up(double *given_up, double amount, const int64_t *top, int64_t member, index_t n)
{
    for (index_t m = 0; m < n; m++)
        given_up[m] += top[m] == member ? amount : 0.0;
}

/* Lowest index of the largest value with a place outside low..high; n is a multiple of LANES. */
KERNEL index_t argmax_outside(const double *restrict column, const double *restrict place,
                              double low, double high, index_t n, double *restrict value)
{
    double t[LANES];
    index_t h = 0;
    FOR_LANES { t[lane] = -INFINITY; }
    for (index_t i = 0; i < n; i += LANES) {
        FOR_LANES {
            int inside = (place[i + lane] >= low) & (place[i + lane] <= high);
            double x = inside ? -INFINITY : column[i + lane];
            t[lane] = x > t[lane] ? x : t[lane];
        }
    }
    *value = largest(t);
    while (h < n && (column[h] != *value || (place[h] >= low && place[h] <= high)))
        h++;
    return h < n ? h : 0;
}

/* The word other than m inside a node with the largest row[m] - given_up[m]. */
KERNEL index_t argmax_entering(const double *restrict row, const double *restrict given_up,
                               const int64_t *restrict top, int64_t node, index_t m, index_t n,
                               double *restrict value)
{
    index_t best = 0;
    *value = -INFINITY;
    for (index_t i = 1; i < n; i++) {
        double x = row[i] - given_up[i];
        if (x > *value && top[i] == node && i != m) {
            *value = x;
            best = i;
        }
    }
    return best;
}

/* out[i] = log x[i] - shift[i], for x[i] >= 0, within one unit in the last place of the larger:
 * x = 2^k (1 + f), and with q = f / (2 + f)
 *
 *     log(1 + f) = f - f^2 / 2 + q (f^2 / 2 + 2 q^2 / 3 + 2 q^4 / 5 + ...)
 */
KERNEL void logarithms(const double *x, const double *shift, index_t n, double *restrict out)
{
    const double two_52 = 4503599627370496.0;
    int64_t small = 0;
    for (index_t i = 0; i < n; i++) {
        double f, k, q, z, half, series;
        uint64_t bits, exponent, one = 0x3ff0000000000000;
        memcpy(&bits, x + i, sizeof bits);
        exponent = (bits >> 52) | 0x4330000000000000; /* of two_52: the number is its last bits */
        memcpy(&k, &exponent, sizeof k);
        bits = (bits & 0x000fffffffffffff) | one;
        memcpy(&f, &bits, sizeof f);
        k -= two_52 + 1023.0;
        k += f > 1.4142135623730951 ? 1.0 : 0.0;
        f *= f > 1.4142135623730951 ? 0.5 : 1.0;
        f -= 1.0;
        q = f / (2.0 + f);
        z = q * q;
        half = 0.5 * f * f;
        series = 2.0 / 19.0 + z * (2.0 / 21.0);
        series = 2.0 / 17.0 + z * series;
        series = 2.0 / 15.0 + z * series;
        series = 2.0 / 13.0 + z * series;
        series = 2.0 / 11.0 + z * series;
        series = 2.0 / 9.0 + z * series;
        series = 2.0 / 7.0 + z * series;
        series = 2.0 / 5.0 + z * series;
        series = z * (2.0 / 3.0 + z * series);
        series = f - (half - (q * (half + series) + k * 1.90821492927058770002e-10));
        out[i] = (k * 0.693147180369123816490 + series) - shift[i];
        small += x[i] < 2.2250738585072014e-308;
    }
    for (index_t i = 0; small && i < n; i++)
        if (x[i] < 2.2250738585072014e-308)
            out[i] = log(x[i]) - shift[i];
}

/* Messages. */

/* x[i] = exp(x[i] - shift), for x[i] - shift <= 700; x has room for LANES - 1 more. */
KERNEL void exponentials(double *x, index_t n, double shift)
{
    for (index_t i = 0; i < n; i += LANES) {
        double y[LANES];
        FOR_LANES { y[lane] = cut_off(x[i + lane] - shift); }
        FOR_LANES { x[i + lane] = exp_cut(y[lane]); }
    }
}

/* Sizes |x[i]|: added to P[i], their sum returned, the largest of them and of *most in *most. */
KERNEL double add_sizes(const double *restrict x, double *restrict P, index_t n, double *most)
{
    double t[LANES], top[LANES];
    index_t i = 0;
    FOR_LANES { t[lane] = 0.0; top[lane] = *most; }
    for (; i + LANES <= n; i += LANES) {
        FOR_LANES {
            double size = fabs(x[i + lane]);
            P[i + lane] += size;
            t[lane] += size;
            top[lane] = size > top[lane] ? size : top[lane];
        }
    }
    for (int lane = 0; i < n; i++, lane++) {
        double size = fabs(x[i]);
        P[i] += size;
        t[lane] += size;
        top[lane] = size > top[lane] ? size : top[lane];
    }
    *most = largest(top);
    return sum(t);
}

/* sum_i x[i] y[i] */
KERNEL double dot(const double *x, const double *y, index_t n)
{
    double t[LANES];
    index_t i = 0;
    FOR_LANES { t[lane] = 0.0; }
    for (; i + LANES <= n; i += LANES) {
        FOR_LANES { t[lane] += x[i + lane] * y[i + lane]; }
    }
    for (int lane = 0; i < n; i++, lane++)
        t[lane] += x[i] * y[i];
    return sum(t);
}

/* y[i] += a x[i] */
KERNEL void add_scaled(double a, const double *restrict x, double *restrict y, index_t n)
{
    for (index_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

/* Tables. */

/* Rows of a full table, or (low = 1) halves of its rows, to those of a compact one, in place, without
 * those that are not there; returns how many are left.  An entry of index has a bit for each of 32
 * rows and, above, the number of rows before them.  No branch: what is there cannot be predicted. */
KERNEL int locate_one_by_one(const uint64_t *index, uint32_t *rows, int k, int low)
{
    int found = 0;
    for (int i = 0; i < k; i++) {
        uint32_t row = rows[i] >> low, bit = row & 31, half = rows[i] & (uint32_t)low;
        uint64_t entry = index[row >> 5];
        uint32_t before = (uint32_t)entry & (((uint32_t)1 << bit) - 1);
#if defined(__GNUC__)
        uint32_t count = (uint32_t)__builtin_popcount(before);
#else
        uint32_t count = before - ((before >> 1) & 0x55555555u);
        count = (count & 0x33333333u) + ((count >> 2) & 0x33333333u);
        count = (((count + (count >> 4)) & 0x0F0F0F0Fu) * 0x01010101u) >> 24;
#endif
        rows[found] = ((uint32_t)(entry >> 32) + count) << low | half;
        found += (entry >> bit) & 1;
    }
    return found;
}

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 8 && defined(__x86_64__) \
    && defined(__GLIBC__)
#include <immintrin.h>

/* Eight at a time, in the same order. */
__attribute__((unused, target("avx512f,avx512vl,avx512vpopcntdq,popcnt"))) static int
locate_eights(const uint64_t *index, uint32_t *rows, int k, int low)
{
    const __m256i one = _mm256_set1_epi32(1);
    const __m128i shift = _mm_cvtsi32_si128(low);
    int found = 0;
    for (int i = 0; i < k; i += 8) {
        __mmask8 some = k - i < 8 ? (__mmask8)((1 << (k - i)) - 1) : (__mmask8)255;
        __m256i asked = _mm256_maskz_loadu_epi32(some, rows + i);
        __m256i row = _mm256_srl_epi32(asked, shift);
        __m256i half = _mm256_and_si256(asked, _mm256_set1_epi32(low));
        __m256i bit = _mm256_sllv_epi32(one, _mm256_and_si256(row, _mm256_set1_epi32(31)));
        __m512i entry = _mm512_i32gather_epi64(_mm256_srli_epi32(row, 5), index, 8);
        __m256i present = _mm512_cvtepi64_epi32(entry);
        __m256i before = _mm256_and_si256(present, _mm256_sub_epi32(bit, one));
        __m256i at = _mm256_add_epi32(_mm512_cvtepi64_epi32(_mm512_srli_epi64(entry, 32)),
                                      _mm256_popcnt_epi32(before));
        __mmask8 there = _mm256_mask_test_epi32_mask(some, present, bit);
        int count = __builtin_popcount(there);
        at = _mm256_or_si256(_mm256_sll_epi32(at, shift), half);
        _mm256_mask_storeu_epi32(rows + found, (__mmask8)((1 << count) - 1),
                                 _mm256_maskz_compress_epi32(there, at));
        found += count;
    }
    return found;
}

INLINE int locate(const uint64_t *index, uint32_t *rows, int k, int low)
{
    if (__builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512vl"))
        return locate_eights(index, rows, k, low);
    return locate_one_by_one(index, rows, k, low);
}
#else
#define locate locate_one_by_one
#endif

#endif
