"""Attachment scores by the official rules, from streams of sentences or from arrays of heads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import eq

import numpy as np
from numpy.typing import ArrayLike

from parser.evaluation.counts import Counts, Overlap, Ratio
from parser.evaluation.rules import EvaluationError, Rules, aligned, is_punctuation
from parser.treebank import Sentence

# fmt: off
CONTENT_RELATIONS = frozenset([
    "nsubj", "obj", "iobj", "csubj", "ccomp", "xcomp", "obl", "vocative", "expl", "dislocated",
    "advcl", "advmod", "discourse", "nmod", "appos", "nummod", "acl", "amod", "conj", "fixed",
    "flat", "compound", "list", "parataxis", "orphan", "goeswith", "reparandum", "root", "dep",
])
# fmt: on


@dataclass(slots=True)
class Scores:
    """Counts over any number of sentences, and the percentages made of them.

    Grows by `add`, one sentence at a time, or by ``+=``; the memory does not grow with it.
    All percentages are micro-averages in 0..100, and 0 where there was nothing to count.

    Attributes
    ----------
    rules : Rules
        Which words `uas`, `las` and `label_accuracy` are over, and how relations are compared.
    all, np : Counts
        Over all words, and over words that are not punctuation, whatever the rules.
    sentences, complete_heads, complete_both : int
        Sentences, and those where all words (punctuation too) have the right head, and the
        right relation as well.
    roots : Overlap
        Words whose head is 0.
    content : Overlap
        Words with a content relation of Universal Dependencies (CLAS): a gold one, a system
        one, and of the gold ones those with head and relation right.
    labelled : bool
        False once any sentence was added without relations; then everything that needs
        relations means nothing and is left out of `rows` and `to_dict`.

    Examples
    --------
    >>> gold = Sentence.from_columns(["Dogs", "bark", "!"], heads=[-1, 2, 0, 2],
    ...                              deprels=["nsubj", "root", "punct"])
    >>> scores = Scores(Rules.named("conllx"))
    >>> scores.add(gold, [-1, 2, 0, 1], ["obj", "root", "punct"])
    >>> scores.uas, scores.las, round(scores.all.heads / scores.all.words, 2)
    (100.0, 50.0, 0.67)
    """

    rules: Rules
    all: Counts = field(default_factory=Counts)
    np: Counts = field(default_factory=Counts)
    sentences: int = 0
    complete_heads: int = 0
    complete_both: int = 0
    roots: Overlap = field(default_factory=Overlap)
    content: Overlap = field(default_factory=Overlap)
    labelled: bool = True

    def add(self, gold: Sentence, heads: ArrayLike, deprels: Sequence[str] | None = None) -> None:
        """Score one sentence; arguments and errors as in `Reference.score`."""
        self += Reference([gold], self.rules).score([heads], None if deprels is None else [deprels])

    def __iadd__(self, other: Scores) -> Scores:
        if other.rules != self.rules:
            raise ValueError(f"cannot add scores by {other.rules} to scores by {self.rules}")
        self.all, self.np = self.all.plus(other.all), self.np.plus(other.np)
        self.sentences += other.sentences
        self.complete_heads += other.complete_heads
        self.complete_both += other.complete_both
        self.roots, self.content = self.roots.plus(other.roots), self.content.plus(other.content)
        self.labelled &= other.labelled
        return self

    @property
    def scored(self) -> Counts:
        """The counts over the words that the rules score."""
        return self.all if self.rules.punctuation else self.np

    @property
    def uas(self) -> float:
        """Scored words with the right head, percent."""
        return Ratio(self.scored.heads, self.scored.words).percent

    @property
    def las(self) -> float:
        """Scored words with the right head and relation, percent."""
        return Ratio(self.scored.both, self.scored.words).percent

    @property
    def label_accuracy(self) -> float:
        """Scored words with the right relation, whatever their head, percent."""
        return Ratio(self.scored.relations, self.scored.words).percent

    @property
    def clas(self) -> float:
        """F1 of attachment with relation over content words, percent (2018 rules)."""
        return self.content.f1

    def _ratios(self) -> dict[str, Ratio]:
        """Name to ratio, for `rows` and `to_dict`; F1 is ``2 right / (gold + system)``."""
        scored, every, np_ = self.scored, self.all, self.np
        ratios = {
            "uas": Ratio(scored.heads, scored.words),
            "las": Ratio(scored.both, scored.words),
            "label_accuracy": Ratio(scored.relations, scored.words),
            "uas_all": Ratio(every.heads, every.words),
            "las_all": Ratio(every.both, every.words),
            "uas_np": Ratio(np_.heads, np_.words),
            "las_np": Ratio(np_.both, np_.words),
            "complete_uas": Ratio(self.complete_heads, self.sentences),
            "complete_las": Ratio(self.complete_both, self.sentences),
            "root_precision": Ratio(self.roots.right, self.roots.system),
            "root_recall": Ratio(self.roots.right, self.roots.gold),
            "root_f1": Ratio(2 * self.roots.right, self.roots.gold + self.roots.system),
        }
        if self.rules.name == "conll18":
            content = self.content
            ratios["clas_precision"] = Ratio(content.right, content.system)
            ratios["clas_recall"] = Ratio(content.right, content.gold)
            ratios["clas"] = Ratio(2 * content.right, content.gold + content.system)
        if not self.labelled:
            ratios = {
                name: ratio
                for name, ratio in ratios.items()
                if name.startswith(("uas", "root")) or name == "complete_uas"
            }
        return ratios

    def rows(self) -> list[dict]:
        """One row per measure, for `table`: its name, percent (None without a base), counts."""
        return [
            {
                "measure": name,
                "percent": ratio.percent if ratio.total else None,
                "right": ratio.right,
                "total": ratio.total,
            }
            for name, ratio in self._ratios().items()
        ]

    def to_dict(self) -> dict:
        """Everything as numbers for JSON: counts, and percentages that are None without a base."""
        percentages = {
            name: ratio.percent if ratio.total else None for name, ratio in self._ratios().items()
        }
        return {
            "rules": self.rules.name,
            "punctuation": self.rules.punctuation,
            "sentences": self.sentences,
            "words": self.all.words,
            "scored_words": self.scored.words,
            **percentages,
        }


class Reference:
    """Gold trees, prepared once to score many parses of them, for instance one each epoch.

    Parameters
    ----------
    gold : iterable of Sentence
        Read once and not kept; every word needs a head.
    rules : Rules

    Attributes
    ----------
    punctuation : ndarray of bool, shape (words,)
        Over the words of all sentences in a row, as all arrays here.
    scored : ndarray of bool, shape (words,)
        Words that the rules score.
    starts : ndarray of int64, shape (sentences,)
        Where each sentence begins.

    Raises
    ------
    EvaluationError
        A gold word without a head; under rules with a single root, a tree with another number.
    """

    def __init__(self, gold: Iterable[Sentence], rules: Rules) -> None:
        self.rules = rules
        heads, forms, self._relations, self._places = [], [], [], []
        for sentence in gold:
            heads.append(np.asarray(sentence.heads)[1:])
            forms += sentence.forms
            self._relations += map(rules.relation, sentence.deprels)
            self._places.append((sentence.source, sentence.line, sentence.number))
        self._lengths = np.array([len(each) for each in heads], dtype=np.int64)
        self.starts = np.cumsum(self._lengths) - self._lengths
        self._heads = np.concatenate([*heads, np.empty(0, np.int32)])
        self.punctuation = np.fromiter(map(is_punctuation, forms), bool, len(forms))
        self.scored = self.punctuation | True if rules.punctuation else ~self.punctuation
        self._content = self._is_content(self._relations)
        self._check(self._heads, headless=False)

    def right(
        self, heads: Sequence[ArrayLike], deprels: Sequence[Sequence[str]] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which words have the right head, and the right relation: two bool arrays (words,).

        Arguments and errors as in `score`; without relations the second array is all False.
        """
        heads_right = self._flat(heads) == self._heads
        if deprels is None:
            return heads_right, np.zeros(len(heads_right), bool)
        return heads_right, self._equal(self._flat_relations(deprels))

    def score(
        self, heads: Sequence[ArrayLike], deprels: Sequence[Sequence[str]] | None = None
    ) -> Scores:
        """Scores of one parse of all sentences.  O(words), most of it vectorised.

        Parameters
        ----------
        heads : sequence of array_like of int, each of shape (n+1,)
            ``heads[i][m]`` is the head of word ``m`` in sentence ``i``, 0 the root, -1 none.
            Position 0 is not looked at.
        deprels : sequence of sequences of str, each of length n, optional
            Relations of the words.  Without them only heads are scored.

        Raises
        ------
        EvaluationError
            Wrong number of heads or relations, a head outside the sentence; under rules with a
            single root, a tree with another number or a word without a head.  Cycles are not
            looked for: a reader that requires heads refuses them.
        """
        flat = self._flat(heads)
        heads_right = flat == self._heads
        scores = Scores(self.rules, labelled=deprels is not None)
        if scores.labelled:
            relations = self._flat_relations(deprels)
            relations_right = self._equal(relations)
            scores.content = Overlap(
                int(self._content.sum()),
                int(self._is_content(relations).sum()),
                int((self._content & heads_right & relations_right).sum()),
            )
        else:
            relations_right = np.zeros(len(flat), bool)
        words = ~self.punctuation
        scores.all = Counts.of(heads_right, relations_right)
        scores.np = Counts.of(heads_right[words], relations_right[words])
        scores.roots = Overlap(
            *(int((each == 0).sum()) for each in (self._heads, flat)),
            int((heads_right & (flat == 0)).sum()),
        )
        scores.sentences = len(self.starts)
        scores.complete_heads = self._complete(heads_right)
        scores.complete_both = self._complete(heads_right & relations_right)
        return scores

    def _flat(self, heads: Sequence[ArrayLike]) -> np.ndarray:
        heads = [np.asarray(each)[1:] for each in heads]
        self._check_lengths([len(each) for each in heads], "heads (position 0 apart)")
        flat = np.concatenate([*heads, np.empty(0, np.int32)])
        self._check(flat, headless=not self.rules.single_root)
        return flat

    def _flat_relations(self, deprels: Sequence[Sequence[str]]) -> list[str]:
        self._check_lengths([len(each) for each in deprels], "relations")
        return [self.rules.relation(deprel) for sentence in deprels for deprel in sentence]

    def _equal(self, relations: list[str]) -> np.ndarray:
        return np.fromiter(map(eq, self._relations, relations), bool, len(relations))

    def _complete(self, right: np.ndarray) -> int:
        # reduceat with no start at all raises.
        return int(np.logical_and.reduceat(right, self.starts).sum()) if len(self.starts) else 0

    @staticmethod
    def _is_content(relations: list[str]) -> np.ndarray:
        return np.fromiter(map(CONTENT_RELATIONS.__contains__, relations), bool, len(relations))

    def _check_lengths(self, lengths: list[int], what: str) -> None:
        if len(lengths) != len(self._lengths):
            raise ValueError(
                f"got {what} of {len(lengths)} sentences for {len(self._lengths)} gold sentences"
            )
        if (wrong := np.flatnonzero(self._lengths != lengths)).size:
            index = wrong[0]
            raise self._error(index, f"{lengths[index]} {what} for {self._lengths[index]} words")

    def _check(self, heads: np.ndarray, *, headless: bool) -> None:
        """Heads inside their sentences, and as many roots as the rules allow."""
        limits = np.repeat(self._lengths, self._lengths)
        if (wrong := np.flatnonzero((heads < -headless) | (heads > limits))).size:
            index = int(np.searchsorted(self.starts, wrong[0], side="right")) - 1
            word, head = wrong[0] - self.starts[index] + 1, heads[wrong[0]]
            raise self._error(
                index,
                f"word {word} has no head"
                if head == -1
                else f"word {word} has head {head}, outside 0..{self._lengths[index]}",
            )
        if self.rules.single_root and len(self.starts):
            roots = np.add.reduceat(heads == 0, self.starts, dtype=np.int64)
            if (wrong := np.flatnonzero(roots != 1)).size:
                raise self._error(
                    wrong[0],
                    f"{roots[wrong[0]]} roots, where the conll18 rules want one "
                    "(allow multiple roots to score it all the same)",
                )

    def _error(self, index: int, reason: str) -> EvaluationError:
        return EvaluationError(*self._places[index], reason)


def evaluate(
    gold: Iterable[Sentence],
    system: Iterable[Sentence],
    rules: str = "conllx",
    *,
    punctuation: bool | None = None,
    allow_multiple_roots: bool = False,
) -> Scores:
    """Score parsed sentences against gold ones, word for word the same.

    Equals the official script of the same name to two decimals when tokenisation is the same.
    Lazy: one sentence of each side in memory.

    Parameters
    ----------
    gold, system : iterable of Sentence
    rules : {"conllx", "conll18"}
        ``conllx``: words whose gold form is punctuation left out, relations compared whole.
        ``conll18``: every word, relations up to the first colon, one root in each sentence.
    punctuation : bool, optional
        Score punctuation or not, against what the rules say.
    allow_multiple_roots : bool, default False
        Under ``conll18``, score trees with another number of roots, and words without a head
        (which are wrong), instead of refusing them.

    Raises
    ------
    AlignmentError
        Different words, or another number of them; names the file, the line and both forms.
    EvaluationError
        As in `Reference.score`.

    References
    ----------
    S. Buchholz and E. Marsi, "CoNLL-X shared task on multilingual dependency parsing", CoNLL
    2006.  D. Zeman et al., "CoNLL 2018 shared task: multilingual parsing from raw text to
    Universal Dependencies", CoNLL 2018.
    """
    scores = Scores(
        Rules.named(rules, punctuation=punctuation, allow_multiple_roots=allow_multiple_roots)
    )
    for reference, answer in aligned(gold, system):
        scores.add(reference, answer.heads, answer.deprels)
    return scores
