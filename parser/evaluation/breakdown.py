"""Where a parser is right and wrong: by relation, part of speech, length, distance, direction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from parser.evaluation.rules import Rules
from parser.evaluation.scores import Reference
from parser.treebank import Sentence

# Upper ends of the bins; what is longer goes to an open last bin.
LENGTHS = (10, 20, 30, 40, 50)
DISTANCES = (1, 2, 6)  # those of the CoNLL-X script

# Facets where the system's answer decides the group too, so that precision and recall differ.
TWO_SIDED = ("relation", "distance", "direction")
FACETS = (*TWO_SIDED, "pos", "length")
DIRECTIONS = ("root", "head before", "head after")


class Breakdown:
    """Counts of right and wrong attachments within groups of words; grows by `add`.

    Words are those that the rules score, and relations are compared by the rules.  Groups:

    relation
        Name of the relation.
    distance
        ``|head - modifier|`` in words, in bins; ``root`` where the head is 0.
    direction
        ``head before`` the modifier, ``head after`` it, ``root``.
    pos
        Universal (CoNLL-X: coarse) part of speech in gold.
    length
        Words in the sentence, in bins, punctuation counted.

    A word without a system head is in the group ``none`` of the system's distances and directions.

    Parameters
    ----------
    rules : Rules
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.labelled = True
        # facet -> (gold group, system group, head right, relation right) -> words
        self._words: dict[str, Counter] = {facet: Counter() for facet in FACETS}

    def add(self, gold: Sentence, heads: ArrayLike, deprels: Sequence[str] | None = None) -> None:
        """Count one sentence; arguments and errors as in `Reference.score`.

        Once a sentence came without relations, only unlabelled figures are given.
        """
        reference = Reference([gold], self.rules)
        self.labelled &= deprels is not None
        right = reference.right([heads], None if deprels is None else [deprels])
        heads = np.asarray(heads).tolist()
        gold_heads = np.asarray(gold.heads).tolist()
        length = _bin(len(gold.forms), LENGTHS)
        relation = self.rules.relation
        words, answers = self._words, gold.deprels if deprels is None else deprels
        for word, outcome in enumerate(zip(*(each.tolist() for each in right), strict=True), 1):
            if not reference.scored[word - 1]:
                continue
            expected, found = gold_heads[word], heads[word]
            pos = gold.upos[word - 1]
            labels = relation(gold.deprels[word - 1]), relation(answers[word - 1])
            words["relation"][*labels, *outcome] += 1
            words["distance"][_distance(expected, word), _distance(found, word), *outcome] += 1
            words["direction"][_direction(expected, word), _direction(found, word), *outcome] += 1
            words["pos"][pos, pos, *outcome] += 1
            words["length"][length, length, *outcome] += 1

    def rows(self, facet: str) -> list[dict]:
        """One row for each group of ``facet``, for `table` and for JSON; percentages or None.

        Two-sided facets have ``words`` in gold, ``system`` words, and ``uas_p``, ``uas_r``,
        ``uas_f1``, ``las_p``, ``las_r``, ``las_f1``: of the words that the system (``p``) or
        gold (``r``) puts into the group, the share with the right head, and with the right head
        and relation.  ``pos`` and ``length`` have ``words``, ``uas`` and ``las``.  Relations and
        parts of speech are in order of falling frequency, bins in their own order.
        """
        if facet not in FACETS:
            raise ValueError(f"facet must be one of {', '.join(FACETS)}, got {facet!r}")
        gold, system = Counter(), Counter()
        right = {(measure, side): Counter() for measure in ("uas", "las") for side in "pr"}
        for (expected, found, head, relation), words in self._words[facet].items():
            gold[expected] += words
            system[found] += words
            for measure, hit in (("uas", head), ("las", head and relation)):
                right[measure, "p"][found] += words * hit
                right[measure, "r"][expected] += words * hit
        measures = ("uas", "las") if self.labelled else ("uas",)
        rows = []
        for group in self._ordered(facet, gold, system):
            row: dict = {facet: group, "words": gold[group]}
            if facet in TWO_SIDED:
                row["system"] = system[group]
            for measure in measures:
                precision = _percent(right[measure, "p"][group], system[group])
                recall = _percent(right[measure, "r"][group], gold[group])
                if facet in TWO_SIDED:
                    row[f"{measure}_p"], row[f"{measure}_r"] = precision, recall
                    row[f"{measure}_f1"] = _harmonic(precision, recall)
                else:
                    row[measure] = recall
            rows.append(row)
        return rows

    def confusions(self, top: int = 20) -> list[dict]:
        """The ``top`` most frequent pairs of a gold relation and another that the system gave.

        Rows hold ``gold``, ``system``, ``words`` and ``head_right``: how many of the words have
        the right head nevertheless.  Ties in alphabetical order.
        """
        pairs, head_right = Counter(), Counter()
        for (expected, found, head, _), words in self._words["relation"].items():
            if expected != found:
                pairs[expected, found] += words
                head_right[expected, found] += words * head
        ranked = sorted(pairs, key=lambda pair: (-pairs[pair], pair))
        return [
            {
                "gold": pair[0],
                "system": pair[1],
                "words": pairs[pair],
                "head_right": head_right[pair],
            }
            for pair in ranked[:top]
        ]

    def to_dict(self) -> dict:
        """All facets and all confusions, for JSON."""
        facets: dict = {facet: self.rows(facet) for facet in FACETS}
        return {**facets, "confusions": self.confusions(top=len(self._words["relation"]))}

    def _ordered(self, facet: str, gold: Counter, system: Counter) -> list[str]:
        groups = {*gold, *system}
        if facet in ("relation", "pos"):
            return sorted(groups, key=lambda group: (-gold[group], group))
        order = {
            "distance": ("root", *_bin_names(DISTANCES), "none"),
            "direction": (*DIRECTIONS, "none"),
            "length": _bin_names(LENGTHS),
        }[facet]
        return [group for group in order if group in groups]


def _percent(right: int, total: int) -> float | None:
    return 100.0 * right / total if total else None


def _harmonic(precision: float | None, recall: float | None) -> float | None:
    if precision is None or recall is None:
        return None
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@cache
def _bin_names(ends: tuple[int, ...]) -> tuple[str, ...]:
    starts = (1, *(end + 1 for end in ends))
    closed = zip(starts, ends, strict=False)
    return (
        *(f"{start}-{end}" if start < end else str(end) for start, end in closed),
        f"{starts[-1]}+",
    )


def _bin(size: int, ends: tuple[int, ...]) -> str:
    return _bin_names(ends)[sum(size > end for end in ends)]


def _distance(head: int, word: int) -> str:
    if head <= 0:
        return "none" if head < 0 else "root"
    return _bin(abs(head - word), DISTANCES)


def _direction(head: int, word: int) -> str:
    if head <= 0:
        return "none" if head < 0 else "root"
    return "head before" if head < word else "head after"
