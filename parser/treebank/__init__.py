"""Sentences and treebanks: CoNLL-U and CoNLL-X in and out, and what can be said of their trees."""

from parser.treebank.reader import read, read_all
from parser.treebank.sentence import Sentence, TreebankError
from parser.treebank.structure import crossing_arcs, find_cycle, projective, roots
from parser.treebank.writer import open_output, replace_file

__all__ = [
    "Sentence",
    "TreebankError",
    "crossing_arcs",
    "find_cycle",
    "open_output",
    "projective",
    "read",
    "read_all",
    "replace_file",
    "roots",
]
