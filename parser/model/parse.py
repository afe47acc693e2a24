"""From sentences to trees with relations: the model's weights, an engine, the labeller."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

import numpy as np

from cython_ext.features import Encoded
from parser.features.scorer import Arcs
from parser.graph import GraphError, ScoredGraph, all_arcs
from parser.inference import Engine, default_engine
from parser.model.model import Model
from parser.treebank import Sentence

Out = TypeVar("Out")


@dataclass(frozen=True)
class Parse:
    """A tree for a sentence.

    Attributes
    ----------
    heads : ndarray of int32, (n+1,)
    deprels : list of str, (n,)
    score : float
        Sum of the arc scores.
    log_probability : float or None
        log p(tree) under the model's tree distribution, where asked for.
    arc_probabilities, label_probabilities : ndarray of float64, (n,), or None
        Marginal of each word's arc; p(relation | tree).
    """

    heads: np.ndarray
    deprels: list[str]
    score: float
    log_probability: float | None = None
    arc_probabilities: np.ndarray | None = None
    label_probabilities: np.ndarray | None = None


class Parser:
    """A model with an engine.  Holds no state between sentences; threads may share it.

    Parameters
    ----------
    model : Model
    engine : Engine, optional
        Default: the exact engine for the model's tree constraint.
    single_root : bool, optional
        Default: as the model's training trees.
    keep_heads : bool
        Heads that a sentence has are kept, and the best tree around them is found.
    confidence : bool
        Compute log p(tree) and probabilities.
    """

    def __init__(
        self,
        model: Model,
        engine: Engine | None = None,
        *,
        single_root: bool | None = None,
        keep_heads: bool = False,
        confidence: bool = False,
    ) -> None:
        settings = model.settings
        self.model = model
        self.engine = engine or default_engine(projective=bool(settings.projective))
        # An engine for one kind of trees decides; otherwise the model's kind.
        only = set(self.engine.constraints)
        self.projective = only.pop() if len(only) == 1 else bool(settings.projective)
        self.single_root = bool(settings.single_root if single_root is None else single_root)
        self.keep_heads = keep_heads
        self.confidence = confidence

    def graph(self, sentence: Sentence, encoded: Encoded | None = None) -> ScoredGraph:
        """The scored candidate arcs of a sentence."""
        scorer = self.model.scorer
        return scorer.graph(
            scorer.encode(sentence) if encoded is None else encoded,
            self.model.table,
            projective=self.projective,
            single_root=self.single_root,
            arcs=kept_arcs(sentence.heads) if self.keep_heads else None,
        )

    def parse(self, sentence: Sentence) -> Parse:
        """The best tree.  NoTreeError if the kept heads leave none."""
        ids, morph = self.model.vocabulary.encode(sentence)
        graph = self.graph(sentence, self.model.scorer.encode_ids(ids, morph))
        result = self.engine.best(graph)
        return self._complete(graph, ids, morph, result.heads, result.score)

    def k_best(self, sentence: Sentence, k: int) -> list[Parse]:
        """The k best trees, best first; the first is that of `parse`."""
        ids, morph = self.model.vocabulary.encode(sentence)
        graph = self.graph(sentence, self.model.scorer.encode_ids(ids, morph))
        results = self.engine.k_best(graph, k)
        return [self._complete(graph, ids, morph, r.heads, r.score) for r in results]

    def _complete(
        self,
        graph: ScoredGraph,
        ids: np.ndarray,
        morph: np.ndarray,
        heads: np.ndarray,
        score: float,
    ) -> Parse:
        labeller = self.model.labeller
        deprels = labeller.label(ids, morph, heads) if labeller else ["_"] * graph.n
        if not self.confidence:
            return Parse(heads, deprels, score)
        scale = self.model.scale
        expected = self.engine.expectations(replace(graph, scores=scale * graph.scores))
        arcs = graph.spread(expected.marginals)[heads[1:], np.arange(1, graph.n + 1)]
        labels = labeller.probabilities(ids, morph, heads).max(1) if labeller else None
        log_probability = min(0.0, scale * score - expected.log_z)
        return Parse(heads, deprels, score, log_probability, arcs, labels)


def kept_arcs(heads: np.ndarray) -> Arcs:
    """All arcs, but for a word with a head only the arc from it."""
    candidates, modifiers, _ = all_arcs(len(heads) - 1)
    given = heads[modifiers]
    keep = (given < 0) | (given == candidates)
    counts = np.bincount(modifiers[keep], minlength=len(heads))[1:]
    if not counts.all():
        word = int(np.argmin(counts)) + 1
        raise GraphError(f"word {word} cannot have head {heads[word]}")
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return candidates[keep], modifiers[keep], offsets


def in_order(
    work: Callable[[Sentence], Out], sentences: Iterable[Sentence], jobs: int
) -> Iterator[tuple[Sentence, Out]]:
    """Apply `work` to each sentence on `jobs` threads; results come in the order of the input.

    The input is read lazily: at most a few batches are held at any time.  An exception of `work`
    is raised at its sentence's turn.  Kernels release the GIL, so threads run side by side.
    """
    if jobs == 1:
        for sentence in sentences:
            yield sentence, work(sentence)
        return

    def run(batch: list[Sentence]) -> list[Out]:
        return [work(sentence) for sentence in batch]

    source = iter(sentences)
    pending: deque[tuple[list[Sentence], Future[list[Out]]]] = deque()
    with ThreadPoolExecutor(jobs) as pool:
        try:
            while True:
                while len(pending) <= 2 * jobs and (batch := list(islice(source, BATCH))):
                    pending.append((batch, pool.submit(run, batch)))
                if not pending:
                    return
                batch, future = pending.popleft()
                yield from zip(batch, future.result(), strict=True)
        finally:
            for _, future in pending:
                future.cancel()


BATCH = 32  # sentences handed to a thread at once
