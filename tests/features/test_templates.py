"""The template table as text."""

from __future__ import annotations

import pytest

from parser.features.templates import Template, arc_templates, fingerprint


def test_an_unknown_atom_is_named():
    with pytest.raises(ValueError, match=r"'Hp Qx Mp'.*'Qx'"):
        Template.parse("Hp Qx Mp")


def test_templates_that_read_an_absent_column_are_left_out():
    full, small = arc_templates(frozenset()), arc_templates(frozenset({"l", "f", "m"}))
    assert set(small) < set(full)
    assert not any(t.fields() & {"l", "f", "m"} for t in small)
    assert len(full) == len(set(full))


def test_seeds_are_fixed():
    assert fingerprint("") == 0xCBF29CE484222325  # FNV-1a's own test values
    assert fingerprint("a") == 0xAF63DC4C8601EC8C
