"""Published experiments, run again: what is trained, what is measured, and the paper's figures."""

from parser.reproduction.chang_2015 import Chang2015
from parser.reproduction.koo_2010 import Koo2010
from parser.reproduction.riedel_smith_2010 import RiedelSmith2010
from parser.reproduction.smith_eisner_2008 import SmithEisner2008
from parser.reproduction.workshop import (
    LANGUAGES,
    Data,
    ReproductionError,
    Workshop,
    available,
    load,
)

__all__ = [
    "LANGUAGES",
    "Chang2015",
    "Data",
    "Koo2010",
    "ReproductionError",
    "RiedelSmith2010",
    "SmithEisner2008",
    "Workshop",
    "available",
    "load",
]
