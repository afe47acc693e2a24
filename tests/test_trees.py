"""The predicates and the enumerator that every other test leans on."""

from __future__ import annotations

import pytest

from parser.trees import enumerate_trees, is_projective, is_tree


@pytest.mark.parametrize(
    "heads",
    [
        (-1, 1),  # its own head
        (-1, 2, 1),  # a cycle
        (-1, 0, 3, 4, 2),  # a cycle beside the tree
        (-1, 2, 5),  # no such head
        (-1, -1),
    ],
)
def test_a_head_vector_that_misses_the_root_is_no_tree(heads):
    assert not is_tree(heads)


@pytest.mark.parametrize("heads", [(-1,), (-1, 0), (-1, 2, 0), (-1, 0, 0), (-1, 3, 0, 2)])
def test_a_head_vector_that_reaches_the_root_from_everywhere_is_a_tree(heads):
    assert is_tree(heads)


@pytest.mark.parametrize(
    ("heads", "projective"),
    [
        ((-1, 0), True),
        ((-1, 2, 0, 2), True),
        ((-1, 3, 0, 2), False),  # 3 -> 1 covers the root's word 2: only a root arc is crossed
        ((-1, 0, 4, 1, 1), False),
        ((-1, 0, 1, 2, 1), True),
        ((-1, 0, 0, 0), True),
    ],
)
def test_projective_means_that_no_arcs_cross_those_from_the_root_included(heads, projective):
    assert is_projective(heads) is projective


def crossing(heads) -> bool:
    arcs = [sorted((head, modifier)) for modifier, head in enumerate(heads) if modifier]
    return any(a < c < b < d for a, b in arcs for c, d in arcs)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_projective_agrees_with_every_pair_of_arcs(n):
    for heads in enumerate_trees(n, projective=False, single_root=False):
        assert is_projective(heads) is not crossing(heads)


@pytest.mark.parametrize(
    ("projective", "single_root", "counts"),
    [
        (False, False, [1, 3, 16, 125]),
        (False, True, [1, 2, 9, 64]),
        (True, False, [1, 3, 12, 55]),
        (True, True, [1, 2, 7, 30]),
    ],
)
def test_the_enumerator_finds_as_many_distinct_trees_as_there_are(projective, single_root, counts):
    for n, count in enumerate(counts, 1):
        found = list(enumerate_trees(n, projective=projective, single_root=single_root))
        assert len(found) == len(set(found)) == count
