"""Could the difference between two parsers be chance?  Paired permutation test over sentences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from parser.evaluation.counts import Ratio
from parser.evaluation.rules import Rules, aligned
from parser.evaluation.scores import Reference
from parser.treebank import Sentence

_CHUNK = 1 << 22  # signs drawn at a time: bounds memory


@dataclass(frozen=True, slots=True)
class Difference:
    """Two systems by one measure.

    Attributes
    ----------
    measure : str
        ``uas`` or ``las``.
    first, second : float
        Their scores, percent; ``difference`` is second minus first, in points.
    p : float
        Two-sided p value, in (0, 1].
    """

    measure: str
    first: float
    second: float
    difference: float
    p: float

    def to_dict(self) -> dict:
        return asdict(self)


def compare(
    gold: Iterable[Sentence],
    first: Iterable[Sentence],
    second: Iterable[Sentence],
    rules: str = "conllx",
    *,
    punctuation: bool | None = None,
    allow_multiple_roots: bool = False,
    permutations: int = 10_000,
    seed: int = 0,
) -> list[Difference]:
    """Test the differences in UAS and LAS between two parses of the same sentences.

    Keywords and errors as in `evaluate` and `permutation_test`.  Lazy: two integers for each
    sentence and system are kept.
    """
    rules_ = Rules.named(rules, punctuation=punctuation, allow_multiple_roots=allow_multiple_roots)
    counts = []  # per sentence: scored words, then heads right and both right of each system
    for reference, *answers in aligned(gold, first, second):
        sentence = Reference([reference], rules_)
        row = [int(sentence.scored.sum())]
        for answer in answers:
            heads_right, relations_right = sentence.right([answer.heads], [answer.deprels])
            row.append(int((sentence.scored & heads_right).sum()))
            row.append(int((sentence.scored & heads_right & relations_right).sum()))
        counts.append(row)
    words, *right = np.array(counts, dtype=np.int64).reshape(-1, 5).T
    total = int(words.sum())
    differences = []
    for measure, one, two in zip(("uas", "las"), right[:2], right[2:], strict=True):
        scores = [Ratio(int(each.sum()), total).percent for each in (one, two)]
        p = permutation_test(two - one, permutations=permutations, seed=seed)
        differences.append(Difference(measure, *scores, scores[1] - scores[0], p))
    return differences


def permutation_test(differences: ArrayLike, *, permutations: int = 10_000, seed: int = 0) -> float:
    r"""Two-sided p value of a paired permutation test (approximate randomisation).

    Were the two systems alike, each sentence's difference could as well have had the other sign.
    With :math:`d_i` the difference of right words in sentence :math:`i` and :math:`\sigma` drawn
    uniformly from :math:`\{-1, 1\}^S`,

    .. math:: p = \frac{1 + \#\{r : |\sum_i \sigma^r_i d_i| \ge |\sum_i d_i|\}}{1 + R}

    The observed signs count as one permutation, which makes the test exact at its level and
    keeps p above zero.  O(R S), vectorised; sentences without a difference cost nothing.

    Parameters
    ----------
    differences : array_like of int, shape (S,)
        For each sentence, words right in the one system minus words right in the other.
    permutations : int, default 10,000
        R, at least 1.
    seed : int, default 0
        The same seed and differences give the same p.

    Returns
    -------
    p : float
        In (0, 1]; 1 for two systems without a difference.

    References
    ----------
    E. Noreen, "Computer-intensive methods for testing hypotheses", Wiley 1989.  B. Phipson and
    G. Smyth, "Permutation p-values should never be zero", 2010 (the added one).

    Examples
    --------
    >>> permutation_test([0, 0, 0])
    1.0
    """
    differences = np.asarray(differences)
    if differences.ndim != 1 or (differences.size and differences.dtype.kind not in "iu"):
        raise ValueError(
            "differences must be a one-dimensional array of integers, "
            f"got shape {differences.shape} of {differences.dtype}"
        )
    if permutations < 1:
        raise ValueError(f"permutations must be at least 1, got {permutations}")
    # float64 holds these integers exactly, and multiplies by BLAS.
    differences = differences[differences != 0].astype(np.float64)
    observed = abs(differences.sum())
    rng = np.random.default_rng(seed)
    as_extreme, done = 0, 0
    while done < permutations:
        rows = min(permutations - done, max(1, _CHUNK // max(1, differences.size)))
        flipped = rng.integers(0, 2, size=(rows, differences.size), dtype=np.int8)
        # sum of signed differences = sum of all - 2 * sum of those flipped
        sums = differences.sum() - 2.0 * (flipped @ differences)
        as_extreme += int(np.count_nonzero(np.abs(sums) >= observed))
        done += rows
    return (1 + as_extreme) / (1 + permutations)
