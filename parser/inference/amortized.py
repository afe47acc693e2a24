"""Amortized inference: solutions of earlier problems, where they still are the best, or nearly.

Chang, Upadhyay, Kundu and Roth, "Structural learning with amortized inference", AAAI 2015, and
stronger tests that are as cheap.  `Amortizer` knows vectors only; `Amortized` is an engine.
"""

from __future__ import annotations

import ast
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from cython_ext import amortize
from parser.graph import CHILDSEQ, GRAND, GRANDSIB, LINK, NOCROSS, PAIR, SIB, ScoredGraph
from parser.inference import nonprojective, projective
from parser.inference.dual_decomposition import DUAL_DECOMPOSITION
from parser.inference.engine import Certificate, Engine, Result
from parser.inference.hill_climbing import HILL_CLIMBING

SEED, SHIFT, SLACK, MARGIN, DUAL = "seed", "shift", "slack", "margin", "dual"
NEAR = "near"  # the only one that is not exact, but for seed with epsilon > 0
KNOWN, SEARCH, BOUND, LATER = "known", "search", "bound", "later"  # where a threshold is given
# What is tested, the cheapest first.  What passes seed with epsilon 0 passes shift, and what passes
# shift passes slack and margin.  margin asks for the second best tree of each solved graph.
MODES: dict[str, tuple[str, ...]] = {
    "none": (),
    "seed": (SEED,),
    "exact": (SEED, SHIFT, SLACK, DUAL),
    "margin": (SEED, SHIFT, SLACK, MARGIN, DUAL),
    "near": (SEED, SHIFT, SLACK, DUAL, NEAR),
}
CONDITIONS = frozenset().union(*MODES.values())
OVERHEAD = 1000  # bytes of an entry, and of a set, besides its arrays, by measurement


class AmortizationError(RuntimeError):
    """A cached solution was given as the best, or as near to it, and is not."""


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The best z of a problem max c.z, z in {0, 1}^d, and what is known of the others.

    Attributes
    ----------
    ones : ndarray of int32, (k,)
        Coordinates that are 1, ascending.
    slack : ndarray of float64, (d,), optional
        At least 0, and in blocks 0 where z is 1.  z is better than any z' by at least the sum over
        the 1's of z' in blocks, and over other coordinates where they differ.  Reduced costs of a
        linear program whose optimum is z are such.
    gap : float
        z is better than any other by at least this much.
    optimal : bool
        Whether the solver vouches for it.  Otherwise it is not kept.
    extra : tuple of ndarray
        What the caller wants back with it.
    """

    ones: np.ndarray
    slack: np.ndarray | None = None
    gap: float = 0.0
    optimal: bool = True
    extra: tuple[np.ndarray, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A problem that was solved."""

    costs: np.ndarray
    solution: Solution
    number: int

    @property
    def nbytes(self) -> int:
        s = self.solution
        arrays = (self.costs, *(s.ones,) * 3, *s.extra)  # as an array, a name, and in a table
        return OVERHEAD + sum(a.nbytes for a in arrays) + (0 if s.slack is None else s.slack.nbytes)


class _Known:
    """The entries of one set, by solution, each group in the order of time."""

    __slots__ = ("groups", "key", "nbytes", "table")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.nbytes = OVERHEAD + size_of(key)
        self.groups: dict[bytes, list[Entry]] = {}
        self.table: tuple[np.ndarray, np.ndarray] | None = None  # all solutions in one array

    def best(self, costs: np.ndarray) -> tuple[list[Entry], float] | None:
        groups = list(self.groups.values())
        if self.table is None:
            ones = [group[0].solution.ones for group in groups]
            ends = np.cumsum([len(each) for each in ones], dtype=np.int32)
            self.table = np.concatenate(ones), ends
        at, value = amortize.best_known(costs, *self.table)
        return None if at < 0 else (groups[at], value)


def size_of(key: object) -> int:
    """Bytes of a key, what its tuples hold included."""
    inner = sum(map(size_of, key)) if isinstance(key, tuple) else 0
    return sys.getsizeof(key) + inner


class Cache:
    """Problems and their solutions, by a key that names the set of feasible vectors.

    Nothing in it depends on how the objectives came about, so that it can serve the next run, with
    other settings.  Only problems that a solver has solved go in: answers of the cache itself
    would pile up errors where they are approximate, and are covered by their source where they are
    exact, as condition (4) with epsilon 0 is transitive.

    Parameters
    ----------
    memory : int
        Bytes, at most; the oldest entries go first.
    keep : int
        Entries of one solution; the newest stay.  Those that a new one covers go, too.
    """

    def __init__(self, memory: int = 2**28, keep: int = 3) -> None:
        if keep < 1:
            raise ValueError(f"keep: 1 or more, got {keep}")
        self.memory = memory
        self.keep = keep
        self.clear()

    def clear(self) -> None:
        self._sets: dict[Hashable, _Known] = {}
        self._order: OrderedDict[int, tuple[_Known, Entry]] = OrderedDict()
        self._next = 0
        self.nbytes = 0

    def __len__(self) -> int:
        """Entries."""
        return len(self._order)

    def best(self, key: Hashable, costs: np.ndarray) -> tuple[list[Entry], float] | None:
        """The entries of the best solution among the cached ones, and its value.  (9)"""
        known = self._sets.get(key)
        return None if known is None else known.best(costs)

    def newest(self, key: Hashable) -> Entry | None:
        """The entry of the problem that was solved last."""
        known = self._sets.get(key)
        if known is None:
            return None
        return max((group[-1] for group in known.groups.values()), key=lambda entry: entry.number)

    def holds(self, key: Hashable, solution: Solution) -> bool:
        """Whether the solution is among the cached ones of its set."""
        known = self._sets.get(key)
        return known is not None and solution.ones.tobytes() in known.groups

    def add(
        self,
        key: Hashable,
        costs: np.ndarray,
        solution: Solution,
        blocks: np.ndarray | None = None,
    ) -> None:
        """Keep a solved problem.  Costs are copied."""
        known = self._sets.get(key)
        if known is None:
            known = self._sets[key] = _Known(key)
            self.nbytes += known.nbytes
        name = solution.ones.tobytes()
        if name not in known.groups:
            known.groups[name] = []
            known.table = None
        group = known.groups[name]
        entry = Entry(np.array(costs, np.float64), solution, self._next)
        for old in [old for old in group if covers(entry, old, blocks)]:
            group.remove(old)
            self._forget(old)
        while len(group) >= self.keep:
            self._forget(group.pop(0))
        group.append(entry)
        self._order[entry.number] = known, entry
        self._next += 1
        self.nbytes += entry.nbytes
        while self.nbytes > self.memory:
            self._evict()

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it for a checkpoint, one-dimensional; `restore` takes it back.

        Keys are literals, so that reading them runs no code.
        """
        index, data = [], []
        for known in self._sets.values():
            groups = []
            for group in known.groups.values():
                entries = []
                for entry in group:
                    s = entry.solution
                    slack = () if s.slack is None else (s.slack,)
                    arrays = (entry.costs, s.ones, np.array(s.gap), *slack, *s.extra)
                    shapes = [(a.dtype.str, a.shape) for a in arrays]
                    entries.append((entry.number, len(slack), shapes))
                    data += [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arrays]
                groups.append(entries)
            index.append((known.key, groups))
        return {
            "cache_index": literal((index, self._next)),
            "cache_data": np.concatenate([np.zeros(0, np.uint8), *data]),
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """In place of what is there."""
        self.clear()
        index, self._next = value_of(arrays["cache_index"])
        data, at = arrays["cache_data"], 0

        def take(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
            nonlocal at
            first, at = at, at + np.dtype(dtype).itemsize * prod(shape)
            return np.frombuffer(data[first:at].tobytes(), dtype).reshape(shape).copy()

        order = {}
        for key, groups in index:
            known = self._sets[key] = _Known(key)
            self.nbytes += known.nbytes
            for entries in groups:
                group = []
                for number, slacks, shapes in entries:
                    costs, ones, gap, *rest = (take(*shape) for shape in shapes)
                    slack, extra = rest[0] if slacks else None, tuple(rest[slacks:])
                    entry = Entry(costs, Solution(ones, slack, gap.item(), extra=extra), number)
                    group.append(entry)
                    order[number] = known, entry
                    self.nbytes += entry.nbytes
                known.groups[group[0].solution.ones.tobytes()] = group
        self._order.update(sorted(order.items()))

    def _forget(self, entry: Entry) -> None:
        del self._order[entry.number]
        self.nbytes -= entry.nbytes

    def _evict(self) -> None:
        """Drop the oldest entry, which is the first of its group."""
        known, entry = next(iter(self._order.values()))
        name = entry.solution.ones.tobytes()
        known.groups[name].pop(0)
        self._forget(entry)
        if not known.groups[name]:
            del known.groups[name]
            known.table = None
        if not known.groups:
            del self._sets[known.key]
            self.nbytes -= known.nbytes


def literal(value: object) -> np.ndarray:
    """Numbers, strings, bytes, tuples, lists and dicts as text, uint8."""
    return np.frombuffer(repr(value).encode(), np.uint8)


def value_of(text: np.ndarray) -> Any:
    """What `literal` took."""
    return ast.literal_eval(text.tobytes().decode())


def covers(a: Entry, b: Entry, blocks: np.ndarray | None) -> bool:
    """Whether every test that b passes for some objective is passed by a, too.

    Of one solution.  With slack r, b also has the objective costs + r, and is no more than that.
    """
    ours, theirs = a.solution, b.solution
    if ours.gap < theirs.gap or (theirs.slack is not None and ours.slack is None):
        return False
    near, *_ = amortize.examine(b.costs, a.costs, None, ours.ones, blocks, 0.0)
    if not near or theirs.slack is None:
        return near
    sign = np.ones(len(a.costs))
    sign[ours.ones] = -1.0
    widest = [e.costs + sign * e.solution.slack for e in (a, b)]
    if not all(np.isfinite(each).all() for each in widest):
        return False
    _, excess, *_ = amortize.examine(widest[1], widest[0], None, ours.ones, blocks, 0.0)
    return excess <= 0.0


@dataclass(slots=True)
class Statistics:
    """What an Amortizer did.

    Attributes
    ----------
    queries, solved : int
        Problems, and those that the solver was called for.
    hits : Counter
        The others, by the condition that let them through.
    approximate : int
        Hits that may be worse than the best.
    forced : int
        Calls of the solver in place of such a hit, by tau.
    new : int
        Calls that gave a solution which the set had not among its cached ones: an oracle that
        recognises old solutions would call the solver so often.
    checking, solving : float
        CPU seconds of all that amortization adds, and of the solver.
    """

    queries: int = 0
    solved: int = 0
    hits: Counter[str] = field(default_factory=Counter)
    approximate: int = 0
    forced: int = 0
    new: int = 0
    checking: float = 0.0
    solving: float = 0.0

    @property
    def share(self) -> float:
        """Of the queries, that called the solver."""
        return self.solved / self.queries if self.queries else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A solution, its value under the costs that were asked for, and where it comes from.

    condition: the test that a cached solution passed; None: the solver's.  gap: how much better
    another solution could be, at most.
    """

    solution: Solution
    value: float
    condition: str | None = None
    gap: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """Whether there is a vector of a value above a threshold: any of those is as good an answer.

    Attributes
    ----------
    above : float
    search : callable
        From the best known solution, or None, to one that may be better, or None.
    bound : callable
        By an entry: a bound from above on the value of all vectors.
    solve : bool
        Whether the solver is to be called if nothing else gives the answer.  Otherwise the best
        solution at hand is returned, unless there is none.
    """

    above: float
    search: Callable[[Solution | None], Solution | None] = lambda solution: solution
    bound: Callable[[Entry], float] = lambda entry: np.inf
    solve: bool = True


class Amortizer:
    """A solver of problems max c.z, z in {0, 1}^d, that does not solve what it can look up.

    With a cached problem p, its solution s, slack r and gap g, and d = c - p, s is taken when it is
    the best of the cached ones under c, and one of these holds (notation of cython_ext.amortize;
    in each block exactly one z_a is 1):

    seed
        v_i <= epsilon |c_i| for all i: condition (4).  epsilon = 0: s is the best.  epsilon > 0:
        it is worse by no more than the sum over blocks of max(0, v_s + max_a v_a), plus that over
        other coordinates of max(0, v_i): c.z - c.s = d.(z - s) + p.(z - s) <= d.(z - s).
    shift
        No block has a d_a > d_s, and no other coordinate a v_i > 0; the same proof.
    slack
        No block has a d_a - r_a > d_s, and no other coordinate a v_i > r_i: p.(z - s) is no more
        than minus the slack that z uses.
    margin
        The sum of what the shift test finds too much is at most g, or that of the slack test with
        r / 2 is at most g / 2: for z other than s, p.(z - s) is no more than -g, nor than minus
        its slack, nor than half of their sum.
    dual
        `further` says so.
    near
        What the slack test finds too much is in sum at most epsilon sum_i |c_i| over the 1's of s.
        So c.z <= (1 + epsilon M) c.s for c.s > 0, as with condition (4) in Theorem 1, whose M has
        the 1's of the best z, too; but no one coordinate needs to keep to it.

    All but near, and the seed's with epsilon > 0, are exact.  Where the solution itself is not
    wanted, but the answer to a `Question`, these follow:

    known, search
        The best of the cached solutions, or one that a search from there found, has a value above
        the threshold.
    bound
        No vector has: c.z <= c.s + excess, with slacks, for the s of the newest entry, or of one of
        the best known solution's; or `Question.bound` says so.
    later
        None of the first two, and the solver is not to be called.

    A check takes O(d) for each of the few entries
    of one solution, and O(all ones) to find that solution.

    Parameters
    ----------
    conditions : a name in MODES, or names of conditions
    epsilon : float
        May be changed between queries.
    tau : int
        Of as many answers in a row for one key, at least one is exact: Theorem 3.  0: no such rule.
    cache : Cache, optional
        One of an earlier run, to go on with.
    debug : bool
        Solve every problem, and raise AmortizationError where an answer is not what was promised.

    Queries of several threads at once are safe; the solver runs in all of them.
    """

    def __init__(
        self,
        conditions: str | Iterable[str] = "exact",
        *,
        epsilon: float = 0.0,
        tau: int = 0,
        cache: Cache | None = None,
        debug: bool = False,
    ) -> None:
        if isinstance(conditions, str):
            if conditions not in MODES:
                raise ValueError(f"conditions: one of {', '.join(MODES)}, got {conditions!r}")
            conditions = MODES[conditions]
        self.conditions = frozenset(conditions)
        for name in sorted(self.conditions - CONDITIONS):
            raise ValueError(f"conditions: {name!r} is not one of {', '.join(sorted(CONDITIONS))}")
        if not 0.0 <= epsilon < np.inf:
            raise ValueError(f"epsilon: 0 or more, got {epsilon}")
        if tau < 0:
            raise ValueError(f"tau: 0 or more, got {tau}")
        self.epsilon = epsilon
        self.tau = tau
        self.cache = Cache() if cache is None else cache
        self.debug = debug
        self.statistics = Statistics()
        self._in_a_row: dict[Hashable, int] = {}
        self._lock = Lock()

    def reset(self) -> None:
        """Forget everything."""
        self.cache.clear()
        self.statistics = Statistics()
        self._in_a_row.clear()

    def arrays(self) -> dict[str, np.ndarray]:
        """Cache, counts and rows of answers for a checkpoint, one-dimensional."""
        counts = asdict(self.statistics) | {"hits": dict(self.statistics.hits)}
        return self.cache.arrays() | {"cache_counts": literal((counts, self._in_a_row))}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """To go on as if there had been no interruption."""
        self.cache.restore(arrays)
        counts, self._in_a_row = value_of(arrays["cache_counts"])
        self.statistics = Statistics(**counts | {"hits": Counter(counts["hits"])})

    def solve(
        self,
        key: Hashable,
        costs: np.ndarray,
        solver: Callable[[], Solution],
        *,
        blocks: np.ndarray | None = None,
        strengthen: Callable[[Solution], Solution] = lambda solution: solution,
        further: Callable[[Entry], str | None] = lambda entry: None,
        question: Question | None = None,
    ) -> Answer:
        """A best vector under the costs, or one that is good enough.

        Parameters
        ----------
        key
            Names the set of feasible vectors.
        costs : ndarray of float64, (d,)
            c.  With -inf or NaN the problem is solved and not kept.
        solver
            Called when there is no answer.
        blocks : ndarray of int32, (blocks + 1,), optional
            Coordinates blocks[b]..blocks[b+1]-1, from 0 on, of which every feasible vector has
            exactly one.
        strengthen
            Adds slack and gap to a solution that will be kept.
        further
            One more exact test of an entry, by the name of its condition.
        question
            If this is all that is wanted.
        """
        start = time.thread_time()
        with self._lock:
            answer = self._look_up(key, costs, blocks, further)
        if answer is None and question is not None and np.isfinite(costs).all():
            answer = self._decide(key, costs, blocks, question)
        with self._lock:
            if answer is not None:
                self.statistics.hits[answer.condition] += 1
            self.statistics.queries += 1
            self.statistics.checking += time.thread_time() - start
        if answer is not None:
            if self.debug:
                self._verify(answer, costs, solver(), question)
            return answer
        start = time.thread_time()
        solution = solver()
        solved = time.thread_time()
        keep = solution.optimal and bool(np.isfinite(costs).all())
        if keep:
            solution = strengthen(solution)
        with self._lock:
            s = self.statistics
            s.solved += 1
            s.new += not self.cache.holds(key, solution)
            if keep:
                self.cache.add(key, costs, solution, blocks)
            s.solving += solved - start
            s.checking += time.thread_time() - solved
            self._in_a_row.pop(key, None)
        return Answer(solution, float(costs[solution.ones].sum()))

    def _look_up(
        self,
        key: Hashable,
        costs: np.ndarray,
        blocks: np.ndarray | None,
        further: Callable[[Entry], str | None],
    ) -> Answer | None:
        found = self.cache.best(key, costs) if self.conditions else None
        if found is None:
            return None
        entries, value = found
        nearly: Answer | None = None
        for entry in reversed(entries):
            name, gap = self._test(entry, costs, blocks)
            if name is None:
                continue
            answer = Answer(entry.solution, value, name, gap)
            if gap <= 0.0:
                return self._exact(key, answer)
            if nearly is None or gap < nearly.gap:
                nearly = answer
        for entry in reversed(entries):
            name = further(entry)
            if name is not None:
                return self._exact(key, Answer(entry.solution, value, name))
        if nearly is None:
            return None
        row = self._in_a_row.get(key, 0) + 1
        if row == self.tau:
            self.statistics.forced += 1
            return None
        self._in_a_row[key] = row
        self.statistics.approximate += 1
        return nearly

    def _exact(self, key: Hashable, answer: Answer) -> Answer:
        self._in_a_row.pop(key, None)
        return answer

    def _decide(
        self, key: Hashable, costs: np.ndarray, blocks: np.ndarray | None, question: Question
    ) -> Answer | None:
        """A solution of a value above the threshold, or proof that there is none; else None."""
        with self._lock:
            found = self.cache.best(key, costs)
            newest = self.cache.newest(key)
        best, value, name = None, -np.inf, KNOWN
        if found is not None:
            best, value = found[0][-1].solution, found[1]
        if value <= question.above:
            near = question.search(best)
            reached = float(costs[near.ones].sum()) if near is not None else -np.inf
            if reached > value:
                best, value, name = near, reached, SEARCH
        if best is None:
            return None
        if value > question.above:
            return Answer(best, value, name, np.inf)
        if not question.solve:
            return Answer(best, value, LATER, np.inf)
        ceiling = np.inf
        for entry in dict.fromkeys((newest, *found[0])) if found is not None else ():
            s = entry.solution
            *_, excess = amortize.examine(costs, entry.costs, s.slack, s.ones, blocks, 0.0)
            ceiling = min(ceiling, float(costs[s.ones].sum()) + excess)
        if ceiling > question.above and newest is not None:
            ceiling = min(ceiling, question.bound(newest))
        if ceiling > question.above:
            return None
        return Answer(best, value, BOUND, max(0.0, ceiling - value))

    def _test(
        self, entry: Entry, costs: np.ndarray, blocks: np.ndarray | None
    ) -> tuple[str | None, float]:
        """The first condition that holds, an exact one if any, and the gap that it leaves."""
        s, wanted = entry.solution, self.conditions
        near, plain, half, full = amortize.examine(
            costs, entry.costs, s.slack, s.ones, blocks, self.epsilon
        )
        if not plain < np.inf:
            return None, np.inf
        near = near and SEED in wanted
        if near and (not self.epsilon or plain <= 0.0):
            return SEED, 0.0
        if SHIFT in wanted and plain <= 0.0:
            return SHIFT, 0.0
        if SLACK in wanted and full <= 0.0:
            return SLACK, 0.0
        if MARGIN in wanted and (plain <= s.gap or half <= s.gap / 2):
            return MARGIN, 0.0
        if near:
            return SEED, full
        known = np.abs(costs[s.ones]).sum()
        return (NEAR, full) if NEAR in wanted and full <= self.epsilon * known else (None, np.inf)

    def _verify(
        self, answer: Answer, costs: np.ndarray, solution: Solution, question: Question | None
    ) -> None:
        best = float(costs[solution.ones].sum())
        rounding = 1e-9 * max(1.0, abs(best))
        if question is not None and answer.condition == BOUND and best > question.above + rounding:
            raise AmortizationError(
                f"nothing should be above {question.above}; the solver finds {best}"
            )
        if best - answer.value > answer.gap + rounding:
            raise AmortizationError(
                f"condition {answer.condition}: the cached solution has value {answer.value}, "
                f"at most {answer.gap} from the best; the solver finds {best}"
            )


@dataclass(slots=True)
class Recalled(Result):
    """A result that comes from the cache.

    condition: the test that it passed (`Amortizer`).  Its certificate has the gap that the test
    leaves: none, but for near, and condition (4) with epsilon > 0.  others: other trees that the
    search for this one came to, (n+1,) each, distinct, better ones first.
    """

    condition: str = ""
    others: tuple[np.ndarray, ...] = ()


class Amortized(Engine):
    """Any engine, asked only for trees that the cache cannot give.

    A graph is the problem max c.z with z over its arcs and its parts, one block for the arcs into
    each word.  Graphs with the same arcs, families, tree constraint and root policy share
    solutions, under one `key`: learners pass the number of the example, whose scores change little
    from one pass to the next.  The conditions are those of `Amortizer`; for trees

    slack
        Of a graph without parts, from a dual solution of the tree polytope, computed once for each
        solved problem in O(n^2) and a little more (`cython_ext.amortize.slacks`).  The scores of an
        arc's word and of the sets that it enters bound its own, with equality on the tree; a change
        of the word's own keeps that for the tree's arc, and one comparison for every arc says
        whether it keeps the rest.  With a single root all its arcs may be charged or paid any
        amount, as every tree has one.  For projective trees where the best of them is the best of
        all.
    margin
        g is the gap to the second best tree: O(n) more trees for each solved problem, by the
        engine's own `k_best` if there are parts.  The changes of parts count with the arc that ends
        them, the largest over grandparents and inner siblings (`cython_ext.amortize.reach`).
    dual
        Of a graph with parts that dual decomposition can use: whether the dual soon after the
        multipliers of a cached result equals the tree's score.  By the engine itself if it has
        ``bound(graph, known, multipliers)``, for which ``best(graph, True)`` gives multipliers;
        otherwise dual decomposition finds them for each solved problem.
    search
        Hill climbing from the best cached tree, and from others that are given.
    bound
        Without parts by slacks; with parts by the same dual as above.

    A result with a certificate that leaves a gap is not kept.  An engine without certificates is
    taken at its word: what exact conditions let through is then worse than the best by no more than
    the cached tree was.

    Parameters
    ----------
    engine : Engine
    conditions, epsilon, tau, cache, debug
        As for `Amortizer`.
    """

    def __init__(
        self,
        engine: Engine,
        conditions: str | Iterable[str] = "exact",
        *,
        epsilon: float = 0.0,
        tau: int = 0,
        cache: Cache | None = None,
        debug: bool = False,
    ) -> None:
        self.engine = engine
        self.name = f"amortized {engine.name}"
        self.families = engine.families
        self.constraints = engine.constraints
        self.amortizer = Amortizer(conditions, epsilon=epsilon, tau=tau, cache=cache, debug=debug)
        self._relaxation = engine if hasattr(engine, "bound") else DUAL_DECOMPOSITION

    @property
    def cache(self) -> Cache:
        return self.amortizer.cache

    @property
    def statistics(self) -> Statistics:
        return self.amortizer.statistics

    @property
    def epsilon(self) -> float:
        """Of condition (4); may be changed between graphs."""
        return self.amortizer.epsilon

    @epsilon.setter
    def epsilon(self, value: float) -> None:
        self.amortizer.epsilon = value

    def reset(self) -> None:
        """Forget everything."""
        self.amortizer.reset()

    def solve(
        self,
        graph: ScoredGraph,
        key: Hashable = None,
        *,
        above: float | None = None,
        starts: Sequence[np.ndarray] = (),
        call: bool = True,
    ) -> Result:
        """A best tree: the engine's Result, or one that is `Recalled`.

        With `above`, any tree that scores more will do, and any at all if none does: the gap of its
        certificate is then no more than what is left up to `above`, or infinite if the tree scores
        more.  `starts` are trees to search from.  Without `call` the engine is not asked if there
        is any tree to be returned.

        Errors as the engine's `best`, which a graph with scores of -inf always goes to.
        """
        families = sorted(graph.parts)
        costs = graph.scores
        if families:
            costs = np.concatenate([costs, *(graph.parts[f] for f in families)])
        fresh: list[Result] = []
        met: list[np.ndarray] = []

        by_dual = above is not None or DUAL in self.amortizer.conditions
        own = by_dual and self._relaxation is self.engine

        def solver() -> Solution:
            result = self._relaxation.best(graph, True) if own else self.engine.best(graph)
            fresh.append(result)
            exact = result.certificate is None or result.certificate.optimal
            extra = [result.heads.copy()]
            if own:
                extra.append(result.multipliers.copy())
            return Solution(ones(graph, families, result.heads), optimal=exact, extra=tuple(extra))

        answer = self.amortizer.solve(
            (key, *feasible_set(graph, families)),
            costs,
            solver,
            blocks=graph.arcs.offsets,
            strengthen=lambda solution: self._strengthen(graph, solution, above is not None),
            further=lambda entry: self._further(graph, families, costs, entry, above is None),
            question=None
            if above is None
            else Question(
                above,
                lambda solution: self._search(graph, families, solution, starts, met),
                lambda entry: self._bound(graph, above, entry.solution),
                call,
            ),
        )
        if answer.condition is None:
            return fresh[0]
        return Recalled(
            answer.solution.extra[0].copy(),
            answer.value,
            certificate=Certificate(answer.value, answer.value + answer.gap),
            iterations=0,
            condition=answer.condition,
            others=tuple(met[1:]) if answer.condition == SEARCH else (),
        )

    def best(self, graph: ScoredGraph) -> Result:
        return self.solve(graph)

    def expectations(self, graph: ScoredGraph) -> Result:
        return self.engine.expectations(graph)

    @property
    def has_marginals(self) -> bool:
        return self.engine.has_marginals

    def k_best(self, graph: ScoredGraph, k: int) -> list[Result]:
        return self.engine.k_best(graph, k)

    def calibrated(self, scale: float) -> Engine:
        other = self.engine.calibrated(scale)
        return self if other is self.engine else other

    def _strengthen(self, graph: ScoredGraph, solution: Solution, bounds: bool) -> Solution:
        """With slack, gap and multipliers, as conditions and, if asked for, bounds need them."""
        wanted, heads = self.amortizer.conditions, solution.extra[0]
        if (bounds or SLACK in wanted) and not graph.parts:
            slack = np.empty(len(graph.scores))
            if amortize.slacks(
                graph.heads, graph.modifiers, graph.scores, heads, graph.single_root, slack
            ):
                solution = replace(solution, slack=slack)
        if MARGIN in wanted:
            solution = replace(solution, gap=self._gap(graph, heads))
        usable = graph.parts and set(graph.families) <= self._relaxation.families
        if (bounds or DUAL in wanted) and len(solution.extra) == 1 and usable:
            found = self._relaxation.solve(graph, True)
            if found is not None and found.multipliers is not None:
                solution = replace(solution, extra=(heads, found.multipliers))
        return solution

    def _gap(self, graph: ScoredGraph, heads: np.ndarray) -> float:
        """A tree's score less the second best; inf for the only tree; 0 if there is no telling."""
        scores: Sequence[float]
        if not graph.parts:
            functions = projective if graph.projective else nonprojective
            _, scores = functions.k_best(graph.matrix(), 2, single_root=graph.single_root)
        elif type(self.engine).k_best is not Engine.k_best:
            scores = [result.score for result in self.engine.k_best(graph, 2)]
        else:
            return 0.0
        return max(0.0, float(graph.score(heads) - scores[1])) if len(scores) == 2 else np.inf

    def _search(
        self,
        graph: ScoredGraph,
        families: list[str],
        solution: Solution | None,
        starts: Sequence[np.ndarray],
        met: list[np.ndarray],
    ) -> Solution | None:
        """The best of what hill climbing comes to from these trees; `met` takes all of that."""
        if solution is not None:
            starts = [*starts, solution.extra[0]]
        if not starts or not graph.families <= HILL_CLIMBING.families:
            return None
        climbed = [HILL_CLIMBING.climb(graph, each) for each in starts]
        climbed.sort(key=lambda result: -result.score)
        met += {result.heads.tobytes(): result.heads for result in climbed}.values()
        return Solution(ones(graph, families, met[0]), optimal=False, extra=(met[0],))

    def _bound(self, graph: ScoredGraph, known: float, solution: Solution) -> float:
        """On what trees score, where that is more than is known, by a solution's multipliers."""
        if len(solution.extra) < 2:
            return np.inf
        return self._relaxation.bound(graph, known, solution.extra[1])

    def _further(
        self,
        graph: ScoredGraph,
        families: list[str],
        costs: np.ndarray,
        entry: Entry,
        whole: bool,
    ) -> str | None:
        """whole: with the tests that take long, which a `Question` has its own for."""
        wanted, solution = self.amortizer.conditions, entry.solution
        if MARGIN in wanted and families and solution.gap > 0.0:
            change = costs - entry.costs
            own = change[solution.ones].sum()
            if most(graph, families, change) - own <= solution.gap:
                return MARGIN
        if SLACK in wanted and graph.single_root and solution.slack is not None:
            arcs, tree = graph.arcs, solution.ones
            problem = costs, entry.costs, solution.slack, tree, arcs.offsets, arcs.heads
            if amortize.holds_single_root(*problem):
                return SLACK
        if DUAL in wanted and families and whole:
            value = float(costs[solution.ones].sum())
            if Certificate(value, self._bound(graph, value, solution)).optimal:
                return DUAL
        return None


def feasible_set(graph: ScoredGraph, families: Sequence[str]) -> tuple[Hashable, ...]:
    """What two graphs must have in common so that the same vectors are their trees."""
    arcs, n = graph.arcs, graph.n
    every = len(arcs) == n * n
    return (
        n,
        graph.projective,
        graph.single_root,
        *families,
        None if every else (arcs.heads.tobytes(), arcs.offsets.tobytes()),
        None if graph.pairs is None else graph.pairs.tobytes(),
    )


def ones(graph: ScoredGraph, families: Sequence[str], tree: np.ndarray) -> np.ndarray:
    """Places of a tree's arcs and parts among all of them, the families one after another."""
    places = [graph.fired(LINK, tree)]
    start = len(graph.scores)
    for family in families:
        places.append(start + np.sort(graph.fired(family, tree)))
        start += len(graph.parts[family])
    return np.concatenate(places).astype(np.int32)


def most(graph: ScoredGraph, families: Sequence[str], values: np.ndarray) -> float:
    """A bound from above on the sum of the values, (arcs + parts,), of any tree."""
    ends = np.cumsum([len(graph.scores), *(len(graph.parts[f]) for f in families)])
    link, *parts = np.split(values, ends[:-1])
    of = dict(zip(families, parts, strict=True))
    any_two = sum(np.maximum(of[f], 0.0).sum() for f in (NOCROSS, PAIR) if f in of)
    rest = (of.get(f) for f in (SIB, CHILDSEQ, GRAND, GRANDSIB))
    return float(any_two + amortize.reach(graph.arcs.layout, link, *rest))
