"""Candidate arcs of a scored graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parser.graph import GraphError, ScoredGraph, all_arcs
from parser.inference import ENGINES


def test_all_arcs_are_modifier_major_with_heads_ascending():
    arcs = all_arcs(3)
    pairs = list(zip(arcs.heads.tolist(), arcs.modifiers.tolist(), strict=True))
    assert pairs == [(h, m) for m in (1, 2, 3) for h in range(4) if h != m]
    assert arcs.offsets.tolist() == [0, 3, 6, 9]


def test_what_will_not_fit_is_refused_with_its_size():
    with pytest.raises(GraphError, match=r"20000 words have 400000000 candidate arcs.*14\.9 GiB"):
        all_arcs(20_000)


def test_a_matrix_comes_back_with_forbidden_arcs_left_out():
    rng = np.random.default_rng(0)
    for n in (1, 2, 7):
        matrix = rng.normal(size=(n + 1, n + 1))
        matrix[rng.random(matrix.shape) < 0.3] = -np.inf
        graph = ScoredGraph.from_matrix(matrix)
        expected = matrix.copy()
        expected[:, 0] = -np.inf
        np.fill_diagonal(expected, -np.inf)
        np.testing.assert_array_equal(graph.matrix(), expected)
        assert len(graph.arcs.offsets) == n + 1
        for m in range(1, n + 1):
            arcs = slice(graph.arcs.offsets[m - 1], graph.arcs.offsets[m])
            assert (graph.modifiers[arcs] == m).all()
            assert (np.diff(graph.heads[arcs]) > 0).all()
        np.testing.assert_array_equal(graph.gather(graph.matrix()), graph.scores)


def test_the_indicator_marks_the_arcs_of_a_tree():
    graph = ScoredGraph.from_matrix(np.zeros((4, 4)))
    tree = np.array([-1, 2, 0, 2], np.int32)
    marked = graph.indicator(tree)["link"] == 1
    assert set(
        zip(graph.heads[marked].tolist(), graph.modifiers[marked].tolist(), strict=True)
    ) == {
        (2, 1),
        (0, 2),
        (2, 3),
    }


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.zeros((3, 4)), r"got \(3, 4\)"),
        (np.full((3, 3), np.nan), r"arc_scores\[0, 1\] is nan"),
        (np.full((3, 3), np.inf), r"arc_scores\[0, 1\] is inf"),
    ],
)
def test_bad_scores_are_named(scores, message):
    with pytest.raises(GraphError, match=message):
        ScoredGraph.from_matrix(scores)


def test_an_engine_refuses_what_it_cannot_use_and_names_both():
    graph = ScoredGraph.from_matrix(np.zeros((3, 3)))
    with pytest.raises(GraphError, match="engine projective cannot keep to non-projective"):
        ENGINES["projective"].best(graph)
    with pytest.raises(GraphError, match="engine mst cannot use the factor family grand"):
        ENGINES["mst"].best(replace(graph, parts={"grand": np.zeros(len(graph.index("grand").T))}))


@pytest.mark.parametrize(("name", "count"), [("mst", 64), ("projective", 30)])
def test_engines_agree_with_each_other_on_one_graph(name, count):
    engine = ENGINES[name]
    graph = ScoredGraph.from_matrix(np.zeros((5, 5)), projective=name == "projective")
    expected = engine.expectations(graph)
    assert np.exp(expected.log_z) == pytest.approx(count)
    assert expected.marginals.sum() == pytest.approx(4)
    assert len(engine.k_best(graph, 1000)) == count
    best = engine.best(graph)
    assert best.certificate.gap == 0
