"""Structured support vector machine by dual coordinate descent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cython_ext import coordinate
from cython_ext.features import SLOTS
from parser.features import CompactTable, Scorer
from parser.graph import CODES, LINK, GraphError, ScoredGraph, all_arcs
from parser.inference import (
    DUAL_DECOMPOSITION,
    HILL_CLIMBING,
    Engine,
    Result,
    default_engine,
)
from parser.inference.amortized import Recalled, most
from parser.learning.learners import EPSILONS, Example, Learner, loss_augmented
from parser.learning.weights import compact
from parser.model.settings import Settings
from parser.treebank import projective, roots

Vector = tuple[np.ndarray, np.ndarray]  # places in the flat table (k,) int32, values (k,) float32


@dataclass(slots=True, eq=False)
class Structure:
    """A tree of a working set, and its dual variable.

    `vector` is phi(gold) - phi(tree); None: there was no room, it is made anew at each visit.
    `loss` is the number of wrong heads, `square` is |vector|^2, and `idle` counts the passes in a
    row that ended with alpha = 0.
    """

    heads: np.ndarray
    loss: float
    square: float
    vector: Vector | None
    alpha: float = 0.0
    idle: int = 0

    @property
    def key(self) -> bytes:
        return self.heads.tobytes()


@dataclass(frozen=True)
class Visit:
    """What inference found for an example under the present weights.

    `slack` is the largest violation that was met, and `bound` one on all of them, inf if there is
    none.  `decided`: whether the engine, or a test in its place, has had its say.  `projected` is
    the largest projected gradient of the working set, and `found` are structures to be added.
    """

    slack: float
    bound: float
    decided: bool
    projected: float
    found: list[Structure]


class Ssvm(Learner):
    """L2-loss structured SVM (Chang, Upadhyay, Kundu & Roth 2015; Chang & Yih 2013).

    Minimises |w|^2/2 + C sum_i xi_i^2, where xi_i >= loss(y) - w.phi_i(y) for every tree y of
    sentence i, phi_i(y) = features of its gold tree - features of y, and the loss is the number of
    wrong heads.  The dual, with one alpha >= 0 for each tree and A_i their sum over sentence i:

        D = |w|^2/2 + sum_i A_i^2/4C - sum loss alpha,   w = sum alpha phi,   xi_i = A_i/2C.

    Trees come into a working set by inference, in each pass over the data once for each sentence:
    the tree that is best by score plus wrong heads is added if its gradient is below -delta.  Then
    coordinates of the working set are minimised one by one,

        alpha <- max(0, alpha - G/Q),   G = w.phi + A_i/2C - loss,   Q = |phi|^2 + 1/2C,

    in at most `inner_passes` passes in random order, fewer where all projected gradients fall below
    delta/2.  These passes leave out (shrink) a tree with alpha = 0 whose G is above the largest
    projected gradient of the inner pass before, until the others have converged.

    With `interleave`, the working set of a sentence is minimised right after its inference, too:
    far fewer passes, as later sentences profit.  Without, as in the paper's Algorithm 1, inference
    sees all sentences under the same weights, on `jobs` threads.

    Training has converged when a pass under fixed weights added no tree and found no projected
    gradient above delta in the whole working set.  Then primal + D <= 2 delta sum A + C l delta^2
    for l sentences, if the engine is exact.

    Each pass has a gap that is true: from `dual`, -D once all sentences have been visited, to
    `primal`, the least bound from above on the optimum that is known: the primal under the weights
    of pass `of_pass`, or for 0 under w = 0, at most C sum n_i^2 for sentences of n_i words.  Once
    training has converged it is that of the weights themselves.  A pass under fixed weights has it
    for free if the engine is exact, or certifies a bound for each tree.  Otherwise (weights move,
    trees are lazy, the engine is hill climbing) it is found anew in each pass whose number EVERY
    divides, by `room_above` and no call of the engine: where weights move, by inference over all
    sentences after it, on `jobs` threads, which is a tenth of the time of training.  No weight
    depends on it.

    Amortized inference (`amortize`) goes the same way with fewer calls of the engine where its
    tests are exact.  Other modes go another way, and end lazy:

    lazy
        A tree of a sentence is wanted only if its gradient is below -delta, and then any will do: a
        cached one, or all that hill climbing finds from there, from the gold tree if it is of the
        kind that is searched, and from the STARTS most violated ones of the working set.  Where
        there is none, a bound may say so.  The engine is asked for the rest, in passes after one
        that added trees to no more than FEW of the sentences; in others it is put off.
    epsilon
        The paper's condition, or near, first, until a pass adds trees to no more than ENOUGH of the
        sentences, or training has converged.  With adaptive epsilon this is 10, then 0.1 and lazy.

    The end is the same: a pass under fixed weights in which every sentence has the engine's tree,
    or one proved to be the best, or a bound that leaves no gradient below -delta.

    Memory: 16 bytes a weight: w in float64, in float32 for scoring, and the mean; vectors up to
    `svm_memory` GiB, with the others made anew when they are needed, which changes no result; and
    8 bytes a word and some 400 for each tree of the working set.  A tree leaves it when alpha was 0
    at the end of IDLE passes in a row, so that it has at most IDLE trees a sentence besides those
    in use; if lazy, STARTS + 2 times as many.  A step takes time in proportion to the features of
    the trees' differences.

    w is summed anew from the alphas after each pass, so that rounding errors do not add up, and a
    checkpoint is trees and alphas, and the cache if there is one.

    The model is w once training has converged; before, it is a mean of the weights after all
    passes, the t-th counting t^recency.  That is the w of a mean of the alphas, so that its dual is
    no worse than the mean of theirs, and it parses better than the last one.

    Loss: the largest violation that is met, before the change.
    """

    IDLE = 5
    EVERY = 5  # passes from one primal to the next, if it is not for free
    FEW, ENOUGH = 1 / 16, 1 / 4  # of the sentences
    STARTS = 3  # of a lazy search, besides the gold tree and the best of the cache
    ROUNDING = 1e-6  # of scores, which are float32
    BATCH = 32  # sentences whose inference threads share

    def __init__(self, scorer: Scorer, engine: Engine, settings: Settings, jobs: int = 1) -> None:
        super().__init__(scorer, engine, settings, jobs)
        self.examples: Sequence[Example] = ()
        self.within_reach: list[bool] = []
        self.working: list[dict[bytes, Structure]] = []
        self.totals = np.zeros(0)  # A_i
        self.w = np.zeros(self.weights.table.size)
        self.room = settings.svm_memory * 2**30
        self.passes = 0
        self.settled = False
        self.recheck = False
        self.vouched = vouches(engine)
        self.least = np.inf, 0  # primal, and the pass that it is of
        self.stages = stages(settings)
        self.stage = 0
        self.sparing = self.lazy
        self.saved: dict[str, Any] = {}
        self.begin_pass()

    # ---- passes over the data ------------------------------------------------------------------

    @property
    def moving(self) -> bool:
        """Whether the weights change within the pass."""
        return self.settings.interleave and not (self.recheck or self.settled)

    @property
    def lazy(self) -> bool:
        """Whether any violated constraint will do."""
        return self.stages[self.stage][1]

    @property
    def measuring(self) -> bool:
        """Whether the pass finds a primal, whatever it takes."""
        return (self.passes + 1) % self.EVERY == 0

    @property
    def batch(self) -> int:
        return 1 if self.moving else self.BATCH

    @property
    def converged(self) -> bool:
        return self.settled

    def begin(self, examples: Sequence[Example]) -> None:
        self.set_epsilon()
        self.examples = examples
        s = self.settings
        self.within_reach = [  # gold trees of the kind that is searched
            not (s.projective and not projective(e.heads))
            and not (s.single_root and len(roots(e.heads)) > 1)
            for e in examples
        ]
        self.working = [{} for _ in examples]
        self.totals = np.zeros(len(examples))
        if self.saved:
            names, start = ("owners", "alphas", "idle"), 0
            for i, alpha, idle in zip(*(self.saved[name].tolist() for name in names), strict=True):
                stop = start + len(examples[i].heads)
                structure = self.structure(examples[i], self.saved["trees"][start:stop].copy())
                structure.alpha, structure.idle = alpha, idle
                self.add(i, structure)
                start = stop
            self.saved = {}
        else:
            self.least = s.svm_c * float(sum((len(e.heads) - 1) ** 2 for e in examples)), 0
        self.sum_up()

    def begin_pass(self) -> None:
        self.bounds = 0.0  # sum of their squares
        self.decided = True
        self.projected = 0.0
        self.calls = self.added = self.growing = 0

    def step(self, batch: Sequence[Example]) -> float:
        loss = 0.0
        run = self._map if len(batch) > 1 else map
        for example, visit in zip(batch, run(self.visit, batch), strict=True):
            loss += visit.slack
            self.bounds += visit.bound**2
            self.decided &= visit.decided
            self.projected = max(self.projected, visit.projected)
            self.calls += 1
            self.added += len(visit.found)
            self.growing += bool(visit.found)
            for structure in visit.found:
                self.add(example.number, structure)
            if self.moving:
                self.projected = max(self.projected, self.minimise([example.number]))
        return loss

    def end_epoch(self) -> None:
        moved, measuring = self.moving, self.measuring
        self.passes += 1
        still = not self.added and self.projected <= self.settings.delta
        last = self.stage + 1 == len(self.stages)
        ended = still and not moved and self.decided and not self.sparing
        self.settled = ended and last
        self.recheck = still and not ended
        self.measure(np.inf if moved else self.bounds, measuring)
        self.sparing = self.lazy and self.growing > self.FEW * len(self.examples)
        if not last and (ended or self.growing <= self.ENOUGH * len(self.examples)):
            self.stage += 1
            self.sparing = self.lazy
            self.set_epsilon()
        if not self.settled:
            order = np.random.default_rng([self.settings.seed, 1, self.passes])
            self.minimise(order.permutation(len(self.examples)).tolist())
            self.drop_idle()
            self.sum_up()
        self.average()
        self.begin_pass()

    def measure(self, slacks: float, measuring: bool) -> None:
        """Of the pass that ends; slacks: the sum of xi^2 under its weights, inf if not known."""
        if slacks == np.inf and (measuring or self.settled):
            slacks = sum(bound**2 for bound in self._map(self.bound, self.examples))
        primal = inner(self.w, self.w) / 2 + self.settings.svm_c * slacks
        if primal < self.least[0] or self.settled:
            self.least = primal, self.passes
        dual, (primal, of_pass) = self.dual(), self.least
        self.measures = {
            "dual": dual,
            "primal": primal,
            "of_pass": of_pass,
            "gap": (primal - dual) / primal if primal else 0.0,
            "calls": self.calls,
            "added": self.added,
            "trees": sum(map(len, self.working)),
        }

    def bound(self, example: Example) -> float:
        """On the violations of an example under the present weights, from above."""
        _, graph = self.score(example)
        return room_above(loss_augmented(graph, example.heads), example.heads)

    def average(self) -> None:
        """Let the mean over passes, kept in the sums of `Weights`, follow."""
        counts = np.arange(1, self.passes + 1) ** self.recency
        share = 1.0 if self.settled else counts[-1] / counts.sum()
        mean = self.weights.sums
        mean += np.float32(share) * (self.weights.table - mean)

    def set_epsilon(self) -> None:
        """That of the stage."""
        if self.amortized is not None:
            self.amortized.epsilon = self.stages[self.stage][0]

    def visit(self, example: Example) -> Visit:
        """Loss-augmented inference; under fixed weights the state of the working set, too.

        Changes nothing.
        """
        _, graph = self.score(example)
        graph = loss_augmented(graph, example.heads)
        own = self.working[example.number]
        pull = self.totals.item(example.number) / (2 * self.settings.svm_c)
        slack, projected = 0.0, 0.0
        violations: dict[bytes, float] = {}
        for key, structure in () if self.moving and not self.lazy else own.items():
            violation = violations[key] = structure.loss - self.margin(example, structure)
            slack = max(slack, violation)
            gradient = pull - violation
            projected = max(projected, gradient if structure.alpha else 0.0, -gradient)
        worst = sorted(violations, key=violations.__getitem__, reverse=True)[: self.STARTS]
        gold = [example.heads] if self.within_reach[example.number] else []
        starts = [*gold, *(own[key].heads for key in worst)]
        result = self.best(example, graph, pull, starts)
        others = result.others if isinstance(result, Recalled) else ()
        met, found = [], []
        for heads in (result.heads, *others):
            structure = own.get(heads.tobytes()) or self.structure(example, heads)
            violation = structure.loss - self.margin(example, structure)
            if structure.key not in own and violation - pull > self.settings.delta:
                found.append(structure)
            met.append(violation)
        slack = max(slack, *met)
        gap = result.certificate.gap if result.certificate else 0.0
        if self.vouched and gap < np.inf:
            bound = max(slack, met[0] + gap)
        elif self.measuring and not self.moving:
            bound = room_above(graph, example.heads)
        else:
            bound = np.inf
        return Visit(slack, bound, gap < np.inf, projected, found)

    def best(
        self, example: Example, graph: ScoredGraph, pull: float, starts: Sequence[np.ndarray]
    ) -> Result:
        """A tree whose constraint is violated the most or, if lazy, one whose gradient is below
        -delta, or that is all that can be had."""
        if not self.lazy:
            return self.solve(example, graph)
        assert self.amortized is not None
        gold = graph.score(example.heads)
        above = gold + pull + self.settings.delta + self.ROUNDING * max(1.0, abs(gold))
        return self.amortized.solve(
            graph, example.number, above=above, starts=starts, call=not self.sparing
        )

    def dual(self) -> float:
        """-D: a lower bound on the optimum, which no coordinate step lowers."""
        gain = sum(s.loss * s.alpha for own in self.working for s in own.values())
        penalty = inner(self.totals, self.totals) / (4 * self.settings.svm_c)
        return gain - inner(self.w, self.w) / 2 - penalty

    # ---- the working set -----------------------------------------------------------------------

    def vector(self, example: Example, heads: np.ndarray) -> Vector:
        """phi(gold) - phi(tree)."""
        arcs = all_arcs(len(heads) - 1) if example.arcs is None else example.arcs
        graph = ScoredGraph(arcs, np.empty(0))
        coefficients = {}
        for family in (LINK, *self.scorer.families):
            size = len(arcs) if family == LINK else arcs.layout.size(CODES[family])
            coefficients[family] = np.zeros(size)
            coefficients[family][graph.fired(family, example.heads)] += 1
            coefficients[family][graph.fired(family, heads)] -= 1
        rows, values = self.gradient(self.scorer.encode_ids(*example.columns), graph, coefficients)
        at = np.flatnonzero(values)
        return (rows[at // SLOTS] * SLOTS + at % SLOTS).astype(np.int32), values.ravel()[at]

    def structure(self, example: Example, heads: np.ndarray) -> Structure:
        index, values = self.vector(example, heads)
        square = inner(values, values)
        loss = float((heads != example.heads).sum())
        return Structure(heads, loss, square, (index, values))

    def vector_of(self, example: Example, structure: Structure) -> Vector:
        return structure.vector or self.vector(example, structure.heads)

    def margin(self, example: Example, structure: Structure) -> float:
        """w.phi"""
        return coordinate.dot(*self.vector_of(example, structure), self.w)

    def add(self, number: int, structure: Structure) -> None:
        """Take a structure into the working set, and keep its vector if there is room."""
        assert structure.vector is not None
        size = size_of(structure.vector)
        if size <= self.room:
            self.room -= size
        else:
            structure.vector = None
        self.working[number][structure.key] = structure

    def drop_idle(self) -> None:
        """Leave out the structures whose alpha has been 0 for IDLE passes."""
        for own in self.working:
            for key, structure in list(own.items()):
                structure.idle = 0 if structure.alpha else structure.idle + 1
                if structure.idle >= self.IDLE:
                    del own[key]
                    if structure.vector is not None:
                        self.room += size_of(structure.vector)

    # ---- coordinate descent --------------------------------------------------------------------

    def minimise(self, numbers: Sequence[int]) -> float:
        """Inner passes over the working sets of these examples, in this order.

        Returns the largest projected gradient that the first pass met.
        """
        everything = [(i, list(self.working[i].values())) for i in numbers if self.working[i]]
        active, ceiling, first = everything, np.inf, 0.0
        for number in range(self.settings.inner_passes):
            largest, kept = 0.0, []
            for i, structures in active:
                stay = []
                for structure in structures:
                    gradient = self.update(i, structure)
                    if structure.alpha == 0.0 and gradient > ceiling:
                        continue
                    stay.append(structure)
                    largest = max(largest, -gradient, gradient if structure.alpha else 0.0)
                if stay:
                    kept.append((i, stay))
            first = first if number else largest
            if largest > self.settings.delta / 2:
                active, ceiling = kept, largest
            elif active is everything:
                break
            else:
                active, ceiling = everything, np.inf
        return first

    def update(self, number: int, structure: Structure) -> float:
        """Minimise the dual along one coordinate; returns its gradient before.

        The float32 weights follow at once where they are used within the pass.
        """
        ridge = 1 / (2 * self.settings.svm_c)
        alpha, gradient = coordinate.step(
            *self.vector_of(self.examples[number], structure),
            self.w,
            self.weights.table.reshape(-1) if self.moving else None,
            structure.alpha,
            self.totals.item(number) * ridge - structure.loss,
            structure.square + ridge,
        )
        self.totals[number] += alpha - structure.alpha
        structure.alpha = alpha
        return gradient

    def sum_up(self) -> None:
        """w = sum alpha phi and A_i = sum alpha, free of the rounding errors of the updates."""
        self.w.fill(0.0)
        for i, own in enumerate(self.working):
            self.totals[i] = sum(s.alpha for s in own.values())
            for structure in own.values():
                if structure.alpha:
                    vector = self.vector_of(self.examples[i], structure)
                    coordinate.add(*vector, structure.alpha, self.w)
        self.weights.table.ravel()[:] = self.w

    # ---- the model, checkpoints ----------------------------------------------------------------

    def compact(self, share: float) -> CompactTable:
        return compact(self.weights.table if self.settled else self.weights.sums, share)

    def arrays(self) -> dict[str, np.ndarray]:
        """The dual variables; w is summed from them."""
        every = [(i, s) for i, own in enumerate(self.working) for s in own.values()]
        trees = [s.heads for _, s in every]
        return {
            "owners": np.array([i for i, _ in every], np.int64),
            "alphas": np.array([s.alpha for _, s in every]),
            "mean": self.weights.sums,
            "least": np.array(self.least),
            "idle": np.array([s.idle for _, s in every], np.int64),
            "trees": np.concatenate(trees) if trees else np.zeros(0, np.int32),
            "state": np.array(
                [self.passes, self.settled, self.recheck, self.stage, self.sparing], np.int64
            ),
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        """To be followed by `begin`."""
        self.passes, settled, recheck, self.stage, sparing = arrays["state"].tolist()
        self.settled, self.recheck, self.sparing = bool(settled), bool(recheck), bool(sparing)
        self.set_epsilon()
        primal, of_pass = arrays["least"].tolist()
        self.least = primal, int(of_pass)
        self.weights.sums[:] = arrays["mean"]
        self.saved = arrays


def stages(settings: Settings) -> tuple[tuple[float, bool], ...]:
    """epsilon, and whether to be lazy, one after the other."""
    if settings.amortize == "lazy":
        return ((0.0, True),)
    if settings.amortize == "adaptive":
        return tuple((epsilon, number > 0) for number, epsilon in enumerate(EPSILONS))
    return ((settings.epsilon, False), (0.0, True)) if settings.epsilon else ((0.0, False),)


def vouches(engine: Engine) -> bool:
    """Whether the engine's trees are the best, or its certificates say how far they are from it."""
    try:
        engine.proving()
    except GraphError:
        return False
    return True


RELAXED = replace(DUAL_DECOMPOSITION, sweeps=20, nodes=0)  # quick


def room_above(graph: ScoredGraph, tree: np.ndarray) -> float:
    """By how much others can be better than a tree (n+1,), at most.

    The best one where an exact engine is cheap; the dual after a short ascent; or the sum of what
    each word may have.
    """
    known = float(graph.score(tree))
    engine = default_engine(projective=graph.projective, families=graph.families)
    if engine is not HILL_CLIMBING:
        bound = engine.best(graph).score
    elif graph.families <= RELAXED.families:
        bound = RELAXED.bound(graph, known, np.zeros((2, len(graph.scores))))
    else:
        families = sorted(graph.parts)
        values = [graph.scores, *(graph.parts[family] for family in families)]
        bound = most(graph, families, np.concatenate(values))
    return max(0.0, bound - known)


def inner(a: np.ndarray, b: np.ndarray) -> float:
    """Inner product in float64 on one thread: that of BLAS depends on its number of threads."""
    return float(np.einsum("i,i->", a, b, dtype=np.float64))


def size_of(vector: Vector) -> int:
    """Bytes."""
    return vector[0].nbytes + vector[1].nbytes
