"""Time the array kernels: microseconds a sentence on N(0, 1) scores, one thread.

    python tests/benchmarks/kernels.py [--sizes 10,20,40,80,160] [--batch 64] [--repeats 7]

Batch rows divide the time of one call on a batch by its size; single rows are whole calls on one
sentence, checks included.  Peers are timed in the same run when they can be imported:
ufal.chu_liu_edmonds, torch_struct, networkx, and numpy's own inverse.  Times are processor time,
median over repeats: other load on the machine shifts them less than elapsed time.
"""

from __future__ import annotations

import importlib
import platform
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType

import click
import numpy as np

if __package__ in (None, ""):  # run by path
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from parser.inference import nonprojective, projective

Call = Callable[[], object]

STRUCT_WORDS = 1280  # in a batch for torch_struct's projective charts: 64 of 40 take over 20 GB


def median_us(call: Call, repeats: int, budget: float = 0.05) -> float:
    """Median over repeats of the mean processor time of a call, in microseconds."""
    call()
    start = time.process_time()
    call()
    inner = max(1, int(budget / max(time.process_time() - start, 1e-9)))
    times = []
    for _ in range(repeats):
        start = time.process_time()
        for _ in range(inner):
            call()
        times.append((time.process_time() - start) / inner)
    return 1e6 * float(np.median(times))


def optional(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def ours(scores: np.ndarray) -> Iterator[tuple[str, Call, int]]:
    """Rows: name, call, sentences in a call."""
    batch = len(scores)
    one = scores[0]
    for single_root, roots in ((True, "single root"), (False, "multi root")):
        for functions, name in ((nonprojective, "arborescence"), (projective, "Eisner")):
            for rows, where, count in ((scores, "batch", batch), (one, "single", 1)):
                yield (
                    f"{name}, {roots}, {where}",
                    lambda f=functions, x=rows, r=single_root: f.best_tree(x, single_root=r),
                    count,
                )
    for functions, name in ((nonprojective, "matrix-tree"), (projective, "inside-outside")):
        for what in ("log_partition", "marginals"):
            for rows, where, count in ((scores, "batch", batch), (one, "single", 1)):
                call = getattr(functions, what)
                yield f"{name}, {what}, {where}", lambda f=call, x=rows: f(x), count
        kind = "projective" if functions is projective else "all trees"
        yield f"10 best, {kind}, single", lambda f=functions: f.k_best(one, 10), 1
        yield f"100 samples, {kind}, single", lambda f=functions: f.sample(one, 100, seed=0), 1


def peers(scores: np.ndarray) -> Iterator[tuple[str, Call, int]]:
    batch, size, _ = scores.shape
    n = size - 1
    laplacian = scores[0, 1:, 1:] + n * np.eye(n)
    yield (
        "numpy inv + slogdet, single",
        lambda: (
            np.linalg.inv(laplacian),
            np.linalg.slogdet(laplacian),
        ),
        1,
    )
    if ufal := optional("ufal.chu_liu_edmonds"):
        transposed = np.ascontiguousarray(scores[0].T)
        yield (
            "ufal.chu_liu_edmonds, multi root, single",
            lambda: ufal.chu_liu_edmonds(transposed),
            1,
        )
    if torch := optional("torch"):
        torch.set_num_threads(1)
        torch.distributions.Distribution.set_default_validate_args(False)
    if torch and (torch_struct := optional("torch_struct")):
        arcs = torch.tensor(scores[:, 1:, 1:]).clone()
        arcs[:, range(n), range(n)] = torch.tensor(scores[:, 0, 1:])  # its roots: the diagonal
        crf, projective_crf = torch_struct.NonProjectiveDependencyCRF, torch_struct.DependencyCRF
        for x, where, count in ((arcs, "batch", batch), (arcs[:1], "single", 1)):
            yield (
                f"torch_struct matrix-tree marginals, {where}",
                lambda x=x: crf(x.clone()).marginals,
                count,
            )
            if len(x) * n > STRUCT_WORDS:
                continue
            x = x.clone().requires_grad_() * 1  # it writes into what it makes of a leaf tensor
            for what in ("argmax", "marginals"):
                yield (
                    f"torch_struct projective {what}, multi root, {where}",
                    lambda x=x, what=what: getattr(projective_crf(x), what),
                    count,
                )
    if n <= 40 and (networkx := optional("networkx")):
        graph = networkx.DiGraph()
        graph.add_weighted_edges_from(
            (h, m, float(scores[0, h, m])) for h in range(size) for m in range(1, size) if h != m
        )
        yield (
            "networkx maximum_spanning_arborescence, single",
            lambda: networkx.maximum_spanning_arborescence(graph),
            1,
        )


def header() -> Iterator[str]:
    yield f"machine   {platform.machine()} {processor()}, {platform.system()}"
    yield f"python    {platform.python_version()}"
    names = ("numpy", "scipy", "ufal.chu-liu-edmonds", "torch", "torch-struct", "networkx")
    for name in names:
        try:
            yield f"{name:<9} {version(name)}"
        except PackageNotFoundError:
            yield f"{name:<9} not installed"


def processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


@click.command()
@click.option("--sizes", default="10,20,40,80,160", show_default=True, help="Words a sentence.")
@click.option("--batch", default=64, show_default=True, help="Sentences in a batch.")
@click.option("--repeats", default=7, show_default=True, help="Repeats for each median.")
def main(sizes: str, batch: int, repeats: int) -> None:
    """Print microseconds a sentence of every kernel and of the peers that are installed."""
    for line in header():
        click.echo(line)
    lengths = [int(n) for n in sizes.split(",")]
    table: dict[str, dict[int, float]] = {}
    for n in lengths:
        scores = np.random.default_rng(n).normal(size=(batch, n + 1, n + 1))
        for rows in (ours, peers):
            for name, call, sentences in rows(scores):
                table.setdefault(name, {})[n] = median_us(call, repeats) / sentences
    click.echo(f"\n{'microseconds a sentence':<52}" + "".join(f"{f'n={n}':>10}" for n in lengths))
    for name, times in table.items():
        cells = (f"{times[n]:>10.1f}" if n in times else f"{'-':>10}" for n in lengths)
        click.echo(f"{name:<52}" + "".join(cells))


if __name__ == "__main__":
    main()
