"""A log-linear classifier of arcs: p(relation | word, head, siblings, grandparent, children).

Labels are independent given the tree.  Words under the root take relations that the training data
has under the root, all other words those that it has elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from cython_ext import labels as kernel
from parser.features.vocabulary import Vocabulary
from parser.labelling.templates import compile_templates
from parser.treebank import Sentence

LANES = 16  # rows are padded to whole cache lines


class Labeller:
    """Weights, labels and where each label may stand.

    Parameters
    ----------
    labels : list of str
        Relations, in the order of the columns of `weights`.
    root, inner : ndarray of bool, (labels,)
        Whether the relation was seen on words under the root, and on other words.
    weights : ndarray of float32, (2**bits, columns), columns >= labels
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        labels: Sequence[str],
        root: np.ndarray,
        inner: np.ndarray,
        weights: np.ndarray,
    ) -> None:
        self.vocabulary = vocabulary
        self.labels = list(labels)
        self.root = root
        self.inner = inner
        self.weights = weights
        self.bits = len(weights).bit_length() - 1
        self._templates = compile_templates(vocabulary.absent)
        # Row 0: words that hang from another word, row 1: words under the root.
        self._allowed = np.full((2, weights.shape[1]), -np.inf, np.float32)
        self._allowed[0, : len(self.labels)][inner if inner.any() else root] = 0
        self._allowed[1, : len(self.labels)][root] = 0

    @classmethod
    def empty(cls, vocabulary: Vocabulary, sentences: Sequence[Sentence], bits: int) -> Labeller:
        """A labeller with zero weights and the labels of gold trees."""
        labels: dict[str, int] = {}
        seen: tuple[set[int], set[int]] = set(), set()
        for sentence in sentences:
            for label, head in zip(sentence.deprels, sentence.heads[1:].tolist(), strict=True):
                seen[head == 0].add(labels.setdefault(label, len(labels)))
        where = np.zeros((2, len(labels)), bool)
        for row, members in zip(where, seen, strict=True):
            row[list(members)] = True
        columns = -(-len(labels) // LANES) * LANES
        weights = np.zeros((1 << bits, columns), np.float32)
        return cls(vocabulary, list(labels), where[1], where[0], weights)

    def rows(self, ids: np.ndarray, morph: np.ndarray, heads: np.ndarray) -> np.ndarray:
        """Feature rows of every word, (n, features) int32."""
        return kernel.feature_rows(ids, morph, heads, *self._templates, self.bits)

    def scores(
        self, columns: Sequence[tuple[np.ndarray, np.ndarray]], trees: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Unnormalised log scores (words, labels) float32; -inf where a label is not allowed.

        columns: ids and single features of each sentence (Vocabulary.encode); trees: heads (n+1,).
        The words of all sentences stand one after another.  Releases the GIL once for all scores.
        """
        rows = np.concatenate([self.rows(*c, y) for c, y in zip(columns, trees, strict=True)])
        heads = np.concatenate([y[1:] for y in trees])
        out = np.empty((len(rows), self.weights.shape[1]), np.float32)
        kernel.scores(rows, self.weights, out)
        out += self._allowed[(heads == 0).view(np.int8)]
        return out[:, : len(self.labels)]

    def label(
        self,
        columns: Sequence[tuple[np.ndarray, np.ndarray]],
        trees: Sequence[np.ndarray],
        *,
        probabilities: bool = False,
    ) -> list[tuple[list[str], np.ndarray | None]]:
        """Best relation of each word, sentence by sentence, and p(relation | tree) if asked for.

        Ties go to the label seen first in training.  Arguments as of `scores`.
        """
        scores = self.scores(columns, trees)
        best = scores.argmax(1)
        sure = None
        if probabilities:
            top = scores[np.arange(len(best)), best].astype(np.float64)
            sure = 1.0 / np.exp(scores - top[:, None]).sum(1)
        labels = [self.labels[r] for r in best.tolist()]
        out, start = [], 0
        for tree in trees:
            words = slice(start, start + len(tree) - 1)
            out.append((labels[words], None if sure is None else sure[words]))
            start = words.stop
        return out

    def train(
        self,
        sentences: Sequence[Sentence],
        epochs: int,
        rate: float,
        rng: np.random.Generator,
    ) -> Iterator[float]:
        """AdaGrad on log p(gold label) over gold trees; yields the mean loss of each epoch.

        Words are visited sentence by sentence, sentences in a new random order each epoch.
        """
        index = {label: r for r, label in enumerate(self.labels)}
        squares = np.zeros_like(self.weights)
        rows, gold, allowed = [], [], []
        for sentence in sentences:
            rows.append(self.rows(*self.vocabulary.encode(sentence), sentence.heads))
            gold.append(np.array([index[label] for label in sentence.deprels], np.int32))
            allowed.append((sentence.heads[1:] == 0).view(np.int8))
        words = sum(map(len, gold))
        for _ in range(epochs):
            loss = 0.0
            for i in rng.permutation(len(rows)).tolist():
                loss += kernel.train(
                    rows[i], gold[i], self._allowed[allowed[i]], self.weights, squares, rate
                )
            yield loss / words
