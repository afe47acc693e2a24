/* Sums over projective trees and their derivatives, by Eisner's spans (eisner.pyx).
 *
 * Spans (i, i + d) of one width d stand side by side, X[d * pitch + i], so that each sum is taken
 * of several spans at once, without a sum across lanes.  R and L are complete spans whose head is
 * left and right, r and l incomplete ones, and V is what joins two:
 *
 *     V[d,i] = sum_k R[k,i] L[d-1-k,i+k+1]                              0 <= k < d
 *     r[d,i] = w[i,i+d] V[d,i]                l[d,i] = w[i+d,i] V[d,i]
 *     R[d,i] = sum_k r[k,i] R[d-k,i+k]        L[d,i] = sum_k l[k,i+d-k] L[d-k,i]       1 <= k <= d
 *
 * and outside of these, o = d Z / d, from the widest on:
 *
 *     oR[d,i] = sum_k oR[d+k,i-k] r[k,i-k] + sum_k oV[d+k,i] L[k-1,i+d+1]
 *     oL[d,i] = sum_k oL[d+k,i] l[k,i+d] + sum_k oV[d+k,i-k] R[k-1,i-k]                1 <= k
 *     or[d,i] = sum_k oR[d+k,i] R[k,i+d]      ol[d,i] = sum_k oL[d+k,i-k] L[k,i-k]     0 <= k
 *     oV[d,i] = w[i,i+d] or[d,i] + w[i+d,i] ol[d,i]
 *
 * Spans that end outside the sentence are 0, and come out as 0 since their weights do: no sum needs
 * to know where its lanes end.  Rows begin after LANES zeros, for sums that run to the left.
 */
#ifndef ARCWISE_SPANS_H
#define ARCWISE_SPANS_H

#include "simd.h"

struct spans {
    index_t count, first, pitch; /* positions, the first of them, and numbers in a row */
    double *R, *L, *r, *l, *V, *oR, *oL, *right, *left;
};

/* Neighbours from x on, as one number with + and *. */
#ifdef __GNUC__
typedef double lanes_t __attribute__((vector_size(LANES * sizeof(double)), may_alias, aligned(8)));
#else
typedef double lanes_t;
#endif
#define AT(x) (*(lanes_t *)(x))

enum { ABREAST = sizeof(lanes_t) / sizeof(double) };

INLINE index_t span_pitch(index_t count) { return (count + LANES - 1) / LANES * LANES + LANES; }

/* Doubles that span_sums needs, 0 at its first call with some n. */
static index_t span_room(index_t n) { return 9 * ((n + 1) * span_pitch(n + 1) + LANES) + n + 1; }

INLINE void span_inside(const struct spans *s, index_t d, index_t i)
{
    const index_t p = s->pitch, at = d * p + i;
    const double *R = s->R + i, *r = s->r + i, *to_R = s->R + d * p + i;
    const double *L = s->L + d * p + i, *l = s->l + i + d, *to_L = s->L + (d - 1) * p + i + 1;
    lanes_t link = AT(R) * AT(to_L), of_R = {0.0}, of_L = {0.0};
    for (index_t k = 1; k < d; k++) {
        link += AT(R + k * p) * AT(to_L - k * (p - 1));
        of_R += AT(r + k * p) * AT(to_R - k * (p - 1));
        of_L += AT(l + k * (p - 1)) * AT(L - k * p);
    }
    AT(s->V + at) = link;
    AT(s->r + at) = AT(s->right + at) * link;
    AT(s->l + at) = AT(s->left + at) * link;
    AT(s->R + at) = of_R + AT(s->r + at);
    AT(s->L + at) = of_L + AT(s->l + at);
}

/* `near`, `far`: terms of sums that run to the left and to the right; V is oV of wider spans. */
INLINE void span_outside(const struct spans *s, index_t d, index_t i, index_t near, index_t far)
{
    const index_t p = s->pitch, at = d * p + i;
    const double *oR = s->oR + at, *r = s->r + i, *oL = s->oL + at, *l = s->l + i + d;
    const double *oV = s->V + at, *R = s->R + i - p, *L = s->L + i + d + 1 - p;
    lanes_t of_R = {0.0}, of_L = {0.0}, via_R = {0.0}, via_L = {0.0};
    for (index_t k = 1; k < near; k++) {
        of_R += AT(oR + k * (p - 1)) * AT(r + k * (p - 1));
        via_L += AT(oV + k * (p - 1)) * AT(R + k * (p - 1));
    }
    for (index_t k = 1; k < far; k++) {
        of_L += AT(oL + k * p) * AT(l + k * p);
        via_R += AT(oV + k * p) * AT(L + k * p);
    }
    AT(s->oR + at) = of_R + via_R;
    AT(s->oL + at) = of_L + via_L;
}

/* The same for incomplete spans, and `of_right`, `of_left`: or and ol times what stands there, over
 * Z. */
INLINE void span_arcs(const struct spans *s, index_t d, index_t i, index_t near, index_t far,
                      double inverse, double *of_right, double *of_left, double *out,
                      index_t stride)
{
    const index_t p = s->pitch, at = d * p + i;
    const double *oR = s->oR + at, *R = s->R + i + d, *oL = s->oL + at, *L = s->L + i;
    lanes_t of_r = {0.0}, of_l = {0.0};
    double to_right[ABREAST], to_left[ABREAST];
    for (index_t k = 0; k < far; k++)
        of_r += AT(oR + k * p) * AT(R + k * p);
    for (index_t k = 0; k < near; k++)
        of_l += AT(oL + k * (p - 1)) * AT(L + k * (p - 1));
    AT(to_right) = of_r * AT(of_right + at) * inverse;
    AT(to_left) = of_l * AT(of_left + at) * inverse;
    AT(s->V + at) = of_r * AT(s->right + at) + of_l * AT(s->left + at);
    out += (s->first + i) * (stride + 1);
    for (index_t lane = 0; lane < ABREAST && lane < far; lane++) {
        out[d] = to_right[lane];
        out[d * stride] = to_left[lane];
        out += stride + 1;
    }
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
 * out: (n+1, out_stride), of which arcs are written: marginals or, with `derivatives`, d log Z / d W;
 * or NULL.  Returns Z; 0, inf or NaN: out is not to be used.  O(n^3). */
KERNEL double span_sums(const double *W, index_t stride, index_t n, int single_root, double *out,
                        index_t out_stride, int derivatives, double *scratch)
{
    const index_t first = single_root ? 1 : 0, count = n + 1 - first, p = span_pitch(count);
    const index_t size = count * p + LANES;
    struct spans s = {count, first, p, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL};
    double *root, Z = 0.0, inverse;
    s.R = scratch + LANES, s.L = s.R + size, s.r = s.L + size, s.l = s.r + size;
    s.V = s.l + size, s.oR = s.V + size, s.oL = s.oR + size;
    s.right = s.oL + size, s.left = s.right + size, root = s.left + size;

    for (index_t i = 0; i < count; i++) {
        const double *row = W + (i + first) * stride + first;
        for (index_t j = 0; j < i; j++)
            s.left[(i - j) * p + j] = row[j];
        for (index_t j = i + 1; j < count; j++)
            s.right[(j - i) * p + i] = row[j];
        s.R[i] = s.L[i] = 1.0;
    }
    for (index_t d = 1; d < count; d++)
        for (index_t i = 0; i < count - d; i += ABREAST)
            span_inside(&s, d, i);
    if (single_root) { /* with each child of the root */
        for (index_t m = 0; m < count; m++) {
            root[m] = s.L[m * p] * s.R[(count - 1 - m) * p + m];
            Z += W[m + 1] * root[m];
        }
    } else {
        Z = s.R[n * p];
    }
    if (out == NULL)
        return Z;
    inverse = 1.0 / Z;
    for (index_t d = count - 1; d > 0; d--) {
        for (index_t i = 0; i < count - d; i += ABREAST)
            span_outside(&s, d, i, i + ABREAST < count - d ? i + ABREAST : count - d, count - d - i);
        if (single_root) { /* halves of the sentence of a root's child */
            s.oR[d * p + count - 1 - d] += W[count - d] * s.L[(count - 1 - d) * p];
            s.oL[d * p] += W[d + 1] * s.R[(count - 1 - d) * p + d];
        } else if (d == n) {
            s.oR[d * p] = 1.0;
        }
        for (index_t i = 0; i < count - d; i += ABREAST)
            span_arcs(&s, d, i, i + ABREAST < count - d ? i + ABREAST : count - d, count - d - i,
                      inverse, derivatives ? s.V : s.r, derivatives ? s.V : s.l, out, out_stride);
    }
    for (index_t m = 0; single_root && m < count; m++)
        out[m + 1] = (derivatives ? 1.0 : W[m + 1]) * root[m] * inverse;
    return Z;
}

#endif
