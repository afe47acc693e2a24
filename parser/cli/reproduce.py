"""parser reproduce"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from parser.cli.options import JOBS, QUIET, progress
from parser.reproduction import (
    LANGUAGES,
    Chang2015,
    Data,
    Koo2010,
    RiedelSmith2010,
    SmithEisner2008,
    Workshop,
    available,
    chang_2015,
    koo_2010,
    load,
    riedel_smith_2010,
    smith_eisner_2008,
)


@click.group(short_help="Run a paper's experiments again.")
def reproduce() -> None:
    """Train and measure what a paper did, its figures beside ours.

    Models and results are kept in a folder: what is there is not made again, and an interrupted
    run goes on where it was.
    """


@dataclass(frozen=True)
class Run:
    """What the options that all experiments have ask for."""

    known: Sequence[str]  # languages of the experiment
    treebank: Path
    languages: tuple[str, ...]
    output: Path
    epochs: int | None
    quick: bool
    as_json: bool
    jobs: int
    quiet: bool

    def data(self) -> list[Data]:
        """The treebanks.  ReproductionError: not there."""
        found = available(self.treebank, self.known)
        chosen = dict.fromkeys(self.languages or (found[:1] if self.quick else found))
        return [load(self.treebank, language) for language in chosen]

    def workshop(self) -> Workshop:
        return Workshop(
            self.output,
            self.jobs,
            announce=lambda line: None if self.quiet else click.echo(line, err=True),
            progress=progress(self.quiet),
        )

    def show(
        self,
        results: dict[str, Any],
        tables: Callable[[dict[str, Any]], Any],
        report: Callable[[dict[str, Any]], Iterable[str]],
    ) -> None:
        """The report, or the tables and all that was measured as JSON."""
        if self.as_json:
            click.echo(json.dumps({"tables": tables(results), "results": results}))
        else:
            click.echo("\n\n".join(report(results)))


def experiment(
    name: str,
    summary: str,
    known: Sequence[str],
    epochs: int,
    *own: Callable[..., Any],
    quick: int = 3,
) -> Callable[..., click.Command]:
    """The command of an experiment, which takes a `Run` and the values of its `own` options.

    `epochs` and `quick` are of its training by default, in full and with --quick.
    """
    banks = [LANGUAGES[language] for language in known]
    files = ", ".join(name for bank in banks for name in (bank.files.format("*"), *bank.train))
    options = (
        click.option(
            "--treebank",
            required=True,
            type=click.Path(path_type=Path),
            help=f"Folder with {files}, compressed or not.",
        ),
        click.option(
            "--language",
            "languages",
            type=click.Choice(known),
            multiple=True,
            help="Repeatable.  [default: all that are there; the first of them with --quick]",
        ),
        click.option(
            "-o",
            "--output",
            type=click.Path(file_okay=False, path_type=Path),
            default=Path("out") / name,
            help="Folder of models and results.",
        ),
        click.option(
            "--epochs",
            type=click.IntRange(1),
            help=f"Of training.  [default: {epochs}; {quick} with --quick]",
        ),
        *own,
        click.option("--quick", is_flag=True, help="Few sentences: under five minutes."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        JOBS,
        QUIET,
    )

    def decorate(command: Callable[..., None]) -> click.Command:
        @wraps(command)
        def run(**values: Any) -> None:
            common = {key: values.pop(key) for key in Run.__annotations__ if key != "known"}
            command(Run(known, **common), **values)

        decorated: Callable[..., Any] = run
        for option in reversed(options):
            decorated = option(decorated)
        return reproduce.command(name, short_help=summary)(decorated)

    return decorate


@experiment(
    "smith-eisner-2008",
    "Dependency parsing by belief propagation.",
    tuple(smith_eisner_2008.NAMES),
    smith_eisner_2008.BASE.epochs,
    click.option("--full-graph", is_flag=True, help="Table 2 over all arcs, without a pruner."),
    click.option(
        "--figures/--no-figures",
        default=True,
        help="Whether the data of Figures 2 to 4 are made: English, or the first language.",
    ),
)
def smith_eisner(run: Run, full_graph: bool, figures: bool) -> None:
    """Smith & Eisner (2008): Table 2, Table 3, and the data of Figures 2 to 4."""
    data = run.data()
    scale = smith_eisner_2008.Scale(run.epochs, full_graph, figures=figures)
    if run.quick:
        scale = smith_eisner_2008.Scale(run.epochs or 3, full_graph, 800, 40, figures)
    results = SmithEisner2008(run.workshop(), data, scale).run()
    run.show(results, smith_eisner_2008.tables, smith_eisner_2008.report)


@experiment(
    "koo-2010",
    "Non-projective head automata by dual decomposition.",
    koo_2010.LANGUAGES,
    koo_2010.BASE.epochs,
)
def koo(run: Run) -> None:
    """Koo et al. (2010), as in the slides of Rush: certificates, speed, accuracy.

    Beside them Table 1 of Rush et al. (2010).  Integer and linear programs solve a sample of the
    test sentences, each within a time limit.
    """
    scale = koo_2010.Scale(run.epochs)
    if run.quick:
        scale = koo_2010.Scale(run.epochs or 3, 800, koo_2010.Sample(15, 20, 10.0))
    results = Koo2010(run.workshop(), run.data(), scale).run()
    run.show(results, koo_2010.tables, koo_2010.report)


QUICK = chang_2015.Scale(100, 40, second=20, programs=4, folded=16, folds=2, test=100, bits=14)


@experiment(
    "chang-2015",
    "Training with amortized inference.",
    chang_2015.LANGUAGES,
    chang_2015.BASE.epochs,
    click.option(
        "--sentences",
        type=click.IntRange(1),
        help="Of training, 5 to 25 words long, at most.  "
        f"[default: {chang_2015.Scale.sentences}; {QUICK.sentences} with --quick]",
    ),
    click.option(
        "--plot",
        "figure",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        help="File for an image of Figure 1.",
    ),
    quick=QUICK.passes,
)
def chang(run: Run, sentences: int | None, figure: Path | None) -> None:
    """Chang et al. (2015): Table 1, Figure 1 and the cross-validation, for parsing.

    Structured SVM and perceptron with and without a cache of trees, over MST, dual decomposition
    and integer programs.  --epochs are passes at most: training stops when it has converged.
    """
    if figure and importlib.util.find_spec("matplotlib") is None:
        raise click.UsageError("--plot needs matplotlib: pip install matplotlib")
    scale = QUICK if run.quick else chang_2015.Scale()
    scale = scale.at_most(sentences, run.epochs)
    results = Chang2015(run.workshop(), run.data(), scale).run()
    run.show(results, chang_2015.tables, chang_2015.report)
    if figure:
        chang_2015.plot(figure, results)


@experiment(
    "riedel-smith-2010",
    "Relaxed marginal inference.",
    riedel_smith_2010.LANGUAGES,
    riedel_smith_2010.BASE.epochs,
    click.option(
        "--plot",
        "figure",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        help="File for an image of Figure 1, and of time against error.",
    ),
)
def riedel_smith(run: Run, figure: Path | None) -> None:
    """Riedel & Smith (2010): Tables 1 and 2 and Figure 1, and where the time goes.

    A CRF with grandparents and siblings, trained with full belief propagation over pruned arcs,
    decoded over all arcs with full, relaxed and pruned belief propagation.
    """
    if figure and importlib.util.find_spec("matplotlib") is None:
        raise click.UsageError("--plot needs matplotlib: pip install matplotlib")
    scale = riedel_smith_2010.Scale(run.epochs)
    if run.quick:
        scale = riedel_smith_2010.Scale(run.epochs or 3, 800)
    results = RiedelSmith2010(run.workshop(), run.data(), scale).run()
    run.show(results, riedel_smith_2010.tables, riedel_smith_2010.report)
    if figure:
        riedel_smith_2010.plot(figure, results)
