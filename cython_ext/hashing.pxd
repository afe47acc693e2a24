# What all hashed features share: the mixing of ids, and asking memory for a row ahead of its use.
from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #define GOLDEN 0x9E3779B97F4A7C15ULL   /* 2**64 / golden ratio: spreads small ids */
    #if defined(__GNUC__) || defined(__clang__)
      #define PREFETCH(p) __builtin_prefetch(p)
    #else
      #define PREFETCH(p)
    #endif
    """
    const uint64_t GOLDEN
    void PREFETCH(const void *p) noexcept nogil

# Ids that no vocabulary gives out (parser/features/vocabulary.py): outside the sentence, on the
# left (also a place in the tree that is not there) and on the right.
cdef enum:
    START_ID = 1
    END_ID = 2


cdef inline uint64_t mix(uint64_t x) noexcept nogil:
    """The finaliser of splitmix64: a bijection in which every input bit reaches every output bit."""
    x = (x ^ (x >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * <uint64_t>0x94D049BB133111EB
    return x ^ (x >> 31)
