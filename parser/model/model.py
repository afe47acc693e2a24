"""A trained model: vocabulary, weights, labels, settings; one file, and no code in it."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import parser
from parser.features import CompactTable, Scorer, Vocabulary
from parser.features import templates as arc_templates
from parser.labelling import Labeller
from parser.labelling import templates as label_templates
from parser.model.pruner import Pruner
from parser.model.settings import Settings
from parser.treebank import replace_file

FORMAT = "arcwise model"
VERSION = 1
# What reading a file raises that is cut off, changed or something else.
DAMAGE = (zipfile.BadZipFile, EOFError, OSError, LookupError, ValueError, TypeError)


class ModelError(ValueError):
    """A file that is not a model, is damaged, or is newer than this program.  One line."""


@dataclass
class Model:
    """What training leaves behind.

    Attributes
    ----------
    settings : Settings, with the tree constraint resolved
    scorer : Scorer
    table : CompactTable
    pruner : Pruner or None
    labeller : Labeller or None
    scale : float
        Arc scores times this are log potentials whose probabilities can be believed, which the
        margins of MIRA or a perceptron are not.  Fitted to the dev set (learning.calibration), 1
        without one.
    record : dict
        Data and scores of the training run, for `parser info`.
    """

    settings: Settings
    scorer: Scorer
    table: CompactTable
    pruner: Pruner | None
    labeller: Labeller | None
    scale: float = 1.0
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def vocabulary(self) -> Vocabulary:
        return self.scorer.vocabulary

    def header(self) -> dict[str, Any]:
        """Everything but the arrays and the vocabulary, ready for JSON."""
        labeller = self.labeller
        return {
            "format": FORMAT,
            "version": VERSION,
            "program": parser.__version__,
            "arc_templates": arc_templates.VERSION,
            "label_templates": label_templates.VERSION,
            "settings": self.settings.to_dict(),
            "labels": labeller.labels if labeller else [],
            "label_table": list(labeller.weights.shape) if labeller else [],
            "scale": self.scale,
            "record": self.record,
        }

    def save(self, path: Path) -> None:
        """Write the model; the file appears whole or not at all."""
        arrays = {"rows": self.table.rows, "weights": self.table.values}
        if self.pruner:
            pruner = self.pruner.table
            arrays |= {"pruner_rows": pruner.rows, "pruner_weights": pruner.values}
        if self.labeller:
            used = np.flatnonzero(self.labeller.weights.any(1)).astype(np.uint32)
            arrays |= {
                "label_rows": used,
                "label_weights": self.labeller.weights[used],
                "label_root": self.labeller.root,
                "label_inner": self.labeller.inner,
            }
        with replace_file(path) as file, zipfile.ZipFile(file, "w") as archive:
            # A fixed date: the same training run gives the same bytes.
            def put(name: str, data: bytes, compression: int) -> None:
                archive.writestr(zipfile.ZipInfo(name), data, compression)

            put("header.json", to_json(self.header()), zipfile.ZIP_DEFLATED)
            put("vocabulary.json", to_json(self.vocabulary.to_dict()), zipfile.ZIP_DEFLATED)
            for name, array in arrays.items():
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, array, allow_pickle=False)
                put(f"{name}.npy", buffer.getvalue(), zipfile.ZIP_STORED)

    @classmethod
    def load(cls, path: Path) -> Model:
        """Read a model.  ModelError, in one line, for anything but a whole model of this format."""
        header, archive = open_model(path)
        with archive:
            try:
                settings = Settings.from_dict(header["settings"], "settings")
                vocabulary = Vocabulary.from_dict(json.loads(archive.read("vocabulary.json")))
                table = CompactTable(
                    settings.bits, read_array(archive, "rows"), read_array(archive, "weights")
                )
                scale = float(header["scale"])
                scorer = make_scorer(vocabulary, settings)
                pruner = None
                if settings.prune:
                    pruner = make_pruner(
                        vocabulary,
                        settings,
                        CompactTable(
                            settings.prune_bits,
                            read_array(archive, "pruner_rows"),
                            read_array(archive, "pruner_weights"),
                        ),
                    )
                labeller = None
                if header["labels"]:
                    weights = np.zeros(header["label_table"], np.float32)
                    weights[read_array(archive, "label_rows")] = read_array(
                        archive, "label_weights"
                    )
                    labeller = Labeller(
                        vocabulary,
                        header["labels"],
                        read_array(archive, "label_root"),
                        read_array(archive, "label_inner"),
                        weights,
                    )
            except DAMAGE as error:
                raise ModelError(f"{path}: damaged model file: {error}") from None
        return cls(settings, scorer, table, pruner, labeller, scale, header["record"])


def make_scorer(vocabulary: Vocabulary, settings: Settings) -> Scorer:
    """The templates that a model of these settings scores with."""
    return Scorer(vocabulary, settings.bits, settings.factors, part_set=settings.templates)


def make_pruner(
    vocabulary: Vocabulary, settings: Settings, table: CompactTable | np.ndarray
) -> Pruner:
    """The pruner of a model of these settings."""
    return Pruner(
        Scorer(vocabulary, settings.prune_bits, arc_set="small"),
        table,
        settings.prune_heads,
        settings.prune_threshold,
        bool(settings.projective),
        bool(settings.single_root),
    )


def open_model(path: Path) -> tuple[dict[str, Any], zipfile.ZipFile]:
    """The header of a model file, and its archive, open."""
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile:
        raise ModelError(f"{path}: not a model file, or cut off") from None
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}") from None
    try:
        header = json.loads(archive.read("header.json"))
        if header["format"] != FORMAT:
            raise KeyError("format")
        version = header["version"]
    except DAMAGE:
        archive.close()
        raise ModelError(f"{path}: not a model file, or damaged") from None
    if version != VERSION:
        archive.close()
        raise ModelError(
            f"{path}: model format {version}, but this program reads format {VERSION}; "
            + ("install a newer version" if version > VERSION else "train it again")
        )
    for name, ours in (
        ("arc_templates", arc_templates.VERSION),
        ("label_templates", label_templates.VERSION),
    ):
        if header.get(name) != ours:
            archive.close()
            raise ModelError(
                f"{path}: {name} version {header.get(name)}, but this program has {ours}; "
                "train it again"
            )
    return header, archive


def read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """An array of the archive, checksum verified; never unpickles."""
    return np.lib.format.read_array(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)


def to_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1).encode()
