"""Time what the moves of hill climbing cost beside the projective program before them.

    python tests/benchmarks/climbing.py MODEL GOLD [--repeat 30]

Microseconds a sentence of the engine on the model's graphs, and where only projective trees are
allowed and its families have a program, so that there is nothing to climb.  Both take the sentences
one after the other, so that the graphs come from memory as they do in parsing; of each sentence the
fastest call counts.
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
from parser.graph import ScoredGraph
from parser.inference import NoTreeError
from parser.inference.hill_climbing import HILL_CLIMBING
from parser.model import Model, Parser
from parser.treebank import read_all


def has_projective_tree(graph: ScoredGraph) -> bool:
    try:
        return bool(HILL_CLIMBING.best(replace(graph, projective=True)).score > -np.inf)
    except NoTreeError:
        return False


@click.command()
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.argument("gold")
@click.option("--repeat", type=click.IntRange(1), default=30, show_default=True)
def main(model: Path, gold: str, repeat: int) -> None:
    graphs = [g for g in Parser(Model.load(model)).graphs(read_all([gold])) if g.n]
    graphs = [graph for graph in graphs if has_projective_tree(graph)]
    kinds = {"program and moves": graphs}
    kinds["program"] = [replace(graph, projective=True) for graph in graphs]
    took = {kind: np.full(len(graphs), np.inf) for kind in kinds}
    for _ in range(repeat):
        for kind, inputs in kinds.items():
            for i, graph in enumerate(inputs):
                start = time.perf_counter()
                HILL_CLIMBING.best(graph)
                took[kind][i] = min(took[kind][i], time.perf_counter() - start)
    moves = np.array([HILL_CLIMBING.best(graph).moves for graph in graphs])
    whole, program = (1e6 * times.mean() for times in took.values())
    row = {"sentences": len(graphs), "moves": round(float(moves.mean()), 2)}
    row |= {"program": round(program, 1), "program and moves": round(whole, 1)}
    click.echo(table([row | {"moves, % of the program": round(100 * (whole / program - 1), 1)}]))


if __name__ == "__main__":
    main()
