"""The functions on arrays of arc scores, for either set of trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cython_ext import kbest
from parser.inference.arrays import (
    Batch,
    Floats,
    Heads,
    NoTreeError,
    as_batch,
    as_scores,
    failure,
)


class Kernels(NamedTuple):
    """The compiled functions of one tree constraint, as in `cython_ext`."""

    best_tree: Callable[..., float]
    best_trees: Callable[..., int]
    sums: Callable[..., int]
    sample: Callable[..., float]
    projective: bool


class TreeFunctions:
    """Exact inference over the trees of one constraint, given an array of arc scores.

    Scores are natural logs: ``arc_scores[head, modifier]``, position 0 the artificial root, words
    1..n.  `parser.inference.nonprojective` and `parser.inference.projective` offer the methods as
    functions, which share nothing between calls and release the GIL.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels

    def best_tree(
        self,
        arc_scores: ArrayLike,
        lengths: ArrayLike | None = None,
        *,
        single_root: bool = True,
        mask: ArrayLike | None = None,
    ) -> tuple[Heads, Floats]:
        """Highest-scoring dependency tree.

        Non-projective by Chu-Liu/Edmonds, growing paths on a dense graph: O(n^2) time.
        Projective by Eisner's algorithm, values only, with the splits of one tree worked out again
        at the end: O(n^3) time.  Both take O(n^2) memory for a sentence; a single root is exact,
        not chosen afterwards.

        Parameters
        ----------
        arc_scores : array_like of float, shape (n+1, n+1) or (batch, N, N)
            ``arc_scores[..., h, m]`` scores the arc from head ``h`` to modifier ``m``.  ``-inf``
            forbids an arc.  Column 0, the diagonal and padding have no effect.  C-contiguous
            float64 is not copied; it may be read-only and is never changed.
        lengths : array_like of int, shape (batch,), optional
            Words in each sentence of a right-padded batch.  Default: N - 1 for all.
        single_root : bool, default True
            The root takes exactly one word, as Universal Dependencies requires; False: one or more.
        mask : array_like of bool, shape as arc_scores, optional
            False forbids an arc, whatever its score.

        Returns
        -------
        heads : ndarray of int32, shape (n+1,) or (batch, N)
            ``heads[..., m]`` is the head of word ``m``; -1 at position 0 and in padding.
            Ties give the same tree on every run: every comparison of heads prefers the lower
            index; of a projective tree, span by span.
        score : float64, shape () or (batch,)
            Sum of the scores of the tree's arcs.

        Raises
        ------
        ValueError
            If a shape or a length is wrong, or a score is NaN or +inf.
        NoTreeError
            If the allowed arcs hold no tree; names the sentence and a word.

        References
        ----------
        Y. J. Chu and T. H. Liu, "On the shortest arborescence of a directed graph", 1965.
        J. Edmonds, "Optimum branchings", 1967.  H. N. Gabow, Z. Galil, T. Spencer and R. E. Tarjan,
        "Efficient algorithms for finding minimum spanning trees in undirected and directed graphs",
        1986.  J. Eisner, "Three new probabilistic models for dependency parsing: an exploration",
        COLING 1996.

        Examples
        --------
        >>> from parser.inference import nonprojective, projective
        >>> scores = np.zeros((4, 4))
        >>> scores[0, 2] = scores[3, 1] = 1.0  # these two arcs cross
        >>> for functions in (nonprojective, projective):
        ...     heads, score = functions.best_tree(scores)
        ...     print(heads.tolist(), float(score))
        [-1, 3, 0, 2] 2.0
        [-1, 2, 0, 2] 1.0
        """
        kernels = self._kernels
        if lengths is None and mask is None:
            scores = as_scores(arc_scores)
            if scores.ndim == 2:  # the short way: for few words the checks cost more than the tree
                heads = np.empty(len(scores), np.int32)
                value = kernels.best_tree(scores, len(scores) - 1, single_root, heads)
                if value == -np.inf:
                    raise self._failure(Batch(scores[None], None, False), 0, single_root)
                return heads, np.float64(value)
        batch = as_batch(arc_scores, lengths, mask)
        heads = np.empty(batch.scores.shape[:2], np.int32)
        values = np.empty(len(heads))
        failed = kernels.best_trees(batch.scores, batch.lengths, single_root, heads, values)
        if failed >= 0:
            raise self._failure(batch, failed, single_root)
        return (heads, values) if batch.batched else (heads[0], values[0])

    def log_partition(
        self,
        arc_scores: ArrayLike,
        lengths: ArrayLike | None = None,
        *,
        single_root: bool = True,
        mask: ArrayLike | None = None,
    ) -> Floats:
        """Log partition function, ``log Z = log sum_y exp(score of y)`` over the trees y.

        Non-projective by the matrix-tree theorem: elimination without subtractions, or LU of the
        Laplacian for long sentences.  Projective by the inside pass of Eisner's algorithm.  Both
        work on scaled weights, in logs where the range of the scores needs it, and take O(n^3)
        time, O(n^2) memory for a sentence.

        Parameters
        ----------
        arc_scores, lengths, single_root, mask
            As for `best_tree`.

        Returns
        -------
        log_z : float64, shape () or (batch,)

        Raises
        ------
        ValueError, NoTreeError
            As for `best_tree`: log Z of no trees is an error, not ``-inf``.

        References
        ----------
        W. T. Tutte, "Graph theory", 1984.  T. Koo, A. Globerson, X. Carreras and M. Collins,
        "Structured prediction models via the matrix-tree theorem", EMNLP-CoNLL 2007.
        W. K. Grassmann, M. I. Taksar and D. P. Heyman, "Regenerative analysis and steady state
        distributions for Markov chains", Operations Research, 1985 (the elimination).
        J. K. Baker, "Trainable grammars for speech recognition", 1979 (inside and outside).

        Examples
        --------
        >>> from parser.inference import nonprojective, projective
        >>> scores = np.zeros((4, 4))  # log Z is the log of how many trees there are
        >>> [round(float(np.exp(f.log_partition(scores)))) for f in (nonprojective, projective)]
        [9, 7]
        """
        batch = as_batch(arc_scores, lengths, mask)
        log_z = self._sums(batch, single_root, None)
        return log_z if batch.batched else log_z[0]

    def marginals(
        self,
        arc_scores: ArrayLike,
        lengths: ArrayLike | None = None,
        *,
        single_root: bool = True,
        mask: ArrayLike | None = None,
    ) -> tuple[Floats, Floats]:
        """Probability of every arc under ``p(y) = exp(score of y) / Z``, and log Z.

        The gradient of `log_partition`, at the same cost and from the same sources.

        Parameters
        ----------
        arc_scores, lengths, single_root, mask
            As for `best_tree`.

        Returns
        -------
        probability : ndarray of float64, shape (n+1, n+1) or (batch, N, N)
            ``probability[..., h, m]``; each word's column sums to 1.  0 in column 0, on the
            diagonal, for forbidden arcs and in padding.
        log_z : float64, shape () or (batch,)

        Raises
        ------
        ValueError, NoTreeError
            As for `best_tree`.

        Examples
        --------
        >>> from parser.inference import nonprojective
        >>> probability, log_z = nonprojective.marginals(np.zeros((3, 3)))
        >>> probability.tolist()
        [[0.0, 0.5, 0.5], [0.0, 0.0, 0.5], [0.0, 0.5, 0.0]]
        """
        batch = as_batch(arc_scores, lengths, mask)
        # Without padding every entry is written.
        new = np.empty if batch.lengths is None else np.zeros
        probability = new(batch.scores.shape)
        log_z = self._sums(batch, single_root, probability)
        return (probability, log_z) if batch.batched else (probability[0], log_z[0])

    def entropy(
        self,
        arc_scores: ArrayLike,
        lengths: ArrayLike | None = None,
        *,
        single_root: bool = True,
        mask: ArrayLike | None = None,
    ) -> Floats:
        """Entropy of the distribution over trees, ``log Z - sum of probability * score``.

        The cost and the sources are those of `log_partition`.

        Parameters
        ----------
        arc_scores, lengths, single_root, mask
            As for `best_tree`.

        Returns
        -------
        entropy : float64, shape () or (batch,)
            In nats; 0 when one tree has all the probability.

        Raises
        ------
        ValueError, NoTreeError
            As for `best_tree`.

        Examples
        --------
        >>> from parser.inference import nonprojective
        >>> float(np.exp(nonprojective.entropy(np.zeros((3, 3)))).round(9))
        2.0
        """
        batch = as_batch(arc_scores, lengths, mask)
        probability = np.zeros(batch.scores.shape)
        log_z = self._sums(batch, single_root, probability)
        possible = probability > 0  # 0 * -inf would be NaN
        expected = np.multiply(
            probability, batch.scores, out=np.zeros_like(probability), where=possible
        )
        values = np.maximum(log_z - expected.sum(axis=(1, 2)), 0.0)
        return values if batch.batched else values[0]

    def k_best(
        self,
        arc_scores: ArrayLike,
        k: int,
        lengths: ArrayLike | None = None,
        *,
        single_root: bool = True,
        mask: ArrayLike | None = None,
    ) -> tuple[Heads, Floats] | list[tuple[Heads, Floats]]:
        """The k best distinct trees, best first.

        Non-projective by partition, with two searches like `best_tree` for each tree:
        O(k n^2 + k^2) time, O(n^2 + k n) memory.  Projective lazily from the spans of `best_tree`:
        beside its O(n^3), O(n^2) time for the second tree, and O(n) or more, at most O(n^2), for
        each further one; O(n^2 + k n) memory, nearly.

        Parameters
        ----------
        arc_scores, lengths, single_root, mask
            As for `best_tree`.
        k : int
            Trees wanted, at least 1.

        Returns
        -------
        heads : ndarray of int32, shape (k', n+1)
            k' = k, or all trees if there are fewer.  Ties come in the same order on every run.
        scores : ndarray of float64, shape (k',)
            In descending order.

        For a batch, a list of such pairs, without padding.

        Raises
        ------
        ValueError, NoTreeError
            As for `best_tree`, and ValueError for k < 1.

        References
        ----------
        P. M. Camerini, L. Fratta and F. Maffioli, "The K best spanning arborescences of a network",
        Networks, 1980.  L. Huang and D. Chiang, "Better k-best parsing", IWPT 2005.

        Examples
        --------
        >>> from parser.inference import nonprojective
        >>> heads, scores = nonprojective.k_best([[0, 3, 1], [0, 0, 1], [0, 1, 0]], 5)
        >>> heads.tolist(), scores.tolist()
        ([[-1, 0, 1], [-1, 2, 0]], [4.0, 2.0])
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        batch = as_batch(arc_scores, lengths, mask)
        results = []
        for b, (scores, n) in enumerate(batch.sentences()):
            heads = np.empty((min(k, (n + 1) ** (n - 1)), n + 1), np.int32)  # Cayley's count
            values = np.empty(len(heads))
            projective = self._kernels.projective
            found = kbest.k_best(scores, n, single_root, projective, heads, values)
            if not found:
                raise self._failure(batch, b, single_root)
            # Equal scores may differ in the last place; then the order found need not descend.
            order = np.argsort(-values[:found], kind="stable")
            results.append((heads[order], values[order]))
        return results if batch.batched else results[0]

    def sample(
        self,
        arc_scores: ArrayLike,
        size: int,
        lengths: ArrayLike | None = None,
        *,
        seed: int | np.random.Generator | None = None,
        single_root: bool = True,
        mask: ArrayLike | None = None,
    ) -> tuple[Heads, Floats]:
        """Independent exact samples from ``p(y) = exp(score of y) / Z``.

        Non-projective: loop-erased random walks, of O(n) steps for most scores; where they take
        long, the words that the elimination for `log_partition` took out are put back one by one,
        each with a head and with the arcs that ran through it.  Projective: top down through the
        inside chart.  Both take O(n^3) once, then at worst O(n^2) a sample.

        Parameters
        ----------
        arc_scores, lengths, single_root, mask
            As for `best_tree`.
        size : int
            Samples wanted of each sentence.
        seed : int or numpy.random.Generator, optional
            The same seed gives the same trees.  A batch draws from it sentence by sentence.

        Returns
        -------
        heads : ndarray of int32, shape (size, n+1) or (batch, size, N)
        log_probability : ndarray of float64, shape (size,) or (batch, size)
            Of each sample, natural log.

        Raises
        ------
        ValueError, NoTreeError
            As for `best_tree`, and ValueError for a negative size.

        References
        ----------
        D. B. Wilson, "Generating random spanning trees more quickly than the cover time", STOC
        1996.  J. G. Propp and D. B. Wilson, "How to get a perfectly random sample from a generic
        Markov chain and generate a random spanning tree of a directed graph", Journal of
        Algorithms, 1998.  Besides, those of `log_partition`.

        Examples
        --------
        >>> from parser.inference import nonprojective
        >>> heads, log_probability = nonprojective.sample(np.zeros((3, 3)), 1000, seed=0)
        >>> 400 < int((heads == [-1, 0, 1]).all(axis=1).sum()) < 600
        True
        """
        if size < 0:
            raise ValueError(f"size must not be negative, got {size}")
        batch = as_batch(arc_scores, lengths, mask)
        generator = np.random.default_rng(seed)
        heads = np.full((len(batch.scores), size, batch.scores.shape[1]), -1, np.int32)
        log_probability = np.empty((len(heads), size))
        for b, (scores, n) in enumerate(batch.sentences()):
            # Two numbers for each word of this sentence, so that padding changes no sample.
            uniforms = generator.random((size, 2 * n))
            trees = np.empty((size, n + 1), np.int32)
            log_z = self._kernels.sample(scores, n, single_root, uniforms, trees)
            if log_z == -np.inf:
                raise self._failure(batch, b, single_root)
            heads[b, :, : n + 1] = trees
            values = scores[trees[:, 1:], np.arange(1, n + 1)].sum(axis=1)
            log_probability[b] = np.minimum(values - log_z, 0.0)
        return (heads, log_probability) if batch.batched else (heads[0], log_probability[0])

    def _sums(self, batch: Batch, single_root: bool, probability: Floats | None) -> Floats:
        """log Z of each sentence; with marginals into the zeros of ``probability``, if given."""
        log_z = np.empty(len(batch.scores))
        failed = self._kernels.sums(batch.scores, batch.lengths, single_root, probability, log_z)
        if failed >= 0:
            raise self._failure(batch, failed, single_root)
        return log_z

    def _failure(self, batch: Batch, b: int, single_root: bool) -> NoTreeError:
        return failure(batch, b, single_root, self._kernels.projective)
