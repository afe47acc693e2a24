"""Exact inference over all dependency trees, given an array of arc scores.

Trees may have crossing arcs; `parser.inference.projective` has the same functions without them.
Best trees and k best come from Chu-Liu/Edmonds (`cython_ext.arborescence`); log Z, marginals,
entropy and samples from the matrix-tree theorem (`cython_ext.matrix_tree`).
"""

from __future__ import annotations

from cython_ext import arborescence, matrix_tree
from parser.inference.arrays import NoTreeError
from parser.inference.tree_functions import Kernels, TreeFunctions

__all__ = [
    "NoTreeError",
    "best_tree",
    "entropy",
    "k_best",
    "log_partition",
    "marginals",
    "sample",
]

_functions = TreeFunctions(
    Kernels(
        arborescence.best_tree,
        arborescence.best_trees,
        matrix_tree.sums,
        matrix_tree.sample,
        projective=False,
    )
)
best_tree = _functions.best_tree
log_partition = _functions.log_partition
marginals = _functions.marginals
entropy = _functions.entropy
k_best = _functions.k_best
sample = _functions.sample
