"""Time dual decomposition and AD3 by sentence length, beside the projective dynamic program.

    python tests/benchmarks/decomposition.py [--sizes 10,20,40,80] [--sentences 20] [--pruned 5]

Microseconds a sentence over random graphs with a planted tree: N(0, 1) scores of arcs, its own 3
higher, and N(0, 0.25) scores of parts.  Behind: iterations, microseconds of one, percent proved.
The last columns are amortized inference: solving graphs whose scores moved by N(0, 0.01), the share
that needed no solver, and the microseconds of such a hit.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

if __package__ in (None, ""):  # run by path
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from parser.evaluation import table
from parser.graph import CHILDSEQ, CODES, GRAND, GRANDSIB, LINK, ScoredGraph
from parser.inference import Amortized
from parser.inference.ad3 import ALTERNATING_DIRECTIONS
from parser.inference.amortized import Recalled
from parser.inference.dual_decomposition import DUAL_DECOMPOSITION
from parser.inference.engine import Result
from parser.inference.first_order import MST
from parser.inference.second_order import GRANDSIBLING
from tests.benchmarks.runtime import random_graph

MODELS = ((CHILDSEQ,), (CHILDSEQ, GRAND), (CHILDSEQ, GRAND, GRANDSIB))
PASSES = 3  # of which the fastest counts


def planted(n: int, seed: int, families: tuple[str, ...], pruned: int | None) -> ScoredGraph:
    rng = np.random.default_rng([n, seed])
    graph = replace(random_graph(n, pruned, rng), projective=False, parts={})
    tree = MST.best(graph).heads
    scores = rng.normal(size=len(graph.scores)) + 3.0 * (tree[graph.modifiers] == graph.heads)
    sizes = {family: graph.arcs.layout.size(CODES[family]) for family in families}
    parts = {family: 0.5 * rng.normal(size=size) for family, size in sizes.items()}
    return replace(graph, scores=scores, parts=parts)


def moved(graph: ScoredGraph, seed: int) -> ScoredGraph:
    rng = np.random.default_rng([graph.n, seed, 1])
    return replace(graph, scores=graph.scores + 0.1 * rng.normal(size=len(graph.scores)))


def measure(
    solve: Callable[[ScoredGraph], Result], graphs: list[ScoredGraph]
) -> tuple[float, list[Result]]:
    """Microseconds a sentence, and the results."""
    took = []
    for _ in range(PASSES):
        start = time.perf_counter()
        results = [solve(graph) for graph in graphs]
        took.append(time.perf_counter() - start)
    return 1e6 * min(took) / len(graphs), results


def row(n: int, families: tuple[str, ...], sentences: int, pruned: int | None) -> dict[str, float]:
    graphs = [planted(n, seed, families, pruned) for seed in range(sentences)]
    out: dict[str, float] = {"n": n}
    for name, engine in (("DD", DUAL_DECOMPOSITION), ("AD3", ALTERNATING_DIRECTIONS)):
        micro, results = measure(engine.best, graphs)
        iterations = float(np.mean([result.iterations for result in results]))
        out[name] = round(micro, 1)
        out[f"{name} iterations"] = round(iterations, 1)
        out[f"{name} each"] = round(micro / iterations, 2)
        out[f"{name} proved"] = round(100 * float(np.mean([r.converged for r in results])), 1)
    trees = [replace(graph, projective=True) for graph in graphs]
    out["projective DP"] = round(measure(GRANDSIBLING.best, trees)[0], 1)
    first = [replace(graph, parts={}) for graph in graphs]
    amortized = Amortized(MST)
    for number, graph in enumerate(first):
        amortized.solve(graph, number)
    later = [moved(graph, seed) for seed, graph in enumerate(first)]
    hits = [
        (number, graph)
        for number, graph in enumerate(later)
        if isinstance(amortized.solve(graph, number), Recalled)
    ]
    out["MST hits"] = round(100 * len(hits) / sentences, 1)
    if hits:
        start = time.perf_counter()
        for number, graph in hits:
            amortized.solve(graph, number)
        out["hit"] = round(1e6 * (time.perf_counter() - start) / len(hits), 1)
    return out


@click.command()
@click.option("--sizes", default="10,20,40,80", show_default=True, help="Words a sentence.")
@click.option("--sentences", type=click.IntRange(1), default=20, show_default=True)
@click.option("--pruned", type=click.IntRange(1), help="Heads a word, at random; default all.")
def main(sizes: str, sentences: int, pruned: int | None) -> None:
    for families in MODELS:
        click.echo(", ".join((LINK, *families)))
        rows = [row(int(n), families, sentences, pruned) for n in sizes.split(",")]
        click.echo(table(rows) + "\n")


if __name__ == "__main__":
    main()
