"""One parser, ours or a peer's, in a process of its own; `parsers.py` starts and measures it.

    python tests/benchmarks/peers.py train SYSTEM TRAIN MODEL [--dev DEV] [--epochs N]
    python tests/benchmarks/peers.py parse SYSTEM MODEL TEST OUT [--repeat 3]

All systems get gold words, tags and features, and run on one thread.  Peers are trained as their
own manuals say, on defaults where there are any; what is set is set below, with the reason.
"""

from __future__ import annotations

import json
import re
import resource
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
    """Ours: what `parser train` does without further flags; `Parser.parse_all` on batches."""

    flags: Sequence[str] = ()

    def train(self, train: Path, dev: Path | None, model: Path, epochs: int | None) -> None:
        from parser.cli import main

        flags = [*self.flags, *(["--dev", str(dev)] if dev else [])]
        flags += ["--epochs", str(epochs)] if epochs else []
        main.main(["train", str(train), "-o", str(model), *flags], standalone_mode=False)

    def load(self, model: Path) -> None:
        from parser.model import Model, Parser

        self.parser = Parser(Model.load(model))

    def prepare(self, sentences: Iterable[Sentence]) -> list[Any]:
        return list(sentences)

    def parse(self, prepared: list[Any]) -> list[Any]:
        batches = (prepared[i : i + 32] for i in range(0, len(prepared), 32))
        return [parse for batch in batches for parse in self.parser.parse_all(batch)]

    def parse_singly(self, prepared: list[Any]) -> list[Any]:
        return list(map(self.parser.parse, prepared))

    def tree(self, parsed: Any) -> Tree:
        return parsed.heads, parsed.deprels


CONFIGS = Path(__file__).parents[2] / "configs"


class FirstOrder(Arcwise):
    """Ours with scores of single arcs."""

    flags = ("--config", str(CONFIGS / "first-order.toml"))


class Ssvm(Arcwise):
    """Ours by dual coordinate descent."""

    flags: Sequence[str] = ("--config", str(CONFIGS / "ssvm.toml"))


class FirstOrderSsvm(Ssvm):
    """The same with scores of single arcs."""

    flags = (*Ssvm.flags, "--factors", "link")


class Siblings(Arcwise):
    """Ours with arcs and adjacent siblings."""

    flags = ("--factors", "link,childseq")


class Grandparents(Arcwise):
    """Ours with arcs and grandparents."""

    flags = ("--factors", "link,grand")


class Grandsiblings(Arcwise):
    """Ours with all that the exact programs can use."""

    flags = ("--factors", "link,childseq,grand,grandsib")


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

        gold, held_out = read_all(train), read_all(dev) if dev else []
        options = ["use_gold_tags=1"]
        # Its trainer refuses treebanks with several roots as long as this default is on.
        if any(len(roots(sentence.heads)) > 1 for sentence in gold):
            options.append("single_root=0")
        if epochs:
            options.append(f"iterations={epochs}")
        error = ProcessingError()
        packed = Trainer.train(
            "morphodita_parsito",
            Sentences([words(s.to_conll(deprels=relations(s, "root"))) for s in gold]),
            Sentences([words(s.to_conll(deprels=relations(s, "root"))) for s in held_out]),
            Trainer.NONE,
            Trainer.NONE,
            ";".join(options),
            error,
        )
        if error.occurred():
            raise RuntimeError(error.message)
        model.mkdir()
        (model / "model").write_bytes(packed)
        (model / "root").write_text(root_relation(gold), encoding="utf-8")

    def load(self, model: Path) -> None:
        from ufal.udpipe import Model

        self.model = Model.load(str(model / "model"))
        self.root = (model / "root").read_text(encoding="utf-8")

    def prepare(self, sentences: Iterable[Sentence]) -> list[Any]:
        return [words(sentence.to_conll()) for sentence in sentences]

    def parse(self, prepared: list[Any]) -> list[Any]:
        for sentence in prepared:
            self.model.parse(sentence, self.model.DEFAULT)
        return prepared

    def tree(self, parsed: Any) -> Tree:
        rows = list(parsed.words)
        names = [self.root if row.head == 0 else row.deprel for row in rows[1:]]
        return np.array([row.head for row in rows]), names


def words(text: str) -> Any:
    """A sentence of UDPipe from the text of one of ours."""
    from ufal.udpipe import InputFormat, ProcessingError
    from ufal.udpipe import Sentence as Words

    reader, error, sentence = InputFormat.newConlluInputFormat(), ProcessingError(), Words()
    reader.setText(text)
    if not reader.nextSentence(sentence, error):
        raise RuntimeError(error.message)
    return sentence


def relations(sentence: Sentence, root: str) -> list[str]:
    """Relations as the peers want them.

    Both know roots by one name of their own (UDPipe breaks down where no relation has it, and
    wants a relation for each word).
    """
    pairs = zip(sentence.heads[1:].tolist(), sentence.deprels, strict=True)
    return [root if head == 0 else "dep" if name == "_" else name for head, name in pairs]


def root_relation(sentences: Iterable[Sentence]) -> str:
    """What the treebank itself calls the relation of root words, by its first sentence."""
    first = next(iter(sentences))
    return first.deprels[int(roots(first.heads)[0]) - 1]


class Spacy:
    """spaCy 3: transition-based over a convolutional network; pseudo-projective.

    Trained by the loop behind `spacy train` with the settings of its quickstart for CPU
    ("efficiency"), and three changes: the network reads the gold tags, features and lemmas too;
    sentence starts are given; the passes are bounded.  Best of the evaluations on dev, or the
    last weights without dev.
    """

    # The first four tables and the network over them are the quickstart's; the transition layer
    # is the component's default, as in spaCy's own small models: a third of the quickstart's.
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
    EPOCHS = 20  # at most; the bound of 20,000 steps alone would take hours

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
        for other in model.glob("model-*"):
            shutil.rmtree(other)
        (model / "root").write_text(root_relation(read(train)), encoding="utf-8")

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

    spaCy's POS takes universal tags only, TAG anything.
    """
    from spacy.parts_of_speech import IDS
    from spacy.tokens import Doc

    tree: dict[str, Any] = {"sent_starts": [True] + [False] * (len(sentence) - 1)}
    if gold:
        heads = sentence.heads[1:].tolist()
        tree["heads"] = [head - 1 if head else word for word, head in enumerate(heads)]
        tree["deps"] = relations(sentence, "ROOT")
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


SYSTEMS: dict[str, type[System]] = {
    "arcwise": Arcwise,
    "first-order": FirstOrder,
    "ssvm": Ssvm,
    "ssvm-first-order": FirstOrderSsvm,
    "siblings": Siblings,
    "grandparents": Grandparents,
    "grandsiblings": Grandsiblings,
    "spacy": Spacy,
    "udpipe": UDPipe,
}
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
    """Train SYSTEM on TRAIN_PATH, write MODEL, and print CPU seconds and peak memory as JSON."""
    SYSTEMS[system]().train(train_path, dev, model, epochs)
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = round(used.ru_utime + used.ru_stime, 1)
    click.echo(json.dumps({"train_CPU_s": seconds, "train_MiB": peak_memory()}))


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
    singly = speed(parser.parse_singly)[0] if hasattr(parser, "parse_singly") else tokens
    with open_output(output) as out:
        for sentence, answer in zip(sentences, parsed, strict=True):
            out.write(sentence.to_conll(*parser.tree(answer)))
    figures = {"parse_MiB": peak_memory(), "tokens/s": tokens, "singly": singly}
    click.echo(json.dumps(figures))


def peak_memory() -> int:
    """Peak resident size of this process in MiB."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss of Linux counts what the parent had before exec
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0]) // 2**10
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit


if __name__ == "__main__":
    main()
