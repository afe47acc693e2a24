"""Riedel & Smith (2010), "Relaxed marginal inference and its application to dependency parsing".

A CRF with LINK, GRAND and SIB, trained by full belief propagation, and decoded over all candidate
arcs by full, relaxed and pruned belief propagation.  Departures from the paper: training is damped,
without which it diverges on our data; English is a tenth of the Penn Treebank and Dutch is split
otherwise; no Italian training trees are at hand, so that Italian is left out.

The paper does not say over which variables the error of a belief is averaged.  Three readings: over
all arcs of a sentence; over words, half the sum of the differences of its arcs; over the arcs of
the tree of full belief propagation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parser.evaluation import Rules, table
from parser.evaluation.timing import run_engine
from parser.graph import GRAND, LINK, SIB
from parser.inference import find_engine
from parser.learning import fingerprint
from parser.model import Model, Parser, Settings
from parser.reproduction.workshop import LANGUAGES as BANKS
from parser.reproduction.workshop import PASSES, Data, Workshop
from parser.treebank import Sentence

LANGUAGES = ("da", "nl", "en")
PROJECTIVE = frozenset({"en"})
BASE = Settings(
    factors=(LINK, GRAND, SIB),
    templates="smith-eisner",
    learner="crf",
    engine="bp:iterations=20,damping=0.3",
    rate=0.005,
    prune=False,
    labelled=False,
    epochs=4,
)
FULL = "BP"
FIRST_ORDER = "relaxed-bp:rounds=0"  # scores arcs only
ENGINES = {
    FULL: "bp:iterations=10",
    "Rel inf, 0.1, 50": "relaxed-bp:rounds=inf,eps=0.1,iterations=50",
    "Rel inf, 1e-4, 5": "relaxed-bp:rounds=inf,eps=1e-4,iterations=5",
    "Rel inf, 1e-4, 50": "relaxed-bp:rounds=inf,eps=1e-4,iterations=50",
    "Rel 1, 1e-4, 50": "relaxed-bp:rounds=1,eps=1e-4,iterations=50",
    "Rel 1, 1e-4, 10": "relaxed-bp:rounds=1,eps=1e-4,iterations=10",
    "Pruned 0.1": "pruned-bp:iterations=10,threshold=0.1",
    "Pruned 0.5": "pruned-bp:iterations=10,threshold=0.5",
}
TABLE_1 = {  # accuracy, seconds a sentence
    FULL: {"nl": (84.9, 0.665), "da": (88.1, 1.44), "en": (88.3, 2.43)},
    "Rel inf, 1e-4, 5": {"nl": (85.0, 0.120), "da": (88.1, 0.234), "en": (88.2, 0.575)},
    "Rel inf, 1e-4, 50": {"nl": (84.9, 0.121), "da": (88.2, 0.236), "en": (88.3, 0.728)},
    "Rel 1, 1e-4, 50": {"nl": (84.9, 0.060), "da": (88.2, 0.110), "en": (88.4, 0.352)},
}
TABLE_2 = {  # Danish: size in percent, error of beliefs
    FULL: (100.0, None),
    "Rel inf, 0.1, 50": (0.003, 0.20),
    "Rel inf, 1e-4, 50": (0.8, 0.012),
    "Rel 1, 1e-4, 50": (0.8, 0.015),
    "Pruned 0.1": (42.0, 0.022),
    "Pruned 0.5": (22.0, 0.098),
}
BINS = ((1, 10), (11, 20), (21, 30), (31, 40), (41, 1000))  # words
FIGURE = (FULL, "Pruned 0.1", "Rel inf, 1e-4, 50", "Rel 1, 1e-4, 50")


@dataclass(frozen=True)
class Scale:
    """How much of the experiment is run."""

    epochs: int | None = None  # None: as in BASE
    sentences: int | None = None  # of training; then 60 of test


class RiedelSmith2010:
    """The experiment over some treebanks."""

    def __init__(self, workshop: Workshop, data: Sequence[Data], scale: Scale) -> None:
        few = scale.sentences
        self.workshop = workshop
        self.data = [each if few is None else each.first(few, 60) for each in data]
        self.scale = scale

    def run(self) -> dict[str, Any]:
        """All that was measured, as JSON values; `tables` makes rows of it."""
        return {data.language: self.treebank(data) for data in self.data}

    def treebank(self, data: Data) -> dict[str, Any]:
        """By engine: times, sizes, accuracy and errors; and times by length."""
        settings = replace(
            BASE,
            projective=data.language in PROJECTIVE,
            epochs=self.scale.epochs or BASE.epochs,
        )
        model, key = self.workshop.model("link-grand-sib", settings, data)
        depends = key, fingerprint(data.test), PASSES
        name = f"{data.language}-{{}}".format
        exact = self.workshop.result(name("beliefs"), lambda: beliefs(model, data.test), *depends)
        out: dict[str, Any] = {}
        for title, text in ENGINES.items():
            slug = text.replace(":", "-").replace("=", "-").replace(",", "-")

            def compute(text: str = text) -> dict[str, Any]:
                found = measure(model, text, data.test)
                by_length = [
                    measure(model, text, few) if few else None for few in binned(data.test)
                ]
                return found | errors(model, text, data.test, exact) | {"by_length": by_length}

            out[title] = self.workshop.result(name(slug), compute, *depends, text)
        return out


def binned(sentences: Sequence[Sentence]) -> list[list[Sentence]]:
    """By length."""
    return [[s for s in sentences if low <= len(s) <= high] for low, high in BINS]


def measure(model: Model, text: str, sentences: Sequence[Sentence]) -> dict[str, Any]:
    """UAS, size in percent, and milliseconds a sentence after arc scores, by what they went into.

    Scoring of parts is what scoring takes beyond that of arcs, and what engines score themselves.
    """
    rules = Rules.named("conllx", allow_multiple_roots=True)
    arcs = run_engine(model, find_engine(FIRST_ORDER), sentences, rules, repeat=PASSES)
    run = run_engine(model, find_engine(text), sentences, rules, repeat=PASSES)
    milli = 1e3 / len(sentences)
    spent: dict[str, float] = {}
    for result in run.results:
        for part, seconds in result.seconds.items():
            spent[part] = spent.get(part, 0.0) + milli * seconds
    eager = milli * max(0.0, run.score - arcs.score)
    total = eager + milli * run.tree
    tree, scoring = spent.pop("tree", 0.0), spent.pop("scoring", 0.0)
    separation, decoding = spent.pop("separation", 0.0), spent.pop("decode", 0.0)
    set_up = spent.pop("set up", 0.0) + spent.pop("bounds", 0.0)
    messages = sum(spent.values())
    sizes = [1.0 if r.relaxation is None else r.relaxation.size for r in run.results]
    return {
        "uas": run.scores.to_dict()["uas_all"],
        "uas_np": run.scores.to_dict()["uas_np"],
        "size": 100 * float(np.mean(sizes)),
        "ms": total,
        "whole": milli * run.seconds,
        "arc_scores": milli * arcs.score,
        "parts": {
            "scoring": eager + scoring,
            "tree": tree,
            "pairs": messages,
            "separation": separation,
            "decoding and set up": total - eager - scoring - tree - messages - separation,
        },
        "known": decoding + set_up,
        "sentences": len(sentences),
        "words": sum(map(len, sentences)),
    }


def beliefs(
    model: Model, sentences: Sequence[Sentence], text: str = ENGINES[FULL]
) -> list[list[float]]:
    """Of the arcs of each sentence."""
    parser = Parser(model, find_engine(text))
    graphs = (parser.graphs([sentence])[0] for sentence in sentences)
    return [parser.engine.expectations(graph).marginals.tolist() for graph in graphs]


def errors(
    model: Model, text: str, sentences: Sequence[Sentence], exact: Sequence[Sequence[float]]
) -> dict[str, float]:
    """Of beliefs against those of full belief propagation: means over sentences, three readings."""
    parser = Parser(model, find_engine(ENGINES[FULL]))
    found = beliefs(model, sentences, text)
    rows = []
    for sentence, ours, theirs in zip(sentences, found, exact, strict=True):
        graph = parser.graphs([sentence])[0]
        off = np.abs(np.array(ours) - np.array(theirs))
        likely = np.array(theirs)
        best = [  # the likeliest arc into each word
            first + int(likely[first:last].argmax())
            for first, last in zip(graph.arcs.offsets, graph.arcs.offsets[1:], strict=False)
        ]
        rows.append((off.mean(), off.sum() / 2 / len(sentence), off[best].mean()))
    every, words, tree = np.mean(rows, axis=0).tolist()
    return {"error_arcs": every, "error_words": words, "error_tree": tree}


def tables(results: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Rows of Table 1, Table 2, where the time goes, and Figure 1."""
    first, second, split, figure = [], [], [], []
    for language, engines in results.items():
        title, full = BANKS[language].title, engines[FULL]
        for name, own in engines.items():
            published, seconds = TABLE_1.get(name, {}).get(language, (None, None))
            known = TABLE_1[FULL].get(language, (None, None))[1]
            first.append(
                {
                    "treebank": title,
                    "inference": name,
                    "published acc": published,
                    "UAS": own["uas"],
                    "UAS np": own["uas_np"],
                    "published s": seconds,
                    "ms after arcs": own["ms"],
                    "published speed-up": known / seconds if known and seconds else None,
                    "speed-up": full["ms"] / own["ms"],
                    "end to end": full["whole"] / own["whole"],
                }
            )
            size, error = TABLE_2.get(name, (None, None)) if language == "da" else (None, None)
            second.append(
                {
                    "treebank": title,
                    "inference": name,
                    "published size %": size,
                    "size %": own["size"],
                    "ms after arcs": own["ms"],
                    "published error": error,
                    "error, arcs": own["error_arcs"],
                    "error, words": own["error_words"],
                    "error, tree": own["error_tree"],
                    "UAS": own["uas"],
                }
            )
            parts = {f"{part} ms": value for part, value in own["parts"].items()}
            split.append(
                {"treebank": title, "inference": name, "arc scores ms": own["arc_scores"], **parts}
            )
        for number, (low, high) in enumerate(BINS):
            if full["by_length"][number] is None:
                continue
            row: dict[str, Any] = {"treebank": title, "words": f"{low}-{high}"}
            row["sentences"] = full["by_length"][number]["sentences"]
            row |= {name: engines[name]["by_length"][number]["ms"] for name in FIGURE}
            row["BP / Rel 1"] = row[FULL] / row[FIGURE[-1]]
            figure.append(row)
    return {"table_1": first, "table_2": second, "split": split, "figure_1": figure}


TITLES = {
    "table_1": "Table 1: UAS over all words, and milliseconds a sentence after arc scores (scoring "
    "of parts, messages, separation, decoding); speed-up over full BP, on that and end to end",
    "table_2": "Table 2: share of the parts that are factors, and error of beliefs against full BP "
    "by three readings: all arcs, words (total variation), arcs of the likeliest heads",
    "split": "Where the time goes, milliseconds a sentence",
    "figure_1": "Figure 1: milliseconds a sentence after arc scores, by length",
}

SMALL = frozenset({"error", "error,", "size"})  # words of columns with three digits that count


def report(results: dict[str, Any]) -> Iterator[str]:
    """The tables as text."""
    for name, rows in tables(results).items():
        small = [
            {
                key: f"{value:.3g}" if value is not None and SMALL & set(key.split()) else value
                for key, value in row.items()
            }
            for row in rows
        ]
        yield f"{TITLES[name]}\n{table(small)}"


def plot(path: Any, results: dict[str, Any]) -> None:
    """Figure 1 of the first treebank as an image."""
    from matplotlib.figure import Figure

    engines = next(iter(results.values()))
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name in FIGURE:
        points = [each for each in engines[name]["by_length"] if each]
        lengths = [each["words"] / each["sentences"] for each in points]
        axes.loglog(lengths, [each["ms"] for each in points], marker="o", label=name)
    axes.set_xlabel("words")
    axes.set_ylabel("milliseconds after arc scores")
    axes.legend()
    figure.savefig(path)
