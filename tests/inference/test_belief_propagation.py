"""Belief propagation against explicit tables, enumeration and finite differences."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from parser.graph import (
    CHILDSEQ,
    GRAND,
    GRANDSIB,
    LINK,
    NOCROSS,
    PAIR,
    SIB,
    GraphError,
    ScoredGraph,
)
from parser.inference import BeliefPropagation, NoTreeError, find_engine
from parser.inference.engine import Result
from parser.inference.first_order import MST, PROJECTIVE
from tests.inference.factor_graph import (
    FactorGraph,
    head_bp,
    into,
    normalised,
    random_graph,
    table_bp,
    trees_of,
)

FAMILIES = (GRAND, SIB, PAIR, CHILDSEQ, NOCROSS)
LOCAL = FAMILIES[:4]
MODELS = [(), *((family,) for family in FAMILIES), LOCAL, FAMILIES]
LOOSE = ["exactly1", "atmost1", "not2", "none"]
CONSTRAINTS = ["tree", *LOOSE, *(constraint + "+no2cycle" for constraint in LOOSE)]
SHAPES = [(2, None), (3, None), (3, 5), (4, 9)]  # words, arcs; of few arcs some words have one
ENDLESS = {"iterations": 5000, "tolerance": 1e-13}


def kinds_of(constraint: str) -> list[dict[str, bool]]:
    kinds = [(False, True), (False, False), (True, True), (True, False)]
    return [
        {"projective": projective, "single_root": single_root}
        for projective, single_root in kinds[: 4 if constraint == "tree" else 1]
    ]


def assert_agree(found: Result, table: FactorGraph, log_z: float, atol: float = 1e-9) -> None:
    np.testing.assert_allclose(found.marginals, table.beliefs(), atol=atol)
    assert found.log_z == pytest.approx(table.bethe(), **{"rel": log_z, "abs": log_z})
    for family, beliefs in found.part_marginals.items():
        wanted = table.part_beliefs(family, len(beliefs))
        np.testing.assert_allclose(beliefs, wanted, atol=atol, err_msg=family)


def log_odds(engine: BeliefPropagation, graph: ScoredGraph, into_tree: bool = False) -> np.ndarray:
    """Of the beliefs, or of what comes into the tree factor."""
    messages, _ = engine._propagate(graph)
    messages.log_odds(out := np.empty(len(graph.scores)), into_tree)
    return out


@pytest.mark.parametrize("schedule", ["serial", "parallel"])
@pytest.mark.parametrize("families", MODELS, ids="+".join)
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_messages_are_those_of_explicit_tables(schedule, families, constraint):
    """After 1, 2 and 5 iterations; joined NOCROSS, which diverges, after 1, 2 and 3."""
    options = {"schedule": schedule, "constraint": constraint, "tolerance": 0.0}
    at = (1, 2, 3) if NOCROSS in families else (1, 2, 5)
    for (n, arcs), kind in [(shape, kind) for shape in SHAPES for kind in kinds_of(constraint)]:
        graph = random_graph(np.random.default_rng(n), n, families, arcs=arcs, **kind)
        if PAIR in families and arcs is not None:  # besides, pairs may go by odds
            graph.parts[PAIR][0] = -np.inf
        table = table_bp(graph, constraint)
        for done in table.passes(schedule):
            if done in at:
                engine = BeliefPropagation(done, nocross="joined", **options)
                found = engine.expectations(graph)
                assert found.iterations == done
                # The message of an only head is the cap, 1e6, which costs log Z six digits.
                assert_agree(found, table, log_z=1e-9 if arcs is None else 1e-7)
            if done == at[-1]:
                break


@pytest.mark.parametrize("schedule", ["serial", "parallel"])
@pytest.mark.parametrize("families", MODELS, ids="+".join)
@pytest.mark.parametrize("constraint", ["tree", *LOOSE])
@pytest.mark.parametrize(("product", "damping"), [("max", 0.0), ("sum", 0.4)])
def test_max_product_and_damping_are_those_of_tables(
    schedule, families, constraint, product, damping
):
    options = {"schedule": schedule, "constraint": constraint, "product": product}
    for kind in kinds_of(constraint):
        graph = random_graph(np.random.default_rng(1), 3, families, **kind)
        table = table_bp(graph, constraint, product == "max")
        table.run(2, schedule, damping)
        engine = BeliefPropagation(2, damping=damping, tolerance=0.0, nocross="joined", **options)
        found = engine.expectations(graph)
        np.testing.assert_allclose(found.marginals, table.beliefs(), atol=1e-9)
        assert found.log_z == pytest.approx(table.bethe(), abs=1e-9)


@pytest.mark.parametrize("schedule", ["serial", "parallel"])
@pytest.mark.parametrize("families", [(PAIR,), LOCAL], ids="+".join)
@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize(("strong", "product"), [(False, "sum"), (True, "sum"), (True, "max")])
def test_damping_of_pairs_is_that_of_tables(schedule, families, constraint, strong, product):
    """By odds and, with a pair that is forbidden, by log-odds."""
    options = {"schedule": schedule, "constraint": constraint, "product": product}
    for kind in kinds_of(constraint):
        graph = random_graph(np.random.default_rng(2), 3, families, **kind)
        if strong:
            graph.parts[PAIR][0] = -np.inf
        table = table_bp(graph, constraint, product == "max")
        table.run(3, schedule, 0.0, 0.3)
        found = BeliefPropagation(3, pair_damping=0.3, tolerance=0.0, **options).expectations(graph)
        np.testing.assert_allclose(found.marginals, table.beliefs(), atol=1e-9)
        assert found.log_z == pytest.approx(table.bethe(), abs=1e-9)


@pytest.mark.parametrize("scale", [30.0, 1e3, 1e4])
@pytest.mark.parametrize("families", MODELS[1:], ids="+".join)
@pytest.mark.parametrize("constraint", LOOSE)
def test_messages_of_large_scores_are_those_of_explicit_tables(scale, families, constraint):
    for n, arcs in SHAPES[1:]:
        graph = random_graph(np.random.default_rng(n), n, families, arcs=arcs, scale=scale)
        table = table_bp(graph, constraint)
        table.run(2, "serial")
        engine = BeliefPropagation(2, constraint=constraint, nocross="joined", tolerance=0.0)
        log_z = 1e-9 if arcs is None else 1e-7
        assert_agree(engine.expectations(graph), table, log_z, atol=1e-7)


SURE = [(False, 10.0), (True, 10.0), (True, 40.0)]


@pytest.mark.parametrize("projective", [False, True])
@pytest.mark.parametrize("size", [10.0, 20.0, 40.0, 800.0])
def test_the_tree_factor_tells_what_is_nearly_certain(projective, size):
    """Of two words there are two trees: 0 -> 2 -> 1 is e^size times as likely as 0 -> 1 -> 2.

    The non-projective factor's messages have 16 digits after the point of a probability.
    """
    graph = ScoredGraph.from_matrix(np.zeros((3, 3)), projective=projective)
    likely = graph.heads == np.array([-1, 2, 0])[graph.modifiers]
    graph = replace(graph, scores=np.where(likely & (graph.heads == 2), size, 0.0))
    found = log_odds(BeliefPropagation(), graph)
    if projective or size <= 20.0:
        np.testing.assert_allclose(found, np.where(likely, size, -size), rtol=1e-6)
    else:
        assert (found[likely] > 35.0).all()
        assert (found[~likely] < -35.0).all()


@pytest.mark.parametrize("damping", [0.0, 1e-300], ids=["odds", "log-odds"])
def test_messages_of_crossing_heads_are_those_of_tables_over_heads(damping):
    """With a variable for each word's head; NOCROSS and the tree factor know no other."""
    options = {"damping": damping, "tolerance": 0.0}
    for n, arcs in [*SHAPES, (4, None), (5, 14)]:
        for kind in kinds_of("tree"):
            graph = random_graph(np.random.default_rng(n), n, (NOCROSS,), arcs=arcs, **kind)
            table = head_bp(graph)
            for done in table.passes("serial"):
                found = BeliefPropagation(done, **options).expectations(graph)
                np.testing.assert_allclose(found.marginals, table.beliefs(), atol=1e-9)
                if done == 5:
                    break
            for constraint in ("tree", "exactly1"):
                table = head_bp(graph, constraint)
                table.run(100, "parallel")
                engine = BeliefPropagation(damping=damping, constraint=constraint, **ENDLESS)
                assert_agree(engine.expectations(graph), table, log_z=1e-9)


@pytest.mark.parametrize("kind", kinds_of("tree"), ids=str)
def test_arcs_under_a_tree_factor_are_exact_after_one_pass(kind):
    exact = PROJECTIVE if kind["projective"] else MST
    for n in (1, 2, 3, 5, 30):
        rng = np.random.default_rng(n)
        graph = random_graph(rng, n, scale=3.0, arcs=n * n * 2 // 3, **kind)
        found, wanted = BeliefPropagation().expectations(graph), exact.expectations(graph)
        np.testing.assert_allclose(found.marginals, wanted.marginals, atol=1e-9)
        assert found.log_z == pytest.approx(wanted.log_z, abs=1e-8)
        assert (found.iterations, found.converged) == (1, True)
        first = BeliefPropagation(iterations=1, schedule="parallel").expectations(graph)
        np.testing.assert_allclose(first.marginals, wanted.marginals, atol=1e-9)
        if n <= 3:
            log_z, marginals = table_bp(graph).exact()
            np.testing.assert_allclose(found.marginals, marginals, atol=1e-9)
            assert found.log_z == pytest.approx(log_z, abs=1e-8)


def without_loops() -> list[ScoredGraph]:
    rng = np.random.default_rng(2)
    chains, forest = random_graph(rng, 3, (CHILDSEQ,)), random_graph(rng, 3)
    pairs = np.array([[0, 1, 2, 5], [1, 2, 3, 6]], np.int32)
    scores = {PAIR: np.array([2.0, -1.0, -np.inf, 0.5])}
    return [chains, replace(forest, pairs=pairs, parts=scores)]


@pytest.mark.parametrize("schedule", ["serial", "parallel", "residual"])
@pytest.mark.parametrize("product", ["sum", "max"])
def test_graphs_without_loops_are_exact(schedule, product):
    engine = BeliefPropagation(schedule=schedule, constraint="none", product=product, **ENDLESS)
    for graph in without_loops():
        log_z, marginals = table_bp(graph, "none", product == "max").exact()
        found = engine.expectations(graph)
        np.testing.assert_allclose(found.marginals, marginals, atol=1e-9)
        assert found.log_z == pytest.approx(log_z, abs=1e-9)
        assert found.converged


def test_annealing_approaches_the_best_without_loops():
    for graph in without_loops():
        best, marginals = table_bp(graph, "none", maximise=True).exact()
        values, beliefs = [], []
        for anneal in (0, 3, 10):
            found = BeliefPropagation(constraint="none", anneal=anneal).expectations(graph)
            values.append(abs(found.log_z / 2**anneal - best))
            beliefs.append(np.abs(found.marginals - (marginals > 0.5)).max())
        assert values == sorted(values, reverse=True)
        assert beliefs == sorted(beliefs, reverse=True)
        assert values[-1] < 0.01
        assert beliefs[-1] < 1e-6


def test_annealing_goes_on_from_the_messages_so_far():
    graph = random_graph(np.random.default_rng(3), 3, (GRAND, SIB))
    table = table_bp(graph)
    table.run(2, "serial")
    table.own = [2 * own for own in table.own]
    for factor in table.factors:
        factor.table = 2 * factor.table
    table.run(2, "serial")
    found = BeliefPropagation(2, tolerance=0.0, anneal=1).expectations(graph)
    assert found.iterations == 4
    assert_agree(found, table, log_z=1e-9)


@pytest.mark.parametrize("options", [{"product": "max"}, {"anneal": 8}, {"decode": "mode"}])
def test_the_best_tree_of_arcs_alone_is_found(options):
    for seed in range(5):
        graph = random_graph(np.random.default_rng(seed), 5, projective=bool(seed % 2))
        best = (PROJECTIVE if graph.projective else MST).best(graph)
        found = BeliefPropagation(**options).best(graph)
        assert found.heads.tolist() == best.heads.tolist()
        if "product" in options:
            bound = BeliefPropagation(**options).expectations(graph).log_z
            assert bound == pytest.approx(best.score)


@pytest.mark.parametrize("families", MODELS[1:], ids="+".join)
@pytest.mark.parametrize("constraint", ["tree", "exactly1", "atmost1", "not2+no2cycle", "none"])
def test_beliefs_are_the_gradient_of_bethe_log_z_at_a_fixed_point(families, constraint):
    if constraint not in ("tree", "exactly1"):  # NOCROSS wants words with one head
        families = tuple(family for family in families if family != NOCROSS)
    engine, rng = BeliefPropagation(constraint=constraint, **ENDLESS), np.random.default_rng(4)
    for kind in kinds_of(constraint):
        graph = random_graph(rng, 5, families, scale=0.3, arcs=20, **kind)
        found = engine.expectations(graph)
        assert found.converged
        for family, scores in graph.values.items():
            beliefs = found.marginals if family == LINK else found.part_marginals[family]
            for i in rng.permutation(len(scores))[:4]:
                step = 1e-4 * (np.arange(len(scores)) == i)
                up, down = (engine.expectations(moved(graph, family, s)) for s in (step, -step))
                slope = (up.log_z - down.log_z) / 2e-4
                assert slope == pytest.approx(beliefs[i], abs=1e-7), family


def moved(graph: ScoredGraph, family: str, step: np.ndarray) -> ScoredGraph:
    if family == LINK:
        return replace(graph, scores=graph.scores + step)
    return replace(graph, parts={**graph.parts, family: graph.parts[family] + step})


@pytest.mark.parametrize("schedule", ["serial", "parallel", "residual"])
@pytest.mark.parametrize("damping", [{}, {"damping": 0.3}, {"pair_damping": 0.3}], ids=str)
@pytest.mark.parametrize("projective", [False, True])
def test_schedules_and_damping_lead_to_one_fixed_point(schedule, damping, projective):
    rng = np.random.default_rng(5)
    graph = random_graph(rng, 6, FAMILIES, projective=projective, scale=0.3, pairs=5)
    wanted = BeliefPropagation(**ENDLESS).expectations(graph)
    found = BeliefPropagation(schedule=schedule, **damping, **ENDLESS).expectations(graph)
    assert found.converged
    np.testing.assert_allclose(found.marginals, wanted.marginals, atol=1e-9)
    assert found.log_z == pytest.approx(wanted.log_z, abs=1e-9)
    for family, beliefs in wanted.part_marginals.items():
        np.testing.assert_allclose(found.part_marginals[family], beliefs, atol=1e-9)


@pytest.mark.parametrize("families", MODELS, ids=str)
@pytest.mark.parametrize(("n", "arcs"), [(1, None), (2, None), (9, None), (9, 20), (23, 90)])
def test_odds_and_log_odds_give_the_same_messages(n, arcs, families):
    """For any numbers of children and of heads: groups of four are filled up, whole or in part."""
    rng = np.random.default_rng(6)
    graph = random_graph(rng, n, [f for f in families if n > 1 or f != PAIR], arcs=arcs)
    odds, logs = (
        BeliefPropagation(3, tolerance=0.0, damping=damping).expectations(graph)
        for damping in (0.0, 1e-300)
    )
    np.testing.assert_allclose(odds.marginals, logs.marginals, atol=1e-11)
    assert odds.log_z == pytest.approx(logs.log_z, abs=1e-9)
    for family, beliefs in odds.part_marginals.items():
        np.testing.assert_allclose(beliefs, logs.part_marginals[family], atol=1e-11)


def test_what_was_solved_before_changes_nothing():
    """Memory is used again, as it was left."""
    rng, engine = np.random.default_rng(16), BeliefPropagation(iterations=3)
    graphs = [random_graph(rng, n, FAMILIES, arcs=arcs) for n, arcs in ((4, 9), (5, None))]
    first = [engine.expectations(graph) for graph in graphs]
    engine.best(random_graph(rng, 30, FAMILIES, scale=300.0))
    with ThreadPoolExecutor(2) as pool:
        again = list(pool.map(engine.expectations, graphs * 20))
    for found, wanted in zip(again, first * 20, strict=True):
        assert found.marginals.tobytes() == wanted.marginals.tobytes()
        assert found.log_z == wanted.log_z


@pytest.mark.parametrize("projective", [False, True])
def test_a_constant_on_the_arcs_into_a_word_moves_log_z_alone(projective):
    rng = np.random.default_rng(7)
    graph = random_graph(rng, 6, FAMILIES, projective=projective, scale=0.5)
    engine = BeliefPropagation(**ENDLESS)
    shifted = replace(graph, scores=graph.scores + 500.0 * (graph.modifiers == 2))
    found, wanted = engine.expectations(shifted), engine.expectations(graph)
    np.testing.assert_allclose(found.marginals, wanted.marginals, atol=1e-9)
    assert found.log_z == pytest.approx(wanted.log_z + 500.0, abs=1e-9)


def test_an_implied_factor_changes_beliefs_but_not_the_distribution():
    """That two arcs into one word exclude each other, the tree factor knows."""
    graph = random_graph(np.random.default_rng(8), 3)
    pairs = np.array(into(graph, 2)[:2], np.int32).reshape(2, 1)
    double = replace(graph, pairs=pairs, parts={PAIR: np.array([-np.inf])})
    exact = table_bp(graph).exact()[1]
    np.testing.assert_allclose(table_bp(double).exact()[1], exact, atol=1e-12)
    np.testing.assert_allclose(BeliefPropagation().best(graph).marginals, exact, atol=1e-9)
    assert np.abs(BeliefPropagation().best(double).marginals - exact).max() > 0.01


HARSH = [{}, {"schedule": "parallel"}, {"schedule": "residual"}, {"product": "max"}]
HARSH += [{"damping": 0.5}, {"pair_damping": 0.5}, {"anneal": 2}, {"nocross": "joined"}]


def assert_beliefs(found: Result) -> None:
    assert np.isfinite(found.log_z)
    for beliefs in (found.marginals, *found.part_marginals.values()):
        assert ((beliefs >= 0.0) & (beliefs <= 1.0 + 1e-12)).all()


@pytest.mark.parametrize("options", HARSH, ids=str)
@pytest.mark.parametrize("scale", [1.0, 100.0, 1e4])
def test_no_score_makes_a_belief_that_is_not_a_probability(options, scale):
    rng = np.random.default_rng(9)
    for n in (1, 2, 4, 8):
        families = FAMILIES if n > 1 else (GRAND, SIB, CHILDSEQ, NOCROSS)
        for constraint in CONSTRAINTS:
            for kind in kinds_of(constraint):
                arcs = n * (n + 1) // 2
                graph = random_graph(rng, n, families, scale=scale, arcs=arcs, **kind)
                if PAIR in graph.parts:
                    graph.parts[PAIR][0] = -np.inf
                own = {**options, "constraint": constraint}
                if not constraint.startswith(("tree", "exactly1")):
                    own["nocross"] = "joined"
                found = BeliefPropagation(**own).expectations(graph)
                assert_beliefs(found)
                if constraint == "tree" and not set(own) & {"schedule", "product", "damping"}:
                    sums = np.bincount(graph.modifiers, found.marginals)[1:]
                    np.testing.assert_allclose(sums, 1.0, atol=1e-9)


@pytest.mark.parametrize(
    ("n", "scale"), [(60, 1.0), (60, 1e4), pytest.param(300, 1.0, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("projective", [False, True])
def test_long_sentences(n, scale, projective):
    families = FAMILIES if n < 100 else (GRAND, CHILDSEQ)
    rng = np.random.default_rng(10)
    graph = random_graph(rng, n, families, projective=projective, scale=scale)
    found = BeliefPropagation(iterations=3).expectations(graph)
    assert_beliefs(found)
    np.testing.assert_allclose(np.bincount(graph.modifiers, found.marginals)[1:], 1.0, atol=1e-9)


@pytest.mark.parametrize("scores", [(-np.inf, 1e4, 0.0), (-1e4, 1e4, 1e4), (1e4, -1e4, -np.inf)])
def test_evidence_that_contradicts_itself_stays_finite(scores):
    """Each word's only head, and pairs that forbid two of them together or say two things."""
    graph = ScoredGraph.from_matrix(np.where(np.eye(4, k=1), 1.0, -np.inf))
    pairs = np.array([[0, 1, 0], [1, 2, 1]], np.int32)
    graph = replace(graph, pairs=pairs, parts={PAIR: np.array(scores)})
    for schedule in ("serial", "parallel", "residual"):
        engine = BeliefPropagation(schedule=schedule)
        assert_beliefs(engine.expectations(graph))
        assert engine.best(graph).heads.tolist() == [-1, 0, 1, 2]


def arc_sum(graph: ScoredGraph, weights: np.ndarray, tree: np.ndarray) -> float:
    return float(weights[graph.fired(LINK, tree)].sum())


def kind_of(graph: ScoredGraph, trees: str) -> ScoredGraph:
    return graph if trees == "model" else replace(graph, projective=trees == "projective")


@pytest.mark.parametrize("decode", ["probabilities", "log-odds", "mode"])
@pytest.mark.parametrize("constraint", ["tree", "exactly1", "atmost1"])
@pytest.mark.parametrize("trees", ["model", "projective", "nonprojective"])
def test_the_tree_is_the_best_of_its_kind_under_the_beliefs(decode, constraint, trees):
    """Inference and decoding have their constraints apart."""
    rng = np.random.default_rng(11)
    for kind in kinds_of("tree"):
        graph = random_graph(rng, 4, (GRAND, SIB), **kind)
        engine = BeliefPropagation(constraint=constraint, trees=trees, decode=decode)
        found = engine.best(graph)
        weights = found.marginals
        if decode == "mode" and constraint == "tree":
            weights = log_odds(engine, graph, into_tree=True)
            exact = (PROJECTIVE if graph.projective else MST).expectations
            beliefs = exact(replace(graph, scores=weights, parts={})).marginals
            np.testing.assert_allclose(beliefs, found.marginals, atol=1e-9)
        elif decode != "probabilities":
            weights = np.log(weights) - np.log1p(-weights)
        wanted = max(arc_sum(graph, weights, tree) for tree in trees_of(kind_of(graph, trees)))
        assert arc_sum(graph, weights, found.heads) == pytest.approx(wanted, abs=1e-9)
        assert found.score == pytest.approx(graph.score(found.heads))


@pytest.mark.parametrize("trees", ["model", "projective", "nonprojective"])
def test_k_best_and_samples_are_of_the_final_tree_factor(trees):
    rng, engine = np.random.default_rng(12), BeliefPropagation(trees=trees)
    for kind in kinds_of("tree"):
        graph = random_graph(rng, 3, (GRAND, SIB), scale=0.7, **kind)
        weights = log_odds(engine, graph, into_tree=True)
        candidates = trees_of(kind_of(graph, trees))
        logs = np.array([arc_sum(graph, weights, tree) for tree in candidates])
        wanted = [candidates[i].tolist() for i in np.argsort(-logs)]
        for k in (1, 4, 100):
            found = engine.k_best(graph, k)
            assert [result.heads.tolist() for result in found] == wanted[:k]
            assert found[-1].score == pytest.approx(graph.score(found[-1].heads))
        samples = engine.sample(graph, 20_000, np.random.default_rng(0))
        counts = Counter(map(tuple, samples.tolist()))
        assert set(counts) <= set(map(tuple, wanted))
        for tree, p in zip(candidates, normalised(logs), strict=True):
            sigma = np.sqrt(20_000 * p * (1 - p))
            assert abs(counts[tuple(tree.tolist())] - 20_000 * p) < 4 * sigma


def test_what_a_run_reports():
    graph = random_graph(np.random.default_rng(13), 6, (GRAND, CHILDSEQ), scale=0.5)
    short = BeliefPropagation(iterations=1, tolerance=1e-6).best(graph)
    assert (short.iterations, short.converged) == (1, False)
    long = BeliefPropagation(iterations=1000, tolerance=1e-6).best(graph)
    assert long.converged
    last, before = (
        BeliefPropagation(long.iterations - less, tolerance=0.0).best(graph) for less in (0, 1)
    )
    assert long.change == np.abs(last.marginals - before.marginals).max() < 1e-6 < before.change
    assert {name for name, spent in long.seconds.items() if spent} == {"grand", "childseq", "tree"}


@pytest.mark.parametrize("options", HARSH, ids=str)
def test_the_same_input_gives_the_same_bits(options):
    graph = random_graph(np.random.default_rng(14), 7, FAMILIES)
    one, two = (BeliefPropagation(**options).expectations(graph) for _ in range(2))
    assert one.log_z == two.log_z
    assert one.marginals.tobytes() == two.marginals.tobytes()
    for family, beliefs in one.part_marginals.items():
        assert beliefs.tobytes() == two.part_marginals[family].tobytes()


@pytest.mark.parametrize(
    "options",
    [{}, {"damping": 0.5}, {"pair_damping": 0.5}, {"anneal": 1}, {"product": "max"}],
    ids=str,
)
@pytest.mark.parametrize("size", [1.0, 100.0])
def test_scores_are_log_potentials_after_the_scale(options, size):
    graph = random_graph(np.random.default_rng(14), 5, FAMILIES, scale=size)
    graph.parts[PAIR][0] = -np.inf
    calibrated = BeliefPropagation(3, scale=0.5, **options).calibrated(4.0).best(graph)
    wanted = BeliefPropagation(3, **options).best(graph.scaled(2.0))
    np.testing.assert_allclose(calibrated.marginals, wanted.marginals, atol=1e-12)
    assert calibrated.score == pytest.approx(graph.score(wanted.heads))


def test_options_by_name():
    engine = find_engine("bp:iterations=3,schedule=parallel,constraint=exactly1+no2cycle")
    assert engine == BeliefPropagation(3, "parallel", constraint="exactly1+no2cycle")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("bp:iterations=x", "bp: iterations is a whole number, got 'x'"),
        ("bp:damping=2", "bp: damping: from 0 up to 1, got 2.0"),
        ("bp:pair_damping=1", "bp: pair_damping: from 0 up to 1, got 1.0"),
        ("bp:damping=0.1,pair_damping=0.1", "bp: damping is of all messages, pair_damping of"),
        ("bp:schedule=flooding", "bp: schedule: one of serial, parallel, residual"),
        ("bp:constraint=tree+no2cycle", "bp: constraint: one of tree, exactly1"),
        ("bp:colour=red", "bp has no option 'colour'; it has iterations, schedule"),
    ],
)
def test_a_wrong_option_is_named_in_one_line(text, reason):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        find_engine(text)
    message = str(error.value)
    assert reason in message
    assert "\n" not in message


def test_what_cannot_be_propagated_is_refused():
    rng = np.random.default_rng(15)
    with pytest.raises(GraphError, match="engine bp cannot use the factor family grandsib"):
        BeliefPropagation().best(random_graph(rng, 3, (GRANDSIB,)))
    with pytest.raises(GraphError, match="factors nocross then need nocross=joined"):
        BeliefPropagation(constraint="none").best(random_graph(rng, 3, (NOCROSS,)))
    matrix = np.full((5, 5), -np.inf)
    matrix[[0, 3, 2, 2], [3, 2, 1, 4]] = 0.0  # the arc 2 -> 4 crosses the root's
    crossing = ScoredGraph.from_matrix(matrix)
    assert BeliefPropagation().best(crossing).heads.tolist() == [-1, 2, 3, 0, 2]
    for options in ({}, {"constraint": "exactly1"}):
        with pytest.raises(NoTreeError):
            BeliefPropagation(**options).best(replace(crossing, projective=True))
    with pytest.raises(NoTreeError):
        BeliefPropagation(trees="projective").best(crossing)
    graph = random_graph(rng, 3, (GRAND,))
    graph.parts[GRAND][0] = np.nan
    with pytest.raises(ValueError, match="parts grand have scores that are not finite"):
        BeliefPropagation().best(graph)
