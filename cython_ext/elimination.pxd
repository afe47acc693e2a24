# Elimination of the weighted Laplacian and its adjoint; elimination.h says what they do.
cdef extern from "elimination.h" nogil:
    enum: PANEL
    double log_choices(const double* w, double* sums, Py_ssize_t stride, Py_ssize_t n)
    double eliminate_weights(double* F, double* FT, double* d, Py_ssize_t stride, Py_ssize_t n,
                             bint single_root)
    void adjoint_weights(const double* F, const double* FT, const double* d, double* A, double* AT,
                         double* x, double* B, Py_ssize_t stride, Py_ssize_t n, bint single_root,
                         double least)
    void weights_times(const double* w, const double* A, Py_ssize_t stride, Py_ssize_t n,
                       double* mu, Py_ssize_t mu_stride)
