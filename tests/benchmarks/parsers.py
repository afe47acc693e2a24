"""Our parser and its public peers, trained and run on the same treebanks.

    python tests/benchmarks/parsers.py [--treebanks ../shared/treebanks] [--only da,ptb]
        [--systems arcwise,first-order,spacy,udpipe] [--repeat 3] [--json FILE]

Each system is trained and run by `peers.py` in processes of its own, on one thread, with gold words
and tags.  All outputs are read back, which refuses what is not a tree, and scored by
`parser.evaluation` with the CoNLL-X rules.  Columns:

    UAS, LAS, complete    over all words; np without punctuation; complete: trees with all heads
    dev UAS               ours, of the epoch kept; decides between settings
    multiroot             trees with more than one word under the root, percent
    train CPU s, MiB      user and system time, and peak resident size, of the whole process
    tokens/s, singly      parsing alone, median: the file at once; one sentence after the other
    times                 our tokens/s divided by the system's
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click
from kernels import processor
from peers import SYSTEMS, Arcwise

from parser import __version__
from parser.evaluation import evaluate, table
from parser.model import open_model
from parser.treebank import Sentence, TreebankError, read, read_all, roots

PEERS = {"spacy": "spacy", "udpipe": "ufal.udpipe"}  # their distributions
THREADS = ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR")
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in THREADS}


@dataclass(frozen=True)
class Treebank:
    """Files without `.xz`.  `dev` is a file, or so many of the last training sentences."""

    train: tuple[str, ...]
    dev: str | int
    test: str
    labelled: bool = True

    @classmethod
    def ud(cls, name: str) -> Treebank:
        train, dev, test = (f"ud/{name}-ud-{part}.conllu" for part in ("train", "dev", "test"))
        return cls((train,), dev, test)

    def unpack(self, source: Path, folder: Path, limit: int | None) -> dict[str, Path | None]:
        """Plain `train`, `dev` and `test` files; dev is None where there is none."""
        train = read_all([source / f"{name}.xz" for name in self.train])
        dev: list[Sentence] = []
        if isinstance(self.dev, str):
            dev = read_all(source / f"{self.dev}.xz")
        elif self.dev:
            train, dev = train[: -self.dev], train[-self.dev :]
        parts = {"train": train, "dev": dev, "test": read_all(source / f"{self.test}.xz")}
        suffix, paths = Path(self.test).suffix, {}
        for name, sentences in parts.items():
            path = folder / f"{name}{suffix}"
            text = "".join(sentence.to_conll() for sentence in sentences[:limit])
            path.write_text(text, encoding="utf-8", newline="\n")
            paths[name] = path if sentences else None
        return paths


DANISH, PTB = "conllx/da_ddt_{}.conllx", "ptb_sample/en_ptbsample_{}.conllx"
TREEBANKS = {
    "da": Treebank((DANISH.format("train"),), 322, DANISH.format("test")),
    "ptb": Treebank((PTB.format("train"),), PTB.format("dev"), PTB.format("test"), labelled=False),
    "lines": Treebank.ud("en_lines"),
    "latin": Treebank(("ud/la_perseus-ud-train.conllu",), 0, "ud/la_perseus-ud-test.conllu"),
    "dutch": Treebank(
        ("ud/nl_alpino_alud_train.conllu",),
        "ud/nl_alpino-ud-dev.conllu",
        "ud/nl_alpino-ud-test.conllu",
    ),
    "ewt": Treebank.ud("en_ewt"),
    "italian": Treebank(
        (
            "ud/it_partut-ud-train.conllu",
            "ud/it_vit-ud-dev.conllu",
            "ud/it_vit-ud-test.conllu",
        ),
        "ud/it_isdt-ud-dev.conllu",
        "ud/it_isdt-ud-test.conllu",
    ),
    "portuguese": Treebank.ud("pt_bosque"),
    "turkish": Treebank.ud("tr_imst"),
    "uyghur": Treebank.ud("ug_udt"),
    "hungarian": Treebank.ud("hu_szeged"),
}


class RunError(Exception):
    """A system that stopped; the text is the end of what it wrote."""


def run(*arguments: object) -> dict[str, float]:
    """What `peers.py` prints with these arguments."""
    command = [sys.executable, str(Path(__file__).with_name("peers.py")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, env=os.environ | ONE_THREAD)
    if done.returncode:
        said = done.stderr.decode(errors="replace").split() or ["nothing said"]
        raise RunError(f"exit code {done.returncode}: {' '.join(said[-20:])}")
    return json.loads(done.stdout)


def size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def measure(
    system: str, files: dict[str, Path | None], folder: Path, epochs: int | None, repeat: int
) -> dict[str, object]:
    """One row of the table."""
    model, output = folder / f"{system}.model", folder / f"{system}.out"
    options: list[object] = ["--dev", files["dev"]] if files["dev"] else []
    options += ["--epochs", epochs] if epochs else []
    training = run("train", system, files["train"], model, *options)
    parsing = run("parse", system, model, files["test"], output, "--repeat", repeat)
    gold = files["test"]
    scores = evaluate(read(gold), read(output), "conllx").to_dict()
    trees = [len(roots(sentence.heads)) for sentence in read(output)]
    return {
        "system": system,
        "UAS": scores["uas_all"],
        "LAS": scores["las_all"],
        "UAS_np": scores["uas_np"],
        "LAS_np": scores["las_np"],
        "complete": scores["complete_uas"],
        "dev_UAS": dev_uas(model) if issubclass(SYSTEMS[system], Arcwise) else None,
        "multiroot": 100 * sum(count > 1 for count in trees) / len(trees),
        "model_MB": round(size(model) / 1e6, 1),
        **training,
        **parsing,
    }


def dev_uas(model: Path) -> float | None:
    """Of the epoch that was kept."""
    header, archive = open_model(model)
    archive.close()
    best = [epoch["dev_uas"] for epoch in header["record"]["epochs"] if epoch["best"]]
    return best[-1]


def environment() -> dict[str, str]:
    """Machine, and versions of what has a part in the figures."""
    lines = {
        "machine": f"{platform.machine()} {processor()}, {os.cpu_count()} cores",
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "arcwise": __version__,
    }
    for package in ("numpy", "scipy", "spacy", "thinc", "ufal.udpipe"):
        with suppress(PackageNotFoundError):
            lines[package] = version(package)
    return lines


def with_ratios(rows: list[dict[str, object]]) -> Iterator[dict[str, object]]:
    """The rows, each with our speed in multiples of its own (None if ours is not known)."""
    ours = next((row["tokens/s"] for row in rows if row["system"] == "arcwise"), None)
    for row in rows:
        yield row | {"times": ours / row["tokens/s"] if ours else None}


def names(known: Iterable[str]) -> Callable[[object, object, str], list[str]]:
    """A callback for options that take names separated by commas."""

    def split(_: object, __: object, value: str) -> list[str]:
        chosen = value.split(",")
        if unknown := set(chosen) - set(known):
            raise click.BadParameter(f"not one of {', '.join(known)}: {', '.join(unknown)}")
        return chosen

    return split


@click.command()
@click.option(
    "--treebanks",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(__file__).resolve().parents[3] / "shared" / "treebanks",
    help="Folder with conllx, ptb_sample and ud.  [default: ../shared/treebanks]",
)
@click.option("--only", default=",".join(TREEBANKS), callback=names(TREEBANKS), show_default=True)
@click.option(
    "--systems",
    default="arcwise,first-order,spacy,udpipe",
    callback=names(SYSTEMS),
    show_default=True,
)
@click.option("--repeat", default=3, show_default=True, help="Runs for the median speed.")
@click.option("--epochs", type=int, help="For a quick run.  [default: each system's own]")
@click.option("--sentences", type=int, help="First so many of each file, for a quick run.")
@click.option(
    "--json", "record", type=click.Path(path_type=Path), help="Written after each system."
)
def main(
    treebanks: Path,
    only: list[str],
    systems: list[str],
    repeat: int,
    epochs: int | None,
    sentences: int | None,
    record: Path | None,
) -> None:
    """Print a table of accuracy, time and memory for each treebank."""
    lines = environment()
    for name, value in lines.items():
        click.echo(f"{name:<12} {value}")
    for system, package in PEERS.items():
        if system in systems and package not in lines:
            systems.remove(system)
            click.echo(f"{system} is left out: {package} is not installed")
    results: dict[str, list[dict[str, object]]] = {}
    for name in only:
        rows = results[name] = []
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            try:
                files = TREEBANKS[name].unpack(treebanks, folder, sentences)
            except TreebankError as error:
                click.echo(f"\n{name} is left out: {error}")
                continue
            click.echo(f"\n{name}")
            for system in systems:
                try:
                    row = measure(system, files, folder, epochs, repeat)
                except (RunError, TreebankError) as error:
                    click.echo(f"{system} failed: {error}")
                    continue
                rows.append(row)
                if not TREEBANKS[name].labelled:
                    row["LAS"] = row["LAS_np"] = None
                if record:
                    record.write_text(json.dumps(lines | {"results": results}, indent=1) + "\n")
        click.echo(table(list(with_ratios(rows))))


if __name__ == "__main__":
    main()
