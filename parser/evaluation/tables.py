"""Aligned text tables, and how wide text is in a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence


def width(text: str) -> int:
    """Terminal columns that ``text`` takes: 2 for wide characters, 0 for marks and controls.

    Terminals differ on emoji and on joined scripts; this is the East Asian Width property of
    Unicode, which most follow.
    """
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.category(character) in ("Mn", "Me", "Cf")
        else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def pad(text: str, columns: int, *, left: bool = False) -> str:
    """``text`` with spaces after it (before it with ``left``) up to ``columns`` of the terminal."""
    spaces = " " * (columns - width(text))
    return spaces + text if left else text + spaces


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows as lines of aligned columns under a header, without a final newline.

    Columns are the keys of the first row.  Columns of numbers are aligned right, floats shown
    with two decimals, None as ``-``.  Underscores of the keys are shown as spaces.

    Examples
    --------
    >>> print(table([{"relation": "nsubj", "words": 12, "las_p": 91.666},
    ...              {"relation": "obj", "words": 7, "las_p": None}]))
    relation  words  las p
    nsubj        12  91.67
    obj           7      -
    """
    if not rows:
        return ""
    names = list(rows[0])
    numeric = [all(not isinstance(row[name], str) for row in rows) for name in names]
    lines = [[name.replace("_", " ") for name in names]]
    lines += [[_cell(row[name]) for name in names] for row in rows]
    widths = [max(map(width, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            pad(cell, columns, left=right)
            for cell, columns, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    )


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
