"""Minimum Bayes risk, by enumeration; engines by name with options."""

from __future__ import annotations

import numpy as np
import pytest

from parser.graph import CODES, GraphError, ScoredGraph
from parser.inference import ENGINES, MinimumBayesRisk, find_engine
from parser.trees import enumerate_trees

CASES = [("mst", ()), ("projective", ()), ("sibling", ("childseq",)), ("grandparent", ("grand",))]


@pytest.mark.parametrize(("name", "families"), CASES)
@pytest.mark.parametrize("single_root", [False, True])
def test_no_tree_has_more_expected_correct_heads(name, families, single_root):
    rng = np.random.default_rng(0)
    engine = ENGINES[name]
    kind = engine.constraints == {True}
    for n in (1, 2, 4):
        graph = ScoredGraph.from_matrix(
            2 * rng.normal(size=(n + 1, n + 1)), projective=kind, single_root=single_root
        )
        parts = {f: rng.normal(size=graph.arcs.layout.size(CODES[f])) for f in families}
        graph = ScoredGraph(graph.arcs, graph.scores, kind, single_root, parts)
        every = [
            np.array(t, np.int32)
            for t in enumerate_trees(n, projective=kind, single_root=single_root)
        ]
        for scale in (1.0, 0.3):
            weights = np.exp([scale * graph.score(t) for t in every])
            weights /= weights.sum()

            def correct(tree, weights=weights, every=every):
                return sum(
                    w * (tree[1:] == t[1:]).sum() for w, t in zip(weights, every, strict=True)
                )

            result = MinimumBayesRisk(engine, scale).best(graph)
            assert correct(result.heads) == pytest.approx(max(map(correct, every)), rel=1e-9)
            assert result.score == pytest.approx(graph.score(result.heads))


def test_engines_are_found_by_name_and_options():
    assert find_engine("mst") is ENGINES["mst"]
    assert find_engine("mst:decode=best") is ENGINES["mst"]
    assert find_engine("sibling:decode=mbr").name == "sibling:decode=mbr"
    engine = find_engine("hill-climbing:start=mst,restarts=3")
    assert (engine.start, engine.restarts, engine.seed) == ("mst", 3, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mist", "'mist' is not one of mst, projective"),
        ("mst:restarts=2", "mst has no option 'restarts'; it has decode"),
        ("mst:decode=worst", "decode is best or mbr"),
        ("hill-climbing:restarts=many", "restarts is a whole number, got 'many'"),
        ("hill-climbing:restarts=-1", "restarts: 0 or more"),
        ("hill-climbing:start=top", "start: projective or mst"),
    ],
)
def test_unknown_engines_and_options_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        find_engine(text)


def test_an_engine_without_marginals_has_no_risk_to_minimise():
    with pytest.raises(GraphError, match="engine hill-climbing has no marginals"):
        MinimumBayesRisk(ENGINES["hill-climbing"])
