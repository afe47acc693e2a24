"""Relaxed marginal inference (Riedel & Smith 2010): only the pairs that matter become factors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from math import exp, expm1, inf
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from cython_ext import bp
from cython_ext.relaxation import TreePairs, candidates, gains, largest_size
from parser.graph import CHILDSEQ, CODES, GRAND, NOCROSS, PAIR, SIB, LazyParts, ScoredGraph
from parser.inference.belief_propagation import CHOICES, LEAST, BeliefPropagation
from parser.inference.engine import Relaxation, Result
from parser.inference.first_order import MST

RELAXED = (GRAND, SIB)  # families whose parts are added one by one
LARGEST = 500.0  # |theta| from which on exp has no room
UNLIKELY = 1e-3  # pairs that are no factor and less likely have belief 0 in `expectations`


@dataclass(frozen=True)
class Pairs:
    """Parts of a family: their places, their two arcs (2, k) int32, and scores or beliefs."""

    family: str
    places: np.ndarray
    arcs: np.ndarray
    values: np.ndarray


# Places (k,) int64, two arcs each (2, k) int32, probabilities (k,), as of `candidates`.
Likely = tuple[np.ndarray, np.ndarray, np.ndarray]


class Solver(ABC):
    """Marginals of a graph of factors that grows.

    Attributes
    ----------
    separation, scoring, bounding : float
        Seconds of `relax` in separation, those of them in which parts were scored, and in bounds.
    """

    separation = scoring = bounding = 0.0

    @abstractmethod
    def add(self, pairs: Pairs) -> None:
        """Factors of so many pairs of arcs, with their scores."""

    @abstractmethod
    def solve(self) -> np.ndarray:
        """Marginals of arcs, (arcs,)."""

    @abstractmethod
    def likely(self, family: str, marginals: np.ndarray, least: float, **only: Any) -> Likely:
        """Parts whose arcs are both true with probability above `least`.

        Parts may be missing that the keywords of `candidates` leave out.
        """


def relax(
    graph: ScoredGraph,
    solver: Solver,
    rounds: float,
    eps: float,
    *,
    forward: bool = False,
    stop: float = 0.0,
) -> tuple[np.ndarray, Relaxation, list[Pairs]]:
    """Algorithm 1: solve, add each pair that would gain more than eps, and solve again.

    A round is a separation.  The graph that it enlarged is solved, so there is one solution more
    than rounds that found something.  With `stop` no round begins once the bound on what is left
    out is below it, which takes O(parts) a round.

    Returns
    -------
    marginals (arcs,), what was done, and the pairs in the order in which they were added.
    """
    separations = {
        family: Separation(family, graph.parts[family], eps, forward)
        for family in RELAXED
        if family in graph.parts
    }
    added: list[Pairs] = []
    done = solutions = 0
    limits: dict[str, float] = {}
    while True:
        marginals = solver.solve()
        solutions += 1
        if stop:
            start = perf_counter()
            limits = bounds(graph, *left_out(graph, solver, marginals, added))
            solver.bounding += perf_counter() - start
        if done >= rounds or (stop and limits["bound"] < stop):
            break
        done += 1
        start = perf_counter()
        found = [each.separate(marginals, solver) for each in separations.values()]
        solver.separation += perf_counter() - start
        found = [pairs for pairs in found if len(pairs.places)]
        for pairs in found:
            solver.add(pairs)
        added += found
        if not found:
            break
    solver.scoring = sum(each.seconds for each in separations.values())
    count = sum(len(pairs.places) for pairs in added)
    total = sum(len(each.scores) for each in separations.values())
    scored = sum(each.scored for each in separations.values())
    return marginals, Relaxation(done, solutions, count, total, scored, **limits), added


class Separation:
    """The search for pairs of a family that gain more than eps, and what it has taken.

    Only pairs are looked at that could, by the probability of their arcs and bounds on their
    scores: gain <= mu (e^theta - 1 - theta) and gain <= theta^2 / 8, in the other direction
    gain <= mu |theta| e^|theta|.  LazyParts have bounds before they have scores, and only what
    passes these is scored.
    """

    def __init__(
        self, family: str, scores: np.ndarray | LazyParts, eps: float, forward: bool
    ) -> None:
        self.family, self.scores, self.eps, self.forward = family, scores, eps, forward
        self.taken: np.ndarray | None = None
        self.seconds = 0.0  # of scoring
        self.only: dict[str, Any] = {"eps": eps, "forward": forward}
        if isinstance(scores, LazyParts):
            low, high = scores.bounds.lowest * scores.factor, scores.bounds.highest * scores.factor
            self.only |= {"bounds": scores.bounds, "factor": scores.factor}
        else:
            high = largest_size(scores)
            low = -high
            self.only["scores"] = scores
        size = min(LARGEST, max(high, -low))
        most = size * exp(size)
        if not forward:
            high, low = min(LARGEST, high), max(-LARGEST, low)
            most = max(expm1(high) - high, expm1(low) - low)
        self.least = eps / most if most > 0.0 else 0.0

    @property
    def scored(self) -> int:
        """Scores computed or, where they were there, looked through."""
        return self.scores.asked if isinstance(self.scores, LazyParts) else len(self.scores)

    def separate(self, marginals: np.ndarray, solver: Solver) -> Pairs:
        """The pairs that gain more than eps; they count as taken from now on."""
        places, arcs, mu = solver.likely(
            self.family, marginals, self.least, taken=self.taken, **self.only
        )
        start = perf_counter()
        theta = self.scores[places]
        self.seconds += perf_counter() - start
        new = gains(mu, theta, self.forward) > self.eps
        if self.taken is not None:
            new &= self.taken[places] == 0
        else:
            self.taken = np.zeros(len(self.scores), np.uint8)
        self.taken[places[new]] = True
        return Pairs(self.family, places[new], np.ascontiguousarray(arcs[:, new]), theta[new])


@dataclass
class RelaxedBeliefPropagation(BeliefPropagation):
    """Belief propagation over those pairs of GRAND and SIB only whose addition changes much.

    LINK, the hard factors, and other families are there from the start.  As `BeliefPropagation`,
    which it equals with eps=0 and rounds=inf, and:

    Parameters
    ----------
    rounds : float
        Separations, at most; inf: until no pair is worth adding, 0: none.
    eps : float
        Least gain of a pair that is added.
    gain : {"reverse", "forward"}
        D(without the pair || with it), their equation (3), or D(with || without).
    pair : {"tree", "product"}
        Probability of two arcs: under the tree factor (exact before the first pair is added), or
        the product of their beliefs, within its bounds.  Without the non-projective tree factor it
        is the product.
    start : {"warm", "cold"}
        Whether a solution goes on from the messages of the one before.
    stop : float
        No round begins when the bound on what is left out is below it (`Relaxation.bound`); the
        bound takes all scores and O(parts) a round.  0: no bound.
    """

    iterations: int = 50
    rounds: float = 1.0
    eps: float = 1e-4
    gain: str = "reverse"
    pair: str = "tree"
    start: str = "warm"
    stop: float = 0.0

    name = "relaxed-bp"
    lazy = frozenset(RELAXED)
    choices: ClassVar = {
        **CHOICES,
        "gain": ("reverse", "forward"),
        "pair": ("tree", "product"),
        "start": ("warm", "cold"),
    }
    least: ClassVar = {**LEAST, "rounds": 0.0, "eps": 0.0, "stop": 0.0}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds != inf and self.rounds != int(self.rounds):
            raise ValueError(f"rounds: a whole number or inf, got {self.rounds}")
        if self.anneal:
            raise ValueError("anneal: not with relaxed inference")

    def best(self, graph: ScoredGraph) -> Result:
        """As of `BeliefPropagation`; `seconds` are those of all it did."""
        start = perf_counter()
        result = super().best(graph)
        spent = dict(result.seconds)
        spent["decode"] = perf_counter() - start - sum(spent.values())
        return replace(result, seconds=spent)

    def _propagate(self, graph: ScoredGraph) -> tuple[bp.BeliefPropagation, Result]:
        solver, result, _ = self._relax(graph)
        return solver.messages, result

    def _relax(self, graph: ScoredGraph) -> tuple[Propagation, Result, list[Pairs]]:
        start = perf_counter()
        self.check(graph)
        solver = Propagation(self, graph)
        _, relaxation, added = relax(
            graph,
            solver,
            self.rounds,
            self.eps,
            forward=self.gain == "forward",
            stop=self.stop,
        )
        result = self._result(graph, solver.messages, solver.iterations, solver.change)
        spent = solver.times()
        spent["separation"] = solver.separation - solver.scoring
        spent["scoring"] = solver.scoring
        spent["bounds"] = solver.bounding
        spent["set up"] = perf_counter() - start - sum(spent.values())
        return solver, replace(result, relaxation=relaxation, seconds=spent), added

    def expectations(self, graph: ScoredGraph) -> Result:
        """As of `BeliefPropagation`, with bounds on what the pairs left out would change.

        A pair that is no factor has the belief that it was judged by, 0 below 0.001.  O(parts).
        """
        solver, result, added = self._relax(graph)
        own = {family: s for family, s in graph.parts.items() if family not in RELAXED}
        beliefs, missing = left_out(graph, solver, result.marginals, added)
        pair = np.zeros(len(own.get(PAIR, ())) + solver.forbidden + result.relaxation.added)
        log_z = solver.messages.answers(None, None, pair, *map(beliefs.get, (CHILDSEQ, NOCROSS)))
        if PAIR in own:
            beliefs[PAIR] = pair[: len(own[PAIR])]
        at = len(pair) - result.relaxation.added
        for pairs in added:
            beliefs[pairs.family][pairs.places] = pair[at : at + len(pairs.places)]
            at += len(pairs.places)
        return replace(
            result,
            log_z=log_z,
            part_marginals=beliefs,
            relaxation=replace(result.relaxation, **bounds(graph, beliefs, missing)),
        )


@dataclass
class PrunedBeliefPropagation(BeliefPropagation):
    """Belief propagation without the pairs of GRAND and SIB whose weight is small.

    The rival of relaxed inference (Riedel & Smith 2010, section 5): a weight says nothing about how
    likely its arcs are.  As `BeliefPropagation`, in whose rows what is left out costs as much as
    what is not, and:

    Parameters
    ----------
    threshold : float
        Least |theta| of a pair that is a factor.
    """

    threshold: float = 0.1

    name = "pruned-bp"
    least: ClassVar = {**LEAST, "threshold": 0.0}

    def _propagate(self, graph: ScoredGraph) -> tuple[bp.BeliefPropagation, Result]:
        parts, kept, total = dict(graph.parts), 0, 0
        for family in RELAXED:
            if family in parts:
                large = np.abs(parts[family]) >= self.threshold
                parts[family] = np.where(large, parts[family], 0.0)
                kept, total = kept + int(large.sum()), total + len(large)
        messages, result = super()._propagate(replace(graph, parts=parts))
        return messages, replace(result, relaxation=Relaxation(0, 1, kept, total, total))


class Propagation(Solver):
    """Belief propagation as a solver: a kernel with the pairs so far."""

    def __init__(self, engine: RelaxedBeliefPropagation, graph: ScoredGraph) -> None:
        parts = {family: s for family, s in graph.parts.items() if family not in RELAXED}
        self.engine = engine
        self.graph = replace(graph, parts=parts)
        engine._check_usable(self.graph)
        self.messages = engine._kernel(self.graph)
        self.forbidden = engine._pairs(self.graph)[0].size - len(parts.get(PAIR, ()))
        self.added: list[Pairs] = []
        self._tree: TreePairs | None = None  # of the last solution
        self.iterations = 0
        self.change = 0.0
        self.spent = np.zeros(len(bp.TIMES))  # by messages that were given up

    def times(self) -> dict[str, float]:
        """Seconds of messages, family by family."""
        return dict(zip(bp.TIMES, self.spent + self.messages.times(), strict=True))

    def add(self, pairs: Pairs) -> None:
        self.added.append(pairs)
        if self.engine.start == "warm":
            self._take(pairs)

    def _take(self, pairs: Pairs) -> None:
        self.messages.add_pairs(pairs.arcs[0], pairs.arcs[1], pairs.values)

    def solve(self) -> np.ndarray:
        if self.engine.start == "cold" and self.added:
            self.spent += self.messages.times()
            self.messages = self.engine._kernel(self.graph)
            for pairs in self.added:
                self._take(pairs)
        self._tree = None
        done, self.change = self.engine._run(self.messages, self.graph)
        self.iterations += done
        self.messages.beliefs(marginals := np.empty(len(self.graph.scores)))
        return marginals

    def likely(self, family: str, marginals: np.ndarray, least: float, **only: Any) -> Likely:
        graph, trees = self.graph, self.engine.constraint == "tree"
        if self.engine.pair == "tree" and trees and not graph.projective and self._tree is None:
            self.messages.log_odds(scores := np.empty(len(graph.scores)), True)
            self._tree = TreePairs(graph.arcs.layout, scores, graph.single_root)
        return candidates(
            graph.arcs.layout,
            CODES[family],
            marginals,
            self._tree,
            trees and graph.projective,
            trees and graph.single_root,
            least,
            **only,
        )


def left_out(
    graph: ScoredGraph, solver: Solver, marginals: np.ndarray, added: list[Pairs]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Beliefs in pairs that are no factors, 0 below 0.001, and which could be; for `bounds`.

    Of all families, with zeros for others.  Parts of arcs that are in no tree together are not
    missing.
    """
    beliefs = {family: np.zeros(len(scores)) for family, scores in graph.parts.items()}
    missing = {family: np.zeros(len(scores), bool) for family, scores in graph.parts.items()}
    for family in RELAXED:
        if family in graph.parts:
            places, _, mu = solver.likely(family, marginals, UNLIKELY)
            beliefs[family][places] = mu
            missing[family][solver.likely(family, np.ones(len(marginals)), 0.0)[0]] = True
    for pairs in added:
        missing[pairs.family][pairs.places] = False
    return beliefs, missing


def bounds(
    graph: ScoredGraph, beliefs: dict[str, np.ndarray], missing: dict[str, np.ndarray]
) -> dict[str, float]:
    """Proposition 2's eta, for weights of both signs, and the tighter max X - E X.

    X is what the parts left out add to a tree's score; its maximum is at most that of a tree whose
    arcs have the best grandparent's positive weight and half of all siblings'.
    """
    arcs = graph.arcs
    number = np.zeros((graph.n + 1, graph.n + 1), np.int64)
    number[arcs.heads, arcs.modifiers] = np.arange(len(arcs))
    coarse = expected = 0.0
    most = np.zeros(len(arcs))
    for family in RELAXED:
        if family not in graph.parts:
            continue
        x, y, z = graph.index(family)
        possible = missing[family]
        theta, mu = np.asarray(graph.parts[family])[possible], beliefs[family][possible]
        coarse += float(np.where(theta > 0, theta * (1 - mu), -theta * mu).sum())
        expected += float(theta @ mu)
        gain = np.maximum(theta, 0.0)
        x, y, z = x[possible], y[possible], z[possible]
        if family == GRAND:
            best = np.zeros(len(arcs))
            np.maximum.at(best, number[y, z], gain)
            most += best
        else:
            np.add.at(most, number[x, y], 0.5 * gain)
            np.add.at(most, number[x, z], 0.5 * gain)
    top = MST.best(ScoredGraph(arcs, most, single_root=graph.single_root)).score
    return {"bound": min(coarse, float(top) - expected), "coarse_bound": coarse}


RELAXED_BP = RelaxedBeliefPropagation()
PRUNED_BP = PrunedBeliefPropagation()
