"""Sentences one after the other, and side by side, share blocks of memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from parser.graph import CHILDSEQ, GRAND, SIB
from parser.inference import find_engine
from tests.inference.factor_graph import random_graph

ENGINES = {
    "sibling": (CHILDSEQ,),
    "grandsibling": (CHILDSEQ, GRAND),
    "hill-climbing": (CHILDSEQ, GRAND, SIB),
    "dual-decomposition": (CHILDSEQ, GRAND),
    "dual-decomposition:sweeps=0,nodes=0": (CHILDSEQ, GRAND),
    "ad3:iterations=20": (CHILDSEQ, GRAND, SIB),
    "bp": (CHILDSEQ, GRAND, SIB),
    "relaxed-bp": (GRAND, SIB),
}


@pytest.mark.parametrize("name", ENGINES)
def test_neither_what_was_solved_before_nor_what_is_solved_beside_changes_a_tree(name):
    engine, rng = find_engine(name), np.random.default_rng(0)
    projective = name in ("sibling", "grandsibling")
    graphs = [
        random_graph(rng, n, ENGINES[name], projective=projective, arcs=n * (n + 1) // 2)
        for n in [2, 17, 5, 11, 3, 23, 8] * 3
    ]
    alone = [engine.best(graph) for graph in graphs]
    backwards = [engine.best(graph) for graph in reversed(graphs)][::-1]
    with ThreadPoolExecutor(6) as threads:
        beside = list(threads.map(engine.best, graphs * 4))
    for one, other in zip(alone * 5, backwards + beside, strict=True):
        assert other.heads.tolist() == one.heads.tolist()
        assert other.score == one.score
