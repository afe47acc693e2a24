"""From the text of one sentence to a `Sentence`, or to the reason why not.

The usual case is decided by a few operations on whole columns; the row at fault is looked for
only once it is known that there is one.  Rows are not split by `conllu`: its row parser takes two
spaces for a tab and strips the ends of lines, so that neither would be written back as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from sys import intern
from typing import Literal, NamedTuple

import numpy as np
from conllu.exceptions import ParseException
from conllu.parser import parse_id_value

from parser.treebank.sentence import (
    DEPREL,
    DEPS,
    FEATS,
    FORM,
    HEAD,
    ID,
    LEMMA,
    MISC,
    STRIDE,
    UPOS,
    XPOS,
    Format,
    Sentence,
    TreebankError,
    split_cells,
)
from parser.treebank.structure import find_cycle

HeadRule = Literal["required", "optional", "ignored"]

_COLUMN_NAMES = {
    "conllu": "ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC",
    "conllx": "ID FORM LEMMA CPOSTAG POSTAG FEATS HEAD DEPREL PHEAD PDEPREL",
}
_UNIVERSAL_TAGS = "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X"
_COMMENT_INSIDE = "a comment inside a sentence (is a blank line missing before it?)"


class Block(NamedTuple):
    """Lines between two blank lines, and where they come from."""

    source: str
    number: int
    line: int
    comments: list[str]
    rows: str

    def error(self, row: int, reason: str) -> TreebankError:
        """What is wrong with this row, counted from 0."""
        line = self.line + len(self.comments) + row
        return TreebankError(self.source, line, self.number, reason)


def parse_block(
    block: Block, *, format: Format | None, guess: Format | None, heads: HeadRule
) -> Sentence:
    """Check a block and take its columns apart.  O(n log n).

    Parameters
    ----------
    format : {"conllu", "conllx"} or None
        None: CoNLL-U if there is a comment, a range or an empty node; else `guess`; else what
        `guess_format` says.
    heads : {"required", "optional", "ignored"}
        See `parser.treebank.read`.

    Raises
    ------
    TreebankError
        With the line of the first row at fault.
    """
    if not block.rows:
        raise block.error(-1, "comments without a sentence")
    if block.comments and format == "conllx":
        raise TreebankError(block.source, block.line, block.number, _foreign("a comment"))
    cells = split_cells(block.rows)
    n_rows = block.rows.count("\n") + 1
    if len(cells) != STRIDE * n_rows - 1 or cells[10::STRIDE].count("\n") != n_rows - 1:
        raise _column_error(block)

    names, _ = _numerals(n_rows)
    ids = cells[ID::STRIDE]
    only_words = ids == names
    starts = range(0, STRIDE * n_rows, STRIDE) if only_words else _word_starts(block, ids, format)
    n = len(starts)

    def column(k: int) -> list[str]:
        return cells[k::STRIDE] if only_words else [cells[start + k] for start in starts]

    if format is None:
        marked = block.comments or not only_words
        format = "conllu" if marked else guess or guess_format(cells)
    forms, deprels = column(FORM), column(DEPREL)
    if "" in cells or not all(map(str.strip, forms)):
        _refuse_empty(block, cells, format, heads)
    values = [-1] * n if heads == "ignored" else _heads(block, column(HEAD), starts, heads)
    array = np.array([-1, *values], dtype=np.int32)
    if cycle := find_cycle(array):
        raise _cycle_error(block, cycle, starts, values)
    # Tags, features and relations recur all over a treebank: one copy of each is enough.
    return Sentence(
        forms=forms,
        lemmas=column(LEMMA),
        upos=list(map(intern, column(UPOS))),
        xpos=list(map(intern, column(XPOS))),
        feats=list(map(intern, column(FEATS))),
        heads=array,
        deprels=list(map(intern, deprels)),
        rows=block.rows,
        comments=block.comments,
        format=format,
        source=block.source,
        number=block.number,
        line=block.line,
    )


def guess_format(cells: list[str]) -> Format:
    """Format of a sentence that has words only and no comments.

    A number in column 9 can only be CoNLL-X's PHEAD.  Else, anything but ``_`` in columns 9 and
    10 is CoNLL-U's DEPS and MISC.  Where both are ``_`` throughout, the formats differ in nothing
    that is read; it is called CoNLL-U if all of column 4 are universal tags or ``_``.
    """
    ninth, tenth = set(cells[DEPS::STRIDE]), set(cells[MISC::STRIDE])
    if any(map(str.isdecimal, ninth)):
        return "conllx"
    if ninth | tenth != {"_"}:
        return "conllu"
    universal = {*_UNIVERSAL_TAGS.split(), "_"}
    return "conllu" if universal.issuperset(cells[UPOS::STRIDE]) else "conllx"


@lru_cache(maxsize=512)
def _numerals(n: int) -> tuple[list[str], dict[str, int]]:
    """IDs of n words, and the value of each HEAD that n words may have."""
    names = [str(position) for position in range(n + 1)]
    return names[1:], {name: position for position, name in enumerate(names)}


def _foreign(what: str) -> str:
    return f"{what}, which CoNLL-X does not have; if the file is CoNLL-U, say format 'conllu'"


def _column_error(block: Block) -> TreebankError:
    row, text = next(
        (row, text)
        for row, text in enumerate(block.rows.split("\n"))
        if text.startswith("#") or text.count("\t") != 9
    )
    if text.startswith("#"):
        return block.error(row, _COMMENT_INSIDE)
    found = text.count("\t") + 1
    hint = "; columns are separated by tabs" if found == 1 else ""
    return block.error(row, f"10 columns expected, {found} found{hint}")


def _word_starts(block: Block, ids: list[str], format: Format | None) -> list[int]:
    """Where the cells of each word start, with ranges and empty nodes checked and left out."""
    starts: list[int] = []
    empty = 0  # empty nodes seen since the last word
    range_row, range_end = 0, 0
    for row, name in enumerate(ids):
        last = len(starts)
        if name == str(last + 1):
            starts.append(row * STRIDE)
            empty = 0
            continue
        try:
            value = parse_id_value(name)
        except ParseException:
            value = None
        match value:
            case (first, "-", end):
                if format == "conllx":
                    raise block.error(row, _foreign(f"a multiword range ({name})"))
                if first != last + 1:
                    raise block.error(row, f"range {name} must stand before its word {first}")
                if first <= range_end:
                    raise block.error(row, f"range {name} overlaps the range before it")
                range_row, range_end = row, end
            case (word, ".", index):
                if format == "conllx":
                    raise block.error(row, _foreign(f"an empty node ({name})"))
                empty += 1
                if (word, index) != (last, empty):
                    raise block.error(row, f"empty node {name} where {last}.{empty} is expected")
            case _ if name.startswith("#"):
                raise block.error(row, _COMMENT_INSIDE)
            case _:
                hint = " (is a blank line missing before it?)" if name == "1" else ""
                raise block.error(row, f"ID {name!r} where {last + 1} is expected{hint}")
    if not starts:
        raise block.error(0, "a sentence without words")
    if range_end > len(starts):
        reason = f"range {ids[range_row]} ends after the last word, {len(starts)}"
        raise block.error(range_row, reason)
    return starts


def _refuse_empty(block: Block, cells: list[str], format: Format, heads: HeadRule) -> None:
    free = (HEAD, DEPREL) if heads == "ignored" else ()
    for place, cell in enumerate(cells):
        row, k = divmod(place, STRIDE)
        if (cell == "" and k not in free) or (k == FORM and not cell.strip()):
            name = _COLUMN_NAMES[format].split()[k]
            raise block.error(row, f"{name} (column {k + 1}) is empty; write _ for nothing")


def _heads(block: Block, column: list[str], starts: Sequence[int], heads: HeadRule) -> list[int]:
    _, positions = _numerals(len(column))
    try:
        return [positions[cell] for cell in column]
    except KeyError:
        pass
    if heads == "optional":
        positions = {**positions, "_": -1}
    for word, (cell, start) in enumerate(zip(column, starts, strict=True), 1):
        if cell not in positions:
            if cell == "_":
                reason = f"word {word} has no head (HEAD is `_`), but gold heads are needed here"
            elif cell.isdecimal() and cell == str(int(cell)):
                reason = f"word {word} has head {cell}, but the last word is {len(column)}"
            else:
                reason = f"word {word} has HEAD {cell!r}, not a number from 0 to {len(column)}"
            raise block.error(start // STRIDE, reason)
    return [positions[cell] for cell in column]


def _cycle_error(
    block: Block, cycle: list[int], starts: Sequence[int], values: list[int]
) -> TreebankError:
    if len(cycle) == 1:
        reason = f"word {cycle[0]} is its own head"
    else:
        shown = cycle if len(cycle) <= 8 else [*cycle[:7], "..."]
        reason = f"the heads form a cycle: {' -> '.join(map(str, [*shown, cycle[0]]))}"
    if 0 not in values and -1 not in values:
        reason += "; no word has head 0, the root"
    return block.error(starts[cycle[0] - 1] // STRIDE, reason)
