"""The words of a sentence that a parser got wrong, one line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from parser.evaluation.rules import Rules
from parser.evaluation.scores import Reference
from parser.treebank import Sentence


def mistakes(
    gold: Sentence, heads: ArrayLike, deprels: Sequence[str] | None, rules: Rules
) -> Iterator[str]:
    """Lines ``form gold_head:relation > system_head:relation`` for the scored words that are wrong.

    Heads are word numbers, 0 the root, ``_`` none.  Relations are shown whole, but a difference
    counts by the rules only.  Without ``deprels`` lines are ``form gold_head > system_head``.

    Raises
    ------
    EvaluationError
        As in `Reference.score`.
    """
    reference = Reference([gold], rules)
    right, relations_right = reference.right([heads], None if deprels is None else [deprels])
    if deprels is not None:
        right = right & relations_right
    for index in np.flatnonzero(reference.scored & ~right):
        head, answer = int(gold.heads[index + 1]), int(heads[index + 1])
        found = "_" if answer < 0 else str(answer)
        if deprels is None:
            yield f"{gold.forms[index]} {head} > {found}"
        else:
            yield (f"{gold.forms[index]} {head}:{gold.deprels[index]} > {found}:{deprels[index]}")
