"""parser eval"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from parser.cli.options import ENCODING, ENGINE, EXACT, FORMAT, ROOTS, proving
from parser.evaluation import Breakdown, Rules, Scores, aligned, compare, mistakes, table
from parser.evaluation.timing import run_engine
from parser.inference import Engine
from parser.model import Model
from parser.treebank import read, read_all

FACETS = ("relation", "length", "pos", "direction", "distance")


@click.command("eval", short_help="Score parses, or the engines of a model.")
@click.argument("gold")
@click.argument("system", required=False)
@click.option("--model", "model_path", type=click.Path(path_type=Path), help="Parse GOLD with it.")
@click.option(
    "--engine",
    "engines",
    type=ENGINE,
    multiple=True,
    help="With --model; repeatable.  [default: the model's own]",
)
@EXACT
@ROOTS
@click.option("--repeat", type=click.IntRange(1), default=1, help="Timed runs; the best counts.")
@click.option(
    "--rules",
    type=click.Choice(["conllx", "conll18"]),
    default="conll18",
    help="conllx: punctuation left out, full relations.  conll18: all words, no subtypes.",
)
@click.option("--by", type=click.Choice(FACETS), multiple=True, help="Break down by; repeatable.")
@click.option("--confusions", is_flag=True, help="Relations most often taken for others.")
@click.option("--errors", is_flag=True, help="List each wrong word: form gold > system.")
@click.option("--against", help="A second system file: paired permutation test.")
@click.option(
    "--allow-multiple-roots",
    is_flag=True,
    help="conll18: score such trees all the same, as --model always does.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@FORMAT
@ENCODING
def evaluate(
    gold: str,
    system: str | None,
    model_path: Path | None,
    engines: tuple[Engine, ...],
    exact: bool,
    single_root: bool | None,
    repeat: int,
    rules: str,
    by: tuple[str, ...],
    confusions: bool,
    errors: bool,
    against: str | None,
    allow_multiple_roots: bool,
    as_json: bool,
    format_: Any,
    encoding: str,
) -> None:
    """Score SYSTEM against GOLD by an official rule set, or time a model's engines on GOLD.

    UAS and LAS follow the rules; the columns "all" and "np" (punctuation left out) stand beside
    them in every report.

    \b
    Examples:
      parser eval gold.conllu system.conllu --rules conllx --by relation
      parser eval gold.conllu --model english.model --engine mst --engine projective
    """
    if (system is None) == (model_path is None):
        raise click.UsageError("give either a SYSTEM file or --model, and not both")
    options = {"format": format_, "encoding": encoding}
    if model_path is not None:
        for name, given in (
            ("--by", by),
            ("--against", against),
            ("--errors", errors),
            ("--confusions", confusions),
        ):
            if given:
                raise click.UsageError(f"{name} needs a SYSTEM file, not --model")
        chosen = Rules.named(rules, allow_multiple_roots=True)
        model = Model.load(model_path)
        s = model.settings
        if exact:
            engines = tuple(proving(engine, s) for engine in engines or (None,))
        elif not engines:
            engines = (s.make_engine(),)
        time_engines(model, gold, engines, chosen, single_root, repeat, as_json, options)
        return
    for name, given in (
        ("--engine", engines),
        ("--exact", exact),
        ("--single-root", single_root is not None),
        ("--repeat", repeat > 1),
    ):
        if given:
            raise click.UsageError(f"{name} needs --model")
    chosen = Rules.named(rules, allow_multiple_roots=allow_multiple_roots)
    if against and (by or confusions or errors):
        raise click.UsageError("--against stands alone")

    if against:
        rows = [
            d.to_dict()
            for d in compare(
                read(gold, **options),
                read(str(system), heads="optional", **options),
                read(against, heads="optional", **options),
                rules,
                allow_multiple_roots=allow_multiple_roots,
            )
        ]
        click.echo(json.dumps(rows) if as_json else table(rows))
        return
    scores, parts, wrong = Scores(chosen), Breakdown(chosen), []
    lenient = "optional" if allow_multiple_roots else "required"
    pairs = aligned(read(gold, **options), read(str(system), heads=lenient, **options))
    for reference, answer in pairs:
        scores.add(reference, answer.heads, answer.deprels)
        if by or confusions:
            parts.add(reference, answer.heads, answer.deprels)
        if errors:
            found = list(mistakes(reference, answer.heads, answer.deprels, chosen))
            if found:
                name = reference.sent_id or f"sentence {reference.number}"
                wrong.append({"sentence": name, "errors": found})
    if as_json:
        report: dict[str, Any] = scores.to_dict()
        report |= {f"by_{facet}": parts.rows(facet) for facet in by}
        if confusions:
            report["confusions"] = parts.confusions()
        if errors:
            report["errors"] = wrong
        click.echo(json.dumps(report, ensure_ascii=False))
        return
    click.echo(table(scores.rows()))
    for facet in by:
        click.echo("\n" + table(parts.rows(facet)))
    if confusions:
        click.echo("\n" + table(parts.confusions()))
    for sentence in wrong:
        click.echo(f"\n{sentence['sentence']}")
        for line in sentence["errors"]:
            click.echo(f"  {line}")


def time_engines(
    model: Model,
    gold: str,
    engines: tuple[Engine, ...],
    rules: Rules,
    single_root: bool | None,
    repeat: int,
    as_json: bool,
    options: dict[str, Any],
) -> None:
    """One row of accuracy and time for each engine."""
    sentences = read_all([gold], **options)
    runs = [
        run_engine(model, e, sentences, rules, single_root=single_root, repeat=repeat)
        for e in engines
    ]
    rows = [run.row() for run in runs]
    click.echo(json.dumps(rows) if as_json else table(rows))
    if not as_json:
        for line in (line for run in runs for line in run.details()):
            click.echo(f"\n{line}")
        click.echo(f"\n{rules.name} rules; one thread; times without reading and writing")
