"""Tags of a whole corpus against all taggings, lazily as eagerly, and the slides' example."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from parser.inference.lagrangian import subgradient
from tests.inference.lagrangian.bounds import Recorder, assert_bounds, linear_relaxation
from tests.inference.lagrangian.corpus_tagging import Consensus, Corpus, Sentences
from tests.inference.lagrangian.tagger import Tagger

SHARED = [[0, 2], [1], [0, 1]]  # of sentences of 3, 2 and 2 words
WORDS = ["bank", "light", "bank", "light", "bank"]


def random_corpus(seed: int, tags: int = 2, lazy: bool = True) -> Corpus:
    rng = np.random.default_rng(seed)
    taggers = [Tagger(rng.normal(size=(n, tags, tags, tags))) for n in (3, 2, 2)]
    return Corpus(Sentences(taggers, SHARED, lazy), Consensus(WORDS, rng.uniform(0.2, 2.0)))


def taggings(corpus: Corpus) -> list[list[list[int]]]:
    return list(map(list, product(*(tagger.sequences() for tagger in corpus.sentences.taggers))))


@pytest.mark.parametrize("tags", [2, 3])
@pytest.mark.parametrize("seed", range(10))
def test_bounds_hold_and_certificates_are_right(seed, tags):
    corpus = random_corpus(seed, tags)
    optimum = max(map(corpus.score, taggings(corpus)))
    outcome = subgradient(corpus.decomposition(), np.zeros((5, tags)), iterations=100)
    assert_bounds(outcome, optimum)
    assert corpus.score(outcome.solution) == outcome.primal


@pytest.mark.parametrize("seed", range(5))
def test_consensus_is_the_best_of_all(seed):
    consensus = random_corpus(seed, 3).consensus
    u = np.random.default_rng(seed).normal(size=(5, 3))
    value, shared, tags = consensus.best(u)
    every = [list(z) for z in product(range(3), repeat=5)]
    best = max(consensus.score(z) + u[np.arange(5), z].sum() for z in every)
    assert value == pytest.approx(best, abs=1e-12)
    assert consensus.score(tags) + u[np.arange(5), tags].sum() == pytest.approx(value, abs=1e-12)
    np.testing.assert_array_equal(shared.argmax(axis=1), tags)


@pytest.mark.parametrize("seed", range(5))
def test_the_least_dual_is_the_value_of_the_linear_relaxation(seed):
    corpus = random_corpus(seed)
    one_hot = np.eye(2)
    every = taggings(corpus)
    consensus = [list(z) for z in product(range(2), repeat=5)]
    value = linear_relaxation(
        [
            np.array([corpus.sentences.score(y) for y in every]),
            np.array([corpus.consensus.score(z) for z in consensus]),
        ],
        [
            np.array([one_hot[corpus.sentences.shared_tags(y)].ravel() for y in every]),
            -np.array([one_hot[z].ravel() for z in consensus]),
        ],
    )
    outcome = subgradient(corpus.decomposition(), np.zeros((5, 2)))
    assert value - 1e-9 <= outcome.dual <= value + 0.01


@pytest.mark.parametrize("seed", range(10))
def test_sentences_without_a_change_are_not_tagged_again(seed):
    lazy, eager = (random_corpus(seed, 3, lazy) for lazy in (True, False))
    u = np.zeros((5, 3))
    one, other = (subgradient(corpus.decomposition(), u) for corpus in (lazy, eager))
    np.testing.assert_array_equal(one.history, other.history)
    assert one.solution == other.solution
    assert eager.sentences.solved == [[0, 1, 2]] * other.iterations
    assert lazy.sentences.solved[0] == [0, 1, 2]
    if one.iterations > 1:
        assert sum(map(len, lazy.sentences.solved)) < 3 * one.iterations


TAGS = "ANPRV"  # adjective, noun, pronoun, adverb, verb
CORPUS = [
    ("English is my first language", "NVPAN"),
    ("He studies language arts now", "PVANR"),
    ("Language makes us human beings", "NVPAN"),
]


def language() -> Corpus:
    """Sentence by sentence, `language` is an adjective in one; nearly as good there is a noun."""
    taggers, shared = [], []
    for (text, tags), (other, loss) in zip(
        CORPUS, [("A", 3.0), ("N", 1.5), ("A", 3.0)], strict=True
    ):
        place = text.lower().split().index("language")
        emissions = np.full((5, len(TAGS)), -9.0)
        emissions[np.arange(5), [TAGS.index(tag) for tag in tags]] = 0.0
        emissions[place, TAGS.index(other)] = -loss
        taggers.append(Tagger(np.tile(emissions[:, None, None], (1, 5, 5, 1))))
        shared.append([place])
    return Corpus(Sentences(taggers, shared), Consensus(["language"] * 3, bonus=2.5))


def test_trace_of_the_slides():
    corpus = language()
    problem = Recorder(corpus.decomposition())
    outcome = subgradient(problem, np.zeros((3, 5)), rule="constant", scale=1.0)
    spelled = [
        ["".join(TAGS[t] for t in shared.argmax(axis=1)) for shared in step.iterates]
        for step in problem.steps
    ]
    assert spelled == [["NAN", "AAA"], ["NAN", "NNN"], ["NNN", "NNN"]]
    prices = [
        {(s + 1, corpus.sentences.shared[s][0] + 1, TAGS[t]): u[s, t] for s, t in np.argwhere(u)}
        for u in problem.multipliers
    ]
    first = {(1, 5, "A"): 1, (1, 5, "N"): -1, (3, 1, "A"): 1, (3, 1, "N"): -1}
    assert prices == [{}, first, first | {(2, 3, "A"): -1, (2, 3, "N"): 1}]
    assert corpus.sentences.solved == [[0, 1, 2], [0, 2], [1]]
    assert outcome.certified
    assert outcome.primal == -1.5 + 3 * 2.5
    assert ["".join(TAGS[t] for t in tags) for tags in outcome.solution] == [
        "NVPAN",
        "PVNNR",
        "NVPAN",
    ]
