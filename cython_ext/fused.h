/* Products of matrices by fused multiply-adds.
 *
 * Every number is a chain of them in an order that is fixed here.  How many chains go side by
 * side does not matter then: with registers of 128, 256 or 512 bits, or on a machine without the
 * instruction, the bits are the same. */
#ifndef ARCWISE_FUSED_H
#define ARCWISE_FUSED_H

#include "simd.h"

/* A kernel: `name` calls `loops` with its arguments and whether registers have 512 bits, compiled
 * for what the machine has. */
#if defined(__GNUC__) && defined(__x86_64__)
#define FUSED(type, name, parameters, loops, ...)                                          \
    __attribute__((target("avx512f,fma"))) static type name##_512 parameters               \
    {                                                                                      \
        return loops(__VA_ARGS__, 1);                                                      \
    }                                                                                      \
    __attribute__((target("avx2,fma"))) static type name##_256 parameters                  \
    {                                                                                      \
        return loops(__VA_ARGS__, 0);                                                      \
    }                                                                                      \
    __attribute__((unused)) static type name parameters                                    \
    {                                                                                      \
        if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))             \
            return loops(__VA_ARGS__, 0);                                                  \
        if (__builtin_cpu_supports("avx512f"))                                             \
            return name##_512(__VA_ARGS__);                                                \
        return name##_256(__VA_ARGS__);                                                    \
    }
#else
#define FUSED(type, name, parameters, loops, ...) \
    KERNEL type name parameters                   \
    {                                             \
        return loops(__VA_ARGS__, 0);             \
    }
#endif

#ifdef __GNUC__

#define SIDE_BY_SIDE(vector, size)                                                         \
    typedef double vector __attribute__((vector_size(size * sizeof(double)), may_alias,    \
                                         aligned(8)));                                     \
    INLINE void add_##vector(vector *x, double a, const vector *y)                         \
    {                                                                                      \
        for (int i = 0; i < size; i++)                                                     \
            (*x)[i] = __builtin_fma(a, (*y)[i], (*x)[i]);                                  \
    }

SIDE_BY_SIDE(four_t, 4)
SIDE_BY_SIDE(eight_t, 8)

/* Four rows of C, and columns for two registers, as `add_products`. */
#define TILE(vector)                                                                       \
    INLINE void add_tile_##vector(index_t count, const double *a, index_t row, index_t col, \
                                  const double *y, index_t y_stride, double *c,            \
                                  index_t stride)                                          \
    {                                                                                      \
        vector *c0 = (vector *)c, *c1 = (vector *)(c + stride);                            \
        vector *c2 = (vector *)(c + 2 * stride), *c3 = (vector *)(c + 3 * stride);         \
        vector s0 = c0[0], s1 = c1[0], s2 = c2[0], s3 = c3[0];                             \
        vector t0 = c0[1], t1 = c1[1], t2 = c2[1], t3 = c3[1];                             \
        for (index_t j = 0; j < count; j++) {                                              \
            const double *b = a + j * col;                                                 \
            const vector *from = (const vector *)(y + j * y_stride);                       \
            vector u = from[0], v = from[1];                                               \
            add_##vector(&s0, b[0], &u), add_##vector(&t0, b[0], &v);                      \
            add_##vector(&s1, b[row], &u), add_##vector(&t1, b[row], &v);                  \
            add_##vector(&s2, b[2 * row], &u), add_##vector(&t2, b[2 * row], &v);          \
            add_##vector(&s3, b[3 * row], &u), add_##vector(&t3, b[3 * row], &v);          \
        }                                                                                  \
        c0[0] = s0, c1[0] = s1, c2[0] = s2, c3[0] = s3;                                    \
        c0[1] = t0, c1[1] = t1, c2[1] = t2, c3[1] = t3;                                    \
    }

TILE(four_t)
TILE(eight_t)

/* C[i][m] += sum_j a[i * row + j * col] y[j][m], j in order, for the rows i < 4 of C and m < width,
 * a multiple of LANES. */
INLINE void add_products(index_t count, const double *a, index_t row, index_t col,
                         const double *y, index_t y_stride, double *C, index_t stride,
                         index_t width, int wide)
{
    index_t m = 0;
    if (wide)
        for (; m + 16 <= width; m += 16)
            add_tile_eight_t(count, a, row, col, y + m, y_stride, C + m, stride);
    for (; m + 8 <= width; m += 8)
        add_tile_four_t(count, a, row, col, y + m, y_stride, C + m, stride);
    for (; m < width; m += LANES) {
        four_t *c0 = (four_t *)(C + m), *c1 = (four_t *)(C + m + stride);
        four_t *c2 = (four_t *)(C + m + 2 * stride), *c3 = (four_t *)(C + m + 3 * stride);
        four_t s0 = *c0, s1 = *c1, s2 = *c2, s3 = *c3;
        for (index_t j = 0; j < count; j++) {
            const double *b = a + j * col;
            four_t u = *(const four_t *)(y + m + j * y_stride);
            add_four_t(&s0, b[0], &u), add_four_t(&s1, b[row], &u);
            add_four_t(&s2, b[2 * row], &u), add_four_t(&s3, b[3 * row], &u);
        }
        *c0 = s0, *c1 = s1, *c2 = s2, *c3 = s3;
    }
}

#else

INLINE void add_products(index_t count, const double *a, index_t row, index_t col,
                         const double *y, index_t y_stride, double *C, index_t stride,
                         index_t width, int wide)
{
    for (int i = 0; i < 4; i++)
        for (index_t j = 0; j < count; j++)
            for (index_t m = 0; m < width; m++)
                C[i * stride + m] =
                    fma(a[i * row + j * col], y[j * y_stride + m], C[i * stride + m]);
}

#endif

/* y[i] += a x[i] */
INLINE void add_row(double a, const double *restrict x, double *restrict y, index_t n)
{
    for (index_t i = 0; i < n; i++)
        y[i] = fma(a, x[i], y[i]);
}

/* sum_i a[i] b[i]: of `count` numbers, a multiple of LANES, four sums, and then of `more`. */
INLINE double fused_dot(const double *a, const double *b, index_t count, int more)
{
    double t[LANES] = {0.0}, total;
    for (index_t i = 0; i < count; i += LANES)
        FOR_LANES { t[lane] = fma(a[i + lane], b[i + lane], t[lane]); }
    total = sum(t);
    for (int i = 0; i < more; i++)
        total = fma(a[count + i], b[count + i], total);
    return total;
}

#endif
