"""Cross-validation: settings compared on folds of the data, in parallel."""

from __future__ import annotations

import multiprocessing
import signal
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

import numpy as np

from parser.evaluation import Reference, Rules
from parser.inference import Cache
from parser.learning.trainer import Trainer, TrainingError
from parser.model import Parser, Settings
from parser.treebank import Sentence

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
