"""A trained model and what can be done with it: load, save, parse."""

from parser.model.model import Model, ModelError, make_pruner, make_scorer, open_model
from parser.model.parse import BATCH, Parse, Parser, in_order
from parser.model.pruner import Pruner
from parser.model.settings import LEARNERS, Settings, SettingsError

__all__ = [
    "BATCH",
    "LEARNERS",
    "Model",
    "ModelError",
    "Parse",
    "Parser",
    "Pruner",
    "Settings",
    "SettingsError",
    "in_order",
    "make_pruner",
    "make_scorer",
    "open_model",
]
