cdef size_t scratch_bytes(Py_ssize_t n) noexcept nogil
cdef double decode(const double* scores, Py_ssize_t stride, Py_ssize_t n, bint single_root,
                   int* heads, void* scratch) noexcept nogil
cdef size_t gradient_bytes(Py_ssize_t n) noexcept nogil
cdef double gradient(const double* scores, Py_ssize_t stride, Py_ssize_t n, bint single_root,
                     int semiring, double* out, void* scratch) noexcept nogil
cdef double sum_product(const double* scores, Py_ssize_t stride, Py_ssize_t n, bint single_root,
                        double* mu, Py_ssize_t mu_stride, double* scratch, int method) noexcept nogil
