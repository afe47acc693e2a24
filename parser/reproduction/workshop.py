"""What all reproductions share: treebanks, models trained once, results measured once."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parser.evaluation import Reference, Rules
from parser.graph import ScoredGraph
from parser.inference import Engine
from parser.learning import Trainer, fingerprint
from parser.model import Model, Settings
from parser.treebank import Sentence, read_all, replace_file

SUFFIXES = ("", ".xz", ".gz", ".bz2")


class ReproductionError(ValueError):
    """An experiment that cannot be run; one line."""


@dataclass(frozen=True)
class Treebank:
    """Files in a folder of treebanks, compressed or not.  `dev`: a file, or so many of the last
    training sentences."""

    train: str
    dev: str | int
    test: str


LANGUAGES = {
    "da": Treebank("conllx/da_ddt_train.conllx", 322, "conllx/da_ddt_test.conllx"),
    "nl": Treebank(
        "conllx/nl_alpino_train.conllx",
        "conllx/nl_alpino_dev.conllx",
        "conllx/nl_alpino_test.conllx",
    ),
    "en": Treebank(
        "ptb_sample/en_ptbsample_train.conllx",
        "ptb_sample/en_ptbsample_dev.conllx",
        "ptb_sample/en_ptbsample_test.conllx",
    ),
}


@dataclass(frozen=True)
class Data:
    """The sentences of one language."""

    language: str
    train: Sequence[Sentence]
    dev: Sequence[Sentence]
    test: Sequence[Sentence]

    def first(self, train: int, test: int) -> Data:
        """The first sentences of each part."""
        return Data(self.language, self.train[:train], self.dev[:test], self.test[:test])


def load(folder: Path, language: str) -> Data:
    """The treebank of a language.  ReproductionError names the file that is not there."""
    bank = LANGUAGES[language]

    def sentences(name: str) -> list[Sentence]:
        for suffix in SUFFIXES:
            path = folder / (name + suffix)
            if path.exists():
                return read_all([str(path)])
        raise ReproductionError(f"{folder / name}: no such file, nor .xz, .gz or .bz2 of it")

    train, test = sentences(bank.train), sentences(bank.test)
    if isinstance(bank.dev, str):
        return Data(language, train, sentences(bank.dev), test)
    held_out = min(bank.dev, len(train) // 10)
    return Data(language, train[:-held_out], train[-held_out:], test)


@dataclass(frozen=True)
class Decoded:
    """What an engine made of test sentences.

    Attributes
    ----------
    right, scored : list of int
        Words with the right head, and words that count, of each sentence.
    seconds : float
        Of inference and decoding, a sentence.
    """

    right: list[int]
    scored: list[int]
    seconds: float

    @property
    def uas(self) -> float:
        return 100 * sum(self.right) / max(1, sum(self.scored))


class Workshop:
    """A folder of models and results.  What is there is not made again.

    Names carry a hash of all that a model or a result depends on; files appear whole or not at all,
    and a training that was interrupted goes on from its checkpoint.

    Parameters
    ----------
    folder : Path
        Made if need be.
    jobs : int
        Threads of training.
    announce : callable
        Takes a line about what is done.
    progress : callable
        Wraps loops, as in `Trainer`.
    """

    def __init__(
        self,
        folder: Path,
        jobs: int = 1,
        announce: Callable[[str], None] = lambda _: None,
        progress: Callable[[Iterable[Any], str], Iterable[Any]] = lambda items, _: items,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.jobs = jobs
        self.announce = announce
        self.progress = progress

    def model(self, name: str, settings: Settings, data: Data) -> tuple[Model, str]:
        """A trained model, and the key that results of it are kept under."""
        key = digest(name, settings.to_dict(), fingerprint(data.train), fingerprint(data.dev))
        path = self.folder / f"{data.language}-{name}-{key}.model"
        if not path.exists():
            checkpoint = path.with_suffix(".checkpoint")
            self.announce(f"{data.language}: training {name}")
            trainer = Trainer(
                settings,
                data.train,
                data.dev,
                checkpoint=checkpoint,
                jobs=self.jobs,
                progress=self.progress,
                announce=self.announce,
            )
            if checkpoint.exists():
                trainer.resume()
            model = trainer.run(
                lambda e: self.announce(
                    f"  epoch {e.number}  loss {e.loss:.3f}  dev UAS {e.dev_uas or 0:.2f}  "
                    f"{e.seconds:.0f} s"
                )
            )
            model.save(path)
            checkpoint.unlink(missing_ok=True)
        return Model.load(path), key

    def result(self, name: str, compute: Callable[[], Any], *depends: Any) -> Any:
        """A JSON value, from its file or computed."""
        path = self.folder / f"{name}-{digest(*depends)}.json"
        if path.exists():
            return json.loads(path.read_text(encoding="utf-8"))
        self.announce(f"measuring {name}")
        value = compute()
        with replace_file(path) as file:
            file.write(json.dumps(value).encode())
        return value


def digest(*values: Any) -> str:
    """Twelve hex digits of a hash of JSON values."""
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def decode(
    engine: Engine, graphs: Sequence[ScoredGraph], sentences: Sequence[Sentence]
) -> dict[str, Any]:
    """As of `Decoded`: one thread, one sentence after the other.  CoNLL-X rules."""
    start = time.perf_counter()
    trees = [np.asarray(engine.best(graph).heads) for graph in graphs]
    seconds = (time.perf_counter() - start) / max(1, len(graphs))
    rules = Rules.named("conllx", allow_multiple_roots=True)
    right, scored = [], []
    for sentence, tree in zip(sentences, trees, strict=True):
        reference = Reference([sentence], rules)
        right.append(int((reference.right([tree], None)[0] & reference.scored).sum()))
        scored.append(int(reference.scored.sum()))
    return {"right": right, "scored": scored, "seconds": seconds}
