"""A sentence of a treebank, and the error that says what is wrong with one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from conllu.parser import parse_comment_line

from parser.treebank.structure import find_cycle

Format = Literal["conllu", "conllx"]

# Rows are split into one flat list of cells.  A cell of its own marks each end of line, so that
# column k is `cells[k::STRIDE]` and a row with a cell too many or too few cannot go unseen.
STRIDE = 11
ID, FORM, LEMMA, UPOS, XPOS, FEATS, HEAD, DEPREL, DEPS, MISC = range(10)


def split_cells(rows: str) -> list[str]:
    """Cells of all rows, with a cell ``"\\n"`` between one row and the next."""
    return rows.replace("\n", "\t\n\t").split("\t")


def join_cells(cells: list[str]) -> str:
    """Inverse of `split_cells`."""
    return "\t".join(cells).replace("\t\n\t", "\n")


class TreebankError(ValueError):
    """A file or a sentence that cannot be used.  Its text is one line for people.

    Attributes
    ----------
    path : str
        File as given, ``<stdin>`` for standard input.
    line, sentence : int or None
        Line in the file and number of the sentence, both from 1; None where there is none.
    reason : str
    """

    def __init__(
        self, path: str | os.PathLike[str], line: int | None, sentence: int | None, reason: str
    ) -> None:
        super().__init__(os.fspath(path), line, sentence, reason)
        self.path, self.line, self.sentence, self.reason = self.args

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        number = "" if self.sentence is None else f"sentence {self.sentence}: "
        return f"{place}: {number}{self.reason}"


@dataclass(slots=True, eq=False)
class Sentence:
    """One sentence: the columns of its n words, and all of its text for writing it back.

    Attributes
    ----------
    forms, lemmas, upos, xpos, feats, deprels : list of str, length n
        Raw cells of the words; ``_`` is kept.  Multiword ranges and empty nodes are not words.
        In CoNLL-X, CPOSTAG is `upos` and POSTAG is `xpos`.
    heads : ndarray of int32, shape (n+1,)
        ``heads[m]`` is the head of word m, 0 the root; -1 for position 0 and where HEAD is ``_``.
    rows : str
        Raw rows, joined by line feeds, ranges and empty nodes included.
    comments : list of str
        Raw comment lines, ``#`` included.
    format : {"conllu", "conllx"}
    source : str
        File as given, ``<stdin>`` for standard input.
    number, line : int
        Number of the sentence in its file and number of its first line, both from 1.
    """

    forms: list[str]
    lemmas: list[str]
    upos: list[str]
    xpos: list[str]
    feats: list[str]
    heads: np.ndarray
    deprels: list[str]
    rows: str = field(repr=False)
    comments: list[str] = field(default_factory=list, repr=False)
    format: Format = "conllu"
    source: str = "<memory>"
    number: int = 1
    line: int = 1

    def __len__(self) -> int:
        return len(self.forms)

    @property
    def sent_id(self) -> str | None:
        """Value of the first comment ``# sent_id = ...``, or None."""
        for comment in self.comments:
            for key, value in parse_comment_line(comment):
                if key == "sent_id":
                    return value
        return None

    @classmethod
    def from_columns(
        cls,
        forms: Sequence[str],
        *,
        lemmas: Sequence[str] | None = None,
        upos: Sequence[str] | None = None,
        xpos: Sequence[str] | None = None,
        feats: Sequence[str] | None = None,
        heads: Sequence[int] | np.ndarray | None = None,
        deprels: Sequence[str] | None = None,
    ) -> Sentence:
        """A CoNLL-U sentence from columns in memory.  O(n).

        Parameters
        ----------
        forms : sequence of str, length n, at least one
        lemmas, upos, xpos, feats, deprels : sequence of str, length n, optional
            Default: ``_`` for each word.
        heads : array_like of int, shape (n+1,), optional
            ``heads[0]`` is -1; values from -1 (not known) to n.  Copied.  Default: none known.

        Raises
        ------
        ValueError
            If a length differs, a cell is empty or holds a tab or a line end, or a head is out
            of range or on a cycle.

        Examples
        --------
        >>> Sentence.from_columns(["Birds", "sing"], heads=[-1, 2, 0]).rows.split("\\n")[1]
        '2\\tsing\\t_\\t_\\t_\\t_\\t0\\t_\\t_\\t_'
        """
        n = len(forms)
        if n == 0:
            raise ValueError("forms is empty: a sentence has at least one word")
        given = {
            "forms": forms,
            "lemmas": lemmas,
            "upos": upos,
            "xpos": xpos,
            "feats": feats,
            "deprels": deprels,
        }
        columns = {
            name: ["_"] * n if cells is None else _checked_cells(name, cells, n)
            for name, cells in given.items()
        }
        heads = _checked_heads(np.full(n + 1, -1) if heads is None else heads, n)
        if cycle := find_cycle(heads):
            raise ValueError(f"heads has a cycle: {cycle}, each word followed by its head")
        table = (
            [str(position) for position in range(1, n + 1)],
            *(columns[name] for name in ("forms", "lemmas", "upos", "xpos", "feats")),
            _head_cells(heads),
            columns["deprels"],
            ["_"] * n,
            ["_"] * n,
        )
        rows = "\n".join(map("\t".join, zip(*table, strict=True)))
        return cls(heads=heads, rows=rows, **columns)

    def to_conll(
        self,
        heads: Sequence[int] | np.ndarray | None = None,
        deprels: Sequence[str] | None = None,
        misc: Sequence[str] | None = None,
        comments: Sequence[str] = (),
    ) -> str:
        """The sentence as text, up to and with its blank line; line ends are line feeds.  O(n).

        Without arguments it is what was read, byte for byte.  Arguments change the named cells
        of the words, and nothing else: ranges, empty nodes and DEPS stay as they are.

        Parameters
        ----------
        heads : array_like of int, shape (n+1,), optional
            New HEAD cells.  ``heads[0]`` is -1, as is the head of a word that gets ``_``.
        deprels : sequence of str, length n, optional
            New DEPREL cells.
        misc : sequence of str, length n, optional
            Appended to MISC after ``|``; takes the place of a lone ``_``.  An empty string
            leaves the cell alone.
        comments : sequence of str
            Further comment lines, ``#`` included, put after those that were read.

        Raises
        ------
        ValueError
            If a length differs, a head is out of range, a string would break the row, or `misc`
            or `comments` are given for CoNLL-X, which has neither.
        """
        n = len(self)
        if self.format == "conllx" and (misc is not None or comments):
            raise ValueError(
                "CoNLL-X has no MISC column and no comments; "
                "if the file is CoNLL-U, say format 'conllu'"
            )
        for comment in comments:
            if not comment.startswith("#") or "\n" in comment or "\r" in comment:
                raise ValueError(f"comments must be single lines that start with #: {comment!r}")

        rows = self.rows
        if heads is not None or deprels is not None or misc is not None:
            cells = split_cells(rows)
            if heads is not None:
                _replace(cells, HEAD, _head_cells(_checked_heads(heads, n)))
            if deprels is not None:
                _replace(cells, DEPREL, _checked_cells("deprels", deprels, n))
            if misc is not None:
                extras = _checked_cells("misc", misc, n, may_be_empty=True)
                old = [cells[start + MISC] for start in _word_starts(cells)]
                _replace(cells, MISC, list(map(_appended, old, extras)))
            rows = join_cells(cells)
        return "\n".join([*self.comments, *comments, rows, "", ""])


def _word_starts(cells: list[str]) -> list[int]:
    names = enumerate(cells[ID::STRIDE])
    return [row * STRIDE for row, name in names if "-" not in name and "." not in name]


def _replace(cells: list[str], column: int, new: list[str]) -> None:
    if len(cells) == STRIDE * len(new) - 1:  # words only
        cells[column::STRIDE] = new
    else:
        for start, cell in zip(_word_starts(cells), new, strict=True):
            cells[start + column] = cell


def _appended(old: str, extra: str) -> str:
    if not extra:
        return old
    return extra if old == "_" else f"{old}|{extra}"


def _checked_cells(
    name: str, cells: Sequence[str], n: int, *, may_be_empty: bool = False
) -> list[str]:
    cells = list(cells)
    if len(cells) != n:
        raise ValueError(f"{name} must have {n} strings, one per word, got {len(cells)}")
    if not (may_be_empty or all(map(str.strip, cells))):
        word = 1 + next(word for word, cell in enumerate(cells) if not cell.strip())
        raise ValueError(f"{name} is blank for word {word}: write _ for what is missing")
    together = "".join(cells)
    if "\t" in together or "\n" in together or "\r" in together:
        raise ValueError(f"{name} holds a tab or a line end, which would break the row")
    return cells


def _checked_heads(heads: Sequence[int] | np.ndarray, n: int) -> np.ndarray:
    array = np.asarray(heads)
    if array.shape != (n + 1,) or array.dtype.kind not in "iu":
        raise ValueError(
            f"heads must be integers of shape ({n + 1},), the root first, "
            f"got {array.dtype} of shape {array.shape}"
        )
    if array[0] != -1 or array.min() < -1 or array.max() > n:
        raise ValueError(f"heads must have -1 first and values from -1 to {n}: {array.tolist()}")
    return array.astype(np.int32)


def _head_cells(heads: np.ndarray) -> list[str]:
    return ["_" if head < 0 else str(head) for head in heads[1:].tolist()]
