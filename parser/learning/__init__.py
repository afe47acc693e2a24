"""Learning weights from treebanks."""

from parser.learning.learners import Crf, Example, Learner, Mira, Perceptron
from parser.learning.ssvm import Ssvm
from parser.learning.trainer import (
    LEARNERS,
    Epoch,
    Trainer,
    TrainingError,
    checkpoint_path,
    fingerprint,
)

__all__ = [
    "LEARNERS",
    "Crf",
    "Epoch",
    "Example",
    "Learner",
    "Mira",
    "Perceptron",
    "Ssvm",
    "Trainer",
    "TrainingError",
    "checkpoint_path",
    "fingerprint",
]
