cdef size_t scratch_bytes(Py_ssize_t n) noexcept nogil
cdef double gradient(const double* scores, Py_ssize_t stride, Py_ssize_t n, bint single_root,
                     double* out, void* scratch) noexcept nogil
