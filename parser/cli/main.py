"""The command `parser` and what all its verbs share."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from parser import __version__
from parser.cli.evaluate import evaluate
from parser.cli.info import info, show
from parser.cli.parse import parse
from parser.cli.reproduce import reproduce
from parser.cli.train import train
from parser.cli.tune import tune
from parser.evaluation import EvaluationError
from parser.graph import GraphError
from parser.inference import NoTreeError
from parser.learning import TrainingError
from parser.model import ModelError, SettingsError
from parser.reproduction import ReproductionError
from parser.treebank import TreebankError

BAD_DATA = (
    TreebankError,
    EvaluationError,
    ModelError,
    SettingsError,
    TrainingError,
    ReproductionError,
    GraphError,
    NoTreeError,
    OSError,
)


class OneLine(click.Group):
    """Turns what can go wrong into one line on stderr: exit 2 for bad use, 1 for bad data."""

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # type: ignore[override]
        args = sys.argv[1:] if args is None else list(args)
        try:
            return super().main(args, **extra)
        except BrokenPipeError:
            # The reader has had enough (`| head`).  Keep Python from complaining at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except BAD_DATA as error:
            if "--debug" in args:
                traceback.print_exc()
            click.echo(f"Error: {describe(error)}", err=True)
            sys.exit(2 if isinstance(error, SettingsError) else 1)


def describe(error: Exception) -> str:
    """One line; for errors of the system the file and the reason."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split())


@click.group(
    cls=OneLine,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "max_content_width": 96,
    },
)
@click.version_option(__version__, prog_name="parser")
@click.option("--debug", is_flag=True, help="Show a traceback with an error.")
def main(debug: bool) -> None:
    """Train, run and score dependency parsers on CoNLL-U and CoNLL-X files."""


for command in (train, tune, parse, evaluate, info, show, reproduce):
    main.add_command(command)
