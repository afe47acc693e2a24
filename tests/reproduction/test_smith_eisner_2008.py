"""The experiment on a small treebank in place of the real ones: rows, resuming, errors."""

from __future__ import annotations

import gzip
import json
import tomllib
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from parser.evaluation import permutation_test
from parser.model import Settings
from parser.reproduction import ReproductionError, SmithEisner2008, Workshop, available, load
from parser.reproduction.smith_eisner_2008 import MODELS, TABLE_2, TABLE_3, Scale, report, tables
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
    # four models, four weaker constraints, two of the figures
    trained = [line for line in err.splitlines() if "training" in line]
    assert [line.split("(")[1] for line in trained] == [f"{i} of 10 models)" for i in range(1, 11)]
    printed = json.loads(out)
    assert printed["tables"] == tables(printed["results"])
    return printed["results"], folder, options


@pytest.mark.slow
def test_the_report_has_the_rows_of_the_paper(results):
    blocks = list(report(results[0]))
    for title, *_ in (*TABLE_2.values(), *TABLE_3.values()):
        assert any(line.startswith(title) for block in blocks for line in block.splitlines())
    assert "86.50" in blocks[0]  # a published figure beside ours
    for title in ("Table 2", "Table 3", "Figures 2 to 4: PTREE + LINK + GRAND + CHILDSEQ, Danish"):
        assert any(block.startswith(title) for block in blocks)
    rows = tables(results[0])
    assert [row["published_en"] for row in rows["search_error"]] == [0.4, 2.4]
    assert [row["published_da"] for row in rows["ablation"]] == [2.2, 2.1, 1.7, 0.0]
    assert {"da_log-odds", "da_probabilities"} <= set(rows["ablation"][0])
    assert {"BP 10_error", "DP MBR_ms"} <= set(rows["figures_grand"][0])
    own = results[0]["languages"]["da"]["table_2"]
    assert all(40 < Decoded(**row).uas <= 100 for row in own.values())


@pytest.mark.slow
def test_times_are_of_pruned_graphs_and_of_full_ones(results):
    own = results[0]["languages"]["da"]
    rows = tables(results[0])["times"]
    assert [(row["arcs"], row["iterations"]) for row in rows] == [
        ("as in Table 2", 5),
        ("all", 5),
        ("all", 2),
    ]
    places = (("table_2", "childseq"), ("all_arcs", "childseq"), ("all_arcs", "short"))
    for row, (name, method) in zip(rows, places, strict=True):
        bp, climbing = (Decoded(**own[name][key]) for key in (method, "climbing"))
        assert row["ratio"] == pytest.approx(bp.seconds / climbing.seconds)
        assert row["BP"] == f"{bp.uas:.2f}"
    full = own["all_arcs"]
    assert set(full) == {"childseq", "short", "dp", "climbing"}
    assert all(40 < Decoded(**row).uas <= 100 for row in full.values())
    assert full["climbing"]["seconds"] > full["dp"]["seconds"]


@pytest.mark.slow
def test_every_row_is_tested_against_the_row_above(results):
    rows = tables(results[0])["significance"]
    tested = {(row["against"], row["model"]) for row in rows}
    assert tested >= set(pairwise(title for title, *_ in TABLE_2.values()))
    assert ("+hill climbing", "+CHILDSEQ") in tested
    assert all(0 < float(row["da_p"]) <= 1 for row in rows)


@pytest.mark.slow
def test_a_star_is_on_the_best_and_on_what_is_not_significantly_worse(results):
    own = results[0]["languages"]["da"]["table_2"]
    own = {name: Decoded(**value) for name, value in own.items()}
    best = max(own.values(), key=lambda each: each.uas)
    for (name, decoded), row in zip(own.items(), tables(results[0])["table_2"], strict=True):
        worse = permutation_test(np.subtract(best.right, decoded.right)) < 0.05
        assert row["da"] == f"{decoded.uas:.2f}{'' if worse else '*'}", name


@pytest.mark.slow
def test_what_is_there_is_not_made_again(results):
    first, folder, options = results
    models = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    code, out, err = parser("reproduce", "smith-eisner-2008", *options)
    assert (code, err) == (0, "")
    assert json.loads(out)["results"] == first
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


@pytest.mark.slow
def test_other_test_sentences_are_another_result(results, treebanks):
    _, folder, _ = results
    lines = []
    data = load(treebanks, "da")
    data = replace(data, test=[*data.test[1:], data.test[0]])
    scale = Scale(epochs=1, sentences=800, longest=40, figures=False)
    SmithEisner2008(Workshop(folder, announce=lines.append), [data], scale).run()
    assert lines
    assert all(line.startswith("measuring ") for line in lines)


def test_an_interrupted_training_goes_on_from_its_checkpoint(treebanks, tmp_path):
    data = load(treebanks, "da").first(30, 10)
    settings = replace(MODELS["link"], epochs=3, bits=12)

    def interrupt(line):
        if "epoch 2" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Workshop(tmp_path, announce=interrupt).model("link", settings, data)
    assert not list(tmp_path.glob("*.model"))
    lines = []
    Workshop(tmp_path, announce=lines.append).model("link", settings, data)
    # The second epoch was reported before its checkpoint was written.
    assert [line.split()[1] for line in lines if "epoch" in line] == ["2", "3"]
    (path,) = tmp_path.iterdir()
    Workshop(tmp_path / "at once").model("link", settings, data)
    assert path.read_bytes() == (tmp_path / "at once" / path.name).read_bytes()


def test_dev_sentences_are_a_file_or_the_last_of_training(treebanks, english, tmp_path):
    data = load(treebanks, "da")
    assert (len(data.train), len(data.dev)) == (99, 11)
    sentences = read_all([english])
    (tmp_path / "conllx").mkdir()
    for part, own in (("train", sentences[:9]), ("dev", sentences[9:14]), ("test", sentences[14:])):
        with gzip.open(
            tmp_path / "conllx" / f"nl_alpino_{part}.conllx.gz", "wt", encoding="utf-8"
        ) as file:
            file.write("".join(sentence.to_conll() for sentence in own))
    data = load(tmp_path, "nl")
    assert (len(data.train), len(data.dev)) == (9, 5)
    (tmp_path / "conllx" / "nl_alpino_dev.conllx.gz").unlink()
    data = load(tmp_path, "nl")
    assert (len(data.train), len(data.dev)) == (9, 0)
    assert available(tmp_path) == ["nl"]


def test_a_folder_without_treebanks_is_one_line_that_names_the_files(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        code, out, err = parser("reproduce", "smith-eisner-2008", "--treebank", folder)
        assert (code, out, err.count("\n")) == (1, "", 1)
        for name in ("conllx/da_ddt_train.conllx", "ptb_sample/en_ptbsample_test.conllx"):
            assert name in err


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
    first = Decoded([1, 3], [2, 6], [2, 4], [3, 7], 0.0)
    assert (first.uas, first.uas_all) == (50.0, 60.0)
