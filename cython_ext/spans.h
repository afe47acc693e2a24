/* Marginals of arcs under a distribution over projective trees, by Eisner's spans (eisner.pyx).
 *
 * Spans (i, i + d) of one width d stand side by side, X[d * pitch + i], so that each sum is taken
 * of LANES spans at once, without a sum across lanes.  R and L are complete spans whose head is
 * left and right, r and l incomplete ones, and V is what joins two:
 *
 *     V[d,i] = sum_k R[k,i] L[d-1-k,i+k+1]                              0 <= k < d
 *     r[d,i] = w[i,i+d] V[d,i]                l[d,i] = w[i+d,i] V[d,i]
 *     R[d,i] = sum_k r[k,i] R[d-k,i+k]        L[d,i] = sum_k l[k,i+d-k] L[d-k,i]       1 <= k <= d
 *
 * Spans that end outside the sentence are 0, and come out as 0 since their weights do: no sum needs
 * to know where its lanes end.  Rows begin after LANES zeros, for sums that run to the left.
 */
#ifndef ARCWISE_SPANS_H
#define ARCWISE_SPANS_H

#include "simd.h"

INLINE index_t span_pitch(index_t count) { return (count + LANES - 1) / LANES * LANES + LANES; }

/* Doubles that span_marginals needs, 0 at its first call with some n. */
static index_t span_room(index_t n) { return 9 * ((n + 1) * span_pitch(n + 1) + LANES) + n + 1; }

INLINE void add_product(double *restrict sum, const double *x, const double *y)
{
    FOR_LANES { sum[lane] += x[lane] * y[lane]; }
}

/* Each column over its largest; top: (stride,). */
KERNEL void scale_columns(double *restrict W, index_t stride, index_t n, double *restrict top)
{
    invert_tops(W, stride, n, top);
    for (index_t h = 0; h <= n; h++) {
        for (index_t m = 0; m < stride; m++)
            W[h * stride + m] *= top[m];
    }
}

/* W: (n+1, stride) weights of arcs, [head, modifier], at least 0 and finite; column 0 is 0.
 * mu: (n+1, stride), of which arcs are written.  Returns Z; 0, inf or NaN: mu is not to be used. */
KERNEL double span_marginals(const double *W, index_t stride, index_t n, int single_root,
                             double *restrict mu, double *scratch)
{
    const index_t first = single_root ? 1 : 0, count = n + 1 - first, p = span_pitch(count);
    const index_t size = count * p + LANES;
    double *R = scratch + LANES, *L = R + size, *r = L + size, *l = r + size, *V = l + size;
    double *oR = V + size, *oL = oR + size, *right = oL + size, *left = right + size;
    double *root = left + size, Z = 0.0, inverse;

    for (index_t i = 0; i < count; i++) {
        const double *row = W + (i + first) * stride + first;
        for (index_t j = 0; j < i; j++)
            left[(i - j) * p + j] = row[j];
        for (index_t j = i + 1; j < count; j++)
            right[(j - i) * p + i] = row[j];
        R[i] = L[i] = 1.0;
    }
    for (index_t d = 1; d < count; d++) {
        for (index_t i = 0; i < count - d; i += LANES) {
            double link[LANES], of_R[LANES], of_L[LANES];
            const double *x = R + i, *y = L + (d - 1) * p + i + 1;
            const double *u = r + p + i, *v = R + (d - 1) * p + i + 1;
            const double *t = l + p + i + d - 1, *z = L + (d - 1) * p + i;
            FOR_LANES { link[lane] = x[lane] * y[lane]; }
            FOR_LANES { of_R[lane] = of_L[lane] = 0.0; }
            for (index_t k = 1; k < d; k++) {
                x += p;
                y -= p - 1;
                add_product(link, x, y);
                add_product(of_R, u, v);
                add_product(of_L, t, z);
                u += p;
                v -= p - 1;
                t += p - 1;
                z -= p;
            }
            FOR_LANES {
                index_t at = d * p + i + lane;
                double a = right[at] * link[lane], b = left[at] * link[lane];
                r[at] = a;
                l[at] = b;
                R[at] = of_R[lane] + a;
                L[at] = of_L[lane] + b;
            }
        }
    }
    if (single_root) {
        for (index_t m = 0; m < count; m++)
            Z += root[m] = W[m + 1] * L[m * p] * R[(count - 1 - m) * p + m];
    } else {
        Z = R[n * p];
    }
    inverse = 1.0 / Z;
    for (index_t d = count - 1; d > 0; d--) {
        double *here_R = oR + d * p, *here_L = oL + d * p;
        for (index_t i = 0; i < count - d; i += LANES) {
            double of_R[LANES], of_L[LANES], via_R[LANES], via_L[LANES];
            index_t far = count - d - i, near = i + LANES < count - d ? i + LANES : count - d;
            /* R: oR[d+k,i-k] r[k,i-k];  L: V[d+k,i-k] R[k-1,i-k] */
            const double *x = oR + (d + 1) * p + i - 1, *y = r + p + i - 1;
            const double *u = V + (d + 1) * p + i - 1, *v = R + i - 1;
            /* L: oL[d+k,i] l[k,i+d];  R: V[d+k,i] L[k-1,i+d+1] */
            const double *t = oL + (d + 1) * p + i, *z = l + p + i + d;
            const double *a = V + (d + 1) * p + i, *b = L + i + d + 1;
            FOR_LANES { of_R[lane] = of_L[lane] = via_R[lane] = via_L[lane] = 0.0; }
            for (index_t k = 1; k < near; k++) {
                add_product(of_R, x, y);
                add_product(via_L, u, v);
                x += p - 1;
                y += p - 1;
                u += p - 1;
                v += p - 1;
            }
            for (index_t k = 1; k < far; k++) {
                add_product(of_L, t, z);
                add_product(via_R, a, b);
                t += p;
                z += p;
                a += p;
                b += p;
            }
            FOR_LANES {
                here_R[i + lane] = of_R[lane] + via_R[lane];
                here_L[i + lane] = of_L[lane] + via_L[lane];
            }
        }
        if (single_root) { /* halves of the sentence of a root's child */
            here_R[count - 1 - d] += W[count - d] * L[(count - 1 - d) * p];
            here_L[0] += W[d + 1] * R[(count - 1 - d) * p + d];
        } else if (d == n) {
            here_R[0] = 1.0;
        }
        for (index_t i = 0; i < count - d; i += LANES) {
            double of_r[LANES], of_l[LANES], to_right[LANES], to_left[LANES];
            index_t far = count - d - i, near = i + LANES < count - d ? i + LANES : count - d;
            /* r: oR[d+k,i] R[k,i+d];  l: oL[d+k,i-k] L[k,i-k] */
            const double *x = here_R + i, *y = R + i + d;
            const double *u = here_L + i, *v = L + i;
            FOR_LANES { of_r[lane] = of_l[lane] = 0.0; }
            for (index_t k = 0; k < far; k++) {
                add_product(of_r, x, y);
                x += p;
                y += p;
            }
            for (index_t k = 0; k < near; k++) {
                add_product(of_l, u, v);
                u += p - 1;
                v += p - 1;
            }
            FOR_LANES {
                index_t at = d * p + i + lane;
                to_right[lane] = of_r[lane] * r[at] * inverse;
                to_left[lane] = of_l[lane] * l[at] * inverse;
                V[at] = of_r[lane] * right[at] + of_l[lane] * left[at];
            }
            for (index_t k = 0; k < LANES && i + k < count - d; k++) {
                index_t h = first + i + k;
                mu[h * stride + h + d] = to_right[k];
                mu[(h + d) * stride + h] = to_left[k];
            }
        }
    }
    for (index_t m = 0; single_root && m < count; m++)
        mu[m + 1] = root[m] * inverse;
    return Z;
}

#endif
