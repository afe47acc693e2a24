"""Fixtures shared by all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of papers and treebanks beside the project; tests that need it skip without it."""
    folder = ROOT.parent / "shared"
    if not (folder / "treebanks").is_dir():
        pytest.skip(f"needs {folder.name}/treebanks beside the checkout")
    return folder


@pytest.fixture(scope="session")
def english() -> Path:
    """The small English treebank that the project ships."""
    return ROOT / "data" / "english.conllu"
