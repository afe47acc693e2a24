"""Time belief propagation by sentence length: where an iteration goes, and how it grows.

    python tests/benchmarks/propagation.py [--sizes 10,18,20,40,80] [--iterations 5] [--pruned K]

Microseconds a sentence, one thread, the fastest of several runs, over all arcs (or K random heads a
word) and N(0, 1) scores; those of parts N(0, 0.09).  A family's column is the sum of its passes
over all iterations, the exponentials of its scores included, for the tree factor with the one
before them; "set up, decode" is all else.  "iteration" is the mean of one, and its exponent
the slope of its logarithm on log n over n >= 20.  The last table is of relaxed inference, with its
separation.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

if __package__ in (None, ""):  # run by path
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from parser.evaluation import table
from parser.graph import CHILDSEQ, CODES, GRAND, NOCROSS, SIB, ScoredGraph
from parser.inference import BeliefPropagation, RelaxedBeliefPropagation
from tests.benchmarks.runtime import exponent, random_graph

MODELS = (
    (),
    (GRAND,),
    (GRAND, SIB),
    (GRAND, CHILDSEQ),
    (GRAND, CHILDSEQ, NOCROSS),
    (GRAND, SIB, CHILDSEQ, NOCROSS),
)


def graph_of(
    n: int, families: tuple[str, ...], pruned: int | None, projective: bool
) -> ScoredGraph:
    rng = np.random.default_rng(n)
    graph = replace(random_graph(n, pruned, rng), projective=projective)
    sizes = {family: graph.arcs.layout.size(CODES[family]) for family in families}
    return replace(graph, parts={f: 0.3 * rng.normal(size=size) for f, size in sizes.items()})


def measure(
    kind: type[BeliefPropagation], graph: ScoredGraph, iterations: int, budget: float = 0.3
) -> dict[str, float]:
    """Of the fastest run, in seconds."""
    engine = kind(iterations=iterations, tolerance=0.0)
    fastest: dict[str, float] = {"all": np.inf}
    end = time.perf_counter() + budget
    while time.perf_counter() < end:
        start = time.perf_counter()
        result = engine.best(graph)
        whole = time.perf_counter() - start
        if whole < fastest["all"]:
            passes = {k: v for k, v in result.seconds.items() if k not in ("set up", "decode")}
            fastest = {"all": whole, **passes}
    return fastest


@click.command()
@click.option("--sizes", default="10,18,20,40,80", show_default=True)
@click.option("--iterations", type=click.IntRange(1), default=5, show_default=True)
@click.option("--pruned", type=click.IntRange(1), help="Heads a word, at random; default all.")
@click.option("--projective", is_flag=True, help="The projective tree factor.")
def main(sizes: str, iterations: int, pruned: int | None, projective: bool) -> None:
    lengths = np.array([int(size) for size in sizes.split(",")])
    engines = [(BeliefPropagation, families) for families in MODELS]
    for kind, families in [*engines, (RelaxedBeliefPropagation, (GRAND, SIB))]:
        rows, per_iteration = [], []
        for n in lengths.tolist():
            graph = graph_of(n, families, pruned, projective)
            seconds = measure(kind, graph, iterations)
            whole = seconds.pop("all")
            passes = {family: spent for family, spent in seconds.items() if spent}
            rest = whole - sum(passes.values())
            per_iteration.append(sum(passes.values()) / iterations)
            row = {"n": n, **passes, "set up, decode": rest, "all": whole}
            row |= {"iteration": per_iteration[-1]}
            rows.append({k: v if k == "n" else f"{1e6 * v:.0f}" for k, v in row.items()})
        click.echo(f"{kind.name}: {', '.join(('link', *families))}")
        click.echo(table(rows))
        growth = exponent(lengths, np.array(per_iteration))
        click.echo(f"time of an iteration grows with n^{growth:.2f}\n")


if __name__ == "__main__":
    main()
