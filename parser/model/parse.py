"""From sentences to trees with relations: the model's weights, an engine, the labeller."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import islice
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from parser.features import Columns
from parser.graph import Arcs, GraphError, ScoredGraph, all_arcs
from parser.inference import Engine, Result
from parser.model.model import Model
from parser.treebank import Sentence

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True)
class Parse:
    """A tree for a sentence.

    Attributes
    ----------
    heads : ndarray of int32, (n+1,)
    deprels : list of str, (n,)
    score : float
        Sum of the arc scores.
    log_probability : float or None
        log p(tree) under the model's tree distribution, where asked for.
    arc_probabilities, label_probabilities : ndarray of float64, (n,), or None
        Marginal of each word's arc; p(relation | tree).
    arc_bounds : ndarray of float64, (2, n), or None
        Of relaxed inference: the marginals with all parts are between these, as far as those that
        it has are exact for the parts it used (`Relaxation.bound`).
    rescued : int
        Arcs that the pruner kept only so that there is a tree.
    """

    heads: np.ndarray
    deprels: list[str]
    score: float
    log_probability: float | None = None
    arc_probabilities: np.ndarray | None = None
    label_probabilities: np.ndarray | None = None
    arc_bounds: np.ndarray | None = None
    rescued: int = 0


class Parser:
    """A model with an engine.  Holds no state between sentences; threads may share it.

    Parameters
    ----------
    model : Model
    engine : Engine, optional
        Default: that of the model's settings.  Its probabilities are under the model's scale.
    single_root : bool, optional
        Default: as the model's training trees.
    keep_heads : bool
        Heads that a sentence has are kept, and the best tree around them is found.
    confidence : bool
        Compute log p(tree) and probabilities.

    Raises
    ------
    GraphError
        If the engine cannot use a factor family of the model, or has no marginals for `confidence`.
    """

    def __init__(
        self,
        model: Model,
        engine: Engine | None = None,
        *,
        single_root: bool | None = None,
        keep_heads: bool = False,
        confidence: bool = False,
    ) -> None:
        settings = model.settings
        self.model = model
        self.engine = (engine or settings.make_engine()).calibrated(model.scale)
        # An engine for one kind of trees decides; otherwise the model's kind.
        only = set(self.engine.constraints)
        self.projective = only.pop() if len(only) == 1 else bool(settings.projective)
        self.single_root = bool(settings.single_root if single_root is None else single_root)
        self.keep_heads = keep_heads
        self.confidence = confidence
        self.pruner = model.pruner and replace(
            model.pruner, projective=self.projective, single_root=self.single_root
        )
        self.engine.check_families(settings.factors)
        self.lazy = model.scorer.bounds(model.table, self.engine.lazy) if self.engine.lazy else None
        if confidence and not self.engine.has_marginals:
            raise GraphError(
                f"engine {self.engine.name} has no marginals, so there is no confidence; "
                "bp has, and so have exact engines such as grandsibling, for projective trees"
            )

    def graphs(self, sentences: Sequence[Sentence]) -> list[ScoredGraph]:
        """The scored candidate arcs and parts of sentences."""
        _, graphs, _ = self._prepare(sentences)
        return graphs

    def candidates(
        self, sentences: Sequence[Sentence], columns: Sequence[Columns]
    ) -> tuple[list[Arcs] | None, list[int]]:
        """The arcs that are scored, None: all of them; and how many the pruner rescued of each."""
        arcs = [kept_arcs(s.heads) for s in sentences] if self.keep_heads else None
        if not self.pruner:
            return arcs, [0] * len(sentences)
        kept = self.pruner.select(columns, arcs)
        return [each for each, _ in kept], [rescued for _, rescued in kept]

    def score(self, columns: Sequence[Columns], arcs: Sequence[Arcs] | None) -> list[ScoredGraph]:
        """Candidate arcs with the model's scores, and those of their parts."""
        scorer = self.model.scorer
        return scorer.graphs(
            [scorer.encode_ids(*each) for each in columns],
            self.model.table,
            projective=self.projective,
            single_root=self.single_root,
            arcs=arcs,
            lazy=self.lazy,
        )

    def parse(self, sentence: Sentence) -> Parse:
        """The best tree.  NoTreeError if the kept heads leave none."""
        (parse,) = self.parse_all([sentence])
        return parse

    def parse_all(self, sentences: Sequence[Sentence]) -> list[Parse]:
        """The best trees of a batch.  Small batches on several threads run side by side."""
        columns, graphs, rescued = self._prepare(sentences)
        results = [self.engine.best(graph) for graph in graphs]
        return self._complete(columns, graphs, results, rescued)

    def k_best(self, sentence: Sentence, k: int) -> list[Parse]:
        """The k best trees, best first; the first is that of `parse`."""
        columns, graphs, rescued = self._prepare([sentence])
        results = self.engine.k_best(graphs[0], k)
        times = len(results)
        return self._complete(columns * times, graphs * times, results, rescued * times)

    def _prepare(
        self, sentences: Sequence[Sentence]
    ) -> tuple[list[Columns], list[ScoredGraph], list[int]]:
        columns = [self.model.vocabulary.encode(s) for s in sentences]
        arcs, rescued = self.candidates(sentences, columns)
        return columns, self.score(columns, arcs), rescued

    def _complete(
        self,
        columns: list[Columns],
        graphs: list[ScoredGraph],
        results: list[Result],
        rescued: list[int],
    ) -> list[Parse]:
        """Relations, and probabilities where asked for."""
        labeller = self.model.labeller
        trees = [result.heads for result in results]
        best: list[tuple[list[str], np.ndarray | None]]
        if labeller:
            best = labeller.label(columns, trees, probabilities=self.confidence)
        else:
            best = [(["_"] * graph.n, None) for graph in graphs]
        parses = []
        for graph, result, (deprels, sure), count in zip(
            graphs, results, best, rescued, strict=True
        ):
            parse = Parse(
                result.heads, deprels, result.score, label_probabilities=sure, rescued=count
            )
            parses.append(self._sure(graph, parse) if self.confidence else parse)
        return parses

    def _sure(self, graph: ScoredGraph, parse: Parse) -> Parse:
        """The parse with log p(tree) and the probabilities of its arcs."""
        scale = self.model.scale
        expected = self.engine.expectations(graph.scaled(scale))
        arcs = graph.spread(expected.marginals)[parse.heads[1:], np.arange(1, graph.n + 1)]
        log_probability = min(0.0, scale * parse.score - expected.log_z)
        limits = expected.relaxation and expected.relaxation.interval(arcs)
        return replace(
            parse, log_probability=log_probability, arc_probabilities=arcs, arc_bounds=limits
        )


def kept_arcs(heads: np.ndarray) -> Arcs:
    """All arcs, but for a word with a head only the arc from it.  GraphError: it cannot be."""
    arcs = all_arcs(len(heads) - 1)
    given = heads[arcs.modifiers]
    return arcs.select((given < 0) | (given == arcs.heads))


def in_order(
    work: Callable[[list[Sentence]], list[Out]],
    sentences: Iterable[Sentence],
    jobs: int,
    *,
    processes: bool = False,
) -> Iterator[tuple[Sentence, Out]]:
    """Apply `work` to batches of sentences on `jobs` threads; results in the order of the input.

    The input is read lazily: a batch, or a few for each thread, are held at any time.  An exception
    of `work` is raised at its batch's turn.  Kernels release the GIL, so threads run side by side,
    but for what they do in Python.

    With `processes`, and where processes can be forked, the threads only pass batches on to as many
    of these.  Each has a copy of all that `work` needs, so `work` must have no effects, and what it
    returns or raises must pickle.  ChildProcessError if one of them is killed.
    """
    source = iter(sentences)
    if jobs == 1:
        while batch := list(islice(source, BATCH)):
            yield from zip(batch, work(batch), strict=True)
        return
    forks = processes and hasattr(os, "fork") and sys.platform != "darwin"
    pending: deque[tuple[list[Sentence], Future[list[Out]]]] = deque()
    with (
        forked(work, jobs) if forks else nullcontext(work) as apply,
        ThreadPoolExecutor(2 * jobs if forks else jobs) as pool,
    ):
        try:
            while True:
                while len(pending) <= 2 * jobs and (batch := list(islice(source, BATCH))):
                    pending.append((batch, pool.submit(apply, batch)))
                if not pending:
                    return
                batch, future = pending.popleft()
                yield from zip(batch, future.result(), strict=True)
        finally:
            for _, future in pending:
                future.cancel()


@contextmanager
def forked(work: Callable[[In], Out], jobs: int) -> Iterator[Callable[[In], Out]]:
    """The same function done by `jobs` processes, for up to twice as many threads at a time.

    So a process has its next task at hand when it is done with one.
    """
    from multiprocessing import get_context  # here: most runs do without

    context = get_context("fork")
    pipes = [context.Pipe() for _ in range(2 * jobs)]
    children = [
        context.Process(target=_serve, args=(work, pipes, slice(i, None, jobs)), daemon=True)
        for i in range(jobs)
    ]
    with warnings.catch_warnings():
        # Forking beside threads is bad if one of them holds a lock that a child will want.  Ours
        # want none; threads are those of a progress bar, or of BLAS, which sees to forks.
        warnings.simplefilter("ignore", DeprecationWarning)
        for child in children:
            child.start()
    free: SimpleQueue[Connection] = SimpleQueue()
    for ours, theirs in pipes:
        theirs.close()
        free.put(ours)

    def apply(task: In) -> Out:
        pipe = free.get()
        try:
            pipe.send(task)
            result, error = pipe.recv()
        except (EOFError, ConnectionError):
            raise ChildProcessError("a process was killed before its work was done") from None
        finally:
            free.put(pipe)
        if error is not None:
            raise error
        return result

    try:
        yield apply
    finally:
        for ours, _ in pipes:
            ours.close()
        for child in children:
            child.join()


def _serve(
    work: Callable[[In], Out], pipes: list[tuple[Connection, Connection]], own: slice
) -> None:
    """Do the tasks that come in by one's own pipes, until the other ends are closed."""
    from multiprocessing.connection import wait

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which closes the pipes
    tasks = [theirs for _, theirs in pipes[own]]
    for ours, theirs in pipes:
        # Held open here, the parent's ends would not close when it is killed.
        ours.close()
        if theirs not in tasks:
            theirs.close()
    while tasks:
        for pipe in wait(tasks):
            try:
                task = pipe.recv()
            except (EOFError, ConnectionError):
                tasks.remove(pipe)
                continue
            try:
                answer = work(task), None
            except Exception as error:
                answer = None, error
            with suppress(ConnectionError):
                pipe.send(answer)


BATCH = 64  # sentences: scored at once, they leave more of the weights in the cache
