"""Accuracy and time of a model's engines on gold trees: one row each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from parser.evaluation.rules import Rules
from parser.evaluation.scores import Reference, Scores
from parser.inference import Engine
from parser.model import BATCH, Model, Parser
from parser.treebank import Sentence


@dataclass(frozen=True)
class EngineRun:
    """Scores of one engine, and its wall time in seconds, split by what it was spent on."""

    engine: str
    scores: Scores
    encode: float
    prune: float
    score: float
    tree: float
    label: float
    words: int
    climbs: list[tuple[int, float]]  # moves and gain of each sentence, where the engine climbs

    @property
    def seconds(self) -> float:
        return self.encode + self.prune + self.score + self.tree + self.label

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
            "prune_us": self.prune * micro,
            "score_us": self.score * micro,
            "tree_us": self.tree * micro,
            "label_us": self.label * micro,
            "tokens/s": round(self.tokens_per_second),
        }

    def climbing(self) -> str | None:
        """What hill climbing did, in a line; None for other engines."""
        if not self.climbs:
            return None
        moves, gains = zip(*self.climbs, strict=True)
        return (
            f"{self.engine}: {sum(moves) / len(moves):.2f} moves a sentence, in "
            f"{sum(m > 0 for m in moves)} of {len(moves)}; score gained {sum(gains):.2f} in all"
        )


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

    Each stage goes over a batch of sentences, so that its time is that of one loop; with `repeat`
    the whole is run several times and the fastest of each stage counts.
    """
    parser = Parser(model, engine, single_root=single_root)
    best = [float("inf")] * 5
    for _ in range(repeat):
        spent = [0.0] * 5
        heads, labels, climbs = [], [], []
        for first in range(0, len(sentences), BATCH):
            batch = sentences[first : first + BATCH]
            times = [time.perf_counter()]
            columns = [model.vocabulary.encode(s) for s in batch]
            times.append(time.perf_counter())
            arcs = parser.candidates(batch, columns)
            times.append(time.perf_counter())
            graphs = parser.score(columns, arcs)
            times.append(time.perf_counter())
            results = [parser.engine.best(graph) for graph in graphs]
            times.append(time.perf_counter())
            trees = [result.heads for result in results]
            if model.labeller:
                labels += [names for names, _ in model.labeller.label(columns, trees)]
            times.append(time.perf_counter())
            heads += trees
            climbs += [(r.moves, r.gained) for r in results if r.moves is not None]
            took = [after - before for before, after in pairwise(times)]
            spent = [total + each for total, each in zip(spent, took, strict=True)]
        best = list(map(min, best, spent))
    scores = Reference(sentences, rules).score(heads, labels if model.labeller else None)
    return EngineRun(engine.name, scores, *best, words=sum(map(len, sentences)), climbs=climbs)
