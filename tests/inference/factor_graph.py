"""Belief propagation over binary variables with explicit tables: slow, small, and plain.

Messages are log-odds, a factor is a table of log values over the assignments of its variables, and
nothing here knows how a propagator could be fast.  Exact answers are by all assignments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, product

import numpy as np

from parser.graph import CHILDSEQ, CODES, GRAND, NOCROSS, PAIR, SIB, ScoredGraph
from parser.trees import enumerate_trees

IMPOSSIBLE = -np.inf
CAP = 1e6  # of messages, so that infinities do not meet; that of the kernel


@dataclass
class Factor:
    """Log values (2, 2, ...), one axis for each variable: 0 false, 1 true."""

    family: str
    variables: tuple[int, ...]
    table: np.ndarray
    messages: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.messages = np.zeros(len(self.variables))


def add_logs(values: np.ndarray, maximise: bool) -> float:
    top = float(np.max(values))
    if maximise or top == -np.inf:
        return top
    return top + float(np.log(np.exp(values - top).sum()))


class FactorGraph:
    """Variables with log-odds of their own, and factors in groups: a group is one family's pass."""

    def __init__(self, scores: np.ndarray, groups: list[list[Factor]], maximise: bool = False):
        self.scores = scores
        self.groups = [group for group in groups if group]
        self.factors = [factor for group in self.groups for factor in group]
        self.maximise = maximise

    def totals(self) -> np.ndarray:
        totals = self.scores.copy()
        for factor in self.factors:
            totals[list(factor.variables)] += factor.messages
        return totals

    def joint(self, factor: Factor, totals: np.ndarray) -> np.ndarray:
        """The table with what comes into the factor."""
        out = factor.table.copy()
        incoming = totals[list(factor.variables)] - factor.messages
        for axis, value in enumerate(incoming):
            shape = [1] * out.ndim
            shape[axis] = 2
            out = out + np.array([0.0, value]).reshape(shape)
        return out

    def propagate(self, group: list[Factor], totals: np.ndarray) -> None:
        for factor in group:
            joint = self.joint(factor, totals)
            incoming = totals[list(factor.variables)] - factor.messages
            sides = [
                [add_logs(np.take(joint, side, axis), self.maximise) for side in (0, 1)]
                for axis in range(joint.ndim)
            ]
            factor.messages = np.clip([b - a for a, b in sides] - incoming, -CAP, CAP)

    def run(self, iterations: int, schedule: str, tree: str = "tree") -> None:
        if schedule == "parallel":
            for _ in range(iterations):
                totals = self.totals()
                for group in self.groups:
                    self.propagate(group, totals)
            return
        for group in self.groups:
            if group[0].family == tree:
                self.propagate(group, self.totals())
        for _ in range(iterations):
            for group in self.groups:
                self.propagate(group, self.totals())

    def beliefs(self) -> np.ndarray:
        return 0.5 + 0.5 * np.tanh(0.5 * self.totals())

    def factor_belief(self, factor: Factor) -> np.ndarray:
        joint = self.joint(factor, self.totals())
        return np.exp(joint - add_logs(joint, False))

    def bethe(self) -> float:
        """Sum of log Z of factors, and of variables as often as their degree leaves."""
        totals = self.totals()
        own = np.maximum(0.0, totals) if self.maximise else np.logaddexp(0.0, totals)
        value = own.sum()
        for factor in self.factors:
            value += add_logs(self.joint(factor, totals), self.maximise)
            value -= own[list(factor.variables)].sum()
        return float(value)

    def exact(self) -> tuple[float, np.ndarray]:
        """log Z and marginals by all assignments."""
        weights = {}
        for assignment in product((0, 1), repeat=len(self.scores)):
            value = float(self.scores @ np.array(assignment))
            for factor in self.factors:
                value += factor.table[tuple(assignment[v] for v in factor.variables)]
            weights[assignment] = value
        logs = np.array(list(weights.values()))
        log_z = add_logs(logs, False)
        return log_z, np.exp(logs - log_z) @ np.array(list(weights))


def tabulate(
    family: str, variables: list[int], value: Callable[[tuple[int, ...]], float]
) -> Factor:
    """A factor from a function of which of its variables are true, by place."""
    table = np.empty((2,) * len(variables))
    for assignment in product((0, 1), repeat=len(variables)):
        table[assignment] = value(assignment)
    return Factor(family, tuple(variables), table)


def pair(family: str, a: int, b: int, theta: float) -> Factor:
    return tabulate(family, [a, b], lambda on: theta if all(on) else 0.0)


def into(graph: ScoredGraph, m: int) -> list[int]:
    return np.flatnonzero(graph.modifiers == m).tolist()


def cross(g: int, i: int, h: int, m: int) -> bool:
    """Whether arcs g -> i and h -> m cross: exactly one end of one is strictly within the other."""
    low, high = sorted((g, i))
    return len({g, i, h, m}) == 4 and (low < h < high) != (low < m < high)


def factors_of(graph: ScoredGraph, constraint: str = "tree") -> Iterator[list[Factor]]:
    """The factors of a graph, family by family in the order of a pass."""
    n, arc = graph.n, {}
    for a, (h, m) in enumerate(zip(graph.heads.tolist(), graph.modifiers.tolist(), strict=True)):
        arc[h, m] = a
    if GRAND in graph.parts:
        parts = zip(*graph.index(GRAND).tolist(), graph.parts[GRAND].tolist(), strict=True)
        hidden = graph.projective and constraint == "tree"
        yield [
            pair(GRAND, arc[g, h], arc[h, m], theta)
            for g, h, m, theta in parts
            if g != m and not (hidden and min(h, m) < g < max(h, m))
        ]
    if SIB in graph.parts:
        parts = zip(*graph.index(SIB).tolist(), graph.parts[SIB].tolist(), strict=True)
        yield [pair(SIB, arc[h, m], arc[h, s], theta) for h, m, s, theta in parts]
    pairs = []
    if PAIR in graph.parts:
        scores = graph.parts[PAIR].tolist()
        pairs = [
            pair(PAIR, a, b, t) for (a, b), t in zip(graph.pairs.T.tolist(), scores, strict=True)
        ]
    if constraint.startswith("not2"):
        for m in range(1, n + 1):
            pairs += [pair("not2", a, b, IMPOSSIBLE) for a, b in combinations(into(graph, m), 2)]
    if constraint.endswith("no2cycle"):
        cycles = [(i, j) for i, j in arc if 0 < i < j and (j, i) in arc]
        pairs += [pair("no2cycle", arc[i, j], arc[j, i], IMPOSSIBLE) for i, j in cycles]
    yield pairs
    if CHILDSEQ in graph.parts:
        yield list(chains(graph, arc))
    if NOCROSS in graph.parts:
        yield [
            crossing(graph, arc, j, m, theta)
            for j, m, theta in zip(
                *graph.index(NOCROSS).tolist(), graph.parts[NOCROSS].tolist(), strict=True
            )
        ]
    if constraint.startswith(("exactly1", "atmost1")):
        low = 1 if constraint.startswith("exactly1") else 0
        yield [
            tabulate("unary", into(graph, m), lambda on: 0.0 if low <= sum(on) <= 1 else IMPOSSIBLE)
            for m in range(1, n + 1)
        ]
    if constraint == "tree":
        trees = {
            tuple(int(tree[m] == h) for h, m in arc)
            for tree in enumerate_trees(
                n, projective=graph.projective, single_root=graph.single_root
            )
        }
        trees = {on for on in trees if sum(on) == n}
        yield [tabulate("tree", list(arc.values()), lambda on: 0.0 if on in trees else IMPOSSIBLE)]


def chains(graph: ScoredGraph, arc: dict[tuple[int, int], int]) -> Iterator[Factor]:
    """CHILDSEQ of each head and side; a side without candidates is a factor of no variable."""
    parts = zip(*graph.index(CHILDSEQ).tolist(), graph.parts[CHILDSEQ].tolist(), strict=True)
    scores = {(h, a, b): theta for h, a, b, theta in parts}
    for h in range(graph.n + 1):
        for side in (-1, 1) if h else (1,):
            end = graph.n + 1 if side == 1 else -1
            children = sorted(
                (m for g, m in arc if g == h and (m - h) * side > 0), key=lambda m: m * side
            )

            def value(on: tuple[int, ...], h=h, end=end, children=children) -> float:
                chosen = [m for m, true in zip(children, on, strict=True) if true]
                return sum(
                    scores[h, a, b] for a, b in zip([h, *chosen], [*chosen, end], strict=True)
                )

            yield tabulate(CHILDSEQ, [arc[h, m] for m in children], value)


def crossing(
    graph: ScoredGraph, arc: dict[tuple[int, int], int], j: int, m: int, theta: float
) -> Factor:
    """NOCROSS of two words, EXACTLY1 of both within."""
    arcs = into(graph, j) + into(graph, m)
    ends = [(int(graph.heads[a]), int(graph.modifiers[a])) for a in arcs]

    def value(on: tuple[int, ...]) -> float:
        chosen = [end for end, true in zip(ends, on, strict=True) if true]
        if sorted(end for _, end in chosen) != [j, m]:
            return IMPOSSIBLE
        return theta if cross(*chosen[0], *chosen[1]) else 0.0

    return tabulate(NOCROSS, arcs, value)


def table_bp(graph: ScoredGraph, constraint: str = "tree", maximise: bool = False) -> FactorGraph:
    return FactorGraph(graph.scores, list(factors_of(graph, constraint)), maximise)


def random_graph(
    rng: np.random.Generator,
    n: int,
    families: tuple[str, ...] = (),
    *,
    projective: bool = False,
    single_root: bool = True,
    scale: float = 1.0,
    arcs: int | None = None,
    pairs: int = 0,
) -> ScoredGraph:
    """Normal scores over all arcs, or over some; the chain and all root arcs stay."""
    full = ScoredGraph.from_matrix(np.zeros((n + 1, n + 1)))
    kept = np.ones(len(full.arcs), bool)
    if arcs is not None:
        spare = np.flatnonzero((full.heads != full.modifiers - 1) & (full.heads != 0))
        drop = max(0, len(full.arcs) - arcs)
        kept[rng.permutation(spare)[:drop]] = False
    candidates = full.arcs.select(kept)
    parts = {
        f: scale * rng.normal(size=candidates.layout.size(CODES[f])) for f in families if f in CODES
    }
    chosen = None
    if pairs:
        chosen = np.array(
            [rng.choice(len(candidates), 2, replace=False) for _ in range(pairs)], np.int32
        ).T.copy()
        parts[PAIR] = scale * rng.normal(size=pairs)
    scores = scale * rng.normal(size=len(candidates))
    return ScoredGraph(candidates, scores, projective, single_root, parts, chosen)
