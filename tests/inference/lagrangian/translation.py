"""Phrase-based translation, where each source word should be translated just once.

Relaxed, only their number counts: a derivation is a sequence of phrases that translate n words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from parser.inference.lagrangian import Step


class Phrase(NamedTuple):
    """Source words start..end, of 0..n-1, both included; what they become; and a score."""

    start: int
    end: int
    words: tuple[str, ...]
    score: float


Derivation = tuple[Phrase, ...]


@dataclass(frozen=True)
class Translation:
    """maximise phrases + bigrams + eta * distortions; each distortion at most `limit`.

    bigrams : of two target words; 0 if not there.  None stands before the first word.
    once : source words that are translated just once in relaxed derivations too.
    """

    n: int
    phrases: list[Phrase]
    bigrams: dict[tuple[str | None, str], float]
    eta: float
    limit: int
    once: frozenset[int] = frozenset()

    def counts(self, derivation: Derivation) -> np.ndarray:
        """How often each source word is translated, (n,)."""
        counts = np.zeros(self.n)
        for phrase in derivation:
            counts[phrase.start : phrase.end + 1] += 1.0
        return counts

    def score(self, derivation: Derivation) -> float:
        total, last = 0.0, None
        for phrase in derivation:
            total += self._joined(last, phrase)
            last = phrase
        return total

    def _distance(self, last: Phrase | None, phrase: Phrase) -> int:
        return 0 if last is None else abs(last.end + 1 - phrase.start)

    def _joined(self, last: Phrase | None, phrase: Phrase) -> float:
        words = (last.words[-1] if last else None, *phrase.words)
        bigrams = sum(
            self.bigrams.get(pair, 0.0) for pair in zip(words, phrase.words, strict=False)
        )
        return phrase.score + bigrams + self.eta * self._distance(last, phrase)

    def solve(self, u: np.ndarray) -> Step:
        """Best derivation for each number of words, last phrase and set of words of `once`.

        The last phrase stands for the last target word and for where the next distortion begins.
        """
        best: list[dict] = [{} for _ in range(self.n + 1)]
        best[0][None, frozenset()] = (0.0, ())
        for done in range(self.n):
            for (last, seen), (value, derivation) in best[done].items():
                for phrase in self.phrases:
                    translated = range(phrase.start, phrase.end + 1)
                    bound = self.once.intersection(translated)
                    after = done + len(translated)
                    if after > self.n or self._distance(last, phrase) > self.limit or bound & seen:
                        continue
                    total = value + self._joined(last, phrase) + u[list(translated)].sum()
                    key = (phrase, seen | bound)
                    if key not in best[after] or total > best[after][key][0]:
                        best[after][key] = (total, (*derivation, phrase))
        ends = [end for (_, seen), end in best[-1].items() if seen == self.once]
        if not ends:
            return Step(-np.inf, np.zeros(self.n))
        value, derivation = max(ends, key=lambda end: end[0])
        residual = self.counts(derivation) - 1.0
        primal, solution = -np.inf, None
        if not residual.any():
            primal, solution = self.score(derivation), derivation
        return Step(value - u.sum(), residual, primal, solution, (residual + 1.0,))

    def tightened(self, words: np.ndarray) -> Translation:
        return replace(self, once=self.once.union(words.tolist()))

    def derivations(self) -> Iterator[Derivation]:
        """All relaxed derivations, by definition."""

        def longer(before: Derivation, left: int) -> Iterator[Derivation]:
            if not left:
                yield before
            for phrase in self.phrases:
                near = self._distance(before[-1] if before else None, phrase) <= self.limit
                if near and (width := phrase.end + 1 - phrase.start) <= left:
                    yield from longer((*before, phrase), left - width)

        for derivation in longer((), self.n):
            if all(self.counts(derivation)[list(self.once)] == 1.0):
                yield derivation
