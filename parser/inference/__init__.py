"""Inference engines by name.  The array functions are in `nonprojective` and `projective`."""

from __future__ import annotations

from collections.abc import Iterable

from parser.graph import LINK
from parser.inference.arrays import NoTreeError
from parser.inference.engine import Certificate, Engine, Result
from parser.inference.first_order import MST, PROJECTIVE
from parser.inference.hill_climbing import HILL_CLIMBING, HillClimbing
from parser.inference.mbr import MinimumBayesRisk
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
    """An engine by its name, or NAME:OPTION=VALUE,... as `hill-climbing:start=mst,restarts=5`.

    Engines with marginals have `decode=mbr`.  ValueError says which names, or which options of an
    engine, there are.
    """
    name, _, options = text.partition(":")
    if name not in ENGINES:
        raise ValueError(f"{name!r} is not one of {', '.join(ENGINES)}")
    engine = ENGINES[name]
    if not options:
        return engine
    defaults: dict[str, str | int] = {"decode": "best"}
    if engine is HILL_CLIMBING:
        defaults = {"start": engine.start, "restarts": engine.restarts, "seed": engine.seed}
    values = dict(defaults)
    for option in options.split(","):
        key, _, value = option.partition("=")
        if key not in defaults:
            raise ValueError(f"{name} has no option {key!r}; it has {', '.join(defaults)}")
        try:
            values[key] = type(defaults[key])(value)
        except ValueError:
            raise ValueError(f"{name}: {key} is a whole number, got {value!r}") from None
    if engine is HILL_CLIMBING:
        engine = HillClimbing(**values)
        engine.name = text
    elif values["decode"] == "mbr":
        engine = MinimumBayesRisk(engine)
    elif values["decode"] != "best":
        raise ValueError(f"{name}: decode is best or mbr, got {values['decode']!r}")
    return engine


__all__ = [
    "ENGINES",
    "HILL_CLIMBING",
    "Certificate",
    "Engine",
    "MinimumBayesRisk",
    "NoTreeError",
    "Result",
    "default_engine",
    "find_engine",
]
