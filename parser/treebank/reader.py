"""Reading treebanks: lazily, front to back, from files, pipes and packed files."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Literal, get_args

from conllu import parse_sentences

from parser.treebank.rows import Block, HeadRule, parse_block
from parser.treebank.sentence import Format, Sentence, TreebankError

Path = str | os.PathLike[str]
UNPACK = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}


def read(
    path: Path,
    *,
    format: Literal["auto", "conllu", "conllx"] = "auto",
    heads: HeadRule = "required",
    encoding: str = "utf-8",
    on_invalid: Callable[[TreebankError], object] | None = None,
) -> Iterator[Sentence]:
    """Sentences of a CoNLL-U or CoNLL-X file, one by one.

    Reading never seeks, so pipes do; one sentence is held at a time.  Sentences end with a blank
    line, or several, or the end of the file; a line of white space is blank.  A byte-order mark
    and CR LF line ends are accepted and dropped.  An empty file has no sentences.

    Parameters
    ----------
    path : str or PathLike
        ``-`` is standard input.  ``.gz``, ``.xz`` and ``.bz2`` files are unpacked.
    format : {"auto", "conllu", "conllx"}
        ``auto`` goes by content.  A sentence with a comment, a multiword range or an empty node
        makes the file CoNLL-U from there on.  Otherwise the first sentence decides: CoNLL-X if
        column 9 has a number (PHEAD); else CoNLL-U if columns 9 and 10 have anything but ``_``;
        else CoNLL-U if all of column 4 are universal tags or ``_``, and CoNLL-X if not.
        The formats differ in what they may hold and in what `Sentence.to_conll` may add.
    heads : {"required", "optional", "ignored"}
        ``required``: each word has a HEAD from 0 to n and the arcs form a tree, with one root or
        several.  ``optional``: HEAD may be ``_``; those that are given are in range and without
        cycles.  ``ignored``: HEAD and DEPREL may be anything; `Sentence.heads` is -1 throughout.
    encoding : str
        Any encoding in which a line feed is the single byte 0A.
    on_invalid : callable, optional
        Called with the error of each sentence that cannot be used, which is then skipped.
        Default: the error is raised.

    Yields
    ------
    Sentence

    Raises
    ------
    TreebankError
        For a bad sentence without `on_invalid`; in any case for a file that cannot be opened,
        read, unpacked or decoded.
    ValueError
        For an unknown format, rule for heads or encoding.
    """
    if format not in ("auto", *get_args(Format)):
        raise ValueError(f"format must be auto, conllu or conllx, got {format!r}")
    if heads not in get_args(HeadRule):
        raise ValueError(f"heads must be required, optional or ignored, got {heads!r}")
    _check_encoding(encoding)
    return _read(path, None if format == "auto" else format, heads, encoding, on_invalid)


def read_all(
    paths: Path | Iterable[Path],
    *,
    format: Literal["auto", "conllu", "conllx"] = "auto",
    heads: HeadRule = "required",
    encoding: str = "utf-8",
    on_invalid: Callable[[TreebankError], object] | None = None,
) -> list[Sentence]:
    """All sentences of one file or of several, in order; the options are those of `read`.

    Raises
    ------
    TreebankError
        As `read` does, and if there is no sentence at all.
    """
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    sentences = [
        sentence
        for path in paths
        for sentence in read(
            path, format=format, heads=heads, encoding=encoding, on_invalid=on_invalid
        )
    ]
    if not sentences:
        raise TreebankError(", ".join(map(_name, paths)), None, None, "no sentences")
    return sentences


def _read(
    path: Path,
    format: Format | None,
    heads: HeadRule,
    encoding: str,
    on_invalid: Callable[[TreebankError], object] | None,
) -> Iterator[Sentence]:
    source = _name(path)
    guess: Format | None = None
    with _open_input(path) as binary:
        lines = _Lines(binary, source, encoding)
        for number, text in enumerate(_reading(parse_sentences(lines), lines), 1):
            text += lines.trailing_space()
            first = lines.last_number - text.count("\n")
            comments = []
            while text.startswith("#"):
                comment, _, text = text.partition("\n")
                comments.append(comment)
            block = Block(source, number, first, comments, text)
            try:
                sentence = parse_block(block, format=format, guess=guess, heads=heads)
            except TreebankError as error:
                if on_invalid is None:
                    raise
                on_invalid(error)
            else:
                guess = sentence.format
                yield sentence


class _Lines:
    """Decoded lines of a file; remembers the last one that was not blank."""

    def __init__(self, binary: BinaryIO, source: str, encoding: str) -> None:
        self.binary, self.source, self.encoding = binary, source, encoding
        self.number = 0  # of the line read last
        self.last = ""
        self.last_number = 0

    def __iter__(self) -> Iterator[str]:
        encoding = self.encoding
        for raw in self.binary:
            self.number += 1
            try:
                line = raw.decode(encoding)
            except UnicodeDecodeError as error:
                raise self._undecodable(error) from error
            if self.number == 1:
                line = line.removeprefix("\ufeff")
            if line[-2:] == "\r\n":
                line = line[:-2] + "\n"
            if line and not line.isspace():
                self.last, self.last_number = line, self.number
            yield line

    def trailing_space(self) -> str:
        """What `conllu` took from the end of the last row."""
        line = self.last.removesuffix("\n")
        return line[len(line.rstrip()) :]

    def _undecodable(self, error: UnicodeDecodeError) -> TreebankError:
        return TreebankError(
            self.source,
            self.number,
            None,
            f"byte 0x{error.object[error.start]:02x} at byte {error.start + 1} of the line is not "
            f"{self.encoding}; name the encoding of the file, such as encoding iso-8859-1",
        )


def _reading(texts: Iterator[str], lines: _Lines) -> Iterator[str]:
    """The same texts, with what goes wrong underneath told as an error of the treebank."""
    try:
        yield from texts
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, EOFError):
            reason = "the packed file is cut off"
        raise TreebankError(
            lines.source, None, None, f"cannot read after line {lines.number}: {reason}"
        ) from error


@contextmanager
def _open_input(path: Path) -> Iterator[BinaryIO]:
    if os.fspath(path) == "-":
        if sys.stdin is None:  # what Python makes of a closed one
            raise TreebankError(_name(path), None, None, "cannot read: it is closed")
        yield sys.stdin.buffer
        return
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    try:
        binary = UNPACK.get(suffix, open)(path, "rb")
    except OSError as error:
        raise TreebankError(_name(path), None, None, f"cannot open: {error.strerror}") from error
    with binary:
        # Unpackers loop over lines in Python; a buffered reader around them does it in C.
        yield io.BufferedReader(binary) if suffix in UNPACK else binary


def _name(path: Path) -> str:
    return "<stdin>" if os.fspath(path) == "-" else os.fspath(path)


def _check_encoding(encoding: str) -> None:
    try:
        plain = "a\nb".encode(encoding).endswith(b"a\nb")
    except LookupError as error:
        raise ValueError(f"unknown encoding {encoding!r}") from error
    if not plain:
        raise ValueError(f"encoding {encoding!r} does not end lines with the byte 0A")
