"""Settings of a training run, from a TOML file and flags; stored in the model."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parser.features import PART_SETS
from parser.graph import CHILDSEQ, FAMILIES, GRAND, LINK
from parser.inference import Engine, default_engine, find_engine

LEARNERS = ("mira", "perceptron", "crf", "ssvm")
OPTIMIZERS = ("sgd", "adagrad")
AMORTIZE = ("", "seed", "exact", "margin", "near", "lazy", "adaptive")


class SettingsError(ValueError):
    """A setting that does not exist or has a value that cannot be used."""


@dataclass(frozen=True)
class Settings:
    """All that a training run depends on besides its data.

    Attributes
    ----------
    factors : factor families of the model, "link" among them.
    templates : templates of second-order parts, "rich" or "smith-eisner".
    prune : whether arcs that a small first-order CRF finds unlikely are left out; None: if there
        are second-order factors.
    prune_heads, prune_threshold : heads kept for a word, at most; and the least marginal of a kept
        arc relative to the word's best.
    prune_epochs, prune_bits : of the CRF's training.
    projective, single_root : tree constraint; None: as the training trees are.
    engine : inference in training and, unless another is asked for, in parsing; "": the default for
        the trees and factors.
    labelled : whether relations are learned.
    bits : the feature table has 2**bits rows of 16 weights.
    cutoff : forms and lemmas seen fewer times count as unknown.
    keep_rows : share of the rows, those with the largest weights, that the model keeps.
    learner : "mira", "perceptron", "crf" or "ssvm".
    epochs, patience : passes over the data, at most; and passes without a better dev score before
        training stops (0: never).
    seed : of the order of the sentences.
    recency : in the average of the weights those after t steps count as t**recency, so that with 0
        all count alike; None: 2 for mira and ssvm, 0 for others.  The structured SVM counts passes,
        and averages nothing once it has converged.
    aggressiveness : the largest MIRA step C.
    k : trees in a MIRA step.
    batch : sentences in a CRF step.
    optimizer, rate, l2 : of the CRF.  The rate of sgd falls as 1 / (1 + passes).
    part_rate : the rate of parts, as a share of that of arcs (sgd).  As l2 takes from all weights
        alike, the penalty of parts is l2 / part_rate.
    bethe_cap : whether the CRF passes over a sentence whose gold tree has a probability above 1,
        as approximate engines may give it: its gradient would only take them further off.
    svm_c : cost C of the structured SVM.
    delta : training of the structured SVM stops when no constraint is violated by more, in heads.
    inner_passes : of its coordinate descent, over all sentences after each epoch and, interleaved,
        over each after its inference, at most.
    interleave : whether it descends after each sentence, too, or only after each epoch.
    svm_memory : GiB of its vectors that are kept; those beyond are made anew each time.
    amortize : "", or how training looks for trees among those of earlier passes before it calls the
        engine (`parser.inference.Amortized`): "seed", the paper's condition; "exact", also stronger
        tests that are exact; "margin", also those that need second best trees; "near", also the
        paper's bound for epsilon, of the whole tree, not of each score; of the structured SVM
        (`parser.learning.ssvm`) also "lazy", which takes any tree that is violated, and
        "adaptive", the paper's condition with epsilon 10, then lazy with 0.1, then with 0.
    epsilon, tau : of the paper's condition, and of near; above 0, answers may be worse than the
        best; an SVM ends lazy with 0.  Of tau answers in a row for a sentence one is exact (0: no
        such rule).
    amortize_memory : GiB of trees that are kept.
    label_epochs, label_rate, label_bits : of the labeller.
    """

    factors: tuple[str, ...] = (LINK, CHILDSEQ, GRAND)
    templates: str = "rich"
    prune: bool | None = None
    prune_heads: int = 10
    prune_threshold: float = 0.0003
    prune_epochs: int = 3
    prune_bits: int = 18
    projective: bool | None = None
    single_root: bool | None = None
    engine: str = ""
    labelled: bool = True
    bits: int = 21
    cutoff: int = 2
    keep_rows: float = 0.5
    learner: str = "mira"
    epochs: int = 10
    patience: int = 0
    seed: int = 0
    recency: float | None = None
    aggressiveness: float = 0.1
    k: int = 1
    batch: int = 1
    optimizer: str = "sgd"
    rate: float = 0.1
    part_rate: float = 1.0
    l2: float = 0.0
    bethe_cap: bool = True
    svm_c: float = 0.006
    delta: float = 0.1
    inner_passes: int = 1
    interleave: bool = True
    svm_memory: float = 2.0
    amortize: str = ""
    epsilon: float = 0.0
    tau: int = 0
    amortize_memory: float = 1.0
    label_epochs: int = 8
    label_rate: float = 0.05
    label_bits: int = 17

    def __post_init__(self) -> None:
        for name in dataclasses.fields(self):
            check_type(name.name, getattr(self, name.name), str(name.type))
        for family in self.factors:
            if family not in FAMILIES:
                raise SettingsError(f"factors: {family!r} is not one of {', '.join(FAMILIES)}")
        if LINK not in self.factors:
            raise SettingsError(f"factors: {LINK} cannot be left out")
        for name, allowed in (
            ("learner", LEARNERS),
            ("optimizer", OPTIMIZERS),
            ("templates", tuple(PART_SETS)),
            ("amortize", AMORTIZE),
        ):
            if getattr(self, name) not in allowed:
                raise SettingsError(
                    f"{name}: one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        for name, low, high in (
            ("bits", 8, 26),
            ("cutoff", 1, 1_000_000),
            ("prune_heads", 1, 1_000_000),
            ("prune_threshold", 0.0, 1.0),
            ("prune_epochs", 1, 10_000),
            ("prune_bits", 8, 26),
            ("keep_rows", 0.0, 1.0),
            ("epochs", 1, 10_000),
            ("patience", 0, 10_000),
            ("seed", 0, 2**63 - 1),
            ("recency", 0.0, 4.0),
            ("aggressiveness", 1e-12, float("inf")),
            ("k", 1, 1000),
            ("batch", 1, 1_000_000),
            ("rate", 1e-12, 1e6),
            ("part_rate", 1e-6, 1e6),
            ("l2", 0.0, 1e6),
            ("svm_c", 1e-12, 1e12),
            ("delta", 1e-12, 1e6),
            ("inner_passes", 1, 1_000_000),
            ("svm_memory", 0.0, 1e6),
            ("epsilon", 0.0, 1e6),
            ("tau", 0, 1_000_000),
            ("amortize_memory", 0.0, 1e6),
            ("label_epochs", 0, 10_000),
            ("label_rate", 1e-12, 1e6),
            ("label_bits", 8, 24),
        ):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise SettingsError(f"{name}: {low} to {high}, got {value}")
        if self.batch > 1 and self.learner != "crf":
            raise SettingsError(
                f"batch: learner {self.learner} takes one sentence at a time, got {self.batch}"
            )
        if self.part_rate != 1.0 and self.optimizer == "adagrad":
            raise SettingsError("part_rate: adagrad has a rate for each weight")
        if self.amortize and (self.learner == "crf" or self.k > 1):
            raise SettingsError("amortize: only for learners that take best trees, one by one")
        if self.amortize in ("lazy", "adaptive") and (self.learner != "ssvm" or self.epsilon):
            raise SettingsError(
                f"amortize: {self.amortize} is for learner ssvm, and sets epsilon itself"
            )
        if self.amortize == "near" and not self.epsilon:
            raise SettingsError("amortize: near needs an epsilon above 0")
        if self.engine:
            try:
                find_engine(self.engine)
            except ValueError as error:
                raise SettingsError(f"engine: {error}") from None

    @property
    def second_order(self) -> bool:
        return set(self.factors) != {LINK}

    def make_engine(self) -> Engine:
        """The engine of that name, or the default for the tree constraint and the factors."""
        if self.engine:
            return find_engine(self.engine)
        return default_engine(projective=bool(self.projective), families=self.factors)

    @classmethod
    def from_dict(cls, values: dict[str, Any], where: str) -> Settings:
        """From JSON or TOML values; SettingsError names an unknown key."""
        known = {f.name for f in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise SettingsError(f"{where}: unknown setting {unknown[0]!r}")
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        try:
            return cls(**values)
        except SettingsError as error:
            raise SettingsError(f"{where}: {error}") from None

    @classmethod
    def from_toml(cls, path: Path) -> dict[str, Any]:
        """The settings that a TOML file gives, checked, as a dictionary."""
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{path}: {error}") from None
        cls.from_dict(values, str(path))
        return values

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def check_type(name: str, value: Any, annotation: str) -> None:
    """Booleans are not numbers, and whole numbers are fine where a float is meant."""
    wanted: dict[str, tuple[type, ...]] = {
        "bool": (bool,),
        "bool | None": (bool, type(None)),
        "int": (int,),
        "float": (int, float),
        "float | None": (int, float, type(None)),
        "str": (str,),
        "tuple[str, ...]": (tuple,),
    }
    fits = isinstance(value, wanted[annotation])
    if not fits or (isinstance(value, bool) and bool not in wanted[annotation]):
        raise SettingsError(f"{name}: {annotation} is wanted, got {value!r}")
