/* Chains of children on one side of a head, for all heads that it may have at once: the max-plus
 * passes of ascent.pyx.
 *
 * Places are 0 for START, 1..count for the children, outwards, and count + 1 for END.  Tables over
 * places have rows of `rows` doubles, a multiple of LANES, one for each head of the head.  A child
 * that is sure cannot be passed over.
 *
 *     seq[triangle(j) + i]        of the adjacent places i < j
 *     more[triangle(j) + i, r]    as much again, with a head of the head; or NULL
 *     N[j, r]                     what the j-th child adds
 */
#ifndef ARCWISE_CHAINS_H
#define ARCWISE_CHAINS_H

#include "simd.h"

#if defined(__GNUC__) && !defined(__clang__)
#define UNROLL_NONE _Pragma("GCC unroll 1")
#else
#define UNROLL_NONE
#endif

INLINE index_t before(index_t row)
{
    return (row * (row - 1)) >> 1;
}

/* best = max(best, x + weight + more), one group of LANES; more may be NULL */
INLINE void reach(double *best, const double *x, double weight, const double *more)
{
    if (more)
        FOR_LANES {
            double term = x[lane] + weight + more[lane];
            best[lane] = term > best[lane] ? term : best[lane];
        }
    else
        FOR_LANES {
            double term = x[lane] + weight;
            best[lane] = term > best[lane] ? term : best[lane];
        }
}

/* E[i] = N[i] + max_{j>i} seq[j, i] + more[j, i] + E[j], E[END] = 0, without N at START */
INLINE void outwards(const double *N, const double *seq, const double *more, const char *sure,
                     index_t count, index_t rows, double *E)
{
    index_t far = count + 1;
    for (index_t r = 0; r < rows; r++)
        E[far * rows + r] = 0.0;
    for (index_t i = count; i >= 0; i--) {
        if (i < count && sure[i + 1])
            far = i + 1;
        for (index_t r = 0; r < rows; r += LANES) {
            const double *add = N + i * rows + r;
            double best[LANES], *to = E + i * rows + r;
            FOR_LANES { best[lane] = -INFINITY; }
            for (index_t j = far; j > i; j--)
                reach(best, E + j * rows + r, seq[before(j) + i],
                      more ? more + (before(j) + i) * rows + r : more);
            if (i)
                FOR_LANES { to[lane] = best[lane] + add[lane]; }
            else
                FOR_LANES { to[lane] = best[lane]; }
        }
    }
}

/* max_r W + F[j] + E[j] */
INLINE double through(const double *W, const double *F, const double *E, index_t rows)
{
    double best[LANES];
    FOR_LANES { best[lane] = -INFINITY; }
    for (index_t r = 0; r < rows; r += LANES)
        FOR_LANES {
            double term = W[r + lane] + F[r + lane] + E[r + lane];
            best[lane] = term > best[lane] ? term : best[lane];
        }
    return largest(best);
}

/* max over i, j, low <= i < at < j <= far, and r */
INLINE double around(const double *W, const double *F, const double *E, const double *seq,
                     const double *more, index_t low, index_t at, index_t far, index_t rows)
{
    double top[LANES];
    FOR_LANES { top[lane] = -INFINITY; }
    for (index_t j = at + 1; j <= far; j++)
        for (index_t r = 0; r < rows; r += LANES) {
            const double *beyond = E + j * rows + r, *other = W + r;
            double best[LANES];
            FOR_LANES { best[lane] = -INFINITY; }
            for (index_t i = low; i < at; i++)
                reach(best, F + i * rows + r, seq[before(j) + i],
                      more ? more + (before(j) + i) * rows + r : more);
            FOR_LANES {
                double term = best[lane] + beyond[lane] + other[lane];
                top[lane] = term > top[lane] ? term : top[lane];
            }
        }
    return largest(top);
}

/* F[j] = N[j] + max_{i<j} F[i] + seq[j, i] + more[j, i], F[START] = 0, without N at END.  On the
 * way each child that is not sure loses change[j] = share (best with it - best without); -inf if it
 * cannot be had.  W: what else there is for each head; top: the best of all, before and (returned)
 * after. */
INLINE double inwards(const double *W, const double *N, const double *E, const double *seq,
                      const double *more, const char *sure, index_t count, index_t rows,
                      double share, double top, double tie, double *F, double *change)
{
    index_t low = 0, far = 0;
    for (index_t r = 0; r < rows; r++)
        F[r] = 0.0;
    for (index_t j = 1; j <= count + 1; j++) {
        const double *at = E + j * rows;
        double *own = F + j * rows, part = 0.0;
        for (index_t r = 0; r < rows; r += LANES) {
            double best[LANES];
            FOR_LANES { best[lane] = -INFINITY; }
            for (index_t i = low; i < j; i++)
                reach(best, F + i * rows + r, seq[before(j) + i],
                      more ? more + (before(j) + i) * rows + r : more);
            FOR_LANES { own[r + lane] = best[lane]; }
        }
        if (j > count)
            break;
        if (sure[j])
            low = j;
        else if (top > -INFINITY) {
            double chosen = through(W, own, at, rows), without = top;
            if (chosen >= top - tie) {
                for (far = far > j ? far : j + 1; far <= count && !sure[far];)
                    far++;
                without = around(W, F, E, seq, more, low, j, far, rows);
            }
            if (chosen == -INFINITY)
                part = -INFINITY;
            else if (without > -INFINITY) {
                part = share * (chosen - without);
                top = chosen - part > without ? chosen - part : without;
            }
        }
        change[j] = part;
        for (index_t r = 0; r < rows; r++)
            own[r] = part > -INFINITY ? own[r] + (N[j * rows + r] - part) : part;
    }
    return top;
}

/* Short sides and common numbers of rows have copies, in which loops are unrolled. */

#define SHORT_SIDES(PASS, ROWS) \
    switch (count) {            \
    case 1: PASS(1, ROWS)       \
    case 2: PASS(2, ROWS)       \
    default: PASS(count, ROWS)  \
    }
#define SHAPES(PASS)                     \
    {                                    \
        if (rows == LANES)               \
            SHORT_SIDES(PASS, LANES)     \
        if (rows == 2 * LANES)           \
            SHORT_SIDES(PASS, 2 * LANES) \
        if (rows == 3 * LANES)           \
            SHORT_SIDES(PASS, 3 * LANES) \
        PASS(count, rows)                \
    }

KERNEL void look_outwards(const double *N, const double *seq, const double *more, const char *sure,
                          index_t count, index_t rows, double *E)
{
#define OUTWARDS(COUNT, ROWS)                           \
    {                                                   \
        outwards(N, seq, NULL, sure, COUNT, ROWS, E);   \
        return;                                         \
    }
    if (more)
        outwards(N, seq, more, sure, count, rows, E);
    else
        SHAPES(OUTWARDS)
}

KERNEL double share_inwards(const double *W, const double *N, const double *E, const double *seq,
                            const double *more, const char *sure, index_t count, index_t rows,
                            double share, double top, double tie, double *F, double *change)
{
#define INWARDS(COUNT, ROWS) \
    return inwards(W, N, E, seq, NULL, sure, COUNT, ROWS, share, top, tie, F, change);
    if (more)
        return inwards(W, N, E, seq, more, sure, count, rows, share, top, tie, F, change);
    SHAPES(INWARDS)
}

/* seq of the places at[i] alone */
INLINE void collect(const double *seq, const int *at, index_t count, double *to)
{
    for (index_t j = 1; j <= count + 1; j++) {
        const double *row = seq + before(at[j]);
        for (index_t i = 0; i < j; i++)
            *to++ = row[at[i]];
    }
}

/* to[r] = add + grand[places[r]]; without the second if it is NULL.  Written out, since loads from
 * here and there are not vectorised, and a loop of them is not unrolled. */
INLINE void gather(double add, const double *grand, const int64_t *places, index_t rows, double *to)
{
    if (grand)
        for (index_t r = 0; r < rows; r += LANES) {
            to[r] = add + grand[places[r]];
            to[r + 1] = add + grand[places[r + 1]];
            to[r + 2] = add + grand[places[r + 2]];
            to[r + 3] = add + grand[places[r + 3]];
        }
    else
        for (index_t r = 0; r < rows; r += LANES)
            FOR_LANES { to[r + lane] = add; }
}

/* to[r] = x[r] + y[r] */
INLINE void add_rows(const double *x, const double *y, index_t rows, double *to)
{
    for (index_t r = 0; r < rows; r += LANES)
        FOR_LANES { to[r + lane] = x[r + lane] + y[r + lane]; }
}

/* max_{i<j} seq[j, i] + seq[k, j] - seq[k, i], j < k: what the j-th child adds at most before the
 * k-th place. */
INLINE double most_before(const double *seq, index_t j, index_t k)
{
    const double *own = seq + before(j), *other = seq + before(k);
    if (j <= LANES) {
        index_t b = j > 1 ? 1 : 0, c = j > 2 ? 2 : b, d = j > 3 ? 3 : c;
        double x = own[0] - other[0], y = own[b] - other[b], z = own[c] - other[c],
               w = own[d] - other[d];
        x = x > y ? x : y, z = z > w ? z : w;
        return (x > z ? x : z) + other[j];
    }
    double top[LANES];
    FOR_LANES { top[lane] = -INFINITY; }
    for (index_t i = 0; i < j; i += LANES) {
        index_t at = i + LANES <= j ? i : j - LANES;
        FOR_LANES {
            double term = own[at + lane] - other[at + lane];
            top[lane] = term > top[lane] ? term : top[lane];
        }
    }
    return largest(top) + other[j];
}

/* most[step * (j - 1)], of all children of a side: as much before END. */
KERNEL void most_at_end(const double *seq, index_t count, double *most, index_t step)
{
    for (index_t j = 1; j <= count; j++)
        most[step * (j - 1)] = most_before(seq, j, count + 1);
}

/* most[k] = max_g grand[g, k], but those where skip[g] = k + 1.  most has room for one more, before
 * its first. */
KERNEL void most_of_rows(const double *grand, const int *skip, index_t heads, index_t count,
                         double *restrict most)
{
    for (index_t k = 0; k < count; k++)
        most[k] = -INFINITY;
    for (index_t g = 0; g < heads; g++, grand += count) {
        double kept = most[skip[g] - 1];
        index_t k = 0;
        for (; k + LANES <= count; k += LANES)
            FOR_LANES {
                double x = grand[k + lane];
                most[k + lane] = x > most[k + lane] ? x : most[k + lane];
            }
        UNROLL_NONE
        for (; k < count; k++)
            most[k] = grand[k] > most[k] ? grand[k] : most[k];
        most[skip[g] - 1] = kept;
    }
}

#endif
