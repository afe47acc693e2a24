"""Integer programs and their relaxations against enumeration, exact programs and explicit hulls."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations, pairwise, product

import numpy as np
import pytest
from scipy.optimize import linprog

from parser.graph import (
    CHILDSEQ,
    CODES,
    GRAND,
    GRANDSIB,
    NOCROSS,
    PAIR,
    SIB,
    GraphError,
    ScoredGraph,
    all_arcs,
)
from parser.inference.arrays import NoTreeError
from parser.inference.first_order import MST, PROJECTIVE
from parser.inference.integer_program import Formulation, IntegerProgram, LinearProgram
from parser.inference.second_order import GRANDPARENT, GRANDSIBLING, SIBLING
from tests.inference.factor_graph import numbered, random_graph, trees_of

FAMILIES = (SIB, CHILDSEQ, GRAND, GRANDSIB, NOCROSS, PAIR)
SUBSETS = list(chain.from_iterable(combinations(FAMILIES, size) for size in range(7)))
MODELS = [(), *((family,) for family in FAMILIES), (CHILDSEQ, GRAND), FAMILIES]
KINDS = [
    {"projective": projective, "single_root": single_root}
    for projective, single_root in product((False, True), repeat=2)
]
FLOWS = ("multicommodity", "single-commodity", "cuts")
kinds = pytest.mark.parametrize("kind", KINDS, ids=str)
models = pytest.mark.parametrize("families", MODELS, ids=lambda f: "+".join(f) or "link")


def formulations(graph):
    return (*FLOWS, "chart") if graph.projective else FLOWS


def optimum(graph):
    return max(graph.score(tree) for tree in trees_of(graph))


def assert_optimal(result, graph, best, atol=1e-9):
    """The result is a tree of the graph with the best score, and says so."""
    assert tuple(result.heads.tolist()) in {tuple(tree.tolist()) for tree in trees_of(graph)}
    assert result.heads.dtype == np.int32
    assert result.score == graph.score(result.heads) == pytest.approx(best, abs=atol)
    assert result.certificate.primal == result.score
    assert result.certificate.optimal


# ---- integer programs --------------------------------------------------------------------------


@pytest.mark.parametrize("projective", [False, True])
@pytest.mark.parametrize("families", SUBSETS, ids=lambda f: "+".join(f) or "link")
def test_every_formulation_finds_the_best_of_all_trees(families, projective):
    number = SUBSETS.index(families)
    kind = {"projective": projective, "single_root": number % 2 == projective}  # by turns
    graph = random_graph(np.random.default_rng(number), 4, families, arcs=10, **kind)
    best = optimum(graph)
    for formulation in formulations(graph):
        result = IntegerProgram(formulation).best(graph)
        assert_optimal(result, graph, best)
        assert result.converged


@kinds
@models
@pytest.mark.parametrize(("n", "arcs"), [(1, None), (2, None), (3, None), (4, None), (5, 13)])
def test_the_best_tree_is_that_of_all_trees(families, kind, n, arcs):
    if n == 1:
        families = tuple(family for family in families if family != PAIR)  # there is one arc
    graph = random_graph(np.random.default_rng(n), n, families, arcs=arcs, **kind)
    assert_optimal(IntegerProgram().best(graph), graph, optimum(graph))


@kinds
@models
def test_programs_are_their_own_answer_in_any_unit(families, kind):
    for scale in (1e-5, 1e4):
        graph = random_graph(np.random.default_rng(2), 4, families, scale=scale, **kind)
        assert_optimal(IntegerProgram().best(graph), graph, optimum(graph), 1e-9 * scale)


def test_a_large_constant_on_all_arcs_into_a_word_changes_nothing():
    graph = random_graph(np.random.default_rng(0), 5, (GRAND, SIB))
    heads = IntegerProgram().best(graph).heads
    shifted = replace(graph, scores=graph.scores + 1e7 * graph.modifiers)
    assert IntegerProgram().best(shifted).heads.tolist() == heads.tolist()


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize(
    ("engine", "families"),
    [
        (PROJECTIVE, ()),
        (SIBLING, (CHILDSEQ,)),
        (GRANDPARENT, (GRAND,)),
        (GRANDSIBLING, (CHILDSEQ, GRAND)),
        (GRANDSIBLING, (CHILDSEQ, GRAND, GRANDSIB)),
    ],
    ids=lambda value: value.name if hasattr(value, "name") else "+".join(value),
)
def test_beyond_enumeration_dynamic_programs_agree(engine, families, single_root):
    kind = {"projective": True, "single_root": single_root}
    for n, arcs in ((8, None), (10, 36)):
        graph = random_graph(np.random.default_rng(n), n, families, arcs=arcs, **kind)
        exact = engine.best(graph)
        result = IntegerProgram().best(graph)
        assert result.heads.tolist() == exact.heads.tolist()
        assert result.certificate.optimal
        assert LinearProgram().best(graph).certificate.dual >= exact.score - 1e-6


@pytest.mark.parametrize("families", [(CHILDSEQ, GRAND), (SIB, NOCROSS), (GRANDSIB,)], ids="+".join)
def test_beyond_enumeration_formulations_agree(families):
    for kind in KINDS:
        graph = random_graph(np.random.default_rng(3), 6, families, arcs=24, **kind)
        trees = {
            tuple(IntegerProgram(formulation).best(graph).heads.tolist())
            for formulation in formulations(graph)
        }
        assert len(trees) == 1


@pytest.mark.parametrize("formulation", FLOWS)
@pytest.mark.parametrize("engine", [IntegerProgram, LinearProgram])
def test_when_time_is_up_there_is_a_tree_and_a_bound(engine, formulation):
    graph = random_graph(np.random.default_rng(4), 4, (GRAND, SIB, NOCROSS, CHILDSEQ))
    result = engine(formulation, time_limit=1e-9).best(graph)
    assert not result.converged
    assert not result.certificate.optimal
    assert result.score == graph.score(result.heads) == result.certificate.primal
    assert result.heads.tolist() == MST.best(replace(graph, parts={})).heads.tolist()
    assert optimum(graph) <= result.certificate.dual < np.inf
    assert result.arc_values is None


def test_in_little_time_the_bounds_enclose_what_is_found_with_more():
    graph = random_graph(np.random.default_rng(1), 10, (CHILDSEQ, GRAND), scale=2.0)
    exact = IntegerProgram().best(graph)
    assert exact.converged
    for formulation in FLOWS:
        hasty = IntegerProgram(formulation, time_limit=0.05).best(graph)
        assert hasty.certificate.primal <= exact.score + 1e-9
        assert hasty.certificate.dual >= exact.score - 1e-6


# ---- what cannot be ----------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [IntegerProgram, LinearProgram])
def test_without_a_tree_the_error_names_a_word(engine):
    scores = np.full((4, 4), -np.inf)
    scores[0, 1] = scores[3, 2] = scores[2, 3] = 0.0
    with pytest.raises(NoTreeError, match="word 2 cannot be reached from the root"):
        engine().best(ScoredGraph.from_matrix(scores))


@kinds
@pytest.mark.parametrize("engine", [IntegerProgram, LinearProgram])
def test_pairs_can_forbid_all_trees(engine, kind):
    scores = np.full((3, 3), -np.inf)
    scores[0, 1] = scores[1, 2] = 1.0
    pairs = np.array([[0], [1]], np.int32)
    graph = ScoredGraph.from_matrix(scores)
    graph = replace(graph, pairs=pairs, parts={PAIR: np.array([-np.inf])}, **kind)
    for formulation in formulations(graph):
        with pytest.raises(NoTreeError, match="pair of score -inf, as 0 -> 1 with 1 -> 2") as error:
            engine(formulation).best(graph)
        assert error.value.word == 1


@kinds
def test_a_pair_of_minus_infinity_is_never_in_a_tree(kind):
    for seed in range(4):
        graph = random_graph(np.random.default_rng(seed), 4, (PAIR, GRAND), pairs=12, **kind)
        scores = np.where(np.arange(12) < 6, -np.inf, graph.parts[PAIR])
        graph = replace(graph, parts={**graph.parts, PAIR: scores})
        if (best := optimum(graph)) > -np.inf:
            assert_optimal(IntegerProgram().best(graph), graph, best)


@kinds
def test_an_arc_of_minus_infinity_is_no_candidate(kind):
    graph = random_graph(np.random.default_rng(5), 4, (GRAND, CHILDSEQ, NOCROSS, SIB), **kind)
    scores = np.where(graph.heads == graph.modifiers + 1, -np.inf, graph.scores)
    graph = replace(graph, scores=scores)
    for formulation in formulations(graph):
        assert_optimal(IntegerProgram(formulation).best(graph), graph, optimum(graph))
        relaxed = LinearProgram(formulation).best(graph)
        assert (relaxed.arc_values[scores == -np.inf] == 0.0).all()
        assert relaxed.score > -np.inf


def test_infinities_and_parts_that_cannot_be_never_reach_the_solver():
    graph = random_graph(np.random.default_rng(6), 4, FAMILIES)
    parts = {family: scores.copy() for family, scores in graph.parts.items()}
    g, _, m = graph.index(GRAND)
    parts[GRAND][g == m] = 1e6
    g, _, a, b = graph.index(GRANDSIB)
    parts[GRANDSIB][(g == a) | (g == b)] = 1e6
    parts[PAIR][0] = -np.inf
    scores = np.where(np.arange(len(graph.scores)) == 1, -np.inf, graph.scores)
    graph = replace(graph, scores=scores, parts=parts)
    for formulation in FLOWS:
        program = Formulation(graph, formulation).program
        assert program.largest < 100
        assert np.isfinite(program.upper).all()
    alone = replace(graph, parts={GRAND: parts[GRAND]})
    assert Formulation(alone, "cuts").program.largest < 100
    assert_optimal(IntegerProgram().best(graph), graph, optimum(graph))


def test_bad_arguments_have_clear_errors():
    with pytest.raises(ValueError, match=r"formulation: one of hull, .* got 'flow'"):
        IntegerProgram("flow")
    with pytest.raises(ValueError, match="time_limit: more than 0 seconds, got 0"):
        LinearProgram(time_limit=0)
    graph = random_graph(np.random.default_rng(0), 3, (GRAND,))
    with pytest.raises(GraphError, match="engine lp: formulation=chart has projective trees only"):
        LinearProgram("chart").best(graph)
    for bad in (np.nan, np.inf, -np.inf):
        scores = graph.parts[GRAND].copy()
        scores[0] = bad
        with pytest.raises(ValueError, match="parts grand have scores that are not finite"):
            IntegerProgram().best(replace(graph, parts={GRAND: scores}))
    with pytest.raises(ValueError, match="18 parts grand have 1 scores"):
        IntegerProgram().best(replace(graph, parts={GRAND: np.zeros(1)}))
    with pytest.raises(ValueError, match="is nan"):
        IntegerProgram().best(replace(graph, scores=graph.scores * np.nan))


def test_what_will_not_fit_is_refused():
    arcs = all_arcs(300)
    parts = {NOCROSS: np.zeros(arcs.layout.size(CODES[NOCROSS]))}
    graph = ScoredGraph(arcs, np.zeros(len(arcs)), parts=parts)
    with pytest.raises(GraphError, match=r"300 words with 90000 candidate arcs takes .* GiB"):
        IntegerProgram("single-commodity").best(graph)


# ---- relaxations -------------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_without_parts_the_hull_has_trees_for_its_vertices(n, kind):
    for seed in range(3):
        graph = random_graph(np.random.default_rng(seed), n, **kind)
        exact = (PROJECTIVE if graph.projective else MST).best(graph)
        result = LinearProgram().best(graph)
        assert result.heads.tolist() == exact.heads.tolist()
        assert result.certificate.optimal
        assert result.converged
        on = exact.heads[graph.modifiers] == graph.heads
        np.testing.assert_allclose(result.arc_values, on, atol=1e-6)


@kinds
@models
def test_bounds_are_in_order(families, kind):
    for seed in range(2):
        graph = random_graph(np.random.default_rng(seed), 4, families, **kind)
        results = {f: LinearProgram(f).best(graph) for f in (*formulations(graph), "hull")}
        dual = {f: result.certificate.dual for f, result in results.items()}
        best = optimum(graph)
        assert best - 1e-6 <= dual["hull"] <= dual["multicommodity"] + 1e-6
        assert dual["multicommodity"] <= dual["single-commodity"] + 1e-6
        assert dual["cuts"] == pytest.approx(dual["multicommodity"], abs=1e-3)
        for result in results.values():
            values = result.arc_values
            totals = np.bincount(graph.modifiers, values)[1:]
            np.testing.assert_allclose(totals, 1.0, atol=1e-6)
            whole = np.abs(values - values.round()).max() < 1e-7
            assert result.certificate.primal == graph.score(result.heads) <= best + 1e-9
            assert result.certificate.optimal or not whole


def head_automaton(graph, h):
    """What a head can do: its own head (None if no part looks at it), its children; the score."""
    scores = {f: {part: s for _, part, s in numbered(graph, f)} for f in graph.parts}
    grand, grandsib = scores.get(GRAND, {}), scores.get(GRANDSIB, {})
    candidates = graph.modifiers[graph.heads == h].tolist()
    above = graph.heads[graph.modifiers == h].tolist() if h and (grand or grandsib) else [None]
    for g in above:
        others = [m for m in candidates if m != g]
        sizes = (1,) if h == 0 and graph.single_root else range(len(others) + 1)
        for children in chain.from_iterable(combinations(others, size) for size in sizes):
            score = sum(grand.get((g, h, m), 0.0) for m in children)
            for side in (-1, 1) if h else (1,):
                own = [m for m in children if (m - h) * side > 0][::side]
                path = [h, *own, graph.n + 1 if side > 0 else -1]
                for a, b in pairwise(path):
                    score += scores.get(CHILDSEQ, {}).get((h, a, b), 0.0)
                    score += grandsib.get((g, h, a, b), 0.0)
            yield g, children, score


def dual_decomposition(graph):
    """The dual of Lagrangian relaxation into trees and head automata: an LP over their vertices.

    Arcs are shared by the trees and by both their ends: the head has it among its children, the
    modifier above itself.
    """
    number = graph.spread(np.arange(len(graph.arcs)), -1).astype(int)
    watched = bool({GRAND, GRANDSIB} & graph.families)
    columns, gains = [], []  # which group's vertex; children; above
    for tree in trees_of(graph):
        on = tree[graph.modifiers] == graph.heads
        columns.append(np.concatenate([np.arange(graph.n + 2) == 0, on, on * watched]))
        gains.append(graph.scores @ on)
    for h in range(graph.n + 1):
        for g, children, score in head_automaton(graph, h):
            below, above = np.zeros((2, len(graph.arcs)))
            below[number[h, list(children)]] = -1
            if g is not None:
                above[number[g, h]] = -1
            columns.append(np.concatenate([np.arange(graph.n + 2) == h + 1, below, above]))
            gains.append(score)
    once = np.arange(graph.n + 2 + 2 * len(graph.arcs)) < graph.n + 2
    return -linprog(-np.array(gains), A_eq=np.array(columns, float).T, b_eq=once).fun


@kinds
@pytest.mark.parametrize(
    "families",
    [(CHILDSEQ,), (GRAND,), (GRANDSIB,), (CHILDSEQ, GRAND), (CHILDSEQ, GRAND, GRANDSIB)],
    ids="+".join,
)
def test_the_hull_is_as_tight_as_dual_decomposition_into_trees_and_head_automata(families, kind):
    loose = 0
    for seed, arcs in ((0, None), (1, None), (2, None), (3, 11)):
        graph = random_graph(np.random.default_rng(seed), 4, families, arcs=arcs, **kind)
        graph = replace(graph, scores=0.3 * graph.scores)  # so that relaxations are fractional
        dual = LinearProgram().best(graph).certificate.dual
        assert dual == pytest.approx(dual_decomposition(graph), abs=1e-6)
        loose += dual > optimum(graph) + 1e-6
    assert loose


def test_nothing_tighter_follows_from_the_heads_of_two_words():
    """For any probabilities of heads, the most and the least that two words' arcs can cross."""
    rng = np.random.default_rng(8)
    n = 5
    for sign in (1.0, -1.0) * 6:
        i, j = sorted(rng.choice(np.arange(1, n + 1), 2, replace=False).tolist())
        values = rng.dirichlet(np.full(n, 0.6), n).reshape(-1)
        graph = ScoredGraph(all_arcs(n), np.zeros(n * n), single_root=False)
        index = graph.index(NOCROSS)
        scores = np.where((index[0] == i) & (index[1] == j), sign, 0.0)
        graph = replace(graph, parts={NOCROSS: scores})
        # the coupling of the two words' heads with the most, or the least, that cross
        a, b = np.flatnonzero(graph.modifiers == i), np.flatnonzero(graph.modifiers == j)
        cross = np.zeros((n, n))
        for x, y in np.ndindex(n, n):
            low, high = sorted((graph.heads[a[x]], i))
            ends = graph.heads[b[y]], j
            inside = [low < end < high for end in ends]
            cross[x, y] = inside[0] != inside[1] and not {low, high} & set(ends)
        sums = np.concatenate([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
        wanted = linprog(
            -sign * cross.ravel(), A_eq=sums, b_eq=np.concatenate([values[a], values[b]])
        )
        formulation = Formulation(graph, "cuts")
        arcs = np.arange(n * n)
        for arc in arcs:
            formulation.program.rows(values[arc], values[arc], (0, arc, 1))
        found = formulation.program.solve(0, 10.0)
        assert found.bound == pytest.approx(-wanted.fun, abs=1e-7)


def test_the_tree_of_a_relaxation_is_the_best_under_its_values():
    fractional = 0
    for seed in range(6):
        graph = random_graph(np.random.default_rng(seed), 6, (CHILDSEQ, GRAND))
        graph = replace(graph, scores=0.2 * graph.scores)
        result = LinearProgram().best(graph)
        on = result.heads[graph.modifiers] == graph.heads
        most = MST.best(replace(graph, scores=result.arc_values, parts={})).score
        assert result.arc_values @ on == pytest.approx(most, abs=1e-6)
        fractional += not result.certificate.optimal
    assert fractional
