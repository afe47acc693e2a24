"""parser parse"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from parser.cli.options import (
    ENCODING,
    ENGINE,
    EXACT,
    FORMAT,
    JOBS,
    QUIET,
    ROOTS,
    SKIP,
    Skipped,
    progress,
    proving,
)
from parser.inference import Engine
from parser.model import Model, Parse, Parser, in_order
from parser.treebank import Sentence, TreebankError, open_output, read


@click.command(short_help="Write predicted trees.")
@click.argument("model_path", metavar="MODEL", type=click.Path(path_type=Path))
@click.argument("inputs", metavar="[INPUT]...", nargs=-1)
@click.option("-o", "--output", default="-", help="File to write; - is stdout.")
@click.option(
    "--engine",
    type=ENGINE,
    help="NAME or NAME:OPTION=VALUE,...  [default: the exact one for the model's trees and "
    "factors, or hill-climbing]",
)
@EXACT
@ROOTS
@click.option(
    "--confidence",
    is_flag=True,
    help="Write ArcProb and LabelProb into MISC, with relaxed-bp ArcBounds too, and log p(tree) as "
    "a comment (CoNLL-U only).",
)
@click.option("--n-best", type=click.IntRange(1), default=1, help="Trees for each sentence.")
@click.option("--keep-heads", is_flag=True, help="Keep the heads that the input gives.")
@JOBS
@FORMAT
@ENCODING
@SKIP
@QUIET
def parse(
    model_path: Path,
    inputs: tuple[str, ...],
    output: str,
    engine: Engine | None,
    exact: bool,
    single_root: bool | None,
    confidence: bool,
    n_best: int,
    keep_heads: bool,
    jobs: int,
    format_: Any,
    encoding: str,
    skip_invalid: bool,
    quiet: bool,
) -> None:
    """Parse tokenised and tagged sentences (stdin without INPUT); only HEAD and DEPREL change.

    With --n-best K > 1 each sentence is written up to K times, best tree first, with the
    comments tree_rank and tree_score (CoNLL-U only).

    \b
    Example:
      parser parse english.model input.conllu -o output.conllu
    """
    model = Model.load(model_path)
    gc.freeze()  # the model stays; no use in looking through it for garbage again and again
    if exact:
        engine = proving(engine, model.settings)
    parser = Parser(
        model,
        engine,
        single_root=single_root,
        keep_heads=keep_heads,
        confidence=confidence,
    )
    skipped = Skipped()

    def sentences() -> Iterator[Sentence]:
        for path in inputs or ("-",):
            yield from read(
                path,
                format=format_,
                heads="optional" if keep_heads else "ignored",
                encoding=encoding,
                on_invalid=skipped if skip_invalid else None,
            )

    def one(sentence: Sentence) -> tuple[str, int] | TreebankError:
        """The sentence's text and the arcs that the pruner rescued, or what is wrong with it."""
        try:
            if n_best > 1:
                trees = parser.k_best(sentence, n_best)
                texts = [to_text(sentence, tree, rank) for rank, tree in enumerate(trees, 1)]
                return "".join(texts), trees[0].rescued
            tree = parser.parse(sentence)
            return to_text(sentence, tree), tree.rescued
        except ValueError as error:  # no tree, or a graph too large; CoNLL-X with comments
            reason = str(error)
        except MemoryError:
            reason = f"not enough memory for {len(sentence)} words"
        return TreebankError(sentence.source, sentence.line, sentence.number, reason)

    def work(batch: list[Sentence]) -> list[tuple[str, int] | TreebankError]:
        """The batch at once; if that fails, one by one, to find the sentence that is to blame."""
        if n_best == 1 and len(batch) > 1:
            try:
                parses = parser.parse_all(batch)
                return [(to_text(s, p), p.rescued) for s, p in zip(batch, parses, strict=True)]
            except (ValueError, MemoryError):
                pass
        return [one(sentence) for sentence in batch]

    start = time.perf_counter()
    done = words = rescued = 0
    bar = progress(quiet, unit=" sentences")
    with open_output(output) as out:
        for sentence, found in bar(in_order(work, sentences(), jobs, processes=True), "parse"):
            if isinstance(found, TreebankError):
                if not skip_invalid:
                    raise found
                skipped(found)
                continue
            text, count = found
            out.write(text)
            rescued += count
            done += 1
            words += len(sentence)
    if not quiet:
        seconds = time.perf_counter() - start
        skipped.report()
        if rescued:
            click.echo(f"pruner: {rescued} arcs kept only so that there is a tree", err=True)
        click.echo(
            f"{done} sentences, {words} words in {seconds:.2f} s, "
            f"{words / seconds if seconds else 0:.0f} words/s with reading and writing",
            err=True,
        )


def to_text(sentence: Sentence, tree: Parse, rank: int | None = None) -> str:
    """CoNLL text of a parse; n-best lists say each tree's rank and score."""
    comments = []
    if rank is not None:
        comments = [f"# tree_rank = {rank}", f"# tree_score = {tree.score:.6f}"]
    misc = None
    if tree.arc_probabilities is not None:
        comments.append(f"# tree_logprob = {tree.log_probability:.6f}")
        misc = [f"ArcProb={p:.4f}" for p in tree.arc_probabilities.tolist()]
        if tree.arc_bounds is not None:
            limits = tree.arc_bounds.T.tolist()
            misc = [
                f"{m}|ArcBounds={a:.4f}..{b:.4f}" for m, (a, b) in zip(misc, limits, strict=True)
            ]
        if tree.label_probabilities is not None:
            labels = tree.label_probabilities.tolist()
            misc = [f"{m}|LabelProb={p:.4f}" for m, p in zip(misc, labels, strict=True)]
    return sentence.to_conll(tree.heads, tree.deprels, misc, comments)
