"""Every real file: written back byte for byte, with the figures that its makers' table gives."""

from __future__ import annotations

import lzma
import re
import unicodedata

import pytest

from parser.treebank import TreebankError, crossing_arcs, projective, read, read_all, roots

LATIN = "eu_nltk2007"  # the files that are not UTF-8


def figures(shared):
    """Sentences, words, longest, % non-projective sentences by file, from the table."""
    table = {}
    for line in (shared / "treebanks" / "README.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip(" `") for cell in line.strip("|").split("|")]
        if len(cells) > 7 and cells[0].endswith(".xz"):
            table[cells[0]] = [cells[2], cells[3], cells[5], cells[7]]
    return table


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["ud", "conllx", "ptb_sample"])
def test_files_come_back_byte_for_byte_with_the_published_figures(shared, folder):
    table = figures(shared)
    files = sorted((shared / "treebanks" / folder).glob("*.conll*.xz"))
    assert len(files) > 2
    for path in files:
        encoding = "iso-8859-1" if path.name.startswith(LATIN) else "utf-8"
        kept, changed = [], []
        words = longest = crossed = 0
        for sentence in read(path, encoding=encoding):
            kept.append(sentence.to_conll())
            changed.append(sentence.to_conll(heads=sentence.heads, deprels=sentence.deprels))
            assert sentence.format == folder.replace("ptb_sample", "conllx").replace("ud", "conllu")
            words += len(sentence)
            longest = max(longest, len(sentence))
            crossed += not projective(sentence.heads)
        packed = lzma.decompress(path.read_bytes()).decode(encoding)
        if path.name == "es_nltk2007_test.conllx.xz":  # lacks its last blank line
            packed += "\n"
        assert "".join(kept) == packed, path.name
        assert kept == changed, path.name
        count = len(kept)
        shown = [f"{count:,}", f"{words:,}", str(longest), f"{100 * crossed / count:.1f}"]
        assert shown == table[f"{folder}/{path.name}"], path.name


def normalised(data):
    """The same sentences in plain form: no mark, line feeds, one blank line after each."""
    text = data.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n").strip("\n ")
    return re.sub(r"\n\s*\n", "\n\n", text) + "\n\n"


def test_corner_files_come_back_in_plain_form(shared):
    files = sorted((shared / "treebanks" / "corner").glob("*.xz"))
    assert len(files) > 10
    for path in files:
        text = "".join(sentence.to_conll() for sentence in read(path))
        assert text == normalised(lzma.decompress(path.read_bytes())), path.name


def test_derived_corner_files_hold_the_sentences_of_their_base(shared):
    corner = shared / "treebanks" / "corner"
    base = [s.to_conll() for s in read(corner / "plain_base.conllu.xz")]
    assert len(base) == 22
    for path in corner.glob("derived_*.xz"):
        text = [unicodedata.normalize("NFC", s.to_conll()) for s in read(path)]
        assert text == base, path.name


def test_text_is_not_normalised(shared):
    forms = [f for s in read(shared / "treebanks/corner/derived_nfd.conllu.xz") for f in s.forms]
    assert any(unicodedata.normalize("NFC", form) != form for form in forms)


def test_corners_are_what_they_are_said_to_be(shared):
    corner = shared / "treebanks" / "corner"

    def sentences(name):
        return read_all(corner / f"{name}.xz")

    assert any("\t" in c for s in sentences("comment_with_tab.conllu") for c in s.comments)
    assert any(" " in form for s in sentences("space_in_form.conllu") for form in s.forms)
    assert any("_" in s.forms for s in sentences("underscore_form.conllu"))
    assert {len(s) for s in sentences("length_one.conllu")} == {1}
    assert max(len(s) for s in sentences("long_sentences.conllu")) == 290
    assert all(len(roots(s.heads)) > 1 for s in sentences("multiroot.conllx"))
    assert all(crossing_arcs(s.heads).any() for s in sentences("very_nonprojective.conllu"))


def test_a_file_in_another_encoding_is_refused_with_advice(shared):
    with pytest.raises(TreebankError, match="not utf-8; name the encoding"):
        read_all(shared / "treebanks" / "conllx" / "eu_nltk2007_test.conllx.xz")
