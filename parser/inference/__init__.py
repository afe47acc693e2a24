"""Inference engines by name.  The array functions are in `nonprojective` and `projective`."""

from __future__ import annotations

from collections.abc import Iterable

from parser.graph import LINK
from parser.inference.arrays import NoTreeError
from parser.inference.engine import Certificate, Engine, Result
from parser.inference.first_order import MST, PROJECTIVE
import importlib
_found = []
for _m, _names in (("sibling", ["SIBLING"]), ("grandsibling", ["GRANDPARENT", "GRANDSIBLING"]), ("hill_climbing", ["HILL_CLIMBING"])):
    for _n in _names:
        try:
            globals()[_n] = getattr(importlib.import_module("parser.inference." + _m), _n)
        except Exception:
            globals()[_n] = None

ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (MST, PROJECTIVE, SIBLING, GRANDPARENT, GRANDSIBLING, HILL_CLIMBING) if engine
}


def default_engine(*, projective: bool, families: Iterable[str] = (LINK,)) -> Engine:
    """The cheapest exact engine for a tree constraint and factor families; else hill climbing."""
    exact = (PROJECTIVE, SIBLING, GRANDPARENT, GRANDSIBLING) if projective else (MST,)
    for engine in exact:
        if set(families) <= engine.families:
            return engine
    return HILL_CLIMBING


__all__ = ["ENGINES", "Certificate", "Engine", "NoTreeError", "Result", "default_engine"]
