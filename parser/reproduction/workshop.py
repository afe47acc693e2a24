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
from parser.learning import Trainer, fingerprint
from parser.model import Model, Settings
from parser.treebank import Sentence, read_all, replace_file

SUFFIXES = ("", ".xz", ".gz", ".bz2")
PASSES = 3  # of which the fastest counts


class ReproductionError(ValueError):
    """An experiment that cannot be run; one line."""


@dataclass(frozen=True)
class Treebank:
    """Files in a folder of treebanks, compressed or not.

    `files` has {} for "train", "dev" or "test".  Without a dev file, the last training sentences
    are held out: a tenth, `held_out` at most.  `train` are other files to train on.
    """

    title: str
    files: str
    held_out: int | None = None
    train: tuple[str, ...] = ()

    def names(self, part: str) -> list[str]:
        """The files of "train", "dev" or "test"."""
        return [*self.train] if part == "train" and self.train else [self.files.format(part)]

    def find(self, folder: Path, part: str) -> list[Path | None]:
        """Where they are; None for one that is not there."""
        return [
            next(filter(Path.is_file, (folder / (name + suffix) for suffix in SUFFIXES)), None)
            for name in self.names(part)
        ]


LANGUAGES = {
    "da": Treebank("Danish", "conllx/da_ddt_{}.conllx", 322),
    "nl": Treebank("Dutch", "conllx/nl_alpino_{}.conllx"),
    "en": Treebank("English", "ptb_sample/en_ptbsample_{}.conllx"),
    "it": Treebank(
        "Italian",
        "ud/it_isdt-ud-{}.conllu",
        train=(
            "ud/it_partut-ud-train.conllu",
            "ud/it_vit-ud-dev.conllu",
            "ud/it_vit-ud-test.conllu",
        ),
    ),
    "lines": Treebank("English LinES", "ud/en_lines-ud-{}.conllu"),
    "la": Treebank("Latin", "ud/la_perseus-ud-{}.conllu"),
    "pt": Treebank("Portuguese", "ud/pt_bosque-ud-{}.conllu"),
    "tr": Treebank("Turkish", "ud/tr_imst-ud-{}.conllu"),
}
NEEDED = ("train", "test")


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


def available(folder: Path, languages: Iterable[str] = LANGUAGES) -> list[str]:
    """Those of the languages whose treebanks are in a folder.  ReproductionError: none is."""
    banks = {language: LANGUAGES[language] for language in languages}
    found = [
        language
        for language, bank in banks.items()
        if all(path for part in NEEDED for path in bank.find(folder, part))
    ]
    if not found:
        wanted = [name for bank in banks.values() for part in NEEDED for name in bank.names(part)]
        raise ReproductionError(
            f"{folder}: none of the treebanks is there; wanted are {', '.join(wanted)}, also "
            "compressed"
        )
    return found


def load(folder: Path, language: str) -> Data:
    """The treebank of a language.  ReproductionError names the file that is not there."""
    bank = LANGUAGES[language]
    parts: dict[str, list[Sentence]] = {}
    for part in ("train", "dev", "test"):
        paths = bank.find(folder, part)
        if None not in paths:
            parts[part] = read_all([str(path) for path in paths])
        elif part in NEEDED:
            name = folder / bank.names(part)[paths.index(None)]
            raise ReproductionError(f"{name}: no such file, nor .xz, .gz or .bz2 of it")
    train = parts["train"]
    if "dev" not in parts:
        size = min(len(train) // 10, bank.held_out or len(train))
        train, parts["dev"] = train[: len(train) - size], train[len(train) - size :]
    return Data(language, train, parts["dev"], parts["test"])


@dataclass(frozen=True)
class Attached:
    """Right heads of test sentences.

    Attributes
    ----------
    right, scored : list of int
        Words with the right head, and words that count, of each sentence: without punctuation, by
        the CoNLL-X rules.
    right_all, words : list of int
        The same over all words.
    """

    right: list[int]
    scored: list[int]
    right_all: list[int]
    words: list[int]

    @property
    def uas(self) -> float:
        return 100 * sum(self.right) / max(1, sum(self.scored))

    @property
    def uas_all(self) -> float:
        return 100 * sum(self.right_all) / max(1, sum(self.words))


@dataclass(frozen=True)
class Decoded(Attached):
    """What an engine made of test sentences, and the seconds of inference and decoding of one."""

    seconds: float


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

    def model(
        self, name: str, settings: Settings, data: Data, place: str = ""
    ) -> tuple[Model, str]:
        """A trained model, and the key that results of it are kept under.

        `place` says which it is of how many.
        """
        key = digest(name, settings.to_dict(), fingerprint(data.train), fingerprint(data.dev))
        path = self.folder / f"{data.language}-{name}-{key}.model"
        if not path.exists():
            checkpoint = path.with_suffix(".checkpoint")
            self.announce(f"{data.language}: training {name}{place and f' ({place})'}")
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
    best: Callable[[ScoredGraph], np.ndarray],
    graphs: Sequence[ScoredGraph],
    sentences: Sequence[Sentence],
) -> Decoded:
    """Trees by `best`, on one thread, one sentence after the other; the fastest of three passes."""
    took, trees = [], []
    for _ in range(PASSES):
        start = time.perf_counter()
        trees = [best(graph) for graph in graphs]
        took.append(time.perf_counter() - start)
    return Decoded(*attachments(trees, sentences), min(took) / len(graphs))


def attachments(
    trees: Sequence[np.ndarray], sentences: Sequence[Sentence]
) -> tuple[list[int], list[int], list[int], list[int]]:
    """The first four attributes of `Decoded`."""
    counts = []
    for sentence, tree in zip(sentences, trees, strict=True):
        right, scored = tree[1:] == sentence.heads[1:], counted(sentence)
        counts.append([int(n.sum()) for n in (right & scored, scored, right)] + [len(sentence)])
    right, scored, right_all, words = map(list, zip(*counts, strict=True))
    return right, scored, right_all, words


def counted(sentence: Sentence) -> np.ndarray:
    """The words that the CoNLL-X rules count, bool (words,): all but punctuation."""
    return Reference([sentence], Rules.named("conllx", allow_multiple_roots=True)).scored
