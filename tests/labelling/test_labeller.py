"""Labels for the arcs of a tree."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from cython_ext import labels as kernel
from parser.features import Vocabulary
from parser.labelling import Labeller
from parser.treebank import Sentence, read_all


@pytest.fixture(scope="module")
def sentences(english):
    return read_all([english])


@pytest.fixture(scope="module")
def labeller(sentences):
    out = Labeller.empty(Vocabulary.build(sentences[:140]), sentences[:140], 14)
    losses = list(out.train(sentences[:140], 4, 0.05, np.random.default_rng(0)))
    assert losses[-1] < 0.2 * losses[0]
    return out


def test_scores_are_the_sums_of_the_rows(labeller, sentences):
    for sentence in sentences[150:160]:
        ids, morph = labeller.vocabulary.encode(sentence)
        rows = labeller.rows(ids, morph, sentence.heads)
        expected = [
            labeller.weights[[r for r in row if r >= 0]].sum(0)[: len(labeller.labels)]
            for row in rows.tolist()
        ]
        got = labeller.scores([(ids, morph)], [sentence.heads])
        allowed = np.isfinite(got)
        np.testing.assert_allclose(got[allowed], np.array(expected)[allowed], rtol=1e-4, atol=1e-4)


def test_words_under_the_root_and_others_get_labels_seen_there(labeller, sentences):
    seen = ({}, {})
    for sentence in sentences[:140]:
        for label, head in zip(sentence.deprels, sentence.heads[1:].tolist(), strict=True):
            seen[head == 0][label] = True
    for sentence in sentences:
        ids, morph = labeller.vocabulary.encode(sentence)
        ((labels, _),) = labeller.label([(ids, morph)], [sentence.heads])
        for label, head in zip(labels, sentence.heads[1:].tolist(), strict=True):
            assert label in seen[head == 0]


def test_probabilities_are_the_softmax_of_the_scores(labeller, sentences):
    columns = [labeller.vocabulary.encode(s) for s in sentences[150:160]]
    trees = [s.heads for s in sentences[150:160]]
    answers = labeller.label(columns, trees, probabilities=True)
    p = softmax(labeller.scores(columns, trees).astype(np.float64), axis=1)
    np.testing.assert_allclose(np.concatenate([sure for _, sure in answers]), p.max(1), rtol=1e-6)
    best = [labeller.labels[r] for r in p.argmax(1).tolist()]
    assert best == [label for labels, _ in answers for label in labels]


def test_a_batch_gives_what_its_sentences_give_alone(labeller, sentences):
    columns = [labeller.vocabulary.encode(s) for s in sentences[140:]]
    trees = [s.heads for s in sentences[140:]]
    together = labeller.label(columns, trees)
    alone = [labeller.label([c], [y])[0] for c, y in zip(columns, trees, strict=True)]
    assert [labels for labels, _ in together] == [labels for labels, _ in alone]


def test_it_learns_more_than_the_most_frequent_relation_of_a_tag(labeller, sentences):
    by_tag: dict[str, dict[str, int]] = {}
    for sentence in sentences[:140]:
        for tag, label in zip(sentence.upos, sentence.deprels, strict=True):
            counts = by_tag.setdefault(tag, {})
            counts[label] = counts.get(label, 0) + 1
    right = baseline = words = 0
    for sentence in sentences[153:]:
        ids, morph = labeller.vocabulary.encode(sentence)
        ((labels, _),) = labeller.label([(ids, morph)], [sentence.heads])
        right += sum(a == b for a, b in zip(labels, sentence.deprels, strict=True))
        for tag, gold in zip(sentence.upos, sentence.deprels, strict=True):
            counts = by_tag.get(tag, {"_": 1})
            baseline += max(counts, key=counts.__getitem__) == gold
        words += len(sentence)
    assert right / words > baseline / words + 0.1


def test_features_look_at_siblings_grandparent_and_children():
    """Moving a far word changes only the features of words whose surroundings it changes."""
    words = Sentence.from_columns(
        ["a", "b", "c", "d", "e"], upos=["A", "B", "C", "D", "E"], heads=[-1, 2, 0, 2, 3, 3]
    )
    vocabulary = Vocabulary.build([words], cutoff=1)
    labeller = Labeller.empty(vocabulary, [words], 20)
    ids, morph = vocabulary.encode(words)
    before = labeller.rows(ids, morph, np.array([-1, 2, 0, 2, 3, 3], np.int32))
    after = labeller.rows(ids, morph, np.array([-1, 2, 0, 2, 3, 4], np.int32))
    changed = (before != after).any(1)
    # 1 has the same head, sibling and grandparent; 3 loses a child, 4 gains one, 5 moved.
    assert changed.tolist() == [False, False, True, True, True]


def test_the_gradient_step_lowers_the_loss_of_its_word():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 64, size=(1, 6)).astype(np.int32)
    table = np.zeros((64, 16), np.float32)
    squares = np.zeros_like(table)
    gold, allowed = np.array([3], np.int32), np.zeros((1, 16), np.float32)
    allowed[0, 10:] = -np.inf
    losses = [kernel.train(rows, gold, allowed, table, squares, 0.1) for _ in range(6)]
    assert losses[0] == pytest.approx(np.log(10))
    assert losses == sorted(losses, reverse=True)
    assert not table[:, 10:].any()
