"""Inference engines by name.  The array functions are in `nonprojective` and `projective`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from parser.graph import LINK
from parser.inference.arrays import NoTreeError
from parser.inference.engine import Certificate, Engine, Result
from parser.inference.first_order import MST, PROJECTIVE
from parser.inference.hill_climbing import HILL_CLIMBING, HillClimbing
from parser.inference.second_order import GRANDPARENT, GRANDSIBLING, SIBLING

ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (MST, PROJECTIVE, SIBLING, GRANDPARENT, GRANDSIBLING, HILL_CLIMBING)
}


def default_engine(*, projective: bool, families: Iterable[str] = (LINK,)) -> Engine:
    """The cheapest exact engine for a tree constraint and factor families; else hill climbing."""
    exact = (PROJECTIVE, SIBLING, GRANDPARENT, GRANDSIBLING) if projective else (MST,)
    for engine in exact:
        if set(families) <= engine.families:
            return engine
    return HILL_CLIMBING


def find_engine(text: str) -> Engine:
    """An engine by its name, or NAME:OPTION=VALUE,...: `hill-climbing:start=mst,restarts=5`.

    ValueError says which names, or which options of an engine, there are.
    """
    name, _, options = text.partition(":")
    if name not in ENGINES:
        raise ValueError(f"{name!r} is not one of {', '.join(ENGINES)}")
    if not options:
        return ENGINES[name]
    kind = type(ENGINES[name])
    known = inspect.signature(kind).parameters if kind is HillClimbing else {}
    values = {}
    for option in options.split(","):
        key, _, value = option.partition("=")
        if key not in known:
            raise ValueError(
                f"{name} has no option {key!r}" + (f"; it has {', '.join(known)}" if known else "")
            )
        wanted = type(known[key].default)
        try:
            values[key] = wanted(value)
        except ValueError:
            raise ValueError(f"{name}: {key}={value!r} is not {wanted.__name__}") from None
    engine = kind(**values)
    engine.name = text
    return engine


__all__ = [
    "ENGINES",
    "HILL_CLIMBING",
    "Certificate",
    "Engine",
    "NoTreeError",
    "Result",
    "default_engine",
    "find_engine",
]
