"""Make a train and a test file: of the Turkish treebanks of PyPI, or of our English one.

python data/split.py turkish FOLDER     every fifth sentence is for testing
python data/split.py english FOLDER     the last 40 are
"""

from __future__ import annotations

import sys
from importlib.metadata import distribution
from pathlib import Path

from parser.treebank import open_output, read


def turkish_files() -> list[Path]:
    """The treebank files of the installed package `turkish-treebanks` (Apache-2.0)."""
    files = distribution("turkish-treebanks").files or []
    return sorted(Path(str(f.locate())) for f in files if f.suffix == ".conllu")


def main(language: str, folder: str) -> None:
    train, test = [], []
    if language == "turkish":
        for path in turkish_files():
            for sentence in read(path):
                (test if sentence.number % 5 == 0 else train).append(sentence)
    else:
        sentences = list(read(Path(__file__).with_name("english.conllu")))
        train, test = sentences[:-40], sentences[-40:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, part in (("train", train), ("test", test)):
        with open_output(Path(folder) / f"{language}-{name}.conllu") as out:
            for sentence in part:
                out.write(sentence.to_conll())
        print(f"{language}-{name}: {len(part)} sentences, {sum(map(len, part))} words")


if __name__ == "__main__":
    main(*sys.argv[1:])
