"""Files are written in full or not at all."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import threading
import time

import pytest

from parser.treebank import TreebankError, open_output

TEXT = "1\t\u00e9\n\n"
posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")


def test_the_file_appears_only_when_it_is_complete(tmp_path):
    path = tmp_path / "out.conllu"
    path.write_text("old")
    with open_output(path) as out:
        out.write(TEXT)
        assert path.read_text() == "old"
    assert path.read_bytes() == TEXT.encode("utf-8")
    assert os.listdir(tmp_path) == ["out.conllu"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("name", ["out.conllu", "out.conllu.gz"])
def test_whatever_interrupts_leaves_the_old_file_and_nothing_else(tmp_path, error, name):
    path = tmp_path / name
    path.write_text("old")

    def interrupted():
        with open_output(path) as out:
            out.write(TEXT)
            raise error

    with pytest.raises(error):
        interrupted()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize(
    ("suffix", "unpack"), [(".gz", gzip.open), (".xz", lzma.open), (".bz2", bz2.open)]
)
def test_the_name_says_how_to_pack_and_equal_text_gives_equal_bytes(
    tmp_path, monkeypatch, suffix, unpack
):
    paths = [tmp_path / ("a" + suffix), tmp_path / ("b" + suffix)]
    for day, path in enumerate(paths):
        monkeypatch.setattr(time, "time", lambda day=day: 86400.0 * day)
        with open_output(path) as out:
            out.write(TEXT)
    with unpack(paths[0]) as file:
        assert file.read() == TEXT.encode("utf-8")
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_standard_output_gets_the_same_bytes_and_stays_open(capfdbinary):
    with open_output("-") as out:
        out.write(TEXT)
    assert capfdbinary.readouterr().out == TEXT.encode("utf-8")
    print("more", flush=True)
    assert capfdbinary.readouterr().out.split() == [b"more"]


def test_places_where_no_file_can_be_are_named(tmp_path):
    missing = tmp_path / "none" / "out"
    for path, reason in [(missing, "No such file or directory"), (tmp_path, "it is a folder")]:
        with pytest.raises(TreebankError) as caught, open_output(path):
            pytest.fail("was opened")
        assert str(caught.value) == f"{path}: cannot write: {reason}"
    assert os.listdir(tmp_path) == []


@posix
def test_links_stay_links_and_permissions_stay(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    with open_output(link) as out:
        out.write(TEXT)
    assert link.is_symlink()
    assert real.read_bytes() == TEXT.encode("utf-8")
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


@posix
def test_a_named_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    with open_output(pipe) as out:
        out.write(TEXT)
    reader.join(timeout=10)
    assert got == [TEXT.encode("utf-8")]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_told_with_the_name_of_the_file():
    with pytest.raises(TreebankError) as caught, open_output("/dev/full") as out:
        out.write(TEXT)
    assert str(caught.value) == "/dev/full: cannot write: No space left on device"
