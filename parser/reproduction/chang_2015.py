"""Chang, Upadhyay, Kundu & Roth (2015), "Structural Learning with Amortized Inference".

The paper learns entities and relations, and labels of scenes; its figures are beside those of
parsing, where the same is done, and are of other tasks: what can be compared is shares.  Rows that
the paper calls AI-SP (strict) and AI-DCD (perceptron) have each other's name there.

Ours: training sentences of 5 to 25 words, the loss in wrong heads, C = 0.1 and delta = 0.1 as in
the paper, inference over all sentences under fixed weights and then coordinate descent, of which
the paper leaves the inner stop open.  A share is of the calls of the run without a cache, so that a
run that needs more passes pays for them.  What is called exact has stronger tests than the paper's
(`parser.inference.Amortized`); lazy training takes any violated tree that it finds, and calls the
engine for what no bound rules out (`parser.learning.ssvm`).  Rows with an epsilon have the paper's
condition, until few trees are added, and end lazy, where the paper's stop with what they have.
Near is a test of ours for the same epsilon: what the paper's condition asks of each score, which
none of the first passes keeps to, it asks of their sum, and its answers are within Theorem 1.
The gap of lazy passes is bounded by spanning trees or a short dual ascent, in every fifth pass: no
calls, as no tree comes from it; its time counts.

Spanning trees cost less than any cache, so that what calls are worth is measured with engines that
take milliseconds, too: integer programs, and relaxations of second-order models, on few sentences.
Times are of the processor, so that other work on the machine does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from parser.evaluation import table
from parser.graph import CHILDSEQ, GRAND, LINK, ScoredGraph
from parser.inference import Amortized, Cache, Engine, Result, exact_engine
from parser.inference.amortized import NEAR, SEED, Recalled
from parser.learning import Epoch, Trainer, fingerprint
from parser.learning.cross_validation import assign
from parser.model import Parser, Settings
from parser.reproduction import workshop as workshops
from parser.reproduction.workshop import Data, Workshop, attachments
from parser.treebank import Sentence

LANGUAGES = ("da", "nl", "en", "lines", "pt", "tr", "la")
LENGTHS = 5, 25  # words of a training sentence
BASE = Settings(
    factors=(LINK,),
    projective=False,
    single_root=True,
    labelled=False,
    bits=18,
    keep_rows=1.0,
    learner="ssvm",
    svm_c=0.1,
    delta=0.1,
    interleave=False,
    inner_passes=10,
    epochs=300,
)
RAW = "no cache"
SVM, STRICT, PERCEPTRON = "SVM", "SVM, strict", "perceptron"
EXACT: dict[str, Any] = {"amortize": "exact"}
LAZY: dict[str, Any] = {"amortize": "lazy"}
ADAPTIVE: dict[str, Any] = {"amortize": "adaptive"}


def seed(epsilon: float, tau: int = 0) -> dict[str, Any]:
    """Condition (4)."""
    return {"amortize": "seed", "epsilon": epsilon, "tau": tau}


NEAR_1: dict[str, Any] = {"amortize": "near", "epsilon": 1.0}


METHODS: dict[str, dict[str, dict[str, Any]]] = {  # by learner, the changes of each row
    SVM: {
        RAW: {},
        "epsilon 0": seed(0.0),
        "adaptive": ADAPTIVE,
        "epsilon 0.1": seed(0.1),
        "epsilon 1": seed(1.0),
        "epsilon 10": seed(10.0),
        "epsilon 1, tau 5": seed(1.0, 5),
        "epsilon 1, tau 20": seed(1.0, 20),
        "epsilon 1, near": NEAR_1,
        "exact": EXACT,
        "margin": {"amortize": "margin"},
        "lazy": LAZY,
    },
    STRICT: {
        RAW: {},
        "epsilon 1": seed(1.0),
        "epsilon 1, near": NEAR_1,
        "exact": EXACT,
        "lazy": LAZY,
    },
    PERCEPTRON: {RAW: {}, "epsilon 1": seed(1.0), "exact": EXACT},
}
LEARNERS: dict[str, dict[str, Any]] = {
    SVM: {},
    STRICT: {"delta": 0.01},
    PERCEPTRON: {"learner": "perceptron"},
}
PERCEPTRON_PASSES = 100
SECOND_ORDER = {"factors": (LINK, CHILDSEQ, GRAND), "prune": True}
ILP = "ilp:formulation=single-commodity"  # of the formulations the quickest here
WORDS = 8  # of a sentence for second-order integer programs, at most: longer ones take seconds


@dataclass(frozen=True)
class Costly:
    """A model and an engine that takes longer than MST.  `size` names a field of `Scale`."""

    changes: dict[str, Any]
    size: str = "second"
    words: int = LENGTHS[1]


COSTLY = {
    "first order, ILP": Costly({"engine": ILP}, "programs"),
    "second order, ILP": Costly({**SECOND_ORDER, "engine": ILP}, "programs", WORDS),
    "second order, AD3": Costly({**SECOND_ORDER, "engine": "ad3:exact=yes"}, "programs"),
    "second order, dual decomposition": Costly(
        {**SECOND_ORDER, "engine": "dual-decomposition:nodes=10000"}
    ),
}
EXPENSIVE = {RAW: {}, "exact": EXACT, "lazy": LAZY}
CURVES = ("exact", "epsilon 1", "lazy")  # of Figure 1
GRID = (0.01, 0.1, 1.0)  # C
FOLDED = {
    RAW: {},
    "epsilon 1": seed(1.0),
    "adaptive": ADAPTIVE,
    "exact": EXACT,
    "lazy": LAZY,
}

PAPER = "entities and relations"
TABLE_1 = {  # calls %, inference s, speed-up, -D, entity F1, relation F1
    (SVM, RAW): (100.0, 293.0, 1.0, 895.31, 87.69, 47.55),
    (SVM, "epsilon 0"): (77.0, 274.0, 1.1, 895.31, 87.69, 47.55),
    (SVM, "adaptive"): (24.0, 162.0, 1.8, 895.19, 87.66, 47.70),
    (SVM, "epsilon 0.1"): (54.0, 213.0, 1.4, 895.31, 87.69, 47.55),
    (SVM, "epsilon 1"): (29.0, 115.0, 2.5, 894.73, 87.66, 48.01),
    (SVM, "epsilon 10"): (10.0, 60.0, 4.8, 874.08, 87.34, 47.83),
    (STRICT, RAW): (100.0, 1663.0, 1.0, 897.51, 87.76, 47.40),
    (STRICT, "epsilon 1"): (5.0, 246.0, 6.8, 897.50, 87.76, 47.45),
    (PERCEPTRON, RAW): (100.0, 705.0, 1.0, None, 89.09, 37.44),
    (PERCEPTRON, "epsilon 1"): (36.0, 319.0, 2.2, None, 89.02, 39.05),
}
MILLION_CALLS = {  # of 25 runs, caches reset and forwarded
    RAW: (18.9, None),
    "epsilon 1": (4.4, 3.3),
    "adaptive": (12.5, 7.0),
}


@dataclass(frozen=True)
class Scale:
    """How much of the experiment is run: training sentences, and passes at most.

    `second`, `programs` and `folded` are the sentences of second-order models with a quick engine,
    of models with a slow one, and of the cross-validation.  By default the time of all is about
    half an hour of one core.
    """

    passes: int = 300
    sentences: int = 150
    second: int = 60
    programs: int = 20
    folded: int = 60
    folds: int = 5
    test: int | None = None
    bits: int = 18  # of the feature table

    def at_most(self, sentences: int | None, passes: int | None) -> Scale:
        """With so many sentences, the other parts' no more than that, and passes."""
        most = sentences or self.sentences
        parts = {key: min(getattr(self, key), most) for key in ("second", "programs", "folded")}
        return replace(self, sentences=most, passes=passes or self.passes, **parts)


@dataclass(frozen=True)
class Run:
    """What came of one training.

    Attributes
    ----------
    problems, calls, new : list of int
        In each pass: queries, calls of the engine, and those that gave a tree new to the sentence.
    checking, solving, seconds : float
        CPU time of what amortization adds, of the engine, and of all passes.
    dual, gap : float or None
        -D, and that to the primal relative to it.
    worst, mean : float or None
        Ratios of the answers by epsilon to the optimum.
    """

    problems: list[int]
    calls: list[int]
    new: list[int]
    checking: float
    solving: float
    seconds: float
    converged: bool
    dual: float | None
    gap: float | None
    uas: float
    worst: float | None
    mean: float | None

    @property
    def inference(self) -> float:
        """CPU seconds."""
        return self.checking + self.solving


class Compared(Amortized):
    """Counts as `Amortized` does; with `ratios`, answers by epsilon are compared with the best.

    The time of that is kept apart.
    """

    def __init__(self, engine: Engine, settings: Settings, cache: Cache, ratios: bool) -> None:
        super().__init__(
            engine,
            "exact" if settings.amortize in ("lazy", "adaptive") else settings.amortize or "none",
            epsilon=settings.epsilon,
            tau=settings.tau,
            cache=cache,
        )
        self.ratios: list[float] | None = [] if ratios else None
        self.comparing = 0.0

    def solve(self, graph: ScoredGraph, key: Hashable = None, **question: Any) -> Result:
        result = super().solve(graph, key, **question)
        nearly = isinstance(result, Recalled) and result.condition in (SEED, NEAR)
        if nearly and not result.certificate.optimal and self.ratios is not None:
            start = time.thread_time()
            best = self.engine.best(graph).score
            if best > 0:
                self.ratios.append(float(result.score / best))
            self.comparing += time.thread_time() - start
        return result


def train(
    settings: Settings,
    sentences: Sequence[Sentence],
    test: Sequence[Sentence],
    *,
    cache: Cache | None = None,
    ratios: bool = False,
    workshop: Workshop,
) -> Run:
    """Train to the stop, and parse the test sentences by the last weights.

    Without `amortize` the engine is asked each time, and a cache only counts.
    """
    times = []  # of the process, from the first pass on

    def progress(items: Iterable[Any], name: str) -> Iterable[Any]:
        if name == "epoch 1":
            times.append(time.process_time())
        return workshop.progress(items, name)

    trainer = Trainer(settings, sentences, jobs=workshop.jobs, progress=progress)
    learner = trainer.learner
    cache = Cache(int(settings.amortize_memory * 2**30)) if cache is None else cache
    engine = learner.amortized = Compared(learner.engine, trainer.settings, cache, ratios)
    totals = [(0, 0, 0)]

    def note(epoch: Epoch) -> None:
        s = engine.statistics
        totals.append((s.queries, s.solved, s.new))
        times.append(time.process_time())

    model = trainer.run(note)
    problems, calls, new = np.diff(totals, axis=0).T.tolist()
    last, s = trainer.history[-1].measures, engine.statistics
    checking = s.checking if settings.amortize else 0.0
    unused = engine.comparing + s.checking - checking
    # By the cheapest engine: integer programs would take longer than training with them.
    quick = exact_engine(projective=bool(settings.projective), families=settings.factors)
    parses = [parse.heads for parse in Parser(model, quick).parse_all(test)]
    right, scored, *_ = attachments(parses, test)
    return Run(
        problems,
        calls,
        new,
        checking,
        s.solving,
        times[-1] - times[0] - unused,
        learner.converged,
        last.get("dual"),
        last.get("gap"),
        100 * sum(right) / max(1, sum(scored)),
        min(engine.ratios) if engine.ratios else None,
        float(np.mean(engine.ratios)) if engine.ratios else None,
    )


class Chang2015:
    """The experiment over some treebanks.

    Parameters
    ----------
    workshop : Workshop
    data : list of Data, one for each treebank
    scale : Scale
    """

    def __init__(self, workshop: Workshop, data: Sequence[Data], scale: Scale) -> None:
        low, high = LENGTHS
        self.workshop = workshop
        self.data = [
            replace(
                each,
                train=[s for s in each.train if low <= len(s) <= high],
                test=each.test[: scale.test],
            )
            for each in data
        ]
        self.scale = scale

    def run(self) -> dict[str, Any]:
        """All that was measured, as JSON values; `tables` makes rows of it."""
        return {
            "scale": asdict(self.scale),
            "languages": {data.language: self.treebank(data) for data in self.data},
        }

    def treebank(self, data: Data) -> dict[str, Any]:
        """By part of the experiment."""
        scale = self.scale
        first = {
            learner: {
                name: self.trained(
                    data,
                    f"{learner}-{name}",
                    self.settings(**LEARNERS[learner], **changes),
                    scale.sentences,
                    ratios=True,
                )
                for name, changes in methods.items()
            }
            for learner, methods in METHODS.items()
        }
        costly = {
            title: {
                name: self.trained(
                    replace(data, train=[s for s in data.train if len(s) <= each.words]),
                    f"{title}-{name}",
                    self.settings(**each.changes, **changes),
                    getattr(scale, each.size),
                )
                for name, changes in EXPENSIVE.items()
            }
            for title, each in COSTLY.items()
        }
        return {
            "sentences": min(scale.sentences, len(data.train)),
            "first": first,
            "costly": costly,
            "folded": self.folded(data),
        }

    def settings(self, **changes: Any) -> Settings:
        settings = replace(BASE, epochs=self.scale.passes, bits=self.scale.bits, **changes)
        if settings.learner == "perceptron":
            return replace(settings, epochs=min(settings.epochs, PERCEPTRON_PASSES))
        return settings

    def trained(
        self, data: Data, name: str, settings: Settings, sentences: int, ratios: bool = False
    ) -> dict[str, Any]:
        train_ = data.train[:sentences]

        def compute() -> dict[str, Any]:
            run = train(settings, train_, data.test, ratios=ratios, workshop=self.workshop)
            return asdict(run)

        return self.result(data, name, compute, settings.to_dict(), fingerprint(train_))

    def result(self, data: Data, name: str, compute: Callable[[], Any], *depends: Any) -> Any:
        name = f"{data.language}-{name}".replace(" ", "-").replace(",", "")
        return self.workshop.result(name, compute, fingerprint(data.test), *depends)

    def folded(self, data: Data) -> dict[str, Any]:
        """Calls, problems and seconds of all folds and values of C, by method and policy."""
        sentences = data.train[: self.scale.folded]
        folds = self.scale.folds
        fold_of = assign(len(sentences), folds, seed=0)
        parts = [
            tuple(
                [s for s, f in zip(sentences, fold_of.tolist(), strict=True) if (f == fold) == held]
                for held in (False, True)
            )
            for fold in range(folds)
        ]

        def validate(changes: dict[str, Any], forward: bool) -> dict[str, Any]:
            runs = []
            for rest, held_out in parts:
                cache = Cache()
                for c in GRID:
                    settings = self.settings(**changes | {"svm_c": c})
                    cache = cache if forward else Cache()
                    runs.append(
                        train(settings, rest, held_out, cache=cache, workshop=self.workshop)
                    )
            return {
                "calls": sum(sum(run.calls) for run in runs),
                "problems": sum(sum(run.problems) for run in runs),
                "inference": sum(run.inference for run in runs),
                "seconds": sum(run.seconds for run in runs),
                "uas": {
                    str(c): float(np.mean([run.uas for run in runs[at :: len(GRID)]]))
                    for at, c in enumerate(GRID)
                },
            }

        out: dict[str, Any] = {}
        for name, changes in FOLDED.items():
            out[name] = {}
            for policy in ("reset", "forward") if changes else ("reset",):
                settings = self.settings(**changes).to_dict()
                out[name][policy] = self.result(
                    data,
                    f"folds-{name}-{policy}",
                    partial(validate, changes, policy == "forward"),
                    settings,
                    fingerprint(sentences),
                    folds,
                    GRID,
                )
        return out


# ---- the report --------------------------------------------------------------------------------


def tables(results: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Rows of each table: published figures and ours."""
    return {name: list(rows(results)) for name, (rows, _) in REPORT.items()}


def report(results: dict[str, Any]) -> Iterator[str]:
    """The tables as text blocks, and what they say about time."""
    rows = tables(results)
    for name, (_, title) in REPORT.items():
        yield f"{title.format(**results['scale'])}\n{table(rows[name])}"
    for language, own in results["languages"].items():
        yield "\n".join(notes(workshops.LANGUAGES[language].title, own))


def runs(own: dict[str, Any]) -> Iterator[tuple[str, str, Run, Run]]:
    """Learner or engine, method, run, and the one without a cache."""
    for group, methods in own.items():
        for name, run in methods.items():
            yield group, name, Run(**run), Run(**methods[RAW])


def rows_of_table_1(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Published rows first."""
    measured = ("own_%", "passes", "gap_%", "worst_ratio", "mean_ratio")
    for (learner, name), (calls, inference, speedup, dual, *scores) in TABLE_1.items():
        row: dict[str, Any] = {"task": PAPER, "learner": learner, "cache": name, "calls_%": calls}
        row |= {"oracle_%": None, "inference_s": inference, "speed-up": speedup, "-D": dual}
        row["score"] = " / ".join(f"{score:.2f}" for score in scores)
        yield row | dict.fromkeys(measured)
    for language, own in results["languages"].items():
        for learner, name, run, raw in runs(own["first"]):
            yield {
                "task": f"{workshops.LANGUAGES[language].title} parsing",
                "learner": learner,
                "cache": name,
                "calls_%": percent(run.calls, raw.calls),
                "oracle_%": percent(run.new, raw.calls),
                "inference_s": run.inference,
                "speed-up": raw.inference / run.inference,
                "-D": run.dual,
                "score": f"{run.uas:.2f}",
                "own_%": percent(run.calls, run.problems),
                "passes": f"{len(run.calls)}{'' if run.converged or run.dual is None else '+'}",
                "gap_%": None if run.gap is None else 100 * run.gap,
                "worst_ratio": run.worst,
                "mean_ratio": run.mean,
            }


def rows_of_costly_engines(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for language, own in results["languages"].items():
        for title, name, run, raw in runs(own["costly"]):
            yield {
                "treebank": workshops.LANGUAGES[language].title,
                "engine": title,
                "cache": name,
                "sentences": run.problems[0],
                "passes": len(run.calls),
                "calls_%": percent(run.calls, raw.calls),
                "oracle_%": percent(run.new, raw.calls),
                "ms_a_call": 1e3 * run.solving / max(1, sum(run.calls)),
                "inference_s": run.inference,
                "speed-up": raw.inference / run.inference,
                "training_s": run.seconds,
                "training_speed-up": raw.seconds / run.seconds,
                "-D": run.dual,
                "UAS": run.uas,
            }


def rows_of_figure_1(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Of passes 1, 2, 3, 5, 10, 20, ... and the last of each run."""
    for language in results["languages"]:
        lines = curves(results, language)
        last = {len(line) for line in lines.values()}
        some = {1, 2, 3, 5, 10, 20, 30, 50, 75, 100, 150, 200, 250, 300}
        for at in sorted(last | {each for each in some if each <= max(last)}):
            row = {"treebank": workshops.LANGUAGES[language].title, "pass": at}
            yield row | {
                name: line[at - 1] if at <= len(line) else None for name, line in lines.items()
            }


def curves(results: dict[str, Any], language: str) -> dict[str, list[int]]:
    """Calls by pass: without a cache, of an oracle, with a cache."""
    methods = results["languages"][language]["first"][SVM]
    lines = {RAW: methods[RAW]["calls"], "oracle": methods[RAW]["new"]}
    return lines | {name: methods[name]["calls"] for name in CURVES}


def rows_of_folds(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Published rows first, in millions."""
    for name, (reset, forward) in MILLION_CALLS.items():
        for policy, calls in (("reset", reset), ("forward", forward)):
            if calls is not None:
                row: dict[str, Any] = {"task": PAPER, "cache": name, "policy": policy}
                row |= {"calls": f"{calls} M", "calls_%": 100 * calls / MILLION_CALLS[RAW][0]}
                yield row | dict.fromkeys(("own_%", "inference_s", "training_s", "best_C", "UAS"))
    for language, own in results["languages"].items():
        for name, policies in own["folded"].items():
            for policy, each in policies.items():
                best = max(each["uas"], key=each["uas"].__getitem__)
                yield {
                    "task": f"{workshops.LANGUAGES[language].title} parsing",
                    "cache": name,
                    "policy": policy,
                    "calls": str(each["calls"]),
                    "calls_%": 100 * each["calls"] / own["folded"][RAW]["reset"]["calls"],
                    "own_%": 100 * each["calls"] / each["problems"],
                    "inference_s": each["inference"],
                    "training_s": each["seconds"],
                    "best_C": best,
                    "UAS": each["uas"][best],
                }


REPORT: dict[str, tuple[Callable[[dict[str, Any]], Iterator[dict[str, Any]]], str]] = {
    "table_1": (
        rows_of_table_1,
        "Table 1: calls of the engine, percent of those without a cache, and of the run's own "
        "problems; oracle: calls whose tree the sentence had not had before, percent of the same; "
        "score: F1 of entities / relations, UAS without punctuation; ratio: of approximate answers "
        "to the best, by loss-augmented score; +: stopped at {passes} passes; times are of the "
        "processor.  First order, MST",
    ),
    "costly_engines": (
        rows_of_costly_engines,
        "Engines that cost more: integer programs as published (single-commodity flow, HiGHS), of "
        f"second order for sentences of up to {WORDS} words; second order is link, childseq, grand "
        "over pruned graphs; training: all passes, without the pruner's",
    ),
    "figure_1": (
        rows_of_figure_1,
        "Figure 1: calls of the engine by pass; oracle: only for trees that the sentence had not "
        "had before, of the run without a cache",
    ),
    "cross_validation": (
        rows_of_folds,
        "Cross-validation: {folds} folds of {folded} sentences, C of "
        f"{', '.join(map(str, GRID))}; caches forwarded from one C to the next of a fold, or reset",
    ),
}


def notes(title: str, own: dict[str, Any]) -> Iterator[str]:
    """What a cache does to time, by engine; and what no cache can do."""
    for part, methods in (
        ("first order, MST", own["first"][SVM]),
        *own["costly"].items(),
    ):
        raw = Run(**methods[RAW])
        yield (
            f"{title}, {part}: {1e3 * raw.solving / sum(raw.calls):.2f} ms a call; "
            f"inference is {100 * raw.inference / raw.seconds:.0f} % of training without a cache."
        )
        for name in ("exact", "lazy"):
            run = Run(**methods[name])
            saved = raw.seconds - run.seconds
            yield (
                f"  {name}: {1e3 * run.checking / sum(run.problems):.2f} ms of checking a problem "
                f"{'save' if raw.inference > run.inference else 'cost'} "
                f"{abs(raw.inference - run.inference):.1f} s of inference; training takes "
                f"{abs(saved):.1f} s {'less' if saved > 0 else 'more'}, "
                f"{raw.seconds / run.seconds:.2f} times as fast."
            )
    raw = Run(**own["first"][SVM][RAW])
    yield (
        f"{title}, first order: {percent(raw.new, raw.calls):.0f} % of the calls give a tree that "
        "the sentence had not had before; no exact cache can call less along the same path."
    )


def percent(some: Sequence[int], all_: Sequence[int]) -> float:
    return 100 * sum(some) / sum(all_)


def plot(path: Path, results: dict[str, Any]) -> None:
    """Figure 1 as an image.  Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    languages = list(results["languages"])
    figure, axes = pyplot.subplots(
        1, len(languages), figsize=(6 * len(languages), 4), squeeze=False
    )
    styles = ("k-", "b:", "r--", "m-.", "g-")
    for axis, language in zip(axes[0], languages, strict=True):
        for style, (name, line) in zip(styles, curves(results, language).items(), strict=True):
            axis.plot(range(1, len(line) + 1), line, style, label=name)
        axis.set_title(workshops.LANGUAGES[language].title)
        axis.set_xlabel("pass")
        axis.set_ylabel("calls of the engine")
        axis.legend(fontsize="small")
    figure.savefig(path, bbox_inches="tight")
