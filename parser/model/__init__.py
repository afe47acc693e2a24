"""A trained model and what can be done with it: load, save, parse."""

from parser.model.model import Model, ModelError, open_model
from parser.model.parse import Parse, Parser, in_order
from parser.model.settings import LEARNERS, Settings, SettingsError

__all__ = [
    "LEARNERS",
    "Model",
    "ModelError",
    "Parse",
    "Parser",
    "Settings",
    "SettingsError",
    "in_order",
    "open_model",
]
