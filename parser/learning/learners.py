"""Perceptron, MIRA and CRF: from sentences to a change of the weights; what learners share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from cython_ext import features as kernel
from parser.features import Columns, CompactTable, Encoding, Scorer
from parser.graph import LINK, Arcs, ScoredGraph, Values, dot, subtract
from parser.inference import Amortized, Cache, Engine, Result
from parser.learning.weights import Gradient, Weights
from parser.model.settings import Settings

EPSILONS = (10.0, 0.1, 0.0)  # adaptive amortization, one after the other


@dataclass(frozen=True)
class Example:
    """A sentence as integers, its gold tree (n+1,), its candidate arcs, None: all, and its number.

    Hashes are made anew at each visit: they would take ten times the memory, and little time.
    """

    columns: Columns
    heads: np.ndarray
    arcs: Arcs | None = None
    number: int = 0


class Learner(ABC):
    """Learning of the weights of arcs and parts.

    `begin` takes all examples, numbered from 0; then each pass over them is one `step` for each
    `batch` of them, in a new order, and one `end_epoch`.  `jobs` threads share a step over several
    sentences; the weights do not depend on it.

    Attributes
    ----------
    measures : dict of float
        What is to be reported of the last pass, besides its loss.
    amortized : Amortized or None
        The engine behind a cache of trees, if the settings say so.
    """

    TOLERANCE = 1e-8  # smaller coefficients of a gradient are left out

    def __init__(self, scorer: Scorer, engine: Engine, settings: Settings, jobs: int = 1) -> None:
        self.scorer = scorer
        self.engine = engine
        self.settings = settings
        self.weights = Weights(scorer.bits, self.recency)
        self.jobs = jobs
        self.amortized = self.with_cache(None) if settings.amortize else None
        self._counted = 0, 0  # queries and calls of earlier passes
        self.measures: dict[str, float] = {}
        self._map: Callable[..., Iterable[Any]] = map if jobs == 1 else ThreadPoolExecutor(jobs).map

    @property
    def batch(self) -> int:
        """Sentences in a step of the next pass."""
        return self.settings.batch

    @property
    def recency(self) -> float:
        """Of the average of the weights."""
        return self.settings.recency or 0.0

    @property
    def converged(self) -> bool:
        """Whether further passes would change nothing."""
        return False

    def begin(self, examples: Sequence[Example]) -> None:  # noqa: B027  (most learners keep none)
        """Called once before the first pass, and after `restore`."""

    def score(self, example: Example) -> tuple[Encoding, ScoredGraph]:
        """The hashes of a sentence; its arcs and their parts under the present weights."""
        encoding = self.scorer.encode_ids(*example.columns)
        (graph,) = self.scorer.graphs(
            [encoding],
            self.weights.table,
            projective=bool(self.settings.projective),
            single_root=bool(self.settings.single_root),
            arcs=None if example.arcs is None else [example.arcs],
        )
        return encoding, graph

    def solve(self, example: Example, graph: ScoredGraph) -> Result:
        """The best tree of an example's graph: every learner's one way to the engine for it."""
        if self.amortized is None:
            return self.engine.best(graph)
        return self.amortized.solve(graph, example.number)

    def with_cache(self, cache: Cache | None) -> Amortized:
        """The engine behind a cache, that of an earlier run or a new one."""
        s = self.settings
        return Amortized(
            self.engine,
            "exact" if s.amortize in ("lazy", "adaptive") else s.amortize,
            epsilon=s.epsilon,
            tau=s.tau,
            cache=Cache(int(s.amortize_memory * 2**30)) if cache is None else cache,
        )

    def amortization(self) -> dict[str, float]:
        """Calls of the engine since the last time, their share of the problems; and of all."""
        if self.amortized is None:
            return {}
        s, (queries, calls) = self.amortized.statistics, self._counted
        self._counted = s.queries, s.solved
        share = (s.solved - calls) / max(1, s.queries - queries)
        return {"calls": s.solved - calls, "share": share, "share_of_all": s.share}

    def gradient(self, encoding: Encoding, graph: ScoredGraph, coefficients: Values) -> Gradient:
        """sum over arcs and parts of coefficient * features."""
        return self.scorer.gradient(encoding, graph, coefficients, self.TOLERANCE)

    @abstractmethod
    def step(self, batch: Sequence[Example]) -> float:
        """Learn from sentences; returns the sum of their losses before the change."""

    def end_epoch(self) -> None:  # noqa: B027  (most learners have nothing to do)
        """Called after each pass over the data."""

    def compact(self, share: float) -> CompactTable:
        """The weights of a model: the share of the rows with the largest ones."""
        return self.weights.average(share)

    def arrays(self) -> dict[str, np.ndarray]:
        """State for a checkpoint."""
        return self.weights.arrays()

    def restore(self, arrays: dict[str, Any]) -> None:
        self.weights.restore(arrays)

    def cached(self) -> dict[str, np.ndarray]:
        """What the cache of trees holds, for a checkpoint; `recall` takes it back."""
        return {} if self.amortized is None else self.amortized.amortizer.arrays()

    def recall(self, arrays: dict[str, Any]) -> None:
        if self.amortized is not None:
            self.amortized.amortizer.restore(arrays)
            self._counted = self.amortized.statistics.queries, self.amortized.statistics.solved


class Online(Learner):
    """Changes the weights after each sentence."""

    def step(self, batch: Sequence[Example]) -> float:
        loss = 0.0
        for example in batch:
            loss += self.update(example)
            self.weights.steps += 1
        return loss

    @abstractmethod
    def update(self, example: Example) -> float:
        """Learn from one sentence; returns the loss before the change."""


class Perceptron(Online):
    """Averaged structured perceptron (Collins 2002).  Loss: wrong heads."""

    def update(self, example: Example) -> float:
        encoding, graph = self.score(example)
        guess = self.solve(example, graph).heads
        wrong = int((guess != example.heads).sum())
        if wrong:
            difference = subtract(graph.indicator(example.heads), graph.indicator(guess))
            self.weights.add(self.gradient(encoding, graph, difference), 1.0)
        return float(wrong)


def loss_augmented(graph: ScoredGraph, heads: np.ndarray) -> ScoredGraph:
    """The graph in which each arc that is not of the tree ``heads`` (n+1,) scores 1 more."""
    return replace(graph, scores=graph.scores + (heads[graph.modifiers] != graph.heads))


class Mira(Online):
    """Margin-infused relaxed algorithm (Crammer et al. 2006; McDonald et al. 2005).

    k = 1: the tree that is best by score plus wrong heads gives the constraint, and the step is
    min(C, violation / |difference|^2).  k > 1: the smallest change that satisfies the constraints
    of the k best such trees, each multiplier at most C, by Hildreth's algorithm.
    """

    def update(self, example: Example) -> float:
        encoding, graph = self.score(example)
        gold = graph.indicator(example.heads)
        augmented = loss_augmented(graph, example.heads)
        if self.settings.k == 1:
            trees = [self.solve(example, augmented).heads]
        else:
            trees = [r.heads for r in self.engine.k_best(augmented, self.settings.k)]
        differences, violations = [], []
        for tree in trees:
            difference = subtract(gold, graph.indicator(tree))
            violation = float((tree != example.heads).sum()) - dot(difference, graph.values)
            if violation > 1e-9:
                differences.append(self.gradient(encoding, graph, difference))
                violations.append(violation)
        if violations:
            steps = hildreth(gram(differences), np.array(violations), self.settings.aggressiveness)
            for difference, step in zip(differences, steps.tolist(), strict=True):
                if step:
                    self.weights.add(difference, step)
        return max(violations, default=0.0)


def gram(vectors: list[Gradient]) -> np.ndarray:
    """Inner products of sparse vectors, (k, k)."""
    out = np.empty((len(vectors), len(vectors)))
    for i, (rows, values) in enumerate(vectors):
        out[i, i] = np.einsum("ij,ij->", values, values, dtype=np.float64)
        for j in range(i):
            _, here, there = np.intersect1d(
                rows, vectors[j][0], assume_unique=True, return_indices=True
            )
            out[i, j] = out[j, i] = np.einsum(
                "ij,ij->", values[here], vectors[j][1][there], dtype=np.float64
            )
    return out


def hildreth(
    products: np.ndarray, violations: np.ndarray, ceiling: float, tolerance: float = 1e-8
) -> np.ndarray:
    """Multipliers 0 <= a <= ceiling that minimise a'Ga/2 - a'v, by coordinate steps.

    G: (k, k) Gram matrix; v: (k,) violations.  The most violated constraint is moved each time, at
    most 10,000 times.  With k = 1 this is min(ceiling, v / G).
    """
    a = np.zeros(len(violations))
    norms = np.maximum(np.diagonal(products), 1e-12)
    for _ in range(10_000):
        moves = np.clip(a + (violations - products @ a) / norms, 0, ceiling) - a
        i = int(np.abs(moves).argmax())
        if abs(moves[i]) <= tolerance * (violations / norms).max():
            break
        a[i] += moves[i]
    return a


class Crf(Learner):
    """log p(gold tree) by stochastic gradient ascent, under any engine with marginals.

    The gradient of an arc or part is 1[in the gold tree] - its marginal: exact where the engine is,
    and with beliefs that of the Bethe approximation.  A step is the rate times the sum of the
    gradients of a batch, all under the same weights, so that the rate is that of one sentence.
    Plain steps fall with the number of passes, rate / (1 + passes); AdaGrad has a rate for each
    weight, and squares the sum (Duchi et al. 2011).  Parts move `part_rate` times as far.  The L2
    penalty l2/2 |w|^2 a sentence is paid in one dense pass every DECAY_STEPS sentences.
    Loss: -log p; with Bethe log Z it may be negative, which no distribution can be.  To follow the
    gradient of such a sentence makes weights run away, and `bethe_cap` passes over it.

    Gradients are added in the order of the batch, and each row of weights is changed by one thread.
    """

    DECAY_STEPS = 1000
    ROUNDING = 1e-6  # of an exact -log p
    NOTHING: Gradient = np.empty(0, np.int64), np.empty((0, kernel.SLOTS), np.float32)

    def __init__(self, scorer: Scorer, engine: Engine, settings: Settings, jobs: int = 1) -> None:
        super().__init__(scorer, engine, settings, jobs)
        self.squares = np.zeros_like(self.weights.table) if self.adagrad else None
        self.passes = 0

    @property
    def adagrad(self) -> bool:
        return self.settings.optimizer == "adagrad"

    @property
    def rate(self) -> float:
        return self.settings.rate if self.adagrad else self.settings.rate / (1 + self.passes)

    def step(self, batch: Sequence[Example]) -> float:
        run = self._map if len(batch) > 1 else map
        losses, gradients = zip(*run(self.ascent, batch), strict=True)
        w = self.weights
        rows, values = w.total(gradients)
        cuts = [len(rows) * i // self.jobs for i in range(self.jobs + 1)]
        list(run(self.climb, [(rows[i:j], values[i:j]) for i, j in pairwise(cuts)]))
        last = w.steps + len(batch) - 1
        due = last // self.DECAY_STEPS - (w.steps - 1) // self.DECAY_STEPS
        if self.settings.l2 and due:
            share = max(0.0, 1.0 - self.rate * self.settings.l2)
            w.decay(share ** (due * self.DECAY_STEPS))
        w.steps = last + 1
        return sum(losses)

    def ascent(self, example: Example) -> tuple[float, Gradient]:
        """-log p of a sentence's gold tree, and the gradient of log p."""
        encoding, graph = self.score(example)
        expected = self.engine.expectations(graph)
        gold = graph.indicator(example.heads)
        loss = float(expected.log_z - dot(gold, graph.values))
        if self.settings.bethe_cap and loss < -self.ROUNDING:
            return loss, self.NOTHING
        marginals = {LINK: expected.marginals, **expected.part_marginals}
        share = self.settings.part_rate
        difference = {
            family: values if family == LINK or share == 1.0 else share * values
            for family, values in subtract(gold, marginals).items()
        }
        return loss, self.gradient(encoding, graph, difference)

    def climb(self, gradient: Gradient) -> None:
        """Change the weights of a gradient's rows."""
        w = self.weights
        if self.squares is None:
            w.add(gradient, self.rate)
        else:
            kernel.adagrad(w.table, self.squares, w.sums, *gradient, self.rate, w.counter)

    def end_epoch(self) -> None:
        self.passes += 1

    def arrays(self) -> dict[str, np.ndarray]:
        extra = {} if self.squares is None else {"squares": self.squares}
        return super().arrays() | extra | {"passes": np.array(self.passes)}

    def restore(self, arrays: dict[str, Any]) -> None:
        super().restore(arrays)
        self.passes = int(arrays["passes"])
        if self.squares is not None:
            self.squares[:] = arrays["squares"]


class PrunerCrf(Crf):
    """The CRF of a pruner: plain steps, and no care for what it is nearly sure of."""

    TOLERANCE = 1e-3
    RATE = 0.02

    @property
    def recency(self) -> float:
        return 0.0

    @property
    def adagrad(self) -> bool:
        return False

    @property
    def rate(self) -> float:
        return self.RATE / (1 + self.passes)
