"""How well a parser does: official scores, where it errs, significance, and trees to look at."""

from parser.evaluation.breakdown import Breakdown
from parser.evaluation.drawing import draw, to_dot
from parser.evaluation.mistakes import mistakes
from parser.evaluation.rules import AlignmentError, EvaluationError, Rules, aligned, is_punctuation
from parser.evaluation.scores import Reference, Scores, evaluate
from parser.evaluation.significance import Difference, compare, permutation_test
from parser.evaluation.tables import table

__all__ = [
    "AlignmentError",
    "Breakdown",
    "Difference",
    "EvaluationError",
    "Reference",
    "Rules",
    "Scores",
    "aligned",
    "compare",
    "draw",
    "evaluate",
    "is_punctuation",
    "mistakes",
    "permutation_test",
    "table",
    "to_dot",
]
