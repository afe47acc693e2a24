/* Inner loops of matrix_tree.pyx for scaled weights.  Tables have rows of `stride` doubles, a
 * multiple of LANES and more than n + LANES, and as many rows.  Loops run over whole groups of
 * LANES: what is past the end of a row is read, and is 0 where it counts. */
#ifndef ARCWISE_ELIMINATION_H
#define ARCWISE_ELIMINATION_H

#include "simd.h"

#define PANEL 4 /* words that leave at once */

INLINE index_t whole(index_t n)
{
    return (n + LANES - 1) & -LANES;
}

/* *log_product + log *product gains log factor, mostly without taking a log. */
INLINE void take_log(double *log_product, double *product, double factor)
{
    const double high = 1e100, low = 1e-100;
    if (!(factor > low && factor < high)) {
        *log_product += log(factor);
        return;
    }
    *product *= factor;
    if (!(*product > low && *product < high)) {
        *log_product += log(*product);
        *product = 1.0;
    }
}

/* y += a x */
INLINE void add_row(double a, const double *restrict x, double *restrict y, index_t n)
{
    for (index_t i = 0; i < whole(n); i++)
        y[i] += a * x[i];
}

/* y += a0 x0 + a1 x1 */
INLINE void add_pair(double a0, double a1, const double *x0, const double *x1,
                     double *restrict y, index_t n)
{
    for (index_t i = 0; i < whole(n); i++)
        y[i] += a0 * x0[i] + a1 * x1[i];
}

/* f += sum_j a[j] y_j over the rows y_j of a panel, pair by pair, and g += sum_j b[j] y_j. */
INLINE void add_rows(const double *a, const double *b, const double *y0, const double *y1,
                     const double *y2, const double *y3, double *restrict f, double *restrict g,
                     index_t n)
{
    double a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3];
    double b0 = b[0], b1 = b[1], b2 = b[2], b3 = b[3];
    for (index_t i = 0; i < whole(n); i++) {
        f[i] = (f[i] + (a0 * y0[i] + a1 * y1[i])) + (a2 * y2[i] + a3 * y3[i]);
        g[i] = (g[i] + (b0 * y0[i] + b1 * y1[i])) + (b2 * y2[i] + b3 * y3[i]);
    }
}

/* Elimination of the words n..1 from the weights w[h,m] = F[h][m]: what is left of them in F below
 * the diagonal, p in the rows of FT, d; log Z returned, -inf when a sum is 0.  Above the diagonal,
 * and in column 0, F ends with numbers that mean nothing.
 *
 * Words 4i..4i-3 are a panel.  Past n weights are 0: columns by `scaled_weights`, rows here. */
KERNEL double eliminate_weights(double *F, double *FT, double *d, index_t stride, index_t n,
                                int single_root)
{
    double log_z = 0.0, product = 1.0;
    memset(F + (n + 1) * stride, 0, (size_t)((whole(n) - n) * stride) * sizeof(double));
    for (index_t k = whole(n); k > 0; k -= PANEL) {
        index_t left = k - PANEL, h;
        double *p = FT + k * stride, *y = F + k * stride; /* of word k - j: j rows before */
        for (h = 0; h < k; h++) {
            const double *f = F + h * stride + k;
            p[h] = f[0];
            p[h - stride] = f[-1];
            p[h - 2 * stride] = f[-2];
            p[h - 3 * stride] = f[-3];
        }
        for (int j = 0; j < PANEL; j++) {
            index_t word = k - j;
            double *own = p - j * stride, *row = y - j * stride;
            double root, total, inverse, t[LANES];
            for (int i = 0; i < LANES; i++)
                own[word + i] = 0.0;
            if (word > n)
                continue;
            if (j > 1) {
                double from = p[word], next = p[word - stride];
                add_pair(y[word], y[word - stride], p, p - stride, own, word);
                add_pair(from, next, y, y - stride, row, word);
            }
            if (j % 2) {
                double from = own[word + stride];
                add_row(row[word + stride], own + stride, own, word);
                add_row(from, row + stride, row, word);
            }
            for (int i = 0; i < LANES; i++)
                own[word + i] = 0.0;
            root = own[0];
            if (single_root && word > 1)
                own[0] = 0.0;
            FOR_LANES { t[lane] = own[lane]; }
            for (index_t i = LANES; i < word; i += LANES) {
                FOR_LANES { t[lane] += own[i + lane]; }
            }
            total = sum(t);
            own[0] = root;
            if (total == 0.0)
                return -INFINITY;
            take_log(&log_z, &product, total);
            d[word] = total;
            inverse = 1.0 / total;
            for (index_t i = 0; i < whole(word); i++)
                own[i] *= inverse;
        }
        for (h = 0; left && h <= left; h++) {
            const double *a = p + h;
            double *f = F + h * stride;
            if (k - 1 > n) {
                add_pair(a[-2 * stride], a[-3 * stride], y - 2 * stride, y - 3 * stride, f,
                         left + 1);
                continue;
            }
            if (h == left) {
                add_pair(a[0], a[-stride], y, y - stride, f, left + 1);
                add_pair(a[-2 * stride], a[-3 * stride], y - 2 * stride, y - 3 * stride, f,
                         left + 1);
            } else {
                double b[PANEL], c[PANEL];
                for (int j = 0; j < PANEL; j++) {
                    b[j] = a[-j * stride];
                    c[j] = a[1 - j * stride];
                }
                add_rows(b, c, y, y - stride, y - 2 * stride, y - 3 * stride, f, f + stride,
                         left + 1);
                h++;
            }
        }
    }
    return log_z + log(product);
}

/* A = d log Z / d w, from what `eliminate_weights` left, as in `adjoint` of matrix_tree.pyx.  The
 * rows x and B are scratch. */
KERNEL void adjoint_weights(double *F, const double *FT, const double *d, double *restrict A,
                            double *restrict x, double *restrict B, index_t stride, index_t n,
                            int single_root, double least)
{
    memset(A, 0, (size_t)(n + LANES) * stride * sizeof(double));
    for (index_t k = 1; k <= n; k++) {
        const double *p = FT + k * stride;
        double *y = F + k * stride;
        double inverse = 1.0 / d[k], own, floor, root, s[LANES];
        for (int i = 0; i < LANES; i++)
            y[k + i] = 0.0;
        for (index_t i = 0; i < whole(k); i++)
            x[i] = 0.0;
        for (index_t h = 0; h < k; h += 4) {
            const double *a = A + h * stride, *b = a + stride, *c = b + stride, *e = c + stride;
            double ta[LANES], tb[LANES], tc[LANES], te[LANES];
            FOR_LANES {
                ta[lane] = a[lane] * y[lane];
                tb[lane] = b[lane] * y[lane];
                tc[lane] = c[lane] * y[lane];
                te[lane] = e[lane] * y[lane];
            }
            FOR_LANES {
                x[lane] += p[h] * a[lane] + p[h + 1] * b[lane];
                x[lane] += p[h + 2] * c[lane] + p[h + 3] * e[lane];
            }
            for (index_t i = LANES; i < k; i += LANES) {
                FOR_LANES {
                    double v = y[i + lane];
                    double va = a[i + lane], vb = b[i + lane], vc = c[i + lane], ve = e[i + lane];
                    ta[lane] += va * v;
                    tb[lane] += vb * v;
                    tc[lane] += vc * v;
                    te[lane] += ve * v;
                    x[i + lane] += p[h] * va + p[h + 1] * vb;
                    x[i + lane] += p[h + 2] * vc + p[h + 3] * ve;
                }
            }
            B[h] = sum(ta);
            B[h + 1] = sum(tb);
            B[h + 2] = sum(tc);
            B[h + 3] = sum(te);
        }
        FOR_LANES { s[lane] = p[lane] * B[lane]; }
        for (index_t i = LANES; i < k; i += LANES) {
            FOR_LANES { s[lane] += p[i + lane] * B[i + lane]; }
        }
        own = 1.0 - sum(s);
        floor = own ? least : 0.0;
        for (index_t i = 0; i < whole(k); i++)
            A[k * stride + i] = x[i];
        root = B[0];
        for (index_t i = 0; i < whole(k); i++) {
            double value = own + B[i];
            B[i] = (value > floor ? value : floor) * inverse;
        }
        if (single_root && k > 1)
            B[0] = root * inverse;
        for (index_t h = 0; h < k; h++)
            A[h * stride + k] = B[h];
    }
}

/* log prod_m sum_h w[h,m]; the row sums is scratch. */
KERNEL double log_choices(const double *w, double *restrict sums, index_t stride, index_t n)
{
    double log_product = 0.0, product = 1.0;
    for (index_t m = 0; m < whole(n + 1); m++)
        sums[m] = w[m];
    for (index_t h = 1; h <= n; h++)
        for (index_t m = 0; m < whole(n + 1); m++)
            sums[m] += w[h * stride + m];
    for (index_t m = 1; m <= n; m++)
        take_log(&log_product, &product, sums[m]);
    return log_product + log(product);
}

/* mu = w A, not above 1. */
KERNEL void weights_times(const double *w, const double *A, index_t stride, index_t n,
                          double *restrict mu, index_t mu_stride)
{
    for (index_t h = 0; h <= n; h++) {
        for (index_t m = 0; m <= n; m++) {
            double value = w[h * stride + m] * A[h * stride + m];
            mu[h * mu_stride + m] = value < 1.0 ? value : 1.0;
        }
    }
}

#endif
