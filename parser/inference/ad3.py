"""AD3: the linear relaxation of a tree, head automata and pairs, by alternating directions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cython_ext import ad3
from parser.graph import CHILDSEQ, GRAND, GRANDSIB, LINK, NOCROSS, SIB, ScoredGraph
from parser.inference.dual_decomposition import prove
from parser.inference.engine import Certificate, Engine, Result
from parser.inference.first_order import best_by_arcs
from parser.inference.hill_climbing import improve

PARTS = (SIB, CHILDSEQ, GRAND, GRANDSIB, NOCROSS)  # in the order of the kernel's arguments


@dataclass
class AD3(Engine):
    """Alternating directions dual decomposition (Martins et al. 2015; `cython_ext/ad3.pyx`).

    Bounds that meet prove that the tree is the best one.  Otherwise the best tree met, of those
    under the averages as arc scores, is improved by hill climbing, and the certificate has the gap.

    Parameters
    ----------
    iterations : int
        At most.
    eta : float
        The penalty, in the unit of the scores: the mean distance of a word's two best arcs.
    residual : float
        Root mean squares of what copies are off their averages, and of the averages' last change,
        to stop at.
    interval : int
        Iterations between two looks at the bounds.
    exact : {"no", "yes"}
        Whether to go on where the bounds do not meet: without SIB and NOCROSS by branch and bound,
        as dual decomposition does; then by an integer program, within its time limit.
    """

    iterations: int = 500
    eta: float = 1.0
    residual: float = 1e-6
    interval: int = 2
    exact: str = "no"

    name = "ad3"
    families = frozenset({LINK, *PARTS})
    constraints = frozenset({False, True})

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise ValueError(f"iterations: 1 or more, got {self.iterations}")
        if self.interval < 1:
            raise ValueError(f"interval: 1 or more, got {self.interval}")
        if self.exact not in ("no", "yes"):
            raise ValueError(f"exact: no or yes, got {self.exact!r}")
        if not 0.0 < self.eta < np.inf:
            raise ValueError(f"eta: above 0, got {self.eta}")
        if not 0.0 <= self.residual < np.inf:
            raise ValueError(f"residual: 0 or more, got {self.residual}")

    def proving(self) -> Engine:
        return replace(self, exact="yes")

    def best(self, graph: ScoredGraph) -> Result:
        """heads (n+1,) int32, score, certificate, arc_values (arcs,), iterations, resolved
        (iterations,); converged if the tree is proved best.

        Raises
        ------
        GraphError
            For a graph with other families.
        ValueError
            For a score that is not finite.
        NoTreeError
            If the candidate arcs hold no tree of the graph's kind.
        """
        self.check(graph)
        if not np.isfinite(graph.scores).all():
            raise ValueError("arcs have scores that are not finite")
        heads = np.empty(graph.n + 1, np.int32)
        values = np.empty(len(graph.scores))
        resolved = np.empty(self.iterations, np.float32)
        sib, *chains, nocross = map(graph.parts.get, PARTS)
        primal, dual, iterations = ad3.solve(
            graph.arcs.layout,
            graph.scores,
            sib,
            *chains,
            None if graph.projective else nocross,
            graph.projective,
            graph.single_root,
            self.eta * unit(graph),
            self.iterations,
            self.residual,
            self.interval,
            heads,
            values,
            resolved,
        )
        if primal == -np.inf:
            return best_by_arcs(graph)  # raises, and says which word has no head
        certificate = Certificate(primal, max(primal, dual))
        if not certificate.optimal:
            heads, certificate = improve(graph, heads, certificate)
        if self.exact == "yes":
            heads, certificate = prove(graph, heads, certificate)
        return Result(
            heads,
            certificate.primal,
            certificate=certificate,
            arc_values=graph.indicator(heads)[LINK] if certificate.optimal else values,
            resolved=resolved[:iterations],
            iterations=iterations,
            converged=certificate.optimal,
        )


def unit(graph: ScoredGraph) -> float:
    """The mean over words of the distance of the two best arcs; 1 if that is 0."""
    order = np.lexsort((-graph.scores, graph.modifiers))
    ranked, first = graph.scores[order], graph.arcs.offsets[:-1]
    rivals = first[np.diff(graph.arcs.offsets) > 1]
    return float((ranked[rivals] - ranked[rivals + 1]).mean()) or 1.0 if len(rivals) else 1.0


ALTERNATING_DIRECTIONS = AD3()
