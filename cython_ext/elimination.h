/* Inner loops of matrix_tree.pyx for scaled weights.  Tables have rows of `stride` doubles, a
 * multiple of LANES and more than n + LANES, and n + LANES rows.  Loops run over whole groups of
 * LANES: what is past the end of a row is read, and is 0 where it counts. */
#ifndef ARCWISE_ELIMINATION_H
#define ARCWISE_ELIMINATION_H

#include "fused.h"

#define PANEL LANES /* words that leave, or come back, at once */

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

/* d of a word with the sums p[h] over its heads h < word, which become p[h,word]. */
INLINE double divide_by_sum(double *p, index_t word, int single_root)
{
    double root = p[0], total, inverse, t[LANES];
    if (single_root && word > 1)
        p[0] = 0.0;
    FOR_LANES { t[lane] = p[lane]; }
    for (index_t i = LANES; i < word; i += LANES) {
        FOR_LANES { t[lane] += p[i + lane]; }
    }
    p[0] = root;
    total = sum(t);
    inverse = 1.0 / total;
    for (index_t i = 0; i < whole(word); i++)
        p[i] *= inverse;
    return total;
}

INLINE double eliminate_loops(double *F, double *FT, double *d, index_t stride, index_t n,
                              int single_root, int wide)
{
    double log_z = 0.0, product = 1.0;
    for (index_t h = n + 1; h < n + PANEL; h++) {
        memset(F + h * stride, 0, (size_t)stride * sizeof(double));
        memset(FT + h * stride, 0, (size_t)stride * sizeof(double));
    }
    for (index_t k = whole(n); k > 0; k -= PANEL) {
        double *p = FT + k * stride, *y = F + k * stride; /* of word k - j: j rows before */
        index_t gone = k < n ? n - k : 0;
        for (index_t h = 0; h < k; h++) {
            const double *f = F + h * stride + k;
            p[h] = f[0];
            p[h - stride] = f[-1];
            p[h - 2 * stride] = f[-2];
            p[h - 3 * stride] = f[-3];
        }
        add_products(gone, F + n * stride + k, -1, -stride, FT + n * stride, -stride, p, -stride,
                     k, wide);
        add_products(gone, FT + n * stride + k, -1, -stride, F + n * stride, -stride, y, -stride,
                     k, wide);
        for (int j = 0; j < PANEL; j++) {
            index_t word = k - j;
            double *own_p = p - j * stride, *own_y = y - j * stride;
            for (int i = 0; i < j; i++) {
                add_row(y[word - i * stride], p - i * stride, own_p, whole(word));
                add_row(p[word - i * stride], y - i * stride, own_y, whole(word));
            }
            for (int i = 0; i < LANES; i++)
                own_p[word + i] = own_y[word + i] = 0.0;
            if (word > n)
                continue;
            d[word] = divide_by_sum(own_p, word, single_root);
            if (d[word] == 0.0)
                return -INFINITY;
            take_log(&log_z, &product, d[word]);
        }
    }
    return log_z + log(product);
}

/* Elimination of the words n..1 from the weights w[h,m] = F[h][m]: what is left of them in F below
 * the diagonal, p in the rows of FT, d; log Z returned, -inf when a sum is 0.  Nothing else of F
 * counts afterwards; the ends of rows are 0.
 *
 * Words 4i..4i-3 are a panel: what runs through all words gone before comes in one go.  Past n
 * weights are 0: columns by `scaled_weights`, rows here. */
FUSED(double, eliminate_weights,
      (double *F, double *FT, double *d, index_t stride, index_t n, int single_root),
      eliminate_loops, F, FT, d, stride, n, single_root)

INLINE void adjoint_loops(const double *F, const double *FT, const double *d, double *A,
                          double *AT, double *x, double *B, index_t stride, index_t n,
                          int single_root, double least, int wide)
{
    A[0] = AT[0] = 0.0;
    for (index_t first = 0; first <= n; first += PANEL) {
        const double *p = FT + first * stride, *y = F + first * stride;
        memset(x, 0, (size_t)(PANEL * stride) * sizeof(double));
        memset(B, 0, (size_t)(PANEL * stride) * sizeof(double));
        add_products(first, p, stride, 1, A, stride, x, stride, first, wide);
        add_products(first, y, stride, 1, AT, stride, B, stride, first, wide);
        for (int j = first == 0; j < PANEL && first + j <= n; j++) {
            index_t k = first + j;
            const double *own_p = p + j * stride, *own_y = y + j * stride;
            double *own_x = x + j * stride, *b = B + j * stride;
            double *to = A + k * stride, *into = AT + k * stride; /* A[k,m], A[h,k] */
            double inverse = 1.0 / d[k], own, floor, root;
            for (index_t i = first; i < k; i++) {
                add_row(own_p[i], A + i * stride, own_x, first);
                add_row(own_y[i], AT + i * stride, b, first);
            }
            for (index_t i = first; i < k; i++) {
                own_x[i] = fused_dot(own_p, AT + i * stride, first, j);
                b[i] = fused_dot(own_y, A + i * stride, first, j);
            }
            own = 1.0 - fused_dot(own_p, b, first, j);
            floor = own ? least : 0.0;
            root = b[0];
            for (index_t i = 0; i < first + PANEL; i++) {
                double value = own + b[i];
                into[i] = (value > floor ? value : floor) * inverse;
            }
            if (single_root && k > 1)
                into[0] = root * inverse;
            memcpy(to, own_x, (size_t)k * sizeof(double));
            to[k] = into[k] = 0.0;
            for (index_t i = first; i < k; i++) {
                AT[i * stride + k] = to[i];
                A[i * stride + k] = into[i];
            }
        }
        for (index_t i = 0; i < first; i++)
            for (int j = 0; j < PANEL; j++) {
                A[i * stride + first + j] = AT[(first + j) * stride + i];
                AT[i * stride + first + j] = A[(first + j) * stride + i];
            }
    }
}

/* A = d log Z / d w and its transpose, from what `eliminate_weights` left, as in `adjoint` of
 * matrix_tree.pyx.  x and B are scratch, PANEL rows each. */
FUSED(void, adjoint_weights,
      (const double *F, const double *FT, const double *d, double *A, double *AT, double *x,
       double *B, index_t stride, index_t n, int single_root, double least),
      adjoint_loops, F, FT, d, A, AT, x, B, stride, n, single_root, least)

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
