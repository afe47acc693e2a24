"""Relaxed inference against enumeration, and against belief propagation over all pairs."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from cython_ext.few_pairs import FewPairs
from cython_ext.relaxation import candidates, gains, most_gains
from cython_ext.tree_pairs import TreePairs
from parser.features import CompactTable, Scorer, Vocabulary
from parser.graph import (
    CHILDSEQ,
    CODES,
    GRAND,
    LINK,
    NOCROSS,
    PAIR,
    SIB,
    LazyParts,
    PartBounds,
    ScoredGraph,
)
from parser.inference import (
    BeliefPropagation,
    PrunedBeliefPropagation,
    RelaxedBeliefPropagation,
    find_engine,
)
from parser.inference.relaxed import Likely, Pairs, Solver, bounds, left_out, relax
from parser.treebank import read_all
from tests.inference.factor_graph import random_graph, trees_of

ENDLESS = {"iterations": 5000, "tolerance": 1e-13}


def exact(graph: ScoredGraph) -> tuple[np.ndarray, np.ndarray]:
    """Marginals of arcs, and of pairs of arcs, by enumeration."""
    trees = trees_of(graph)
    scores = np.array([graph.score(tree) for tree in trees])
    p = np.exp(scores - scores.max())
    on = np.array([graph.indicator(tree)[LINK] for tree in trees])
    joint = (on * (p / p.sum())[:, None]).T @ on
    return np.diag(joint), joint


class Enumeration(Solver):
    """Exact marginals of a graph that grows."""

    def __init__(self, graph: ScoredGraph) -> None:
        self.graph = replace(graph, pairs=np.zeros((2, 0), np.int32), parts={PAIR: np.zeros(0)})
        self.calls = 0

    def add(self, pairs: Pairs) -> None:
        self.graph = replace(
            self.graph,
            pairs=np.concatenate([self.graph.pairs, [pairs.first, pairs.second]], axis=1),
            parts={PAIR: np.concatenate([self.graph.parts[PAIR], pairs.scores])},
        )

    def solve(self) -> np.ndarray:
        self.calls += 1
        marginals, self.joint = exact(self.graph)
        return marginals

    def likely(self, family: str, marginals: np.ndarray, least: float) -> Likely:
        layout = self.graph.arcs.layout
        places, arcs, _ = candidates(
            layout, CODES[family], np.ones(len(marginals)), None, False, False, 0.0
        )
        mu = self.joint[arcs[0], arcs[1]]
        keep = mu > least
        return places[keep], arcs[:, keep], mu[keep]


@pytest.mark.parametrize("single_root", [False, True])
def test_marginals_of_pairs_come_from_the_inverse_laplacian(single_root):
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 4, 5):
        graph = random_graph(rng, n, single_root=single_root, scale=2.0, arcs=n * n * 2 // 3)
        marginals, joint = exact(graph)
        pairs = TreePairs(graph.arcs.layout, graph.scores, single_root)
        np.testing.assert_allclose(pairs.marginals(), marginals, atol=1e-12)
        first, second = np.nonzero(~np.eye(len(marginals), dtype=bool))
        found = pairs.joint(first.astype(np.int32), second.astype(np.int32))
        np.testing.assert_allclose(found, joint[first, second], atol=1e-12)


@pytest.mark.parametrize("single_root", [False, True])
def test_marginals_of_sentences_of_any_length(single_root):
    rng = np.random.default_rng(1)
    for n in (6, 7, 8, 11, 12, 33):
        graph = random_graph(rng, n, single_root=single_root, scale=2.0, arcs=n * n * 2 // 3)
        pairs = TreePairs(graph.arcs.layout, graph.scores, single_root)
        assert pairs.solved
        wanted = find_engine("mst").expectations(graph).marginals
        np.testing.assert_allclose(pairs.marginals(), wanted, atol=1e-11)


@pytest.mark.parametrize("single_root", [False, True])
def test_marginals_of_projective_trees_of_any_length_and_range(single_root):
    rng = np.random.default_rng(2)
    for n in (1, 2, 3, 4, 5, 8, 9, 16, 31, 60):
        arcs = n * (n + 1) * 2 // 3
        graph = random_graph(rng, n, projective=True, single_root=single_root, arcs=arcs)
        for scale in (1.0, 30.0, 400.0):  # the last two where sums leave the range of numbers
            scaled = replace(graph, scores=scale * graph.scores)
            messages = FewPairs(scaled.arcs.layout, scaled.scores, True, single_root)
            for _ in range(2):
                assert messages.run(1, 0.0, 0.0) is not None
                messages.beliefs(beliefs := np.empty(len(graph.arcs)))
                wanted = find_engine("projective").expectations(scaled).marginals
                np.testing.assert_allclose(beliefs, wanted, atol=1e-9)


def some_pairs(rng: np.random.Generator, graph: ScoredGraph, scale: float = 1.0) -> ScoredGraph:
    """The graph's arcs with a few pairs of them."""
    count = 3 * graph.n
    first = rng.integers(len(graph.arcs), size=count)
    second = (first + rng.integers(1, len(graph.arcs), size=count)) % len(graph.arcs)
    pairs = np.unique(np.stack([first, second]), axis=1).astype(np.int32)
    scores = scale * rng.normal(size=pairs.shape[1])
    return replace(graph, pairs=pairs, parts={PAIR: scores})


def few_pairs(graph: ScoredGraph) -> FewPairs:
    messages = FewPairs(graph.arcs.layout, graph.scores, graph.projective, graph.single_root)
    messages.add_pairs(*map(np.ascontiguousarray, graph.pairs), graph.parts[PAIR])
    return messages


@pytest.mark.parametrize("projective", [False, True])
@pytest.mark.parametrize("single_root", [False, True])
def test_messages_of_few_pairs_are_those_of_belief_propagation(projective, single_root):
    rng = np.random.default_rng(20)
    for n in (2, 3, 6, 9, 17):
        kind = {"projective": projective, "single_root": single_root}
        graph = some_pairs(rng, random_graph(rng, n, **kind, arcs=n * (n + 1) * 2 // 3))
        for iterations, damping in ((1, 0.0), (2, 0.3), (7, 0.0), (7, 0.3)):
            engine = BeliefPropagation(iterations, pair_damping=damping, tolerance=1e-12)
            wanted, _ = engine._propagate(graph)
            result = engine.expectations(graph)
            found = few_pairs(graph)
            done, change = found.run(iterations, damping, 1e-12)
            assert done == result.iterations
            assert change == pytest.approx(result.change, abs=1e-9)
            odds = np.empty((2, 2, len(graph.arcs)))
            beliefs = np.empty(len(graph.arcs))
            found.beliefs(beliefs)
            np.testing.assert_allclose(beliefs, result.marginals, atol=1e-9)
            for into_tree in (False, True):
                wanted.log_odds(odds[0, int(into_tree)], into_tree)
                found.log_odds(odds[1, int(into_tree)], into_tree)
            np.testing.assert_allclose(*odds.clip(-99.0, 99.0), atol=1e-6)  # beyond: impossible


def test_few_pairs_give_up_where_numbers_leave_their_range():
    rng = np.random.default_rng(21)
    graph = some_pairs(rng, random_graph(rng, 5))
    assert few_pairs(graph).run(5, 0.0, 0.0) is not None
    assert few_pairs(replace(graph, scores=400.0 * graph.scores)).run(5, 0.0, 0.0) is None
    assert (
        few_pairs(replace(graph, parts={PAIR: 60.0 + graph.parts[PAIR]})).run(5, 0.0, 0.0) is None
    )
    # Two words that are each other's head in all but e^-40 of the weight.
    matrix = np.full((4, 4), -40.0)
    matrix[0, 3] = matrix[1, 2] = matrix[2, 1] = 0.0
    cycle = ScoredGraph.from_matrix(matrix, single_root=False)
    assert few_pairs(some_pairs(rng, cycle)).run(5, 0.0, 0.0) is None
    arcs = np.flatnonzero(graph.heads > 0)  # no word is under the root
    rootless = graph.arcs.select(graph.heads > 0)
    assert FewPairs(rootless.layout, graph.scores[arcs], False, True).run(1, 0.0, 0.0) is None


@pytest.mark.parametrize("projective", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        "",
        "rounds=inf",
        "start=cold,rounds=inf",
        "pair=product",
        "gain=forward",
        "eps=1e-7",
        "pair_damping=0.3",
    ],
)
@pytest.mark.parametrize("scale", [1.0, 60.0])
def test_the_best_tree_and_the_expectations_go_by_the_same_factors(projective, options, scale):
    """One in the kernel for few pairs, the other around any solver."""
    rng = np.random.default_rng(22)
    given = f"{options},eps=0.01" if "eps" not in options else options
    engine = find_engine(f"relaxed-bp:{given},iterations=8".replace(":,", ":"))
    for n in (1, 2, 5, 11):
        for single_root in (False, True):
            graph = random_graph(
                rng, n, (GRAND, SIB), projective=projective, single_root=single_root, scale=0.5
            )
            graph = replace(graph, scores=scale * graph.scores)
            best, expected = engine.best(graph), engine.expectations(graph)
            np.testing.assert_allclose(best.marginals, expected.marginals, atol=1e-7)
            for name in ("rounds", "solutions", "added", "total", "scored"):
                assert getattr(best.relaxation, name) == getattr(expected.relaxation, name)
            assert best.iterations == expected.iterations
            assert best.score == pytest.approx(graph.score(best.heads))


@pytest.mark.parametrize("projective", [False, True])
@pytest.mark.parametrize("single_root", [False, True])
@pytest.mark.parametrize("family", [GRAND, SIB])
def test_candidates_are_the_likely_parts_that_a_tree_can_have(projective, single_root, family):
    graph = random_graph(
        np.random.default_rng(1), 5, (family,), projective=projective, single_root=single_root
    )
    layout, code = graph.arcs.layout, CODES[family]
    kind = (projective, single_root)
    everything, _, _ = candidates(layout, code, np.ones(len(graph.arcs)), None, *kind, 0.0)
    fired = np.unique(np.concatenate([graph.fired(family, tree) for tree in trees_of(graph)]))
    assert sorted(everything.tolist()) == fired.tolist()

    beliefs = exact(graph)[0].copy()
    places, arcs, mu = candidates(layout, code, beliefs, None, *kind, 0.05)
    low = beliefs[arcs[0]] + beliefs[arcs[1]] - 1.0
    np.testing.assert_allclose(mu, np.maximum(beliefs[arcs[0]] * beliefs[arcs[1]], low))
    assert (mu > 0.05).all()
    index = graph.index(family)
    for place, pair in zip(places.tolist(), arcs.T.tolist(), strict=True):
        x, y, z = index[:, place].tolist()
        ends = {(int(graph.heads[a]), int(graph.modifiers[a])) for a in pair}
        assert ends == ({(x, y), (y, z)} if family == GRAND else {(x, y), (x, z)})


def test_gains_are_divergences_of_two_outcomes():
    mu, theta = (
        x.ravel() for x in np.meshgrid([0.0, 1e-9, 0.2, 0.7, 1.0], [-9.0, -1e-9, 0.5, 40.0])
    )
    after = mu * np.exp(theta) / (1 - mu + mu * np.exp(theta))

    def divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = [p * np.log(p / q), (1 - p) * np.log((1 - p) / (1 - q))]
        return sum(np.nan_to_num(term, nan=0.0, posinf=0.0, neginf=0.0) for term in terms)

    reverse, forward = gains(mu, theta, False), gains(mu, theta, True)
    within = (mu > 0) & (mu < 1) & (after < 1)
    np.testing.assert_allclose(reverse[within], divergence(mu, after)[within], atol=1e-12)
    np.testing.assert_allclose(forward[within], divergence(after, mu)[within], atol=1e-12)
    assert (reverse >= 0).all()
    assert (reverse <= theta**2 / 8 + 1e-12).all()
    assert (reverse <= mu * (np.expm1(np.abs(theta)) - np.abs(theta)) + 1e-12).all()
    assert (reverse[mu == 0] == 0).all()


@pytest.mark.parametrize("forward", [False, True])
def test_bounds_on_scores_bound_the_gain(forward):
    thetas = np.concatenate([np.linspace(-13.0, 13.0, 521), [1e-9, -1e-9, 0.0]])
    mus = np.concatenate([np.geomspace(1e-12, 1.0, 60), 1.0 - np.geomspace(1e-9, 0.5, 30)])
    mu, theta = (x.ravel() for x in np.meshgrid(mus, thetas))
    gain = gains(mu, theta, forward)
    for eps in (0.0, 1e-4, 0.1):
        for room in (0.0, 0.3):
            most = most_gains(theta - room, theta + 2 * room, eps, forward)
            assert (np.where(gain > eps, gain, 0.0) <= mu * most * (1 + 1e-9) + 1e-15).all()
    most = most_gains(theta, theta, 0.0, forward)
    small = np.abs(theta) < 2
    tight = 1.2 * mus.min() * most[small] + 1e-15
    assert forward or (gains(np.full(small.sum(), mus.min()), theta[small], False) <= tight).all()


@pytest.mark.parametrize("projective", [False, True])
@pytest.mark.parametrize("start", ["warm", "cold"])
@pytest.mark.parametrize("families", [(GRAND, SIB), (GRAND, SIB, CHILDSEQ, NOCROSS)])
def test_with_eps_0_and_no_end_of_rounds_it_is_full_belief_propagation(projective, start, families):
    rng = np.random.default_rng(2)
    for n in (2, 5, 9):
        graph = random_graph(rng, n, families, projective=projective, scale=0.4, arcs=n * n)
        full = BeliefPropagation(**ENDLESS).expectations(graph)
        found = RelaxedBeliefPropagation(rounds=inf, eps=0.0, start=start, **ENDLESS).expectations(
            graph
        )
        np.testing.assert_allclose(found.marginals, full.marginals, atol=1e-9)
        assert found.log_z == pytest.approx(full.log_z, abs=1e-8)
        for family, beliefs in full.part_marginals.items():
            np.testing.assert_allclose(found.part_marginals[family], beliefs, atol=1e-9)


def test_rounds_are_separations():
    graph = random_graph(np.random.default_rng(3), 7, (GRAND, SIB), scale=0.5)
    arcs = BeliefPropagation(**ENDLESS).best(replace(graph, parts={}))
    none = RelaxedBeliefPropagation(rounds=0.0, **ENDLESS).best(graph)
    np.testing.assert_allclose(none.marginals, arcs.marginals)
    assert (none.relaxation.rounds, none.relaxation.solutions, none.relaxation.added) == (0, 1, 0)
    one = RelaxedBeliefPropagation(**ENDLESS).best(graph)
    assert (one.relaxation.rounds, one.relaxation.solutions) == (1, 2)
    assert 0 < one.relaxation.size < 1
    many = RelaxedBeliefPropagation(rounds=inf, **ENDLESS).best(graph)
    assert many.relaxation.solutions == many.relaxation.rounds  # the last found nothing
    assert many.relaxation.added >= one.relaxation.added
    full = BeliefPropagation(**ENDLESS).best(graph).marginals
    errors = [np.abs(each.marginals - full).mean() for each in (none, one, many)]
    assert errors[0] > errors[1] > errors[2]
    sure = RelaxedBeliefPropagation(eps=100.0, **ENDLESS).best(graph)
    assert (sure.relaxation.solutions, sure.relaxation.added) == (1, 0)


def test_the_algorithm_works_around_any_solver():
    rng = np.random.default_rng(4)
    for projective in (False, True):
        graph = random_graph(rng, 4, (GRAND, SIB), projective=projective, scale=0.6)
        full = exact(graph)[0]
        solver = Enumeration(graph)
        marginals, done, added, _ = relax(graph, solver, inf, 0.0)
        np.testing.assert_allclose(marginals, full, atol=1e-12)
        assert done.solutions == solver.calls
        for family in (GRAND, SIB):
            places = np.concatenate([p.places for p in added if p.family == family])
            assert len(set(places.tolist())) == len(places)


def test_what_is_left_out_is_bounded():
    """Proposition 2, with weights of both signs, for exact marginals."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        graph = random_graph(rng, 4, (GRAND, SIB), scale=0.3)
        solver = Enumeration(graph)
        mu, done, added, _ = relax(graph, solver, 1, 1e-2)
        beliefs = {family: np.zeros(len(graph.parts[family])) for family in (GRAND, SIB)}
        for family in (GRAND, SIB):
            places, _, joint = solver.likely(family, mu, 0.0)
            beliefs[family][places] = joint
        _, missing = left_out(graph, solver, mu, added)
        found = bounds(graph, beliefs, missing)
        assert found["bound"] <= found["coarse_bound"] + 1e-12
        change, room = exact(graph)[0] - mu, np.expm1(found["bound"])
        assert (change <= room * mu + 1e-12).all()
        assert (change >= -room * (1 - mu) - 1e-12).all()
        low, high = replace(done, bound=found["bound"]).interval(mu)
        assert (low <= mu + change + 1e-12).all()
        assert (high >= mu + change - 1e-12).all()
        assert done.interval(mu) is None


def test_the_tree_factor_knows_pairs_better_than_products():
    rng = np.random.default_rng(6)
    errors = {"tree": [], "product": []}
    for _ in range(20):
        graph = random_graph(rng, 6, (GRAND, SIB), scale=0.5)
        full = BeliefPropagation(**ENDLESS).best(graph).marginals
        for pair, of_each in errors.items():
            engine = RelaxedBeliefPropagation(pair=pair, eps=1e-3, **ENDLESS)
            of_each.append(np.abs(engine.best(graph).marginals - full).mean())
    assert np.mean(errors["tree"]) < np.mean(errors["product"])


def test_scores_of_parts_must_be_finite_even_if_they_are_left_out():
    graph = random_graph(np.random.default_rng(7), 3, (GRAND,))
    graph.parts[GRAND][0] = np.nan
    with pytest.raises(ValueError, match="parts have scores that are not finite"):
        RelaxedBeliefPropagation().best(graph)


def test_pruning_by_weight_leaves_out_what_is_small():
    graph = random_graph(np.random.default_rng(8), 6, (GRAND, SIB, CHILDSEQ), scale=0.5)
    full = BeliefPropagation().expectations(graph)
    same = PrunedBeliefPropagation(threshold=0.0).expectations(graph)
    assert same.marginals.tobytes() == full.marginals.tobytes()
    assert same.relaxation.size == 1.0
    large = {f: np.where(np.abs(graph.parts[f]) < 0.4, 0.0, graph.parts[f]) for f in (GRAND, SIB)}
    wanted = BeliefPropagation().best(replace(graph, parts={**graph.parts, **large}))
    found = PrunedBeliefPropagation(threshold=0.4).best(graph)
    np.testing.assert_allclose(found.marginals, wanted.marginals)
    kept = sum(int((scores != 0).sum()) for scores in large.values())
    assert found.relaxation.added == kept
    assert found.score == pytest.approx(graph.score(found.heads))
    assert find_engine("pruned-bp:threshold=0.5") == PrunedBeliefPropagation(threshold=0.5)


def test_options_by_name():
    engine = find_engine("relaxed-bp:rounds=inf,eps=0.1,gain=forward,iterations=5")
    assert engine == RelaxedBeliefPropagation(5, rounds=inf, eps=0.1, gain="forward")
    for text, reason in (
        ("relaxed-bp:rounds=0.5", "relaxed-bp: rounds: a whole number or inf, got 0.5"),
        ("relaxed-bp:eps=-1", "relaxed-bp: eps: 0.0 or more, got -1.0"),
        ("relaxed-bp:pair=joint", "relaxed-bp: pair: one of tree, product, got 'joint'"),
    ):
        with pytest.raises(ValueError) as error:  # noqa: PT011
            find_engine(text)
        assert str(error.value) == reason


def lazy(graph: ScoredGraph, bounded: bool) -> ScoredGraph:
    """The graph with scores that are looked up when asked for; bounds are exact, or the largest."""
    parts = {}
    for family, scores in graph.parts.items():
        index, width = graph.index(family), graph.n + 1
        table = np.zeros((width, width, width, 2), np.float32)
        if family == SIB:  # of two on one side of the head the nearer one comes first
            h, m, s = index
            index = np.stack(
                [h, *np.where(np.maximum(m, s) < h, np.sort([-m, -s], 0) * -1, np.sort([m, s], 0))]
            )
        np.minimum.at(table[..., 0], tuple(index), scores - 1e-6)
        np.maximum.at(table[..., 1], tuple(index), scores + 1e-6)
        low, high = float(scores.min(initial=0.0)), float(scores.max(initial=0.0))
        limits = PartBounds([table], -1e-5, 1e-5)
        ids = np.arange(width, dtype=np.int32)[None]
        if not bounded:
            limits, ids = PartBounds([], low, high), ids[:0]
        parts[family] = LazyParts(len(scores), scores.__getitem__, limits, ids)
    return replace(graph, parts=parts)


@pytest.mark.parametrize("options", ["", "rounds=inf", "gain=forward", "pair=product", "scale=0.5"])
@pytest.mark.parametrize("projective", [False, True])
def test_lazy_parts_add_the_same_factors_as_scores_that_are_there(projective, options):
    rng = np.random.default_rng(9)
    engine = find_engine(f"relaxed-bp:eps=0.001,{options}".rstrip(","))
    asked = {True: 0, False: 0}
    for n in (2, 6, 9, 12):
        for root in (False, True):
            graph = random_graph(
                rng, n, (GRAND, SIB), projective=projective, single_root=root, scale=0.3
            )
            graph = replace(graph, scores=8.0 * graph.scores)
            eager = engine.best(graph)
            for bounded in (False, True):
                found = engine.best(lazy(graph, bounded))
                assert found.marginals.tobytes() == eager.marginals.tobytes()
                assert found.heads.tolist() == eager.heads.tolist()
                assert found.score == pytest.approx(eager.score)
                assert found.relaxation.added == eager.relaxation.added
                asked[bounded] += found.relaxation.scored
    assert asked[True] < asked[False]


@pytest.mark.parametrize("n", [70, 95, 96, 120])
def test_positions_of_more_kinds_than_are_kept(n):
    """Bounds go by the kinds of positions; a sentence with too many has its own."""
    rng = np.random.default_rng(14)
    arcs = 6 * n
    graph = random_graph(rng, n, (GRAND, SIB), single_root=False, scale=0.5, arcs=arcs)
    graph = replace(graph, scores=6.0 * graph.scores)
    engine = RelaxedBeliefPropagation(rounds=inf, eps=1e-3, iterations=4)
    eager, found = engine.best(graph), engine.best(lazy(graph, True))
    assert found.marginals.tobytes() == eager.marginals.tobytes()
    assert found.relaxation.added == eager.relaxation.added > 0
    assert found.relaxation.scored < 0.9 * eager.relaxation.scored


def test_expectations_of_lazy_parts_are_those_of_all():
    graph = random_graph(np.random.default_rng(10), 7, (GRAND, SIB), scale=0.4)
    engine = RelaxedBeliefPropagation(eps=1e-2)
    eager, found = engine.expectations(graph), engine.expectations(lazy(graph, True))
    assert found.log_z == eager.log_z
    assert found.relaxation.bound == pytest.approx(eager.relaxation.bound)
    for family, beliefs in eager.part_marginals.items():
        np.testing.assert_array_equal(found.part_marginals[family], beliefs)


@pytest.mark.parametrize("name", ["rich", "smith-eisner"])
def test_a_models_bounds_hold_and_change_nothing(english, name):
    sentences = [s for s in read_all([english]) if len(s) <= 14][:12]
    scorer = Scorer(Vocabulary.build(sentences), 12, (LINK, GRAND, SIB), part_set=name)
    rng = np.random.default_rng(11)
    rows = np.sort(rng.choice(1 << 12, 2000, replace=False))
    size = 0.1 if name == "rich" else 0.4
    table = CompactTable(12, rows, rng.normal(scale=size, size=(2000, 16)).astype(np.float32))
    limits = scorer.bounds(table, (GRAND, SIB))
    encoded = [scorer.encode(s) for s in sentences]
    kind = {"projective": False, "single_root": True}
    engine = RelaxedBeliefPropagation(rounds=inf, eps=1e-2, iterations=5)
    for eager, found in zip(
        scorer.graphs(encoded, table, **kind),
        scorer.graphs(encoded, table, **kind, lazy=limits),
        strict=True,
    ):
        for family, scores in eager.parts.items():
            bounds = found.parts[family].bounds
            assert scores.min() >= bounds.lowest
            assert scores.max() <= bounds.highest
            some = rng.choice(len(scores), 50)
            np.testing.assert_array_equal(found.parts[family][some], scores[some])
        wanted, lazily = engine.best(eager), engine.best(found)
        assert lazily.marginals.tobytes() == wanted.marginals.tobytes()
        assert lazily.relaxation.added == wanted.relaxation.added
        for family, scores in eager.parts.items():
            np.testing.assert_array_equal(np.asarray(found.parts[family]), scores)


def tagged(english, seed: int) -> tuple[Scorer, CompactTable, list]:
    """Templates that read tags only, random weights, and sentences, encoded."""
    sentences = [s for s in read_all([english]) if len(s) <= 14][:12]
    scorer = Scorer(Vocabulary.build(sentences), 12, (LINK, GRAND, SIB), part_set="smith-eisner")
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(1 << 12, 2000, replace=False))
    values = rng.normal(scale=0.4, size=(2000, 16)).astype(np.float32)
    return scorer, CompactTable(12, rows, values), [scorer.encode(s) for s in sentences]


def test_scores_that_tags_decide_are_kept_for_other_sentences(english):
    scorer, table, encoded = tagged(english, 12)
    limits = scorer.bounds(table, (GRAND, SIB))
    assert scorer.bounds(table, (GRAND, SIB)) == limits
    kind = {"projective": False, "single_root": True}
    engine = RelaxedBeliefPropagation(rounds=inf, eps=1e-2, iterations=5)
    wanted = [engine.best(graph) for graph in scorer.graphs(encoded, table, **kind)]

    asked = []

    def counted(graph: ScoredGraph) -> ScoredGraph:
        def wrap(score):
            return lambda places: asked.append(len(places)) or score(places)

        parts = {family: replace(p, score=wrap(p.score)) for family, p in graph.parts.items()}
        return replace(graph, parts=parts)

    graphs = scorer.graphs(encoded, table, **kind, lazy=limits)
    counts = []
    for closed in (True, True, False, False):
        for each in limits.values():
            each.bounds.closed = closed
        for graph in map(counted, graphs):
            engine.best(graph)
        counts.append(sum(asked))
        asked.clear()
    assert counts[0] == counts[1] > counts[2] > 0 == counts[3]

    again = Scorer(scorer.vocabulary, 12, (LINK, GRAND, SIB), part_set="smith-eisner")
    fresh = again.graphs(encoded, table, **kind, lazy=again.bounds(table, (GRAND, SIB)))
    for some in (graphs, fresh, fresh):
        for graph, eager in zip(some, wanted, strict=True):
            found = engine.best(graph)
            assert found.marginals.tobytes() == eager.marginals.tobytes()
            assert found.heads.tolist() == eager.heads.tolist()
            assert found.score == pytest.approx(eager.score)
            assert found.relaxation.added == eager.relaxation.added


def test_of_many_tags_the_first_have_bounds_of_their_own(english, monkeypatch):
    monkeypatch.setattr("parser.features.scorer.VALUES", 8)
    monkeypatch.setattr("parser.features.scorer.FIRST", 7)
    scorer, table, encoded = tagged(english, 13)
    assert max(len(scorer.vocabulary.values[field]) for field in "pc") > 8
    limits = scorer.bounds(table, (GRAND, SIB))
    kind = {"projective": True, "single_root": True}
    engine = RelaxedBeliefPropagation(eps=1e-2, iterations=5)
    for eager, found in zip(
        scorer.graphs(encoded, table, **kind),
        scorer.graphs(encoded, table, **kind, lazy=limits),
        strict=True,
    ):
        wanted, lazily = engine.best(eager), engine.best(found)
        assert lazily.marginals.tobytes() == wanted.marginals.tobytes()
        assert lazily.relaxation.added == wanted.relaxation.added


def test_it_stops_when_what_is_left_out_changes_little():
    graph = random_graph(np.random.default_rng(12), 6, (GRAND, SIB), scale=0.5)
    unbounded = RelaxedBeliefPropagation(rounds=inf, eps=0.0).expectations(graph)
    assert unbounded.relaxation.rounds > 1
    for stop in (1e6, 1e-2):
        engine = RelaxedBeliefPropagation(rounds=inf, eps=0.0, stop=stop)
        found = engine.expectations(graph)
        assert found.relaxation.bound < stop
        assert found.relaxation.rounds == (0 if stop > 1 else 1)
        assert engine.best(graph).relaxation.bound < stop  # `best` has it too


def test_seconds_say_where_the_time_went():
    graph = random_graph(np.random.default_rng(13), 8, (GRAND, SIB))
    spent = RelaxedBeliefPropagation().best(graph).seconds
    assert {"separation", "scoring", "tree", "pair", "set up", "decode"} <= spent.keys()
    assert all(seconds >= 0.0 for seconds in spent.values())
