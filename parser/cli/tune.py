"""parser tune"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np

from parser.cli.options import ENCODING, FORMAT, QUIET, SKIP, Skipped, progress
from parser.evaluation import Reference, Rules, table
from parser.inference import Cache
from parser.learning import Trainer, TrainingError
from parser.model import Parser, Settings, SettingsError
from parser.treebank import Sentence, read_all

TRUTH = {"true": True, "false": False}
CONVERTERS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "float | None": float,
    "bool": TRUTH.__getitem__,
    "bool | None": TRUTH.__getitem__,
    "str": str,
    "tuple[str, ...]": lambda text: tuple(name.strip() for name in text.split(",")),
}
WANTED = {"int": "a whole number", "float": "a number", "float | None": "a number"}


Task = tuple[int, int]  # a setting and a fold


@dataclass(frozen=True)
class Score:
    """What a model of all other folds does on one fold: percentages, and seconds of training.

    calls: of the engine, and `problems` those that it would be called for without a cache; None
    without `amortize`.
    """

    uas: float
    las: float | None
    seconds: float
    calls: int | None = None
    problems: int | None = None


@click.command(short_help="Choose settings by cross-validation.")
@click.argument("treebanks", metavar="TRAIN...", nargs=-1, required=True)
@click.option(
    "--grid",
    "grids",
    metavar="KEY=VALUE[,VALUE...]",
    multiple=True,
    required=True,
    help="A setting, as in the TOML file, and its values; separated by semicolons where values "
    "have commas.  Repeatable: all combinations are tried.",
)
@click.option("--folds", type=click.IntRange(2), default=5, help="Parts of the data.")
@click.option("--fold-seed", type=click.IntRange(0), default=0, help="Of their random choice.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file of the other settings.",
)
@click.option(
    "--rules",
    type=click.Choice(["conllx", "conll18"]),
    default="conll18",
    help="conllx: punctuation left out, full relations.  conll18: all words, no subtypes.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    default=1,
    help="Processes, each with a model in memory.  Scores do not depend on it.",
)
@click.option(
    "--forward/--reset",
    default=True,
    help="With amortize: whether the trees that were found under one setting are kept for the next "
    "of the same fold, which then take turns, or each starts with none.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the scores of each fold.")
@FORMAT
@ENCODING
@SKIP
@QUIET
def tune(
    treebanks: tuple[str, ...],
    grids: tuple[str, ...],
    folds: int,
    fold_seed: int,
    config: Path | None,
    rules: str,
    jobs: int,
    forward: bool,
    as_json: bool,
    format_: Any,
    encoding: str,
    skip_invalid: bool,
    quiet: bool,
) -> None:
    """Train with each setting on all folds but one, parse that one, and compare the means.

    Each setting parses every sentence once, by the last epoch's weights of a model that has not
    seen it.  The best setting has the highest mean LAS, or UAS if one is without relations; of
    equal ones it is the first.  After +- are standard deviations over folds.  With amortize: calls
    of the engine over all folds, and their share of the problems, in percent.

    \b
    Example:
      parser tune train.conllu --grid aggressiveness=0.01,0.1,1 --grid epochs=5,10 --jobs 2
    """
    base = Settings.from_toml(config) if config else {}
    grid = parse_grids(grids)
    points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    settings = [Settings.from_dict(base | point, "settings") for point in points]
    skipped = Skipped()
    sentences = read_all(
        treebanks,
        format=format_,
        encoding=encoding,
        on_invalid=skipped if skip_invalid else None,
    )
    if not quiet:
        skipped.report()
    if len(sentences) < folds:
        raise TrainingError(f"{folds} folds need as many sentences, there are {len(sentences)}")
    if not quiet:
        click.echo(
            f"{len(sentences)} sentences in {folds} folds, {len(points)} settings: "
            f"{folds * len(points)} models",
            err=True,
        )
    # A polite kill is like Ctrl-C: no process stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        scores = cross_validate(
            settings,
            sentences,
            folds,
            fold_seed,
            rules,
            jobs,
            progress(quiet, total=folds * len(points)),
            forward=forward,
        )
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        sys.exit(130)

    means = [summary(each) for each in scores]
    by = "uas" if any(each["las"] is None for each in means) else "las"
    best = max(range(len(points)), key=lambda i: (means[i][by], -i))
    varied = [key for key in grid if len(grid[key]) > 1] or list(grid)
    names = [{key: shown(point[key]) for key in varied} for point in points]
    if as_json:
        rows = [
            {"setting": point, **mean, "folds": [vars(score) for score in each]}
            for point, mean, each in zip(points, means, scores, strict=True)
        ]
        click.echo(json.dumps({"settings": rows, "best": points[best], "by": by}))
        return
    amortized = any(each.amortize for each in settings)
    rows = [name | row(mean, amortized) for name, mean in zip(names, means, strict=True)]
    click.echo(table(rows))
    setting = ", ".join(f"{key}={value}" for key, value in names[best].items())
    click.echo(f"\nbest {by.upper()}: {setting}")


def parse_grids(grids: Iterable[str]) -> dict[str, list[Any]]:
    """The values of each setting, converted; SettingsError says what cannot be."""
    kinds = {f.name: str(f.type) for f in dataclasses.fields(Settings)}
    out: dict[str, list[Any]] = {}
    for text in grids:
        key, equals, values = text.partition("=")
        key = key.strip()
        if not equals:
            raise SettingsError(f"--grid: KEY=VALUE,... is wanted, got {text!r}")
        if key not in kinds:
            raise SettingsError(f"--grid: unknown setting {key!r}")
        kind = kinds[key]
        for value in values.split(";" if ";" in values else ","):
            try:
                converted = CONVERTERS[kind](value.strip())
            except (ValueError, KeyError):
                wanted = WANTED.get(kind, "true or false")
                raise SettingsError(f"--grid: {key}: {wanted} is wanted, got {value!r}") from None
            if converted not in out.setdefault(key, []):
                out[key].append(converted)
    return out


def assign(sentences: int, folds: int, seed: int) -> np.ndarray:
    """The fold of each sentence, (sentences,): at random, in sizes that differ by one at most."""
    return np.random.default_rng(seed).permutation(np.arange(sentences) % folds)


def cross_validate(
    settings: Sequence[Settings],
    sentences: Sequence[Sentence],
    folds: int,
    seed: int,
    rules: str,
    jobs: int,
    wrap: Callable[[Iterable[Any], str], Iterable[Any]] = lambda items, _: items,
    *,
    forward: bool = True,
) -> list[list[Score]]:
    """Scores by setting and by fold.

    One model is trained for each, in `jobs` processes.  TrainingError if one cannot be.
    """
    tasks = chains(settings, folds, forward)
    shared = (settings, sentences, assign(len(sentences), folds, seed), rules)
    found: dict[Task, Score] = {}
    for task, score in wrap(run_all(tasks, shared, jobs), "models"):
        found[task] = score
    return [[found[i, fold] for fold in range(folds)] for i in range(len(settings))]


def chains(settings: Sequence[Settings], folds: int, forward: bool) -> list[list[Task]]:
    """Tasks, those of a list to be done one after the other with one cache.

    These are of one fold, as a cache knows sentences by their places, and of one engine, as what
    one engine is content with need not be the best.
    """
    groups: dict[Any, list[int]] = {}
    for i, s in enumerate(settings):
        shares = forward and s.amortize
        groups.setdefault((s.engine, s.amortize_memory) if shares else i, []).append(i)
    return [[(i, fold) for i in group] for group in groups.values() for fold in range(folds)]


def run_all(
    tasks: Sequence[Sequence[Task]], shared: tuple[Any, ...], jobs: int
) -> Iterator[tuple[Task, Score]]:
    """Tasks with their scores, as they come."""
    if jobs == 1:
        for chain in tasks:
            yield from train_chain(chain, *shared)
        return
    context = multiprocessing.get_context("spawn")  # never a copy of a process with threads
    pool = ProcessPoolExecutor(min(jobs, len(tasks)), context, start_worker, shared)
    try:
        futures = [pool.submit(worker, chain) for chain in tasks]
        for future in as_completed(futures):
            yield from future.result()
    except BrokenProcessPool:
        raise TrainingError(
            "a process was killed, perhaps for want of memory: fewer --jobs need less"
        ) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()


_shared: tuple[Any, ...] = ()  # of a worker process: what all tasks have in common


def start_worker(*shared: Any) -> None:
    global _shared
    _shared = shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers


def worker(chain: Sequence[Task]) -> list[tuple[Task, Score]]:
    try:
        return list(train_chain(chain, *_shared))
    except ValueError as error:  # some of ours cannot be sent to another process as they are
        raise TrainingError(str(error)) from None


def train_chain(
    chain: Sequence[Task],
    settings: Sequence[Settings],
    sentences: Sequence[Sentence],
    fold_of: np.ndarray,
    rules: str,
) -> Iterator[tuple[Task, Score]]:
    """Train with one setting after the other on all folds but one, and score that one."""
    cache = Cache(int(settings[chain[0][0]].amortize_memory * 2**30))
    for which, fold in chain:
        held_out = [s for s, f in zip(sentences, fold_of.tolist(), strict=True) if f == fold]
        rest = [s for s, f in zip(sentences, fold_of.tolist(), strict=True) if f != fold]
        start = time.perf_counter()
        trainer = Trainer(settings[which], rest, cache=cache)
        model = trainer.run()
        seconds = time.perf_counter() - start
        parses = list(Parser(model).parse_all(held_out))
        labelled = model.settings.labelled
        scores = Reference(held_out, Rules.named(rules, allow_multiple_roots=True)).score(
            [p.heads for p in parses], [p.deprels for p in parses] if labelled else None
        )
        amortized = trainer.learner.amortized
        counts = (amortized.statistics.solved, amortized.statistics.queries) if amortized else ()
        yield (which, fold), Score(scores.uas, scores.las if labelled else None, seconds, *counts)


def summary(scores: Sequence[Score]) -> dict[str, float | None]:
    """Means over folds, and sample standard deviations; of calls and problems the sums."""
    out: dict[str, float | None] = {}
    for name in ("uas", "las"):
        values = [getattr(score, name) for score in scores]
        known = None not in values
        out[name] = statistics.fmean(values) if known else None
        out[f"{name}_sd"] = statistics.stdev(values) if known else None
    out["seconds"] = statistics.fmean(score.seconds for score in scores)
    for name in ("calls", "problems"):
        counts = [getattr(score, name) for score in scores]
        out[name] = None if None in counts else sum(counts)
    return out


def row(mean: dict[str, float | None], amortized: bool) -> dict[str, Any]:
    """The columns of a setting in the table; with calls of the engine if a setting has a cache."""
    out: dict[str, Any] = {}
    for name in ("uas", "las"):
        value = mean[name]
        out[name.upper()] = "-" if value is None else f"{value:.2f} +- {mean[f'{name}_sd']:.2f}"
    out["train_s"] = mean["seconds"]
    if amortized:
        calls, problems = mean["calls"], mean["problems"]
        share = None if calls is None or not problems else 100 * calls / problems
        out |= {"calls": calls, "share": share}
    return out


def shown(value: Any) -> str:
    """A setting as it is written after --grid."""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
