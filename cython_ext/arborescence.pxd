cdef size_t scratch_bytes(Py_ssize_t n) noexcept nogil
cdef double decode(const double* scores, Py_ssize_t stride, Py_ssize_t n, bint single_root,
                   int* heads, void* scratch) noexcept nogil
cdef size_t second_bytes(Py_ssize_t n) noexcept nogil
cdef double decode_two(const double* scores, Py_ssize_t stride, Py_ssize_t n, bint single_root,
                       const int* best, int* heads, int* again, void* scratch) noexcept nogil
