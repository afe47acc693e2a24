"""Templates of the labeller.  Fields as in features.vocabulary; places around the arc h -> m:

M the word, H its head, G its head's head, L and R the siblings next to it, A and Z its first and
last child.  `Mm` or `Hm` repeats the template over the single morphological features there, `D` is
the binned distance.  Every template also holds the direction of the arc.
"""

from __future__ import annotations

import re

import numpy as np

from cython_ext.labels import PLACES
from parser.features.templates import fingerprint, split
from parser.features.vocabulary import FIELDS

VERSION = 1

LABEL = """
Mw | Ml | Mp | Mc | Mf | Ms | Mx | Mk | Hw | Hl | Hp | Hc | Hf
Mw Hw | Mw Hp | Mw Hc | Mp Hw | Mc Hw | Mp Hp | Mc Hc | Mw Mp Hp | Mp Hw Hp
Ml Hl | Ml Hc | Mc Hl | Ml Hp | Mp Hl | Mf Hc | Mf Hf | Mc Hf | Mc Mf Hc Hf
Ms Hc | Ms Hs | Mc Hs
Mm | Mm Mc Hc | Mm Hc | Mm Hw | Mm Hl
Mc Hc D | Mp Hp D | D Mc | Mw D
Mp-1 Mp | Mp Mp+1 | Mp-1 Mp Mp+1 | Mc-1 Mc Hc | Mc Mc+1 Hc | Mw-1 Mc Hc | Mw+1 Mc Hc
Mw-1 Mw | Mw Mw+1
Hp-1 Hp Mp | Hp Hp+1 Mp | Hc-1 Hc Hc+1 Mc
Gc Hc Mc | Gp Hp Mp | Gw Hc Mc | Gc Hw Mc | Gc Hc Mw
Lc Hc Mc | Rc Hc Mc | Lp Mp | Rp Mp | Lc Rc Mc Hc | Lw Mc Hc | Rw Mc Hc | Lf Mf Hc | Rf Mf Hc
Ac Mc Hc | Zc Mc Hc | Aw Mc Hc | Zw Mc Hc | Ac Zc Mc | Al Mc | Ap Mp Hp | Al Mc Hl | Zl Mc | Aw Mw
"""


def compile_templates(absent: frozenset[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Atoms (T, A, 3), seeds (T,) and places of single features (T,), for the kernel."""
    atoms, seeds, repeated = [], [], []
    for text in split(LABEL):
        row, place = [], -1
        fields = set()
        for atom in text.split():
            match = re.fullmatch(r"([MHGLRAZ])([a-z])([+-]\d)?", atom)
            if atom == "D":
                row.append((len(PLACES), 0, 0))
            elif not match:
                raise ValueError(f"label template {text!r}: {atom!r} is not an atom")
            elif match[2] == "m":
                place = PLACES.index(match[1])
                fields.add("m")
            else:
                fields.add(match[2])
                row.append((PLACES.index(match[1]), FIELDS.index(match[2]), int(match[3] or 0)))
        if not fields & absent:
            atoms.append(row)
            seeds.append(fingerprint(text))
            repeated.append(place)
    table = np.full((len(atoms), max(map(len, atoms)), 3), -1, np.int32)
    for t, row in enumerate(atoms):
        for a, atom in enumerate(row):
            table[t, a] = atom
    return table, np.array(seeds, np.uint64) & ~np.uint64(1), np.array(repeated, np.int32)
