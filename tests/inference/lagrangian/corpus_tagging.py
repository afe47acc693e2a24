"""Tagging of sentences that share words, where each of these words gains by having one tag.

Shared are the tags of the tokens of these words, (tokens, tags), in the order of the corpus.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np

from parser.inference.lagrangian import Decomposition, Maximum
from tests.inference.lagrangian.tagger import Tagger


@dataclass
class Sentences:
    """A tagger for each sentence, and the positions of its shared tokens.

    Lazy: a sentence is tagged anew only if a multiplier of its changed.
    """

    taggers: list[Tagger]
    shared: list[list[int]]
    lazy: bool = True
    last: list[tuple[np.ndarray, Maximum]] = field(default_factory=list)
    solved: list[list[int]] = field(default_factory=list)  # in each call

    def best(self, u: np.ndarray) -> Maximum:
        parts = np.split(u, np.cumsum([len(places) for places in self.shared])[:-1])
        changed = [
            s
            for s, part in enumerate(parts)
            if not (self.lazy and self.last and np.array_equal(self.last[s][0], part))
        ]
        self.last = self.last or [None] * len(parts)
        for s in changed:
            self.last[s] = (parts[s], self._tag(s, parts[s]))
        self.solved.append(changed)
        answers = [answer for _, answer in self.last]
        return Maximum(
            sum(answer.value for answer in answers),
            np.concatenate([answer.shared for answer in answers]),
            [answer.structure for answer in answers],
        )

    def _tag(self, s: int, u: np.ndarray) -> Maximum:
        n, tags = self.taggers[s].theta.shape[:2]
        unary = np.zeros((n, tags))
        unary[self.shared[s]] = u
        value, chosen, structure = self.taggers[s].best(unary)
        return Maximum(value, chosen[self.shared[s]], structure)

    def shared_tags(self, tagging: list[list[int]]) -> list[int]:
        return [tagging[s][i] for s, places in enumerate(self.shared) for i in places]

    def score(self, tagging: list[list[int]]) -> float:
        return sum(t.score(tags) for t, tags in zip(self.taggers, tagging, strict=True))


@dataclass(frozen=True)
class Consensus:
    """Each word has a tag, and each of its tokens gains `bonus` by having it too.

    words : of each shared token.
    """

    words: list[str]
    bonus: float

    def best(self, u: np.ndarray) -> Maximum:
        """max_c sum over tokens of max_t u[token, t] + (bonus if t == c), word by word."""
        tokens = defaultdict(list)
        for token, word in enumerate(self.words):
            tokens[word].append(token)
        total, tags = 0.0, np.zeros(len(self.words), int)
        for places in tokens.values():
            values = u[places, None, :] + self.bonus * np.eye(u.shape[1])  # token, c, t
            totals = values.max(axis=2).sum(axis=0)
            best = totals.argmax()
            total += totals[best]
            tags[places] = values[:, best].argmax(axis=1)
        return Maximum(total, np.eye(u.shape[1])[tags], tags.tolist())

    def score(self, tags: list[int]) -> float:
        counts = defaultdict(Counter)
        for word, tag in zip(self.words, tags, strict=True):
            counts[word][tag] += 1
        return self.bonus * sum(max(counter.values()) for counter in counts.values())


@dataclass(frozen=True)
class Corpus:
    sentences: Sentences
    consensus: Consensus

    def score(self, tagging: list[list[int]]) -> float:
        shared = self.sentences.shared_tags(tagging)
        return self.sentences.score(tagging) + self.consensus.score(shared)

    def decomposition(self) -> Decomposition:
        """A solution is the tags of all sentences."""
        return Decomposition(
            self.sentences.best,
            self.consensus.best,
            lambda tagging, _: (self.score(tagging), tagging),
        )
