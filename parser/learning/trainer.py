"""The epoch loop: shuffling, dev scores, the best epoch, early stopping, checkpoints."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
import weakref
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np

from parser.evaluation import Reference, Rules
from parser.features import Columns, CompactTable, Vocabulary, empty_lines
from parser.graph import Arcs, GraphError, all_arcs
from parser.inference import BELIEF_PROPAGATION, Cache, Engine, default_engine, find_engine
from parser.labelling import Labeller
from parser.learning.calibration import fit_scale
from parser.learning.learners import Crf, Example, Learner, Mira, Perceptron, PrunerCrf
from parser.learning.ssvm import Ssvm
from parser.model import Model, Parser, Pruner, Settings, in_order, make_pruner, make_scorer
from parser.treebank import Sentence, projective, replace_file, roots

log = logging.getLogger(__name__)

# Up to this share of trees with crossing arcs the projective constraint helps more than it hurts:
# on dev data it gained 0.5 UAS on LinES (5 %) and lost 0.3 on Danish (16 %).
PROJECTIVE_SHARE = 0.10
# MIRA's first weights are far from the last: on dev data it is worth 0.3 UAS on Danish and 0.2 on
# the PTB sample after five epochs, and nothing after ten.  A perceptron loses by it.
# Of the structured SVM the mean over passes parses Danish 0.2 better than its last weights.
RECENCY = 2.0
CRF_ENGINE = "bp:iterations=5"  # of a CRF, where no exact engine has marginals
LEARNERS: dict[str, type[Learner]] = {
    "mira": Mira,
    "perceptron": Perceptron,
    "crf": Crf,
    "ssvm": Ssvm,
}
FULL_GRAPHS = 100  # unpruned dev sentences that the scale is fitted to, at most


class TrainingError(ValueError):
    """Training cannot start or go on; one line."""


@dataclass(frozen=True)
class Epoch:
    """What one pass over the data gave.  Dev scores are percentages over all words.

    `measures` are the learner's own, by name.
    """

    number: int
    loss: float
    seconds: float
    dev_uas: float | None
    dev_las: float | None
    best: bool
    measures: dict[str, float] = field(default_factory=dict)


Progress = Callable[[Iterable[Any], str], Iterable[Any]]


def resolve(settings: Settings, sentences: Sequence[Sentence]) -> tuple[Settings, dict[str, Any]]:
    """Fill in what is left open from the training trees, and describe them.

    An engine for one kind of trees decides the tree constraint; otherwise the training trees do.
    """
    crossing = sum(not projective(s.heads) for s in sentences)
    several = sum(len(roots(s.heads)) > 1 for s in sentences)
    if settings.projective is None:
        kinds = find_engine(settings.engine).constraints if settings.engine else ()
        few = crossing <= PROJECTIVE_SHARE * len(sentences)
        settings = replace(settings, projective=next(iter(kinds)) if len(kinds) == 1 else few)
    if settings.single_root is None:
        settings = replace(settings, single_root=several == 0)
    if settings.prune is None:
        settings = replace(settings, prune=settings.second_order)
    if settings.recency is None:
        late = settings.learner in ("mira", "ssvm")
        settings = replace(settings, recency=RECENCY if late else 0.0)
    undecided = settings.learner == "crf" and not settings.engine
    if undecided and not settings.make_engine().has_marginals:
        settings = replace(settings, engine=CRF_ENGINE)
    return settings, {
        "sentences": len(sentences),
        "words": sum(map(len, sentences)),
        "non_projective_sentences": crossing,
        "multi_root_sentences": several,
    }


def checked_engine(settings: Settings) -> Engine:
    """The engine of resolved settings.  TrainingError: it cannot be trained with."""
    engine = settings.make_engine()
    try:
        engine.check_families(settings.factors)
    except GraphError as error:
        raise TrainingError(str(error)) from None
    if settings.projective not in engine.constraints:
        kind = "projective" if settings.projective else "non-projective"
        raise TrainingError(f"engine {engine.name} cannot keep to {kind} trees")
    if settings.learner == "crf" and not engine.has_marginals:
        raise TrainingError(
            f"learner crf needs marginals, which engine {engine.name} does not have"
        )
    return engine


def fingerprint(sentences: Iterable[Sentence]) -> str:
    """A hash of all that training reads, so that a checkpoint goes on with its own data only."""
    digest = hashlib.sha256()
    for s in sentences:
        columns = (s.forms, s.lemmas, s.upos, s.xpos, s.feats, s.deprels, s.heads.tolist())
        digest.update(repr(columns).encode())
    return digest.hexdigest()


class Trainer:
    """Trains one model.

    Parameters
    ----------
    settings : Settings
    sentences : list of Sentence with gold heads
    dev : list of Sentence, optional
        Scored after each epoch; the weights of the best epoch, of equals the last, are kept.
        Otherwise the last epoch's.
    checkpoint : Path, optional
        Written after each epoch, whole or not at all.
    jobs : int
        Threads that prune, share the steps of a CRF or a two-phase SVM, and parse the dev set.  The
        model does not depend on it.
    progress : callable
        Wraps the loops over sentences, e.g. in a progress bar.
    announce : callable
        Takes lines about the run, of the pruner's recall for example.
    cache : Cache, optional
        With `settings.amortize`: trees of an earlier run on the same sentences, to go on with.
    """

    def __init__(
        self,
        settings: Settings,
        sentences: Sequence[Sentence],
        dev: Sequence[Sentence] = (),
        *,
        checkpoint: Path | None = None,
        jobs: int = 1,
        progress: Progress = lambda items, _: items,
        announce: Callable[[str], None] = lambda _: None,
        cache: Cache | None = None,
    ) -> None:
        if not sentences:
            raise TrainingError("no sentences to train on")
        self.settings, self.data = resolve(settings, sentences)
        longest = max(sentences, key=len)
        try:
            all_arcs(len(longest)).check_size(() if self.settings.prune else self.settings.factors)
        except GraphError as error:
            raise TrainingError(f"{longest.source}: sentence {longest.number}: {error}") from None
        self.sentences = sentences
        self.dev = dev
        self.checkpoint = checkpoint
        self.jobs = jobs
        self.progress = progress
        self.announce = announce
        self.history: list[Epoch] = []
        self.saved = 0  # epochs that the checkpoint holds
        self.best: IO[bytes] | None = None  # the table of the best epoch by the dev set
        self.best_score = -1.0
        engine = checked_engine(self.settings)
        vocabulary = Vocabulary.build(sentences, self.settings.cutoff)
        self.scorer = make_scorer(vocabulary, self.settings)
        self.learner: Learner = LEARNERS[self.settings.learner](
            self.scorer, engine, self.settings, jobs
        )
        if cache is not None and self.settings.amortize:
            self.learner.amortized = self.learner.with_cache(cache)
        self.pruner: Pruner | None = None
        self.labeller: Labeller | None = None
        # Dev scoring never ends a run over a tree with several roots.
        rules = Rules.named("conll18", allow_multiple_roots=True)
        self.reference = Reference(dev, rules) if dev else None

    def run(self, report: Callable[[Epoch], None] = lambda _: None) -> Model:
        """Train to the end and return the model."""
        if self.settings.labelled:
            self.train_labeller()
        columns = [self.scorer.vocabulary.encode(s) for s in self.sentences]
        arcs: Sequence[Arcs | None] = [None] * len(columns)
        if self.settings.prune:
            arcs = self.train_pruner(columns)
        reachable = [i for i, s in enumerate(self.sentences) if self.within_reach(s)]
        examples = [
            Example(columns[i], self.sentences[i].heads, arcs[i], number)
            for number, i in enumerate(reachable)
        ]
        if not examples:
            raise TrainingError("no sentence has a tree that the engine of the CRF can make")
        if len(examples) < len(columns):
            self.announce(
                f"{len(columns) - len(examples)} sentences left out: a CRF has no probability for "
                "trees that its engine cannot make"
            )
        self.learner.begin(examples)
        while len(self.history) < self.settings.epochs and not self.at_rest():
            epoch = self.epoch(examples)
            self.history.append(epoch)
            report(epoch)
            if self.checkpoint:
                self.save()
        model = self.model(self.kept())
        if self.dev:
            model.scale = self.fit_scale(model)
            engine = self.learner.engine
            if engine.calibrated(2.0) is not engine:  # its trees depend on the scale
                uas, las = self.accuracy(model)
                found = f"UAS {uas:.2f}" + ("" if las is None else f" LAS {las:.2f}")
                self.announce(f"scores are log potentials times {model.scale}; so dev {found}")
        return model

    def within_reach(self, sentence: Sentence) -> bool:
        """Whether the learner can take the gold tree: a CRF only such as its engine can make."""
        s = self.settings
        crossing = s.projective and not projective(sentence.heads)
        several = s.single_root and len(roots(sentence.heads)) > 1
        return s.learner != "crf" or not (crossing or several)

    def fit_scale(self, model: Model) -> float:
        """The scale of log potentials, by the first engine that has marginals: the model's, belief
        propagation, an exact one over projective trees."""
        s = self.settings
        exact = default_engine(projective=True, families=s.factors)
        for engine in (s.make_engine(), BELIEF_PROPAGATION, exact):
            if engine.has_marginals and set(s.factors) <= engine.families:
                # All graphs are held at once, and those with every part are large.
                dev = self.dev if s.prune or not s.second_order else self.dev[:FULL_GRAPHS]
                return fit_scale(engine, Parser(model, engine).graphs(dev), [d.heads for d in dev])
        return 1.0

    def train_pruner(self, columns: Sequence[Columns]) -> list[Arcs]:
        """A small first-order CRF; returns what it keeps of each sentence, and the gold arcs."""
        s = self.settings
        pruner = make_pruner(self.scorer.vocabulary, s, np.zeros((0, 0), np.float32))
        learner = PrunerCrf(pruner.scorer, default_engine(projective=bool(s.projective)), s)
        examples = [Example(c, s.heads) for c, s in zip(columns, self.sentences, strict=True)]
        for number in range(1, s.prune_epochs + 1):
            order = np.random.default_rng([s.seed, 0, number]).permutation(len(examples))
            for i in self.progress(order.tolist(), f"pruner {number}"):
                learner.step([examples[i]])
            learner.end_epoch()
        self.pruner = replace(pruner, table=learner.compact(s.keep_rows))
        kept = self.prune(columns, self.sentences, "train")
        if self.dev:
            self.prune([self.scorer.vocabulary.encode(s) for s in self.dev], self.dev, "dev")
        return [arcs.including(s.heads) for arcs, s in zip(kept, self.sentences, strict=True)]

    def prune(
        self, columns: Sequence[Columns], sentences: Sequence[Sentence], name: str
    ) -> list[Arcs]:
        """What the pruner keeps; its oracle recall goes into the record."""
        assert self.pruner is not None
        pruner = self.pruner
        batches = in_order(pruner.select, columns, self.jobs)
        found = [each for _, each in self.progress(batches, f"prune {name}")]
        kept = [arcs for arcs, _ in found]
        rescued = sum(count for _, count in found)
        words = sum(map(len, sentences))
        gold = sum(
            len(arcs.including(s.heads)) - len(arcs)
            for arcs, s in zip(kept, sentences, strict=True)
        )
        recall, heads = 100 * (1 - gold / words), sum(map(len, kept)) / words
        self.data |= {
            f"pruner_recall_{name}": round(recall, 2),
            f"pruner_heads_{name}": round(heads, 2),
        }
        self.announce(
            f"pruner, {name}: {heads:.1f} heads a word, {recall:.2f} % of the gold arcs among "
            f"them, {rescued} arcs kept only so that there is a tree"
        )
        return kept

    def train_labeller(self) -> None:
        """The labeller needs gold trees only, so it comes first and each epoch's LAS is real."""
        s = self.settings
        self.labeller = Labeller.empty(self.scorer.vocabulary, self.sentences, s.label_bits)
        losses = self.labeller.train(
            self.sentences, s.label_epochs, s.label_rate, np.random.default_rng(s.seed)
        )
        for loss in self.progress(losses, "labels"):
            log.info("label loss %.4f", loss)

    def epoch(self, examples: Sequence[Example]) -> Epoch:
        """One pass over the data in a random order that depends on the seed and the epoch alone."""
        number = len(self.history) + 1
        start = time.perf_counter()
        order = np.random.default_rng([self.settings.seed, number]).permutation(len(examples))
        size = self.learner.batch
        batches = [order[first : first + size].tolist() for first in range(0, len(order), size)]
        loss = 0.0
        for batch in self.progress(batches, f"epoch {number}"):
            loss += self.learner.step([examples[i] for i in batch])
        self.learner.end_epoch()
        # Without a dev set the last epoch is the best one; its table is made when it is asked for.
        table = self.learner.compact(self.settings.keep_rows) if self.dev else None
        uas, las = self.score(table)
        score = float(number) if uas is None else uas if las is None else las
        best = score >= self.best_score  # the later one of equals: its average has seen more
        if best:
            self.best_score = score
            if table is not None:
                self.keep(table)
        seconds = time.perf_counter() - start
        mean = loss / len(examples)
        measures = self.learner.measures | self.learner.amortization()
        return Epoch(number, mean, seconds, uas, las, best, measures)

    def keep(self, table: CompactTable) -> None:
        """The weights of the best epoch wait in a file: in memory, where the next ones are made
        beside them, training would take an eighth more."""
        if self.best is None:
            self.best = TemporaryFile()  # noqa: SIM115
            weakref.finalize(self, self.best.close)
        self.best.seek(0)
        self.best.truncate()
        np.save(self.best, table.rows)
        table.values.tofile(self.best)

    def kept(self) -> CompactTable:
        """The weights of the best epoch; without a dev set those of the last."""
        if self.best is None:
            return self.learner.compact(self.settings.keep_rows)
        self.best.seek(0)
        rows = np.load(self.best)
        self.best.readinto(values := empty_lines(len(rows)))
        return CompactTable(self.settings.bits, rows, values)

    def score(self, table: CompactTable | None) -> tuple[float | None, float | None]:
        """UAS and LAS on the dev set, in percent over all words."""
        return (None, None) if table is None else self.accuracy(self.model(table))

    def accuracy(self, model: Model) -> tuple[float, float | None]:
        """UAS and LAS of a model on the dev set, in percent over all words."""
        assert self.reference is not None
        parser = Parser(model)
        parses = [p for _, p in in_order(parser.parse_all, self.dev, self.jobs)]
        scores = self.reference.score(
            [p.heads for p in parses], [p.deprels for p in parses] if self.labeller else None
        )
        return scores.uas, scores.las if self.labeller else None

    def at_rest(self) -> bool:
        """Whether the learner has converged, or `patience` epochs brought no better dev score."""
        patience = self.settings.patience
        out = False
        if patience and self.dev and self.history:
            scores = [e.dev_uas if e.dev_las is None else e.dev_las for e in self.history]
            out = len(scores) - (1 + scores.index(max(scores))) >= patience
        return out or self.learner.converged

    def model(self, table: CompactTable) -> Model:
        """The model with the given weights."""
        # No times and no dates: the same run gives the same file, byte for byte.
        aside = ("seconds", "measures")
        epochs = [
            {k: v for k, v in vars(e).items() if k not in aside} | e.measures for e in self.history
        ]
        record = {"data": self.data, "epochs": epochs}
        return Model(self.settings, self.scorer, table, self.pruner, self.labeller, record=record)

    # ---- checkpoints ---------------------------------------------------------------------------

    @cached_property
    def state(self) -> dict[str, Any]:
        """What must be equal for a checkpoint to be taken up."""
        settings = {k: v for k, v in self.settings.to_dict().items() if k not in MAY_CHANGE}
        return {
            "settings": json.loads(json.dumps(settings)),
            "train": fingerprint(self.sentences),
            "dev": fingerprint(self.dev),
        }

    def save(self) -> None:
        """Write the checkpoint."""
        assert self.checkpoint is not None
        header = self.state | {
            "history": [vars(e) for e in self.history],
            "best_score": self.best_score,
        }
        arrays: dict[str, np.ndarray] = {}
        if self.dev:
            best = self.kept()
            arrays = {"best_rows": best.rows, "best_values": best.values}
        for name, array in (self.learner.arrays() | self.learner.cached()).items():
            rows = np.flatnonzero(array.any(1)) if array.ndim == 2 else ()
            if array.ndim == 2 and len(rows) < len(array) / 2:
                arrays |= {f"{name}.rows": rows.astype(np.uint32), f"{name}.values": array[rows]}
            else:  # as it is, without a copy
                arrays[name] = array
        with replace_file(self.checkpoint) as file:
            np.savez(file, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
        self.saved = len(self.history)

    def resume(self) -> None:
        """Take up the checkpoint.  TrainingError: none there, or of other data or settings."""
        assert self.checkpoint is not None
        try:
            with self.checkpoint.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except FileNotFoundError:
            raise TrainingError(f"{self.checkpoint}: no checkpoint to resume from") from None
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise TrainingError(f"{self.checkpoint}: not a whole checkpoint: {error}") from None
        header = json.loads(arrays.pop("header").tobytes())
        for key, ours in self.state.items():
            if header[key] != ours:
                raise TrainingError(f"{self.checkpoint}: made with other {NAMES[key]}")
        self.history = [Epoch(**e) for e in header["history"]]
        self.saved = len(self.history)
        self.best_score = header["best_score"]
        if self.dev:
            best = arrays.pop("best_rows"), arrays.pop("best_values")
            self.keep(CompactTable(self.settings.bits, *best))
        restored: dict[str, np.ndarray] = {}
        for name, array in arrays.items():
            if name.endswith(".rows"):
                table = np.zeros_like(self.learner.weights.table)
                table[array] = arrays[name.removesuffix("rows") + "values"]
                restored[name.removesuffix(".rows")] = table
            elif not name.endswith(".values"):
                restored[name] = array
        self.learner.restore(restored)
        self.learner.recall(restored)


# Settings that say when to stop, or change no result, and so may differ between a checkpoint and
# its continuation.
MAY_CHANGE = frozenset({"epochs", "patience", "svm_memory"})
NAMES = {"settings": "settings", "train": "training data", "dev": "dev data"}


def checkpoint_path(model: Path) -> Path:
    """Where the checkpoint of a model stands while it is trained."""
    return Path(f"{os.fspath(model)}.checkpoint")
