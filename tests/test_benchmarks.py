"""The scripts under tests/benchmarks run, and say what their columns promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).with_name("benchmarks")


def run(script: str, *arguments: object) -> str:
    """What a script prints; it ends without an error."""
    command = [sys.executable, str(SCRIPTS / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("script", "options", "columns"),
    [
        ("kernels.py", "--sizes 4 --batch 2 --repeats 1", ["matrix-tree, marginals", "inside"]),
        ("propagation.py", "--sizes 5 --iterations 1", ["tree", "iteration", "separation"]),
        ("decomposition.py", "--sizes 6 --sentences 2", ["DD proved", "AD3", "projective DP"]),
        ("programs.py", "--sizes 4 --sentences 1", ["ilp", "lp", "exact grandsibling"]),
    ],
)
def test_each_kernel_has_a_benchmark(script, options, columns):
    printed = run(script, *options.split())
    for column in columns:
        assert column in printed


@pytest.mark.slow  # it compiles the O(n^5) program
def test_the_program_in_n5_agrees_with_that_in_n4_and_is_timed():
    printed = run("runtime.py", "--sizes", "5,20")
    assert "exponent" in printed
    assert "than grandsib n^5 MBR" in printed


@pytest.mark.slow
def test_moves_of_hill_climbing_are_timed(tmp_path, english):
    model, config = tmp_path / "model", tmp_path / "small.toml"
    config.write_text("bits = 14\nepochs = 1\nlabel_epochs = 0\nprojective = false\n")
    command = [sys.executable, "-m", "parser", "train", english, "--config", config, "-o", model]
    subprocess.run([*map(str, command), "--quiet"], check=True)
    assert "%" in run("climbing.py", model, english, "--repeat", 1)


@pytest.mark.slow
def test_parsers_are_trained_and_scored(shared):
    options = "--only latin --systems first-order --epochs 1 --sentences 20 --repeat 1"
    printed = run("parsers.py", "--treebanks", shared / "treebanks", *options.split())
    assert "train CPU s" in printed
