"""Writing treebanks: whole files or none, the same bytes on every system."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO

from parser.treebank.sentence import TreebankError

_PACK = {
    # No name and no time in the header, so that equal text gives equal bytes.
    ".gz": lambda file: gzip.GzipFile("", "wb", fileobj=file, mtime=0),
    ".xz": partial(lzma.LZMAFile, mode="wb"),
    ".bz2": partial(bz2.BZ2File, mode="wb"),
}

# What goes wrong with the bytes themselves; these errors come without the name of the file.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class Output:
    """Takes text and writes it as UTF-8, with line ends as they are in the text."""

    def __init__(self, binary: BinaryIO) -> None:
        self._binary = binary

    def write(self, text: str) -> None:
        self._binary.write(text.encode("utf-8"))

    def flush(self) -> None:
        """Send on what is buffered, for readers that wait at the other end of a pipe."""
        self._binary.flush()


@contextmanager
def open_output(path: str | os.PathLike[str]) -> Iterator[Output]:
    """A file that is there in full after the ``with`` block, or not at all.

    Text goes to a new file in the same folder, which takes the place of `path` when the block
    ends, and is removed when the block is left by an exception of any kind.  So the input may be
    overwritten while it is read.  Devices and named pipes are written to as they are.

    Parameters
    ----------
    path : str or PathLike
        ``-`` is standard output.  ``.gz``, ``.xz`` and ``.bz2`` files are packed; the same text
        gives the same bytes.

    Yields
    ------
    Output
        With ``write(str)`` and ``flush()``.

    Raises
    ------
    TreebankError
        If the file cannot be opened, written or put in place.
    BrokenPipeError
        If nobody reads standard output any more.

    Examples
    --------
    >>> with open_output("-") as out:  # doctest: +SKIP
    ...     out.write(sentence.to_conll())
    """
    name = os.fspath(path)
    if name == "-":
        if sys.stdout is None:  # what Python makes of a closed one
            raise TreebankError("<stdout>", None, None, "cannot write: it is closed")
        with _named("<stdout>"):
            sys.stdout.flush()
            yield Output(sys.stdout.buffer)
            sys.stdout.buffer.flush()
        return
    if os.path.isdir(name):
        raise TreebankError(name, None, None, "cannot write: it is a folder")
    if os.path.exists(name) and not os.path.isfile(name):
        with _named(name), _opened(name, name, "wb") as file, _packed(file, name) as binary:
            yield Output(binary)
        return
    with replace_file(name) as file, _packed(file, name) as binary:
        yield Output(binary)


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A new file in the same folder, which takes the place of `path` when the block ends.

    It is removed when the block is left by an exception of any kind.  TreebankError if it cannot
    be opened, written or put in place.
    """
    name = os.fspath(path)
    target = os.path.realpath(name)  # a link stays a link
    temporary = f"{target}.{secrets.token_hex(4)}.tmp"
    try:
        with _named(name), _opened(name, temporary, "xb") as file:
            yield file
        try:
            if os.path.exists(target):
                shutil.copymode(target, temporary)
            os.replace(temporary, target)
        except OSError as error:
            raise _cannot_write(name, error) from error
    except BaseException:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise


def _opened(name: str, target: str, mode: str) -> BinaryIO:
    try:
        return open(target, mode)
    except OSError as error:
        raise _cannot_write(name, error) from error


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Names the file in errors of writing."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM and not error.filename:
            raise _cannot_write(name, error) from error
        raise


@contextmanager
def _packed(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
    pack = _PACK.get(os.path.splitext(name)[1].lower())
    if pack is None:
        yield file
    else:
        with pack(file) as packer:
            yield packer


def _cannot_write(name: str, error: OSError) -> TreebankError:
    return TreebankError(name, None, None, f"cannot write: {error.strerror}")
