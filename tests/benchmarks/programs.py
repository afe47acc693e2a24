"""Time integer programs and their relaxations by formulation, beside exact dynamic programs.

    python tests/benchmarks/programs.py [--sizes 6,8,10,12] [--sentences 3] [--limit 20]

Milliseconds a sentence, elapsed, mean over sentences, with N(0, 9) scores of all arcs (or, with
--pruned K, of K random heads a word) and N(0, 0.25) scores of parts.  "ilp" finds the best tree,
"lp" is its relaxation: behind its time stands for how many sentences it found the best tree, too.
"exact" is the dynamic program or spanning tree for the same families, where there is one.  With >,
a program was stopped at the limit; its formulation ends there.
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
from parser.graph import CHILDSEQ, CODES, GRAND, GRANDSIB, LINK, NOCROSS, SIB, ScoredGraph
from parser.inference.engine import Engine, Result
from parser.inference.first_order import MST, PROJECTIVE
from parser.inference.integer_program import IntegerProgram, LinearProgram
from parser.inference.second_order import GRANDPARENT, GRANDSIBLING, SIBLING
from tests.benchmarks.runtime import random_graph

MODELS = (
    (),
    (CHILDSEQ,),
    (GRAND,),
    (SIB, GRAND),
    (NOCROSS,),
    (CHILDSEQ, GRAND),
    (CHILDSEQ, GRAND, GRANDSIB),
)
EXACT = {True: (PROJECTIVE, SIBLING, GRANDPARENT, GRANDSIBLING), False: (MST,)}
FLOWS = ("multicommodity", "single-commodity", "cuts")


def graph_of(
    n: int, seed: int, families: tuple[str, ...], pruned: int | None, projective: bool
) -> ScoredGraph:
    rng = np.random.default_rng([n, seed])
    graph = replace(random_graph(n, pruned, rng), projective=projective)
    sizes = {family: graph.arcs.layout.size(CODES[family]) for family in families}
    parts = {family: 0.5 * rng.normal(size=size) for family, size in sizes.items()}
    return replace(graph, scores=3.0 * graph.scores, parts=parts)


def measure(engine: Engine, graphs: list[ScoredGraph]) -> tuple[float, list[Result]]:
    """Mean seconds, and the results."""
    start = time.perf_counter()
    results = [engine.best(graph) for graph in graphs]
    return (time.perf_counter() - start) / len(graphs), results


def rows(
    families: tuple[str, ...],
    lengths: list[int],
    sentences: int,
    limit: float,
    pruned: int | None,
    projective: bool,
) -> list[dict[str, str | int]]:
    out = []
    names = (*FLOWS, "chart") if projective else FLOWS
    slow: set[str] = set()
    for n in lengths:
        graphs = [graph_of(n, seed, families, pruned, projective) for seed in range(sentences)]
        row: dict[str, str | int] = {"n": n}
        for name in names:
            for kind in (IntegerProgram, LinearProgram):
                key = f"{kind.name} {name}"
                if key in slow:
                    row[key] = "-"
                    continue
                seconds, results = measure(kind(name, limit), graphs)
                late = not all(result.converged for result in results)
                row[key] = f"{'>' * late}{1e3 * seconds:.1f}"
                slow |= {key} if late else set()
                if kind is LinearProgram:
                    tight = sum(result.certificate.optimal for result in results)
                    row[key] += f" ({tight}/{sentences})"
        for engine in EXACT[projective]:
            if {LINK, *families} <= engine.families:
                row[f"exact {engine.name}"] = f"{1e3 * measure(engine, graphs)[0]:.3f}"
                break
        out.append(row)
    return out


@click.command()
@click.option("--sizes", default="6,8,10,12", show_default=True, help="Words a sentence.")
@click.option("--sentences", type=click.IntRange(1), default=3, show_default=True)
@click.option("--limit", default=20.0, show_default=True, help="Seconds for one program.")
@click.option("--pruned", type=click.IntRange(1), help="Heads a word, at random; default all.")
def main(sizes: str, sentences: int, limit: float, pruned: int | None) -> None:
    lengths = [int(n) for n in sizes.split(",")]
    IntegerProgram().best(graph_of(2, 0, (), None, False))  # imports the solver
    for projective in (False, True):
        for families in MODELS:
            if projective and NOCROSS in families:
                continue
            trees = "projective trees" if projective else "all trees"
            click.echo(f"{trees}: {', '.join((LINK, *families))}")
            found = rows(families, lengths, sentences, limit, pruned, projective)
            click.echo(table(found) + "\n")


if __name__ == "__main__":
    main()
