"""Exact inference over projective dependency trees, given an array of arc scores.

Scores are natural logs: ``arc_scores[head, modifier]``, position 0 the artificial root, words 1..n.
A tree is projective when no two of its arcs cross, those from the root included;
`parser.inference.nonprojective` has the same functions for all trees.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from cython_ext import eisner
from parser.inference import arrays
from parser.inference.arrays import Floats, Heads, Kernels, NoTreeError

__all__ = [
    "NoTreeError",
    "best_tree",
    "entropy",
    "k_best",
    "log_partition",
    "marginals",
    "sample",
]

_KERNELS = Kernels(eisner.best_tree, eisner.best_trees, eisner.sums, eisner.sample, projective=True)


def best_tree(
    arc_scores: ArrayLike,
    lengths: ArrayLike | None = None,
    *,
    single_root: bool = True,
    mask: ArrayLike | None = None,
) -> tuple[Heads, Floats]:
    """Highest-scoring projective dependency tree.

    Eisner's algorithm, values only, with the splits of one tree worked out again at the end:
    O(n^3) time, O(n^2) memory for a sentence.

    Parameters
    ----------
    arc_scores : array_like of float, shape (n+1, n+1) or (batch, N, N)
        ``arc_scores[..., h, m]`` scores the arc from head ``h`` to modifier ``m``.  ``-inf``
        forbids an arc.  Column 0, the diagonal and padding have no effect.  C-contiguous float64
        is not copied; it may be read-only and is never changed.
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
        Ties go to the lower of two heads, span by span: the same tree on every run.
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
    J. Eisner, "Three new probabilistic models for dependency parsing: an exploration", COLING 1996.

    Examples
    --------
    >>> scores = np.zeros((4, 4))
    >>> scores[0, 2] = scores[3, 1] = 1.0  # these two arcs would cross
    >>> heads, score = best_tree(scores)
    >>> heads.tolist(), float(score)
    ([-1, 2, 0, 2], 1.0)
    """
    return arrays.best_tree(_KERNELS, arc_scores, lengths, single_root, mask)


def log_partition(
    arc_scores: ArrayLike,
    lengths: ArrayLike | None = None,
    *,
    single_root: bool = True,
    mask: ArrayLike | None = None,
) -> Floats:
    """Log partition function, ``log Z = log sum_y exp(score of y)`` over projective trees.

    The inside pass of Eisner's algorithm on scaled weights, in logs where the range of the scores
    needs it.  O(n^3) time, O(n^2) memory for a sentence.

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
    J. Eisner, "Three new probabilistic models for dependency parsing: an exploration", COLING 1996.
    J. K. Baker, "Trainable grammars for speech recognition", 1979 (inside and outside).

    Examples
    --------
    >>> round(float(np.exp(log_partition(np.zeros((4, 4))))))
    7
    """
    return arrays.log_partition(_KERNELS, arc_scores, lengths, single_root, mask)


def marginals(
    arc_scores: ArrayLike,
    lengths: ArrayLike | None = None,
    *,
    single_root: bool = True,
    mask: ArrayLike | None = None,
) -> tuple[Floats, Floats]:
    """Probability of every arc under ``p(y) = exp(score of y) / Z``, and log Z.

    The cost and the sources are those of `log_partition`, of which this is the gradient.

    Parameters
    ----------
    arc_scores, lengths, single_root, mask
        As for `best_tree`.

    Returns
    -------
    probability : ndarray of float64, shape (n+1, n+1) or (batch, N, N)
        ``probability[..., h, m]``; each word's column sums to 1.  0 in column 0, on the diagonal,
        for forbidden arcs and in padding.
    log_z : float64, shape () or (batch,)

    Raises
    ------
    ValueError, NoTreeError
        As for `best_tree`.

    References
    ----------
    Those of `log_partition`.

    Examples
    --------
    >>> probability, log_z = marginals(np.zeros((3, 3)))
    >>> probability.tolist()
    [[0.0, 0.5, 0.5], [0.0, 0.0, 0.5], [0.0, 0.5, 0.0]]
    """
    return arrays.marginals(_KERNELS, arc_scores, lengths, single_root, mask)


def entropy(
    arc_scores: ArrayLike,
    lengths: ArrayLike | None = None,
    *,
    single_root: bool = True,
    mask: ArrayLike | None = None,
) -> Floats:
    """Entropy in nats of the distribution over trees, ``log Z - sum of probability * score``.

    Parameters
    ----------
    arc_scores, lengths, single_root, mask
        As for `best_tree`.

    Returns
    -------
    entropy : float64, shape () or (batch,)
        0 when one tree has all the probability.

    Raises
    ------
    ValueError, NoTreeError
        As for `best_tree`.

    References
    ----------
    Those of `log_partition`.

    Examples
    --------
    >>> float(np.exp(entropy(np.zeros((3, 3)))).round(9))
    2.0
    """
    return arrays.entropy(_KERNELS, arc_scores, lengths, single_root, mask)


def k_best(
    arc_scores: ArrayLike,
    k: int,
    lengths: ArrayLike | None = None,
    *,
    single_root: bool = True,
    mask: ArrayLike | None = None,
) -> tuple[Heads, Floats] | list[tuple[Heads, Floats]]:
    """The k best distinct trees, best first, by partition around `best_tree`: O(k n^4).

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
    K. G. Murty, "An algorithm for ranking all the assignments in order of increasing cost", 1968.
    E. L. Lawler, "A procedure for computing the k best solutions", Management Science, 1972.

    Examples
    --------
    >>> heads, scores = k_best([[0, 3, 1], [0, 0, 1], [0, 1, 0]], 5)
    >>> heads.tolist(), scores.tolist()
    ([[-1, 0, 1], [-1, 2, 0]], [4.0, 2.0])
    """
    return arrays.k_best(_KERNELS, arc_scores, k, lengths, single_root, mask)


def sample(
    arc_scores: ArrayLike,
    size: int,
    lengths: ArrayLike | None = None,
    *,
    seed: int | np.random.Generator | None = None,
    single_root: bool = True,
    mask: ArrayLike | None = None,
) -> tuple[Heads, Floats]:
    """Independent exact samples from ``p(y) = exp(score of y) / Z``.

    Top down through the inside chart: O(n^3) once, then O(n^2) at worst a sample.

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
    Those of `log_partition`.

    Examples
    --------
    >>> heads, log_probability = sample(np.zeros((3, 3)), 1000, seed=0)
    >>> 400 < int((heads == [-1, 0, 1]).all(axis=1).sum()) < 600
    True
    """
    return arrays.sample(_KERNELS, arc_scores, size, lengths, seed, single_root, mask)
