"""Memory of one sentence that waits for the next.

What the system gives anew costs more than to fill it: a tenth of the time of dual decomposition on a
short sentence, and more on long ones, whose pages are new each time.
"""
from libc.stdlib cimport free, malloc

cdef enum:
    SLOTS = 8
    KEPT = 1 << 24               # bytes, at most, of each

cdef void* spare[SLOTS]          # NULL and 0 where there is none
cdef size_t spare_size[SLOTS]


cdef void* borrow(size_t size, size_t* got) except NULL:
    """A block of at least this size, not cleared, and its size; with the GIL."""
    cdef void* block
    cdef int i, best = -1
    for i in range(SLOTS):
        if spare_size[i] >= size and (best < 0 or spare_size[i] < spare_size[best]):
            best = i
    if best >= 0 and spare[best] != NULL:
        block, got[0] = spare[best], spare_size[best]
        spare[best], spare_size[best] = NULL, 0
        return block
    got[0] = size + size // 4
    block = malloc(got[0])
    if block == NULL:
        raise MemoryError
    return block


cdef void give_back(void* block, size_t size) noexcept:
    """In the place of a smaller one, if need be; NULL, of size 0, is none.  With the GIL."""
    cdef int i, least = 0
    for i in range(SLOTS):
        if spare_size[i] < spare_size[least]:
            least = i
    if size > KEPT or size <= spare_size[least]:
        free(block)
    else:
        free(spare[least])
        spare[least], spare_size[least] = block, size
