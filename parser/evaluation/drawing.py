"""Trees as text for the terminal, and as Graphviz DOT."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from parser.evaluation.tables import pad, width
from parser.treebank import Sentence

# Lines that leave a cell: (up, down, left, right).
_BOXES = {
    (0, 0, 0, 0): " ",
    (0, 0, 1, 1): "─",
    (1, 1, 0, 0): "│",
    (0, 1, 0, 1): "╭",
    (1, 0, 0, 1): "╰",
    (1, 1, 0, 1): "├",
    (0, 1, 1, 1): "┬",
    (1, 0, 1, 1): "┴",
    (1, 1, 1, 1): "┼",
}
_ASCII = str.maketrans({"─": "-", "│": "|", **dict.fromkeys("╭╰├┬┴┼", "+")})
_ISOLATE, _END_ISOLATE = "\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}"


def draw(
    sentence: Sentence,
    heads: ArrayLike | None = None,
    deprels: Sequence[str] | None = None,
    *,
    ascii: bool = False,
) -> str:
    """The tree in sentence order, one word a line: lines, form, relation, part of speech.

    Heads are to the left of their modifiers.  Each head with modifiers has a vertical line that
    joins its own row to theirs; where arcs cross, the vertical line runs through and the
    horizontal one is interrupted.  A root's line comes from the left margin; a word without a
    head has none.  Forms of right-to-left scripts are isolated, so that a terminal that
    reorders them leaves the lines in place; wide characters count as two columns.  O(n^2).

    Parameters
    ----------
    sentence : Sentence
    heads : array_like of int, shape (n+1,), optional
        ``heads[m]`` is the head of word m, 0 the root, -1 none.  Any such array is drawn, be it
        a tree or not.  Default: those of the sentence.
    deprels : sequence of str, length n, optional
        Default: those of the sentence.
    ascii : bool, default False
        Draw the lines with ``-``, ``|`` and ``+``.

    Returns
    -------
    str
        n lines, without a final newline.

    Examples
    --------
    >>> print(draw(Sentence.from_columns(
    ...     ["Dogs", "chase", "the", "cats"], upos=["NOUN", "VERB", "DET", "NOUN"],
    ...     heads=[-1, 2, 0, 4, 2], deprels=["nsubj", "root", "det", "obj"])))
     ╭─── Dogs   nsubj  NOUN
    ─┼─── chase  root   VERB
     │ ╭─ the    det    DET
     ╰─┴─ cats   obj    NOUN
    """
    heads, deprels = _columns(sentence, heads, deprels)
    columns, spans = _layout(heads)
    right_edge = 1 + 2 * max((columns[head] for head in heads if head > 0), default=0)
    forms = [_isolated(form) for form in sentence.forms]
    form_width, relation_width = max(map(width, forms)), max(map(width, deprels))
    lines = []
    for word in range(1, len(heads)):
        cells = _row(word, heads, columns, spans, right_edge)
        text = pad(forms[word - 1], form_width), pad(deprels[word - 1], relation_width)
        lines.append(
            f"{cells.translate(_ASCII) if ascii else cells} "
            f"{text[0]}  {text[1]}  {sentence.upos[word - 1]}"
        )
    return "\n".join(lines)


def to_dot(
    sentence: Sentence, heads: ArrayLike | None = None, deprels: Sequence[str] | None = None
) -> str:
    """The tree as a Graphviz digraph, arcs from head to modifier, words in sentence order.

    Arguments as in `draw`.  Node 0 is the root.  Ends with a newline.  O(n).

    Examples
    --------
    >>> print(to_dot(Sentence.from_columns(["Go"], heads=[-1, 0], deprels=["root"])), end="")
    digraph {
      node [shape=plaintext];
      ordering=out;
      0 [label="ROOT"];
      1 [label="Go\\n_"];
      0 -> 1 [label="root"];
    }
    """
    heads, deprels = _columns(sentence, heads, deprels)
    nodes = [
        f'  {word} [label="{_escaped(form)}\\n{_escaped(upos)}"];'
        for word, (form, upos) in enumerate(zip(sentence.forms, sentence.upos, strict=True), 1)
    ]
    arcs = [
        f'  {head} -> {word} [label="{_escaped(deprels[word - 1])}"];'
        for word, head in enumerate(heads)
        if word and head >= 0
    ]
    opening = ["digraph {", "  node [shape=plaintext];", "  ordering=out;", '  0 [label="ROOT"];']
    return "\n".join([*opening, *nodes, *arcs, "}", ""])


def _columns(
    sentence: Sentence, heads: ArrayLike | None, deprels: Sequence[str] | None
) -> tuple[list[int], Sequence[str]]:
    heads = np.asarray(sentence.heads if heads is None else heads)
    deprels = sentence.deprels if deprels is None else deprels
    n = len(sentence.forms)
    if heads.shape != (n + 1,) or len(deprels) != n:
        raise ValueError(
            f"{n} words need heads of shape ({n + 1},) and {n} relations, "
            f"got {heads.shape} and {len(deprels)}"
        )
    if ((heads[1:] < -1) | (heads[1:] > n)).any():
        raise ValueError(f"heads must be in -1..{n}, got {heads[1:].tolist()}")
    return heads.tolist(), deprels


def _layout(heads: list[int]) -> tuple[list[int], list[tuple[int, int]]]:
    """For each position the column of its vertical line, and the rows from which to which.

    A word is right of its head.  In a projective tree the column is the depth; elsewhere a line
    that would overlap another moves further right.  Words on a cycle start anew at the left.
    """
    size = len(heads)
    modifiers: list[list[int]] = [[] for _ in range(size)]
    for word in range(1, size):
        if heads[word] > 0:
            modifiers[heads[word]].append(word)
    spans = [(min([word, *inside]), max([word, *inside])) for word, inside in enumerate(modifiers)]
    columns = [0] * size
    taken: list[list[tuple[int, int]]] = [[]]  # spans in each column; nothing shares the margin
    placed = [False] * size
    tops = [word for word in range(1, size) if heads[word] <= 0]
    for top in (*tops, *range(1, size)):
        queue = [] if placed[top] else [top]
        for word in queue:  # grows while it is walked: breadth first
            placed[word] = True
            first, last = spans[word]
            column = columns[heads[word]] + 1 if heads[word] > 0 and word != top else 1
            while column < len(taken) and any(
                first <= end and start <= last for start, end in taken[column]
            ):
                column += 1
            taken += [[] for _ in range(len(taken), column + 1)]
            columns[word] = column
            if modifiers[word]:
                taken[column].append(spans[word])
            queue += [modifier for modifier in modifiers[word] if not placed[modifier]]
    return columns, spans


def _row(
    word: int,
    heads: list[int],
    columns: list[int],
    spans: list[tuple[int, int]],
    right_edge: int,
) -> str:
    """The lines of one word's row; column c is cell 2c - 1, so that the margin is cell 0."""
    passing = {
        2 * columns[position] - 1: (position, first < word, word < last)
        for position, (first, last) in enumerate(spans)
        if first <= word <= last and first < last
    }
    joined = [cell for cell, (position, _, _) in passing.items() if position in (word, heads[word])]
    begin = 0 if heads[word] == 0 else min(joined, default=right_edge)
    cells = []
    for cell in range(right_edge):
        _, up, down = passing.get(cell, (0, False, False))
        if cell in passing and cell not in joined:
            cells.append("│")
        else:
            cells.append(_BOXES[up, down, cell > begin or begin == 0, cell >= begin])
    return "".join(cells)


def _isolated(form: str) -> str:
    right_to_left = any(unicodedata.bidirectional(each) in ("R", "AL") for each in form)
    return f"{_ISOLATE}{form}{_END_ISOLATE}" if right_to_left else form


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
