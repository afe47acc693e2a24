"""Relaxed marginal inference (Riedel & Smith 2010): only the pairs that matter become factors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from cython_ext import bp
from cython_ext.few_pairs import FewPairs
from cython_ext.relaxation import Separation, candidates, relax_few
from cython_ext.tree_pairs import TreePairs
from parser.graph import CHILDSEQ, CODES, GRAND, NOCROSS, PAIR, SIB, ScoredGraph
from parser.inference.belief_propagation import CHOICES, LEAST, BeliefPropagation
from parser.inference.engine import Relaxation, Result
from parser.inference.first_order import MST

RELAXED = (GRAND, SIB)  # families whose parts are added one by one
SPENT = ("pair", "tree", "separation", "scoring", "decode")
UNLIKELY = 1e-3  # pairs that are no factor and less likely have belief 0 in `expectations`


@dataclass(frozen=True)
class Pairs:
    """Parts of a family: their places (k,) int64, their two arcs (k,) int32, their scores."""

    family: str
    places: np.ndarray
    first: np.ndarray
    second: np.ndarray
    scores: np.ndarray


# Places (k,) int64, two arcs each (2, k) int32, probabilities (k,), as of `candidates`.
Likely = tuple[np.ndarray, np.ndarray, np.ndarray]


class Solver(ABC):
    """Marginals of a graph of factors that grows."""

    @abstractmethod
    def add(self, pairs: Pairs) -> None:
        """Factors of so many pairs of arcs, with their scores."""

    @abstractmethod
    def solve(self) -> np.ndarray:
        """Marginals of arcs, (arcs,)."""

    @abstractmethod
    def likely(self, family: str, marginals: np.ndarray, least: float) -> Likely:
        """Parts whose arcs are both true with probability above `least`."""


def separations(graph: ScoredGraph, eps: float, forward: bool) -> dict[str, Separation]:
    """The search for what gains more than eps, for each family that is relaxed."""
    kind = eps, forward, graph.projective, graph.single_root
    return {
        family: Separation(graph.arcs.layout, CODES[family], graph.parts[family], *kind)
        for family in RELAXED
        if family in graph.parts
    }


def relax(
    graph: ScoredGraph,
    solver: Solver,
    rounds: float,
    eps: float,
    *,
    forward: bool = False,
    stop: float = 0.0,
) -> tuple[np.ndarray, Relaxation, list[Pairs], dict[str, float]]:
    """Algorithm 1: solve, add each pair that would gain more than eps, and solve again.

    A round is a separation.  The graph that it enlarged is solved, so there is one solution more
    than rounds that found something.  With `stop` no round begins once the bound on what is left
    out is below it, which takes O(parts) a round.

    Returns
    -------
    marginals (arcs,), what was done, the pairs in the order in which they were added, and seconds.
    """
    search = separations(graph, eps, forward)
    added: list[Pairs] = []
    done = solutions = 0
    limits: dict[str, float] = {}
    spent = dict.fromkeys(("separation", "bounds"), 0.0)
    while True:
        marginals = solver.solve()
        solutions += 1
        if stop:
            start = perf_counter()
            limits = bounds(graph, *left_out(graph, solver, marginals, added))
            spent["bounds"] += perf_counter() - start
        if done >= rounds or (stop and limits["bound"] < stop):
            break
        done += 1
        start = perf_counter()
        found = [
            Pairs(family, *each.separate(*solver.likely(family, marginals, each.least)))
            for family, each in search.items()
        ]
        spent["separation"] += perf_counter() - start
        found = [pairs for pairs in found if len(pairs.places)]
        for pairs in found:
            solver.add(pairs)
        added += found
        if not found:
            break
    relaxation = what_was_done(search, spent, done, solutions, **limits)
    spent["separation"] -= spent["scoring"]
    return marginals, relaxation, added, spent


def what_was_done(
    search: dict[str, Separation],
    spent: dict[str, float],
    rounds: int,
    solutions: int,
    **limits: float,
) -> Relaxation:
    """The counts of all searches; `spent` gets the seconds in which they scored parts."""
    added = total = scored = 0
    spent["scoring"] = 0.0
    for each in search.values():
        added += each.added
        total += each.size
        scored += each.scored
        spent["scoring"] += each.seconds
    return Relaxation(rounds, solutions, added, total, scored, **limits)


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
        scaled = graph.scaled(self.scale)
        if self.decode == "probabilities" and self.scale and self._few(graph):
            done = self._relax_few(scaled, self._projective(graph))
            if done is not None:
                _, heads, score, found = done
                spent = found["seconds"]
                spent["set up"] = perf_counter() - start - sum(spent.values())
                return Result(heads, score / self.scale, **found)
        messages, found = self._propagate(scaled)
        heads = self._decode(graph, messages, found["marginals"])
        score = graph.score(heads)
        spent = found["seconds"]
        spent["decode"] = perf_counter() - start - sum(spent.values())
        return Result(heads, score, **found)

    def _propagate(self, graph: ScoredGraph) -> tuple[Messages, dict[str, Any]]:
        """Run; messages, and what every Result has."""
        start = perf_counter()
        self.check(graph)
        done = self._relax_few(graph, -1) if self._few(graph) else None
        if done is None:
            solver, _, found = self._relax_any(graph)
            messages: Messages = solver.messages
        else:
            messages, _, _, found = done
        spent = found["seconds"]
        spent["set up"] = perf_counter() - start - sum(spent.values())
        return messages, found

    def _few(self, graph: ScoredGraph) -> bool:
        """Whether messages are those of `FewPairs`."""
        return (
            graph.parts.keys() <= self.lazy
            and self.constraint == "tree"
            and self.schedule == "serial"
            and self.product == "sum"
            and not self.damping
            and not self.stop
        )

    def _relax_few(
        self, graph: ScoredGraph, trees: int
    ) -> tuple[FewPairs, np.ndarray, float, dict[str, Any]] | None:
        """All of it in the kernel, with heads and their score for trees: projective or not, or -1.

        None: numbers leave its range, or there is no tree.
        """
        done = relax_few(
            graph.arcs.layout,
            graph.scores,
            graph.parts.get(GRAND),
            graph.parts.get(SIB),
            graph.projective,
            graph.single_root,
            self.rounds,
            self.eps,
            self.gain == "forward",
            self.pair == "product",
            self.start == "cold",
            self.iterations,
            self.pair_damping,
            self.tolerance,
            trees,
        )
        if done is None:
            return None
        messages, heads, score, marginals, iterations, change, counts, seconds = done
        found = self._found(marginals, iterations, change, dict(zip(SPENT, seconds, strict=True)))
        found["relaxation"] = Relaxation(*counts)
        return messages, heads, score, found

    def _relax_any(self, graph: ScoredGraph) -> tuple[Propagation, list[Pairs], dict[str, Any]]:
        """With any factors; the messages have all answers."""
        solver = Propagation(self, graph)
        marginals, relaxation, added, spent = relax(
            graph,
            solver,
            self.rounds,
            self.eps,
            forward=self.gain == "forward",
            stop=self.stop,
        )
        spent |= solver.spent()
        found = self._found(marginals, solver.iterations, solver.change, spent)
        return solver, added, found | {"relaxation": relaxation}

    def expectations(self, graph: ScoredGraph) -> Result:
        """As of `BeliefPropagation`, with bounds on what the pairs left out would change.

        A pair that is no factor has the belief that it was judged by, 0 below 0.001.  O(parts).
        """
        self.check(graph)
        solver, added, found = self._relax_any(graph)
        relaxation = found["relaxation"]
        own = {family: s for family, s in graph.parts.items() if family not in RELAXED}
        beliefs, missing = left_out(graph, solver, found["marginals"], added)
        pair = np.zeros(len(own.get(PAIR, ())) + solver.forbidden + relaxation.added)
        log_z = solver.messages.answers(None, None, pair, *map(beliefs.get, (CHILDSEQ, NOCROSS)))
        if PAIR in own:
            beliefs[PAIR] = pair[: len(own[PAIR])]
        at = len(pair) - relaxation.added
        for pairs in added:
            beliefs[pairs.family][pairs.places] = pair[at : at + len(pairs.places)]
            at += len(pairs.places)
        found["relaxation"] = replace(relaxation, **bounds(graph, beliefs, missing))
        return Result(log_z=log_z, part_marginals=beliefs, **found)


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

    def _propagate(
        self, graph: ScoredGraph, scale: float = 1.0
    ) -> tuple[bp.BeliefPropagation, dict[str, Any]]:
        graph = graph.scaled(scale)
        parts, kept, total = dict(graph.parts), 0, 0
        for family in RELAXED:
            if family in parts:
                large = np.abs(parts[family]) >= self.threshold
                parts[family] = np.where(large, parts[family], 0.0)
                kept, total = kept + int(large.sum()), total + len(large)
        messages, found = super()._propagate(replace(graph, parts=parts))
        return messages, found | {"relaxation": Relaxation(0, 1, kept, total, total)}


Messages = bp.BeliefPropagation | FewPairs


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
        self._before = np.zeros(len(bp.TIMES))  # seconds of messages that were given up

    def spent(self) -> dict[str, float]:
        """Seconds of messages, family by family."""
        return dict(zip(bp.TIMES, self._before + self.messages.times(), strict=True))

    def add(self, pairs: Pairs) -> None:
        self.added.append(pairs)
        if self.engine.start == "warm":
            self.messages.add_pairs(pairs.first, pairs.second, pairs.scores)

    def solve(self) -> np.ndarray:
        if self.engine.start == "cold" and self.added:
            self._before += self.messages.times()
            self.messages = self.engine._kernel(self.graph)
            for pairs in self.added:
                self.messages.add_pairs(pairs.first, pairs.second, pairs.scores)
        self._tree = None
        done, self.change = self.engine._run(self.messages, self.graph)
        self.iterations += done
        self.messages.beliefs(marginals := np.empty(len(self.graph.scores)))
        return marginals

    def likely(self, family: str, marginals: np.ndarray, least: float) -> Likely:
        graph, trees = self.graph, self.engine.constraint == "tree"
        return candidates(
            graph.arcs.layout,
            CODES[family],
            marginals,
            self._pairs() if trees and not graph.projective else None,
            trees and graph.projective,
            trees and graph.single_root,
            least,
        )

    def _pairs(self) -> TreePairs | None:
        """Probability of two arcs under the tree factor; None: the product of beliefs does."""
        if self.engine.pair == "product":
            return None
        if self._tree is None:
            self.messages.log_odds(scores := np.empty(len(self.graph.scores)), True)
            self._tree = TreePairs(self.graph.arcs.layout, scores, self.graph.single_root)
        return self._tree if self._tree.solved else None


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
