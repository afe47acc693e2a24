"""Groups of words, counted by hand."""

import json

import pytest

from parser.evaluation import Breakdown, Rules, mistakes
from parser.treebank import Sentence

CONLLX = Rules.named("conllx")
GOLD = Sentence.from_columns(
    ["the", "old", "dog", "sleeps", "here", "."],
    upos=["DET", "ADJ", "NOUN", "VERB", "ADV", "PUNCT"],
    heads=[-1, 3, 3, 4, 0, 4, 4],
    deprels=["det", "amod", "nsubj", "root", "advmod", "punct"],
)
HEADS = [-1, 3, 4, 4, 0, 3, 1]
DEPRELS = ["det", "amod", "obj", "root", "obj", "punct"]


@pytest.fixture
def breakdown():
    counts = Breakdown(CONLLX)
    counts.add(GOLD, HEADS, DEPRELS)
    return counts


def by_group(breakdown, facet):
    return {row[facet]: row for row in breakdown.rows(facet)}


def test_by_relation(breakdown):
    rows = by_group(breakdown, "relation")
    assert "punct" not in rows  # not scored
    assert rows["amod"] == {
        "relation": "amod",
        **{"words": 1, "system": 1},
        **{"uas_p": 0.0, "uas_r": 0.0, "uas_f1": 0.0, "las_p": 0.0, "las_r": 0.0, "las_f1": 0.0},
    }
    # nsubj: never answered; its one word has the right head, under the name obj.
    nsubj = rows["nsubj"]
    assert (nsubj["words"], nsubj["system"], nsubj["uas_r"], nsubj["las_r"]) == (1, 0, 100, 0)
    assert nsubj["uas_p"] is nsubj["las_p"] is nsubj["las_f1"] is None
    # obj: answered twice, once with the right head, never rightly.
    obj = rows["obj"]
    assert (obj["words"], obj["system"], obj["uas_p"], obj["las_p"]) == (0, 2, 50, 0)
    assert obj["uas_r"] is None


def test_by_distance(breakdown):
    # Gold: 2 1 1 root 1; system: 2 2 1 root 2 (the full stop is not scored).
    rows = by_group(breakdown, "distance")
    assert list(rows) == ["root", "1", "2"]
    assert (rows["1"]["words"], rows["1"]["system"]) == (3, 1)
    assert (rows["1"]["uas_p"], rows["1"]["uas_r"]) == (100, pytest.approx(100 / 3))
    assert rows["1"]["uas_f1"] == pytest.approx(50)
    assert rows["1"]["las_p"] == 0
    assert (rows["2"]["words"], rows["2"]["system"]) == (1, 3)
    assert rows["2"]["uas_p"] == pytest.approx(100 / 3)
    assert rows["root"]["las_f1"] == 100


def test_by_direction(breakdown):
    rows = by_group(breakdown, "direction")
    assert list(rows) == ["root", "head before", "head after"]
    assert (rows["head after"]["words"], rows["head after"]["uas_r"]) == (3, pytest.approx(200 / 3))
    assert (rows["head before"]["words"], rows["head before"]["uas_r"]) == (1, 0)


def test_by_part_of_speech_and_length(breakdown):
    assert by_group(breakdown, "pos")["NOUN"] == {"pos": "NOUN", "words": 1, "uas": 100, "las": 0}
    assert breakdown.rows("length") == [{"length": "1-10", "words": 5, "uas": 60, "las": 40}]


@pytest.mark.parametrize(
    ("n", "group"), [(1, "1-10"), (10, "1-10"), (11, "11-20"), (50, "41-50"), (51, "51+")]
)
def test_length_bins_are_closed_on_the_right(n, group):
    counts = Breakdown(CONLLX)
    heads = [-1, *range(n)]
    counts.add(Sentence.from_columns(["w"] * n, heads=heads, deprels=["dep"] * n), heads)
    assert list(by_group(counts, "length")) == [group]


def test_a_tagger_free_view_of_who_errs():
    """Leaving out UPOS=PUNCT, as papers do, is the sum over the other parts of speech."""
    counts = Breakdown(Rules.named("conllx", punctuation=True))
    counts.add(GOLD, HEADS, DEPRELS)
    rows = by_group(counts, "pos")
    assert rows["PUNCT"]["uas"] == 0
    right = sum(row["words"] * row["uas"] for pos, row in rows.items() if pos != "PUNCT")
    assert right / 5 == pytest.approx(60)


def test_confusions_are_ranked(breakdown):
    breakdown.add(GOLD, [-1, 3, 3, 4, 0, 4, 4], ["det", "amod", "obj", "root", "advmod", "x"])
    assert breakdown.confusions() == [
        {"gold": "nsubj", "system": "obj", "words": 2, "head_right": 2},
        {"gold": "advmod", "system": "obj", "words": 1, "head_right": 0},
    ]
    assert len(breakdown.confusions(top=1)) == 1


def test_subtypes_are_one_relation_under_conll18():
    gold = Sentence.from_columns(["go", "there"], heads=[-1, 0, 1], deprels=["root", "obl:arg"])
    for name, groups in (("conll18", ["obl", "root"]), ("conllx", ["obl", "obl:arg", "root"])):
        counts = Breakdown(Rules.named(name))
        counts.add(gold, [-1, 0, 1], ["root", "obl"])
        assert sorted(by_group(counts, "relation")) == groups


def test_words_without_a_head_are_a_group_of_the_system(breakdown):
    breakdown.add(GOLD, [-1, 3, 4, 4, 0, -1, 1], DEPRELS)
    row = by_group(breakdown, "distance")["none"]
    assert (row["words"], row["system"], row["uas_p"], row["uas_r"]) == (0, 1, 0, None)


def test_without_relations_labelled_figures_are_left_out():
    counts = Breakdown(CONLLX)
    counts.add(GOLD, HEADS)
    assert set(counts.rows("pos")[0]) == {"pos", "words", "uas"}
    assert by_group(counts, "relation")["nsubj"]["uas_f1"] == 100
    assert counts.confusions() == []


def test_unknown_facets_are_named(breakdown):
    with pytest.raises(ValueError, match=r"one of relation, .* got 'colour'"):
        breakdown.rows("colour")


def test_the_dictionary_is_json(breakdown):
    facets = json.loads(json.dumps(breakdown.to_dict(), allow_nan=False))
    assert set(facets) == {"relation", "pos", "length", "distance", "direction", "confusions"}


def test_mistakes_are_listed_at_their_words():
    assert list(mistakes(GOLD, HEADS, DEPRELS, CONLLX)) == [
        "old 3:amod > 4:amod",
        "dog 4:nsubj > 4:obj",
        "here 4:advmod > 3:obj",
    ]
    assert list(mistakes(GOLD, HEADS, DEPRELS, Rules.named("conllx", punctuation=True)))[-1] == (
        ". 4:punct > 1:punct"
    )
    assert list(mistakes(GOLD, [-1, 3, 3, 4, 0, -1, 4], None, CONLLX)) == ["here 4 > _"]
    assert list(mistakes(GOLD, GOLD.heads, GOLD.deprels, CONLLX)) == []
