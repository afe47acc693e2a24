"""The experiment on a small treebank in place of the real one."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import pytest

from parser.model import Settings
from parser.reproduction.chang_2015 import (
    BASE,
    COSTLY,
    EXPENSIVE,
    LAZY,
    METHODS,
    PAPER,
    RAW,
    SVM,
    TABLE_1,
    report,
    tables,
)
from parser.treebank import read_all
from tests.cli.test_cli import parser


@pytest.fixture(scope="module")
def results(english, tmp_path_factory):
    """What the command prints as JSON, and its options."""
    folder = tmp_path_factory.mktemp("treebanks")
    (folder / "conllx").mkdir()
    sentences = [sentence for sentence in read_all([english]) if len(sentence) <= 9]
    for name, part in (("train", sentences[:30]), ("test", sentences[30:50])):
        text = "".join(sentence.to_conll() for sentence in part)
        (folder / "conllx" / f"da_ddt_{name}.conllx").write_text(text, encoding="utf-8")
    options = ("--treebank", folder, "--quick", "--sentences", 8, "--epochs", 8)
    options = (*options, "-o", folder / "out", "--json")
    code, out, err = parser("reproduce", "chang-2015", *options)
    assert code == 0, err
    return json.loads(out), options


@pytest.mark.slow
def test_tables_have_a_row_for_each_method_and_the_published_figures(results):
    printed, _ = results
    made = tables(printed["results"])
    assert made == printed["tables"]
    rows = next(iter(made.values()))
    methods = [(learner, name) for learner, each in METHODS.items() for name in each]
    ours = [(row["learner"], row["cache"]) for row in rows if row["task"] != PAPER]
    assert ours == methods
    published = {(r["learner"], r["cache"]): r for r in rows if r["task"] == PAPER}
    assert set(published) == set(TABLE_1)
    assert all(isinstance(block, str) for block in report(printed["results"]))


@pytest.mark.slow
def test_exact_caches_save_calls_and_end_in_the_same_objective(results):
    rows = next(iter(results[0]["tables"].values()))
    ours = {row["cache"]: row for row in rows if row["task"] != PAPER and row["learner"] == SVM}
    raw = ours[RAW]
    calls, dual = (next(key for key in raw if part in key) for part in ("calls", "-D"))
    for name in ("epsilon 0", "exact", "margin"):
        assert ours[name][calls] <= raw[calls]
        assert ours[name][dual] == pytest.approx(raw[dual], rel=1e-3)
    for name in ("lazy", "epsilon 1", "epsilon 1, near", "epsilon 10"):
        assert ours[name][calls] < raw[calls]


@pytest.mark.slow
def test_engines_that_cost_more_are_called_less(results):
    rows = results[0]["tables"]["costly_engines"]
    assert [(row["engine"], row["cache"]) for row in rows] == list(product(COSTLY, EXPENSIVE))
    for engine in COSTLY:
        raw, exact, lazy = (row for row in rows if row["engine"] == engine)
        assert lazy["calls_%"] < exact["calls_%"] <= raw["calls_%"] == 100
        assert raw["training_s"] > raw["inference_s"] > 0
        if "dual" not in engine:  # which gives up at some trees
            assert lazy["training_speed-up"] > 1
            assert exact["-D"] == pytest.approx(raw["-D"], rel=1e-6)


@pytest.mark.slow
def test_nothing_is_measured_twice(results):
    printed, options = results
    _, again, err = parser("reproduce", "chang-2015", *options)
    assert "measuring" not in err
    assert json.loads(again) == printed


def test_the_configuration_is_that_of_the_experiment(english):
    path = english.parent.parent / "configs" / "chang-2015.toml"
    given = Settings.from_toml(path)
    ours = replace(BASE, **LAZY)
    assert {name: getattr(ours, name) for name in given} == {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
    }
