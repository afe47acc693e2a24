"""Model files: whole, readable, and refused in one line when they are not."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import zipfile

import numpy as np
import pytest

from parser.learning import Trainer
from parser.model import Model, ModelError, Parser, Settings, SettingsError, in_order
from parser.treebank import Sentence, read_all, replace_file

forks = pytest.mark.skipif(
    sys.platform == "darwin" or not hasattr(os, "fork"),
    reason="processes are not forked here",
)


@pytest.fixture(scope="module")
def sentences(english):
    return read_all([english])


@pytest.fixture(scope="module")
def path(sentences, tmp_path_factory):
    settings = Settings(bits=14, label_bits=10, label_epochs=2, epochs=2)
    file = tmp_path_factory.mktemp("model") / "english.model"
    Trainer(settings, sentences[:80]).run().save(file)
    return file


def test_a_loaded_model_parses_like_the_one_that_was_saved(path, sentences, tmp_path):
    model = Model.load(path)
    again = tmp_path / "again"
    model.save(again)
    assert again.read_bytes() == path.read_bytes()
    parser = Parser(model)
    for sentence in sentences[80:90]:
        parse = parser.parse(sentence)
        assert len(parse.deprels) == len(sentence)


def test_the_header_is_plain_json(path):
    with zipfile.ZipFile(path) as archive:
        header = json.loads(archive.read("header.json"))
    assert header["format"] == "arcwise model"
    assert "nsubj" in header["labels"]
    assert header["record"]["data"]["sentences"] == 80


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5, 0.99])
def test_a_cut_off_file_is_refused(path, tmp_path, keep):
    data = path.read_bytes()
    cut = tmp_path / "cut"
    cut.write_bytes(data[: int(keep if keep >= 1 else keep * len(data))])
    with pytest.raises(ModelError, match=r"not a model file|damaged") as error:
        Model.load(cut)
    assert "\n" not in str(error.value)


def test_random_bytes_and_flipped_bytes_are_refused(path, tmp_path):
    rng = np.random.default_rng(0)
    noise = tmp_path / "noise"
    noise.write_bytes(rng.bytes(5000))
    with pytest.raises(ModelError, match="not a model file"):
        Model.load(noise)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    noise.write_bytes(data)
    with pytest.raises(ModelError, match="damaged"):
        Model.load(noise)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("version", 99, "install a newer version"),
        ("arc_templates", 77, "train it again"),
        ("format", "something else", "not a model file"),
        ("settings", {"colour": "red"}, "unknown setting 'colour'"),
        ("label_table", "x", "damaged"),
    ],
)
def test_other_formats_are_refused(path, tmp_path, key, value, message):
    other = tmp_path / "other"
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(other, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name == "header.json":
                data = json.dumps(json.loads(data) | {key: value}).encode()
            target.writestr(name, data)
    with pytest.raises(ModelError, match=message):
        Model.load(other)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"nothing\.model: No such file"):
        Model.load(tmp_path / "nothing.model")


def test_a_failed_write_leaves_the_old_file(tmp_path):
    target = tmp_path / "file"
    target.write_text("old")

    def write():
        with replace_file(target) as out:
            out.write(b"new")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        write()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epoch": 3}, "unknown setting 'epoch'"),
        ({"epochs": "3"}, "epochs: int is wanted"),
        ({"epochs": True}, "epochs: int is wanted"),
        ({"epochs": 0}, "epochs: 1 to"),
        ({"learner": "svm"}, "learner: one of"),
        ({"factors": ["link", "grandma"]}, "'grandma' is not one of link, sib"),
        ({"factors": ["grand"]}, "link cannot be left out"),
        ({"keep_rows": 1.5}, "keep_rows: 0.0 to 1.0"),
        ({"part_rate": 0}, "part_rate: 1e-06 to"),
        ({"part_rate": 0.5, "optimizer": "adagrad"}, "part_rate: adagrad has"),
    ],
)
def test_settings_are_checked(values, message):
    with pytest.raises(SettingsError, match=message):
        Settings.from_dict(values, "here")


def test_shipped_settings_can_be_read(english):
    for file in (english.parent.parent / "configs").glob("*.toml"):
        Settings.from_dict(Settings.from_toml(file), str(file))
    default = english.parent.parent / "configs" / "default.toml"
    assert Settings.from_dict(Settings.from_toml(default), "default") == Settings()


def test_given_heads_are_kept_and_the_rest_is_the_best_tree_around_them(path, sentences):
    parser = Parser(Model.load(path), keep_heads=True)
    free = Parser(parser.model)
    rng = np.random.default_rng(0)
    for sentence in sentences[80:100]:
        keep = rng.random(len(sentence)) < 0.3
        heads = np.where(np.concatenate([[False], keep]), sentence.heads, -1)
        given = Sentence.from_columns(
            sentence.forms,
            upos=sentence.upos,
            xpos=sentence.xpos,
            lemmas=sentence.lemmas,
            feats=sentence.feats,
            heads=heads,
        )
        kept, best = parser.parse(given), free.parse(given)
        assert (kept.heads[1:][keep] == sentence.heads[1:][keep]).all()
        assert kept.score <= best.score + 1e-9
        if (best.heads[1:][keep] == sentence.heads[1:][keep]).all():
            np.testing.assert_array_equal(kept.heads, best.heads)


def test_one_best_is_the_first_of_n_best(path, sentences):
    parser = Parser(Model.load(path))
    for sentence in sentences[80:90]:
        trees = parser.k_best(sentence, 4)
        best = parser.parse(sentence)
        np.testing.assert_array_equal(trees[0].heads, best.heads)
        assert trees[0].deprels == best.deprels
        assert [t.score for t in trees] == sorted((t.score for t in trees), reverse=True)
        assert len({tuple(t.heads.tolist()) for t in trees}) == len(trees)


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_work_done_side_by_side_keeps_order_and_is_read_lazily(processes):
    read = []

    def numbers():
        for i in range(1000):
            read.append(i)
            yield i

    def squares(batch):
        if 960 in batch:
            raise ValueError("960 is too much")
        return [i * i for i in batch]

    results = in_order(squares, numbers(), 2, processes=processes)
    assert next(results) == (0, 0)
    assert len(read) < 400
    for i in range(1, 960):
        assert next(results) == (i, i * i)
    with pytest.raises(ValueError, match="960 is too much"):
        next(results)


@forks
def test_work_goes_to_as_many_processes_and_they_end():
    results = in_order(lambda batch: [os.getpid()] * len(batch), range(3000), 3, processes=True)
    pids = {pid for _, pid in results}
    assert 2 <= len(pids) <= 3  # the input may be at its end before the third has begun
    assert os.getpid() not in pids
    assert multiprocessing.active_children() == []


@forks
def test_work_left_behind_ends_its_processes():
    results = in_order(list, range(100000), 2, processes=True)
    assert next(results) == (0, 0)
    assert len(multiprocessing.active_children()) == 2
    results.close()
    assert multiprocessing.active_children() == []


@forks
def test_a_killed_process_is_an_error_and_not_an_end():
    def die(batch):
        if 500 in batch:
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    with pytest.raises(ChildProcessError, match="killed before its work was done"):
        list(in_order(die, range(1000), 2, processes=True))
