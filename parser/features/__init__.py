"""Words into numbers: vocabularies, templates, hashed weights, scores and gradients."""

from parser.features.part_templates import SETS as PART_SETS
from parser.features.scorer import Columns, Encoding, Scorer
from parser.features.table import CompactTable, empty_lines
from parser.features.vocabulary import Vocabulary

__all__ = [
    "PART_SETS",
    "Columns",
    "CompactTable",
    "Encoding",
    "Scorer",
    "Vocabulary",
    "empty_lines",
]
