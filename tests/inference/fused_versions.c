/* Runs the kernels of fused multiply-adds on random weights in each version that this machine has,
 * and prints for every size a hash of their results, one for each version. */
#include <stdio.h>
#include <stdlib.h>

#include "elimination.h"
#include "relaxation.h"

#define LARGEST 67
#define ROOM ((LARGEST + 8) * (LARGEST + 8))

static double given[ROOM], F[ROOM], FT[ROOM], A[ROOM], AT[ROOM], K[ROOM];
static double d[ROOM], x[ROOM], B[ROOM], scratch[ROOM];

static uint64_t hash_of(const double *table, index_t stride, index_t n, uint64_t hash)
{
    for (index_t h = 0; h <= n; h++)
        for (index_t m = 1; m <= n; m++) {
            uint64_t bits;
            memcpy(&bits, table + h * stride + m, sizeof bits);
            hash = (hash ^ bits) * 1099511628211u;
        }
    return hash;
}

typedef double (*eliminate_t)(double *, double *, double *, index_t, index_t, int);
typedef void (*adjoint_t)(const double *, const double *, const double *, double *, double *,
                          double *, double *, index_t, index_t, int, double);
typedef int (*invert_t)(double *, index_t, index_t, double *);

static uint64_t run(eliminate_t eliminate, adjoint_t adjoint, invert_t invert, index_t n)
{
    index_t stride = (n + 8) & ~(index_t)3, rows = (n + 4) / 4 * 4;
    uint64_t hash = 14695981039346656037u;
    for (int single_root = 0; single_root < 2; single_root++) {
        for (index_t h = 0; h <= n; h++)
            memcpy(F + h * stride, given + h * stride, (size_t)stride * sizeof(double));
        eliminate(F, FT, d, stride, n, single_root);
        adjoint(F, FT, d, A, AT, x, B, stride, n, single_root, 2e-16);
        hash = hash_of(A, stride, n, hash);
    }
    memset(K, 0, sizeof K);
    for (index_t m = 1; m <= n; m++) {
        K[m * rows + m] = given[m];
        for (index_t h = 1; h <= n; h++) {
            K[h * rows + m] -= given[h * stride + m];
            K[m * rows + m] += given[h * stride + m];
        }
    }
    if (!invert(K, rows, n, scratch))
        return 0;
    return hash_of(K, rows, n, hash);
}

static double eliminate_plain(double *f, double *ft, double *to, index_t stride, index_t n, int one)
{
    return eliminate_loops(f, ft, to, stride, n, one, 0);
}

static void adjoint_plain(const double *f, const double *ft, const double *of, double *a,
                          double *at, double *rows, double *b, index_t stride, index_t n, int one,
                          double least)
{
    adjoint_loops(f, ft, of, a, at, rows, b, stride, n, one, least, 0);
}

static int invert_plain(double *a, index_t stride, index_t n, double *room)
{
    return invert_loops(a, stride, n, room, 0);
}

int main(void)
{
    for (index_t n = 1; n <= LARGEST; n += n < 20 ? 1 : 7) {
        index_t stride = (n + 8) & ~(index_t)3;
        memset(given, 0, sizeof given);
        for (index_t h = 0; h <= n; h++)
            for (index_t m = 1; m <= n; m++)
                given[h * stride + m] = h == m ? 0.0 : (rand() % 1000 + 1) / 1000.0;
        printf("%016llx",
               (unsigned long long)run(eliminate_plain, adjoint_plain, invert_plain, n));
#if defined(__GNUC__) && defined(__x86_64__)
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
            printf(" %016llx", (unsigned long long)run(eliminate_weights_256, adjoint_weights_256,
                                                       invert_dominant_256, n));
            if (__builtin_cpu_supports("avx512f"))
                printf(" %016llx",
                       (unsigned long long)run(eliminate_weights_512, adjoint_weights_512,
                                               invert_dominant_512, n));
        }
#endif
        puts("");
    }
    return 0;
}
