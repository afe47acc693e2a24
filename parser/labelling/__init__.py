"""Relations for the arcs of a tree."""

from parser.labelling.labeller import Labeller

__all__ = ["Labeller"]
