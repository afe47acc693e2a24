"""Minimum Bayes risk: the tree with the most expected correct heads."""

from __future__ import annotations

import numpy as np

from parser.graph import GraphError, ScoredGraph
from parser.inference.engine import Engine, Result
from parser.inference.first_order import best_by_arcs


class MinimumBayesRisk(Engine):
    """The best tree, of the graph's kind, of the arc marginals that another engine finds.

    Goodman (1996); Smith & Smith (2007).  Scores are multiplied by `scale` first, so that they are
    log potentials whose marginals can be believed; a parser takes its model's scale.  O(n^3) beside
    the other engine.  Ties as in the first-order engines.
    """

    def __init__(self, engine: Engine, scale: float = 1.0) -> None:
        if not engine.has_marginals:
            raise GraphError(f"engine {engine.name} has no marginals")
        self.engine = engine
        self.scale = scale
        self.name = f"{engine.name}:decode=mbr"
        self.families = engine.families
        self.constraints = engine.constraints

    def calibrated(self, scale: float) -> Engine:
        return MinimumBayesRisk(self.engine, scale)

    def best(self, graph: ScoredGraph) -> Result:
        """heads, their score in the graph, and the marginals and log Z under the scale."""
        expected = self.expectations(graph.scaled(self.scale))
        risk = ScoredGraph(graph.arcs, expected.marginals, graph.projective, graph.single_root)
        heads = np.asarray(best_by_arcs(risk).heads)
        return Result(
            heads,
            graph.score(heads),
            log_z=expected.log_z,
            marginals=expected.marginals,
            part_marginals=expected.part_marginals,
        )

    def expectations(self, graph: ScoredGraph) -> Result:
        return self.engine.expectations(graph)
