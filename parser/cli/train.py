"""parser train"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import click

from parser.cli.options import ENCODING, FORMAT, JOBS, QUIET, ROOTS, SKIP, Skipped, progress
from parser.features import PART_SETS
from parser.graph import FAMILIES
from parser.learning import Epoch, Trainer, TrainingError, checkpoint_path
from parser.model import LEARNERS, Settings
from parser.model.settings import OPTIMIZERS
from parser.treebank import read_all


@click.command(short_help="Train a model on treebanks.")
@click.argument("treebanks", metavar="TRAIN...", nargs=-1, required=True)
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--dev", multiple=True, help="Scored after each epoch; the best epoch is kept.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file of settings; flags override it.",
)
@click.option(
    "--factors",
    help=f"Separated by commas, of {', '.join(FAMILIES)}.  [default: link,childseq,grand]",
)
@click.option("--templates", type=click.Choice(sorted(PART_SETS)), help="Of second-order parts.")
@click.option(
    "--prune/--no-prune",
    default=None,
    help="Leave out arcs that a small first-order model finds unlikely.  [default: with "
    "second-order factors]",
)
@click.option("--prune-heads", type=int, help="Heads kept for a word, at most.")
@click.option("--prune-threshold", type=float, help="Least marginal relative to the word's best.")
@click.option(
    "--engine",
    metavar="NAME[:OPTION=VALUE,...]",
    help="Inference in training, and the model's own later; also decides the kind of trees if it "
    "has but one.  [default: the cheapest exact engine for the trees and factors; where there is "
    "none, hill-climbing, or bp:iterations=5 for the CRF]",
)
@click.option("--learner", type=click.Choice(LEARNERS), help="[default: mira]")
@click.option("--optimizer", type=click.Choice(OPTIMIZERS), help="Of the CRF.  [default: sgd]")
@click.option("--rate", type=float, help="Of the CRF, for a sentence.  [default: 0.1]")
@click.option(
    "--part-rate", type=float, help="Rate of parts, as a share of that of arcs.  [default: 1]"
)
@click.option("--l2", type=float, help="Penalty of the CRF, a sentence.  [default: 0]")
@click.option("--batch", type=int, help="Sentences in a step of the CRF.  [default: 1]")
@click.option("--svm-c", type=float, help="Cost C of the structured SVM.  [default: 0.006]")
@click.option(
    "--delta",
    type=float,
    help="The structured SVM stops when no constraint is violated by more heads than this.  "
    "[default: 0.1]",
)
@click.option(
    "--inner-passes",
    type=int,
    help="Of its coordinate descent after each epoch and, interleaved, each sentence, at most.  "
    "[default: 1]",
)
@click.option(
    "--interleave/--two-phase",
    default=None,
    help="It descends after each sentence, too, or only after each epoch.  [default: interleave]",
)
@click.option(
    "--amortize",
    is_flag=False,
    flag_value="exact",
    metavar="[seed|exact|margin|near|lazy|adaptive]",
    help="Take trees of earlier passes where they still are best; SSVM, lazy: any that do, and ask "
    "the engine what they leave.  [exact if no value is given]",
)
@click.option(
    "--epsilon",
    type=float,
    help="Of the paper's condition, and of near; above 0 trees are nearly the best.  [default: 0]",
)
@click.option("--tau", type=int, help="Of so many such trees in a row one is exact.  [default: 0]")
@click.option("--svm-memory", type=float, help="GiB of its vectors that it keeps.  [default: 2]")
@click.option(
    "--projective/--non-projective",
    default=None,
    help="Kind of trees.  [default: projective if at most 10 % of the training trees are not]",
)
@ROOTS
@click.option("--labelled/--unlabelled", default=None, help="[default: labelled]")
@click.option("--epochs", type=int, help="[default: 10]")
@click.option("--patience", type=int, help="Stop after so many epochs without a better dev score.")
@click.option(
    "--recency",
    type=float,
    help="Weights after t steps count t^RECENCY in their average; 0: all alike.  [default: 2 for "
    "mira and ssvm, 0 for others]",
)
@click.option("--k", type=int, help="Trees in a MIRA step.  [default: 1]")
@click.option("--seed", type=int, help="[default: 0]")
@click.option("--resume", is_flag=True, help="Go on from the checkpoint of an interrupted run.")
@JOBS
@FORMAT
@ENCODING
@SKIP
@QUIET
def train(
    treebanks: tuple[str, ...],
    output: Path,
    dev: tuple[str, ...],
    config: Path | None,
    factors: str | None,
    resume: bool,
    jobs: int,
    format_: Any,
    encoding: str,
    skip_invalid: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Train a parser on gold trees and write it to one file.

    A checkpoint, OUTPUT.checkpoint, is written after each epoch and removed at the end; --resume
    takes it up and ends in the same model as an uninterrupted run.  --jobs prunes, computes the
    gradients of a --batch, infers for a --two-phase SVM, and parses the dev set on several threads.

    \b
    Example:
      parser train train.conllu --dev dev.conllu -o english.model
    """
    values = Settings.from_toml(config) if config else {}
    values |= {name: value for name, value in flags.items() if value is not None}
    if factors is not None:
        values["factors"] = [name.strip() for name in factors.split(",")]
    settings = Settings.from_dict(values, "settings")
    if not output.parent.is_dir():
        raise TrainingError(f"{output}: no such folder as {output.parent}")

    skipped = Skipped()
    options = {
        "format": format_,
        "encoding": encoding,
        "on_invalid": skipped if skip_invalid else None,
    }
    sentences = read_all(treebanks, **options)
    held_out = read_all(dev, **options) if dev else []
    if not quiet:
        skipped.report()
    trainer = Trainer(
        settings,
        sentences,
        held_out,
        checkpoint=checkpoint_path(output),
        jobs=jobs,
        progress=progress(quiet),
        announce=lambda line: None if quiet else click.echo(line, err=True),
    )
    if resume:
        trainer.resume()
    if not quiet:
        click.echo(describe(trainer), err=True)

    # A polite kill is like Ctrl-C: the last checkpoint stays whole.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        model = trainer.run(lambda e: None if quiet else click.echo(epoch_line(e), err=True))
    except KeyboardInterrupt:
        if trainer.saved:
            told = f"Interrupted; --resume goes on after epoch {trainer.saved}."
        else:
            told = "Interrupted before the first checkpoint was whole."
        click.echo(told, err=True)
        sys.exit(130)
    best = max((e for e in trainer.history if e.best), key=lambda e: e.number)
    del trainer  # half of the memory
    model.save(output)
    checkpoint_path(output).unlink(missing_ok=True)
    if not quiet:
        size = output.stat().st_size / 1e6
        click.echo(f"{output}: weights of epoch {best.number}, {size:.1f} MB", err=True)


def describe(trainer: Trainer) -> str:
    """What is trained on, and the share of trees that the decoder cannot make."""
    d, s = trainer.data, trainer.settings
    share = 100 * d["non_projective_sentences"] / d["sentences"]
    kind = "projective" if s.projective else "non-projective"
    note = " (these trees are out of its reach)" if s.projective and share else ""
    return (
        f"{d['sentences']} sentences, {d['words']} words; {share:.1f} % of the trees have crossing "
        f"arcs{note}, {d['multi_root_sentences']} have several roots\n"
        f"{s.learner}, {kind} trees, {'single root' if s.single_root else 'several roots'}, "
        f"factors {', '.join(s.factors)}, {'labelled' if s.labelled else 'unlabelled'}"
        + (f", engine {s.engine}" if s.engine else "")
    )


def epoch_line(e: Epoch) -> str:
    """One epoch of the log."""
    scores = "" if e.dev_uas is None else f"  dev UAS {e.dev_uas:.2f}"
    if e.dev_las is not None:
        scores += f" LAS {e.dev_las:.2f}"
    mark = "  best" if e.best and e.dev_uas is not None else ""
    measures = "".join(f"  {name} {value:.6g}" for name, value in e.measures.items())
    return f"epoch {e.number:2d}  loss {e.loss:.3f}{measures}{scores}  {e.seconds:.1f} s{mark}"
