"""Learners: updates against definitions, gradients against finite differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from parser.features import Vocabulary
from parser.graph import LINK
from parser.learning import LEARNERS, Example
from parser.learning.learners import gram, hildreth
from parser.learning.weights import Weights
from parser.model import Settings, make_scorer
from parser.treebank import projective, read_all
from parser.trees import is_tree

# Where beliefs are the derivatives of Bethe log Z.
FIXED_POINT = "bp:iterations=500,tolerance=1e-12"
SECOND_ORDER = ("link", "childseq", "grand", "grandsib")


@pytest.fixture(scope="module")
def sentences(english):
    return [s for s in read_all([english]) if len(s) <= 12][:30]


def learner_for(sentences, jobs=1, **settings):
    defaults = {"projective": False, "factors": ("link",)}
    chosen = Settings(bits=14, single_root=True, **{**defaults, **settings})
    scorer = make_scorer(Vocabulary.build(sentences), chosen)
    learner = LEARNERS[chosen.learner](scorer, chosen.make_engine(), chosen, jobs)
    return learner, [Example(scorer.vocabulary.encode(s), s.heads) for s in sentences]


@pytest.mark.parametrize(
    ("kind", "factors", "engine"),
    [
        (False, ("link",), ""),
        (True, ("link",), ""),
        (True, ("link", "childseq"), ""),
        (True, ("link", "childseq", "grand", "grandsib"), ""),
        (False, ("link", "childseq", "grand"), FIXED_POINT),
        (False, ("link", "sib", "nocross"), FIXED_POINT),
        (True, ("link", "sib", "grand"), FIXED_POINT),
    ],
    ids=str,
)
def test_the_crf_gradient_is_the_derivative_of_log_p(sentences, kind, factors, engine):
    learner, examples = learner_for(
        sentences, learner="crf", projective=kind, factors=factors, engine=engine
    )
    rng = np.random.default_rng(0)
    table = learner.weights.table
    spread = 0.06 if engine else 0.3  # with large scores there may be no fixed point
    table[:] = rng.normal(scale=spread, size=table.shape)
    example = next(e for e in examples if len(e.heads) - 1 >= 8)

    def log_p():
        _, graph = learner.score(example)
        found = learner.engine.expectations(graph)
        assert found.converged
        return graph.score(example.heads) - found.log_z

    loss, (rows, values) = learner.ascent(example)
    np.testing.assert_allclose(loss, -log_p(), rtol=1e-12)
    # Weights are float32, so the difference is taken along a direction with many of them.
    start = table.copy()
    direction = np.zeros_like(table)
    direction[rows] = rng.normal(size=(len(rows), table.shape[1]))
    step = 2.0**-11
    table[:] = start + step * direction
    above = log_p()
    table[:] = start - step * direction
    below = log_p()
    slope = float((values.astype(np.float64) * direction[rows]).sum())
    np.testing.assert_allclose((above - below) / (2 * step), slope, rtol=2e-3)


@pytest.mark.parametrize("cap", [True, False])
def test_a_crf_passes_over_a_gold_tree_with_probability_above_one(sentences, cap):
    learner, examples = learner_for(sentences, learner="crf", bethe_cap=cap)
    engine, above = learner.engine, [np.log(2), 1e-5, 0.0, -1.0]

    class Approximate:
        """The exact marginals, and a log Z that gives the gold tree log p = `above`."""

        def expectations(self, graph):
            return replace(engine.expectations(graph), log_z=graph.score(example.heads) - log_p)

    learner.engine = Approximate()
    for example, log_p in zip(examples, above, strict=False):
        loss, (rows, values) = learner.ascent(example)
        np.testing.assert_allclose(loss, -log_p, atol=1e-9)
        assert len(rows) == len(values)
        assert (len(rows) == 0) == (cap and log_p > 0)
        before = learner.weights.table.copy()
        learner.step([example])
        assert (learner.weights.table == before).all() == (cap and log_p > 0)


def test_weights_of_parts_move_by_a_share_of_the_rate(sentences):
    def dense(learner, gradient):
        table = np.zeros_like(learner.weights.table)
        table[gradient[0]] = gradient[1]
        return table

    def steps(share):
        learner, examples = learner_for(
            sentences, learner="crf", projective=True, factors=SECOND_ORDER, part_rate=share
        )
        encoding, graph = learner.score(examples[0])
        gold = graph.indicator(examples[0].heads)
        off = {LINK: gold[LINK] - learner.engine.expectations(graph).marginals}
        arcs = {family: off.get(family, np.zeros_like(v)) for family, v in gold.items()}
        return [
            dense(learner, gradient)
            for gradient in (
                learner.ascent(examples[0])[1],
                learner.gradient(encoding, graph, arcs),
            )
        ]

    (whole, arcs), (some, _) = steps(1.0), steps(0.25)
    assert np.abs(whole - arcs).max() > 0.1
    np.testing.assert_allclose(some - arcs, 0.25 * (whole - arcs), atol=1e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize("jobs", [1, 3])
def test_a_crf_step_takes_the_sum_of_the_gradients_of_a_batch(sentences, optimizer, jobs):
    learner, examples = learner_for(
        sentences, learner="crf", optimizer=optimizer, jobs=jobs, rate=0.25, batch=5
    )
    table = learner.weights.table
    table[:] = np.random.default_rng(0).normal(scale=0.1, size=table.shape)
    start, batch = table.copy(), examples[:5]
    total, losses = np.zeros_like(start), []
    for example in batch:
        loss, (rows, values) = learner.ascent(example)
        total[rows] += values
        losses.append(loss)
    step = total if optimizer == "sgd" else total / (np.abs(total) + 1e-6)
    assert learner.step(batch) == pytest.approx(sum(losses), rel=1e-12)
    np.testing.assert_allclose(table, start + 0.25 * step, rtol=1e-4, atol=1e-5)
    assert learner.weights.steps == 6


def test_sums_of_gradients_have_distinct_rows():
    rng = np.random.default_rng(0)
    weights = Weights(8)
    for size in (1, 2, 7):
        dense = np.zeros_like(weights.table)
        gradients = []
        for _ in range(size):
            rows = rng.choice(256, 60, replace=False)
            values = rng.normal(size=(60, 16)).astype(np.float32)
            dense[rows] += values
            gradients.append((rows, values))
        rows, values = weights.total(gradients)
        assert len(np.unique(rows)) == len(rows)
        np.testing.assert_array_equal(values, dense[rows])
        assert not np.delete(dense, rows, axis=0).any()


@pytest.mark.parametrize("size", [1, 4, 12])
def test_the_penalty_is_paid_for_each_sentence(sentences, monkeypatch, size):
    learner, examples = learner_for(sentences, learner="crf", l2=0.05, rate=0.5, batch=size)
    nothing = np.empty(0, np.int64), np.empty((0, 16), np.float32)
    monkeypatch.setattr(learner, "ascent", lambda _: (0.0, nothing))
    monkeypatch.setattr(learner, "DECAY_STEPS", 5)
    learner.weights.table[:] = 1
    for first in range(0, 12, size):
        learner.step(examples[first : first + size])
    np.testing.assert_allclose(learner.weights.table, (1 - 0.05 * 0.5) ** 10, rtol=1e-5)


@pytest.mark.parametrize("recency", [0.0, 0.5, 2.0])
def test_averaging_equals_the_weighted_mean_of_all_states(recency):
    rng = np.random.default_rng(0)
    weights = Weights(8, recency)
    states = []
    for step in range(20):
        if step % 3:  # some steps change nothing, and count all the same
            rows = rng.choice(256, 5, replace=False)
            weights.add((rows, rng.normal(size=(5, 16)).astype(np.float32)), 0.5)
        if step == 11:
            weights.decay(0.9)
        weights.steps += 1
        states.append(weights.table.copy())
    states.insert(0, np.zeros_like(states[0]))  # before the first step
    counts = np.diff(np.arange(len(states) + 1) ** (recency + 1))
    mean = np.average(states, axis=0, weights=counts)
    average = weights.average(1.0)
    dense = np.zeros_like(mean)
    dense[average.rows] = average.values
    np.testing.assert_allclose(dense, mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("k", [1, 4])
def test_hildreth_solves_the_quadratic_program(k):
    rng = np.random.default_rng(k)
    for _ in range(20):
        vectors = rng.normal(size=(k, 6))
        g, v = vectors @ vectors.T, rng.uniform(0.1, 2, size=k)
        a = hildreth(g, v, 0.5)
        found = minimize(
            lambda x, g=g, v=v: x @ g @ x / 2 - x @ v,
            np.full(k, 0.1),
            jac=lambda x, g=g, v=v: g @ x - v,
            bounds=[(0, 0.5)] * k,
            method="L-BFGS-B",
            options={"ftol": 1e-14, "gtol": 1e-10},
        )
        np.testing.assert_allclose(a @ g @ a / 2 - a @ v, found.fun, rtol=1e-5, atol=1e-7)


def test_inner_products_of_sparse_vectors():
    rng = np.random.default_rng(0)
    dense = np.zeros((3, 40, 16), np.float32)
    sparse = []
    for vector in dense:
        rows = rng.choice(40, 15, replace=False)
        vector[rows] = rng.normal(size=(15, 16))
        sparse.append((rows.astype(np.int64), vector[rows]))
    flat = dense.reshape(3, -1).astype(np.float64)
    np.testing.assert_allclose(gram(sparse), flat @ flat.T, rtol=1e-6)


@pytest.mark.parametrize("k", [1, 3])
def test_a_mira_step_satisfies_its_margin_when_the_ceiling_is_high(sentences, k):
    learner, examples = learner_for(sentences, learner="mira", k=k, aggressiveness=1e6)
    for example in examples[:8]:
        _, before = learner.score(example)
        gold = before.indicator(example.heads)
        augmented = replace(before, scores=before.scores + 1 - gold[LINK])
        trees = [r.heads for r in learner.engine.k_best(augmented, k)]
        learner.step([example])
        _, after = learner.score(example)
        for tree in trees:
            margin = after.score(example.heads) - after.score(tree)
            assert margin >= (tree != example.heads).sum() - 1e-2


def test_without_weights_the_augmented_tree_has_every_head_wrong(sentences):
    learner, examples = learner_for(sentences, learner="mira")
    for example in [e for e in examples if len(e.heads) - 1 >= 4][:8]:
        _, graph = learner.score(example)
        gold = graph.indicator(example.heads)[LINK]
        worst = learner.engine.best(replace(graph, scores=1 - gold)).heads
        assert is_tree(worst.tolist())
        assert (worst != example.heads).sum() == len(example.heads) - 1


@pytest.mark.parametrize(
    "settings",
    [
        {"learner": "perceptron"},
        {"learner": "mira"},
        {"learner": "mira", "k": 4},
        {"learner": "crf", "rate": 0.05},
        {"learner": "crf", "optimizer": "adagrad"},
        {"learner": "crf", "rate": 0.05, "l2": 1e-4},
        {"learner": "mira", "projective": True},
        {"learner": "crf", "rate": 0.05, "projective": True},
        {"learner": "mira", "projective": True, "factors": SECOND_ORDER},
        {"learner": "mira", "projective": True, "factors": SECOND_ORDER, "k": 3},
        {"learner": "crf", "rate": 0.02, "projective": True, "factors": SECOND_ORDER},
        {"learner": "perceptron", "factors": SECOND_ORDER},
        {"learner": "mira", "factors": ("link", "sib", "grand", "nocross")},
        {"learner": "mira", "factors": SECOND_ORDER, "templates": "smith-eisner"},
    ],
    ids=str,
)
def test_every_learner_fits_its_training_trees(sentences, settings):
    if settings.get("projective"):  # trees that the engine can make
        sentences = [s for s in sentences if projective(s.heads)]
    learner, examples = learner_for(sentences, **settings)
    first = sum(learner.step([e]) for e in examples)
    for _ in range(12):
        learner.end_epoch()
        last = sum(learner.step([e]) for e in examples)
    assert last < 0.2 * first
    wrong = words = 0
    for example in examples:
        tree = learner.engine.best(learner.score(example)[1]).heads
        wrong += int((tree != example.heads).sum())
        words += len(example.heads) - 1
    assert wrong <= 0.03 * words


def test_the_largest_rows_stay():
    weights = Weights(8)
    weights.table[:40, 3] = np.arange(1, 41) * np.where(np.arange(40) % 2, 1, -1)
    kept = weights.average(0.25)
    assert kept.rows.tolist() == list(range(30, 40))
    np.testing.assert_array_equal(kept.values, weights.table[30:40])
    assert weights.average(1.0).rows.tolist() == list(range(40))
    assert not len(weights.average(0.0).rows)
