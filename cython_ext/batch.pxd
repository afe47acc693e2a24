# The way from a Python call to a kernel, once for all of them: scratch, the check of the scores,
# the loop over the sentences of a batch.  Loops allocate nothing and do not hold the GIL.
#
# A sentence has n words and scores of shape (N, N), N > n, [head, modifier], of which the first
# n + 1 rows and columns count.  Sizes are the caller's promise.
from libc.math cimport INFINITY
from libc.stdlib cimport free, malloc, realloc

from cython_ext.semiring cimport all_below_infinity

# Best tree: scores, their stride, n, single_root, heads OUT (n+1,), scratch; -inf without a tree.
ctypedef double (*decoder_t)(const double*, Py_ssize_t, Py_ssize_t, bint, int*,
                             void*) noexcept nogil

# log Z: scores, their stride, n, single_root, marginals OUT (n+1, stride) or NULL, their stride,
# scratch, method (-1: the kernel's choice); -inf without a tree.
ctypedef double (*summer_t)(const double*, Py_ssize_t, Py_ssize_t, bint, double*, Py_ssize_t,
                            double*, int) noexcept nogil


cdef inline void* allocate(size_t size) except NULL:
    cdef void* scratch = malloc(size)
    if scratch == NULL:
        raise MemoryError
    return scratch


cdef inline bint reserve(void** memory, Py_ssize_t* room, Py_ssize_t count, size_t size) noexcept nogil:
    """Room in ``memory`` for ``count`` things of a size, and as many again; False if it is short."""
    cdef void* larger
    if count > room[0]:
        larger = realloc(memory[0], 2 * count * size)
        if larger == NULL:
            return False
        memory[0], room[0] = larger, 2 * count
    return True


cdef inline Py_ssize_t words(const int[::1] lengths, Py_ssize_t b, Py_ssize_t size) noexcept nogil:
    """Words of sentence b; all of them when ``lengths`` is None."""
    return size - 1 if lengths is None else lengths[b]


cdef inline double decode_one(
    decoder_t decode,
    size_t scratch_size,                 # bytes
    const double[:, ::1] scores,         # IN   (N, N)
    Py_ssize_t n,
    bint single_root,
    int[::1] heads,                      # OUT  (>= n+1,)
) except? -1.0:
    """Score of the best tree, or -inf if a score is bad or there is no tree."""
    cdef double value = -INFINITY
    cdef void* scratch = allocate(scratch_size)
    with nogil:
        if all_below_infinity(&scores[0, 0], scores.shape[1], n):
            value = decode(&scores[0, 0], scores.shape[1], n, single_root, &heads[0], scratch)
        free(scratch)
    return value


cdef inline Py_ssize_t decode_batch(
    decoder_t decode,
    size_t scratch_size,                 # bytes
    const double[:, :, ::1] scores,      # IN   (batch, N, N)
    const int[::1] lengths,              # IN   (batch,) words of each sentence, or None: N - 1
    bint single_root,
    int[:, ::1] heads,                   # OUT  (batch, N), padded with -1
    double[::1] values,                  # OUT  (batch,)
) except -2:
    """Best tree of each sentence; the first one with a bad score or without a tree, or -1."""
    cdef Py_ssize_t b, m, n, size = scores.shape[1], failed = -1
    cdef void* scratch = allocate(scratch_size)
    with nogil:
        for b in range(scores.shape[0]):
            n = words(lengths, b, size)
            values[b] = -INFINITY
            if all_below_infinity(&scores[b, 0, 0], size, n):
                values[b] = decode(&scores[b, 0, 0], size, n, single_root, &heads[b, 0], scratch)
            if values[b] == -INFINITY:
                failed = b
                break
            for m in range(n + 1, size):
                heads[b, m] = -1
        free(scratch)
    return failed


cdef inline double sum_one(
    summer_t sum_product,
    size_t scratch_size,                 # bytes
    const double[:, ::1] scores,         # IN   (N, N) free of NaN and +inf
    Py_ssize_t n,
    bint single_root,
    double[:, ::1] mu,                   # OUT  (>= n+1, >= n+1)
    int method,
) except? -1.0:
    """log Z without checks, or -inf when there is no tree."""
    cdef double log_z
    cdef void* scratch = allocate(scratch_size)
    with nogil:
        log_z = sum_product(&scores[0, 0], scores.shape[1], n, single_root, &mu[0, 0],
                            mu.shape[1], <double*>scratch, method)
        free(scratch)
    return log_z


cdef inline Py_ssize_t sum_batch(
    summer_t sum_product,
    size_t scratch_size,                 # bytes
    const double[:, :, ::1] scores,      # IN   (batch, N, N)
    const int[::1] lengths,              # IN   (batch,) words of each sentence, or None: N - 1
    bint single_root,
    double[:, :, ::1] mu,                # OUT  (batch, N, N) zeros on entry, or None: log Z only
    double[::1] log_z,                   # OUT  (batch,)
) except -2:
    """log Z and marginals of each sentence; the first one that is bad or has no tree, or -1."""
    cdef Py_ssize_t b, n, size = scores.shape[1], failed = -1
    cdef double* out = NULL
    cdef void* scratch = allocate(scratch_size)
    with nogil:
        for b in range(scores.shape[0]):
            n = words(lengths, b, size)
            if mu is not None:
                out = &mu[b, 0, 0]
            log_z[b] = -INFINITY
            if all_below_infinity(&scores[b, 0, 0], size, n):
                log_z[b] = sum_product(&scores[b, 0, 0], size, n, single_root, out, size,
                                       <double*>scratch, -1)
            if log_z[b] == -INFINITY:
                failed = b
                break
        free(scratch)
    return failed
