"""Step sizes and bounds of Lagrangian relaxation.

In iteration k = 1, 2, ... the dual is L_k and t earlier or present iterations had L_k > L_{k-1}:

    constant        alpha_k = c
    decreasing      alpha_k = c / k
    dual-progress   alpha_k = c / (1 + t)                      Koo et al. (2010)
    halving         alpha_k = c / 2^t                          Rush et al. (2010), appendix B
    polyak          alpha_k = (L_k - best primal) / |z - y|^2
    bounded-polyak  the step of Polyak, but at least that of dual-progress and at most c

A scale c of 0 is replaced by the first gap over its |z - y|^2, the step of Polyak, so that the
iterations do not depend on the unit of the scores; c is 1 as long as there is no feasible solution.
"""
from libc.math cimport INFINITY, fabs, ldexp

RULES = ("constant", "decreasing", "dual-progress", "halving", "polyak", "bounded-polyak")


cdef void start(Track* track, int rule, double scale) noexcept nogil:
    track.rule, track.scale = rule, scale
    track.iterations = track.increases = 0
    track.last = track.dual = INFINITY
    track.primal = -INFINITY


cdef double advance(
    Track* track, double dual, double primal, double disagreement
) noexcept nogil:
    """Takes down an iteration; returns its step size, at least 0.

    dual: L_k.  primal: value of a feasible solution, or -inf.  disagreement: |z - y|^2.
    """
    cdef double gap, scale, slowing, polyak
    track.iterations += 1
    track.increases += dual > track.last + 1e-12 * max(1.0, fabs(track.last))
    track.last = dual
    track.dual = min(track.dual, dual)
    track.primal = max(track.primal, primal)
    if disagreement <= 0.0:
        return 0.0
    gap = dual - track.primal
    if track.scale <= 0.0 and 0.0 < gap < INFINITY:
        track.scale = gap / disagreement
    scale = track.scale if track.scale > 0.0 else 1.0
    slowing = scale / (1 + track.increases)
    polyak = max(0.0, gap) / disagreement if gap < INFINITY else scale
    if track.rule == CONSTANT:
        return scale
    if track.rule == DECREASING:
        return scale / track.iterations
    if track.rule == DUAL_PROGRESS:
        return slowing
    if track.rule == HALVING:
        return ldexp(scale, -track.increases)
    if track.rule == POLYAK:
        return polyak
    return min(scale, max(slowing, polyak))


cdef bint closed(Track* track) noexcept nogil:
    """Whether the bounds meet, but for rounding."""
    return track.iterations and track.dual - track.primal <= 1e-9 * max(1.0, fabs(track.dual))


cdef class Progress:
    """Bounds and step sizes over the iterations of one problem.

    rule: one of RULES.  scale: c, or None for the first gap over its |z - y|^2.
    """

    cdef Track track

    def __init__(self, str rule="bounded-polyak", scale=None):
        if rule not in RULES:
            raise ValueError(f"{rule!r} is not one of {', '.join(RULES)}")
        if scale is not None and not 0.0 < scale < INFINITY:
            raise ValueError(f"a step size is above 0, got {scale}")
        start(&self.track, RULES.index(rule), scale or 0.0)

    def advance(self, double dual, double primal, double disagreement):
        """Takes down an iteration's bounds (primal: -inf if none); returns its step size."""
        return advance(&self.track, dual, primal, disagreement)

    @property
    def dual(self):
        """The least dual so far."""
        return self.track.dual

    @property
    def primal(self):
        """The largest primal so far."""
        return self.track.primal

    @property
    def closed(self):
        """Whether primal and dual meet, but for rounding."""
        return closed(&self.track)

    @property
    def iterations(self):
        return self.track.iterations

    @property
    def increases(self):
        """Iterations in which the dual went up."""
        return self.track.increases
