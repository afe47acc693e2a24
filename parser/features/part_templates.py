"""The templates of second-order parts, as tables, and their compilation for the kernel.

A template is a line of atoms as in `templates`, with a letter for each position of a part:

    G   grandparent        H   head        S   inner sibling        M   modifier, or outer sibling

START, END, and what lies outside the sentence have values of their own.  Every feature knows the
order of the positions, that is the directions of the arcs; `*` makes one that does not, and `D` one
that also knows the distance between the siblings, or that of the grandparent's arc.  Every feature
exists twice: alone and with the distance bin of the arc from the head to the outermost modifier.

Sources: Carreras (2007), Koo & Collins (2010) and Martins et al. (2013) for the set `rich`; Smith &
Eisner (2008), section 8.2, for `smith-eisner`.
"""

from __future__ import annotations

import numpy as np

from cython_ext import parts as kernel
from parser.features.templates import Atoms, fingerprint, read_atoms, split
from parser.graph import CHILDSEQ, CODES, FAMILIES, GRAND, GRANDSIB, NOCROSS, SIB

LETTERS = {
    SIB: "HSM",
    CHILDSEQ: "HSM",
    GRAND: "GHM",
    GRANDSIB: "GHSM",
    NOCROSS: "SM",
}
KINDS = {"*": kernel.PLAIN, "": kernel.ORDER, "D": kernel.GAP}

SIBLINGS = """
Hp Sp Mp | Hc Sc Mc | Hw Sp Mp | Hp Sw Mp | Hp Sp Mw | Hc Sw Mw | Hw Sc Mw | Hw Sw Mc
Hl Sc Mc | Hc Sl Mc | Hc Sc Ml | Hl Sl Mc | Hl Sc Ml | Hc Sl Ml
Hp Mp | Hp Sp | Hw Sp | Hp Sw
Sp Mp | Sc Mc | Sw Mp | Sp Mw | Sw Mw | Sw Mc | Sc Mw | Sl Ml | Sf Mf
Hp Sp Mp D | Hc Sc Mc D | Sp Mp D | Hw D
Hc Hf Sc Mc | Hc Sc Sf Mc | Hc Sc Mc Mf | Hc Sf Mf | Hf Sf Mf
Hc Sc Mc Mc+1 | Hc Sc Mc-1 Mc | Hc Sc-1 Sc Mc | Hc Sc Sc+1 Mc | Hc-1 Hc Sc Mc | Hc Hc+1 Sc Mc
Sp Sp+1 Mp | Sp-1 Sp Mp | Sp Mp-1 Mp | Sp Mp Mp+1 | Sc Sc+1 Mc-1 Mc | Sc-1 Sc Mc Mc+1
"""

RICH = {
    CHILDSEQ: SIBLINGS,
    SIB: SIBLINGS,
    GRAND: """
Gp Hp Mp | Gc Hc Mc | Gw Hp Mp | Gp Hw Mp | Gp Hp Mw | Gc Hw Mw | Gw Hc Mw | Gw Hw Mc
Gl Hc Mc | Gc Hl Mc | Gc Hc Ml | Gl Hl Mc | Gl Hc Ml | Gc Hl Ml
Gp Mp | Gc Mc | Gw Mp | Gp Mw | Gw Mw | Gw Mc | Gc Mw | Gl Ml | Gf Mf
Gp Hp Mp D | Gc Hc Mc D | Gp Mp D
Gc Gf Hc Mc | Gc Hc Hf Mc | Gc Hc Mc Mf | Gc Hf Mf | Gf Hf Mf
Gc Hc Mc Mc+1 | Gc Hc Mc-1 Mc | Gc Hc-1 Hc Mc | Gc Hc Hc+1 Mc | Gc-1 Gc Hc Mc | Gc Gc+1 Hc Mc
Gp Gp+1 Mp | Gp-1 Gp Mp | Gp Mp-1 Mp | Gp Mp Mp+1 | Gc Gc+1 Mc-1 Mc | Gc-1 Gc Mc Mc+1
""",
    GRANDSIB: """
Gp Hp Sp Mp | Gc Hc Sc Mc | Gw Hc Sc Mc | Gc Hw Sc Mc | Gc Hc Sw Mc | Gc Hc Sc Mw
Gp Sp Mp | Gc Sc Mc | Gc Hc Sc Mc D | Gw Sc Mc | Gc Sw Mc | Gc Sc Mw
Gl Hc Sc Mc | Gc Hl Sc Mc | Gc Hc Sl Mc | Gc Hc Sc Ml
""",
    NOCROSS: """
Sp Mp | Sc Mc | Sw Mc | Sc Mw | Sc | Mc | Sp | Mp
""",
}

SMITH_EISNER = {
    CHILDSEQ: "Sp Mp * | Sc Mc * | Hp Sp Mp * | Hc Sc Mc * | Sp Mp | Sc Mc | Hp Sp Mp | Hc Sc Mc",
    SIB: "Sp Mp * | Sc Mc * | Hp Sp Mp * | Hc Sc Mc * | Sp Mp | Sc Mc | Hp Sp Mp | Hc Sc Mc",
    GRAND: "Gp Hp Mp * | Gc Hc Mc * | Gp Hp Mp | Gc Hc Mc |",
    GRANDSIB: "Gp Hp Sp Mp * | Gc Hc Sc Mc * | Gp Hp Sp Mp | Gc Hc Sc Mc",
    NOCROSS: "Sp * | Mp * | Sp Mp * | Sc * | Mc * | Sc Mc *",
}

SETS = {"rich": RICH, "smith-eisner": SMITH_EISNER}


def has_gaps(family: str, name: str) -> bool:
    """Whether a feature knows the distance between the siblings or of the grandparent's arc."""
    return any("D" in text.split() for text in split(SETS[name][family]))


def compile_parts(
    families: frozenset[str], name: str, absent: frozenset[str], fields: list[str], bits: int
) -> kernel.PartTemplates:
    """The templates of some families, without those that read a field of `absent`."""
    expressions: dict[tuple[str, Atoms], int] = {}
    tables = {}
    for family in sorted(families & set(CODES), key=list(FAMILIES).index):
        letters, rows = LETTERS[family], []
        for text in dict.fromkeys(split(SETS[name][family])):
            ends, kind = read_atoms(text, letters, KINDS)
            if any(field in absent for atoms in ends.values() for field, _ in atoms):
                continue
            numbers = [expressions.setdefault(end, len(expressions)) for end in ends.items()]
            rows.append((*numbers, kind))
        tables[CODES[family]] = np.array(sorted(rows, key=lambda row: row[-1]), np.int32)
    width = max((len(atoms) for _, atoms in expressions), default=1)
    compiled = np.full((len(expressions), max(width, 1), 2), -1, np.int32)
    for (_, atoms), i in expressions.items():
        for j, (field, offset) in enumerate(atoms):
            compiled[i, j] = fields.index(field), offset
    seeds = [
        fingerprint(letter + "".join(f"{field}{offset:+d}" for field, offset in atoms))
        for letter, atoms in expressions
    ]
    return kernel.PartTemplates(compiled, np.array(seeds, np.uint64), tables, bits)
