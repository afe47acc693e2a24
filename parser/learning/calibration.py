"""One number that turns scores into probabilities one can believe."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parser.graph import ScoredGraph
from parser.inference import Engine


def fit_scale(engine: Engine, graphs: Sequence[ScoredGraph], trees: Sequence[np.ndarray]) -> float:
    """The scale that makes held-out gold arcs most likely under the engine's marginals.

    Maximises the sum over words of log mu[gold head] with all scores times the scale, between 0.05
    and 20, by bounded search over its logarithm (temperature scaling, Guo et al. 2017).  Arcs, not
    whole trees, so that gold trees outside the tree constraint still count.  Some 20 passes.
    """
    from scipy.optimize import minimize_scalar  # slow to import, and needed once a training run

    # A gold arc that is no candidate has no marginal that the scale could change.
    gold = [
        np.flatnonzero(tree[graph.modifiers] == graph.heads)
        for graph, tree in zip(graphs, trees, strict=True)
    ]

    def loss(log_scale: float) -> float:
        scale = float(np.exp(log_scale))
        total = 0.0
        for graph, chosen in zip(graphs, gold, strict=True):
            marginals = engine.expectations(graph.scaled(scale)).marginals
            total -= float(np.log(np.maximum(marginals[chosen], 1e-12)).sum())
        return total

    found = minimize_scalar(
        loss, bounds=(np.log(0.05), np.log(20)), method="bounded", options={"xatol": 0.02}
    )
    return round(float(np.exp(found.x)), 4)
