"""Words into numbers: vocabularies, templates, hashed weights, scores and gradients."""

from parser.features.scorer import Scorer
from parser.features.table import CompactTable
from parser.features.vocabulary import Vocabulary

__all__ = ["CompactTable", "Scorer", "Vocabulary"]
