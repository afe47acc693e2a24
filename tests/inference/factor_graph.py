"""Belief propagation with explicit tables: slow, small, and plain.

A message is a vector of logs, a factor a table of log values over all assignments of its
variables, and nothing here knows how a propagator could be fast.  Exact answers are by one table
over all variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise

import numpy as np

from parser.graph import CHILDSEQ, CODES, GRAND, NOCROSS, PAIR, SIB, ScoredGraph
from parser.trees import enumerate_trees

CAP = 1e6  # of log-odds: infinities must not meet
PAIRS = (GRAND, SIB, PAIR, "nand")


def along(values: np.ndarray, axes: Iterable[int], dimensions: int) -> np.ndarray:
    """Values whose axes, in order, are those of an array of so many dimensions."""
    axes = list(axes)
    shape = np.ones(dimensions, int)
    shape[axes] = values.shape
    return np.transpose(values, np.argsort(axes)).reshape(shape)


def mixed_logs(old: np.ndarray, new: np.ndarray, share: float) -> np.ndarray:
    return (1 - share) * new + share * old


def mixed_odds(old: np.ndarray, new: np.ndarray, share: float) -> np.ndarray:
    """Of a binary variable; the share is above 0."""
    logs = np.log(share) + old[1] - old[0], np.log1p(-share) + new[1] - new[0]
    return np.array([0.0, np.logaddexp(*logs)])


@dataclass
class Factor:
    """Log values, an axis for each variable; and where each of its parts is true."""

    family: str
    variables: list[int]
    table: np.ndarray
    parts: dict[int, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.messages = [np.zeros(size) for size in self.table.shape]


class FactorGraph:
    """Variables with log potentials of their own, and factors in groups: a pass is over a group."""

    def __init__(self, own: list[np.ndarray], groups: list[list[Factor]], maximise: bool = False):
        self.own = own
        self.groups = groups
        self.fold = np.maximum.reduce if maximise else np.logaddexp.reduce

    @property
    def factors(self) -> list[Factor]:
        return [factor for group in self.groups for factor in group]

    def totals(self) -> list[np.ndarray]:
        totals = [own.copy() for own in self.own]
        for factor in self.factors:
            for v, message in zip(factor.variables, factor.messages, strict=True):
                totals[v] += message
        return totals

    def incoming(self, factor: Factor, totals: list[np.ndarray]) -> list[np.ndarray]:
        return [totals[v] - m for v, m in zip(factor.variables, factor.messages, strict=True)]

    def joint(self, factor: Factor, totals: list[np.ndarray], but: int = -1) -> np.ndarray:
        """The table with what comes into the factor, except from its variable ``but``."""
        out = factor.table
        for axis, message in enumerate(self.incoming(factor, totals)):
            if axis != but:
                out = out + along(message, [axis], out.ndim)
        return out

    def propagate(
        self,
        group: list[Factor],
        totals: list[np.ndarray],
        damping: float = 0.0,
        pair_damping: float = 0.0,
    ) -> None:
        for factor in group:
            axes = range(factor.table.ndim)
            sums = [
                self.fold(self.joint(factor, totals, v), axis=tuple(a for a in axes if a != v))
                for v in axes
            ]
            new = [np.maximum(message - message.max(), -CAP) for message in sums]
            as_odds = pair_damping > 0.0 and factor.family in PAIRS
            mix, share = (mixed_odds, pair_damping) if as_odds else (mixed_logs, damping)
            factor.messages = [
                mix(old, message, share) for message, old in zip(new, factor.messages, strict=True)
            ]

    def passes(self, schedule: str, *damping: float) -> Iterator[int]:
        """Iterate for ever; yields after each iteration."""
        if schedule == "serial":
            for group in self.groups:
                if group and group[0].family == "tree":
                    self.propagate(group, self.totals())
        done = 0
        while True:
            totals = self.totals()
            for group in self.groups:
                self.propagate(group, self.totals() if schedule == "serial" else totals, *damping)
            done += 1
            yield done

    def run(self, iterations: int, schedule: str, *damping: float) -> None:
        next(done for done in self.passes(schedule, *damping) if done == iterations)

    def beliefs(self) -> np.ndarray:
        """In each value but the first of each variable: of a binary one, that it is true."""
        return tails(normalised(total) for total in self.totals())

    def part_beliefs(self, family: str, size: int) -> np.ndarray:
        out, totals = np.zeros(size), self.totals()
        for factor in self.factors:
            if factor.family == family:
                belief = normalised(self.joint(factor, totals))
                for part, true in factor.parts.items():
                    out[part] += belief[true].sum()
        return out

    def bethe(self) -> float:
        """log Z of all factors, and of variables as often as their degree leaves."""
        totals = self.totals()
        own = np.array([self.fold(total) for total in totals])
        value = own.sum()
        for factor in self.factors:
            value += self.fold(self.joint(factor, totals), axis=None)
            value -= own[factor.variables].sum()
        return float(value)

    def exact(self) -> tuple[float, np.ndarray]:
        """log Z and the beliefs by all assignments (of max-product: the best, max-marginals)."""
        joint = np.zeros([len(own) for own in self.own])
        for v, own in enumerate(self.own):
            joint = joint + along(own, [v], joint.ndim)
        for factor in self.factors:
            joint = joint + along(factor.table, factor.variables, joint.ndim)
        axes = range(joint.ndim)
        each = [self.fold(joint, axis=tuple(a for a in axes if a != v)) for v in axes]
        return float(self.fold(joint, axis=None)), tails(map(normalised, each))


def normalised(logs: np.ndarray) -> np.ndarray:
    return np.exp(logs - np.logaddexp.reduce(logs, axis=None))


def tails(beliefs: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([belief[1:] for belief in beliefs])


def tabulate(
    family: str, variables: list[int], value: Callable[[tuple[int, ...]], tuple[float, list[int]]]
) -> Factor:
    """A factor of binary variables: log value and parts from the variables that are true."""
    table, parts = np.empty((2,) * len(variables)), {}
    for on in np.ndindex(table.shape):
        table[on], fired = value(tuple(v for v, true in zip(variables, on, strict=True) if true))
        for part in fired:
            parts.setdefault(part, np.zeros(table.shape, bool))[on] = True
    return Factor(family, variables, table, parts)


def both(family: str, a: int, b: int, theta: float, part: int = -1) -> Factor:
    table, true = np.zeros((2, 2)), np.zeros((2, 2), bool)
    table[1, 1], true[1, 1] = theta, True
    return Factor(family, [a, b], table, {part: true} if part >= 0 else {})


def numbered(graph: ScoredGraph, family: str) -> list[tuple[int, tuple[int, ...], float]]:
    """Number, positions and score of each part; none if the family is absent."""
    if family not in graph.parts:
        return []
    parts, scores = graph.index(family).T.tolist(), graph.parts[family].tolist()
    return [(i, tuple(part), scores[i]) for i, part in enumerate(parts)]


def into(graph: ScoredGraph, m: int) -> list[int]:
    return np.flatnonzero(graph.modifiers == m).tolist()


def trees_of(graph: ScoredGraph) -> list[np.ndarray]:
    """All trees of the graph's kind over its candidate arcs."""
    kind = {"projective": graph.projective, "single_root": graph.single_root}
    trees = map(np.array, enumerate_trees(graph.n, **kind))
    return [tree for tree in trees if (tree[graph.modifiers] == graph.heads).sum() == graph.n]


def cross(g: int, i: int, h: int, m: int) -> bool:
    """Whether arcs g -> i and h -> m cross: exactly one end of one is strictly within the other."""
    low, high = sorted((g, i))
    return len({g, i, h, m}) == 4 and (low < h < high) != (low < m < high)


def table_bp(graph: ScoredGraph, constraint: str = "tree", maximise: bool = False) -> FactorGraph:
    """Binary variables, the arcs; groups in the order of a pass."""
    n = graph.n
    arcs = list(zip(graph.heads.tolist(), graph.modifiers.tolist(), strict=True))
    arc = {ends: a for a, ends in enumerate(arcs)}
    hidden = graph.projective and constraint == "tree"
    grand = [
        both(GRAND, arc[g, h], arc[h, m], theta, i)
        for i, (g, h, m), theta in numbered(graph, GRAND)
        if g != m and not (hidden and min(h, m) < g < max(h, m))
    ]
    sib = [
        both(SIB, arc[h, m], arc[h, s], theta, i)
        for i, (h, m, s), theta in numbered(graph, SIB)
        if h or not (graph.single_root and constraint == "tree")
    ]
    pair = [both(PAIR, a, b, theta, i) for i, (a, b), theta in numbered(graph, PAIR)]
    words = [into(graph, m) for m in range(1, n + 1)]
    if constraint.startswith("not2"):
        pair += [both("nand", a, b, -np.inf) for word in words for a, b in combinations(word, 2)]
    if constraint.endswith("no2cycle"):
        back = [(a, arc[m, h]) for a, (h, m) in enumerate(arcs) if h < m and (m, h) in arc]
        pair += [both("nand", a, b, -np.inf) for a, b in back]
    chains = list(chains_of(graph, arcs)) if CHILDSEQ in graph.parts else []
    crossing = [
        tabulate(NOCROSS, words[j - 1] + words[m - 1], joined(arcs, i, (j, m), theta))
        for i, (j, m), theta in numbered(graph, NOCROSS)
    ]
    heads = {"exactly1": (1,), "atmost1": (0, 1)}.get(constraint.removesuffix("+no2cycle"))
    unary = [
        tabulate("unary", word, lambda on: (0.0 if len(on) in heads else -np.inf, []))
        for word in (words if heads else [])
    ]
    tree = []
    if constraint == "tree":
        table = np.full((2,) * len(arcs), -np.inf)
        for heads_ in trees_of(graph):
            table[tuple((heads_[graph.modifiers] == graph.heads).astype(int))] = 0.0
        tree = [Factor("tree", list(range(len(arcs))), table)]
    groups = [grand, sib, pair, chains, crossing, unary, tree]
    return FactorGraph([np.array([0.0, score]) for score in graph.scores], groups, maximise)


def chains_of(graph: ScoredGraph, arcs: list[tuple[int, int]]) -> Iterator[Factor]:
    """CHILDSEQ of each head and side; without candidates it is a constant."""
    parts = {part: (i, theta) for i, part, theta in numbered(graph, CHILDSEQ)}
    for h, side in [(h, side) for h in range(graph.n + 1) for side in (-1, 1) if h or side > 0]:

        def value(on: tuple[int, ...], h=h, side=side) -> tuple[float, list[int]]:
            children = sorted(arcs[a][1] for a in on)[::side]
            path = [h, *children, graph.n + 1 if side > 0 else -1]
            fired = [parts[h, a, b] for a, b in pairwise(path)]
            return sum(theta for _, theta in fired), [i for i, _ in fired]

        own = [a for a, (g, m) in enumerate(arcs) if g == h and (m - h) * side > 0]
        yield tabulate(CHILDSEQ, own, value)


def joined(
    arcs: list[tuple[int, int]], part: int, words: tuple[int, int], theta: float
) -> Callable:
    """NOCROSS of two words with EXACTLY1 of both within."""

    def value(on: tuple[int, ...]) -> tuple[float, list[int]]:
        if sorted(arcs[a][1] for a in on) != sorted(words):
            return -np.inf, []
        crossing = cross(*arcs[on[0]], *arcs[on[1]])
        return (theta, [part]) if crossing else (0.0, [])

    return value


def head_bp(graph: ScoredGraph, constraint: str = "tree") -> FactorGraph:
    """Variables are the words, values their candidate heads; value 0 is none, and impossible."""
    words = [into(graph, m) for m in range(1, graph.n + 1)]
    own = [np.array([-CAP, *graph.scores[word]]) for word in words]
    crossing = []
    for i, (j, m), theta in numbered(graph, NOCROSS):
        true = np.zeros((len(own[j - 1]), len(own[m - 1])), bool)
        for x, y in np.ndindex(true.shape):
            if x and y:
                ends = (graph.heads[words[j - 1][x - 1]], j, graph.heads[words[m - 1][y - 1]], m)
                true[x, y] = cross(*map(int, ends))
        crossing.append(Factor(NOCROSS, [j - 1, m - 1], np.where(true, theta, 0.0), {i: true}))
    tree = []
    if constraint == "tree":
        table = np.full([len(each) for each in own], -np.inf)
        for heads in trees_of(graph):
            on = heads[graph.modifiers] == graph.heads
            table[tuple(1 + int(np.argmax(on[word])) for word in words)] = 0.0
        tree = [Factor("tree", list(range(graph.n)), table)]
    return FactorGraph(own, [crossing, tree])


def random_graph(
    rng: np.random.Generator,
    n: int,
    families: tuple[str, ...] = (),
    *,
    projective: bool = False,
    single_root: bool = True,
    scale: float = 1.0,
    arcs: int | None = None,
    pairs: int = 3,
) -> ScoredGraph:
    """Normal scores over all arcs, or over some, those of the chain 0 -> 1 -> 2 ... among them."""
    full = ScoredGraph.from_matrix(np.zeros((n + 1, n + 1)))
    kept = np.ones(len(full.arcs), bool)
    if arcs is not None:
        spare = np.flatnonzero(full.heads != full.modifiers - 1)
        kept[rng.permutation(spare)[: max(0, len(kept) - arcs)]] = False
    candidates = full.arcs.select(kept)
    parts, chosen = {}, None
    for family in families:
        count = pairs if family == PAIR else candidates.layout.size(CODES[family])
        parts[family] = scale * rng.normal(size=count)
    if PAIR in families:
        two = [rng.choice(len(candidates), 2, replace=False) for _ in range(pairs)]
        chosen = np.array(two, np.int32).T.copy()
    scores = scale * rng.normal(size=len(candidates))
    return ScoredGraph(candidates, scores, projective, single_root, parts, chosen)
