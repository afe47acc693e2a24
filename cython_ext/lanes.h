/* log Z and marginals of LANES sentences side by side: what elimination.h does for one, on vectors
 * of one number of each, so that nothing is padded and nothing summed across.  The operations on
 * the numbers of a sentence, and their order, are those of elimination.h: the results are the same
 * to the last bit.  Tables are (n+1, n+1) vectors. */
#ifndef ARCWISE_LANES_H
#define ARCWISE_LANES_H

#include "elimination.h"

#ifdef __GNUC__

typedef double lanes_t __attribute__((vector_size(LANES * sizeof(double)), may_alias));

#define ROW(table, h) ((table) + (h) * (n + 1))

/* x += a y */
INLINE void add_lanes(lanes_t *x, const lanes_t *a, const lanes_t *y)
{
    for (int lane = 0; lane < LANES; lane++)
        (*x)[lane] = __builtin_fma((*a)[lane], (*y)[lane], (*x)[lane]);
}

/* As `fused_dot`: of numbers `a_step` and `b_step` vectors apart. */
INLINE void dot_lanes(lanes_t *total, const lanes_t *a, index_t a_step, const lanes_t *b,
                      index_t b_step, index_t count, index_t end)
{
    lanes_t t[LANES] = {{0.0}};
    index_t i;
    for (i = 0; i < count; i += LANES) {
        add_lanes(&t[0], a + i * a_step, b + i * b_step);
        add_lanes(&t[1], a + (i + 1) * a_step, b + (i + 1) * b_step);
        add_lanes(&t[2], a + (i + 2) * a_step, b + (i + 2) * b_step);
        add_lanes(&t[3], a + (i + 3) * a_step, b + (i + 3) * b_step);
    }
    *total = (t[0] + t[1]) + (t[2] + t[3]);
    for (; i < end; i++)
        add_lanes(total, a + i * a_step, b + i * b_step);
}

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
                add_lanes(&ROW(F, h)[k - 1], &ROW(F, h)[k], &y[k - 1]);
            for (m = 1; m < k - 1; m++)
                add_lanes(&x[m], &from, &y[m]);
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
                    lanes_t u = f[m], v = g[m];
                    add_lanes(&u, &a, &y[m]);
                    add_lanes(&v, &b, &y[m]);
                    add_lanes(&u, &c, &x[m]);
                    add_lanes(&v, &e, &x[m]);
                    f[m] = u;
                    g[m] = v;
                }
            } else {
                for (m = 1; m <= left; m++) {
                    lanes_t u = f[m], v = g[m];
                    add_lanes(&u, &a, &y[m]);
                    add_lanes(&v, &b, &y[m]);
                    f[m] = u;
                    g[m] = v;
                }
            }
        }
        k = left;
    }
}

/* A = d log Z / d w, as `adjoint_weights`; the row B is scratch. */
INLINE void adjoint_lanes(const lanes_t *F, lanes_t *A, lanes_t *B, index_t n, int single_root,
                          double least)
{
    for (index_t k = 0; k <= n; k++)
        ROW(A, k)[0] = ROW(A, k)[k] = (lanes_t){0.0};
    for (index_t k = 1; k <= n; k++) {
        const lanes_t *w = ROW(F, k), *p = F + k; /* p[h,k] is p[h (n + 1)] */
        lanes_t *x = ROW(A, k);
        lanes_t own, total, inverse = 1.0 / w[k];
        index_t first = k & -PANEL, h, m;
        for (m = 1; m < k; m++)
            x[m] = (lanes_t){0.0};
        for (h = 0; h < first; h += 4) {
            const lanes_t *a0 = ROW(A, h), *a1 = ROW(A, h + 1);
            const lanes_t *a2 = ROW(A, h + 2), *a3 = ROW(A, h + 3);
            lanes_t p0 = p[h * (n + 1)], p1 = p[(h + 1) * (n + 1)];
            lanes_t p2 = p[(h + 2) * (n + 1)], p3 = p[(h + 3) * (n + 1)];
            lanes_t b0 = {0.0}, b1 = b0, b2 = b0, b3 = b0;
            for (m = 1; m < k; m++) {
                lanes_t sum = x[m];
                add_lanes(&sum, &p0, &a0[m]);
                add_lanes(&b0, &w[m], &a0[m]);
                add_lanes(&sum, &p1, &a1[m]);
                add_lanes(&b1, &w[m], &a1[m]);
                add_lanes(&sum, &p2, &a2[m]);
                add_lanes(&b2, &w[m], &a2[m]);
                add_lanes(&sum, &p3, &a3[m]);
                add_lanes(&b3, &w[m], &a3[m]);
                x[m] = sum;
            }
            B[h] = b0;
            B[h + 1] = b1;
            B[h + 2] = b2;
            B[h + 3] = b3;
        }
        for (h = first; h < k; h++) {
            for (m = 1; m < first; m++)
                add_lanes(&x[m], &p[h * (n + 1)], &ROW(A, h)[m]);
            dot_lanes(&B[h], w, 1, ROW(A, h), 1, first, k);
            if (h)
                dot_lanes(&x[h], p, n + 1, A + h, n + 1, first, k);
        }
        dot_lanes(&total, p, n + 1, B, 1, first, k);
        own = 1.0 - total;
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

/* Bytes of memory that `sum_lanes` needs, but for its alignment to 64 of them. */
INLINE size_t lane_bytes(index_t n)
{
    return (size_t)((3 * n + 4) * (n + 1)) * sizeof(lanes_t);
}

INLINE void sum_lanes_loops(const double *const *scores, index_t stride, const index_t *length,
                            index_t n, int single_root, double least, double *const *mu,
                            index_t mu_stride, double *log_z, void *memory, int wide)
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

INLINE size_t lane_bytes(index_t n)
{
    return 0;
}

INLINE void sum_lanes_loops(const double *const *scores, index_t stride, const index_t *length,
                            index_t n, int single_root, double least, double *const *mu,
                            index_t mu_stride, double *log_z, void *memory, int wide)
{
    for (int lane = 0; lane < LANES; lane++)
        log_z[lane] = NAN;
}

#endif

/* log Z of sentences with length[lane] <= n words, NaN where they have to go alone, and unless mu is
 * NULL their marginals.  Memory, `lane_bytes`, is aligned to 64 bytes. */
FUSED(void, sum_lanes,
      (const double *const *scores, index_t stride, const index_t *length, index_t n,
       int single_root, double least, double *const *mu, index_t mu_stride, double *log_z,
       void *memory),
      sum_lanes_loops, scores, stride, length, n, single_root, least, mu, mu_stride, log_z, memory)

#endif
