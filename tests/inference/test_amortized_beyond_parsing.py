"""Amortized inference for two other tasks, which are integer programs: the same core, no trees.

Multi-label classification: which of k labels an item has, with a score for each two labels that
come together.  Entities and relations: a type for each entity of a sentence and a relation, or
none, for each ordered pair, which the types of both must allow.  Learned by structured perceptron
and by a structured SVM with dual coordinate descent (Chang et al. 2015).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, pairwise, permutations, product

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, linprog, milp

from parser.inference.amortized import Amortizer, Solution


@dataclass
class Task:
    """Examples with linear scores c = F w over z in {0, 1}^d, rows @ z <= limits, and blocks.

    features: (examples, d, weights).  gold: (examples, d).
    """

    features: np.ndarray
    gold: np.ndarray
    rows: np.ndarray
    limits: np.ndarray
    blocks: np.ndarray | None = None
    vectors: np.ndarray = field(init=False)  # all feasible ones, for what is not to be timed

    def __post_init__(self):
        self.vectors = enumerate_vectors(self)

    @property
    def size(self):
        return self.gold.shape[1]

    def equalities(self):
        """One row of ones for each block."""
        rows = np.zeros((len(self.blocks) - 1, self.size))
        for b, row in enumerate(rows):
            row[self.blocks[b] : self.blocks[b + 1]] = 1.0
        return rows

    def solve(self, costs):
        """By trying all vectors, where there are many problems to solve."""
        return Solution(
            np.flatnonzero(self.vectors[np.argmax(self.vectors @ costs)]).astype(np.int32)
        )

    def program(self, costs):
        """By the integer program."""
        constraints = [LinearConstraint(self.rows, ub=self.limits)]
        if self.blocks is not None:
            constraints.append(LinearConstraint(self.equalities(), 1.0, 1.0))
        found = milp(
            -costs,
            constraints=constraints,
            integrality=np.ones(self.size),
            bounds=(0, 1),
            options={"mip_rel_gap": 0.0},
        )
        assert found.success
        return Solution(np.flatnonzero(found.x > 0.5).astype(np.int32))

    def strengthen(self, costs, solution):
        """Reduced costs of the linear program, where its optimum is the solution."""
        blocks = self.blocks is not None
        found = linprog(
            -costs,
            A_ub=self.rows,
            b_ub=self.limits,
            A_eq=self.equalities() if blocks else None,
            b_eq=np.ones(len(self.blocks) - 1) if blocks else None,
            bounds=(0, None if blocks else 1),
        )
        if -found.fun - costs[solution.ones].sum() > 1e-9:
            return solution
        slack = np.maximum(found.lower.marginals - found.upper.marginals, 0.0)
        if blocks:
            slack[solution.ones] = 0.0
        return Solution(solution.ones, slack=slack)


def enumerate_vectors(task):
    """All feasible z, by blocks or by bits."""
    if task.blocks is None:
        free = int(np.sqrt(2 * task.size))  # labels; the pairs follow from them
        pairs = list(combinations(range(free), 2))
        labels = np.array(list(product((0.0, 1.0), repeat=free)))
        together = np.array([labels[:, i] * labels[:, j] for i, j in pairs]).T
        return np.hstack([labels, together])
    choices = [range(*ends) for ends in pairwise(task.blocks)]
    vectors = np.zeros((int(np.prod([len(c) for c in choices])), task.size))
    for z, chosen in zip(vectors, product(*choices), strict=True):
        z[list(chosen)] = 1.0
    return vectors[(vectors @ task.rows.T <= task.limits + 1e-9).all(1)]


@cache
def multi_label(labels=4, dimensions=6, examples=25):
    """Items are points; labels and pairs of labels have weights over them."""
    rng = np.random.default_rng(1)
    pairs = list(combinations(range(labels), 2))
    size = labels + len(pairs)
    rows, limits = [], []
    for at, (i, j) in enumerate(pairs, labels):
        for terms, limit in (
            (((at, 1.0), (i, -1.0)), 0.0),
            (((at, 1.0), (j, -1.0)), 0.0),
            (((at, -1.0), (i, 1.0), (j, 1.0)), 1.0),
        ):
            row = np.zeros(size)
            for k, value in terms:
                row[k] = value
            rows.append(row)
            limits.append(limit)
    points = rng.normal(size=(examples, dimensions))
    features = np.zeros((examples, size, labels * dimensions + len(pairs)))
    for i in range(labels):
        features[:, i, i * dimensions : (i + 1) * dimensions] = points
    for at in range(len(pairs)):
        features[:, labels + at, labels * dimensions + at] = 1.0
    task = Task(features, np.zeros((examples, size)), np.array(rows), np.array(limits))
    return labelled(rng, task, noise=0.3)


TYPES = ("person", "location", "organization")
RELATIONS = {"kill": (0, 0), "live in": (0, 1), "work for": (0, 2), "located in": (1, 1)}


@cache
def entity_relation(entities=2, dimensions=5, examples=25):
    """Words are points; types have weights over one, relations over two."""
    rng = np.random.default_rng(2)
    pairs = list(permutations(range(entities), 2))
    relations = len(RELATIONS) + 1  # the last: none
    size = entities * len(TYPES) + len(pairs) * relations
    sizes = [len(TYPES)] * entities + [relations] * len(pairs)
    blocks = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    rows = []
    for start, (i, j) in zip(blocks[entities:], pairs, strict=False):
        for r, ends in enumerate(RELATIONS.values()):
            for entity, kind in zip((i, j), ends, strict=True):
                row = np.zeros(size)
                row[start + r], row[entity * len(TYPES) + kind] = 1.0, -1.0
                rows.append(row)
    words = rng.normal(size=(examples, entities, dimensions))
    features = np.zeros((examples, size, len(TYPES) * dimensions + relations * 2 * dimensions))
    for e in range(entities):
        for t in range(len(TYPES)):
            at = t * dimensions
            features[:, e * len(TYPES) + t, at : at + dimensions] = words[:, e]
    for start, (i, j) in zip(blocks[entities:], pairs, strict=False):
        both = np.hstack([words[:, i], words[:, j]])
        for r in range(relations):
            at = len(TYPES) * dimensions + r * 2 * dimensions
            features[:, start + r, at : at + 2 * dimensions] = both
    gold = np.zeros((examples, size))
    task = Task(features, gold, np.array(rows), np.zeros(len(rows)), blocks)
    return labelled(rng, task, noise=0.3)


def labelled(rng, task, noise):
    """Gold vectors: the best under true weights and some noise."""
    w = rng.normal(size=task.features.shape[2])
    for f, z in zip(task.features, task.gold, strict=True):
        costs = f @ w + noise * rng.normal(size=task.size)
        z[:] = task.vectors[np.argmax(task.vectors @ costs)]
    return task


class Inference:
    """Best vectors of a task's examples through an Amortizer; what is exact is checked to be."""

    def __init__(self, task, amortizer, program=False, slack=False):
        self.task = task
        self.amortizer = amortizer
        self.solver = task.program if program else task.solve
        self.slack = slack

    def best(self, number, costs):
        answer = self.amortizer.solve(
            number,
            costs,
            lambda: self.solver(costs),
            blocks=self.task.blocks,
            strengthen=lambda s: self.task.strengthen(costs, s) if self.slack else s,
        )
        best = (self.task.vectors @ costs).max()
        assert best <= answer.value + answer.gap + 1e-9 * max(1.0, abs(best))
        if not self.amortizer.epsilon:
            assert answer.gap == 0.0
        z = np.zeros(self.task.size)
        z[answer.solution.ones] = 1.0
        return z


def perceptron(task, inference, passes):
    """Structured perceptron; returns the weights and the mistakes of each pass."""
    w = np.zeros(task.features.shape[2])
    mistakes = []
    for _ in range(passes):
        wrong = 0
        for number, (f, gold) in enumerate(zip(task.features, task.gold, strict=True)):
            z = inference.best(number, f @ w)
            wrong += (z != gold).any()
            w = w + (gold - z) @ f
        mistakes.append(wrong)
    return w, mistakes


class StructuredSvm:
    """L2-loss structured SVM by dual coordinate descent, Hamming loss (equations 5 to 10)."""

    def __init__(self, task, inference, c=0.1, delta=0.1):
        self.task, self.inference, self.c, self.delta = task, inference, c, delta
        self.w = np.zeros(task.features.shape[2])
        self.working = [{} for _ in task.gold]  # vector -> [alpha, difference, loss]

    def gradient(self, number, difference, loss):
        total = sum(entry[0] for entry in self.working[number].values())
        return self.w @ difference + total / (2 * self.c) - loss

    def select(self):
        """One pass of inference; how many vectors it added.  (7), (8)"""
        added = 0
        for number, (f, gold) in enumerate(zip(self.task.features, self.task.gold, strict=True)):
            z = self.inference.best(number, f @ self.w + (1.0 - 2.0 * gold))
            difference, loss = (gold - z) @ f, np.abs(gold - z).sum()
            new = z.tobytes() not in self.working[number]
            if new and -self.gradient(number, difference, loss) > self.delta:
                self.working[number][z.tobytes()] = [0.0, difference, loss]
                added += 1
        return added

    def update(self):
        """One pass over the working set; the largest projected gradient before each step.  (10)"""
        largest = 0.0
        for number, entries in enumerate(self.working):
            for entry in entries.values():
                alpha, difference, loss = entry
                slope = self.gradient(number, difference, loss)
                largest = max(largest, abs(slope if alpha > 0.0 else min(slope, 0.0)))
                entry[0] = max(0.0, alpha - slope / (difference @ difference + 0.5 / self.c))
                self.w += (entry[0] - alpha) * difference
        return largest

    def train(self, passes=60):
        for _ in range(passes):
            added = self.select()
            largest = max(self.update() for _ in range(5))
            if not added and largest <= self.delta:
                return self
        raise AssertionError("the stopping condition was not met")

    def dual(self):
        """-D(alpha)."""
        value = -0.5 * self.w @ self.w
        for entries in self.working:
            alphas = np.array([entry[0] for entry in entries.values()])
            losses = np.array([entry[2] for entry in entries.values()])
            value += alphas @ losses - alphas.sum() ** 2 / (4 * self.c)
        return value


tasks = pytest.mark.parametrize("task", [multi_label, entity_relation], ids=lambda t: t.__name__)


@tasks
def test_the_integer_program_finds_the_best_of_all_vectors(task):
    task = task()
    rng = np.random.default_rng(3)
    for _ in range(20):
        costs = rng.normal(size=task.size)
        assert task.program(costs).ones.tolist() == task.solve(costs).ones.tolist()


@tasks
def test_hits_with_epsilon_0_have_the_value_that_the_integer_program_finds(task):
    task = task()
    rng = np.random.default_rng(4)
    for conditions, slack in (("seed", False), ("exact", True)):
        amortizer = Amortizer(conditions, debug=True)  # solves each again, and compares
        inference = Inference(task, amortizer, program=True, slack=slack)
        costs = rng.normal(size=task.size)
        for scale in (0.0, 1e-3, 1e-2):
            for _ in range(12):
                inference.best("walk", costs + scale * rng.normal(size=task.size))
        assert amortizer.statistics.hits["seed"] >= 11
    assert amortizer.statistics.hits["slack"] > 5


@tasks
def test_the_perceptron_makes_the_same_mistakes_with_exact_amortization(task):
    task = task()
    plain, amortized = Amortizer("none"), Amortizer("exact", debug=True)
    w, mistakes = perceptron(task, Inference(task, plain), 12)
    same_w, same_mistakes = perceptron(task, Inference(task, amortized, slack=True), 12)
    np.testing.assert_allclose(w, same_w)
    assert mistakes == same_mistakes
    assert mistakes[-1] < mistakes[0]
    assert amortized.statistics.solved < 0.9 * plain.statistics.solved
    assert plain.statistics.new < 0.6 * plain.statistics.solved


@tasks
def test_the_perceptron_learns_with_epsilon_1_and_calls_the_solver_less(task):
    task = task()
    exact, nearly = Amortizer("seed"), Amortizer("seed", epsilon=1.0)
    perceptron(task, Inference(task, exact), 12)
    _, mistakes = perceptron(task, Inference(task, nearly), 12)
    assert nearly.statistics.share < exact.statistics.share
    assert mistakes[-1] < mistakes[0]


@tasks
def test_the_structured_svm_reaches_its_dual_with_fewer_calls_of_the_solver(task):
    task = task()
    duals, calls = {}, {}
    for name, conditions, epsilon in (
        ("baseline", "none", 0.0),
        ("exact", "exact", 0.0),
        ("0", "seed", 0.0),
        ("0.1", "seed", 0.1),
        ("1", "seed", 1.0),
        ("10", "seed", 10.0),
    ):
        amortizer = Amortizer(conditions, epsilon=epsilon)
        inference = Inference(task, amortizer, slack=conditions == "exact")
        duals[name] = StructuredSvm(task, inference).train().dual()
        calls[name] = amortizer.statistics.solved
    assert duals["exact"] == pytest.approx(duals["baseline"], rel=1e-9)
    assert duals["0"] == pytest.approx(duals["baseline"], rel=1e-9)
    assert duals["0.1"] == pytest.approx(duals["baseline"], rel=0.01)
    assert calls["baseline"] >= calls["0"] > calls["0.1"] > calls["1"] > calls["10"]
    assert calls["exact"] < calls["baseline"]


@tasks
def test_an_adaptive_epsilon_ends_at_the_exact_model(task):
    task = task()
    baseline, adaptive = Amortizer("none"), Amortizer("seed")
    exact = StructuredSvm(task, Inference(task, baseline), delta=0.01).train(500)
    svm = StructuredSvm(task, Inference(task, adaptive), delta=0.01)
    for epsilon in (10.0, 0.1, 0.0):
        adaptive.epsilon = epsilon
        svm.train(500)
    assert svm.dual() == pytest.approx(exact.dual(), rel=0.002)
    assert adaptive.statistics.solved < baseline.statistics.solved


@tasks
def test_of_tau_answers_one_is_exact_and_so_the_dual_is_that_of_the_exact_model(task):
    task = task()
    exact = StructuredSvm(task, Inference(task, Amortizer("none")), delta=0.01).train(500)
    amortizer = Amortizer("seed", epsilon=1.0, tau=5)
    svm = StructuredSvm(task, Inference(task, amortizer), delta=0.01)
    for _ in range(5):  # five passes that add nothing, of which one was exact for each example
        svm.train(500)
    assert svm.dual() == pytest.approx(exact.dual(), rel=0.002)
    assert amortizer.statistics.share < 0.5


@tasks
def test_the_cache_of_an_earlier_run_saves_calls_with_another_c(task):
    task = task()
    first = Amortizer("seed", epsilon=0.1)
    StructuredSvm(task, Inference(task, first), c=0.1).train()
    fresh = Amortizer("seed", epsilon=0.1)
    StructuredSvm(task, Inference(task, fresh), c=0.05).train()
    forwarded = Amortizer("seed", epsilon=0.1, cache=first.cache)
    StructuredSvm(task, Inference(task, forwarded), c=0.05).train()
    assert forwarded.statistics.solved < fresh.statistics.solved
