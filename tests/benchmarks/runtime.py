"""Time by sentence length: exact projective programs with parts, and the exponents they show.

    python tests/benchmarks/runtime.py [--sizes 5,10,...,70] [--pruned K] [--plot FILE]

Microseconds a sentence on N(0, 1) scores, one thread, best of the runs that fit into a tenth of a
second of processor time, or of three.  Viterbi is the best tree under all families of the graph.
MBR is the marginals and the best projective tree on them.  BP k is k iterations of belief
propagation with the projective tree factor, GRAND and CHILDSEQ, and the tree that they give; below
the table stands from which length on it is faster than the programs.  Hill climbing starts from the
projective optimum and may cross arcs; the start is not in its time.  The exponent is the slope of
log time on log n over n >= 20; a column ends after the first run of over a minute.  The O(n^5)
program is compiled on first use and needs Cython and a C compiler.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import click
import numpy as np

if __package__ in (None, ""):  # run by path
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from parser.graph import CHILDSEQ, CODES, GRAND, GRANDSIB, LINK, ScoredGraph
from parser.inference import HILL_CLIMBING, BeliefPropagation, projective
from parser.inference.engine import Result
from parser.inference.second_order import GRANDPARENT, GRANDSIBLING, SIBLING

ROOT = Path(__file__).resolve().parents[2]
PARTS = (CHILDSEQ, GRAND, GRANDSIB)
ITERATIONS = (5, 10)
LONGEST = 60.0  # seconds
RUNS = 3  # at least; in the first, the system gives memory
Call = Callable[[ScoredGraph], object]


def compile_quintic() -> ModuleType:
    """quintic.pyx as a module, built in a directory that is gone after."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    from cython_ext._build import DIRECTIVES, FAST

    source = str(Path(__file__).with_name("quintic.pyx"))
    with tempfile.TemporaryDirectory() as directory:
        extension = Extension(
            "quintic", [source], include_dirs=[str(ROOT / "cython_ext")], extra_compile_args=FAST
        )
        modules = cythonize(
            [extension],
            compiler_directives=DIRECTIVES,
            include_path=[str(ROOT)],
            build_dir=directory,
            quiet=True,
        )
        command = build_ext(Distribution({"ext_modules": modules}))
        command.build_lib = command.build_temp = directory
        command.ensure_finalized()
        command.run()
        spec = importlib.util.spec_from_file_location(
            "quintic", command.get_ext_fullpath("quintic")
        )
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def random_graph(n: int, pruned: int | None, rng: np.random.Generator) -> ScoredGraph:
    """All families.  Pruned: the chain, so that there is a tree, and random heads besides."""
    scores = np.full((n + 1, n + 1), -np.inf)
    for m in range(1, n + 1):
        others = np.delete(np.arange(n + 1), [m - 1, m])
        if pruned is not None:
            others = rng.choice(others, min(pruned - 1, len(others)), replace=False)
        heads = np.append(others, m - 1)
        scores[heads, m] = rng.normal(size=len(heads))
    graph = ScoredGraph.from_matrix(scores, projective=True)
    sizes = {family: graph.arcs.layout.size(CODES[family]) for family in PARTS}
    return replace(graph, parts={family: rng.normal(size=size) for family, size in sizes.items()})


def restricted(graph: ScoredGraph, families: frozenset[str]) -> ScoredGraph:
    return replace(graph, parts={f: s for f, s in graph.parts.items() if f in families})


def mbr(expectations: Callable[[ScoredGraph], Result]) -> Call:
    def run(graph: ScoredGraph) -> object:
        marginals = expectations(graph).marginals
        return projective.best_tree(graph.spread(marginals, -np.inf), single_root=graph.single_root)

    return run


def best(quintic: ModuleType, graph: ScoredGraph) -> Result:
    heads = np.empty(graph.n + 1, np.int32)
    parts = map(graph.parts.get, PARTS)
    score = quintic.best_tree(graph.arcs.layout, graph.scores, *parts, graph.single_root, heads)
    return Result(heads, score)


def expectations(quintic: ModuleType, graph: ScoredGraph) -> Result:
    marginals = np.zeros(len(graph.scores))
    of_parts = {family: np.zeros(len(scores)) for family, scores in graph.parts.items()}
    log_z = quintic.expectations(
        graph.arcs.layout,
        graph.scores,
        *map(graph.parts.get, PARTS),
        graph.single_root,
        marginals,
        *map(of_parts.get, PARTS),
    )
    return Result(log_z=log_z, marginals=marginals, part_marginals=of_parts)


def programs(quintic: ModuleType) -> dict[str, tuple[frozenset[str], Call]]:
    """Families and call of each column."""
    engines = {"sibling n^3": SIBLING, "grandparent n^4": GRANDPARENT, "grandsib n^4": GRANDSIBLING}
    columns = {f"{name} Viterbi": (e.families, e.best) for name, e in engines.items()}
    columns |= {f"{name} MBR": (e.families, mbr(e.expectations)) for name, e in engines.items()}
    everything = frozenset({LINK, *PARTS})

    starts: dict[int, np.ndarray] = {}

    def climb(graph: ScoredGraph) -> object:
        if graph.n not in starts:  # the first of several runs, so not the fastest
            starts[graph.n] = GRANDSIBLING.best(graph).heads
        return HILL_CLIMBING.climb(replace(graph, projective=False), starts[graph.n])

    columns["hill climbing"] = everything, climb
    for k in ITERATIONS:
        bp = BeliefPropagation(iterations=k, tolerance=0.0)
        columns[f"BP {k}"] = frozenset({LINK, CHILDSEQ, GRAND}), bp.best
    columns["grandsib n^5 Viterbi"] = everything, partial(best, quintic)
    columns["grandsib n^5 MBR"] = everything, mbr(partial(expectations, quintic))
    return columns


def best_seconds(call: Call, graph: ScoredGraph, budget: float = 0.1) -> float:
    """Processor time of the fastest run."""
    took: list[float] = []
    while sum(took) < budget or (len(took) < RUNS and took[0] < LONGEST / RUNS):
        start = time.process_time()
        call(graph)
        took.append(max(time.process_time() - start, 1e-6))
    return min(took)


def agree(quintic: ModuleType, graph: ScoredGraph) -> None:
    """Both forms are to give one tree, one log Z and the same marginals, or times mean nothing."""
    tree, found = best(quintic, graph), expectations(quintic, graph)
    right = GRANDSIBLING.expectations(graph)
    same = [
        np.array_equal(tree.heads, GRANDSIBLING.best(graph).heads),
        np.isclose(found.log_z, right.log_z, rtol=1e-10),
        np.allclose(found.marginals, right.marginals, rtol=0, atol=1e-9),
        *(
            np.allclose(found.part_marginals[f], right.part_marginals[f], rtol=0, atol=1e-9)
            for f in PARTS
        ),
    ]
    if not all(same):
        raise click.ClickException("the O(n^4) and the O(n^5) program disagree")


def exponent(sizes: np.ndarray, seconds: np.ndarray) -> float:
    use = (sizes >= 20) & np.isfinite(seconds)
    if use.sum() < 2:
        return float("nan")
    return float(np.polyfit(np.log(sizes[use]), np.log(seconds[use]), 1)[0])


def overtaking(name: str, other: str, sizes: np.ndarray, table: dict[str, np.ndarray]) -> str:
    """The measured length from which on one column is faster than another."""
    measured = np.isfinite(table[other])
    slower = np.flatnonzero(table[name][measured] >= table[other][measured])
    first = slower[-1] + 1 if len(slower) else 0
    if first == measured.sum():
        return f"{name} is not faster than {other} at any length measured"
    return f"{name} is faster than {other} from n = {sizes[measured][first]} on"


def plot(path: str, sizes: np.ndarray, table: dict[str, np.ndarray]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 5))
    for name, seconds in table.items():
        style = "-" if name.endswith("Viterbi") else "--"
        axes.loglog(sizes, 1e6 * seconds, style, marker=".", label=name)
    axes.set_xlabel("words")
    axes.set_ylabel("microseconds a sentence")
    axes.legend(fontsize="small")
    figure.savefig(path, bbox_inches="tight")


@click.command()
@click.option("--sizes", default="5,10,20,30,40,50,60,70", show_default=True)
@click.option("--pruned", type=click.IntRange(1), help="Heads a word, at random; default all.")
@click.option("--plot", "figure", type=click.Path(dir_okay=False, writable=True))
def main(sizes: str, pruned: int | None, figure: str | None) -> None:
    if figure and importlib.util.find_spec("matplotlib") is None:
        raise click.UsageError("--plot needs matplotlib: pip install matplotlib")
    lengths = np.array([int(size) for size in sizes.split(",")])
    rng = np.random.default_rng(0)
    quintic = compile_quintic()
    columns = programs(quintic)
    agree(quintic, random_graph(12, pruned, rng))
    table = {name: np.full(len(lengths), np.nan) for name in columns}
    width = max(map(len, columns)) + 2
    click.echo("words".rjust(8) + "".join(name.rjust(width) for name in columns))
    for row, n in enumerate(lengths):
        graph = random_graph(int(n), pruned, rng)
        cells = []
        for name, (families, call) in columns.items():
            if not (table[name][:row] > LONGEST).any():
                table[name][row] = best_seconds(call, restricted(graph, families))
            microseconds = 1e6 * table[name][row]
            cells.append("-" if np.isnan(microseconds) else f"{microseconds:.0f}")
        click.echo(str(n).rjust(8) + "".join(cell.rjust(width) for cell in cells))
    fits = (f"{exponent(lengths, seconds):.2f}" for seconds in table.values())
    click.echo("exponent".rjust(8) + "".join(fit.rjust(width) for fit in fits))
    for k in ITERATIONS:
        for name in columns:
            if name.startswith("grandsib"):
                click.echo(overtaking(f"BP {k}", name, lengths, table))
    if figure:
        plot(figure, lengths, table)


if __name__ == "__main__":
    main()
