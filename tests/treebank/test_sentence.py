"""Sentences made in memory, and sentences written back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parser.treebank import Sentence, find_cycle, read

MIXED = (
    "# text = a\n"
    "1-2\tab\t_\t_\t_\t_\t_\t_\t_\tR=1\n"
    "1\ta\t_\t_\t_\t_\t2\tx\t2:x|3:y\t_\n"
    "2\tb\t_\t_\t_\t_\t0\troot\t_\tM=1\n"
    "2.1\te\t_\t_\t_\t_\t_\t_\t1:z\t_\n"
    "3\tc\t_\t_\t_\t_\t2\ty\t_\t_\n"
    "\n"
)

# Anything that a cell may hold: all of Unicode but tabs, line ends, and cells of white space.
cells = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\t\n\r"), min_size=1
).filter(str.strip)


@st.composite
def sentences(draw):
    n = draw(st.integers(1, 6))
    names = ("forms", "lemmas", "upos", "xpos", "feats", "deprels")
    columns = {name: draw(st.lists(cells, min_size=n, max_size=n)) for name in names}
    tail = st.lists(st.integers(-1, n), min_size=n, max_size=n)
    heads = draw(tail.map(lambda t: [-1, *t]).filter(lambda heads: not find_cycle(heads)))
    return Sentence.from_columns(**columns, heads=heads)


@pytest.fixture
def mixed(tmp_path):
    path = tmp_path / "mixed.conllu"
    path.write_bytes(MIXED.encode())
    (sentence,) = read(path)
    return sentence


@pytest.fixture(scope="module")
def trip(tmp_path_factory):
    return tmp_path_factory.mktemp("round") / "trip.conllu"


@settings(max_examples=60, deadline=None, derandomize=True)
@given(written=st.lists(sentences(), min_size=1, max_size=3))
def test_what_is_written_is_read_again(trip, written):
    text = "".join(sentence.to_conll() for sentence in written)
    trip.write_bytes(text.encode())
    again = list(read(trip, heads="optional", format="conllu"))
    assert "".join(sentence.to_conll() for sentence in again) == text
    for old, new in zip(written, again, strict=True):
        for name in ("forms", "lemmas", "upos", "xpos", "feats", "deprels"):
            assert getattr(new, name) == getattr(old, name)
        np.testing.assert_array_equal(new.heads, old.heads)


def test_only_the_named_cells_of_words_change(mixed):
    assert mixed.to_conll() == MIXED
    changed = mixed.to_conll(
        heads=[-1, 0, 3, -1],
        deprels=["p", "q", "r"],
        misc=["C=1", "C=2|D=2", ""],
        comments=["# k = v"],
    )
    assert changed == (
        "# text = a\n"
        "# k = v\n"
        "1-2\tab\t_\t_\t_\t_\t_\t_\t_\tR=1\n"
        "1\ta\t_\t_\t_\t_\t0\tp\t2:x|3:y\tC=1\n"
        "2\tb\t_\t_\t_\t_\t3\tq\t_\tM=1|C=2|D=2\n"
        "2.1\te\t_\t_\t_\t_\t_\t_\t1:z\t_\n"
        "3\tc\t_\t_\t_\t_\t_\tr\t_\t_\n"
        "\n"
    )
    assert mixed.to_conll() == MIXED


def test_sentences_from_columns_have_underscores_for_what_is_missing():
    sentence = Sentence.from_columns(["a", "b"], upos=["X", "Y"])
    assert sentence.to_conll() == "1\ta\t_\tX\t_\t_\t_\t_\t_\t_\n2\tb\t_\tY\t_\t_\t_\t_\t_\t_\n\n"
    assert sentence.heads.tolist() == [-1, -1, -1]
    assert (len(sentence), sentence.format) == (2, "conllu")


def test_heads_given_to_a_sentence_are_copied():
    heads = np.array([-1, 0], dtype=np.int32)
    sentence = Sentence.from_columns(["a"], heads=heads)
    heads[1] = 1
    assert sentence.heads.tolist() == [-1, 0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"forms": []}, "forms is empty"),
        ({"upos": ["X"]}, "upos must have 2 strings, one per word, got 1"),
        ({"forms": ["a", " "]}, "forms is blank for word 2"),
        ({"feats": ["a\tb", "c"]}, "feats holds a tab or a line end"),
        ({"deprels": ["a", "c\r"]}, "deprels holds a tab or a line end"),
        ({"heads": [0, 1]}, r"heads must be integers of shape \(3,\), .* of shape \(2,\)"),
        ({"heads": [-1.0, 0.0, 1.0]}, "heads must be integers .* got float64"),
        ({"heads": [0, 0, 1]}, "heads must have -1 first and values from -1 to 2"),
        ({"heads": [-1, 0, 3]}, "heads must have -1 first and values from -1 to 2"),
        ({"heads": [-1, 2, 1]}, r"heads has a cycle: \[1, 2\]"),
    ],
)
def test_bad_columns_are_named(columns, message):
    with pytest.raises(ValueError, match=message):
        Sentence.from_columns(**{"forms": ["a", "b"], **columns})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": [-1, 0]}, r"heads must be integers of shape \(4,\)"),
        ({"heads": [-1, 0, 0, 4]}, "values from -1 to 3"),
        ({"deprels": ["a", "b"]}, "deprels must have 3 strings"),
        ({"deprels": ["a", "", "b"]}, "deprels is blank for word 2"),
        ({"misc": ["a", "b"]}, "misc must have 3 strings"),
        ({"misc": ["a", "b\n", "c"]}, "misc holds a tab or a line end"),
        ({"comments": ["k = v"]}, "comments must be single lines that start with #: 'k = v'"),
        ({"comments": ["# a\nb"]}, "comments must be single lines"),
    ],
)
def test_changes_that_would_break_the_file_are_refused(mixed, changes, message):
    with pytest.raises(ValueError, match=message):
        mixed.to_conll(**changes)


@pytest.mark.parametrize("extra", [{"misc": ["a"]}, {"comments": ["# a"]}])
def test_conllx_has_no_room_for_more(tmp_path, extra):
    path = tmp_path / "a.conllx"
    path.write_text("1\ta\t_\tN\tN\t_\t0\tROOT\t_\t_\n")
    (sentence,) = read(path)
    with pytest.raises(ValueError, match="CoNLL-X has no MISC column"):
        sentence.to_conll(**extra)
