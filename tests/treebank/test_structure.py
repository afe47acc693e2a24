"""Head vectors against definitions written out word by word."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parser.treebank import crossing_arcs, find_cycle, projective, roots

head_vectors = st.integers(1, 9).flatmap(
    lambda n: st.lists(st.integers(-1, n), min_size=n, max_size=n).map(lambda tail: [-1, *tail])
)


def ancestors(heads, word):
    """The chain of heads above a word, up to n of them."""
    chain = []
    while len(chain) <= len(heads) and word > 0:
        word = heads[word]
        chain.append(word)
    return chain


def is_cyclic(heads):
    return any(m in ancestors(heads, m) for m in range(1, len(heads)))


def cross(a, b):
    (a_left, a_right), (b_left, b_right) = sorted((sorted(a), sorted(b)))
    return a_left < b_left < a_right < b_right


@settings(max_examples=300, deadline=None, derandomize=True)
@given(heads=head_vectors)
def test_a_cycle_is_found_exactly_when_there_is_one(heads):
    cycle = find_cycle(heads)
    assert bool(cycle) == is_cyclic(heads)
    assert [heads[word] for word in cycle] == cycle[1:] + cycle[:1]
    assert not cycle or cycle[0] == min(cycle)


def test_a_long_cycle_is_found_below_a_long_chain():
    n = 5000
    heads = np.arange(1, n + 2)  # each word hangs from the next
    heads[0], heads[n] = -1, n - 3
    assert find_cycle(heads) == [n - 3, n - 2, n - 1, n]
    heads[n] = 0
    assert find_cycle(heads) == []


@settings(max_examples=300, deadline=None, derandomize=True)
@given(heads=head_vectors)
def test_crossings_are_counted_as_by_comparing_all_pairs(heads):
    arcs = {m: (h, m) for m, h in enumerate(heads) if h >= 0}
    expected = [0] * len(heads)
    for m, arc in arcs.items():
        expected[m] = sum(cross(arc, other) for other in arcs.values())
    assert crossing_arcs(heads).tolist() == expected
    assert projective(heads) == (sum(expected) == 0)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_a_tree_is_projective_when_heads_govern_all_that_lies_between(n):
    trees = 0
    for choice in product(range(n + 1), repeat=n):
        heads = (-1, *choice)
        if is_cyclic(heads):
            continue
        trees += 1
        expected = all(
            heads[m] in (0, *ancestors(heads, inner))
            for m in range(1, n + 1)
            for inner in range(min(heads[m], m) + 1, max(heads[m], m))
        )
        assert projective(heads) == expected, heads
    assert trees == (n + 1) ** (n - 1)  # Cayley: none was left out


def test_crossings_do_not_depend_on_how_the_table_is_cut():
    n = 2000  # more than one block of rows
    heads = np.concatenate([[-1], np.random.default_rng(0).integers(0, n + 1, n)])
    counts = crossing_arcs(heads)
    for m in (1, 700, n):
        arc = (heads[m], m)
        assert counts[m] == sum(cross(arc, (h, k)) for k, h in enumerate(heads) if k)


def test_roots_are_the_words_under_position_0():
    assert roots(np.array([-1, 0, 1, -1, 0])).tolist() == [1, 4]
