"""Relaxed marginal inference (Riedel & Smith 2010): only the pairs that matter become factors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from math import exp, expm1, inf
from typing import Any, ClassVar

import numpy as np

from cython_ext import bp
from cython_ext.relaxation import TreePairs, candidates, gains, largest_size
from parser.graph import CHILDSEQ, CODES, GRAND, NOCROSS, PAIR, SIB, ScoredGraph
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
    """Marginals of a graph of factors that grows."""

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
    graph: ScoredGraph, solver: Solver, rounds: float, eps: float, *, forward: bool = False
) -> tuple[np.ndarray, Relaxation, list[Pairs]]:
    """Algorithm 1: solve, add each pair that would gain more than eps, and solve again.

    A round is a separation.  The graph that it enlarged is solved, so there is one solution more
    than rounds that found something.

    Returns
    -------
    marginals (arcs,), what was done, and the pairs in the order in which they were added.
    """
    parts = {family: graph.parts[family] for family in RELAXED if family in graph.parts}
    taken = {family: np.zeros(len(scores), np.uint8) for family, scores in parts.items()}
    strongest = {family: min(LARGEST, largest_size(scores)) for family, scores in parts.items()}
    added: list[Pairs] = []
    done = solutions = 0
    while True:
        marginals = solver.solve()
        solutions += 1
        if done >= rounds:
            break
        done += 1
        found = [
            separate(
                family, scores, strongest[family], taken[family], marginals, solver, eps, forward
            )
            for family, scores in parts.items()
        ]
        found = [pairs for pairs in found if len(pairs.places)]
        for pairs in found:
            taken[pairs.family][pairs.places] = True
            solver.add(pairs)
        added += found
        if not found:
            break
    count = sum(len(pairs.places) for pairs in added)
    return marginals, Relaxation(done, solutions, count, sum(map(len, parts.values()))), added


def separate(
    family: str,
    scores: np.ndarray,
    strongest: float,
    taken: np.ndarray,
    marginals: np.ndarray,
    solver: Solver,
    eps: float,
    forward: bool,
) -> Pairs:
    """The pairs of a family, not taken yet, that gain more than eps.

    Only pairs are looked at that could, by the probability of their arcs and the largest weight in
    size, T: gain <= mu (e^T - 1 - T), in the other direction mu T e^T.
    """
    most = expm1(strongest) - strongest
    only: dict[str, Any] = {"taken": taken}
    if forward:
        most = strongest * exp(strongest)
    elif strongest < LARGEST:
        only |= {"scores": scores, "strongest": strongest, "eps": eps}
    least = eps / most if most > 0.0 else 0.0
    places, arcs, mu = solver.likely(family, marginals, least, **only)
    theta = scores[places]
    new = (gains(mu, theta, forward) > eps) & (taken[places] == 0)
    return Pairs(family, places[new], np.ascontiguousarray(arcs[:, new]), theta[new])


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
    """

    iterations: int = 50
    rounds: float = 1.0
    eps: float = 1e-4
    gain: str = "reverse"
    pair: str = "tree"
    start: str = "warm"

    name = "relaxed-bp"
    choices: ClassVar = {
        **CHOICES,
        "gain": ("reverse", "forward"),
        "pair": ("tree", "product"),
        "start": ("warm", "cold"),
    }
    least: ClassVar = {**LEAST, "rounds": 0.0, "eps": 0.0}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds != inf and self.rounds != int(self.rounds):
            raise ValueError(f"rounds: a whole number or inf, got {self.rounds}")
        if self.anneal:
            raise ValueError("anneal: not with relaxed inference")

    def _propagate(self, graph: ScoredGraph) -> tuple[bp.BeliefPropagation, Result]:
        solver, result, _ = self._relax(graph)
        return solver.messages, result

    def _relax(self, graph: ScoredGraph) -> tuple[Propagation, Result, list[Pairs]]:
        self.check(graph)
        solver = Propagation(self, graph)
        _, relaxation, added = relax(
            graph, solver, self.rounds, self.eps, forward=self.gain == "forward"
        )
        result = self._result(graph, solver.messages, solver.iterations, solver.change)
        return solver, replace(result, relaxation=relaxation), added

    def expectations(self, graph: ScoredGraph) -> Result:
        """As of `BeliefPropagation`, with bounds on what the pairs left out would change.

        A pair that is no factor has the belief that it was judged by, 0 below 0.001.  O(parts).
        """
        solver, result, added = self._relax(graph)
        own = {family: s for family, s in graph.parts.items() if family not in RELAXED}
        beliefs = {family: np.zeros(len(scores)) for family, scores in graph.parts.items()}
        pair = np.zeros(len(own.get(PAIR, ())) + solver.forbidden + result.relaxation.added)
        log_z = solver.messages.answers(None, None, pair, *map(beliefs.get, (CHILDSEQ, NOCROSS)))
        if PAIR in own:
            beliefs[PAIR] = pair[: len(own[PAIR])]
        for family in RELAXED:
            if family in graph.parts:
                places, _, mu = solver.likely(family, result.marginals, UNLIKELY)
                beliefs[family][places] = mu
        left_out = {family: np.ones(len(beliefs[family]), bool) for family in beliefs}
        at = len(pair) - result.relaxation.added
        for pairs in added:
            beliefs[pairs.family][pairs.places] = pair[at : at + len(pairs.places)]
            left_out[pairs.family][pairs.places] = False
            at += len(pairs.places)
        return replace(
            result,
            log_z=log_z,
            part_marginals=beliefs,
            relaxation=replace(result.relaxation, **bounds(graph, beliefs, left_out)),
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
        return messages, replace(result, relaxation=Relaxation(0, 1, kept, total))


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

    def add(self, pairs: Pairs) -> None:
        self.added.append(pairs)
        if self.engine.start == "warm":
            self._take(pairs)

    def _take(self, pairs: Pairs) -> None:
        self.messages.add_pairs(pairs.arcs[0], pairs.arcs[1], pairs.values)

    def solve(self) -> np.ndarray:
        if self.engine.start == "cold" and self.added:
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


def bounds(
    graph: ScoredGraph, beliefs: dict[str, np.ndarray], left_out: dict[str, np.ndarray]
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
        possible = left_out[family] & (x != z if family == GRAND else True)
        theta, mu = graph.parts[family][possible], beliefs[family][possible]
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
