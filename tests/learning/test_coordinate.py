"""The kernel of coordinate descent against the same in numpy."""

from __future__ import annotations

import numpy as np
import pytest

from cython_ext import coordinate

SIZE = 300


def vector(rng, size):
    places = rng.permutation(SIZE)[:size].astype(np.int32)
    return places, rng.normal(size=size).astype(np.float32)


def dense(places, values):
    out = np.zeros(SIZE)
    out[places] = values
    return out


@pytest.mark.parametrize("size", [0, 1, 3, 4, 31, 37, 130])
def test_products_and_sums_are_those_of_dense_vectors(size):
    rng = np.random.default_rng(size)
    phi, w = vector(rng, size), rng.normal(size=SIZE)
    assert coordinate.dot(*phi, w) == pytest.approx(w @ dense(*phi), abs=1e-12)
    expected = w + 0.7 * dense(*phi)
    coordinate.add(*phi, 0.7, w)
    np.testing.assert_allclose(w, expected, atol=1e-15)


@pytest.mark.parametrize("alpha", [0.0, 0.01, 5.0])
@pytest.mark.parametrize("both", [False, True])
def test_a_step_minimises_a_quadratic_above_zero(alpha, both):
    rng = np.random.default_rng(7)
    for _ in range(20):
        phi, w, offset = vector(rng, 40), rng.normal(size=SIZE), rng.normal(scale=3.0)
        old, rounded = w.copy(), w.astype(np.float32)
        curvature = float(dense(*phi) @ dense(*phi)) + 0.5
        new, gradient = coordinate.step(
            *phi, w, rounded if both else None, alpha, offset, curvature
        )
        assert gradient == pytest.approx(old @ dense(*phi) + offset)
        steps = np.linspace(0.0, alpha + 5.0, 2001) - alpha
        lowest = (gradient * steps + curvature * steps**2 / 2).min()
        change = new - alpha
        assert new >= 0.0
        assert gradient * change + curvature * change**2 / 2 <= lowest + 1e-12
        np.testing.assert_allclose(w, old + change * dense(*phi), atol=1e-12)
        expected = w if both else old
        np.testing.assert_array_equal(rounded, expected.astype(np.float32))


def test_places_outside_and_lengths_that_differ_are_refused():
    w, values = np.zeros(SIZE), np.ones(2, np.float32)
    for places in ([0, SIZE], [-1, 3]):
        with pytest.raises(ValueError, match="a place is not in w"):
            coordinate.dot(np.array(places, np.int32), values, w)
    with pytest.raises(ValueError, match="as many values as places"):
        coordinate.add(np.array([1], np.int32), values, 1.0, w)
    places = np.array([1, 2], np.int32)
    with pytest.raises(ValueError, match="two lengths"):
        coordinate.step(places, values, w, np.zeros(3, np.float32), 0.0, 1.0, 1.0)
