"""Options that several verbs have, and progress bars."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import click
from tqdm import tqdm

from parser.inference import ENGINES, Engine, exact_engine, find_engine
from parser.model import Settings
from parser.treebank import TreebankError

FORMAT = click.option(
    "--format",
    "format_",
    type=click.Choice(["auto", "conllu", "conllx"]),
    default="auto",
    help="Format of the files; auto goes by their content.",
)
ENCODING = click.option("--encoding", default="utf-8", help="Encoding of the input files.")
QUIET = click.option("--quiet", is_flag=True, help="No progress and no summary on stderr.")
JOBS = click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    default=1,
    help="Threads, or processes.  Results do not depend on it.",
)
SKIP = click.option(
    "--skip-invalid", is_flag=True, help="Leave out sentences that cannot be read, and count them."
)
ROOTS = click.option(
    "--single-root/--multi-root",
    "single_root",
    default=None,
    help="One word under the root, or several.  [default: as in the training trees]",
    show_default=False,
)

EXACT = click.option(
    "--exact", is_flag=True, help="Go on until each tree is proved best, however long it takes."
)


def proving(engine: Engine | None, settings: Settings) -> Engine:
    """With --exact: the engine that goes on until its trees are proved best, or one for the model.

    GraphError: the engine has no proof.
    """
    if engine is not None:
        return engine.proving()
    return exact_engine(projective=bool(settings.projective), families=settings.factors)


class EngineType(click.ParamType):
    """An engine by name, with options after a colon."""

    name = "ENGINE"

    def convert(self, value: Any, param: Any, ctx: Any) -> Engine:
        if isinstance(value, Engine):
            return value
        try:
            return find_engine(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def get_metavar(self, param: Any, ctx: Any = None) -> str:
        return f"[{'|'.join(ENGINES)}]"


ENGINE = EngineType()


def progress(quiet: bool, **options: Any) -> Callable[[Iterable[Any], str], Iterable[Any]]:
    """A wrapper of loops that shows a bar on stderr, only when stderr is a terminal."""
    hidden = quiet or sys.stderr is None or not sys.stderr.isatty()

    def wrap(items: Iterable[Any], name: str) -> Iterable[Any]:
        return tqdm(items, desc=name, leave=False, disable=hidden, file=sys.stderr, **options)

    return wrap


class Skipped:
    """Counts sentences left out, with a line on stderr for each."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, error: TreebankError) -> None:
        self.count += 1
        click.echo(f"skipped: {error}", err=True)

    def report(self) -> None:
        if self.count:
            click.echo(f"{self.count} sentences skipped", err=True)
