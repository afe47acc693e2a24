"""Inference engines by name.  The array functions are in `nonprojective` and `projective`."""

from __future__ import annotations

from parser.inference.arrays import NoTreeError
from parser.inference.engine import Certificate, Engine, Result
from parser.inference.first_order import MST, PROJECTIVE

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (MST, PROJECTIVE)}


def default_engine(*, projective: bool) -> Engine:
    """The exact first-order engine for a tree constraint."""
    return PROJECTIVE if projective else MST


__all__ = ["ENGINES", "Certificate", "Engine", "NoTreeError", "Result", "default_engine"]
