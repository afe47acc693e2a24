"""The experiment on a small treebank in place of the real ones: rows, resuming, errors."""

from __future__ import annotations

import json
import tomllib

import pytest

from parser.model import Settings
from parser.reproduction import ReproductionError, SmithEisner2008, Workshop, load
from parser.reproduction.smith_eisner_2008 import MODELS, TABLE_2, TABLE_3, Scale, report
from parser.reproduction.workshop import Decoded
from parser.treebank import read_all
from tests.cli.test_cli import parser


@pytest.fixture(scope="module")
def treebanks(english, tmp_path_factory):
    folder = tmp_path_factory.mktemp("treebanks")
    (folder / "conllx").mkdir()
    sentences = read_all([english])
    for name, part in (("train", sentences[:110]), ("test", sentences[170:])):
        text = "".join(sentence.to_conll() for sentence in part)
        (folder / "conllx" / f"da_ddt_{name}.conllx").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def results(treebanks, tmp_path_factory):
    """What the command prints as JSON, and the folder of its models and results."""
    folder = tmp_path_factory.mktemp("out")
    options = ("--treebank", treebanks, "--quick", "--epochs", 1, "-o", folder, "--json")
    code, out, err = parser("reproduce", "smith-eisner-2008", *options)
    assert code == 0, err
    assert err.count("training") == 10  # four models, four weaker constraints, two of the figures
    return json.loads(out), folder, options


@pytest.mark.slow
def test_the_report_has_the_rows_of_the_paper(results):
    blocks = list(report(results[0]))
    for title, *_ in (*TABLE_2.values(), *TABLE_3.values()):
        assert any(line.startswith(title) for block in blocks for line in block.splitlines())
    assert "86.50" in blocks[0]  # a published figure beside ours
    assert "BP 10 error" in blocks[3]
    own = results[0]["languages"]["da"]["table_2"]
    assert all(40 < Decoded(**row).uas <= 100 for row in own.values())


@pytest.mark.slow
def test_what_is_there_is_not_made_again(results):
    first, folder, options = results
    models = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    code, out, err = parser("reproduce", "smith-eisner-2008", *options)
    assert (code, err) == (0, "")
    assert json.loads(out) == first
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == models


@pytest.mark.slow
def test_a_result_that_is_missing_is_measured_again(results, treebanks):
    first, folder, _ = results
    lines = []
    workshop = Workshop(folder, announce=lines.append)
    next(folder.glob("da-table-2-link-*.json")).unlink()
    scale = Scale(epochs=1, sentences=800, longest=40)
    again = SmithEisner2008(workshop, [load(treebanks, "da")], scale).run()
    assert lines == ["measuring da-table-2-link"]
    own, before = (r["languages"]["da"]["table_2"]["link"] for r in (again, first))
    assert own["right"] == before["right"]


def test_a_treebank_that_is_missing_is_named(treebanks):
    with pytest.raises(ReproductionError, match=r"nl_alpino_train\.conllx: no such file"):
        load(treebanks, "nl")
    code, out, err = parser(
        "reproduce", "smith-eisner-2008", "--treebank", treebanks, "--language", "nl"
    )
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1


def test_config_files_are_what_is_trained(english):
    configs = english.parent.parent / "configs"
    for name, settings in MODELS.items():
        path = configs / f"smith-eisner-2008-{name}.toml"
        assert Settings.from_dict(tomllib.loads(path.read_text()), str(path)) == settings


def test_accuracy_counts_words_of_all_sentences():
    first = Decoded([1, 3], [2, 6], 0.0)
    assert first.uas == 50.0
