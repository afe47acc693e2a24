"""Inference engines by name.  The array functions are in `nonprojective` and `projective`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from parser.graph import LINK
from parser.inference.ad3 import AD3, ALTERNATING_DIRECTIONS
from parser.inference.amortized import Amortized, Cache
from parser.inference.arrays import NoTreeError
from parser.inference.belief_propagation import BELIEF_PROPAGATION, BeliefPropagation
from parser.inference.dual_decomposition import DUAL_DECOMPOSITION, DualDecomposition
from parser.inference.engine import Certificate, Engine, Result
from parser.inference.first_order import MST, PROJECTIVE
from parser.inference.hill_climbing import HILL_CLIMBING
from parser.inference.integer_program import (
    INTEGER_PROGRAM,
    LINEAR_PROGRAM,
    IntegerProgram,
    LinearProgram,
)
from parser.inference.mbr import MinimumBayesRisk
from parser.inference.relaxed import (
    PRUNED_BP,
    RELAXED_BP,
    PrunedBeliefPropagation,
    RelaxedBeliefPropagation,
)
from parser.inference.second_order import GRANDPARENT, GRANDSIBLING, SIBLING

ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        MST,
        PROJECTIVE,
        SIBLING,
        GRANDPARENT,
        GRANDSIBLING,
        HILL_CLIMBING,
        BELIEF_PROPAGATION,
        RELAXED_BP,
        PRUNED_BP,
        DUAL_DECOMPOSITION,
        ALTERNATING_DIRECTIONS,
        INTEGER_PROGRAM,
        LINEAR_PROGRAM,
    )
}


def default_engine(*, projective: bool, families: Iterable[str] = (LINK,)) -> Engine:
    """The cheapest exact engine for a tree constraint and factor families; else hill climbing."""
    exact = (PROJECTIVE, SIBLING, GRANDPARENT, GRANDSIBLING) if projective else (MST,)
    for engine in exact:
        if set(families) <= engine.families:
            return engine
    return HILL_CLIMBING


def exact_engine(*, projective: bool, families: Iterable[str]) -> Engine:
    """The cheapest engine whose trees are proved best, whatever it takes."""
    engine = default_engine(projective=projective, families=families)
    if engine is not HILL_CLIMBING:
        return engine
    if set(families) <= DUAL_DECOMPOSITION.families:
        return DUAL_DECOMPOSITION.proving()
    return INTEGER_PROGRAM


# What follows the name in find_engine, with the values that it has otherwise.
OPTIONS: dict[str, tuple[str, ...]] = {
    "hill-climbing": ("start", "restarts", "seed"),
    "dual-decomposition": tuple(f.name for f in fields(DUAL_DECOMPOSITION)),
    "ad3": tuple(f.name for f in fields(ALTERNATING_DIRECTIONS)),
    "ilp": tuple(f.name for f in fields(INTEGER_PROGRAM)),
    "lp": tuple(f.name for f in fields(LINEAR_PROGRAM)),
    "bp": tuple(f.name for f in fields(BELIEF_PROPAGATION)),
    "pruned-bp": tuple(f.name for f in fields(PRUNED_BP)),
    "relaxed-bp": tuple(f.name for f in fields(RELAXED_BP) if f.name != "anneal"),
}


def find_engine(text: str) -> Engine:
    """An engine by its name, or NAME:OPTION=VALUE,... as `hill-climbing:start=mst,restarts=5`.

    Exact engines with marginals have `decode=mbr`.  ValueError says which names, or which options
    of an engine, there are.
    """
    name, _, options = text.partition(":")
    if name not in ENGINES:
        raise ValueError(f"{name!r} is not one of {', '.join(ENGINES)}")
    engine = ENGINES[name]
    if not options:
        return engine
    values: dict[str, Any] = {key: getattr(engine, key) for key in OPTIONS.get(name, ())}
    values = values or {"decode": "best"}
    for option in options.split(","):
        key, _, value = option.partition("=")
        if key not in values:
            raise ValueError(f"{name} has no option {key!r}; it has {', '.join(values)}")
        kind = type(values[key])
        try:
            values[key] = kind(value)
        except ValueError:
            wanted = "a whole number" if kind is int else "a number"
            raise ValueError(f"{name}: {key} is {wanted}, got {value!r}") from None
    if name in OPTIONS:
        try:
            engine = type(engine)(**values)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        engine.name = text
    elif values["decode"] == "mbr":
        engine = MinimumBayesRisk(engine)
    elif values["decode"] != "best":
        raise ValueError(f"{name}: decode is best or mbr, got {values['decode']!r}")
    return engine


__all__ = [
    "AD3",
    "BELIEF_PROPAGATION",
    "ENGINES",
    "HILL_CLIMBING",
    "Amortized",
    "BeliefPropagation",
    "Cache",
    "Certificate",
    "DualDecomposition",
    "Engine",
    "IntegerProgram",
    "LinearProgram",
    "MinimumBayesRisk",
    "NoTreeError",
    "PrunedBeliefPropagation",
    "RelaxedBeliefPropagation",
    "Result",
    "default_engine",
    "exact_engine",
    "find_engine",
]
