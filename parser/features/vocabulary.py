"""From the columns of a sentence to integers.

Ids 0..3 are the same in every field: unknown, left of the sentence, right of it, the root.
Everything else that the training data shows gets the next number in order of first appearance.
`_` is an ordinary value.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from parser.treebank import Sentence

UNKNOWN, START, END, ROOT = range(4)
FIRST_FREE = 4

# One letter a field; `m`, single morphological features, is kept apart (several a word).
FIELDS = ["w", "l", "p", "c", "f", "s", "x", "k"]


def shape(form: str) -> str:
    """Case, digits and punctuation of a form, and whether it is short: `Xx`, `d.d`, `x-x`."""
    kinds = []
    for character in form:
        if character.isdigit():
            kind = "d"
        elif character.isalpha():
            kind = "X" if character.isupper() else "x"
        else:
            kind = character
        if not kinds or kinds[-1] != kind:
            kinds.append(kind)
    return "".join(kinds[:6])


class Vocabulary:
    """Numbers for the values of each field, from the training data.

    Forms and lemmas seen fewer than `cutoff` times are unknown, so that the weights of the unknown
    word are learned from the rare ones.  One table of templates serves all treebanks: where the
    fine tag is missing it is the coarse tag with all features, where the coarse tag is missing or
    always equal to the fine one it is the fine tag's first two letters; fields of lemmas and of
    features that the treebank does not have are `absent`, and so are the templates that read them.
    """

    CACHE = 200_000  # distinct words kept encoded; a stream of any length stays within this

    def __init__(
        self,
        values: dict[str, list[str]],
        morph: list[str],
        morph_width: int,
        absent: Iterable[str],
        coarse_from_fine: bool,
    ) -> None:
        self.values = values
        self.morph = morph
        self.morph_width = morph_width
        self.absent = frozenset(absent)
        self.coarse_from_fine = coarse_from_fine
        self._lock = threading.Lock()
        self._ids = {f: {v: i for i, v in enumerate(values[f], FIRST_FREE)} for f in FIELDS}
        self._morph_ids = {v: i for i, v in enumerate(morph, FIRST_FREE)}
        self._clear()

    def _clear(self) -> None:
        # New objects, so that a sentence being encoded in another thread keeps the old ones.
        self._rows: dict[tuple[str, ...], int] = {}
        self._table = np.full((1024, len(FIELDS) + self.morph_width), ROOT, np.int32)
        self._table[0, len(FIELDS) :] = 0
        self._used = 1  # row 0 is the root

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "values": self.values,
            "morph": self.morph,
            "morph_width": self.morph_width,
            "absent": sorted(self.absent),
            "coarse_from_fine": self.coarse_from_fine,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Vocabulary:
        """Inverse of `to_dict`."""
        return cls(**data)

    @classmethod
    def build(cls, sentences: Iterable[Sentence], cutoff: int = 2) -> Vocabulary:
        """Collect the values of all fields.  One pass, linear in the words."""
        words = Counter(
            word
            for s in sentences
            for word in zip(s.forms, s.lemmas, s.upos, s.xpos, s.feats, strict=True)
        )
        columns = list(zip(*words, strict=True))
        empty = [set(column) <= {"_"} for column in columns]
        absent = set()
        if empty[1]:
            absent.add("l")
        if empty[4]:
            absent |= {"f", "m"}
        coarse_from_fine = (not empty[3] and columns[2] == columns[3]) or empty[2]
        blank = cls({f: [] for f in FIELDS}, [], 0, absent, coarse_from_fine)
        if empty[3]:
            blank.absent |= {"xpos"}
        counts: dict[str, Counter[str]] = {f: Counter() for f in FIELDS}
        morph: Counter[str] = Counter()
        width = 0
        for word, times in words.items():
            for field, value in zip(FIELDS, blank.fields(*word), strict=True):
                counts[field][value] += times
            features = split_features(word[4])
            width = max(width, len(features))
            morph.update(features)
        for field in "wl":
            counts[field] = Counter({v: c for v, c in counts[field].items() if c >= cutoff})
        values = {field: list(counts[field]) for field in FIELDS}
        return cls(values, list(morph), width, blank.absent, coarse_from_fine)

    def fields(self, form: str, lemma: str, upos: str, xpos: str, feats: str) -> tuple[str, ...]:
        """A word's values, in the order of FIELDS."""
        lower = form.lower()
        fine = f"{upos}|{feats}" if "xpos" in self.absent else xpos
        coarse = xpos[:2] if self.coarse_from_fine else upos
        return lower, lemma, fine, coarse, feats, lower[-3:], lower[:4], shape(form)

    def encode(self, sentence: Sentence) -> tuple[np.ndarray, np.ndarray]:
        """Ids (n+1, fields), single features (n+1, morph_width), 0 for none; row 0 is the root."""
        words = zip(
            sentence.forms,
            sentence.lemmas,
            sentence.upos,
            sentence.xpos,
            sentence.feats,
            strict=True,
        )
        rows = self._rows
        try:
            index = [0, *[rows[word] for word in words]]
        except KeyError:
            return self._encode_new(sentence)
        table = self._table
        if rows is not self._rows:  # another thread emptied the cache meanwhile
            return self._encode_new(sentence)
        return self._split(table, index)

    def _encode_new(self, sentence: Sentence) -> tuple[np.ndarray, np.ndarray]:
        """Encode a sentence with words that are met first."""
        columns = (sentence.forms, sentence.lemmas, sentence.upos, sentence.xpos, sentence.feats)
        with self._lock:
            if self._used > self.CACHE:
                self._clear()
            index = [0]
            for word in zip(*columns, strict=True):
                row = self._rows.get(word)
                index.append(self._add(word) if row is None else row)
            return self._split(self._table, index)

    @staticmethod
    def _split(table: np.ndarray, index: list[int]) -> tuple[np.ndarray, np.ndarray]:
        rows = table[index]
        return np.ascontiguousarray(rows[:, : len(FIELDS)]), np.ascontiguousarray(
            rows[:, len(FIELDS) :]
        )

    def _add(self, word: tuple[str, ...]) -> int:
        if self._used == len(self._table):
            self._table = np.concatenate([self._table, np.zeros_like(self._table)])
        row = self._table[self._used]
        for i, (field, value) in enumerate(zip(FIELDS, self.fields(*word), strict=True)):
            row[i] = self._ids[field].get(value, UNKNOWN)
        row[len(FIELDS) :] = 0
        for i, feature in enumerate(split_features(word[4])[: self.morph_width]):
            row[len(FIELDS) + i] = self._morph_ids.get(feature, 0)
        self._rows[word] = self._used
        self._used += 1
        return self._used - 1


def split_features(feats: str) -> list[str]:
    """Single features of a FEATS column; repeated names are separate features."""
    return [] if feats == "_" else feats.split("|")
