"""Belief propagation against explicit tables, enumeration and finite differences."""

from __future__ import annotations

from collections import Counter
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
from parser.inference.first_order import MST, PROJECTIVE
from parser.trees import enumerate_trees
from tests.inference.factor_graph import add_logs, cross, into, random_graph, table_bp

SOFT = (GRAND, SIB, CHILDSEQ, NOCROSS)
MODELS = [(), *((family,) for family in SOFT), (GRAND, SIB, CHILDSEQ), SOFT]
CONSTRAINTS = ["tree", "exactly1", "exactly1+no2cycle", "atmost1", "not2", "not2+no2cycle", "none"]
ENDLESS = {"iterations": 5000, "tolerance": 1e-13}


def belief_of(fast: ScoredGraph, table: object, family: str) -> np.ndarray:
    """The table's factor beliefs in the order of the graph's parts."""
    out = np.zeros(len(fast.parts[family]))
    factors = [f for f in table.factors if f.family == family]
    if family == CHILDSEQ:
        index = {part: i for i, part in enumerate(zip(*fast.index(family).tolist(), strict=True))}
        for factor in factors:
            belief = table.factor_belief(factor)
            arcs = [(int(fast.heads[a]), int(fast.modifiers[a])) for a in factor.variables]
            for on in np.ndindex(belief.shape):
                chosen = [arc for arc, true in zip(arcs, on, strict=True) if true]
                for head, a, b in sequences(chosen, arcs, fast.n):
                    out[index[head, a, b]] += belief[on]
        return out
    if family == NOCROSS:
        for i, factor in enumerate(factors):
            belief = table.factor_belief(factor)
            arcs = [(int(fast.heads[a]), int(fast.modifiers[a])) for a in factor.variables]
            for on in np.ndindex(belief.shape):
                chosen = [arc for arc, true in zip(arcs, on, strict=True) if true]
                if len(chosen) == 2 and cross(*chosen[0], *chosen[1]):
                    out[i] += belief[on]
        return out
    index = {}
    for i, part in enumerate(zip(*fast.index(family).tolist(), strict=True)):
        index.setdefault(part_arcs(fast, family, part), i)
    for i, factor in enumerate(factors):
        place = i if family == PAIR else index[factor.variables]
        out[place] = table.factor_belief(factor)[1, 1]
    return out


def sequences(
    chosen: list[tuple[int, int]], arcs: list[tuple[int, int]], n: int
) -> list[tuple[int, int, int]]:
    """CHILDSEQ parts of the children chosen, all of one head and side (of sides with arcs)."""
    if not arcs:
        return []
    head, right = arcs[0][0], arcs[0][1] > arcs[0][0]
    children = sorted((m for _, m in chosen), key=lambda m: abs(m - head))
    end = n + 1 if right else -1
    ends = zip([head, *children], [*children, end], strict=True)
    return [(head, a, b) for a, b in ends]


def part_arcs(graph: ScoredGraph, family: str, part: tuple[int, ...]) -> tuple[int, int]:
    if family == PAIR:
        return part
    x, y, z = part
    ends = [(x, y), (y, z)] if family == GRAND else [(x, y), (x, z)]
    arcs = [np.flatnonzero((graph.heads == h) & (graph.modifiers == m)) for h, m in ends]
    return tuple(int(a[0]) if len(a) else -1 for a in arcs)


@pytest.mark.parametrize("schedule", ["serial", "parallel"])
@pytest.mark.parametrize("families", MODELS)
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_messages_are_those_of_explicit_tables(schedule, families, constraint):
    rng = np.random.default_rng(0)
    cases = [(2, None, False), (3, None, constraint == "tree"), (4, 9, False)]
    for (n, arcs, projective), iterations in zip(cases, (3, 2, 1), strict=True):
        graph = random_graph(
            rng,
            n,
            families,
            projective=projective,
            single_root=n != 3,
            arcs=arcs,
            pairs=2 if n == 4 and constraint == "tree" else 0,
        )
        table = table_bp(graph, constraint)
        table.run(iterations, schedule)
        engine = BeliefPropagation(
            iterations=iterations,
            schedule=schedule,
            constraint=constraint,
            tolerance=0.0,
            nocross="joined",
        )
        found = engine.expectations(graph)
        np.testing.assert_allclose(found.marginals, table.beliefs(), atol=1e-9)
        assert found.log_z == pytest.approx(table.bethe(), abs=1e-8)
        assert found.iterations == iterations
        for family, belief in found.part_marginals.items():
            wanted = belief_of(graph, table, family)
            if family == CHILDSEQ:  # the tables have no factor of a side without candidates
                belief = np.where(wanted > 0, belief, 0.0)
            np.testing.assert_allclose(belief, wanted, atol=1e-9, err_msg=family)


@pytest.mark.parametrize("schedule", ["serial", "parallel"])
@pytest.mark.parametrize("families", [(), (GRAND, SIB), (CHILDSEQ,), (NOCROSS,), SOFT])
@pytest.mark.parametrize("constraint", ["tree", "exactly1", "atmost1", "not2"])
@pytest.mark.parametrize("projective", [False, True])
def test_max_product_messages_are_those_of_explicit_tables(
    schedule, families, constraint, projective
):
    graph = random_graph(np.random.default_rng(1), 3, families, projective=projective)
    table = table_bp(graph, constraint, maximise=True)
    table.run(2, schedule)
    engine = BeliefPropagation(
        iterations=2,
        schedule=schedule,
        constraint=constraint,
        tolerance=0.0,
        nocross="joined",
        product="max",
    )
    found = engine.expectations(graph)
    np.testing.assert_allclose(found.marginals, table.beliefs(), atol=1e-9)
    assert found.log_z == pytest.approx(table.bethe(), abs=1e-8)


@pytest.mark.parametrize("projective", [False, True])
@pytest.mark.parametrize("single_root", [False, True])
def test_arcs_under_a_tree_factor_are_exact_after_one_pass(projective, single_root):
    exact = PROJECTIVE if projective else MST
    for n in (1, 2, 5, 30):
        rng = np.random.default_rng(n)
        graph = random_graph(
            rng, n, projective=projective, single_root=single_root, scale=3.0, arcs=n * n * 2 // 3
        )
        found, wanted = BeliefPropagation().expectations(graph), exact.expectations(graph)
        np.testing.assert_allclose(found.marginals, wanted.marginals, atol=1e-9)
        assert found.log_z == pytest.approx(wanted.log_z, abs=1e-8)
        assert (found.iterations, found.converged) == (1, True)


def test_graphs_without_loops_are_exact():
    rng = np.random.default_rng(2)
    chains = random_graph(rng, 3, (CHILDSEQ,))
    forest = random_graph(rng, 3)
    pairs = np.array([[0, 1, 2, 5], [1, 2, 3, 6]], np.int32)
    forest = replace(forest, pairs=pairs, parts={PAIR: np.array([2.0, -1.0, -np.inf, 0.5])})
    for graph in (chains, forest):
        log_z, marginals = table_bp(graph, "none").exact()
        found = BeliefPropagation(constraint="none", **ENDLESS).expectations(graph)
        np.testing.assert_allclose(found.marginals, marginals, atol=1e-9)
        assert found.log_z == pytest.approx(log_z, abs=1e-9)
        assert found.converged


@pytest.mark.parametrize("constraint", ["tree", "exactly1"])
def test_two_words_that_may_choose_are_exact_with_heads_as_variables(constraint):
    rng = np.random.default_rng(3)
    for _ in range(10):
        graph = random_graph(rng, 4, (NOCROSS,), scale=1.5)
        keep = np.ones(len(graph.arcs), bool)  # words 2 and 4 have the heads 1 and 0 alone
        for m, h in ((2, 1), (4, 0)):
            keep[into(graph, m)] = graph.heads[into(graph, m)] == h
        graph = replace(
            graph, arcs=graph.arcs.select(keep), scores=graph.scores[keep], single_root=False
        )
        log_z, marginals = table_bp(graph, constraint).exact()
        found = BeliefPropagation(constraint=constraint, **ENDLESS).expectations(graph)
        if constraint == "exactly1":  # a tree factor makes a loop
            np.testing.assert_allclose(found.marginals, marginals, atol=1e-9)
            assert found.log_z == pytest.approx(log_z, abs=1e-9)
        else:
            np.testing.assert_allclose(found.marginals, marginals, atol=0.1)


@pytest.mark.parametrize(
    ("families", "constraint"),
    [(f, c) for f in MODELS[1:] for c in ("tree", "exactly1")]
    + [(f, "none") for f in MODELS[1:] if NOCROSS not in f],  # NOCROSS wants words with one head
)
def test_beliefs_are_the_gradient_of_bethe_log_z_at_a_fixed_point(families, constraint):
    rng = np.random.default_rng(4)
    for projective in (False, True) if constraint == "tree" else (False,):
        graph = random_graph(rng, 5, families, projective=projective, scale=0.3, arcs=20, pairs=3)
        engine = BeliefPropagation(constraint=constraint, **ENDLESS)
        found = engine.expectations(graph)
        assert found.converged
        for family, scores in graph.values.items():
            belief = found.marginals if family == LINK else found.part_marginals[family]
            for i in rng.permutation(len(scores))[:4]:
                step = 1e-4 * (np.arange(len(scores)) == i)
                ends = [moved(graph, family, sign * step) for sign in (1, -1)]
                up, down = (engine.expectations(end).log_z for end in ends)
                assert (up - down) / 2e-4 == pytest.approx(belief[i], abs=1e-7), family


def moved(graph: ScoredGraph, family: str, step: np.ndarray) -> ScoredGraph:
    if family == LINK:
        return replace(graph, scores=graph.scores + step)
    return replace(graph, parts={**graph.parts, family: graph.parts[family] + step})


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "parallel"},
        {"schedule": "residual"},
        {"damping": 0.3},
        {"damping": 0.3, "schedule": "residual"},
        {"anneal": 0, "damping": 1e-300},  # by log-odds
    ],
    ids=str,
)
@pytest.mark.parametrize("projective", [False, True])
def test_schedules_and_damping_lead_to_one_fixed_point(options, projective):
    graph = random_graph(
        np.random.default_rng(5), 6, SOFT, projective=projective, scale=0.3, pairs=5
    )
    wanted = BeliefPropagation(**ENDLESS).expectations(graph)
    found = BeliefPropagation(**ENDLESS, **options).expectations(graph)
    assert found.converged
    np.testing.assert_allclose(found.marginals, wanted.marginals, atol=1e-9)
    assert found.log_z == pytest.approx(wanted.log_z, abs=1e-9)
    for family, belief in wanted.part_marginals.items():
        np.testing.assert_allclose(found.part_marginals[family], belief, atol=1e-9)


def test_odds_and_log_odds_give_the_same_messages():
    graph = random_graph(np.random.default_rng(6), 9, SOFT, pairs=5)
    plain = {"iterations": 3, "tolerance": 0.0}
    odds = BeliefPropagation(**plain).expectations(graph)
    logs = BeliefPropagation(**plain, damping=1e-300).expectations(graph)
    np.testing.assert_allclose(odds.marginals, logs.marginals, atol=1e-11)
    assert odds.log_z == pytest.approx(logs.log_z, abs=1e-9)


def test_a_constant_on_the_arcs_into_a_word_moves_log_z_alone():
    graph = random_graph(np.random.default_rng(7), 6, SOFT, scale=0.5)
    engine = BeliefPropagation(**ENDLESS)
    shifted = replace(graph, scores=graph.scores + 500.0 * (graph.modifiers == 2))
    found, wanted = engine.expectations(shifted), engine.expectations(graph)
    np.testing.assert_allclose(found.marginals, wanted.marginals, atol=1e-9)
    assert found.log_z == pytest.approx(wanted.log_z + 500.0, abs=1e-6)


def test_an_implied_factor_changes_beliefs_but_not_the_distribution():
    graph = random_graph(np.random.default_rng(8), 3, (GRAND,))
    plain, double = table_bp(graph), table_bp(graph)
    double.factors += [f for f in table_bp(graph, "exactly1").factors if f.family == "unary"]
    np.testing.assert_allclose(plain.exact()[1], double.exact()[1])
    plain.run(3, "serial")
    double.groups.insert(1, [f for f in double.factors if f.family == "unary"])
    double.run(3, "serial")
    assert np.abs(plain.beliefs() - double.beliefs()).max() > 0.01


HARSH = [
    {"schedule": "parallel"},
    {"schedule": "residual"},
    {"product": "max"},
    {"damping": 0.5},
    {"anneal": 2},
    {"nocross": "joined"},
    {},
]


@pytest.mark.parametrize("options", HARSH, ids=str)
@pytest.mark.parametrize("scale", [1.0, 100.0, 1e4])
def test_no_score_makes_a_belief_that_is_not_a_probability(options, scale):
    rng = np.random.default_rng(9)
    for n in (1, 2, 4, 8):
        for constraint in CONSTRAINTS:
            for projective in (False, True):
                graph = random_graph(
                    rng,
                    n,
                    SOFT,
                    projective=projective,
                    scale=scale,
                    arcs=n * (n + 1) // 2,
                    pairs=3 if n > 2 else 0,
                )
                if PAIR in graph.parts:
                    graph.parts[PAIR][0] = -np.inf
                own = options if constraint in ("tree", "exactly1") else {"nocross": "joined"}
                engine = BeliefPropagation(constraint=constraint, **{**options, **own})
                found = engine.expectations(graph)
                assert np.isfinite(found.log_z)
                for beliefs in (found.marginals, *found.part_marginals.values()):
                    assert ((beliefs >= 0.0) & (beliefs <= 1.0 + 1e-12)).all()
                last = constraint == "tree" and not set(own) & {"schedule", "product", "damping"}
                if last:
                    sums = np.bincount(graph.modifiers, found.marginals)[1:]
                    np.testing.assert_allclose(sums, 1.0, atol=1e-8)


def test_evidence_that_contradicts_itself_stays_finite():
    """Each word's only head, and pairs that forbid two of them together."""
    graph = ScoredGraph.from_matrix(np.where(np.eye(4, k=1), 1.0, -np.inf))
    pairs = np.array([[0, 1], [1, 2]], np.int32)
    for theta in (-np.inf, -1e4, 1e4):
        contradicted = replace(graph, pairs=pairs, parts={PAIR: np.array([theta, -theta])})
        if theta == -np.inf:
            contradicted.parts[PAIR][1] = 1e4
        found = BeliefPropagation().best(contradicted)
        assert found.heads.tolist() == [-1, 0, 1, 2]
        assert ((found.marginals >= 0.0) & (found.marginals <= 1.0)).all()


@pytest.mark.slow
@pytest.mark.parametrize("projective", [False, True])
def test_a_sentence_of_300_words(projective):
    graph = random_graph(np.random.default_rng(10), 300, (GRAND, CHILDSEQ), projective=projective)
    found = BeliefPropagation(iterations=3).best(graph)
    sums = np.bincount(graph.modifiers, found.marginals)[1:]
    np.testing.assert_allclose(sums, 1.0, atol=1e-6)


@pytest.mark.parametrize("decode", ["probabilities", "log-odds", "mode"])
@pytest.mark.parametrize("constraint", ["tree", "exactly1", "atmost1"])
@pytest.mark.parametrize("trees", ["model", "projective", "nonprojective"])
def test_the_tree_is_the_best_of_its_kind_under_the_beliefs(decode, constraint, trees):
    """Inference and decoding have their constraints apart."""
    rng = np.random.default_rng(11)
    for projective in (False, True):
        graph = random_graph(rng, 4, (GRAND, SIB), projective=projective)
        engine = BeliefPropagation(constraint=constraint, trees=trees, decode=decode)
        found = engine.best(graph)
        wanted = projective if trees == "model" else trees == "projective"
        weights = found.marginals
        if decode == "log-odds":
            weights = np.log(weights) - np.log1p(-weights)
        if decode == "mode":
            weights = into_tree(engine, graph, found.marginals)
        trees_ = map(np.array, enumerate_trees(4, projective=wanted, single_root=graph.single_root))
        best = max(float(weights[graph.fired(LINK, tree)].sum()) for tree in trees_)
        own = float(weights[graph.fired(LINK, found.heads)].sum())
        assert own == pytest.approx(best, abs=1e-9)
        assert found.score == pytest.approx(graph.score(found.heads))


def into_tree(engine: BeliefPropagation, graph: ScoredGraph, beliefs: np.ndarray) -> np.ndarray:
    """What comes into the tree factor: exact marginals under it are the beliefs."""
    messages, _ = engine._propagate(graph)
    messages.log_odds(weights := np.empty(len(graph.scores)), True)
    if engine.constraint == "tree":
        exact = PROJECTIVE if graph.projective else MST
        marginals = exact.expectations(replace(graph, scores=weights, parts={})).marginals
        np.testing.assert_allclose(marginals, beliefs, atol=1e-9)
    return weights


def test_k_best_and_samples_are_of_the_final_tree_factor():
    graph = random_graph(np.random.default_rng(12), 3, (GRAND, SIB), scale=0.7)
    engine = BeliefPropagation()
    weights = into_tree(engine, graph, engine.best(graph).marginals)
    trees = [np.array(t) for t in enumerate_trees(3, projective=False, single_root=True)]
    logs = np.array([weights[graph.fired(LINK, tree)].sum() for tree in trees])
    order = np.argsort(-logs)
    found = engine.k_best(graph, 4)
    assert [r.heads.tolist() for r in found] == [trees[i].tolist() for i in order[:4]]
    assert found[0].score == pytest.approx(graph.score(found[0].heads))
    samples = engine.sample(graph, 20_000, np.random.default_rng(0))
    counts = Counter(map(tuple, samples.tolist()))
    p = np.exp(logs - add_logs(logs, False))
    for tree, probability in zip(trees, p, strict=True):
        sigma = np.sqrt(20_000 * probability * (1 - probability))
        assert abs(counts[tuple(tree.tolist())] - 20_000 * probability) < 4 * sigma + 1


def test_max_product_and_annealing_find_the_best_tree_without_loops():
    for seed in range(5):
        graph = random_graph(np.random.default_rng(seed), 5, projective=bool(seed % 2))
        best = (PROJECTIVE if graph.projective else MST).best(graph)
        for options in ({"product": "max"}, {"anneal": 8}, {"decode": "mode"}):
            found = BeliefPropagation(**options).best(graph)
            assert found.heads.tolist() == best.heads.tolist()
        bound = BeliefPropagation(product="max").expectations(graph).log_z
        assert bound == pytest.approx(best.score)


def test_what_a_run_reports():
    graph = random_graph(np.random.default_rng(13), 6, (GRAND, CHILDSEQ), scale=0.5)
    short = BeliefPropagation(iterations=1, tolerance=1e-6).best(graph)
    assert (short.iterations, short.converged) == (1, False)
    assert short.change > 1e-6
    long = BeliefPropagation(iterations=1000, tolerance=1e-6).best(graph)
    assert long.converged
    assert long.change < 1e-6
    assert {name for name, spent in long.seconds.items() if spent} == {"grand", "childseq", "tree"}
    again = BeliefPropagation(iterations=1000, tolerance=1e-6).best(graph)
    assert again.marginals.tobytes() == long.marginals.tobytes()


def test_scores_are_log_potentials_after_the_scale():
    graph = random_graph(np.random.default_rng(14), 5, (GRAND,))
    calibrated = BeliefPropagation(scale=0.5).calibrated(4.0).best(graph)
    wanted = BeliefPropagation().best(graph.scaled(2.0))
    np.testing.assert_allclose(calibrated.marginals, wanted.marginals)
    assert calibrated.score == pytest.approx(graph.score(wanted.heads))


def test_options_by_name():
    engine = find_engine("bp:iterations=3,schedule=parallel,constraint=exactly1+no2cycle")
    assert engine == BeliefPropagation(3, "parallel", constraint="exactly1+no2cycle")
    for text, reason in (
        ("bp:iterations=x", "bp: iterations is a whole number, got 'x'"),
        ("bp:damping=2", "bp: damping: from 0 up to 1, got 2.0"),
        ("bp:schedule=flooding", "bp: schedule: one of serial, parallel, residual"),
        ("bp:colour=red", "bp has no option 'colour'; it has iterations, schedule"),
    ):
        with pytest.raises(ValueError, match=reason.replace("'", "['\"]")):
            find_engine(text)


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
    with pytest.raises(NoTreeError):
        BeliefPropagation().best(replace(crossing, projective=True))
    graph = random_graph(rng, 3, (GRAND,))
    graph.parts[GRAND][0] = np.nan
    with pytest.raises(ValueError, match="parts grand have scores that are not finite"):
        BeliefPropagation().best(graph)
