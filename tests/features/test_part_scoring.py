"""The kernel of parts against a reading of the template tables in plain Python."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from cython_ext import features as kernel
from parser.features import CompactTable, Scorer, Vocabulary
from parser.features.part_templates import LETTERS, SETS
from parser.features.templates import split
from parser.features.vocabulary import FIELDS
from parser.graph import CODES, LINK, all_arcs
from parser.treebank import read_all

MANY_BITS = 26  # so many rows that the few features of a test do not collide
FAMILIES = tuple(CODES)


@pytest.fixture(scope="module")
def sentences(english):
    return [s for s in read_all([english]) if 5 <= len(s) <= 9][:4]


@pytest.fixture(scope="module")
def vocabulary(english):
    return Vocabulary.build(read_all([english]))


def distance_bin(d):
    return d - 1 if d <= 5 else 5 if d <= 10 else 6


def features_by_definition(vocabulary, sentence, family, part, name):
    """Every feature of a part as text, by the rules of the table; and its distance bin."""
    ids, _ = vocabulary.encode(sentence)
    n = len(sentence)
    places = dict(zip(LETTERS[family], part, strict=True))
    if family == "sib" and places["S"] < places["M"] < places["H"]:
        places["S"], places["M"] = places["M"], places["S"]
    h, s, m, g = (places.get(letter) for letter in "HSMG")
    start, end = s == h, m in (-1, n + 1)
    order = []
    if family == "nocross":
        gap, reach = 0, m - s
    elif family == "grand":
        order, gap, reach = [g < h, h < m, g < m], distance_bin(abs(g - h)), abs(h - m)
    elif family == "sib":
        order, gap, reach = [h < part[1], h < part[2]], distance_bin(abs(m - s)), abs(h - m)
    else:
        side = m > h
        order = [side] + ([g < h, g < (n + 1 if end else m)] if g is not None else [])
        gap = 0 if end else distance_bin(abs(m - s))
        reach = abs(h - s) if end else abs(h - m)

    def value(letter, field, offset):
        if letter == "S" and start and family in ("childseq", "grandsib"):
            return "<"
        if letter == "M" and end:
            return ">"
        at = places[letter] + offset
        return "<" if at < 0 else ">" if at > n else int(ids[at, FIELDS.index(field)])

    out = Counter()
    for template in dict.fromkeys(split(SETS[name][family])):
        atoms = template.split()
        known = [value(a[0], a[1], int(a[2:] or 0)) for a in atoms if a not in "D*"]
        extra = [] if "*" in atoms else [*order, gap] if "D" in atoms else order
        out[template, *known, *extra] += 1
    return out, 1 + distance_bin(reach) if reach else None


def rows_of(scorer, sentence, graph, family, part):
    """Half rows of one part, with the weights that each of its 8 slots gets."""
    coefficients = {f: np.zeros(len(v)) for f, v in graph.values.items()}
    coefficients[family][part] = 1.0
    rows, values = scorer.gradient(scorer.encode(sentence), graph, coefficients)
    halves = {}
    for row, slots in zip(rows.tolist(), values, strict=True):
        for half in (0, 1):
            if slots[8 * half : 8 * half + 8].any():
                halves[2 * row + half] = slots[8 * half : 8 * half + 8]
    return halves


def graph_of(scorer, sentence, weights, arcs=None):
    (graph,) = scorer.graphs(
        [scorer.encode(sentence)], weights, projective=False, single_root=True, arcs=arcs
    )
    return graph


@pytest.mark.parametrize("name", sorted(SETS))
@pytest.mark.parametrize("family", FAMILIES)
def test_parts_share_rows_exactly_where_they_share_features(sentences, vocabulary, family, name):
    scorer = Scorer(vocabulary, MANY_BITS, (LINK, family), part_set=name)
    sentence = sentences[0]
    graph = graph_of(scorer, sentence, np.zeros((0, 0), np.float32))
    index = graph.index(family)
    possible = np.ones(index.shape[1], bool)
    if family.startswith("grand"):  # the grandparent is none of the modifiers
        possible = (index[0] != index[2:]).all(0)
    rng = np.random.default_rng(0)
    chosen = rng.choice(np.flatnonzero(possible), min(14, int(possible.sum())), replace=False)
    rows, texts = {}, {}
    for part in chosen.tolist():
        rows[part] = rows_of(scorer, sentence, graph, family, part)
        texts[part], slot = features_by_definition(
            vocabulary, sentence, family, index[:, part].tolist(), name
        )
        assert len(rows[part]) == len(texts[part])
        for values in rows[part].values():
            assert set(np.flatnonzero(values).tolist()) == {0} | ({slot} if slot else set())
    for a, b in combinations(chosen.tolist(), 2):
        assert len(rows[a].keys() & rows[b].keys()) == len(texts[a].keys() & texts[b].keys())


@pytest.mark.parametrize("pruned", [False, True])
def test_a_score_is_the_inner_product_of_weights_and_features(sentences, vocabulary, pruned):
    rng = np.random.default_rng(0)
    bits = 12
    scorer = Scorer(vocabulary, bits, (LINK, *FAMILIES))
    dense = rng.normal(size=(1 << bits, kernel.SLOTS)).astype(np.float32)
    dense[rng.random(1 << bits) < 0.5] = 0
    used = np.flatnonzero(dense.any(1)).astype(np.uint32)
    compact = CompactTable(bits, used, dense[used])
    sentence = sentences[1]
    arcs = all_arcs(len(sentence))
    if pruned:
        arcs = arcs.select(rng.random(len(arcs)) < 0.5).including(sentence.heads)
    graph = graph_of(scorer, sentence, dense, [arcs])
    same = graph_of(scorer, sentence, compact, [arcs])
    for family in FAMILIES:
        scores = graph.parts[family]
        np.testing.assert_array_equal(scores, same.parts[family])
        for part in rng.choice(len(scores), 5).tolist():
            halves = rows_of(scorer, sentence, graph, family, part)
            expected = sum(
                float(dense.reshape(-1, 8)[half] @ values) for half, values in halves.items()
            )
            index = graph.index(family)[:, part].tolist()
            if family.startswith("grand") and index[0] in index[2:]:
                assert scores[part] == 0.0
            else:
                np.testing.assert_allclose(scores[part], expected, rtol=1e-4, atol=1e-3)


def test_scores_do_not_depend_on_the_batch(sentences, vocabulary):
    scorer = Scorer(vocabulary, 12, (LINK, *FAMILIES))
    weights = np.random.default_rng(0).normal(size=(1 << 12, kernel.SLOTS)).astype(np.float32)
    together = scorer.graphs(
        [scorer.encode(s) for s in sentences], weights, projective=True, single_root=True
    )
    for sentence, graph in zip(sentences, together, strict=True):
        alone = graph_of(scorer, sentence, weights)
        for family in FAMILIES:
            np.testing.assert_array_equal(alone.parts[family], graph.parts[family])
