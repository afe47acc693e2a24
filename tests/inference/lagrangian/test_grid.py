"""Grids as two trees against all labellings and the linear program of the local polytope."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from parser.inference.lagrangian import subgradient
from tests.inference.lagrangian.bounds import assert_bounds, linear_relaxation
from tests.inference.lagrangian.grid import Field, combs, grid_edges, two_trees

SHAPES = [(3, 3, 2), (2, 3, 3)]  # rows, columns, labels


def random_field(seed: int, rows: int = 3, columns: int = 3, labels: int = 2) -> Field:
    rng = np.random.default_rng(seed)
    pairs = {edge: rng.normal(size=(labels, labels)) for edge in grid_edges(rows, columns)}
    return Field(0.3 * rng.normal(size=(rows * columns, labels)), pairs)


def attractive_field(seed: int) -> Field:
    """Neighbours gain by being equal."""
    rng = np.random.default_rng(seed)
    pairs = {edge: rng.uniform(0, 1) * np.eye(2) for edge in grid_edges(3, 3)}
    return Field(0.7 * rng.normal(size=(9, 2)), pairs)


def frustrated_field() -> Field:
    """Around the first square three edges gain by equal labels, and one loses."""
    pairs = {edge: np.zeros((2, 2)) for edge in grid_edges(3, 3)}
    for edge, gain in {(0, 1): 1.0, (0, 3): 1.0, (1, 4): 1.0, (3, 4): -1.0}.items():
        pairs[edge] = gain * np.eye(2)
    return Field(np.zeros((9, 2)), pairs)


def local_polytope(field: Field) -> float:
    """max theta . mu; mu of a node sums to 1, and mu of an edge to those of its nodes."""
    nodes, k = field.unary.shape
    width = nodes * k + len(field.pairs) * k * k
    rows, right = [], []
    for i in range(nodes):
        rows.append(np.zeros(width))
        rows[-1][i * k : (i + 1) * k] = 1.0
        right.append(1.0)
    for e, edge in enumerate(field.pairs):
        places = nodes * k + e * k * k + np.arange(k * k).reshape(k, k)
        for node, table in zip(edge, (places, places.T), strict=True):
            for label in range(k):
                rows.append(np.zeros(width))
                rows[-1][table[label]] = 1.0
                rows[-1][node * k + label] = -1.0
                right.append(0.0)
    theta = np.concatenate([field.unary.ravel(), *(t.ravel() for t in field.pairs.values())])
    found = linprog(-theta, A_eq=np.array(rows), b_eq=right)
    assert found.status == 0, found.message
    return -found.fun


@pytest.mark.parametrize(("rows", "columns", "labels"), SHAPES)
def test_the_trees_cover_the_grid_and_their_best_labels_are_best(rows, columns, labels):
    field = random_field(0, rows, columns, labels)
    every, trees = field.labellings(), combs(field, columns)
    scores = [tree.score(every) for tree in trees]
    np.testing.assert_allclose(sum(scores), field.score(every), atol=1e-12)
    u = np.random.default_rng(1).normal(size=field.unary.shape)
    for tree, plain in zip(trees, scores, strict=True):
        assert len(tree.pairs) == rows * columns - 1
        found = plain + u[np.arange(len(u)), every].sum(axis=1)
        value, shared, best = tree.best(u)
        assert value == pytest.approx(found.max(), abs=1e-12)
        np.testing.assert_array_equal(best, every[found.argmax()])
        np.testing.assert_array_equal(shared.argmax(axis=1), best)


@pytest.mark.parametrize(("rows", "columns", "labels"), SHAPES)
@pytest.mark.parametrize("seed", range(10))
def test_bounds_hold_and_certificates_are_right(rows, columns, labels, seed):
    field = random_field(seed, rows, columns, labels)
    outcome = subgradient(two_trees(field, columns), np.zeros(field.unary.shape), iterations=100)
    assert_bounds(outcome, field.score(field.labellings()).max())
    assert field.score(outcome.solution) == outcome.primal


@pytest.mark.parametrize("seed", range(10))
def test_attractive_grids_are_tight(seed):
    field = attractive_field(seed)
    optimum = field.score(field.labellings()).max()
    assert local_polytope(field) == pytest.approx(optimum, rel=1e-9)
    outcome = subgradient(two_trees(field, 3), np.zeros((9, 2)))
    assert_bounds(outcome, optimum)
    assert outcome.certified


@pytest.mark.parametrize("seed", range(20))
def test_certified_where_the_local_polytope_is_tight_and_nowhere_else(seed):
    field = random_field(seed)
    tight = local_polytope(field) <= field.score(field.labellings()).max() + 1e-9
    outcome = subgradient(two_trees(field, 3), np.zeros((9, 2)), iterations=100)
    assert outcome.certified == tight


@pytest.mark.parametrize("field", [random_field(5), random_field(13), frustrated_field()])
def test_the_least_dual_is_the_value_of_the_local_polytope(field):
    value = local_polytope(field)
    trees, every = combs(field, 3), field.labellings()
    vectors = np.eye(2)[every].reshape(len(every), -1)
    of_trees = linear_relaxation([tree.score(every) for tree in trees], [vectors, -vectors])
    assert of_trees == pytest.approx(value, rel=1e-9)
    outcome = subgradient(two_trees(field, 3), np.zeros((9, 2)))
    assert value - 1e-9 <= outcome.dual <= value + 0.02


def test_a_frustrated_square_leaves_a_gap():
    field = frustrated_field()
    assert local_polytope(field) == pytest.approx(3.0)
    outcome = subgradient(two_trees(field, 3), np.zeros((9, 2)), iterations=300)
    assert_bounds(outcome, 2.0)
    assert not outcome.certified
    assert outcome.primal == 2.0
    assert outcome.dual == pytest.approx(3.0, abs=0.01)
