"""Best trees by integer programming, for any mixture of families, and its linear relaxation."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from parser.graph import (
    CHILDSEQ,
    CODES,
    FAMILIES,
    GRAND,
    GRANDSIB,
    NOCROSS,
    PAIR,
    SIB,
    GraphError,
    ScoredGraph,
)
from parser.inference.arrays import NoTreeError
from parser.inference.engine import Certificate, Engine, Result
from parser.inference.first_order import best_by_arcs

FORMULATIONS = ("hull", "multicommodity", "single-commodity", "cuts", "chart")
OPTIMAL, INFEASIBLE = 0, 2  # SciPy's status
LARGEST = 1e3  # of the gains that HiGHS sees, whose tolerances are absolute, 1e-7 to 1e-6
TOLERANCE = 1e-6  # of a value in 0..1
CAPACITY = 2**24  # of an arc with value 1: maximum flows are of whole numbers
BYTES = 256  # of a column with its entries, here and in HiGHS, about
BYTES_LIMIT = 4 * 2**30


class Program:
    """max gains . x, low <= A x <= high, 0 <= x <= upper; put together block by block."""

    def __init__(self) -> None:
        self.gains = np.zeros(0)
        self.upper = np.zeros(0)
        self._entries: list[np.ndarray] = []  # (3, k): row, column, coefficient
        self._bounds: list[np.ndarray] = []  # (2, k): low, high
        self._height = 0

    def columns(self, gains: np.ndarray, upper: Any = 1.0) -> np.ndarray:
        """Adds variables; their numbers."""
        start = len(self.gains)
        self.gains = np.concatenate([self.gains, gains])
        self.upper = np.concatenate([self.upper, np.broadcast_to(upper, gains.shape)])
        return np.arange(start, len(self.gains))

    def rows(self, low: float, high: float, *terms: tuple[Any, Any, Any]) -> None:
        """Adds low <= sum of coefficient * x[column] <= high for each key of the terms.

        A term is keys, columns and coefficients that broadcast; keys are numbers of any size.
        """
        blocks = [np.stack(np.broadcast_arrays(*term)).reshape(3, -1) for term in terms]
        entries = np.concatenate(blocks, axis=1).astype(float)
        keys, row = np.unique(entries[0], return_inverse=True)
        entries[0] = row + self._height
        self._entries.append(entries)
        self._bounds.append(np.repeat([[low], [high]], len(keys), axis=1))
        self._height += len(keys)

    @property
    def largest(self) -> float:
        """The largest gain in size."""
        return max(float(np.abs(self.gains).max()), 1e-300)

    def solve(self, integers: int, seconds: float) -> Any:
        """SciPy's result, with `bound`: at least the optimum, whether it was found or not.

        The first so many columns take whole numbers.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import
        from scipy.sparse import coo_array

        row, column, coefficient = np.concatenate(self._entries, axis=1)
        shape = (self._height, len(self.gains))
        matrix = coo_array((coefficient, (row.astype(int), column.astype(int))), shape=shape)
        scale = LARGEST / self.largest
        result = milp(
            -scale * self.gains,
            constraints=LinearConstraint(matrix.tocsr(), *np.concatenate(self._bounds, axis=1)),
            integrality=np.arange(len(self.gains)) < integers,
            bounds=Bounds(0.0, self.upper),
            options={"time_limit": seconds, "mip_rel_gap": 0.0},
        )
        result.bound = float(np.maximum(self.gains, 0.0) @ self.upper)
        proved = result.mip_dual_bound if integers else result.fun if result.status == 0 else None
        if proved is not None:
            result.bound = min(result.bound, -float(proved) / scale)
        return result


class Formulation:
    """Trees and parts of a graph as a program, whose first columns are the arcs, x.

    The best score into each word, which sum up to `constant`, are taken off the arcs.
    """

    def __init__(self, graph: ScoredGraph, kind: str) -> None:
        self.graph = graph
        self.kind = kind
        self.width = graph.n + 1
        self.heads, self.modifiers = graph.heads.astype(int), graph.modifiers.astype(int)
        self.number = np.full((self.width, self.width), -1)  # of an arc
        self.number[self.heads, self.modifiers] = np.arange(len(self.heads))
        self.inner = self.heads > 0  # arcs from words
        best = np.maximum.reduceat(graph.scores, graph.arcs.offsets[:-1])
        self.constant = float(best.sum())
        possible = graph.scores > -np.inf
        gains = np.where(possible, graph.scores, 0.0) - best[self.modifiers - 1] * possible
        self.program = Program()
        self.arcs = self.program.columns(gains, possible)
        self._trees()
        self._chains_and_grandparents()
        self._pairs()
        if NOCROSS in graph.parts and not graph.projective:
            self._nocross()

    def preference(self) -> np.ndarray:
        """Tiny gains of the arcs, (arcs,), to choose between equal trees."""
        return 1e-3 * TOLERANCE / self.program.largest * self.program.gains[: len(self.arcs)]

    def no_tree(self) -> NoTreeError:
        """The error for a graph whose trees all have a PAIR of -inf."""
        a, b = self.graph.index(PAIR)[:, self.graph.parts[PAIR] == -np.inf][:, 0]
        words = self.modifiers[a], self.modifiers[b]
        return NoTreeError(
            "no tree possible: all over the candidate arcs have a pair of score -inf, as "
            f"{self.heads[a]} -> {words[0]} with {self.heads[b]} -> {words[1]}",
            int(words[0]),
            None,
        )

    # ---- trees ---------------------------------------------------------------------------------

    def _trees(self) -> None:
        self.program.rows(1, 1, (self.modifiers, self.arcs, 1))
        if self.graph.single_root:
            self.program.rows(1, 1, (0, self.arcs[~self.inner], 1))
        if self.kind == "multicommodity":
            self._multicommodity()
        elif self.kind == "single-commodity":
            self._single_commodity()
        elif self.kind == "chart":
            self._chart()
        if self.graph.projective and self.kind in ("multicommodity", "single-commodity"):
            keys, arcs = self._crossing()
            self.program.rows(-np.inf, 1, (keys, arcs, 1))

    def _multicommodity(self) -> None:
        """One unit of flow from the root to each word k, with phi_k[a] <= x[a].

        It enters k by the arc from the head of k, phi_k[h, k] = x[h, k], and does not leave it.
        """
        words = np.arange(1, self.width)[:, None]
        k, a = np.nonzero((self.heads != words) & (self.modifiers != words))
        key = (k + 1) * self.width
        flow = self.program.columns(np.zeros(len(k)))
        out = self.inner[a]
        self.program.rows(-np.inf, 0, (flow, flow, 1), (flow, a, -1))
        self.program.rows(
            0,
            0,
            (key + self.modifiers[a], flow, 1),
            ((key + self.heads[a])[out], flow[out], -1),
            ((self.modifiers * self.width + self.heads)[self.inner], self.arcs[self.inner], -1),
        )

    def _single_commodity(self) -> None:
        """below[h, m], words below m: sum_h below[h, j] = sum_m (below[j, m] + x[j, m])."""
        most = self.graph.n - 1 - self.inner
        below = self.program.columns(np.zeros(len(self.arcs)), most)
        out = self.heads[self.inner]
        self.program.rows(-np.inf, 0, (self.arcs, below, 1), (self.arcs, self.arcs, -most))
        self.program.rows(
            0,
            0,
            (self.modifiers, below, 1),
            (out, below[self.inner], -1),
            (out, self.arcs[self.inner], -1),
        )

    def _chart(self) -> None:
        """Weights of the steps of Eisner's chart: an item is made as often as it is used.

        For s < t in the chart, which the root joins if it may have several words:

            link[s, t, r]    right[s, r], left[r+1, t]     s <= r < t     sum_r = x[s, t] + x[t, s]
            right[s, t, r]   arc s -> r, right[r, t]       s < r <= t     sum_t = x[s, r]
            left[s, t, r]    arc t -> r, left[s, r]        s <= r < t     sum_s = x[t, r]

        Items with s = t are there without a step.
        """
        program, n, width = self.program, self.graph.n, self.width
        single_root = self.graph.single_root
        s, t, r = chart = np.indices((width, width, width)).reshape(3, -1)
        span = (s >= single_root) & (s < t) & (s <= r) & (r <= t)
        linked = np.maximum(self.number, self.number.T)[s, t] >= 0
        ls, lt, lr = chart[:, span & (r < t) & linked]
        rs, rt, rr = chart[:, span & (s < r) & (self.number[s, r] >= 0)]
        fs, ft, fr = chart[:, span & (s > 0) & (r < t) & (self.number[t, r] >= 0)]
        link, right, left = (program.columns(np.zeros(len(each))) for each in (ls, rs, fs))

        arcs = self.arcs[self.inner | (not single_root)]
        low, high = np.sort([self.heads[arcs], self.modifiers[arcs]], axis=0)
        program.rows(0, 0, (ls * width + lt, link, 1), (low * width + high, arcs, -1))
        steps = (self.number[rs, rr], right, 1), (self.number[ft, fr], left, 1)
        program.rows(0, 0, *steps, (arcs, arcs, -1))

        roots = self.arcs[~self.inner]
        words, ends = self.modifiers[roots], np.ones_like(roots)
        rights = [(rs, rt, right, 1), (ls, lr, link, -1), (rr, rt, right, -1)]
        lefts = [(fs, ft, left, 1), (lr + 1, lt, link, -1), (fs, fr, left, -1)]
        if single_root:
            rights.append((words, n * ends, roots, -1))
            lefts.append((ends, words, roots, -1))
        else:  # all of it once: as often as the last word has a head
            last = np.flatnonzero(self.modifiers == n)
            rights.append((np.zeros_like(last), np.full_like(last, n), last, -1))
        for terms in (rights, lefts):
            kept = [(s < t, s * width + t, column, sign) for s, t, column, sign in terms]
            program.rows(0, 0, *((key[k], column[k], sign) for k, key, column, sign in kept))

    # ---- crossing arcs -------------------------------------------------------------------------

    def _crossing(self, apart: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Keys (p * width + q) * width + T and arcs: u -> p with u > T and v -> q with v <= T.

        For words p, q and places T, u, v strictly between them, in the order of going round from p
        over q back to p: any arcs u -> p and v -> q of one key cross, and any that cross have a
        key in common.  With apart, v < T, and keys need not have both.
        """
        width = self.width
        words = np.arange(1, width)
        last = words[:, None, None] - apart  # the farthest v
        heads, modifiers = self.heads[:, None], self.modifiers[:, None]

        def entries(p: np.ndarray, q: np.ndarray, beyond: bool) -> np.ndarray:
            place, end = (heads - p) % width, (q - p) % width
            side = place > last + apart if beyond else place <= last
            T, arc, word = np.nonzero(side & (place > 0) & (place < end) & (last + apart < end))
            return np.stack([(p * width + q)[arc, word] * width + words[T], arc])

        of_p, of_q = entries(modifiers, words, True), entries(words, modifiers, False)
        keys, arcs = np.concatenate([of_p, of_q], axis=1)
        kept = np.isin(keys, np.intersect1d(of_p[0], of_q[0])) | apart
        return keys[kept], arcs[kept]

    def _nocross(self) -> None:
        """y[p, q] = 1 if u -> p and v -> q cross, v before u on the way round from p to q.

        For each T:  y >= sum_{u > T} x[u, p] + sum_{v <= T} x[v, q] - 1
                     y <= sum_{u > T} x[u, p] + sum_{v < T} x[v, q]
        and no tighter rows follow from the heads of two words.  Only the side that the sign of the
        score needs is there.
        """
        width = self.width
        p, q = np.concatenate([self.graph.index(NOCROSS), self.graph.index(NOCROSS)[::-1]], axis=1)
        score, end = np.tile(self.graph.parts[NOCROSS], 2), (q - p) % width
        used = (end > 2) & (score != 0.0)  # two places between, or nothing can cross
        p, q, end, score = p[used], q[used], end[used], score[used]
        column = np.zeros(width * width, int)
        column[p * width + q] = self.program.columns(score)

        def keys(some: np.ndarray) -> np.ndarray:
            """All (p * width + q) * width + T of some columns, T = 1, ..., end - 1."""
            k, T = np.nonzero(np.arange(1, width) < end[some][:, None])
            return (p * width + q)[some][k] * width + T + 1

        for some, apart in ((score < 0.0, False), (score > 0.0, True)):
            key, arcs = self._crossing(apart)
            asked = np.isin(key, each := keys(some))
            if not apart:
                each = np.intersect1d(each, key)
            sign = -1 if apart else 1
            entries = (key[asked], arcs[asked], sign), (each, column[each // width], -sign)
            self.program.rows(-np.inf, 0 if apart else 1, *entries)

    # ---- parts ---------------------------------------------------------------------------------

    def _pairs(self) -> None:
        """r = x[a] x[b] of SIB and PAIR; only the side that the sign of the score needs."""
        parts, program = self.graph.parts, self.program
        pairs, scores = np.zeros((2, 0), int), np.zeros(0)
        if SIB in parts:
            h, m, sibling = self.graph.index(SIB)
            real = (h > 0) | (not self.graph.single_root)  # no tree has two children of its root
            pairs = np.stack([self.number[h, m], self.number[h, sibling]])[:, real]
            scores = parts[SIB][real]
        if PAIR in parts:
            pairs = np.concatenate([pairs, self.graph.index(PAIR)], axis=1)
            scores = np.concatenate([scores, parts[PAIR]])
        good, never = scores > 0.0, scores == -np.inf
        bad = (scores < 0.0) & ~never
        r = program.columns(scores[good])
        for arcs in pairs[:, good]:
            program.rows(-np.inf, 0, (r, r, 1), (r, arcs, -1))
        r = program.columns(scores[bad])
        program.rows(-np.inf, 1, (r, pairs[:, bad], 1), (r, r, -1))
        program.rows(-np.inf, 1, (np.flatnonzero(never), pairs[:, never], 1))

    def _chains_and_grandparents(self) -> None:
        """The convex hull of what a head can do: its children in their order, and its own head."""
        parts = self.graph.parts
        if GRANDSIB in parts or (CHILDSEQ in parts and GRAND in parts):
            self._chains(above=True)
        elif CHILDSEQ in parts:
            self._chains(above=False)
        elif GRAND in parts:
            self._grandparents()

    def _grandparents(self) -> None:
        """r[g, h, m] <= x[g, h], sum_g r[g, h, m] = x[h, m], g != m."""
        g, h, m = self.graph.index(GRAND)
        real = g != m
        up, down = self.number[g, h][real], self.number[h, m][real]
        r = self.program.columns(self.graph.parts[GRAND][real])
        self.program.rows(-np.inf, 0, (r, r, 1), (r, up, -1))
        last = self.arcs[self.inner]
        self.program.rows(0, 0, (down, r, 1), (last, last, -1))

    def _chains(self, above: bool) -> None:
        """t[a, b], that a is followed by b: a path from START to END for each head and side,

        for each head h:            sum_b t[START, b] = 1,          sum_a t[a, m] = x[h, m]
        above, for each arc g -> h: sum_b t[g, START, b] = x[g, h], sum_{g, a} t[g, a, m] = x[h, m]
        for each path:              sum_a t[a, m] = sum_b t[m, b]

        A single root's path is from START to a child to END.
        """
        program, width = self.program, self.width
        if above:
            owner, (h, a, b), gains = self._copies()
        else:
            h, a, b = self.graph.index(CHILDSEQ).astype(int)
            owner, gains = h, self.graph.parts[CHILDSEQ]
        start, child = a == h, (b > 0) & (b < width)
        never = self.graph.single_root & (h == 0) & (start != child)
        t = program.columns(gains, 1.0 - never)
        path, side = owner * width, 2 * owner + (b > h)

        alone, under = start & (owner < width), start & (owner >= width)
        program.rows(1, 1, (side[alone], t[alone], 1))
        if above:
            sides = 2 * (width + self.arcs) + [[0], [1]]
            program.rows(0, 0, (side[under], t[under], 1), (sides, self.arcs, -1))
        inward = (path + b)[child], t[child], 1
        outward = (path + a)[~start], t[~start], -1
        program.rows(0, 0, inward, outward)
        used = self.number[h[child], b[child]], t[child], 1
        program.rows(0, 0, used, (self.arcs, self.arcs, -1))

    def _copies(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """CHILDSEQ parts of the root, then those of each head again for each arc g -> h into it.

        Without those with g among the children.  Owner (0, or width + arc), positions (3, k), and
        the score, of CHILDSEQ, GRANDSIB and of the outer child's GRAND.
        """
        parts, width = self.graph.parts, self.width
        index = self.graph.index(CHILDSEQ).astype(int)
        own = parts.get(CHILDSEQ, np.zeros(index.shape[1]))
        count = np.bincount(index[0], minlength=width)
        first, size = (np.cumsum(count) - count)[self.modifiers], count[self.modifiers]
        arc = np.repeat(self.arcs, size)
        place = np.arange(len(arc)) + (first - np.cumsum(size) + size)[arc]
        g, (h, a, b) = self.heads[arc], index[:, place]
        extra = parts.get(GRANDSIB, np.zeros(len(arc)))
        if GRAND in parts:
            grand = np.zeros((width, width, width + 1))  # END has no score, be it -1 or n + 1
            grand[tuple(self.graph.index(GRAND))] = parts[GRAND]
            extra = extra + grand[g, h, b]
        real = (g != a) & (g != b)
        root = np.arange(count[0])
        return (
            np.concatenate([0 * root, width + arc[real]]),
            index[:, np.concatenate([root, place[real]])],
            np.concatenate([own[root], (own[place] + extra)[real]]),
        )

    # ---- cuts ----------------------------------------------------------------------------------

    def cut(self, values: np.ndarray) -> bool:
        """Adds rows that arcs with these values break; False if there are none.

        A word that less than one unit of flow can reach is in a set of words which arcs from
        outside enter with less than 1.  Of projective trees, also `_crossing`.
        """
        keys, arcs = self._entering(values)
        self.program.rows(1, np.inf, (keys, arcs, 1))
        found = len(keys) > 0
        if self.graph.projective:
            keys, arcs = self._crossing()
            each, row = np.unique(keys, return_inverse=True)
            broken = (np.bincount(row, values[arcs], len(each)) > 1 + 10 * TOLERANCE)[row]
            self.program.rows(-np.inf, 1, (keys[broken], arcs[broken], 1))
            found |= bool(broken.any())
        return found

    def _entering(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Keys of sets that too little enters, and the arcs that enter them."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        capacity = np.rint(CAPACITY * np.clip(values, 0.0, 1.0)).astype(np.int32)
        shape = (self.width, self.width)
        network = csr_array((capacity, (self.heads, self.modifiers)), shape=shape)
        sets = set()
        for word in range(1, self.width):
            flow = maximum_flow(network, 0, word)
            if flow.flow_value < CAPACITY * (1 - 10 * TOLERANCE):
                left = network - flow.flow
                left.eliminate_zeros()
                reach = breadth_first_order(left.T.tocsr(), word, return_predecessors=False)
                sets.add(tuple(sorted(reach.tolist())))
        members = np.zeros((len(sets), self.width), bool)
        for i, words in enumerate(sorted(sets)):
            members[i, list(words)] = True
        return np.nonzero(members[:, self.modifiers] & ~members[:, self.heads])


class Solution(NamedTuple):
    """Of one program or, with cuts, of several, each with more rows."""

    values: list[np.ndarray]  # of the arcs, (arcs,) each, the last program's last
    bound: float
    solved: bool


@dataclass
class Programming(Engine):
    """What both engines are: a formulation, HiGHS, and the tree in its values."""

    formulation: str = "hull"
    time_limit: float = 60.0

    families = frozenset({*FAMILIES, PAIR})
    constraints = frozenset({False, True})
    integral: ClassVar[bool]

    def __post_init__(self) -> None:
        if self.formulation not in FORMULATIONS:
            names = ", ".join(FORMULATIONS)
            raise ValueError(f"formulation: one of {names}, got {self.formulation!r}")
        if not self.time_limit > 0.0:
            raise ValueError(f"time_limit: more than 0 seconds, got {self.time_limit}")

    def best(self, graph: ScoredGraph) -> Result:
        """heads (n+1,) int32, their score, and a certificate; `iterations` counts programs.

        Raises
        ------
        GraphError
            For formulation=chart without projective trees, or a program that would take over 4 GiB.
        ValueError
            For a score that is not finite; that of a PAIR may be -inf.
        NoTreeError
            If the candidate arcs hold no tree of the graph's kind, or none without a PAIR of -inf.
        """
        self.check(graph)
        check_parts(graph)
        kind = self._kind(graph)
        fallback = best_by_arcs(graph).heads
        check_size(graph, kind)
        formulation = Formulation(graph, kind)
        solution = self._solve(formulation)

        def tree(values: np.ndarray) -> np.ndarray:
            """With the greatest values, and of such trees with the greatest arc scores."""
            weights = np.where(graph.scores > -np.inf, values + formulation.preference(), -np.inf)
            return np.asarray(best_by_arcs(replace(graph, scores=weights)).heads)

        heads = max(map(tree, reversed(solution.values)), key=graph.score, default=fallback)
        score, dual = graph.score(heads), solution.bound
        indicator = heads[graph.modifiers] == graph.heads
        solved = solution.solved
        whole = solved and bool(np.abs(solution.values[-1] - indicator).max() <= TOLERANCE)
        if whole and abs(dual - score) <= graph.n * TOLERANCE * formulation.program.largest:
            dual = score  # the tree is what the program found: the difference is rounding
        return Result(
            heads,
            score,
            certificate=Certificate(score, max(score, dual)),
            arc_values=None if self.integral or not solution.values else solution.values[-1],
            iterations=max(1, len(solution.values)),
            converged=whole if self.integral else solved,
        )

    def _kind(self, graph: ScoredGraph) -> str:
        if self.formulation == "hull":
            return "chart" if graph.projective else "multicommodity"
        if self.formulation == "chart" and not graph.projective:
            raise GraphError(f"engine {self.name}: formulation=chart has projective trees only")
        return self.formulation

    def _solve(self, formulation: Formulation) -> Solution:
        """Cuts are looked for in the relaxation first, which is quick, then in whole numbers."""
        end = time.monotonic() + self.time_limit
        cuts = formulation.kind == "cuts"
        values: list[np.ndarray] = []
        bound = np.inf
        for integral in (False, True) if cuts and self.integral else (self.integral,):
            while True:
                seconds = max(0.0, end - time.monotonic())
                result = formulation.program.solve(len(formulation.arcs) * integral, seconds)
                if result.status == INFEASIBLE:
                    raise formulation.no_tree()
                bound = min(bound, formulation.constant + result.bound)
                if result.x is not None:
                    values.append(result.x[: len(formulation.arcs)])
                if result.status != OPTIMAL:
                    return Solution(values, bound, False)
                if not (cuts and formulation.cut(values[-1])):
                    break
        return Solution(values, bound, True)


class IntegerProgram(Programming):
    """The best tree for any mixture of families, by branch and bound (HiGHS).

    Exact but for HiGHS' tolerances, absolute ones of 1e-7 to 1e-6 with the largest gain put to
    1000.  Exponential time in the worst case.  Of equal trees the same one is returned every time.
    When time is up: the best tree found, or the one that is best under the arc scores alone if
    HiGHS has none; then `converged` is False and the certificate has a gap.

    Parameters
    ----------
    formulation : {"hull", "multicommodity", "single-commodity", "cuts", "chart"}
        How trees are stated over n words.  "multicommodity" (Martins, Smith & Xing 2009): a unit of
        flow to each word, O(n arcs) columns and rows, whose relaxation has trees for its vertices.
        "single-commodity" (the same): n units, O(arcs), loose.  "cuts" (Riedel & Clarke 2006): one
        head a word, and sets of words that no arc enters are cut off as they are found.  With
        these, projective trees are those where of the arcs into two words that cross only one is
        there, O(arcs n^2) entries.  "chart" (Martin, Rardin & Campbell 1990): the O(n^3) steps of
        Eisner's algorithm, with projective trees for its vertices.  "hull": "chart" for projective
        trees, "multicommodity" for all.
    time_limit : float
        Seconds, for all programs of a graph together.

    Parts are stated so that the relaxation is as tight as dual decomposition into trees, head
    automata with grandparents (GRAND, CHILDSEQ, GRANDSIB), single pairs (SIB, PAIR) and the heads
    of two words (NOCROSS).  That takes a column for each part, two for NOCROSS; GRAND together with
    CHILDSEQ takes those of GRANDSIB, O(arcs n^2).

    References
    ----------
    A. Martins, N. Smith and E. Xing, "Concise integer linear programming formulations for
    dependency parsing", ACL 2009.  S. Riedel and J. Clarke, "Incremental integer linear
    programming for non-projective dependency parsing", EMNLP 2006.  R. Martin, R. Rardin and
    B. Campbell, "Polyhedral characterization of discrete dynamic programming", 1990.
    """

    name = "ilp"
    integral = True

    def proving(self) -> Engine:
        return self


class LinearProgram(Programming):
    """The linear relaxation of `IntegerProgram`, with the same parameters.

    The certificate's dual is the relaxation's optimum, `arc_values` those of the arcs there.  The
    tree is the best one of the graph's kind under these values, of equal ones the one with more arc
    score.  Values within 1e-6 of 0 and 1 are a best tree, and the certificate has no gap.  When
    time is up, the dual is a coarser bound, and `arc_values` those of the last cuts or None.
    """

    name = "lp"
    integral = False


def check_parts(graph: ScoredGraph) -> None:
    """ValueError unless each part has a score below inf and, but for PAIR, above -inf."""
    for family, scores in graph.parts.items():
        pair = family == PAIR
        count = graph.index(PAIR).shape[1] if pair else graph.arcs.layout.size(CODES[family])
        if len(scores) != count:
            raise ValueError(f"{count} parts {family} have {len(scores)} scores")
        if not ((scores < np.inf) & (pair | (scores > -np.inf))).all():
            raise ValueError(f"parts {family} have scores that are not finite")


def check_size(graph: ScoredGraph, kind: str) -> None:
    """GraphError if the program would take over 4 GiB; allocates nothing."""
    n, arcs, size = graph.n, len(graph.arcs), graph.arcs.layout.size
    count = sum(map(len, graph.parts.values())) + arcs
    count += {"multicommodity": arcs * n, "chart": n**3}.get(kind, 0)
    if {CHILDSEQ, GRAND} <= graph.families:
        count += size(CODES[GRANDSIB])
    if kind != "chart" if graph.projective else NOCROSS in graph.parts:
        count += arcs * n * n
    if count * BYTES > BYTES_LIMIT:
        raise GraphError(
            f"the program of {n} words with {arcs} candidate arcs takes "
            f"{count * BYTES / 2**30:.1f} GiB; the limit is {BYTES_LIMIT / 2**30:.0f} GiB"
        )


def decide(
    graph: ScoredGraph, heads: np.ndarray, bounds: Certificate
) -> tuple[np.ndarray, Certificate]:
    """The better of a tree and an integer program's, and the narrower of their bounds."""
    program = INTEGER_PROGRAM.best(graph)
    certificate = program.certificate
    assert certificate is not None
    if certificate.primal > bounds.primal:
        heads = program.heads
    primal = max(bounds.primal, certificate.primal)
    return heads, Certificate(primal, max(primal, min(bounds.dual, certificate.dual)))


INTEGER_PROGRAM = IntegerProgram()
LINEAR_PROGRAM = LinearProgram()
