/* Inner loops of relaxation.pyx, few_pairs.pyx and tree_pairs.pyx.  Rows of matrices have `stride`
 * doubles, a multiple of LANES, of which 0..n count; vectors have room for LANES - 1 more. */
#ifndef ARCWISE_RELAXATION_H
#define ARCWISE_RELAXATION_H

#include "fused.h"

/* ---- separation ------------------------------------------------------------------------------ */

/* out[i]: at least gain / mu for any theta within factor times low[i] to high[i], and 0 where no mu
 * makes it gain more than eps; see `worths` in relaxation.pyx. */
KERNEL void worths(const double *low, const double *high, double factor, double eps, int forward,
                   index_t n, double *restrict out)
{
    for (index_t i = 0; i < n; i += LANES) {
        double positive[LANES], negative[LANES], power[LANES];
        FOR_LANES {
            double x = factor * high[i + lane], y = -factor * low[i + lane];
            positive[lane] = x > 0.0 ? x : 0.0;
            negative[lane] = y > 0.0 ? y : 0.0;
        }
        if (forward) {
            FOR_LANES {
                double size = positive[lane] > negative[lane] ? positive[lane] : negative[lane];
                power[lane] = size < 700.0 ? size : 700.0;
            }
            FOR_LANES { power[lane] = exp_cut(power[lane]); }
            FOR_LANES {
                double size = positive[lane] > negative[lane] ? positive[lane] : negative[lane];
                power[lane] *= 1.000000001 * size;
            }
        } else {
            FOR_LANES {
                double x = positive[lane], y = negative[lane], z = x * 0.125;
                double small = x * x * (0.5 + 0.21828182845904554 * x);
                double power_8 = 1.0 / (1.0 - z * (1.0 - z * (0.5 - z * 0.16666666666666666)));
                double below = y * y * (0.5 - y * (0.16666666666666666 - y * 0.041666666666666664));
                power_8 *= power_8;
                power_8 *= power_8;
                power_8 = power_8 * power_8 - 1.0 - x;
                power_8 = x < 12.0 ? power_8 : 1e300;
                power_8 = x < 1.0 ? small : power_8;
                below = below < y ? below : y;
                power[lane] = power_8 > below ? power_8 : below;
            }
        }
        FOR_LANES {
            double size = positive[lane] > negative[lane] ? positive[lane] : negative[lane];
            out[i + lane] = size * size > 8.0 * eps ? power[lane] : 0.0;
        }
    }
}

/* Gains of pairs with |theta| <= 30, within 1e-12; x and v are scratch. */
KERNEL void pair_gains(const double *mu, const double *theta, int forward, index_t n,
                       double *restrict x, double *restrict v, double *restrict shift,
                       double *restrict out)
{
    for (index_t i = 0; i < n; i += LANES) {
        double y[LANES];
        FOR_LANES {
            double t = theta[i + lane] < 30.0 ? theta[i + lane] : 30.0;
            y[lane] = t > -30.0 ? t : -30.0;
        }
        FOR_LANES { y[lane] = exp_cut(y[lane]); }
        FOR_LANES {
            x[i + lane] = y[lane];
            v[i + lane] = 1.0 + mu[i + lane] * (y[lane] - 1.0);
            shift[i + lane] = forward ? 0.0 : mu[i + lane] * theta[i + lane];
        }
    }
    logarithms(v, shift, n, out);
    for (index_t i = 0; forward && i < n; i++)
        out[i] = theta[i] * mu[i] * x[i] / v[i] - out[i];
}

/* Which k from first up to n have x[k] > least and x[k] cap[k] > product, if any has the latter as
 * top says, and mostly none has; returns how many. */
INLINE index_t above(const double *x, double least, const double *cap, double product,
                     const double *top, index_t first, index_t n, int32_t *restrict found)
{
    index_t count = 0;
    if (!(largest(top) > product))
        return 0;
    for (index_t k = first; k < n; k++) {
        found[count] = (int32_t)k;
        count += (x[k] > least) & (x[k] * cap[k] > product);
    }
    return count;
}

/* Probabilities out[k] of two arcs, one of them with probability b, within the bounds that their own
 * put on it: the product b mu[k], less what they have in common if `joint`; and where it is `above`. */
INLINE index_t likely(int joint, double b, double w, const double *mu, const double *W,
                      const double *row, double base, const double *column, const double *less,
                      double *restrict out, double least, const double *cap, double product,
                      index_t first, index_t n, int32_t *restrict found)
{
    double top[LANES];
    FOR_LANES { top[lane] = 0.0; }
    for (index_t i = 0; i < n; i += LANES) {
        FOR_LANES {
            index_t k = i + lane;
            double both = b * mu[k], low = b + mu[k] - 1.0, high = mu[k] < b ? mu[k] : b, value;
            if (joint)
                both -= w * W[k] * (row[k] - base) * (column[k] - less[k]);
            both = both > low ? both : low;
            out[k] = both = both < high ? both : high;
            value = both * cap[k];
            top[lane] = value > top[lane] ? value : top[lane];
        }
    }
    return above(out, least, cap, product, top, first, n, found);
}

/* As in tree_pairs.pyx, where the one arc has weight w:
 *
 *     out[k] = b mu[k] - w W[k] (row[k] - base) (column[k] - less[k])
 */
KERNEL index_t likely_marginals(double b, double w, const double *mu, const double *W,
                                const double *row, double base, const double *column,
                                const double *less, double *restrict out, double least,
                                const double *cap, double product, index_t first, index_t n,
                                int32_t *restrict found)
{
    return likely(1, b, w, mu, W, row, base, column, less, out, least, cap, product, first, n,
                  found);
}

/* out[k] = b mu[k] */
KERNEL index_t likely_products(double b, const double *mu, double *restrict out, double least,
                               const double *cap, double product, index_t first, index_t n,
                               int32_t *restrict found)
{
    return likely(0, b, 0.0, mu, NULL, NULL, 0.0, NULL, NULL, out, least, cap, product, first, n,
                  found);
}

/* most[i]: at least row[which[i]]; returns the largest of these. */
INLINE uint8_t raise_to(const uint8_t *restrict row, const int32_t *restrict which, index_t count,
                        uint8_t *restrict most)
{
    uint8_t top = 0;
    for (index_t i = 0; i < count; i++) {
        uint8_t value = row[which[i]];
        top = value > top ? value : top;
        most[i] = value > most[i] ? value : most[i];
    }
    return top;
}

/* Where the last of eight tags is that equals it, -1 if none does. */
INLINE int find_tag(const uint32_t *tags, uint32_t tag)
{
    int32_t at = -1;
    for (int32_t i = 0; i < 8; i++)
        at = tags[i] == tag ? i : at;
    return at;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* out[m]: sum of mu[h, m] over the heads that are not likelier than not. */
KERNEL void unlikely_heads(const double *mu, index_t stride, index_t n, double *restrict out)
{
    for (index_t m = 0; m < stride; m++)
        out[m] = 0.0;
    for (index_t h = 0; h <= n; h++) {
        const double *row = mu + h * stride;
        for (index_t m = 0; m < stride; m++)
            out[m] += row[m] > 0.5 ? 0.0 : row[m];
    }
}

/* ---- inverses -------------------------------------------------------------------------------- */

INLINE void exchange(double *x, double *y, index_t n)
{
    for (index_t j = 0; j < n; j++) {
        double kept = x[j];
        x[j] = y[j];
        y[j] = kept;
    }
}

/* y -= a x */
INLINE void subtract_row(double a, const double *restrict x, double *restrict y, index_t n)
{
    for (index_t j = 0; j < n; j += LANES) {
        FOR_LANES { y[j + lane] -= a * x[j + lane]; }
    }
}

/* y -= a x + b z */
INLINE void subtract_rows(double a, const double *restrict x, double b, const double *restrict z,
                          double *restrict y, index_t n)
{
    for (index_t j = 0; j < n; j += LANES) {
        FOR_LANES { y[j + lane] -= a * x[j + lane] + b * z[j + lane]; }
    }
}

/* The same for two rows y. */
INLINE void subtract_rows_twice(const double *a, const double *restrict x, const double *b,
                                const double *restrict z, double *restrict y,
                                double *restrict other, index_t n)
{
    double a0 = a[0], a1 = a[1], b0 = b[0], b1 = b[1];
    for (index_t j = 0; j < n; j += LANES) {
        FOR_LANES { y[j + lane] -= a0 * x[j + lane] + b0 * z[j + lane]; }
        FOR_LANES { other[j + lane] -= a1 * x[j + lane] + b1 * z[j + lane]; }
    }
}

/* x *= a */
INLINE void scale_row(double a, double *x, index_t n)
{
    for (index_t j = 0; j < n; j += LANES) {
        FOR_LANES { x[j + lane] *= a; }
    }
}

/* The largest entry in size of x[k..n], mostly the first; 0: all are 0.  x is 0 after n, where it
 * has room for LANES - 1 more. */
INLINE index_t pivot_of(const double *x, index_t k, index_t n)
{
    double top[LANES], size;
    FOR_LANES { top[lane] = fabs(x[k + lane]); }
    for (index_t i = k + LANES; i <= n; i += LANES) {
        FOR_LANES {
            double other = fabs(x[i + lane]);
            top[lane] = other > top[lane] ? other : top[lane];
        }
    }
    size = largest(top);
    while (k <= n && fabs(x[k]) != size)
        k++;
    return size > 0.0 && k <= n ? k : 0;
}

INLINE void exchange_entries(double *x, index_t i, index_t j)
{
    double kept = x[i];
    x[i] = x[j];
    x[j] = kept;
}

/* Rows and columns 1..n in place, by Gauss-Jordan with row pivots, two columns at a time; 0 if
 * singular.  The rest of the rows is 0; order has room for n + 1, scratch for 3 rows and LANES. */
KERNEL int invert(double *A, index_t stride, index_t n, int *order, double *scratch)
{
    double *first = scratch, *f = first + stride, *g = f + stride + LANES;
    for (index_t i = n + 1; i < stride + LANES; i++)
        f[i] = 0.0;
    for (index_t i = n + 1; i < stride; i++)
        g[i] = 0.0;
    for (index_t k = 1; k <= n; k += 2) {
        double *row = A + k * stride, *next = row + stride, ahead, pivot;
        index_t best;
        for (index_t i = 1; i <= n; i++) { /* the two columns */
            f[i] = A[i * stride + k];
            g[i] = A[i * stride + k + 1];
        }
        best = pivot_of(f, k, n);
        if (best == 0)
            return 0;
        order[k] = (int)best;
        if (best != k) {
            exchange(row, A + best * stride, stride);
            exchange_entries(f, k, best);
            exchange_entries(g, k, best);
        }
        pivot = 1.0 / row[k];
        row[k] = 1.0;
        scale_row(pivot, row, stride);
        if (k == n) {
            for (index_t i = 1; i < n; i++) {
                A[i * stride + k] = 0.0;
                subtract_row(f[i], row, A + i * stride, stride);
            }
            break;
        }
        ahead = row[k + 1];
        for (index_t i = 1; i <= n; i++)
            g[i] -= f[i] * ahead;
        best = pivot_of(g, k + 1, n);
        if (best == 0)
            return 0;
        order[k + 1] = (int)best;
        if (best != k + 1) {
            exchange(next, A + best * stride, stride);
            exchange_entries(f, k + 1, best);
            exchange_entries(g, k + 1, best);
        }
        next[k] = 0.0;
        subtract_row(f[k + 1], row, next, stride);
        pivot = 1.0 / next[k + 1];
        next[k + 1] = 1.0;
        scale_row(pivot, next, stride);
        memcpy(first, row, stride * sizeof(double));
        first[k + 1] = row[k + 1] = 0.0;
        subtract_row(ahead, next, row, stride);
        for (index_t i = 1; i <= n; i += 2) {
            double *other = A + i * stride, *another = other + stride;
            if (i == k)
                continue;
            other[k] = other[k + 1] = 0.0;
            if (i < n) {
                another[k] = another[k + 1] = 0.0;
                subtract_rows_twice(f + i, first, g + i, next, other, another, stride);
            } else {
                subtract_rows(f[i], first, g[i], next, other, stride);
            }
        }
    }
    for (index_t k = n; k > 0; k--) { /* undo the exchanges on the columns */
        index_t other = order[k];
        for (index_t i = 1; other != k && i <= n; i++)
            exchange_entries(A + i * stride, k, other);
    }
    return 1;
}

/* The inverse of a 2 x 2 matrix; 0 if its corner or determinant is not positive. */
INLINE int invert_two(const double *x, double *restrict out)
{
    double determinant = x[0] * x[3] - x[1] * x[2], inverse;
    if (!(x[0] > 0.0 && determinant > 0.0))
        return 0;
    inverse = 1.0 / determinant;
    out[0] = x[3] * inverse;
    out[1] = -x[1] * inverse;
    out[2] = -x[2] * inverse;
    out[3] = x[0] * inverse;
    return 1;
}

/* out = x y, 2 x 2 */
INLINE void multiply_two(const double *x, const double *y, double *restrict out)
{
    out[0] = x[0] * y[0] + x[1] * y[2];
    out[1] = x[0] * y[1] + x[1] * y[3];
    out[2] = x[2] * y[0] + x[3] * y[2];
    out[3] = x[2] * y[1] + x[3] * y[3];
}

/* out = - the inverse of the first 4 columns of four rows, by halves, without pivoting; 0 if a
 * half's corner or determinant is not positive. */
INLINE int invert_four(const double *x, index_t stride, double out[LANES][LANES])
{
    const double *y = x + stride, *z = y + stride, *u = z + stride;
    double A[4] = {x[0], x[1], y[0], y[1]}, B[4] = {x[2], x[3], y[2], y[3]};
    double C[4] = {z[0], z[1], u[0], u[1]}, D[4] = {z[2], z[3], u[2], u[3]};
    double E[4], F[4], G[4], H[4], S[4], T[4];
    if (!invert_two(A, E))
        return 0;
    multiply_two(C, E, F); /* C / A */
    multiply_two(E, B, G); /* A \ B */
    multiply_two(F, B, T);
    for (int i = 0; i < 4; i++)
        D[i] -= T[i];
    if (!invert_two(D, S))
        return 0;
    multiply_two(G, S, H);
    multiply_two(H, F, T);
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++)
            out[i][j] = -E[2 * i + j] - T[2 * i + j];
        for (int j = 0; j < 2; j++)
            out[i][2 + j] = H[2 * i + j];
    }
    multiply_two(S, F, T);
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++)
            out[2 + i][j] = T[2 * i + j];
        for (int j = 0; j < 2; j++)
            out[2 + i][2 + j] = -S[2 * i + j];
    }
    return 1;
}

INLINE int invert_loops(double *A, index_t stride, index_t n, double *scratch, int wide)
{
    double *X = scratch, *Y = X + LANES * stride, *F = Y + LANES * stride;
    A[0] = 1.0;
    memset(A + (n + 1) * stride, 0, (size_t)((stride - n - 1) * stride) * sizeof(double));
    for (index_t c = 0; c <= n; c += LANES) {
        index_t rows = n + 1 - c < LANES ? n + 1 - c : LANES;
        double P[LANES][LANES];
        memcpy(X, A + c * stride, (size_t)(LANES * stride) * sizeof(double));
        for (index_t k = rows; k < LANES; k++)
            X[k * stride + c + k] = 1.0;
        if (!invert_four(X + c, stride, P))
            return 0;
        for (index_t k = 0; k < LANES; k++) {
            FOR_LANES { X[k * stride + c + lane] = lane == k ? 1.0 : 0.0; }
        }
        memset(Y, 0, (size_t)(LANES * stride) * sizeof(double));
        add_products(LANES, P[0], LANES, 1, X, stride, Y, stride, stride, wide);
        for (index_t i = 0; i < stride; i++) { /* well before they are read again, more at once */
            double *row = A + i * stride + c;
            FOR_LANES { F[i * LANES + lane] = row[lane]; }
            FOR_LANES { row[lane] = 0.0; }
        }
        for (index_t i = 0; i <= n; i += LANES)
            if (i != c)
                add_products(LANES, F + i * LANES, LANES, 1, Y, stride, A + i * stride, stride,
                             stride, wide);
        for (index_t j = 0; j < rows * stride; j++)
            A[c * stride + j] = -Y[j];
    }
    A[0] = 0.0;
    return 1;
}

/* Rows and columns 1..n in place, by Gauss-Jordan, four columns at a time; 0 if a pivot is not
 * positive.  No pivoting: off the diagonal there is nothing positive, and each column's sum is
 * positive, which holds for what is left at each step.  Row and column 0 and the rest of the rows
 * are 0.  A has `stride` rows; scratch: 12 of them. */
FUSED(int, invert_dominant, (double *A, index_t stride, index_t n, double *scratch), invert_loops,
      A, stride, n, scratch)

/* out[j, i] = A[i, j], rows and columns 0..n. */
KERNEL void transpose(const double *A, double *restrict out, index_t stride, index_t n)
{
    for (index_t j = 0; j <= n; j++) {
        for (index_t i = 0; i <= n; i++)
            out[j * stride + i] = A[i * stride + j];
    }
}

/* W over the largest of each column, and the Laplacian L of tree_pairs.pyx from it.  scratch: (2,
 * stride). */
KERNEL void laplacian(double *restrict W, double *restrict L, index_t stride, index_t n,
                      int single_root, double *scratch)
{
    double *restrict top = scratch, *restrict column = scratch + stride;
    invert_tops(W, stride, n, top);
    for (index_t m = 0; m < stride; m++)
        column[m] = 0.0;
    for (index_t h = 0; h <= n; h++) {
        double counts = h > 0 || !single_root ? 1.0 : 0.0;
        for (index_t m = 0; m < stride; m++) {
            double w = W[h * stride + m] * top[m];
            W[h * stride + m] = w;
            L[h * stride + m] = -w;
            column[m] += counts * w;
        }
    }
    for (index_t m = 1; m <= n; m++)
        L[m * stride + m] = column[m];
    for (index_t m = 0; m < stride; m++) {
        L[m] = 0.0;
        if (single_root)
            L[stride + m] = W[m];
    }
}

/* mu from the inverse's transpose, whose row 0 is that of the root's children with one root;
 * returns by how much a column's sum misses 1.  scratch: (stride,). */
KERNEL double inverse_marginals(const double *restrict W, const double *restrict KT,
                                const double *diagonal, double *restrict mu, index_t stride,
                                index_t n, int single_root, double *scratch)
{
    double *restrict column = scratch, worst = 0.0;
    for (index_t m = 0; m < stride; m++) {
        mu[m] = W[m] * (single_root ? KT[m] : diagonal[m]);
        column[m] = mu[m];
    }
    for (index_t h = 1; h <= n; h++) {
        for (index_t m = 0; m < stride; m++) {
            double value = W[h * stride + m] * (diagonal[m] - KT[h * stride + m]);
            mu[h * stride + m] = value;
            column[m] += value;
        }
    }
    for (index_t m = 1; m <= n; m++) {
        double off = fabs(column[m] - 1.0);
        worst = off <= worst ? worst : off; /* NaN stays */
    }
    return worst;
}

#endif
