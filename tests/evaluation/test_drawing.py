"""Pictures of trees, and tables, as a terminal shows them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parser.evaluation import draw, table, to_dot
from parser.evaluation.tables import width
from parser.treebank import Sentence, read

SENTENCE = Sentence.from_columns(
    ["Dogs", "chase", "the", "cats"],
    upos=["NOUN", "VERB", "DET", "NOUN"],
    heads=[-1, 2, 0, 4, 2],
    deprels=["nsubj", "root", "det", "obj"],
)


def lines_of(picture):
    return [line.rstrip() for line in picture.split("\n")]


def bare(n):
    return Sentence.from_columns([chr(ord("a") + i) for i in range(n)], deprels=["r"] * n)


def test_a_projective_tree():
    assert lines_of(draw(SENTENCE)) == [
        " ╭─── Dogs   nsubj  NOUN",
        "─┼─── chase  root   VERB",
        " │ ╭─ the    det    DET",
        " ╰─┴─ cats   obj    NOUN",
    ]


def test_ascii_only():
    picture = draw(SENTENCE, ascii=True)
    assert picture.isascii()
    assert lines_of(picture)[3] == " +-+- cats   obj    NOUN"


def test_another_parse_of_the_same_words():
    picture = draw(SENTENCE, [-1, 0, 1, 4, 2], ["a", "b", "c", "d"])
    assert lines_of(picture)[0] == "─┬───── Dogs   a  NOUN"
    assert lines_of(draw(SENTENCE)) != lines_of(picture)


def test_where_arcs_cross_the_vertical_line_runs_through():
    # 1 -> 3 and 2 -> 4 cross.
    assert lines_of(draw(bare(4), [-1, 0, 1, 1, 2])) == [
        "─┬─── a  r  _",
        " ├─┬─ b  r  _",
        " ╰─│─ c  r  _",
        "   ╰─ d  r  _",
    ]


def test_several_roots_and_missing_heads():
    assert lines_of(draw(bare(4), [-1, 0, 0, -1, 3])) == [
        "─── a  r  _",
        "─── b  r  _",
        " ╭─ c  r  _",
        " ╰─ d  r  _",
    ]
    assert lines_of(draw(bare(2), [-1, -1, -1])) == ["  a  r  _", "  b  r  _"]


def test_cycles_are_drawn_as_they_are():
    picture = draw(bare(3), [-1, 2, 1, 0])
    assert lines_of(picture) == [
        " ╭─┬─ a  r  _",
        " ╰─┴─ b  r  _",
        "───── c  r  _",
    ]


def test_wide_characters_take_two_columns_and_marks_none():
    assert width("猫") == width("\N{FULLWIDTH LATIN SMALL LETTER A}") == width("né") == 2
    assert width("e\N{COMBINING ACUTE ACCENT}") == 1
    sentence = Sentence.from_columns(
        ["猫", "いる"], upos=["N", "V"], heads=[-1, 2, 0], deprels=["nsubj", "root"]
    )
    assert lines_of(draw(sentence)) == [" ╭─ 猫    nsubj  N", "─┴─ いる  root   V"]


def test_right_to_left_forms_are_isolated():
    sentence = Sentence.from_columns(["שלום", "!"], heads=[-1, 0, 1], deprels=["root", "punct"])
    first, second = draw(sentence).split("\n")
    assert "\N{FIRST STRONG ISOLATE}שלום\N{POP DIRECTIONAL ISOLATE}" in first
    assert "\N{FIRST STRONG ISOLATE}" not in second
    assert width(first) == width(second)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_arcs_can_be_read_back(data):
    """Following lines from each word to the left gives its head, for any tree."""
    n = data.draw(st.integers(1, 8))
    order = data.draw(st.permutations(range(1, n + 1)))
    heads = [-1] * (n + 1)
    for place, word in enumerate(order):
        heads[word] = data.draw(st.sampled_from([0, *order[:place]]))
    assert read_back(draw(bare(n), heads).split("\n")) == heads


def read_back(rows):
    edge = rows[0].index(" a  r")
    grid = [row[:edge] for row in rows]
    tracks = []  # of each vertical line: its column, and the words that it joins
    for column in range(edge):
        for word, row in enumerate(grid, 1):
            symbol = row[column]
            if symbol in "╭┬":
                joined = []
            if symbol in "╭┬├┼╰┴":
                joined.append(word)
            if symbol in "╰┴":
                tracks.append((column, joined))

    def first_column(word):
        return min(column for column, joined in tracks if word in joined)

    heads = [-1]
    for word, row in enumerate(grid, 1):
        if row[0] == "─":
            heads.append(0)
            continue
        # The first line on the way left is the head's, and the only word on it that does not
        # hang from it, being a root or hanging further left, is the head.
        column = first_column(word)
        joined = next(joined for at, joined in tracks if at == column and word in joined)
        heads.append(next(w for w in joined if grid[w - 1][0] == "─" or first_column(w) < column))
    return heads


@pytest.mark.parametrize("size", [1, 400])
def test_chains_of_any_length(size):
    sentence = Sentence.from_columns(["w"] * size, heads=np.arange(-1, size), deprels=["d"] * size)
    assert len(draw(sentence).split("\n")) == size


def test_dot_points_from_head_to_modifier():
    dot = to_dot(SENTENCE)
    assert '  2 -> 1 [label="nsubj"];' in dot
    assert '  0 -> 2 [label="root"];' in dot
    assert dot.count("->") == 4
    assert to_dot(SENTENCE, [-1, -1, 0, 4, 2]).count("->") == 3


def test_dot_escapes_what_would_end_a_string():
    quotes = Sentence.from_columns(['"', "\\"], heads=[-1, 0, 1], deprels=["a", "b"])
    assert '[label="\\"\\n_"]' in to_dot(quotes)
    assert '[label="\\\\\\n_"]' in to_dot(quotes)


@pytest.mark.parametrize("show", [draw, to_dot])
def test_heads_that_do_not_fit_are_refused(show):
    with pytest.raises(ValueError, match=r"need heads of shape \(5,\)"):
        show(SENTENCE, [-1, 0])
    with pytest.raises(ValueError, match=r"heads must be in -1\.\.4"):
        show(SENTENCE, [-1, 0, 1, 1, 9])


@pytest.mark.parametrize("name", ["very_nonprojective", "long_sentences", "empty_nodes"])
def test_real_sentences_have_a_line_for_each_word(shared, name):
    for sentence in read(shared / "treebanks" / "corner" / f"{name}.conllu.xz"):
        assert len(draw(sentence).split("\n")) == len(sentence)


def test_tables_are_aligned():
    rows = [{"word": "猫", "count": 3, "las_p": 50.0}, {"word": "dog", "count": 12, "las_p": None}]
    assert table(rows).split("\n") == [
        "word  count  las p",
        "猫        3  50.00",
        "dog      12      -",
    ]
    assert table([]) == ""
