"""What goes into the array functions and what comes out when there is no tree: checks, errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Heads = NDArray[np.int32]


class NoTreeError(ValueError):
    """The arcs that are allowed hold no tree.

    Attributes
    ----------
    word : int
        Position of a word that shows why.
    sentence : int or None
        Index in the batch; None for a single sentence.
    """

    def __init__(self, message: str, word: int, sentence: int | None) -> None:
        super().__init__(message)
        self.word = word
        self.sentence = sentence


class Batch(NamedTuple):
    """Checked arguments."""

    scores: Floats  # (batch, N, N), C-contiguous
    lengths: NDArray[np.int32] | None  # (batch,); None when all are N - 1
    batched: bool  # as the caller gave them

    def sentences(self) -> Iterator[tuple[Floats, int]]:
        """The scores and the number of words of each sentence."""
        size = self.scores.shape[1]
        for b, scores in enumerate(self.scores):
            yield scores, size - 1 if self.lengths is None else int(self.lengths[b])


def as_batch(arc_scores: ArrayLike, lengths: ArrayLike | None, mask: ArrayLike | None) -> Batch:
    """Convert to a batch, without a copy where the scores are C-contiguous float64 already.

    Raises
    ------
    ValueError
        If a shape, a dtype or a length is wrong.  Values of scores are left to the kernels.
    """
    scores = as_scores(arc_scores)
    if mask is not None:
        allowed = np.asarray(mask)
        if allowed.dtype != bool or allowed.shape != scores.shape:
            raise ValueError(
                f"mask must be boolean of shape {scores.shape}, "
                f"got {allowed.dtype} of shape {allowed.shape}"
            )
        scores = np.where(allowed, scores, -np.inf)
    batched = scores.ndim == 3
    if not batched:
        scores = scores[None]
    if lengths is not None:
        lengths = _as_lengths(lengths, len(scores), scores.shape[-1], batched)
    return Batch(scores, lengths, batched)


def as_scores(arc_scores: ArrayLike) -> Floats:
    """C-contiguous float64 scores of one sentence or of a batch, without a copy where possible."""
    scores = np.ascontiguousarray(arc_scores, np.float64)
    shape = scores.shape
    if len(shape) not in (2, 3) or shape[-1] != shape[-2]:
        raise ValueError(f"arc_scores must have shape (n+1, n+1) or (batch, n+1, n+1), got {shape}")
    if shape[-1] < 2:
        raise ValueError("arc_scores covers no words: it needs the root and at least one word")
    return scores


def _as_lengths(lengths: ArrayLike, batch: int, size: int, batched: bool) -> NDArray[np.int32]:
    given = np.asarray(lengths)
    if batched and given.shape != (batch,):
        raise ValueError(f"lengths must have shape ({batch},), one per sentence, got {given.shape}")
    if not batched and given.size != 1:
        raise ValueError(f"lengths must be one number for one sentence, got {lengths!r}")
    if given.size and not np.issubdtype(given.dtype, np.integer):
        raise ValueError(f"lengths must be integers, got {given.dtype}")
    if given.size and not (given.min() >= 1 and given.max() < size):
        raise ValueError(
            f"lengths must be in 1..{size - 1} for scores of size {size}, "
            f"got {given.min()}..{given.max()}"
        )
    return np.ascontiguousarray(given.reshape(-1), np.int32)


def _arcs(batch: Batch, b: int) -> Floats:
    """Scores of one sentence's arcs; those that are no arcs -inf."""
    n = batch.scores.shape[1] - 1 if batch.lengths is None else int(batch.lengths[b])
    arcs = batch.scores[b, : n + 1, : n + 1].copy()
    arcs[:, 0] = -np.inf
    np.fill_diagonal(arcs, -np.inf)
    return arcs


def check_scores(batch: Batch, b: int) -> None:
    """ValueError if a score of an arc of sentence b is NaN or +inf."""
    arcs = _arcs(batch, b)
    if not (arcs < np.inf).all():
        at = tuple(int(i) for i in np.argwhere(~(arcs < np.inf))[0])
        where = (b, *at) if batch.batched else at
        raise ValueError(
            f"arc_scores{list(where)} is {arcs[at]}; use finite scores, or -inf to forbid an arc"
        )


def failure(batch: Batch, b: int, single_root: bool, projective: bool) -> NoTreeError:
    """The error for a sentence without a tree, naming a word that shows why.

    Raises
    ------
    ValueError
        Instead, if the sentence holds a score that is NaN or +inf.
    """
    check_scores(batch, b)
    allowed = _arcs(batch, b) > -np.inf
    where = f"sentence {b}: " if batch.batched else ""
    word, reason = _reason(allowed, single_root, projective)
    return NoTreeError(f"{where}no tree possible: {reason}", word, b if batch.batched else None)


def _reason(allowed: NDArray[np.bool_], single_root: bool, projective: bool) -> tuple[int, str]:
    choices = allowed[:, 1:].sum(axis=0)
    if not choices.all():
        word = 1 + int(np.argmin(choices))
        return word, f"word {word} has no allowed head"
    reached = _reachable(allowed, 0)
    if not reached.all():
        word = int(np.argmin(reached))
        return word, f"word {word} cannot be reached from the root"
    if single_root:
        # A word that an earlier candidate reaches can reach no more than that candidate.
        seen = np.zeros(len(allowed), bool)
        below = allowed.copy()
        below[0] = False
        for candidate in np.flatnonzero(allowed[0]):
            if seen[candidate]:
                continue
            reached = _reachable(below, int(candidate))
            reached[0] = True
            if reached.all():
                break
            seen |= reached
        else:
            word = int(np.argmin(reached))
            return word, (
                f"no single root reaches every word (word {word} not from word {candidate})"
            )
    word = 1 + int(np.argmin(choices))
    constraint = "projective tree" if projective else "finite sum of scores"
    return word, (
        f"the allowed arcs leave no {constraint}; word {word} has the fewest heads, "
        f"{np.flatnonzero(allowed[:, word]).tolist()}"
    )


def _reachable(allowed: NDArray[np.bool_], start: int) -> NDArray[np.bool_]:
    reached = np.zeros(len(allowed), bool)
    reached[start] = True
    frontier = reached.copy()
    while frontier.any():
        frontier = allowed[frontier].any(axis=0) & ~reached
        reached |= frontier
    return reached
