"""Perceptron, MIRA and CRF: from one sentence to a change of the weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cython_ext import features as kernel
from parser.features import Columns, Encoding, Scorer
from parser.graph import LINK, Arcs, ScoredGraph, Values, dot, subtract
from parser.inference import Engine
from parser.learning.weights import Gradient, Weights
from parser.model.settings import Settings


@dataclass(frozen=True)
class Example:
    """A sentence as integers, its gold tree (n+1,), and its candidate arcs, all if None.

    Hashes are made anew at each visit: they would take ten times the memory, and little time.
    """

    columns: Columns
    heads: np.ndarray
    arcs: Arcs | None = None


class Learner(ABC):
    """Online learning of the weights of arcs and parts.  `step` is called once a sentence."""

    TOLERANCE = 1e-8  # smaller coefficients of a gradient are left out

    def __init__(self, scorer: Scorer, engine: Engine, settings: Settings) -> None:
        self.scorer = scorer
        self.engine = engine
        self.settings = settings
        self.weights = Weights(scorer.bits)
        self._encoding: Encoding

    def graph(self, example: Example) -> ScoredGraph:
        """The candidate arcs and their parts under the present weights."""
        self._encoding = self.scorer.encode_ids(*example.columns)
        (graph,) = self.scorer.graphs(
            [self._encoding],
            self.weights.table,
            projective=bool(self.settings.projective),
            single_root=bool(self.settings.single_root),
            arcs=None if example.arcs is None else [example.arcs],
        )
        return graph

    def gradient(self, graph: ScoredGraph, coefficients: Values) -> Gradient:
        """Of the graph that was made last."""
        return self.scorer.gradient(self._encoding, graph, coefficients, self.TOLERANCE)

    def step(self, example: Example) -> float:
        """Learn from one sentence; returns the loss before the change."""
        loss = self.update(example, self.graph(example))
        self.weights.steps += 1
        return loss

    @abstractmethod
    def update(self, example: Example, graph: ScoredGraph) -> float: ...

    def end_epoch(self) -> None:  # noqa: B027  (most learners have nothing to do)
        """Called after each pass over the data."""

    def arrays(self) -> dict[str, np.ndarray]:
        """State for a checkpoint."""
        return self.weights.arrays()

    def restore(self, arrays: dict[str, Any]) -> None:
        self.weights.restore(arrays)


class Perceptron(Learner):
    """Averaged structured perceptron (Collins 2002).  Loss: wrong heads."""

    def update(self, example: Example, graph: ScoredGraph) -> float:
        guess = self.engine.best(graph).heads
        wrong = int((guess != example.heads).sum())
        if wrong:
            difference = subtract(graph.indicator(example.heads), graph.indicator(guess))
            self.weights.add(self.gradient(graph, difference), 1.0)
        return float(wrong)


class Mira(Learner):
    """Margin-infused relaxed algorithm (Crammer et al. 2006; McDonald et al. 2005).

    k = 1: the tree that is best by score plus wrong heads gives the constraint, and the step is
    min(C, violation / |difference|^2).  k > 1: the smallest change that satisfies the constraints
    of the k best such trees, each multiplier at most C, by Hildreth's algorithm.
    """

    def update(self, example: Example, graph: ScoredGraph) -> float:
        gold = graph.indicator(example.heads)
        augmented = replace(graph, scores=graph.scores + (1.0 - gold[LINK]))
        if self.settings.k == 1:
            trees = [self.engine.best(augmented).heads]
        else:
            trees = [r.heads for r in self.engine.k_best(augmented, self.settings.k)]
        differences, violations = [], []
        for tree in trees:
            difference = subtract(gold, graph.indicator(tree))
            violation = float((tree != example.heads).sum()) - dot(difference, graph.values)
            if violation > 1e-9:
                differences.append(self.gradient(graph, difference))
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
    """log p(gold tree) by stochastic gradient ascent; the gradient is exact.

    The gradient of an arc or part is 1[in the gold tree] - its marginal.  Plain steps fall with
    the number of passes, rate / (1 + passes); AdaGrad has a rate for each weight (Duchi et al.
    2011).  The L2 penalty l2/2 |w|^2 a sentence is paid in one dense pass every DECAY_STEPS
    sentences.
    Loss: -log p.
    """

    DECAY_STEPS = 1000

    def __init__(self, scorer: Scorer, engine: Engine, settings: Settings) -> None:
        super().__init__(scorer, engine, settings)
        self.squares = np.zeros_like(self.weights.table) if self.adagrad else None
        self.passes = 0

    @property
    def adagrad(self) -> bool:
        return self.settings.optimizer == "adagrad"

    @property
    def rate(self) -> float:
        return self.settings.rate if self.adagrad else self.settings.rate / (1 + self.passes)

    def update(self, example: Example, graph: ScoredGraph) -> float:
        expected = self.engine.expectations(graph)
        gold = graph.indicator(example.heads)
        marginals = {LINK: expected.marginals, **expected.part_marginals}
        rows, values = self.gradient(graph, subtract(gold, marginals))
        w = self.weights
        if self.squares is None:
            w.add((rows, values), self.rate)
        else:
            kernel.adagrad(w.table, self.squares, w.sums, rows, values, self.rate, w.steps)
        if self.settings.l2 and w.steps % self.DECAY_STEPS == 0:
            w.decay(max(0.0, 1.0 - self.rate * self.settings.l2) ** self.DECAY_STEPS)
        return float(expected.log_z - dot(gold, graph.values))

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
    def adagrad(self) -> bool:
        return False

    @property
    def rate(self) -> float:
        return self.RATE / (1 + self.passes)


LEARNERS: dict[str, type[Learner]] = {"mira": Mira, "perceptron": Perceptron, "crf": Crf}
