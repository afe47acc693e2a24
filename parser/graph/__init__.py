"""The hand-over between words and inference: candidate arcs, parts, and their scores."""

from parser.graph.scored_graph import (
    CHILDSEQ,
    CODES,
    FAMILIES,
    GRAND,
    GRANDSIB,
    LINK,
    NOCROSS,
    PAIR,
    SIB,
    Arcs,
    GraphError,
    ScoredGraph,
    Values,
    all_arcs,
    dot,
    subtract,
)

__all__ = [
    "CHILDSEQ",
    "CODES",
    "FAMILIES",
    "GRAND",
    "GRANDSIB",
    "LINK",
    "NOCROSS",
    "PAIR",
    "SIB",
    "Arcs",
    "GraphError",
    "ScoredGraph",
    "Values",
    "all_arcs",
    "dot",
    "subtract",
]
