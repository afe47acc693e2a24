"""`parser tune`: cross-validation over settings."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from parser.cli.tune import parse_grids
from parser.learning import TrainingError
from parser.learning.cross_validation import assign, chains, cross_validate
from parser.model import Settings, SettingsError
from parser.treebank import read_all
from tests.cli.test_cli import parser

CONFIG = 'factors = ["link"]\nbits = 14\nlabel_bits = 10\nlabel_epochs = 1\nepochs = 1\n'


def tune(*args, cwd):
    """Run the command; (exit code, stdout, stderr)."""
    return parser("tune", *args, cwd=cwd)


@pytest.fixture(scope="module")
def folder(english, tmp_path_factory):
    """A folder with small.conllu of 60 sentences and config.toml."""
    folder = tmp_path_factory.mktemp("tune")
    text = "".join(s.to_conll() for s in read_all([english])[:60])
    (folder / "small.conllu").write_text(text, encoding="utf-8")
    (folder / "config.toml").write_text(CONFIG)
    return folder


@pytest.fixture(scope="module")
def report(folder):
    """What --json prints for three settings."""
    code, out, err = tune(
        *("small.conllu", "--config", "config.toml", "--folds", 3, "--json"),
        *("--grid", "aggressiveness=0.0001,0.1", "--grid", "epochs=1"),
        cwd=folder,
    )
    assert code == 0, err
    assert err == "60 sentences in 3 folds, 2 settings: 6 models\n"
    return json.loads(out)


def test_json_has_means_deviations_and_the_scores_of_each_fold(report):
    assert [row["setting"] for row in report["settings"]] == [
        {"aggressiveness": 0.0001, "epochs": 1},
        {"aggressiveness": 0.1, "epochs": 1},
    ]
    for row in report["settings"]:
        assert len(row["folds"]) == 3
        for name in ("uas", "las"):
            scores = [fold[name] for fold in row["folds"]]
            assert row[name] == pytest.approx(statistics.fmean(scores))
            assert row[f"{name}_sd"] == pytest.approx(statistics.stdev(scores))
        assert 0.0 < row["las"] < row["uas"] < 100.0
    assert report["by"] == "las"
    best = max(report["settings"], key=lambda row: row["las"])
    assert report["best"] == best["setting"] == {"aggressiveness": 0.1, "epochs": 1}


def test_the_table_says_the_same_with_two_processes(folder, report):
    code, out, err = tune(
        *("small.conllu", "--config", "config.toml", "--folds", 3, "--jobs", 2, "--quiet"),
        *("--grid", "aggressiveness=0.0001,0.1"),
        cwd=folder,
    )
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["aggressiveness", "UAS", "LAS", "train", "s"]
    for line, row in zip(lines[1:3], report["settings"], strict=True):
        for name in ("uas", "las"):
            assert f"{row[name]:.2f} +- {row[f'{name}_sd']:.2f}" in line
    assert lines[-1] == "best LAS: aggressiveness=0.1"


def test_settings_with_and_without_relations_are_compared_by_heads(folder):
    code, out, err = tune(
        *("small.conllu", "--config", "config.toml", "--folds", 2, "--quiet"),
        *("--grid", "labelled=false,true", "--grid", "factors=link;link,grand"),
        *("--grid", "prune_epochs=1", "--grid", "prune_bits=10"),
        cwd=folder,
    )
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert lines[0][:2] == ["labelled", "factors"]
    assert [line[:2] for line in lines[1:5]] == [
        ["false", "link"],
        ["false", "link,grand"],
        ["true", "link"],
        ["true", "link,grand"],
    ]
    uas = {tuple(line[:2]): line[2] for line in lines[1:5]}
    assert uas["false", "link"] == uas["true", "link"]
    labelled, factors = max(uas, key=lambda setting: float(uas[setting]))
    assert out.splitlines()[-1] == f"best UAS: labelled={labelled}, factors={factors}"


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("epochs", "--grid: KEY=VALUE,... is wanted, got 'epochs'"),
        ("hue=1", "--grid: unknown setting 'hue'"),
        ("epochs=5,x", "--grid: epochs: a whole number is wanted, got 'x'"),
        ("rate=fast", "--grid: rate: a number is wanted, got 'fast'"),
        ("prune=maybe", "--grid: prune: true or false is wanted, got 'maybe'"),
        ("epochs=0", "settings: epochs: 1 to 10000, got 0"),
        ("learner=luck", "settings: learner: one of mira"),
    ],
)
def test_bad_grids_are_bad_use(folder, grid, message):
    code, out, err = tune("small.conllu", "--grid", grid, cwd=folder)
    assert (code, out) == (2, "")
    assert err.startswith(f"Error: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_cannot_be_trained_is_one_line(folder, jobs):
    code, out, err = tune(
        *("small.conllu", "--config", "config.toml", "--quiet", "--folds", 2, "--jobs", jobs),
        *("--grid", "engine=projective", "--grid", "projective=false"),
        cwd=folder,
    )
    assert (code, out) == (1, "")
    assert err == "Error: engine projective cannot keep to non-projective trees\n"


def test_more_folds_than_sentences_are_refused(folder):
    code, _, err = tune("small.conllu", "--grid", "epochs=1", "--folds", 61, cwd=folder)
    assert (code, err) == (1, "Error: 61 folds need as many sentences, there are 60\n")


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_no_process_stays_behind_when_it_is_stopped(folder, number, code):
    command = [sys.executable, "-m", "parser", "tune", "small.conllu", "--config", "config.toml"]
    command += ["--grid", "epochs=10000", "--jobs", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            assert process.stderr.readline().startswith("60 sentences")
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            if not children.exists():
                pytest.skip("needs /proc to see the processes")
            deadline = time.monotonic() + 20
            while len(workers := children.read_text().split()) < 3:
                assert time.monotonic() < deadline  # two workers, and multiprocessing's own
                time.sleep(0.05)
            time.sleep(0.5)
            process.send_signal(number)
            assert process.wait(timeout=20) == code
            deadline = time.monotonic() + 10
            while any(Path(f"/proc/{pid}").exists() for pid in workers):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()


def test_every_sentence_has_one_fold_and_sizes_are_even():
    for sentences, folds in ((10, 5), (11, 3), (7, 7)):
        fold_of = assign(sentences, folds, seed=0)
        sizes = np.bincount(fold_of, minlength=folds)
        assert sizes.sum() == sentences
        assert sizes.max() - sizes.min() <= 1
    assert assign(50, 5, 0).tolist() == assign(50, 5, 0).tolist() != assign(50, 5, 1).tolist()


def test_no_model_is_trained_on_what_it_is_scored_on(english, monkeypatch):
    sentences = read_all([english])[:30]
    trained, parsed = [], []

    class Recorder:
        def __init__(self, settings, rest, cache):
            trained.append({s.number for s in rest})
            self.settings = settings
            self.learner = SimpleNamespace(amortized=None)

        def run(self):
            return self

    class Copyist:
        def __init__(self, model):
            self.model = model

        def parse_all(self, held_out):
            parsed.append({s.number for s in held_out})
            return held_out  # gold trees, so that everything is right

    monkeypatch.setattr("parser.learning.cross_validation.Trainer", Recorder)
    monkeypatch.setattr("parser.learning.cross_validation.Parser", Copyist)
    scores = cross_validate([Settings()], sentences, 4, 0, "conllx", 1)
    assert [(s.uas, s.las) for s in scores[0]] == [(100.0, 100.0)] * 4
    every = {s.number for s in sentences}
    for seen, new in zip(trained, parsed, strict=True):
        assert seen | new == every
        assert not seen & new
    assert set().union(*parsed) == every
    assert sum(map(len, parsed)) == len(every)


def test_values_are_those_of_the_setting():
    grid = parse_grids(
        ["epochs=5, 10", "prune=true,false", "engine=bp:iterations=5,scale=4;mst", "epochs=10,20"]
    )
    assert grid == {
        "epochs": [5, 10, 20],
        "prune": [True, False],
        "engine": ["bp:iterations=5,scale=4", "mst"],
    }
    with pytest.raises(SettingsError, match="unknown setting 'epoch'"):
        parse_grids(["epoch=1"])


def test_a_worker_that_fails_ends_the_run(english):
    sentences = read_all([english])[:10]
    settings = Settings(learner="crf", engine="hill-climbing")
    with pytest.raises(TrainingError, match="learner crf needs marginals"):
        cross_validate([settings], sentences, 2, 0, "conllx", 2)


AMORTIZED = Settings(
    factors=("link",),
    bits=12,
    labelled=False,
    projective=False,
    learner="ssvm",
    amortize="exact",
    epochs=100,
)


def test_settings_of_a_fold_share_a_cache_where_they_have_one_and_the_same_engine():
    def with_(**changes):
        return replace(AMORTIZED, **changes)

    settings = [with_(svm_c=0.1), with_(engine="mst"), with_(amortize=""), with_(svm_c=1.0)]
    forward = chains(settings, 2, forward=True)
    assert forward == [[(0, 0), (3, 0)], [(0, 1), (3, 1)], [(1, 0)], [(1, 1)], [(2, 0)], [(2, 1)]]
    reset = chains(settings, 2, forward=False)
    assert sorted(reset) == [[(i, fold)] for i in range(4) for fold in range(2)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_forwarded_trees_save_calls_and_change_no_score(english, jobs):
    sentences = [s for s in read_all([english]) if len(s) <= 12][:24]
    settings = [replace(AMORTIZED, svm_c=c) for c in (0.01, 0.02)]
    plain, reset, forward = (
        cross_validate(chosen, sentences, 2, 0, "conll18", jobs, forward=forward)
        for chosen, forward in (
            ([replace(s, amortize="") for s in settings], True),
            (settings, False),
            (settings, True),
        )
    )
    for i in range(2):
        uas = [[score.uas for score in each[i]] for each in (plain, reset, forward)]
        assert uas[0] == uas[1] == uas[2]
        assert [s.problems for s in reset[i]] == [s.problems for s in forward[i]]
    assert [score.calls for score in plain[0]] == [None, None]
    assert [score.calls for score in forward[0]] == [score.calls for score in reset[0]]
    for with_, without in zip(forward[1], reset[1], strict=True):
        assert 0 < with_.calls < without.calls < without.problems


def test_the_table_has_the_calls_of_all_folds(folder):
    options = ("small.conllu", "--config", "config.toml", "--folds", 2, "--quiet")
    grids = ("--grid", "amortize=,exact", "--grid", "epochs=3")
    code, out, err = tune(*options, *grids, "--reset", cwd=folder)
    assert (code, err) == (0, "")
    header, without, with_ = (line.split() for line in out.splitlines()[:3])
    assert header[-3:] == ["s", "calls", "share"]
    assert without[-2:] == ["-", "-"]
    calls, share = int(with_[-2]), float(with_[-1])
    assert 0 < calls < 180
    assert share == pytest.approx(calls / 1.8, abs=0.01)
