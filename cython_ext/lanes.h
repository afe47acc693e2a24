/* log Z and marginals of LANES sentences side by side: what elimination.h does for one, on vectors
 * of one number of each, so that nothing is padded and nothing summed across.  The operations on
 * the numbers of a sentence, and their order, are those of elimination.h: the results are the same
 * to the last bit.  Tables are (n+1, n+1) vectors. */
#ifndef ARCWISE_LANES_H
#define ARCWISE_LANES_H

#include "simd.h"

#ifdef __GNUC__

typedef double lanes_t __attribute__((vector_size(LANES * sizeof(double)), may_alias));

#define ROW(table, h) ((table) + (h) * (n + 1))

/* The scaled weights, as `scaled_weights`, of sentences with length[lane] <= n words, the log of
 * their scale in shift and the product of their column sums in choices.  A word past the end of a
 * sentence follows word 1 for sure and leads nowhere: it changes nothing.  Row top is scratch. */
INLINE void load_weights(const double *const *scores, index_t stride, const index_t *length,
                         index_t n, lanes_t *top, lanes_t *w, lanes_t *shift, lanes_t *choices)
{
    index_t width = (n + 1) * LANES;
    double *restrict tops = (double *)top;
    for (index_t i = 0; i < (n + 1) * (n + 1); i++)
        FOR_LANES { w[i][lane] = -INFINITY; }
    for (int lane = 0; lane < LANES; lane++)
        for (index_t h = 0; h <= length[lane]; h++) {
            const double *from = scores[lane] + h * stride;
            lanes_t *to = ROW(w, h);
            for (index_t m = 1; m <= length[lane]; m++)
                to[m][lane] = from[m];
            to[h][lane] = -INFINITY;
        }
    memcpy(tops, w, (size_t)width * sizeof(double));
    for (index_t h = 1; h <= n; h++) {
        const double *restrict row = (const double *)ROW(w, h);
        for (index_t i = 0; i < width; i++)
            tops[i] = row[i] > tops[i] ? row[i] : tops[i];
    }
    for (index_t i = 0; i < width; i++) /* no (-inf) - (-inf) */
        tops[i] = tops[i] > -INFINITY ? tops[i] : 0.0;
    for (index_t h = 0; h <= n; h++) {
        double *restrict row = (double *)ROW(w, h);
        for (index_t i = 0; i < width; i++)
            row[i] = cut_off(row[i] - tops[i]);
        for (index_t i = 0; i < width; i++)
            row[i] = exp_cut(row[i]);
    }
    for (int lane = 0; lane < LANES; lane++)
        for (index_t m = length[lane] + 1; m <= n; m++)
            ROW(w, 1)[m][lane] = 1.0;
    FOR_LANES { (*shift)[lane] = 0.0; (*choices)[lane] = 1.0; }
    for (index_t m = 1; m <= n; m++) {
        lanes_t sum = w[m];
        for (index_t h = 1; h <= n; h++)
            sum += ROW(w, h)[m];
        *shift += top[m];
        *choices *= sum;
    }
}

/* d_k, on the diagonal of F, and p[h,k] of the words h < k in its column k. */
INLINE void leave(lanes_t *F, index_t n, index_t k, int single_root)
{
    lanes_t t[LANES] = {{0.0}}, inverse;
    for (index_t h = single_root && k > 1; h < k; h++)
        t[h % LANES] += ROW(F, h)[k];
    ROW(F, k)[k] = (t[0] + t[1]) + (t[2] + t[3]);
    inverse = 1.0 / ROW(F, k)[k];
    for (index_t h = 0; h < k; h++)
        ROW(F, h)[k] *= inverse;
}

/* `eliminate_weights` in place: F with p above the diagonal, d on it, and the weights left below.
 * Z, and the least and the largest of what was multiplied on the way to it. */
INLINE void eliminate_lanes(lanes_t *F, index_t n, int single_root, double *restrict z,
                            double *restrict low, double *restrict high)
{
    FOR_LANES { z[lane] = low[lane] = high[lane] = 1.0; }
    for (index_t k = n; k > 0;) {
        int two = k % 2 == 0; /* words that leave at once: an odd one, and the even one after it */
        index_t left = two ? k - 2 : k - 1, h, m;
        lanes_t *y = ROW(F, k), *x = ROW(F, k - 1);
        leave(F, n, k, single_root);
        if (two) {
            lanes_t from = x[k];
            for (h = 0; h < k - 1; h++)
                ROW(F, h)[k - 1] += ROW(F, h)[k] * y[k - 1];
            for (m = 1; m < k - 1; m++)
                x[m] += from * y[m];
            leave(F, n, k - 1, single_root);
        }
        for (h = k; h > left; h--)
            FOR_LANES {
                double d = ROW(F, h)[h][lane], least, most;
                z[lane] *= d;
                least = z[lane] < d ? z[lane] : d;
                most = z[lane] < d ? d : z[lane];
                low[lane] = least < low[lane] ? least : low[lane];
                high[lane] = most > high[lane] ? most : high[lane];
            }
        for (h = 0; h <= left; h += 2) { /* two rows in one go, or the last one twice */
            lanes_t *f = ROW(F, h), *g = ROW(F, h + (h < left));
            lanes_t a = f[k], b = g[k];
            if (two) {
                lanes_t c = f[k - 1], e = g[k - 1];
                for (m = 1; m <= left; m++) {
                    lanes_t u = f[m] + (a * y[m] + c * x[m]), v = g[m] + (b * y[m] + e * x[m]);
                    f[m] = u;
                    g[m] = v;
                }
            } else {
                for (m = 1; m <= left; m++) {
                    lanes_t u = f[m] + a * y[m], v = g[m] + b * y[m];
                    f[m] = u;
                    g[m] = v;
                }
            }
        }
        k = left;
    }
}

/* Of a column of two rows a and c of A. */
#define PASS(m, b, e) (x[m] += p * a[m] + q * c[m], b += a[m] * w[m], e += c[m] * w[m])

/* A = d log Z / d w, as `adjoint_weights`; the row B is scratch. */
INLINE void adjoint_lanes(const lanes_t *F, lanes_t *A, lanes_t *B, index_t n, int single_root,
                          double least)
{
    for (index_t k = 0; k <= n; k++)
        ROW(A, k)[0] = ROW(A, k)[k] = (lanes_t){0.0};
    for (index_t k = 1; k <= n; k++) {
        const lanes_t *w = ROW(F, k);
        lanes_t *x = ROW(A, k);
        lanes_t own, inverse = 1.0 / w[k], t[LANES] = {{0.0}};
        index_t h, m;
        for (m = 1; m < k; m++)
            x[m] = (lanes_t){0.0};
        for (h = 0; h < k; h += 2) {
            int two = h + 1 < k;
            const lanes_t *a = ROW(A, h), *c = ROW(A, h + two);
            lanes_t p = ROW(F, h)[k], q = two ? ROW(F, h + 1)[k] : (lanes_t){0.0};
            lanes_t b0 = {0.0}, b1 = b0, b2 = b0, b3 = b0, e0 = b0, e1 = b0, e2 = b0, e3 = b0;
            for (m = 1; m + LANES <= k; m += LANES) {
                PASS(m, b1, e1);
                PASS(m + 1, b2, e2);
                PASS(m + 2, b3, e3);
                PASS(m + 3, b0, e0);
            }
            if (m < k)
                PASS(m, b1, e1);
            if (m + 1 < k)
                PASS(m + 1, b2, e2);
            if (m + 2 < k)
                PASS(m + 2, b3, e3);
            B[h] = (b0 + b1) + (b2 + b3);
            t[h % LANES] += p * B[h];
            if (two) {
                B[h + 1] = (e0 + e1) + (e2 + e3);
                t[(h + 1) % LANES] += q * B[h + 1];
            }
        }
        own = 1.0 - ((t[0] + t[1]) + (t[2] + t[3]));
        for (h = 0; h < k; h++) {
            lanes_t value = own + B[h];
            FOR_LANES {
                double floor = own[lane] ? least : 0.0;
                value[lane] = value[lane] > floor ? value[lane] : floor;
            }
            ROW(A, h)[k] = value * inverse;
        }
        if (single_root && k > 1)
            ROW(A, 0)[k] = B[0] * inverse;
    }
}

#undef PASS

/* log Z of sentences of up to n words each, NaN where they have to go alone, and unless mu is NULL
 * their marginals.  Memory is aligned to 64 bytes, (3 n + 4) (n + 1) vectors. */
KERNEL void sum_lanes(const double *const *scores, index_t stride, const index_t *length,
                      index_t n, int single_root, double least, double *const *mu,
                      index_t mu_stride, double *log_z, void *memory)
{
    index_t size = (n + 1) * (n + 1);
    lanes_t *w = memory, *F = w + size, *A = F + size, *row = A + size;
    lanes_t shift, choices;
    double z[LANES], low[LANES], high[LANES];
    load_weights(scores, stride, length, n, row, w, &shift, &choices);
    memcpy(F, w, (size_t)size * sizeof(lanes_t));
    eliminate_lanes(F, n, single_root, z, low, high);
    for (int lane = 0; lane < LANES; lane++) {
        /* Closer bounds than those for one sentence, and no product that take_log breaks up. */
        double share = z[lane] / choices[lane];
        int exact = share > 1e-260 && share < 2.7 && choices[lane] < 1e100 &&
                    low[lane] > 1e-100 && high[lane] < 1e100;
        log_z[lane] = exact ? shift[lane] + log(z[lane]) : NAN;
    }
    if (!mu)
        return;
    adjoint_lanes(F, A, row, n, single_root, least);
    for (index_t i = 0; i < size * LANES; i++) {
        double value = ((double *)w)[i] * ((double *)A)[i];
        ((double *)A)[i] = value < 1.0 ? value : 1.0;
    }
    for (int lane = 0; lane < LANES; lane++)
        for (index_t h = 0; h <= length[lane]; h++)
            for (index_t m = 0; m <= length[lane]; m++)
                mu[lane][h * mu_stride + m] = ROW(A, h)[m][lane];
}

#else

KERNEL void sum_lanes(const double *const *scores, index_t stride, const index_t *length,
                      index_t n, int single_root, double least, double *const *mu,
                      index_t mu_stride, double *log_z, void *memory)
{
    for (int lane = 0; lane < LANES; lane++)
        log_z[lane] = NAN;
}

#endif
#endif
