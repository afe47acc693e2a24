"""parser tune"""

from __future__ import annotations

import dataclasses
import json
import signal
import sys
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import click

from parser.cli.options import ENCODING, FORMAT, QUIET, SKIP, Skipped, progress
from parser.evaluation import table
from parser.learning import TrainingError
from parser.learning.cross_validation import cross_validate, summary
from parser.model import Settings, SettingsError
from parser.treebank import read_all

TRUTH = {"true": True, "false": False}
CONVERTERS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "float | None": float,
    "bool": TRUTH.__getitem__,
    "bool | None": TRUTH.__getitem__,
    "str": str,
    "tuple[str, ...]": lambda text: tuple(name.strip() for name in text.split(",")),
}
WANTED = {"int": "a whole number", "float": "a number", "float | None": "a number"}


@click.command(short_help="Choose settings by cross-validation.")
@click.argument("treebanks", metavar="TRAIN...", nargs=-1, required=True)
@click.option(
    "--grid",
    "grids",
    metavar="KEY=VALUE[,VALUE...]",
    multiple=True,
    required=True,
    help="A setting, as in the TOML file, and its values; separated by semicolons where values "
    "have commas.  Repeatable: all combinations are tried.",
)
@click.option("--folds", type=click.IntRange(2), default=5, help="Parts of the data.")
@click.option("--fold-seed", type=click.IntRange(0), default=0, help="Of their random choice.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file of the other settings.",
)
@click.option(
    "--rules",
    type=click.Choice(["conllx", "conll18"]),
    default="conll18",
    help="conllx: punctuation left out, full relations.  conll18: all words, no subtypes.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    default=1,
    help="Processes, each with a model in memory.  Scores do not depend on it.",
)
@click.option(
    "--forward/--reset",
    default=True,
    help="With amortize: whether the trees that were found under one setting are kept for the next "
    "of the same fold, which then take turns, or each starts with none.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the scores of each fold.")
@FORMAT
@ENCODING
@SKIP
@QUIET
def tune(
    treebanks: tuple[str, ...],
    grids: tuple[str, ...],
    folds: int,
    fold_seed: int,
    config: Path | None,
    rules: str,
    jobs: int,
    forward: bool,
    as_json: bool,
    format_: Any,
    encoding: str,
    skip_invalid: bool,
    quiet: bool,
) -> None:
    """Train with each setting on all folds but one, parse that one, and compare the means.

    Each setting parses every sentence once, by the last epoch's weights of a model that has not
    seen it.  The best setting has the highest mean LAS, or UAS if one is without relations; of
    equal ones it is the first.  After +- are standard deviations over folds.  With amortize: calls
    of the engine over all folds, and their share of the problems, in percent.

    \b
    Example:
      parser tune train.conllu --grid aggressiveness=0.01,0.1,1 --grid epochs=5,10 --jobs 2
    """
    base = Settings.from_toml(config) if config else {}
    grid = parse_grids(grids)
    points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    settings = [Settings.from_dict(base | point, "settings") for point in points]
    skipped = Skipped()
    sentences = read_all(
        treebanks,
        format=format_,
        encoding=encoding,
        on_invalid=skipped if skip_invalid else None,
    )
    if not quiet:
        skipped.report()
    if len(sentences) < folds:
        raise TrainingError(f"{folds} folds need as many sentences, there are {len(sentences)}")
    if not quiet:
        click.echo(
            f"{len(sentences)} sentences in {folds} folds, {len(points)} settings: "
            f"{folds * len(points)} models",
            err=True,
        )
    # A polite kill is like Ctrl-C: no process stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        scores = cross_validate(
            settings,
            sentences,
            folds,
            fold_seed,
            rules,
            jobs,
            progress(quiet, total=folds * len(points)),
            forward=forward,
        )
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        sys.exit(130)

    means = [summary(each) for each in scores]
    by = "uas" if any(each["las"] is None for each in means) else "las"
    best = max(range(len(points)), key=lambda i: (means[i][by], -i))
    varied = [key for key in grid if len(grid[key]) > 1] or list(grid)
    names = [{key: shown(point[key]) for key in varied} for point in points]
    if as_json:
        rows = [
            {"setting": point, **mean, "folds": [vars(score) for score in each]}
            for point, mean, each in zip(points, means, scores, strict=True)
        ]
        click.echo(json.dumps({"settings": rows, "best": points[best], "by": by}))
        return
    amortized = any(each.amortize for each in settings)
    rows = [name | row(mean, amortized) for name, mean in zip(names, means, strict=True)]
    click.echo(table(rows))
    setting = ", ".join(f"{key}={value}" for key, value in names[best].items())
    click.echo(f"\nbest {by.upper()}: {setting}")


def parse_grids(grids: Iterable[str]) -> dict[str, list[Any]]:
    """The values of each setting, converted; SettingsError says what cannot be."""
    kinds = {f.name: str(f.type) for f in dataclasses.fields(Settings)}
    out: dict[str, list[Any]] = {}
    for text in grids:
        key, equals, values = text.partition("=")
        key = key.strip()
        if not equals:
            raise SettingsError(f"--grid: KEY=VALUE,... is wanted, got {text!r}")
        if key not in kinds:
            raise SettingsError(f"--grid: unknown setting {key!r}")
        kind = kinds[key]
        for value in values.split(";" if ";" in values else ","):
            try:
                converted = CONVERTERS[kind](value.strip())
            except (ValueError, KeyError):
                wanted = WANTED.get(kind, "true or false")
                raise SettingsError(f"--grid: {key}: {wanted} is wanted, got {value!r}") from None
            if converted not in out.setdefault(key, []):
                out[key].append(converted)
    return out


def row(mean: dict[str, float | None], amortized: bool) -> dict[str, Any]:
    """The columns of a setting in the table; with calls of the engine if a setting has a cache."""
    out: dict[str, Any] = {}
    for name in ("uas", "las"):
        value = mean[name]
        out[name.upper()] = "-" if value is None else f"{value:.2f} +- {mean[f'{name}_sd']:.2f}"
    out["train_s"] = mean["seconds"]
    if amortized:
        calls, problems = mean["calls"], mean["problems"]
        share = None if calls is None or not problems else 100 * calls / problems
        out |= {"calls": calls, "share": share}
    return out


def shown(value: Any) -> str:
    """A setting as it is written after --grid."""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
