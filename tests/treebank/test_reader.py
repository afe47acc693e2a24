"""What is read, what is refused, and in which words."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import sys
import threading

import pytest

from parser.treebank import TreebankError, read, read_all


def row(name, form="w", head="0", deprel="dep", ninth="_", tenth="_", tag="X"):
    return "\t".join([name, form, "_", tag, "_", "_", head, deprel, ninth, tenth]) + "\n"


ONE = row("1")
TWO = row("1", head="2") + row("2")


@pytest.fixture
def write(tmp_path):
    def _write(content, name="a.conllu"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return _write


def first_error(path, **options):
    with pytest.raises(TreebankError) as caught:
        list(read(path, **options))
    return caught.value


def test_a_sentence_has_its_words_and_its_place(write):
    path = write(
        "# sent_id = s1\n# a\tb\n"
        "0.1\te\t_\t_\t_\t_\t_\t_\t1:dep\t_\n"
        "1-2\tdel\t_\t_\t_\t_\t_\t_\t_\t_\n"
        "1\tde\td\tADP\tP\tA=1|A=2\t2\tcase\t_\t_\n"
        "2\tel sol\ts\tNOUN\tN\t_\t0\troot\t_\tX=Y\n"
        "\n" + ONE
    )
    first, second = read(path)
    assert first.forms == ["de", "el sol"]
    assert first.lemmas == ["d", "s"]
    assert first.upos == ["ADP", "NOUN"]
    assert first.xpos == ["P", "N"]
    assert first.feats == ["A=1|A=2", "_"]
    assert first.deprels == ["case", "root"]
    assert first.heads.tolist() == [-1, 2, 0]
    assert first.heads.dtype == "int32"
    assert first.comments == ["# sent_id = s1", "# a\tb"]
    assert (first.sent_id, second.sent_id) == ("s1", None)
    assert (len(first), first.number, first.line) == (2, 1, 1)
    assert (len(second), second.number, second.line) == (1, 2, 8)
    assert first.source == str(path)


@pytest.mark.parametrize(
    "content",
    [
        TWO + "\n" + ONE + "\n",
        "\ufeff" + TWO + "\n" + ONE + "\n",
        (TWO + "\n" + ONE + "\n").replace("\n", "\r\n"),
        "\n\n" + TWO + "\n\n\n" + ONE + "\n\n\n",
        TWO + " \n" + ONE + " \t\n",
        TWO + "\n" + ONE,
        (TWO + "\n" + ONE).removesuffix("\n"),
    ],
    ids=["plain", "bom", "crlf", "blank lines", "spaces", "no blank line", "no line end"],
)
def test_ends_of_lines_and_of_sentences_may_take_many_forms(write, content):
    sentences = list(read(write(content)))
    assert "".join(s.to_conll() for s in sentences) == TWO + "\n" + ONE + "\n"
    assert [s.number for s in sentences] == [1, 2]


def test_white_space_that_is_not_a_tab_or_a_line_end_stays(write):
    text = row("1", form="a  b\u00a0c\u2028d\x0b", tenth="e  ") + "\n"
    (sentence,) = read(write(text))
    assert sentence.forms == ["a  b\u00a0c\u2028d\x0b"]
    assert sentence.to_conll() == text


def test_line_numbers_count_blank_lines_and_a_missing_last_one(write):
    assert [s.line for s in read(write("\n\n" + TWO + "\n\n" + ONE))] == [3, 7]


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("1 w _ X\n", 1, "10 columns expected, 1 found; columns are separated by tabs"),
        (ONE + "2\tw\n", 2, "10 columns expected, 2 found"),
        (ONE[:-1] + "\t_\n", 1, "10 columns expected, 11 found"),
        (ONE.replace("_\n", "\t_\n") + row("2")[:-3] + "\n", 1, None),
        (ONE + "# late\n" + row("2"), 2, "a comment inside a sentence"),
        (ONE + "#" + "\t_" * 9 + "\n", 2, "a comment inside a sentence"),
        ("# only\n# this\n", 2, "comments without a sentence"),
        (row("0.1"), 1, "a sentence without words"),
        (row("2"), 1, "ID '2' where 1 is expected"),
        (ONE + ONE, 2, "ID '1' where 2 is expected (is a blank line missing before it?)"),
        (ONE + row("02"), 2, "ID '02' where 2 is expected"),
        (row("a"), 1, "ID 'a' where 1 is expected"),
        (ONE + row("1-2") + row("2"), 2, "range 1-2 must stand before its word 1"),
        (row("2-1") + ONE, 1, "ID '2-1' where 1 is expected"),
        (row("1-2") + ONE + row("2-3") + row("2") + row("3"), 3, "range 2-3 overlaps"),
        (row("1-2") + ONE, 1, "range 1-2 ends after the last word, 1"),
        (ONE + row("1.2"), 2, "empty node 1.2 where 1.1 is expected"),
        (row("1.1") + ONE, 1, "empty node 1.1 where 0.1 is expected"),
        (row("1", form=""), 1, "FORM (column 2) is empty"),
        (row("1", form=" \u00a0"), 1, "FORM (column 2) is empty"),
        (row("1", deprel=""), 1, "DEPREL (column 8) is empty"),
        (row("1", head=""), 1, "HEAD (column 7) is empty"),
        (row("1", tenth=""), 1, "MISC (column 10) is empty"),
        (ONE + row("2", head="_"), 2, "word 2 has no head (HEAD is `_`)"),
        (ONE + row("2", head="3"), 2, "word 2 has head 3, but the last word is 2"),
        (row("1", head="-1"), 1, "word 1 has HEAD '-1', not a number from 0 to 1"),
        (row("1", head="00"), 1, "word 1 has HEAD '00', not a number"),
        (row("1", head="\u0661"), 1, "word 1 has HEAD '\u0661', not a number"),
        (ONE + row("2", head="2"), 2, "word 2 is its own head"),
        (
            ONE + row("2", head="3") + row("2.1") + row("3", head="2"),
            2,
            "the heads form a cycle: 2 -> 3 -> 2",
        ),
        (TWO.replace("\t0\t", "\t1\t"), 1, "no word has head 0, the root"),
    ],
)
def test_a_bad_sentence_is_named_by_file_line_number_and_reason(write, content, line, reason):
    path = write(ONE + "\n" + content)
    error = first_error(path)
    assert (error.path, error.line, error.sentence) == (str(path), line + 2, 2)
    assert str(error).startswith(f"{path}:{line + 2}: sentence 2: ")
    assert "\n" not in str(error)
    if reason:
        assert error.reason.startswith(reason) or reason in error.reason


def test_lines_of_a_bad_sentence_count_from_its_comments(write):
    assert first_error(write("\n# c\n# d\n" + ONE + row("2", head="9"))).line == 5


def test_without_gold_heads_heads_may_be_missing_but_not_wrong(write):
    some = ONE + row("2", head="_", deprel="_")
    (sentence,) = read(write(some), heads="optional")
    assert sentence.heads.tolist() == [-1, 0, -1]
    for head, reason in [("7", "has head 7"), ("2", "its own head"), ("x", "not a number")]:
        content = row("1", head="_") + row("2", head=head)
        assert reason in first_error(write(content), heads="optional").reason


def test_ignored_heads_may_be_anything(write):
    content = row("1", head="9", deprel="") + row("2", head="") + row("3", head="3") + "\n"
    (sentence,) = read(write(content), heads="ignored")
    assert sentence.heads.tolist() == [-1] * 4
    assert sentence.to_conll() == content


def test_bad_sentences_can_be_skipped_and_are_all_told(write):
    path = write("\n".join([ONE, row("2"), "x\n", TWO, row("1", head="1")]))
    errors = []
    sentences = list(read(path, on_invalid=errors.append))
    assert [s.number for s in sentences] == [1, 4]
    assert [(e.sentence, e.line) for e in errors] == [(2, 3), (3, 5), (5, 10)]


def test_several_roots_are_a_tree(write):
    (sentence,) = read(write(ONE + row("2")))
    assert sentence.heads.tolist() == [-1, 0, 0]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("# c\n" + row("1", tag="N"), ["conllu"]),
        (row("1-2", tag="N") + TWO, ["conllu"]),
        (ONE + row("1.1"), ["conllu"]),
        (row("1", tag="N", ninth="0", tenth="ROOT"), ["conllx"]),
        (row("1", tag="N", tenth="SpaceAfter=No"), ["conllu"]),
        (row("1", tag="N", ninth="0:root"), ["conllu"]),
        (row("1", tag="NOUN"), ["conllu"]),
        (row("1", tag="_"), ["conllu"]),
        (row("1", tag="N"), ["conllx"]),
        (row("1", tag="N") + "\n" + row("1", tag="NOUN"), ["conllx", "conllx"]),
        (row("1", tag="N") + "\n# c\n" + ONE + "\n" + ONE, ["conllx", "conllu", "conllu"]),
    ],
)
def test_the_format_is_told_from_the_content(write, content, expected):
    assert [s.format for s in read(write(content))] == expected


def test_a_format_that_is_given_holds(write):
    (sentence,) = read(write(row("1", tag="N")), format="conllu")
    assert sentence.format == "conllu"
    for content, what in [
        ("# c\n" + ONE, "a comment"),
        (row("1-2") + TWO, "a multiword range"),
        (ONE + row("1.1"), "an empty node"),
    ]:
        error = first_error(write(content), format="conllx")
        assert error.reason.startswith(what)
        assert "CoNLL-X does not have" in error.reason


def test_conllx_columns_go_by_their_own_names(write):
    error = first_error(write(row("1", tag="", ninth="0")))
    assert error.reason.startswith("CPOSTAG (column 4) is empty")


def test_a_missing_file_and_a_folder_are_errors_of_the_treebank(tmp_path):
    error = first_error(tmp_path / "none.conllu")
    assert str(error) == f"{tmp_path / 'none.conllu'}: cannot open: No such file or directory"
    assert first_error(tmp_path).path == str(tmp_path)


def test_bytes_in_another_encoding_are_placed_and_the_way_out_is_named(write):
    path = write((ONE + "\n" + row("1", form="caf\u00e9")).encode("iso-8859-1"))
    error = first_error(path)
    assert (error.line, error.sentence) == (3, None)
    assert error.reason.startswith("byte 0xe9 at byte 6 of the line is not utf-8")
    assert "encoding iso-8859-1" in error.reason
    assert list(read(path, encoding="iso-8859-1"))[1].forms == ["caf\u00e9"]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_packed_files_are_read_and_cut_off_ones_refused(write, suffix, pack):
    text = "\n".join([ONE] * 3000)
    packed = pack(text.encode())
    assert len(read_all(write(packed, "a.conllu" + suffix))) == 3000
    assert "the packed file is cut off" in first_error(write(packed[:-9], "b" + suffix)).reason
    assert "cannot read" in first_error(write(text, "c" + suffix)).reason


def test_an_empty_file_has_no_sentences_and_an_empty_treebank_is_an_error(write):
    empty, blank = write(b"", "empty"), write("\n \n\n", "blank")
    assert list(read(empty)) == list(read(blank)) == []
    with pytest.raises(TreebankError, match=f"^{empty}, {blank}: no sentences$"):
        read_all([empty, blank])


def test_a_treebank_may_be_one_file_or_several(write):
    a, b = write(ONE, "a"), write(TWO, "b")
    assert [len(s) for s in read_all([a, b])] == [1, 2]
    assert [len(s) for s in read_all(str(b))] == [2]


def test_a_pipe_gives_each_sentence_as_soon_as_it_is_complete(monkeypatch):
    reading, writing = os.pipe()
    with open(reading) as stdin, open(writing, "w", buffering=1, newline="\n") as far_end:
        monkeypatch.setattr(sys, "stdin", stdin)
        sentences = read("-")
        got = []
        far_end.write(ONE + "\n")
        thread = threading.Thread(target=lambda: got.append(next(sentences)), daemon=True)
        thread.start()
        thread.join(timeout=10)
        assert [s.source for s in got] == ["<stdin>"]
        far_end.write(TWO)
        far_end.close()
        assert [len(s) for s in sentences] == [2]


def test_standard_input_is_named_in_errors(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x\n")))
    assert str(first_error("-")).startswith("<stdin>:1: sentence 1: ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "conll"}, "format must be auto, conllu or conllx, got 'conll'"),
        ({"heads": "maybe"}, "heads must be required, optional or ignored, got 'maybe'"),
        ({"encoding": "klingon"}, "unknown encoding 'klingon'"),
        ({"encoding": "utf-16"}, "encoding 'utf-16' does not end lines with the byte 0A"),
    ],
)
def test_bad_options_are_refused_before_anything_is_read(options, message):
    with pytest.raises(ValueError, match=message):
        read("no such file", **options)
