"""The experiment on a small treebank in place of the real one."""

from __future__ import annotations

import json

import pytest

from parser.reproduction.riedel_smith_2010 import ENGINES, FULL, TABLE_1, report, tables
from parser.treebank import read_all
from tests.cli.test_cli import parser


@pytest.fixture(scope="module")
def results(english, tmp_path_factory):
    """What the command prints as JSON, and its options."""
    folder = tmp_path_factory.mktemp("treebanks")
    (folder / "conllx").mkdir()
    sentences = read_all([english])
    for name, part in (("train", sentences[:120]), ("test", sentences[180:])):
        text = "".join(sentence.to_conll() for sentence in part)
        (folder / "conllx" / f"da_ddt_{name}.conllx").write_text(text, encoding="utf-8")
    options = ("--treebank", folder, "--quick", "--epochs", 1, "-o", folder / "out", "--json")
    code, out, err = parser("reproduce", "riedel-smith-2010", *options)
    assert code == 0, err
    return json.loads(out), options


@pytest.mark.slow
def test_tables_have_a_row_for_each_way_to_infer_and_the_published_figures(results):
    printed, _ = results
    made = tables(printed["results"])
    assert made == printed["tables"]
    assert [row["inference"] for row in made["table_1"]] == list(ENGINES)
    published = {row["inference"]: row["published_acc"] for row in made["table_1"]}
    assert published[FULL] == TABLE_1[FULL]["da"][0] == 88.1
    assert sum(block.count("Danish") for block in report(printed["results"])) > 3 * len(ENGINES)


@pytest.mark.slow
def test_beliefs_are_nearer_the_more_pairs_are_added(results):
    rows = {row["inference"]: row for row in results[0]["tables"]["table_2"]}
    assert rows[FULL]["size"] == 100.0
    assert rows[FULL]["error_arcs"] == 0.0
    few, many = rows["Rel inf, 0.1, 50"], rows["Rel inf, 0.0001, 50"]
    assert few["size"] < many["size"] < 100.0
    assert many["scored"] < 100.0
    assert many["error_words"] < few["error_words"]


@pytest.mark.slow
def test_nothing_is_measured_twice(results):
    printed, options = results
    _, again, err = parser("reproduce", "riedel-smith-2010", *options)
    assert "measuring" not in err
    assert json.loads(again) == printed
