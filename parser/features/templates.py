"""The first-order templates, as a table, and its compilation for the kernel.

A template is a line of atoms.  `Hp` is the field p at the head, `Mp` at the modifier, `Hp+1` at the
word right of the head; positions outside the sentence have values of their own.  Fields are those
of vocabulary.FIELDS:

    w form   l lemma   p fine tag   c coarse tag   f all morphological features   s suffix
    x prefix   k shape

An atom without a position makes a template of several features, or of one about the whole arc:

    D   the distance |h - m|                  N   how often the tags of h and m stand between
    S   the set of fine tags between          Bc  Bp   the tag of each word between, coarse or fine
    Hm Mm   each single morphological feature of the head, of the modifier, or each pair of both

Every feature exists three times: alone, with "points right", and with direction and distance bin
(cython_ext/features.pyx).  Sources: McDonald, Crammer & Pereira (2005), table 1, for the uni- and
bigrams, the tags between and the tags around; MSTParser for the coarse repetition; prefixes,
suffixes, shapes, N, S and the one-sided contexts are ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from cython_ext import features as kernel

# Raised whenever the features of a sentence change: a model refuses to be read with another table.
VERSION = 2

KINDS = {
    "": kernel.PLAIN,
    "D": kernel.DISTANCE,
    "N": kernel.NEAREST,
    "S": kernel.SPAN,
    "Bc": kernel.BETWEEN_COARSE,
    "Bp": kernel.BETWEEN_FINE,
    "Hm Mm": kernel.MORPH,
    "Hm": kernel.HEAD_MORPH,
    "Mm": kernel.MODIFIER_MORPH,
}

# Templates about one word; each is used for the head and for the modifier.
WORD = """
w | l | p | c | f | s | x | k
w p | w c | l c | s c | x c | k c
m | m c
p-1 p | p p+1 | p-1 p p+1 | p-2 p-1 p | p p+1 p+2
c-1 c | c c+1 | c-1 c c+1 | c-2 c-1 c c+1 c+2
w-1 w | w w+1 | w-1 p | p w+1 | l-1 c | c l+1 | f-1 f | f f+1
"""

# Templates about both ends.
ARC = """
Hw Mw | Hw Mp | Hp Mw | Hw Hp Mp | Hp Mw Mp | Hw Hp Mw | Hw Mw Mp | Hw Hp Mw Mp | Hp Mp
Hw Mc | Hc Mw | Hc Mc | Hp Mc | Hc Mp
Hl Ml | Hl Mp | Hp Ml | Hl Mc | Hc Ml | Hl Hp Mp | Hp Ml Mp | Hl Hc Mc | Hc Ml Mc
Hs Mc | Hc Ms
Hf Mf | Hc Hf Mc Mf
Hc Mc Hm | Hc Mc Mm | Hc Mc Hm Mm
Hp Hp+1 Mp | Hp-1 Hp Mp | Hp Mp-1 Mp | Hp Mp Mp+1
Hp Hp+1 Mp-1 Mp | Hp-1 Hp Mp-1 Mp | Hp Hp+1 Mp Mp+1 | Hp-1 Hp Mp Mp+1
Hp-1 Hp Hp+1 Mp | Hp Mp-1 Mp Mp+1
Hc Hc+1 Mc | Hc-1 Hc Mc | Hc Mc-1 Mc | Hc Mc Mc+1
Hc Hc+1 Mc-1 Mc | Hc-1 Hc Mc-1 Mc | Hc Hc+1 Mc Mc+1 | Hc-1 Hc Mc Mc+1
Hc-1 Hc Hc+1 Mc-1 Mc Mc+1 | Hc-2 Hc-1 Hc Mc Mc+1 Mc+2
Hp Bp Mp | Hc Bc Mc
Hp D Mp | Hc D Mc | Hc D | D Mc
Hp N Mp | Hc N Mc
Hp S Mp | Hc S Mc
"""


# Few templates, for the pruner, which looks at every pair of words.
SMALL_WORD = """
w | p | c | s | f
w c | p-1 p | p p+1
m
"""
SMALL_ARC = """
Hp Mp | Hc Mc | Hw Mw | Hw Mp | Hp Mw | Hw Mc | Hc Mw | Hl Mc | Hc Ml | Hs Mc | Hc Ms
Hc Mc Hm | Hc Mc Mm
Hp Hp+1 Mp-1 Mp | Hp-1 Hp Mp-1 Mp | Hp Hp+1 Mp Mp+1 | Hp-1 Hp Mp Mp+1
Hc Bc Mc | Hc D Mc | Hp N Mp | Hc S Mc
"""
SETS = {"full": (WORD, ARC), "small": (SMALL_WORD, SMALL_ARC)}


def split(table: str) -> list[str]:
    """Templates of a table, spaces normalised."""
    return [" ".join(t.split()) for t in re.split(r"[|\n]", table) if t.strip()]


def fingerprint(text: str) -> int:
    """FNV-1a, 64 bit: the seed of an expression depends on its text, not on its place."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


Atoms = tuple[tuple[str, int], ...]


def read_atoms(text: str, letters: str, kinds: dict[str, int]) -> tuple[dict[str, Atoms], int]:
    """The atoms (field, offset) of each position, and the kind that the other atoms make.

    ValueError names atoms that mean nothing.
    """
    ends: dict[str, list[tuple[str, int]]] = {letter: [] for letter in letters}
    rest = []
    for atom in text.split():
        match = re.fullmatch(rf"([{letters}])([a-z])([+-]\d)?", atom)
        if match and match[2] != "m":
            ends[match[1]].append((match[2], int(match[3] or 0)))
        else:
            rest.append(atom)
    kind = kinds.get(" ".join(rest))
    if kind is None:
        raise ValueError(f"template {text!r}: {' '.join(rest)!r} is not an atom")
    return {letter: tuple(atoms) for letter, atoms in ends.items()}, kind


@dataclass(frozen=True)
class Template:
    """Atoms of the two ends, as (field, offset), and the kind."""

    head: Atoms
    modifier: Atoms
    kind: int

    @classmethod
    def parse(cls, text: str) -> Template:
        """Read one template; ValueError names an atom that means nothing."""
        ends, kind = read_atoms(text, "HM", KINDS)
        return cls(ends["H"], ends["M"], kind)

    def fields(self) -> set[str]:
        """Fields that the template reads."""
        names = {field for field, _ in self.head + self.modifier}
        if self.kind in (kernel.MORPH, kernel.HEAD_MORPH, kernel.MODIFIER_MORPH):
            names.add("m")
        return names


def arc_templates(absent: frozenset[str], name: str = "full") -> list[Template]:
    """A table without the templates that read a field which the treebank does not fill."""
    word, arc = SETS[name]
    words = [" ".join(side + atom for atom in t.split()) for side in "HM" for t in split(word)]
    templates = dict.fromkeys(Template.parse(t) for t in words + split(arc))
    return [t for t in templates if not t.fields() & absent]


def compile_templates(templates: list[Template], fields: list[str], bits: int) -> kernel.Templates:
    """Number the distinct expressions of both ends and hand the table to the kernel."""
    heads = list(dict.fromkeys(t.head for t in templates))
    modifiers = list(dict.fromkeys(t.modifier for t in templates))
    width = max(len(e) for e in heads + modifiers)
    expressions = np.full((len(heads) + len(modifiers), width, 2), -1, np.int32)
    seeds = np.zeros(len(expressions), np.uint64)
    for i, (side, atoms) in enumerate([("H", e) for e in heads] + [("M", e) for e in modifiers]):
        seeds[i] = fingerprint(side + " ".join(f"{field}{offset:+d}" for field, offset in atoms))
        for j, (field, offset) in enumerate(atoms):
            expressions[i, j] = fields.index(field), offset
    alone_head, alone_modifier, pairs = [], [], []
    for t in templates:
        head, modifier = heads.index(t.head), modifiers.index(t.modifier)
        if t.kind in (kernel.PLAIN, kernel.HEAD_MORPH) and not t.modifier:
            alone_head.append((head, t.kind))
        elif t.kind in (kernel.PLAIN, kernel.MODIFIER_MORPH) and not t.head:
            alone_modifier.append((modifier, t.kind))
        else:
            pairs.append((head, modifier, t.kind))
    pairs.sort(key=lambda pair: pair[2])
    return kernel.Templates(
        expressions,
        seeds,
        len(heads),
        np.array(pairs, np.int32),
        np.array(alone_head, np.int32),
        np.array(alone_modifier, np.int32),
        bits,
        fields.index("c"),
        fields.index("p"),
    )
