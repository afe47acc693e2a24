"""Sparse vectors and a dense one: what dual coordinate descent does all day.

A vector phi has places, distinct, in a flat w, and values there.  A coordinate step changes the
dual variable of phi and w = sum alpha phi with it:

    G = w.phi + offset,   alpha <- max(0, alpha - G / Q),   w <- w + (change of alpha) phi

Sums are in float64 and in an order that depends on nothing but the length.
"""
from libc.stdint cimport int32_t

from cython_ext.hashing cimport PREFETCH

cdef enum:
    AHEAD = 32                           # values; places are all over w



cdef double product(
    const int32_t* places, const float* values, Py_ssize_t size, const double* w
) noexcept nogil:
    """w.phi, in four sums."""
    cdef Py_ssize_t i, whole = size - size % 4
    cdef double a = 0.0, b = 0.0, c = 0.0, d = 0.0
    for i in range(0, min(AHEAD, size)):
        PREFETCH(&w[places[i]])
    for i in range(0, whole, 4):
        if i + AHEAD + 3 < size:
            PREFETCH(&w[places[i + AHEAD]])
            PREFETCH(&w[places[i + AHEAD + 3]])
        a += w[places[i]] * values[i]
        b += w[places[i + 1]] * values[i + 1]
        c += w[places[i + 2]] * values[i + 2]
        d += w[places[i + 3]] * values[i + 3]
    for i in range(whole, size):
        a += w[places[i]] * values[i]
    return (a + b) + (c + d)


cdef Py_ssize_t checked_size(
    const int32_t[::1] places, const float[::1] values, const double[::1] w
) except -1:
    if places.shape[0] != values.shape[0]:
        raise ValueError("a vector has as many values as places")
    cdef Py_ssize_t i
    cdef int32_t low = 0, high = -1
    for i in range(places.shape[0]):
        low, high = min(low, places[i]), max(high, places[i])
    if low < 0 or high >= w.shape[0]:
        raise ValueError("a place is not in w")
    return places.shape[0]


def dot(
    const int32_t[::1] places,           # IN  (k,)
    const float[::1] values,             # IN  (k,)
    const double[::1] w,                 # IN  (d,)
):
    """w.phi.  ValueError for places that w has not.  O(k)."""
    cdef Py_ssize_t size = checked_size(places, values, w)
    return product(&places[0], &values[0], size, &w[0]) if size else 0.0


def add(
    const int32_t[::1] places,           # IN     (k,)
    const float[::1] values,             # IN     (k,)
    double change,
    double[::1] w,                       # INOUT  (d,)
):
    """w <- w + change phi.  ValueError as `dot`.  O(k)."""
    cdef Py_ssize_t i
    checked_size(places, values, w)
    for i in range(places.shape[0]):
        w[places[i]] += change * values[i]


def step(
    const int32_t[::1] places,           # IN     (k,)
    const float[::1] values,             # IN     (k,)
    double[::1] w,                       # INOUT  (d,)
    float[::1] rounded,                  # INOUT  (d,) w in float32, or None
    double alpha,
    double offset,
    double curvature,                    # Q > 0
):
    """(new alpha, G before).  ValueError as `dot`.  O(k)."""
    cdef Py_ssize_t i, at, size = checked_size(places, values, w)
    cdef double gradient, change, new
    cdef bint both = rounded is not None
    if both and rounded.shape[0] != w.shape[0]:
        raise ValueError("w has two lengths")
    gradient = offset
    if size:
        gradient += product(&places[0], &values[0], size, &w[0])
    new = max(0.0, alpha - gradient / curvature)
    change = new - alpha
    if change != 0.0:
        for i in range(size):
            at = places[i]
            w[at] += change * values[i]
            if both:
                rounded[at] = <float>w[at]
    return new, gradient
