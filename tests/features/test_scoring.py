"""The feature kernel against a reading of the template table in plain Python."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from cython_ext import features as kernel
from parser.features import CompactTable, Scorer, Vocabulary
from parser.features.templates import ARC, WORD, split
from parser.features.vocabulary import FIELDS
from parser.graph import LINK, ScoredGraph, all_arcs
from parser.treebank import read_all

BITS = 18
MANY_BITS = 26  # so many rows that the few features of a test do not collide


@pytest.fixture(scope="module")
def sentences(english):
    return read_all([english])[:25]


@pytest.fixture(scope="module")
def scorer(sentences):
    return Scorer(Vocabulary.build(sentences), BITS)


def features_by_definition(vocabulary, sentence, h, m):
    """Every feature of the arc as text: template and values, by the rules of the table."""
    ids, morph = vocabulary.encode(sentence)
    n = len(sentence)

    def value(field, at):
        return "<" if at < 0 else ">" if at > n else int(ids[at, FIELDS.index(field)])

    def single(at):
        return [int(v) for v in morph[at] if v]

    between = range(min(h, m) + 1, max(h, m))
    word_templates = [" ".join(s + a for a in t.split()) for t in split(WORD) for s in ("H", "M")]
    out = Counter()
    for template in dict.fromkeys(word_templates + split(ARC)):
        known, extras, morphs = [], [()], []
        for atom in template.split():
            if atom == "D":
                extras = [(min(abs(h - m), 40),)]
            elif atom == "N":
                counts = Counter(value("c", t) for t in between)
                extras = [tuple(min(counts[value("c", e)], 2) for e in (h, m))]
            elif atom == "S":
                extras = [tuple(sorted({value("p", t) for t in between}))]
            elif atom in ("Bc", "Bp"):
                extras = [(v,) for v in sorted({value(atom[1], t) for t in between})]
            elif atom in ("Hm", "Mm"):
                morphs.append(single(h if atom == "Hm" else m))
            else:
                at = (h if atom[0] == "H" else m) + int(atom[2:] or 0)
                known.append(value(atom[1], at))
        if len(morphs) == 1:
            extras = [(v,) for v in morphs[0]]
        elif morphs:
            extras = [(v, w) for v in morphs[0] for w in morphs[1]]
        for extra in extras:
            out[template, *known, *extra] += 1
    return out


def rows_of(scorer, encoded, arc, arcs):
    """Rows of one arc, with the weight each of the 16 slots gets."""
    one = np.zeros(len(arcs))
    one[arc] = 1.0
    rows, values = gradient_of(scorer, encoded, arcs, one)
    return dict(zip(rows.tolist(), values, strict=True))


def gradient_of(scorer, encoded, arcs, coefficients):
    graph = ScoredGraph(arcs, np.zeros(len(arcs)))
    return scorer.gradient(encoded, graph, {LINK: coefficients})


def graph_of(scorer, encoded, weights, arcs=None):
    (graph,) = scorer.graphs([encoded], weights, projective=False, single_root=True, arcs=arcs)
    return graph


def test_arcs_share_rows_exactly_where_they_share_features(sentences):
    scorer = Scorer(Vocabulary.build(sentences), MANY_BITS)
    for sentence in sentences[:4]:
        encoded = scorer.encode(sentence)
        arcs = all_arcs(len(sentence))
        chosen = np.random.default_rng(0).choice(len(arcs), 12, replace=False).tolist()
        rows = {a: rows_of(scorer, encoded, a, arcs) for a in chosen}
        texts = {
            a: features_by_definition(
                scorer.vocabulary, sentence, int(arcs.heads[a]), int(arcs.modifiers[a])
            )
            for a in chosen
        }
        for a in chosen:
            assert len(rows[a]) == len(texts[a])
            counts = sorted(int(v[0]) for v in rows[a].values())
            assert counts == sorted(texts[a].values())
        for a, b in combinations(chosen, 2):
            assert len(rows[a].keys() & rows[b].keys()) == len(texts[a].keys() & texts[b].keys())


def test_slots_hold_the_feature_its_direction_and_its_distance(scorer, sentences):
    sentence = max(sentences, key=len)
    encoded, arcs = scorer.encode(sentence), all_arcs(len(sentence))
    for a in range(0, len(arcs), 7):
        h, m = int(arcs.heads[a]), int(arcs.modifiers[a])
        d = abs(h - m)
        place = d - 1 if d <= 5 else 5 if d <= 10 else 6
        expected = {0, (2 if h < m else 9) + place} | ({1} if h < m else set())
        for values in rows_of(scorer, encoded, a, arcs).values():
            assert set(np.flatnonzero(values).tolist()) == expected


def test_a_score_is_the_inner_product_of_weights_and_features(scorer, sentences):
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(1 << BITS, kernel.SLOTS)).astype(np.float32)
    for sentence in sentences[:5]:
        encoded = scorer.encode(sentence)
        graph = graph_of(scorer, encoded, weights)
        coefficients = rng.normal(size=len(graph.scores))
        gradient = gradient_of(scorer, encoded, graph.arcs, coefficients)
        assert len(set(gradient[0].tolist())) == len(gradient[0])
        expected = float(coefficients @ graph.scores)
        rows, values = gradient
        product = float((weights[rows].astype(np.float64) * values).sum())
        np.testing.assert_allclose(product, expected, rtol=1e-3, atol=1e-2)


def test_a_compact_table_gives_the_scores_of_the_dense_one(scorer, sentences):
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(1 << BITS, kernel.SLOTS)).astype(np.float32)
    weights[rng.random(1 << BITS) < 0.7] = 0
    rows = np.flatnonzero(weights.any(1)).astype(np.uint32)
    compact = CompactTable(BITS, rows, weights[rows])
    for sentence in sentences[:5]:
        encoded = scorer.encode(sentence)
        dense = graph_of(scorer, encoded, weights)
        small = graph_of(scorer, encoded, compact)
        np.testing.assert_allclose(small.scores, dense.scores, rtol=1e-4, atol=1e-4)


def test_candidates_do_not_change_the_scores_of_the_arcs_that_stay(scorer, sentences):
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(1 << BITS, kernel.SLOTS)).astype(np.float32)
    sentence = max(sentences, key=len)
    encoded = scorer.encode(sentence)
    full = graph_of(scorer, encoded, weights)
    keep = rng.random(len(full.scores)) < 0.4
    keep |= full.heads == 0  # every word keeps one
    arcs = full.arcs.select(keep)
    part = graph_of(scorer, encoded, weights, [arcs])
    np.testing.assert_allclose(part.scores, full.scores[keep], rtol=1e-5, atol=1e-5)


def test_the_same_features_in_every_process(scorer, sentences):
    """Rows come from the text of the templates alone; these two must never change by accident."""
    arcs = all_arcs(len(sentences[0]))
    ones = np.ones(len(arcs))
    rows, _ = gradient_of(scorer, scorer.encode(sentences[0]), arcs, ones)
    assert rows.min() >= 0
    assert rows.max() < 1 << BITS
    again = Scorer(Vocabulary.build(sentences), BITS)
    rows_again, _ = gradient_of(again, again.encode(sentences[0]), arcs, ones)
    np.testing.assert_array_equal(rows, rows_again)


def test_adagrad_and_add_move_only_the_rows_given():
    table = np.zeros((64, kernel.SLOTS), np.float32)
    squares, sums = np.zeros_like(table), np.zeros_like(table)
    rows = np.array([3, 9])
    gradient = np.random.default_rng(0).normal(size=(2, kernel.SLOTS)).astype(np.float32)
    kernel.adagrad(table, squares, sums, rows, gradient, 0.5, 4.0)
    np.testing.assert_allclose(table[rows], 0.5 * np.sign(gradient), rtol=1e-3)
    np.testing.assert_allclose(squares[rows], gradient**2, rtol=1e-6)
    np.testing.assert_allclose(sums, 4 * table, rtol=1e-6)
    kernel.add(table, sums, rows, gradient, 2.0, 3.0)
    expected = 0.5 * np.sign(gradient)
    np.testing.assert_allclose(table[rows], expected + 2 * gradient, rtol=1e-3)
    np.testing.assert_allclose(sums[rows], 4 * expected + 6 * gradient, rtol=1e-3, atol=1e-4)
    assert not np.delete(table, rows, axis=0).any()
