"""One parser, ours or a peer's, in a process of its own; `parsers.py` starts and measures it.

    python tests/benchmarks/peers.py train SYSTEM TRAIN MODEL [--dev DEV] [--epochs N]
    python tests/benchmarks/peers.py parse SYSTEM MODEL TEST OUT [--repeat 3]

All systems get gold words, tags and features, and run on one thread.  Peers are trained as their
own manuals say, on defaults where there are any; what is set is set below, with the reason.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from textwrap import dedent
from typing import Any, Protocol

import click
import numpy as np

from parser.treebank import Sentence, open_output, read, read_all, roots

Tree = tuple[np.ndarray, Sequence[str]]


class System(Protocol):
    """A parser.  `prepare` makes its own kind of sentences, which `parse` may change."""

    def train(self, train: Path, dev: Path | None, model: Path, epochs: int | None) -> None: ...
    def load(self, model: Path) -> None: ...
    def prepare(self, sentences: Iterable[Sentence]) -> list[Any]: ...
    def parse(self, prepared: list[Any]) -> list[Any]: ...
    def tree(self, parsed: Any) -> Tree: ...


class Arcwise:
    """Ours: what `parser train` does without further flags; `Parser.parse` on each sentence."""

    def train(self, train: Path, dev: Path | None, model: Path, epochs: int | None) -> None:
        from parser.cli import main

        flags = ["--dev", str(dev)] if dev else []
        flags += ["--epochs", str(epochs)] if epochs else []
        main.main(["train", str(train), "-o", str(model), *flags], standalone_mode=False)

    def load(self, model: Path) -> None:
        from parser.model import Model, Parser

        self.parser = Parser(Model.load(model))

    def prepare(self, sentences: Iterable[Sentence]) -> list[Any]:
        return list(sentences)

    def parse(self, prepared: list[Any]) -> list[Any]:
        return list(map(self.parser.parse, prepared))

    def tree(self, parsed: Any) -> Tree:
        return parsed.heads, parsed.deprels


class UDPipe:
    """UDPipe 1: transition-based, projective, with a small network; the trainer's defaults.

    These read UPOS, FEATS and forms, neither XPOS nor lemmas.  There is no tagger in the model,
    so that gold tags are what it is trained on.

    References
    ----------
    M. Straka, J. Hajič, J. Straková and J. Hajič jr., "Parsing universal dependency treebanks
    using neural networks and search-based oracle", TLT 2015.
    """

    def train(self, train: Path, dev: Path | None, model: Path, epochs: int | None) -> None:
        from ufal.udpipe import ProcessingError, Sentences, Trainer

        gold = read_all(train)
        options = ["use_gold_tags=1"]
        # Its trainer refuses single_root, a default, for treebanks other than these.
        if not all(map(has_one_root_called_root, gold)):
            options.append("single_root=0")
        if epochs:
            options.append(f"iterations={epochs}")
        error = ProcessingError()
        packed = Trainer.train(
            "morphodita_parsito",
            Sentences(self.prepare(gold)),
            Sentences(self.prepare(read_all(dev)) if dev else []),
            Trainer.NONE,
            Trainer.NONE,
            ";".join(options),
            error,
        )
        if error.occurred():
            raise RuntimeError(error.message)
        model.write_bytes(packed)

    def load(self, model: Path) -> None:
        from ufal.udpipe import Model

        self.model = Model.load(str(model))

    def prepare(self, sentences: Iterable[Sentence]) -> list[Any]:
        from ufal.udpipe import InputFormat, ProcessingError
        from ufal.udpipe import Sentence as Words

        reader, error = InputFormat.newConlluInputFormat(), ProcessingError()
        prepared = []
        for sentence in sentences:
            reader.setText(sentence.to_conll())
            prepared.append(Words())
            if not reader.nextSentence(prepared[-1], error):
                raise RuntimeError(error.message)
        return prepared

    def parse(self, prepared: list[Any]) -> list[Any]:
        for words in prepared:
            self.model.parse(words, self.model.DEFAULT)
        return prepared

    def tree(self, parsed: Any) -> Tree:
        words = list(parsed.words)
        return np.array([word.head for word in words]), [word.deprel for word in words[1:]]


def has_one_root_called_root(sentence: Sentence) -> bool:
    is_root = [head == 0 for head in sentence.heads[1:].tolist()]
    return sum(is_root) == 1 and is_root == [deprel == "root" for deprel in sentence.deprels]


class Spacy:
    """spaCy 3: transition-based over a convolutional network; pseudo-projective.

    Trained by the loop behind `spacy train` with the settings of its quickstart for CPU
    ("efficiency"), and three changes: the network reads the gold tags, features and lemmas too;
    sentence starts are given; the passes are bounded.  Best of the evaluations on dev, or the
    last weights without dev.
    """

    # The first four rows and all widths are the quickstart's.
    CONFIG = """
    [nlp]
    lang = "xx"
    pipeline = ["parser"]
    [components]
    [components.parser]
    factory = "parser"
    [components.parser.model]
    @architectures = "spacy.TransitionBasedParser.v2"
    state_type = "parser"
    extra_state_tokens = false
    hidden_width = 64
    maxout_pieces = 2
    use_upper = true
    [components.parser.model.tok2vec]
    @architectures = "spacy.Tok2Vec.v2"
    [components.parser.model.tok2vec.embed]
    @architectures = "spacy.MultiHashEmbed.v2"
    width = 96
    attrs = ["NORM", "PREFIX", "SUFFIX", "SHAPE", "LEMMA", "POS", "TAG", "MORPH"]
    rows = [5000, 1000, 2500, 2500, 2500, 100, 1000, 1000]
    include_static_vectors = false
    [components.parser.model.tok2vec.encode]
    @architectures = "spacy.MaxoutWindowEncoder.v2"
    width = 96
    depth = 4
    window_size = 1
    maxout_pieces = 3
    [corpora]
    [corpora.train]
    @readers = "benchmark.treebank.v1"
    [corpora.dev]
    @readers = "benchmark.treebank.v1"
    [training]
    seed = 0
    gpu_allocator = null
    """
    EPOCHS = 20  # at most

    def train(self, train: Path, dev: Path | None, model: Path, epochs: int | None) -> None:
        import spacy
        from spacy.training import Example
        from spacy.training.initialize import init_nlp
        from spacy.training.loop import train as run
        from thinc.api import Config

        @spacy.registry.readers("benchmark.treebank.v1")
        def treebank(path: str) -> Callable[[Any], Iterator[Any]]:
            gold = read_all(path) if path else []
            return lambda nlp: (Example(doc(nlp, s), doc(nlp, s, gold=True)) for s in gold)

        changes = {
            "corpora.train.path": str(train),
            "corpora.dev.path": str(dev or ""),
            "training.max_epochs": epochs or self.EPOCHS,
        }
        if dev is None:
            changes["training.patience"] = 0  # there is nothing to wait for
        config = Config().from_str(dedent(self.CONFIG), overrides=changes)
        model.mkdir()
        run(init_nlp(config), model, stdout=sys.stderr)
        (model / ("model-best" if dev else "model-last")).rename(model / "model")
        first = next(read(train))
        root = first.deprels[int(roots(first.heads)[0]) - 1]
        (model / "root").write_text(root, encoding="utf-8")
        for other in model.glob("model-*"):
            shutil.rmtree(other)

    def load(self, model: Path) -> None:
        import spacy

        self.nlp = spacy.load(model / "model")
        self.root = (model / "root").read_text(encoding="utf-8")

    def prepare(self, sentences: Iterable[Sentence]) -> list[Any]:
        return [doc(self.nlp, sentence) for sentence in sentences]

    def parse(self, prepared: list[Any]) -> list[Any]:
        return list(self.nlp.pipe(prepared))

    def parse_singly(self, prepared: list[Any]) -> list[Any]:
        return list(map(self.nlp, prepared))

    def tree(self, parsed: Any) -> Tree:
        heads = [0 if token.head.i == token.i else token.head.i + 1 for token in parsed]
        names = (self.root if token.dep_ == "ROOT" else token.dep_ for token in parsed)
        return np.array([-1, *heads]), list(names)


def doc(nlp: Any, sentence: Sentence, *, gold: bool = False) -> Any:
    """A spaCy document of one sentence with its gold tags, and its tree if asked for.

    spaCy's POS takes universal tags only, TAG anything.  Its name for roots is ROOT.
    """
    from spacy.parts_of_speech import IDS
    from spacy.tokens import Doc

    tree: dict[str, Any] = {"sent_starts": [True] + [False] * (len(sentence) - 1)}
    if gold:
        heads = sentence.heads[1:].tolist()
        tree["heads"] = [head - 1 if head else word for word, head in enumerate(heads)]
        tree["deps"] = [d if h else "ROOT" for h, d in zip(heads, sentence.deprels, strict=True)]
    pairs = zip(sentence.upos, sentence.xpos, strict=True)
    return Doc(
        nlp.vocab,
        words=sentence.forms,
        lemmas=sentence.lemmas,
        pos=[tag if tag in IDS else "" for tag in sentence.upos],
        tags=[upos if xpos == "_" else xpos for upos, xpos in pairs],
        morphs=["" if feats == "_" else feats for feats in sentence.feats],
        **tree,
    )


SYSTEMS: dict[str, type[System]] = {"arcwise": Arcwise, "spacy": Spacy, "udpipe": UDPipe}
PATH = click.Path(path_type=Path)


@click.group()
def main() -> None:
    """Train or run one parser."""


@main.command()
@click.argument("system", type=click.Choice(list(SYSTEMS)))
@click.argument("train_path", type=PATH)
@click.argument("model", type=PATH)
@click.option("--dev", type=PATH)
@click.option("--epochs", type=click.IntRange(1))
def train(system: str, train_path: Path, model: Path, dev: Path | None, epochs: int | None) -> None:
    """Train SYSTEM on TRAIN_PATH and write MODEL."""
    SYSTEMS[system]().train(train_path, dev, model, epochs)


@main.command()
@click.argument("system", type=click.Choice(list(SYSTEMS)))
@click.argument("model", type=PATH)
@click.argument("test", type=PATH)
@click.argument("output", type=PATH)
@click.option("--repeat", default=3, type=click.IntRange(1), show_default=True)
def parse(system: str, model: Path, test: Path, output: Path, repeat: int) -> None:
    """Write the trees of SYSTEM for TEST, and print its tokens a second as JSON.

    Loading, reading, making its kind of sentences and writing are not timed.  `tokens/s` is for
    the whole file handed over at once, `singly` for one sentence after the other.
    """
    parser, sentences = SYSTEMS[system](), read_all(test, heads="ignored")
    parser.load(model)
    words = sum(map(len, sentences))

    def speed(parse: Callable[[list[Any]], list[Any]]) -> tuple[int, list[Any]]:
        times = []
        for _ in range(repeat):
            prepared = parser.prepare(sentences)
            start = time.perf_counter()
            parsed = parse(prepared)
            times.append(time.perf_counter() - start)
        return round(words / median(times)), parsed

    tokens, parsed = speed(parser.parse)
    singly = speed(parser.parse_singly)[0] if isinstance(parser, Spacy) else tokens
    with open_output(output) as out:
        for sentence, answer in zip(sentences, parsed, strict=True):
            out.write(sentence.to_conll(*parser.tree(answer)))
    click.echo(json.dumps({"tokens/s": tokens, "singly": singly}))


if __name__ == "__main__":
    main()
