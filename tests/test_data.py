"""The treebank that the project ships is a valid, varied CoNLL-U file."""

from __future__ import annotations

from pathlib import Path

import conllu
import pytest
from conllu.models import Token, TokenList

TAGS = "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X"
# The universal relations, and the subtypes that English has in Universal Dependencies 2.
RELATIONS = """
    acl acl:relcl advcl advcl:relcl advmod amod appos aux aux:pass case cc cc:preconj ccomp
    compound compound:prt conj cop csubj csubj:outer csubj:pass dep det det:predet discourse
    dislocated expl fixed flat goeswith iobj list mark nmod nmod:desc nmod:poss nmod:unmarked
    nsubj nsubj:outer nsubj:pass nummod obj obl obl:agent obl:unmarked orphan parataxis punct
    reparandum root vocative xcomp
"""
FUNCTION_RELATIONS = "aux aux:pass case cc cop det mark punct"
UPOS, DEPREL, FUNCTION = (
    frozenset(names.split()) for names in (TAGS, RELATIONS, FUNCTION_RELATIONS)
)
TEST_SENTENCES = 40


@pytest.fixture(scope="module")
def sentences(english: Path) -> list[TokenList]:
    return conllu.parse(english.read_text(encoding="utf-8"))


def words(sentence: TokenList) -> list[Token]:
    return [token for token in sentence if isinstance(token["id"], int)]


def ranges(sentence: TokenList) -> list[Token]:
    return [t for t in sentence if isinstance(t["id"], tuple) and t["id"][1] == "-"]


def empty_nodes(sentence: TokenList) -> list[Token]:
    return [t for t in sentence if isinstance(t["id"], tuple) and t["id"][1] == "."]


def ancestors(sentence: TokenList, word: int) -> list[int]:
    """`word` and its heads up to the root 0; AssertionError on a cycle."""
    heads = [-1] + [token["head"] for token in words(sentence)]
    path = [word]
    while path[-1] != 0:
        path.append(heads[path[-1]])
        assert len(path) <= len(heads), f"cycle through word {word}"
    return path


def gap(sentence: TokenList, token: Token) -> list[Token]:
    """The words between a word and its head that the head does not dominate."""
    low, high = sorted((token["id"], token["head"]))
    return [
        between
        for between in words(sentence)[low : high - 1]
        if token["head"] not in ancestors(sentence, between["id"])
    ]


def is_projective(sentence: TokenList) -> bool:
    return not any(gap(sentence, token) for token in words(sentence))


def surface(sentence: TokenList) -> str:
    """The text that forms, ranges and SpaceAfter spell out."""
    text, covered = "", 0
    for token in sentence:
        identifier = token["id"]
        if isinstance(identifier, tuple):
            if identifier[1] == ".":
                continue
            covered = identifier[2]
        elif identifier <= covered:
            continue
        text += token["form"]
        if (token["misc"] or {}).get("SpaceAfter") != "No":
            text += " "
    return text.rstrip()


def name(sentence: TokenList) -> str:
    return sentence.metadata["sent_id"]


def test_is_large_and_varied_enough_for_a_first_parser(sentences):
    lengths = [len(words(sentence)) for sentence in sentences]
    assert len(sentences) >= 150
    assert sum(lengths) >= 2000
    assert min(lengths) <= 3
    assert max(lengths) >= 40


def test_has_what_makes_readers_and_decoders_stumble(sentences):
    assert sum(bool(ranges(sentence)) for sentence in sentences) >= 10
    assert sum(bool(empty_nodes(sentence)) for sentence in sentences) >= 1
    assert sum(not is_projective(sentence) for sentence in sentences) >= 6


def test_test_split_holds_every_kind_of_difficulty_and_mostly_known_words(sentences):
    train, test = sentences[:-TEST_SENTENCES], sentences[-TEST_SENTENCES:]
    assert any(ranges(sentence) for sentence in test)
    assert any(not is_projective(sentence) for sentence in test)
    known = {token["form"].lower() for sentence in train for token in words(sentence)}
    forms = [token["form"].lower() for sentence in test for token in words(sentence)]
    assert sum(form in known for form in forms) >= 0.8 * len(forms)
    relations = {token["deprel"] for sentence in train for token in words(sentence)}
    assert {token["deprel"] for s in test for token in words(s)} <= relations


def test_every_sentence_is_a_tree_with_one_root(sentences):
    for sentence in sentences:
        nodes = words(sentence)
        assert [token["id"] for token in nodes] == list(range(1, len(nodes) + 1)), name(sentence)
        assert all(0 <= token["head"] <= len(nodes) for token in nodes), name(sentence)
        for token in nodes:
            ancestors(sentence, token["id"])
            assert (token["head"] == 0) == (token["deprel"] == "root"), name(sentence)
        assert sum(token["head"] == 0 for token in nodes) == 1, name(sentence)


def test_ids_and_texts_are_unique(sentences):
    for key in ("sent_id", "text"):
        values = [sentence.metadata[key] for sentence in sentences]
        assert len(values) == len(set(values))


def test_text_is_what_the_words_spell(sentences):
    for sentence in sentences:
        assert surface(sentence) == sentence.metadata["text"]


def test_a_range_is_spelled_by_its_words(sentences):
    for sentence in sentences:
        nodes = words(sentence)
        for token in ranges(sentence):
            first, _, last = token["id"]
            assert "".join(t["form"] for t in nodes[first - 1 : last]) == token["form"]


def test_tags_and_relations_are_universal_dependencies(sentences):
    for sentence in sentences:
        for token in words(sentence):
            assert token["upos"] in UPOS, name(sentence)
            assert token["deprel"] in DEPREL, name(sentence)
            assert token["lemma"] not in (None, "_"), name(sentence)
            assert (token["upos"] == "PUNCT") == (token["deprel"] == "punct"), name(sentence)


def test_features_are_sorted_by_name(sentences):
    for sentence in sentences:
        for token in words(sentence):
            features = [feature.lower() for feature in token["feats"] or {}]
            assert features == sorted(features), name(sentence)


def test_relations_agree_with_tags(sentences):
    allowed = {
        "det": {"DET"},
        "aux": {"AUX"},
        "aux:pass": {"AUX"},
        "cop": {"AUX"},
        "case": {"ADP", "PART"},
        "cc": {"CCONJ"},
        "nummod": {"NUM"},
        "compound:prt": {"ADP"},
        "mark": {"SCONJ", "PART"},
    }
    for sentence in sentences:
        for token in words(sentence):
            assert token["upos"] in allowed.get(token["deprel"], UPOS), (name(sentence), token)


def test_function_words_and_punctuation_have_no_dependents(sentences):
    # Except the rest of a fixed expression and a coordination of function words.
    for sentence in sentences:
        nodes = words(sentence)
        for token in nodes:
            head = nodes[token["head"] - 1]
            if token["head"] and head["deprel"] in FUNCTION:
                assert token["deprel"] in {"fixed", "conj"}, (name(sentence), token["form"])


def test_a_predicate_has_one_subject_and_one_object(sentences):
    for sentence in sentences:
        nodes = words(sentence)
        for head in range(1, len(nodes) + 1):
            relations = [t["deprel"] for t in nodes if t["head"] == head]
            # `expl` and `nsubj:outer` stand beside a subject.
            subjects = {"nsubj", "nsubj:pass", "csubj", "csubj:pass"}
            assert sum(relation in subjects for relation in relations) <= 1, name(sentence)
            assert relations.count("obj") <= 1, name(sentence)


def test_punctuation_is_attached_projectively(sentences):
    for sentence in sentences:
        for token in words(sentence):
            between = gap(sentence, token)
            if token["deprel"] == "punct":
                assert not between, (name(sentence), token["id"])
            elif between:
                assert any(t["deprel"] != "punct" for t in between), (name(sentence), token["id"])


def test_enhanced_graphs_reach_every_node_of_their_sentence(sentences):
    for sentence in sentences:
        if empty_nodes(sentence):
            assert all(token["deps"] not in (None, "_") for token in words(sentence))
            assert all(token["deps"] not in (None, "_") for token in empty_nodes(sentence))
        else:
            assert all(token["deps"] is None for token in words(sentence)), name(sentence)
