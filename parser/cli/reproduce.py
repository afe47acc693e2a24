"""parser reproduce"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click

from parser.cli.options import JOBS, QUIET, progress
from parser.reproduction import LANGUAGES, SmithEisner2008, Workshop, available, load
from parser.reproduction.smith_eisner_2008 import Scale, report, tables


@click.group(short_help="Run a paper's experiments again.")
def reproduce() -> None:
    """Train and measure what a paper did, its figures beside ours.

    Models and results are kept in a folder: what is there is not made again, and an interrupted
    run goes on where it was.
    """


@reproduce.command("smith-eisner-2008", short_help="Dependency parsing by belief propagation.")
@click.option(
    "--treebank",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder with conllx/da_ddt_*, conllx/nl_alpino_*, ptb_sample/en_ptbsample_*, compressed "
    "or not.",
)
@click.option(
    "--language",
    "languages",
    type=click.Choice(list(LANGUAGES)),
    multiple=True,
    help="Repeatable.  [default: all that are there; the first of them with --quick]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("out/smith-eisner-2008"),
    help="Folder of models and results.",
)
@click.option(
    "--epochs", type=click.IntRange(1), help="Of training.  [default: 10; 3 with --quick]"
)
@click.option("--full-graph", is_flag=True, help="Table 2 over all arcs, without a pruner.")
@click.option(
    "--figures/--no-figures",
    default=True,
    help="Whether the data of Figures 2 to 4 are made: English, or the first language.",
)
@click.option("--quick", is_flag=True, help="Few sentences: under five minutes.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@JOBS
@QUIET
def smith_eisner_2008(
    treebank: Path,
    languages: tuple[str, ...],
    output: Path,
    epochs: int | None,
    full_graph: bool,
    figures: bool,
    quick: bool,
    as_json: bool,
    jobs: int,
    quiet: bool,
) -> None:
    """Smith & Eisner (2008): Table 2, Table 3, and the data of Figures 2 to 4."""
    found = available(treebank)
    chosen = dict.fromkeys(languages or (found[:1] if quick else found))
    data = [load(treebank, language) for language in chosen]
    scale = Scale(epochs, full_graph, figures=figures)
    if quick:
        scale = replace(scale, epochs=epochs or 3, sentences=800, longest=40)
    workshop = Workshop(
        output,
        jobs,
        announce=lambda line: None if quiet else click.echo(line, err=True),
        progress=progress(quiet),
    )
    results = SmithEisner2008(workshop, data, scale).run()
    if as_json:
        click.echo(json.dumps({"tables": tables(results), "results": results}))
        return
    click.echo("\n\n".join(report(results)))
