"""fused.h: the same bits with and without wide registers, and without the instruction."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cython_ext._build import FAST

HERE = Path(__file__).parent
COMPILER = shutil.which("cc") or shutil.which("gcc")


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_all_versions_of_a_kernel_give_the_same_bits(tmp_path):
    assert COMPILER is not None
    program = tmp_path / "versions"
    include = HERE.parents[1] / "cython_ext"
    source = HERE / "fused_versions.c"
    subprocess.run(
        [COMPILER, *FAST, "-w", f"-I{include}", source, "-o", program, "-lm"], check=True
    )
    done = subprocess.run([program], check=True, capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == 26
    for hashes in lines:
        assert len(set(hashes)) == 1
        assert int(hashes[0], 16) != 0
