"""The hand-over between words and inference: candidate arcs, parts, and their scores."""

from parser.graph.scored_graph import (
    CHILDSEQ,
    FAMILIES,
    GRAND,
    GRANDSIB,
    LINK,
    NOCROSS,
    SIB,
    GraphError,
    Parts,
    ScoredGraph,
    all_arcs,
)

__all__ = [
    "CHILDSEQ",
    "FAMILIES",
    "GRAND",
    "GRANDSIB",
    "LINK",
    "NOCROSS",
    "SIB",
    "GraphError",
    "Parts",
    "ScoredGraph",
    "all_arcs",
]
