"""Exact inference over projective dependency trees, given an array of arc scores.

A tree is projective when no two of its arcs cross, those from the root included;
`parser.inference.nonprojective` has the same functions for all trees.  All come from Eisner's
algorithm, with max for best trees and sums for log Z, marginals and samples (`cython_ext.eisner`).
"""

from __future__ import annotations

from cython_ext import eisner
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
    Kernels(eisner.best_tree, eisner.best_trees, eisner.sums, eisner.sample, projective=True)
)
best_tree = _functions.best_tree
log_partition = _functions.log_partition
marginals = _functions.marginals
entropy = _functions.entropy
k_best = _functions.k_best
sample = _functions.sample
