"""What the two official evaluations count, and the check that two files hold the same words.

``conllx`` follows ``eval.pl`` of the CoNLL-X shared task (Buchholz and Marsi 2006): words whose
gold form is punctuation are left out, relations are compared whole.  ``conll18`` follows
``conll18_ud_eval.py`` (Zeman et al. 2018): every word is scored, relations are compared up to the
first colon, a sentence has one root.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest

from parser.treebank import Sentence, TreebankError


class EvaluationError(TreebankError):
    """A sentence that the rules do not let be scored."""


class AlignmentError(EvaluationError):
    """Two files do not hold the same words; ``expected`` is what gold has, ``found`` the other."""

    def __init__(
        self, path: str, line: int | None, sentence: int, place: str, expected: str, found: str
    ) -> None:
        reason = f"{place}expected {expected} as in the gold file, found {found}"
        super().__init__(path, line, sentence, reason)
        self.expected, self.found = expected, found


@dataclass(frozen=True, slots=True)
class Rules:
    """One way of counting.

    Attributes
    ----------
    name : str
        ``conllx`` or ``conll18``.
    punctuation : bool
        Whether words whose gold form is punctuation (see `is_punctuation`) are scored.
    subtypes : bool
        Whether ``nmod`` and ``nmod:poss`` differ.
    single_root : bool
        Whether a sentence with no root, several roots or a word without a head is refused.
        Where it is not, a word without a system head is wrong.
    """

    name: str
    punctuation: bool
    subtypes: bool
    single_root: bool

    @classmethod
    def named(
        cls, name: str, *, punctuation: bool | None = None, allow_multiple_roots: bool = False
    ) -> Rules:
        """The official rules ``name``; ``punctuation`` overrides what they say about it."""
        if name not in ("conllx", "conll18"):
            raise ValueError(f"rules must be 'conllx' or 'conll18', got {name!r}")
        shared_task_2018 = name == "conll18"
        return cls(
            name,
            punctuation=shared_task_2018 if punctuation is None else punctuation,
            subtypes=not shared_task_2018,
            single_root=shared_task_2018 and not allow_multiple_roots,
        )

    def relation(self, deprel: str) -> str:
        """The part of a relation name that is compared."""
        return deprel if self.subtypes else deprel.partition(":")[0]


@lru_cache(maxsize=1 << 16)
def is_punctuation(form: str) -> bool:
    """Whether every character has a Unicode general category P* (the rule of CoNLL-X).

    Quirks that come with it: ``%``, ``&``, ``@`` and ``_`` are punctuation; the opening quotes
    of the Penn Treebank, ``$``, ``+`` and ``-LRB-`` are not.  Part of speech and relation play
    no role.  Characters newer than this Python's Unicode tables are not punctuation.
    """
    return form != "" and all(unicodedata.category(character)[0] == "P" for character in form)


def aligned(gold: Iterable[Sentence], *systems: Iterable[Sentence]) -> Iterator[tuple]:
    """Step through parses of the same words: yields ``(gold, system, ...)`` sentence by sentence.

    Lazy, one sentence of each in memory.  ``eval.pl`` lets forms differ with a warning, and the
    2018 script aligns other tokenisations by characters; here both are an error, since either
    would compare heads that are numbered differently or words that are not the same.

    Raises
    ------
    AlignmentError
        At the first word, or end of file, where a system differs from gold.
    """
    last: list[Sentence | None] = [None] * (1 + len(systems))
    for sentences in zip_longest(gold, *systems):
        for index, system in enumerate(sentences[1:], 1):
            if system is None or sentences[0] is None or system.forms != sentences[0].forms:
                raise _misaligned(sentences[0], system, last[index])
        last = list(sentences)
        yield sentences


def _misaligned(
    gold: Sentence | None, system: Sentence | None, previous: Sentence | None
) -> AlignmentError:
    if system is None:
        path, line = (previous.source, None) if previous else ("system file", None)
        return AlignmentError(path, line, gold.number, "", _shown(gold), "end of file")
    if gold is None:
        place = system.source, system.line, system.number
        return AlignmentError(*place, "", "end of file", _shown(system))
    word, expected, found = next(
        (word, expected, found)
        for word, (expected, found) in enumerate(zip_longest(gold.forms, system.forms), 1)
        if expected != found
    )
    return AlignmentError(
        system.source,
        _line(system, min(word, len(system))),
        system.number,
        f"word {word}: ",
        *("end of sentence" if form is None else repr(form) for form in (expected, found)),
    )


def _shown(sentence: Sentence) -> str:
    return repr(" ".join(sentence.forms[:5]) + (" ..." if len(sentence) > 5 else ""))


def _line(sentence: Sentence, word: int) -> int:
    """Line of a word in its file: after the comments, with ranges and empty nodes counted."""
    rows = [row.partition("\t")[0] for row in sentence.rows.split("\n")]
    return sentence.line + len(sentence.comments) + rows.index(str(word))
