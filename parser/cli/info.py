"""parser info, parser show"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from parser.cli.options import ENCODING, FORMAT
from parser.evaluation import draw, table, to_dot
from parser.model import open_model
from parser.treebank import TreebankError, read


@click.command(short_help="What a model file holds.")
@click.argument("model_path", metavar="MODEL", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the header as JSON.")
def info(model_path: Path, as_json: bool) -> None:
    """Print version, settings, labels and training record, without loading the weights."""
    header, archive = open_model(model_path)
    archive.close()
    if as_json:
        click.echo(json.dumps(header, ensure_ascii=False))
        return
    click.echo(f"{header['format']} {header['version']}, written by version {header['program']}")
    for name, value in header["settings"].items():
        click.echo(f"  {name:16s} {', '.join(value) if isinstance(value, list) else value}")
    data = header["record"].get("data", {})
    counts = {k: v for k, v in data.items() if isinstance(v, int)}
    click.echo("trained on " + ", ".join(f"{v} {k.replace('_', ' ')}" for k, v in counts.items()))
    shares = {k: v for k, v in data.items() if k not in counts}
    if shares:
        click.echo(", ".join(f"{k.replace('_', ' ')} {v}" for k, v in shares.items()))
    click.echo(f"{len(header['labels'])} labels: {' '.join(header['labels'])}")
    click.echo(table(header["record"].get("epochs", [])))


@click.command(short_help="Draw trees in the terminal.")
@click.argument("path", metavar="FILE")
@click.option("--sentence", type=click.IntRange(1), help="Only this one, counted from 1.")
@click.option("--ascii", "ascii_", is_flag=True, help="No line-drawing characters.")
@click.option("--dot", is_flag=True, help="Graphviz source instead of a drawing.")
@FORMAT
@ENCODING
def show(
    path: str, sentence: int | None, ascii_: bool, dot: bool, format_: Any, encoding: str
) -> None:
    """Draw the trees of a CoNLL file, one word a line, arcs at the left."""
    found = False
    for each in read(path, format=format_, encoding=encoding, heads="optional"):
        if sentence is not None and each.number != sentence:
            continue
        found = True
        title = each.sent_id or f"sentence {each.number}"
        click.echo(to_dot(each) if dot else f"{title}\n{draw(each, ascii=ascii_)}\n")
        if sentence is not None:
            break
    if sentence is not None and not found:
        raise TreebankError(path, None, None, f"there is no sentence {sentence}")
