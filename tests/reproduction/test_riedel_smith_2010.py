"""The experiment on a small treebank in place of the real one."""

from __future__ import annotations

import importlib.util
import json
import tomllib

import numpy as np
import pytest

from parser.inference import Result
from parser.inference.engine import Relaxation
from parser.model import Settings
from parser.reproduction import load
from parser.reproduction.riedel_smith_2010 import (
    BASE,
    ENGINES,
    FIRST_ORDER,
    FULL,
    PRUNED,
    RELAXED,
    TABLE_1,
    WHOLE,
    errors,
    plot,
    relaxation,
    report,
    tables,
    total,
)
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


@pytest.mark.slow
def test_time_goes_where_it_can(results):
    rows = {row["inference"]: row for row in results[0]["tables"]["time"]}
    whole = {row["inference"]: row["whole_us"] for row in results[0]["tables"]["table_1"]}
    for name, row in rows.items():
        assert sum(row[f"{part}_us"] for part in WHOLE) == pytest.approx(whole[name])
        assert row["tree_us"] > 0
        assert (row["separation_us"] > 0) == (name in RELAXED or name.endswith("product"))
    assert rows[FIRST_ORDER]["pairs_us"] == 0
    assert rows[FIRST_ORDER]["iterations"] == 1


@pytest.mark.slow
def test_the_rival_at_equal_error_has_no_larger_one(results):
    rows = results[0]["tables"]["equal_error"]
    assert [row["relaxed"] for row in rows] == list(RELAXED)
    for row in rows:
        assert row["pruned"] in (FULL, *PRUNED)
        assert row["its_error"] <= row["error_words"]
        assert row["times"] == pytest.approx(row["its_us"] / row["after_arcs_us"])


@pytest.mark.slow
def test_lengths_share_the_sentences_among_them(results):
    printed, _ = results
    for row, bins in zip(
        printed["tables"]["table_1"], printed["results"]["da"].values(), strict=True
    ):
        both = total(bins)
        assert both["sentences"] == sum(each["sentences"] for each in bins if each) == 13
        assert row["UAS"] == 100 * both["right"] / both["words"]
    assert sum(row["sentences"] for row in printed["tables"]["figure_1"]) == 13


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib")
def test_an_image_of_the_figure(results, tmp_path):
    plot(tmp_path / "figure.png", results[0]["results"])
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_three_readings_of_the_error():
    full = np.array([0.9, 0.1, 0.4, 0.6])  # from the root and the other word, into 1 and 2
    ours = np.array([0.7, 0.3, 0.4, 0.6])
    assert errors(full, full) == (0, 0, 0)
    assert errors(ours, full) == pytest.approx((0.1, 0.1, 0.1))
    ours = np.array([0.9, 0.3, 0.4, 0.2])
    assert errors(ours, full) == pytest.approx((0.15, 0.15, 0.2))


def test_full_inference_has_all_parts_as_factors():
    full = relaxation(Result(), 3)
    # An arc from the root or another word, and another from its modifier, be it back; siblings.
    assert full["added"] == full["total"] == full["scored"] == (3 + 6) * 2 + 3 + 3
    assert full["size"] == 1
    some = relaxation(Result(relaxation=Relaxation(2, 3, 5, 20, 8)), 3)
    assert some == {"size": 0.25, "added": 5, "total": 20, "scored": 8, "rounds": 2}


def test_italian_trains_on_other_treebanks_than_it_is_tested_on(english, tmp_path):
    (tmp_path / "ud").mkdir()
    names = ("partut-ud-train", "vit-ud-dev", "vit-ud-test", "isdt-ud-dev", "isdt-ud-test")
    sentences = read_all([english])
    for name, sentence in zip(names, sentences, strict=False):
        (tmp_path / "ud" / f"it_{name}.conllu").write_text(sentence.to_conll(), encoding="utf-8")
    data = load(tmp_path, "it")
    read = [*data.train, *data.dev, *data.test]
    assert (len(data.train), len(data.dev), len(data.test)) == (3, 1, 1)
    assert [s.forms for s in read] == [s.forms for s in sentences[:5]]
    (tmp_path / "ud" / "it_vit-ud-test.conllu").unlink()
    code, _, err = parser(
        "reproduce", "riedel-smith-2010", "--treebank", tmp_path, "--language", "it"
    )
    assert code == 1
    assert "it_vit-ud-test.conllu" in err


def test_the_config_file_is_what_is_trained(english):
    path = english.parent.parent / "configs" / "riedel-smith-2010.toml"
    settings = Settings.from_dict(tomllib.loads(path.read_text()), str(path))
    assert settings == Settings(**BASE.to_dict() | {"projective": False})
