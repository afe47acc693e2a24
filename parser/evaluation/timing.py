"""Accuracy and time of a model's engines on gold trees: one row each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from parser.evaluation.rules import Rules
from parser.evaluation.scores import Reference, Scores
from parser.inference import Engine
from parser.model import Model, Parser
from parser.treebank import Sentence


@dataclass(frozen=True)
class EngineRun:
    """Scores of one engine, and its wall time in seconds, split by what it was spent on."""

    engine: str
    scores: Scores
    encode: float
    score: float
    tree: float
    label: float
    words: int

    @property
    def seconds(self) -> float:
        return self.encode + self.score + self.tree + self.label

    @property
    def tokens_per_second(self) -> float:
        return self.words / self.seconds if self.seconds else 0.0

    def row(self) -> dict:
        """For `table` and for JSON.  Times are microseconds a sentence."""
        micro = 1e6 / max(1, self.scores.sentences)
        measured = self.scores.to_dict()
        return {
            "engine": self.engine,
            "UAS": measured["uas_all"],
            "LAS": measured.get("las_all"),
            "UAS_np": measured["uas_np"],
            "LAS_np": measured.get("las_np"),
            "complete": measured["complete_uas"],
            "encode_us": self.encode * micro,
            "score_us": self.score * micro,
            "tree_us": self.tree * micro,
            "label_us": self.label * micro,
            "tokens/s": round(self.tokens_per_second),
        }


def run_engine(
    model: Model,
    engine: Engine,
    sentences: Sequence[Sentence],
    rules: Rules,
    *,
    single_root: bool | None = None,
    repeat: int = 1,
) -> EngineRun:
    """Parse gold sentences stage by stage on one thread.  Reading and writing are not timed.

    Each stage goes over all sentences, so that its time is that of one loop; with `repeat` the
    stages are run several times and the fastest counts.
    """
    parser = Parser(model, engine, single_root=single_root)
    best: list[float] = []
    for _ in range(repeat):
        times = [time.perf_counter()]
        ids = [model.vocabulary.encode(s) for s in sentences]
        times.append(time.perf_counter())
        graphs = parser.graphs(sentences, ids)
        times.append(time.perf_counter())
        heads = [engine.best(graph).heads for graph in graphs]
        times.append(time.perf_counter())
        labels = None
        if model.labeller:
            labels = [labels for labels, _ in model.labeller.label(ids, heads)]
        times.append(time.perf_counter())
        spent = [after - before for before, after in pairwise(times)]
        best = spent if not best else list(map(min, best, spent))
    scores = Reference(sentences, rules).score(heads, labels)
    return EngineRun(engine.name, scores, *best, words=sum(map(len, sentences)))
