"""Accuracy and time of a model's engines on gold trees: one row each."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from parser.evaluation.rules import Rules
from parser.evaluation.scores import Reference, Scores
from parser.inference import Engine, Result
from parser.model import BATCH, Model, Parser
from parser.treebank import Sentence

TREE = 3  # stage


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
    results: list[Result]  # of the run with the fastest trees
    rescued: int = 0  # arcs that the pruner kept only so that there is a tree

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

    def details(self) -> Iterator[str]:
        """What the pruner, or an engine that goes step by step, did, a line each."""
        if self.rescued:
            yield f"{self.engine}: {self.rescued} arcs kept only so that there is a tree"
        moves = [r.moves for r in self.results if r.moves is not None]
        if moves:
            gained = sum(r.gained or 0.0 for r in self.results)
            yield (
                f"{self.engine}: {sum(moves) / len(moves):.2f} moves a sentence, in "
                f"{sum(m > 0 for m in moves)} of {len(moves)}; score gained {gained:.2f} in all"
            )
        proofs = [r.certificate for r in self.results if r.resolved is not None and r.certificate]
        if proofs:
            gaps = [c.gap for c in proofs if not c.optimal]
            resolved = [r.resolved for r in self.results if r.resolved is not None]
            shares = [float(each.mean()) for each in resolved if len(each)]
            iterations = [r.iterations for r in self.results]
            yield (
                f"{self.engine}: {100 * (1 - len(gaps) / len(proofs)):.2f} % of the trees proved "
                f"best, mean gap of the others {sum(gaps) / max(1, len(gaps)):.3g}; "
                f"{sum(iterations) / len(iterations):.1f} iterations a sentence, median "
                f"{median(iterations):.0f}"
            )
        if proofs and shares:
            yield (
                f"{self.engine}: subgradients for {len(shares)} sentences; in each of their "
                f"iterations {100 * sum(shares) / len(shares):.0f} % of the subproblems solved anew"
            )
        relaxed = [r.relaxation for r in self.results if r.relaxation is not None]
        if relaxed:
            size = 100 * sum(r.size for r in relaxed) / len(relaxed)
            rounds = sum(r.rounds for r in relaxed) / len(relaxed)
            scored = 100 * sum(r.scored for r in relaxed) / max(1, sum(r.total for r in relaxed))
            yield (
                f"{self.engine}: {size:.2f} % of the second-order parts of a sentence became "
                f"factors, in {rounds:.1f} rounds; {scored:.2f} % of all parts were scored"
            )
        changes = [r.change for r in self.results if r.change is not None]
        if changes:
            count = len(self.results)
            iterations = sum(r.iterations for r in self.results) / count
            converged = 100 * sum(r.converged for r in self.results) / count
            yield (
                f"{self.engine}: {iterations:.1f} iterations a sentence, {converged:.1f} % "
                f"converged; largest last change of a belief {max(changes):.2g}"
            )
            spent: dict[str, float] = {}
            for result in self.results:
                for name, seconds in result.seconds.items():
                    spent[name] = spent.get(name, 0.0) + seconds
            shares = [f"{name} {1e6 * t / count:.0f}" for name, t in spent.items() if t]
            if "decode" not in spent:
                rest = self.tree - sum(spent.values())
                shares.append(f"set up and decode {1e6 * rest / count:.0f}")
            yield f"{self.engine}: microseconds a sentence: {', '.join(shares)}"


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
    the whole is run several times and the fastest of each stage counts.  As in `parser parse`, what
    was there before is not looked through for garbage.
    """
    parser = Parser(model, engine, single_root=single_root)
    gc.freeze()
    best = [float("inf")] * 5
    kept: list[Result] = []
    for _ in range(repeat):
        spent = [0.0] * 5
        heads, labels, found, saved = [], [], [], 0
        for first in range(0, len(sentences), BATCH):
            batch = sentences[first : first + BATCH]
            times = [time.perf_counter()]
            columns = [model.vocabulary.encode(s) for s in batch]
            times.append(time.perf_counter())
            arcs, rescued = parser.candidates(batch, columns)
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
            found += results
            saved += sum(rescued)
            took = [after - before for before, after in pairwise(times)]
            spent = [total + each for total, each in zip(spent, took, strict=True)]
        if spent[TREE] < best[TREE]:
            kept = found
        best = list(map(min, best, spent))
    gc.unfreeze()
    scores = Reference(sentences, rules).score(heads, labels if model.labeller else None)
    words = sum(map(len, sentences))
    return EngineRun(engine.name, scores, *best, words=words, results=kept, rescued=saved)
