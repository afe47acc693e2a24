"""Learning weights from treebanks."""

from parser.learning.learners import LEARNERS, Crf, Example, Learner, Mira, Perceptron
from parser.learning.trainer import Epoch, Trainer, TrainingError, checkpoint_path, fingerprint

__all__ = [
    "LEARNERS",
    "Crf",
    "Epoch",
    "Example",
    "Learner",
    "Mira",
    "Perceptron",
    "Trainer",
    "TrainingError",
    "checkpoint_path",
    "fingerprint",
]
