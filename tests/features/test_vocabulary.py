"""Columns to integers."""

from __future__ import annotations

import json

import numpy as np

from parser.features.vocabulary import FIELDS, UNKNOWN, Vocabulary, shape
from parser.treebank import Sentence

COLUMN = {name: i for i, name in enumerate(FIELDS)}


def sentence(forms, **columns):
    return Sentence.from_columns(forms.split(), **{k: v.split() for k, v in columns.items()})


def test_rare_forms_are_unknown_and_frequent_ones_are_not():
    train = [sentence("the cat saw the dog", upos="D N V D N", xpos="dt nn vb dt nn")]
    ids, _ = Vocabulary.build(train, cutoff=2).encode(train[0])
    w = ids[1:, COLUMN["w"]]
    assert w[0] == w[3] != UNKNOWN
    assert (w[[1, 2, 4]] == UNKNOWN).all()


def test_unseen_tags_and_missing_columns_are_ordinary_values():
    train = [sentence("a b", upos="D N", xpos="_ _")]
    vocabulary = Vocabulary.build(train)
    ids, morph = vocabulary.encode(sentence("a zzz", upos="D NEW", xpos="_ weird"))
    assert ids.shape == (3, len(FIELDS))
    assert morph.shape == (3, 0)
    assert ids[2, COLUMN["c"]] == UNKNOWN


def test_repeated_morphological_names_are_separate_features():
    feats = "PersonNumber=A3sg|PersonNumber=V3sg"
    train = [sentence("a b", upos="D N", xpos="x y", feats=f"_ {feats}")]
    _, morph = Vocabulary.build(train).encode(train[0])
    assert len(set(morph[2].tolist())) == 2
    assert morph[2].all()
    assert not morph[1].any()


def test_without_fine_tags_the_coarse_tag_and_the_features_make_one():
    train = [sentence("a b c", upos="V V N", xpos="_ _ _", feats="A=1 A=2 A=1")]
    vocabulary = Vocabulary.build(train)
    ids, _ = vocabulary.encode(train[0])
    assert len(set(ids[1:, COLUMN["p"]].tolist())) == 3
    assert len(set(ids[1:, COLUMN["c"]].tolist())) == 2
    assert vocabulary.absent == {"l", "xpos"}


def test_coarse_tags_that_only_repeat_the_fine_ones_become_their_first_letters():
    train = [sentence("a b c", upos="NN NNS VB", xpos="NN NNS VB")]
    vocabulary = Vocabulary.build(train)
    c = vocabulary.encode(train[0])[0][1:, COLUMN["c"]]
    assert c[0] == c[1] != c[2]
    assert vocabulary.absent == {"l", "f", "m"}


def test_it_survives_json():
    train = [sentence("the cat saw the dog", upos="D N V D N", xpos="dt nn vb dt nn")]
    vocabulary = Vocabulary.build(train)
    again = Vocabulary.from_dict(json.loads(json.dumps(vocabulary.to_dict())))
    for one, two in zip(vocabulary.encode(train[0]), again.encode(train[0]), strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_stream_of_new_words_stays_within_the_cache(monkeypatch):
    monkeypatch.setattr(Vocabulary, "CACHE", 50)
    train = [sentence("a b", upos="D N", xpos="x y")]
    vocabulary = Vocabulary.build(train)
    expected = vocabulary.encode(train[0])[0].copy()
    for i in range(300):
        vocabulary.encode(sentence(f"a{i} b{i}", upos="D N", xpos="x y"))
    assert len(vocabulary._rows) <= 60
    np.testing.assert_array_equal(vocabulary.encode(train[0])[0], expected)


def test_shapes():
    assert [shape(w) for w in ("Anna", "USA", "3.5", "well-known", "U.S.")] == [
        "Xx",
        "X",
        "d.d",
        "x-x",
        "X.X.",
    ]
