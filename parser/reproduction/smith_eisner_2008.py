"""Smith & Eisner (2008), "Dependency parsing by belief propagation": Tables 2, 3, Figures 2 to 4.

Published figures are percent of words with the right head.  Ours are by the CoNLL-X rules, without
punctuation; models are CRFs of scores as they are, without labels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from parser.evaluation import permutation_test, table
from parser.graph import CHILDSEQ, GRAND, LINK, NOCROSS, ScoredGraph
from parser.inference import (
    HILL_CLIMBING,
    BeliefPropagation,
    Engine,
    MinimumBayesRisk,
    Result,
    find_engine,
)
from parser.inference.second_order import GRANDPARENT, GRANDSIBLING
from parser.model import Model, Parser, Settings
from parser.reproduction.workshop import Data, Decoded, Workshop, decode
from parser.treebank import Sentence, projective

BASE = Settings(
    templates="smith-eisner",
    learner="crf",
    rate=0.02,
    projective=False,
    single_root=False,
    labelled=False,
    epochs=10,
)
BP = "bp:iterations=5,tolerance=0"
MODELS = {
    "link": replace(BASE, factors=(LINK,)),
    "nocross": replace(BASE, factors=(LINK, NOCROSS), engine=BP),
    "grand": replace(BASE, factors=(LINK, NOCROSS, GRAND), engine=BP),
    "childseq": replace(BASE, factors=(LINK, NOCROSS, GRAND, CHILDSEQ), engine=BP),
}
# Constraints that are trained with, too, and the damping without which that diverges: all heads of
# a word veto each other at once, and after five iterations none is left.
WEAKER = {"not2": 0.5, "atmost1": 0.0, "exactly1": 0.0, "exactly1+no2cycle": 0.0}
EXACT = {  # of Figures 2 to 4: projective, over all arcs
    GRAND: (GRANDPARENT, replace(BASE, factors=(LINK, GRAND), projective=True, prune=False)),
    CHILDSEQ: (
        GRANDSIBLING,
        replace(BASE, factors=(LINK, GRAND, CHILDSEQ), projective=True, prune=False),
    ),
}
ROUNDS = (2, 3, 5, 10)

TABLE_2 = {  # Danish, Dutch, English
    "link": ("TREE+LINK", 85.5, 87.3, 88.6),
    "nocross": ("+NOCROSS", 86.1, 88.3, 89.1),
    "grand": ("+GRAND", 86.1, 88.6, 89.4),
    "childseq": ("+CHILDSEQ", 86.5, 88.5, 90.1),
    "dp": ("projective DP", 86.0, 84.5, 90.2),
    "climbing": ("+hill climbing", 86.1, 87.6, 90.2),
}
TABLE_3 = {  # decoded with; in brackets trained with, too
    "not2": ("NOT2", (81.8, 76.7), (83.3, 75.0), (87.5, 66.4)),
    "atmost1": ("ATMOST1", (85.4, 82.2), (87.3, 86.3), (88.5, 84.6)),
    "exactly1": ("EXACTLY1", (85.7, 85.0), (87.0, 86.7), (88.6, 86.0)),
    "exactly1+no2cycle": ("+NO2CYCLE", (85.0, 85.2), (86.2, 86.7), (88.5, 86.2)),
    "tree": ("TREE", (85.5, 85.5), (87.3, 87.3), (88.6, 88.6)),
    "ptree": ("PTREE", (85.8, None), (83.9, None), (88.8, None)),
}
SEARCH_ERROR = {GRAND: 0.4, CHILDSEQ: 2.4}  # percent, 10 iterations
ABLATION = {"not2": 2.2, "exactly1": 2.1, "exactly1+no2cycle": 1.7, "tree": 0.0}  # Danish
COLUMNS = {"da": 1, "nl": 2, "en": 3}
NAMES = {"da": "Danish", "nl": "Dutch", "en": "English"}


@dataclass(frozen=True)
class Scale:
    """How much of the experiment is run."""

    epochs: int | None = None  # None: as in BASE
    full_graph: bool = False  # no pruning in Table 2
    sentences: int | None = None  # of training; 100 of test, 40 of the figures
    longest: int = 70  # of the figures
    figures: bool = True

    def of(self, settings: Settings) -> Settings:
        """Settings of this scale."""
        out = replace(settings, epochs=self.epochs or settings.epochs)
        return replace(out, prune=False) if self.full_graph and out.second_order else out

    def data(self, data: Data) -> Data:
        return data if self.sentences is None else data.first(self.sentences, 100)


class SmithEisner2008:
    """The experiment over some languages.

    Parameters
    ----------
    workshop : Workshop
    data : list of Data, one for each language
    scale : Scale
    """

    def __init__(self, workshop: Workshop, data: Sequence[Data], scale: Scale) -> None:
        self.workshop = workshop
        self.data = [scale.data(each) for each in data]
        self.scale = scale

    def run(self) -> dict[str, Any]:
        """Everything as JSON values; `report` prints them."""
        languages = {
            each.language: {"table_2": self.table_2(each), "table_3": self.table_3(each)}
            for each in self.data
        }
        english = next((each for each in self.data if each.language == "en"), self.data[0])
        figures = self.figures(english) if self.scale.figures else None
        return {"languages": languages, "figures": figures}

    def train(self, name: str, settings: Settings, data: Data) -> tuple[Model, str]:
        return self.workshop.model(name, self.scale.of(settings), data)

    def decoded(
        self,
        name: str,
        data: Data,
        model: tuple[Model, str],
        engine: Engine,
        change: Callable[[ScoredGraph], ScoredGraph] = lambda graph: graph,
    ) -> dict[str, Any]:
        """The test sentences as an engine has them."""

        def compute() -> dict[str, Any]:
            graphs = map(change, Parser(model[0]).graphs(data.test))
            return decode(engine, list(graphs), data.test)

        return self.workshop.result(
            f"{data.language}-{name}", compute, model[1], engine.name, len(data.test)
        )

    # ---- Table 2 -------------------------------------------------------------------------------

    def table_2(self, data: Data) -> dict[str, Any]:
        """By model: words right and scored of each sentence, seconds a sentence."""
        out, richest = {}, None
        for name, settings in MODELS.items():
            richest = self.train(name, settings, data)
            out[name] = self.decoded(f"table-2-{name}", data, richest, find_engine(BP))
        assert richest is not None
        # No arcs of a projective tree cross, so the exact program may leave NOCROSS out.
        out["dp"] = self.decoded("table-2-dp", data, richest, GRANDSIBLING, without_nocross)
        out["climbing"] = self.decoded("table-2-climbing", data, richest, HILL_CLIMBING)
        return out

    # ---- Table 3 -------------------------------------------------------------------------------

    def table_3(self, data: Data) -> dict[str, Any]:
        """By constraint: the first-order model decoded with it, and one that is trained with it."""
        plain = self.train("link", MODELS["link"], data)
        out = {}
        for name in TABLE_3:
            engine = weaker(name)
            change = as_projective if name == "ptree" else as_it_is
            own: dict[str, Any] = {
                "decoded": self.decoded(f"table-3-{name}", data, plain, engine, change)
            }
            if name in WEAKER:
                damping = WEAKER[name]
                text = f"{BP},constraint={name}" + (f",damping={damping}" if damping else "")
                trained = self.train(f"link-{name}", replace(MODELS["link"], engine=text), data)
                own["trained"] = self.decoded(
                    f"table-3-trained-{name}", data, trained, weaker(name, damping)
                )
            elif name == "tree":
                own["trained"] = own["decoded"]
            out[name] = own
        return out

    # ---- Figures 2 to 4 ------------------------------------------------------------------------

    def figures(self, data: Data) -> dict[str, Any]:
        """By model: seconds and search error by length, of BP and of the exact programs."""
        plain = Data(
            data.language,
            [s for s in data.train if projective(s.heads)],
            data.dev,
            [s for s in (*data.test, *data.dev) if len(s) <= self.scale.longest],
        )
        if self.scale.sentences is not None:
            plain = replace(plain, test=plain.test[:40])
        out: dict[str, Any] = {"language": data.language}
        for name, (engine, settings) in EXACT.items():
            trained = self.train(f"projective-{name}", settings, plain)
            out[name] = self.workshop.result(
                f"{data.language}-figures-{name}",
                lambda engine=engine, trained=trained: list(
                    search(engine, trained[0], plain.test, self.workshop.progress)
                ),
                trained[1],
                len(plain.test),
            )
        trained = self.train(f"projective-{GRAND}", EXACT[GRAND][1], plain)
        out["ablation"] = self.workshop.result(
            f"{data.language}-ablation",
            lambda: ablation(trained[0], plain.test),
            trained[1],
            len(plain.test),
        )
        return out


def as_it_is(graph: ScoredGraph) -> ScoredGraph:
    return graph


def as_projective(graph: ScoredGraph) -> ScoredGraph:
    return replace(graph, projective=True)


def without_nocross(graph: ScoredGraph) -> ScoredGraph:
    parts = {family: scores for family, scores in graph.parts.items() if family != NOCROSS}
    return replace(graph, projective=True, parts=parts)


def weaker(constraint: str, damping: float = 0.0) -> BeliefPropagation:
    """Five iterations with a constraint, and the maximum spanning tree over log-odds."""
    rule = "tree" if constraint == "ptree" else constraint
    engine = BeliefPropagation(
        iterations=5, damping=damping, tolerance=0.0, constraint=rule, decode="log-odds"
    )
    engine.name = f"bp:{rule},damping={damping}" if damping else f"bp:{rule}"
    return engine


def search(
    exact: Engine,
    model: Model,
    sentences: Sequence[Sentence],
    progress: Callable[[Iterable[Any], str], Iterable[Any]],
) -> Iterator[dict[str, Any]]:
    """Of each sentence: words, seconds of each method, heads in which BP differs from exact MBR."""
    parser = Parser(model)
    mbr = MinimumBayesRisk(exact)
    methods: dict[str, Engine] = {"DP Viterbi": exact, "DP MBR": mbr}
    methods |= {f"BP {k}": BeliefPropagation(iterations=k, tolerance=0.0) for k in ROUNDS}
    for sentence in progress(sentences, "search error"):
        (graph,) = parser.graphs([sentence])
        seconds, heads = {}, {}
        for name, engine in methods.items():
            start = time.perf_counter()
            result: Result = engine.best(graph)
            seconds[name] = time.perf_counter() - start
            heads[name] = np.asarray(result.heads)
        errors = {
            name: int((heads[name] != heads["DP MBR"]).sum()) for name in methods if "BP" in name
        }
        yield {"words": len(sentence), "seconds": seconds, "errors": errors}


def ablation(model: Model, sentences: Sequence[Sentence]) -> dict[str, float]:
    """Search error of the projective GRAND model, percent, by the hard factors of inference."""
    parser, mbr = Parser(model), MinimumBayesRisk(GRANDPARENT)
    errors: dict[str, list[float]] = {name: [] for name in ABLATION}
    for sentence in sentences:
        (graph,) = parser.graphs([sentence])
        wanted = np.asarray(mbr.best(graph).heads)
        for name, of_each in errors.items():
            engine = BeliefPropagation(iterations=10, tolerance=0.0, constraint=name)
            heads = np.asarray(engine.best(graph).heads)
            of_each.append(100 * float((heads != wanted).sum()) / len(sentence))
    return {name: float(np.mean(of_each)) for name, of_each in errors.items()}


# ---- the report --------------------------------------------------------------------------------


def report(results: dict[str, Any]) -> Iterator[str]:
    """Tables and sentences, as text blocks."""
    languages = results["languages"]
    yield (
        "Table 2: UAS without punctuation; * best or not significantly worse (p >= .05)\n"
        + table(list(rows_2(languages)))
    )
    for language, result in languages.items():
        yield "\n".join(comparisons(NAMES[language], result["table_2"]))
    yield (
        "Table 3: first-order models decoded with weaker constraints (in brackets: trained with "
        "them, too; NOT2 with damping)\n" + table(list(rows_3(languages)))
    )
    figures = results["figures"]
    if figures is None:
        return
    for name in EXACT:
        title = "LINK + GRAND" if name == GRAND else "LINK + GRAND + CHILDSEQ"
        yield (
            f"Figures 2 to 4, {NAMES[figures['language']]}, PTREE + {title}: milliseconds a "
            f"sentence, and search error, by length\n" + table(list(rows_by_length(figures[name])))
        )
        error = search_error(figures[name], "BP 10")
        yield (
            f"search error of 10 iterations against exact MBR, mean over sentences: {error:.2f} % "
            f"(published: {SEARCH_ERROR[name]} %)"
        )
    yield "Search error of PTREE + LINK + GRAND by the hard factors of BP, percent\n" + table(
        [
            {"constraint": name, "published_da": published, "ours": figures["ablation"][name]}
            for name, published in ABLATION.items()
        ]
    )


def rows_2(languages: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row a model: published, ours, milliseconds for each language."""
    for name, (title, *published) in TABLE_2.items():
        row: dict[str, Any] = {"model": title}
        for language, result in languages.items():
            own = {key: Decoded(**value) for key, value in result["table_2"].items()}
            best = max(own.values(), key=lambda decoded: decoded.uas)
            star = "*" if p_value(best, own[name]) >= 0.05 else ""
            row[f"{language}_published"] = published[COLUMNS[language] - 1]
            row[language] = f"{own[name].uas:.2f}{star}"
            row[f"{language}_ms"] = round(1e3 * own[name].seconds, 3)
        yield row


def p_value(first: Decoded, second: Decoded) -> float:
    return permutation_test(np.array(second.right) - np.array(first.right))


def comparisons(language: str, result: dict[str, Any]) -> Iterator[str]:
    """Each model against the one before it, and BP against hill climbing."""
    own = {key: Decoded(**value) for key, value in result.items()}
    names = list(MODELS)
    pairs = [*pairwise(names), ("link", "childseq"), ("climbing", "childseq")]
    for first, second in pairs:
        difference = own[second].uas - own[first].uas
        p = p_value(own[first], own[second])
        before, after = TABLE_2[first][0], TABLE_2[second][0]
        yield f"{language}: {after} against {before}: {difference:+.2f}, p = {p:.4f}"
    ratio = own["climbing"].seconds / own["childseq"].seconds
    yield f"{language}: hill climbing with its start takes {ratio:.2f} times as long as BP"


def rows_3(languages: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, (title, *published) in TABLE_3.items():
        row: dict[str, Any] = {"decoding": title}
        for language, result in languages.items():
            one, two = published[COLUMNS[language] - 1]
            own = result["table_3"][name]
            uas = {key: Decoded(**value).uas for key, value in own.items()}
            row[f"{language}_published"] = f"{one}" + (f" ({two})" if two else "")
            trained = f" ({uas['trained']:.2f})" if "trained" in uas else ""
            row[language] = f"{uas['decoded']:.2f}{trained}"
        yield row


def rows_by_length(sentences: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Lengths in tens: milliseconds of each method and search error of BP, percent."""
    bins: dict[int, list[dict[str, Any]]] = {}
    for each in sentences:
        bins.setdefault(-(-each["words"] // 10) * 10, []).append(each)
    for length, own in sorted(bins.items()):
        row: dict[str, Any] = {"words": f"{length - 9}-{length}", "sentences": len(own)}
        for name in own[0]["seconds"]:
            row[f"{name}_ms"] = 1e3 * float(np.mean([each["seconds"][name] for each in own]))
        for name in own[0]["errors"]:
            row[f"{name}_error"] = search_error(own, name)
        yield row


def search_error(sentences: list[dict[str, Any]], name: str) -> float:
    """Percent of heads, mean over sentences."""
    return 100 * float(np.mean([each["errors"][name] / each["words"] for each in sentences]))
