# Seconds, for measuring within a kernel.
cdef extern from "<time.h>" nogil:
    ctypedef long time_t
    struct timespec:
        time_t tv_sec
        long tv_nsec
    int timespec_get(timespec*, int)
    enum: TIME_UTC


cdef inline double now() noexcept nogil:
    cdef timespec t
    timespec_get(&t, TIME_UTC)
    return t.tv_sec + 1e-9 * t.tv_nsec
