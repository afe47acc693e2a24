# Head automata and the tree of dual decomposition; see automata.pyx.
from cython_ext.layout cimport Layout, Places


cdef struct Automata:
    Places* p
    bint projective
    bint single_root
    bint choose                  # automata choose a head
    const double* link
    const double* childseq       # NULL without parts, as the next two
    const double* grand
    const double* grandsib
    double* dn                   # (arcs,)
    double* up                   # (arcs,)
    double* own                  # (arcs,)
    double* V                    # (arcs + n + 1, 2) or above; without a chosen head: at arcs + h
    double* value                # (n+1,) of the automata
    double* B                    # SCRATCH (n+2,)
    double* zeros                # (n+2,)
    double* matrix               # SCRATCH (n+1, n+1) of own, [head, modifier]
    void* scratch                # of the tree
    int* state                   # (n+1,) row of V that is chosen
    int* heads                   # (n+1,) the tree y
    int* into                    # (n+1,) its arcs
    int* back                    # SCRATCH (2, n+2)
    int[2] walked                # the rows of V whose way back is in `back`
    char* z                      # (arcs,)
    char* loose                  # (arcs + n + 1, 2) where V may be too large
    char* stale                  # (n+1, 2) sides whose z may have to change
    char* moved                  # (n+1,) automata with a changed entry
    void* room                   # all of these, and its size
    size_t size


cdef int build(Automata* d, Layout layout, const double[::1] scores,
               const double[::1] childseq, const double[::1] grand,
               const double[::1] grandsib, bint projective, bint single_root) except -1
cdef void forget(Automata* d) noexcept nogil
cdef void renew(Automata* d, int h) noexcept nogil
cdef void loosen(Automata* d, int h, int side, double change) noexcept nogil
cdef void solve_head(Automata* d, int h) noexcept nogil
cdef bint fits(Automata* d) noexcept nogil
cdef double best_tree(Automata* d) noexcept nogil
cdef double solve_tree(Automata* d) noexcept nogil
cdef double adjacent(Automata* d, int h, int side, int inner, int outer) noexcept nogil
cdef double score(Automata* d) noexcept nogil
cdef void split_scores(Automata* d, double split, const double[:, ::1] multipliers) noexcept nogil
cdef void read_multipliers(Automata* d, double split, double[:, ::1] multipliers) noexcept nogil
