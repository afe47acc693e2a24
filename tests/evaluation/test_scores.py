"""Scores against numbers worked out by hand, one small sentence at a time."""

import json

import numpy as np
import pytest

from parser.evaluation import (
    AlignmentError,
    EvaluationError,
    Reference,
    Rules,
    Scores,
    aligned,
    evaluate,
    is_punctuation,
)
from parser.treebank import Sentence, read

CONLLX, CONLL18 = Rules.named("conllx"), Rules.named("conll18")


def sentence(words, heads, deprels=None, **columns):
    words = words.split()
    deprels = ["dep"] * len(words) if deprels is None else deprels.split()
    return Sentence.from_columns(words, heads=[-1, *heads], deprels=deprels, **columns)


def parsed(gold, heads, deprels=None):
    return sentence(
        " ".join(gold.forms), heads, " ".join(gold.deprels) if deprels is None else deprels
    )


# Three wrong heads, all at words tagged PUNCT; `%` is punctuation by form, `` is not.
QUOTED = sentence(
    "He said `` ninety % agree '' .",
    [2, 0, 6, 5, 6, 2, 6, 2],
    upos=["PRON", "VERB", "PUNCT", "NUM", "NOUN", "VERB", "PUNCT", "PUNCT"],
)
QUOTED_ANSWER = parsed(QUOTED, [2, 0, 2, 5, 6, 2, 2, 6])


@pytest.mark.parametrize(
    ("rules", "punctuation", "words", "score"),
    [
        ("conllx", None, 5, "80.00"),
        ("conllx", True, 8, "62.50"),
        ("conll18", None, 8, "62.50"),
        ("conll18", False, 5, "80.00"),
    ],
)
def test_rules_differ_on_the_same_pair_of_files(rules, punctuation, words, score):
    scores = evaluate([QUOTED], [QUOTED_ANSWER], rules, punctuation=punctuation)
    assert scores.scored.words == words
    assert (f"{scores.uas:.2f}", f"{scores.las:.2f}") == (score, score)


@pytest.mark.parametrize("form", [*",.:;!?-_()[]{}'\"%#&*@/\\", "''", "...", "«", "。", "،", "§"])
def test_punctuation_by_form(form):
    assert is_punctuation(form)


@pytest.mark.parametrize("form", [*"`$+<=>^|~°€©", "``", "-LRB-", "1.", ":-)a", ""])
def test_what_the_rule_does_not_call_punctuation(form):
    assert not is_punctuation(form)


def test_relation_subtypes_count_under_conllx_only():
    gold = sentence("her dog sleeps", [2, 3, 0], "nmod:poss nsubj root")
    answer = parsed(gold, [2, 3, 0], "nmod nsubj root")
    assert evaluate([gold], [answer], "conllx").las == pytest.approx(200 / 3)
    assert evaluate([gold], [answer], "conll18").las == 100


def test_relations_are_case_sensitive():
    gold = sentence("go", [0], "root")
    assert evaluate([gold], [parsed(gold, [0], "ROOT")], "conll18").las == 0


def test_every_measure_by_hand():
    gold = [
        sentence("the dog sleeps .", [2, 3, 0, 3], "det nsubj root punct"),
        sentence("they run home", [2, 0, 2], "nsubj root obl"),
        sentence("a cat", [2, 0], "det root"),
    ]
    answers = [
        parsed(gold[0], [3, 3, 0, 2], "det obj root punct"),  # two heads wrong, one relation
        parsed(gold[1], [2, 0, 2], "nsubj root case"),  # one relation wrong
        gold[2],
    ]
    scores = evaluate(gold, answers, "conll18")
    assert (scores.sentences, scores.all.words, scores.np.words) == (3, 9, 8)
    assert scores.all == (9, 7, 7, 5)  # words, heads, relations, both
    assert scores.np == (8, 7, 6, 5)
    assert scores.uas == pytest.approx(700 / 9)
    assert scores.las == pytest.approx(500 / 9)
    assert scores.label_accuracy == pytest.approx(700 / 9)
    assert (scores.complete_heads, scores.complete_both) == (2, 1)
    assert scores.roots == (3, 3, 3)
    # Content words of gold: dog sleeps they run home cat; of the system: all but home.
    assert scores.content == (6, 5, 4)
    assert scores.clas == pytest.approx(100 * 2 * 4 / 11)


def test_a_wrong_root_costs_precision_and_recall():
    gold = sentence("a b c", [0, 1, 1])
    lenient = evaluate([gold], [parsed(gold, [0, 0, 0])], "conllx")
    assert lenient.roots == (1, 3, 1)
    assert (lenient.roots.precision, lenient.roots.recall) == (pytest.approx(100 / 3), 100)
    assert lenient.roots.f1 == 50
    wrong = evaluate([gold], [parsed(gold, [2, 0, 2])], "conllx")
    assert wrong.roots == (1, 1, 0)
    assert wrong.complete_both == 0  # all relations are right, no head is


def test_ranges_and_empty_nodes_are_not_words(tmp_path):
    rows = [
        "# text = We don't, she does",
        "1\tWe\t_\tPRON\t_\t_\t4\tnsubj\t_\t_",
        "2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_",
        "2\tdo\t_\tAUX\t_\t_\t0\troot\t_\t_",
        "3\tn't\t_\tPART\t_\t_\t2\tadvmod\t_\t_",
        "4\t,\t_\tPUNCT\t_\t_\t2\tpunct\t_\t_",
        "5\tshe\t_\tPRON\t_\t_\t6\tnsubj\t_\t_",
        "5.1\tdo\t_\tVERB\t_\t_\t_\t_\t2:conj\t_",
        "6\tdoes\t_\tAUX\t_\t_\t2\tparataxis\t_\t_",
    ]
    gold, system = tmp_path / "gold.conllu", tmp_path / "system.conllu"
    gold.write_text("\n".join(rows) + "\n\n", encoding="utf-8")
    rows[1] = rows[1].replace("\t4\t", "\t2\t")
    # The system's file has neither range nor empty node: the words are the same.
    system.write_text(
        "\n".join(row for row in rows if "-" not in row[:2] and "." not in row[:2]) + "\n\n",
        encoding="utf-8",
    )
    scores = evaluate(read(gold), read(system), "conllx")
    assert (scores.all.words, scores.np.words) == (6, 5)
    assert scores.uas == 80
    assert evaluate(read(gold), read(system), "conll18").uas == pytest.approx(500 / 6)

    rows[8] = rows[8].replace("\tdoes\t", "\tdid\t")
    system.write_text("\n".join(rows) + "\n\n", encoding="utf-8")
    with pytest.raises(AlignmentError) as caught:
        evaluate(read(gold), read(system))
    assert str(caught.value) == (
        f"{system}:9: sentence 1: word 6: expected 'does' as in the gold file, found 'did'"
    )
    assert (caught.value.line, caught.value.expected) == (9, "'does'")


def test_sentences_of_other_lengths_or_numbers_are_refused():
    gold = sentence("a b", [0, 1])
    with pytest.raises(AlignmentError, match=r"word 2: expected 'b' .* found end of sentence"):
        evaluate([gold], [sentence("a", [0])])
    with pytest.raises(AlignmentError, match=r"word 3: expected end of sentence .* found 'c'"):
        evaluate([gold], [sentence("a b c", [0, 1, 1])])
    with pytest.raises(AlignmentError, match="expected 'a b' as in the gold file, found end of"):
        evaluate([gold, gold], [gold])
    with pytest.raises(AlignmentError, match=r"expected end of file .* found 'a b'"):
        evaluate([gold], [gold, gold])
    with pytest.raises(AlignmentError, match="system file: sentence 1: expected 'a b'"):
        evaluate([gold], [])


def test_streams_are_read_in_step():
    asked = []

    def stream(name):
        for number in range(3):
            asked.append((name, number))
            yield sentence("a", [0])

    pairs = aligned(stream("gold"), stream("system"))
    next(pairs)
    assert asked == [("gold", 0), ("system", 0)]


def test_several_roots_are_refused_by_conll18_unless_allowed():
    gold = sentence("a b c", [0, 1, 1])
    answer = parsed(gold, [0, 0, 1])
    with pytest.raises(EvaluationError, match="<memory>:1: sentence 1: 2 roots"):
        evaluate([gold], [answer], "conll18")
    with pytest.raises(EvaluationError, match="2 roots"):
        evaluate([answer], [gold], "conll18")
    with pytest.raises(EvaluationError, match="0 roots"):
        Scores(CONLL18).add(gold, [-1, 2, 1, 1])
    assert evaluate([gold], [answer], "conll18", allow_multiple_roots=True).uas == pytest.approx(
        200 / 3
    )
    assert evaluate([gold], [answer], "conllx").uas == pytest.approx(200 / 3)


def test_a_word_without_system_head_is_wrong_or_refused():
    gold = sentence("a b c", [0, 1, 1])
    with pytest.raises(EvaluationError, match="word 3 has no head"):
        evaluate([gold], [parsed(gold, [0, 1, -1])], "conll18")
    for options in ({"rules": "conllx"}, {"rules": "conll18", "allow_multiple_roots": True}):
        scores = evaluate([gold], [parsed(gold, [0, 1, -1])], **options)
        assert scores.uas == scores.las == pytest.approx(200 / 3)


def test_gold_without_heads_is_refused_by_all_rules():
    for rules in ("conllx", "conll18"):
        with pytest.raises(EvaluationError, match="word 2 has no head"):
            evaluate([sentence("a b", [0, -1])], [sentence("a b", [0, 1])], rules)


@pytest.mark.parametrize(
    ("heads", "deprels", "message"),
    [
        ([[-1, 0, 4, 1]], None, r"word 2 has head 4, outside 0\.\.3"),
        ([[-1, 0, 1]], None, r"2 heads \(position 0 apart\) for 3 words"),
        ([[-1, 0, 1, 1]], [["root"]], "1 relations for 3 words"),
        ([], None, "of 0 sentences for 1 gold sentences"),
    ],
)
def test_arrays_that_do_not_fit_are_named(heads, deprels, message):
    with pytest.raises(ValueError, match=message):
        Reference([sentence("a b c", [0, 1, 1])], CONLLX).score(heads, deprels)


def test_unknown_rules_are_named():
    with pytest.raises(ValueError, match="must be 'conllx' or 'conll18', got 'conll07'"):
        evaluate([], [], "conll07")


def test_nothing_to_score_gives_zero_and_says_so():
    empty = evaluate([], [])
    assert (empty.uas, empty.las, empty.clas, empty.roots.f1) == (0, 0, 0, 0)
    marks = sentence("! ?", [0, 1])
    scores = evaluate([marks], [marks], "conllx")
    assert (scores.uas, scores.scored.words, scores.all.words) == (0, 0, 2)
    rows = {row["measure"]: row for row in scores.rows()}
    assert rows["uas"] == {"measure": "uas", "percent": None, "right": 0, "total": 0}
    assert scores.to_dict()["uas"] is None
    assert scores.to_dict()["uas_all"] == 100


def random_treebank(rng, size):
    """Sentences with any heads (not trees: nothing here depends on it) and answers to them."""
    relations = np.array(["nsubj", "obl", "obl:arg", "punct", "det"])
    gold, heads, deprels = [], [], []
    for _ in range(size):
        n = int(rng.integers(1, 9))
        given = [0, *rng.integers(0, np.arange(1, n)).tolist()] if n > 1 else [0]
        forms = " ".join(rng.choice(["a", "b", ",", "%"], n))
        gold.append(sentence(forms, given, " ".join(rng.choice(relations, n))))
        answer = np.where(rng.random(n) < 0.3, rng.integers(0, n + 1, n), given)
        heads.append(np.array([-1, *answer]))
        deprels.append(rng.choice(relations, n).tolist())
    return gold, heads, deprels


@pytest.mark.parametrize("rules", [CONLLX, Rules.named("conll18", allow_multiple_roots=True)])
def test_arrays_streams_and_sums_agree(rules):
    gold, heads, deprels = random_treebank(np.random.default_rng(0), 40)
    at_once = Reference(gold, rules).score(heads, deprels)
    one_by_one = Scores(rules)
    for columns in zip(gold, heads, deprels, strict=True):
        one_by_one.add(*columns)
    assert one_by_one == at_once
    halves = Reference(gold[:20], rules).score(heads[:20], deprels[:20])
    halves += Reference(gold[20:], rules).score(heads[20:], deprels[20:])
    assert halves == at_once
    # The definition, word by word.
    words = [
        (g.forms[i], g.heads[i + 1] == h[i + 1], rules.relation(g.deprels[i]) == rules.relation(d))
        for g, h, ds in zip(gold, heads, deprels, strict=True)
        for i, d in enumerate(ds)
    ]
    kept = [word for word in words if rules.punctuation or word[0] not in (",", "%")]
    assert at_once.scored.words == len(kept)
    assert at_once.uas == pytest.approx(100 * np.mean([head for _, head, _ in kept]))
    assert at_once.las == pytest.approx(100 * np.mean([head and rel for _, head, rel in kept]))


def test_scores_by_different_rules_do_not_add_up():
    with pytest.raises(ValueError, match="cannot add"):
        Scores(CONLLX).__iadd__(Scores(CONLL18))


def test_without_relations_only_heads_are_reported():
    scores = Scores(CONLL18)
    scores.add(sentence("a b", [0, 1]), [-1, 0, 1])
    assert scores.uas == 100
    names = [row["measure"] for row in scores.rows()]
    assert names == [
        *("uas", "uas_all", "uas_np", "complete_uas"),
        *("root_precision", "root_recall", "root_f1"),
    ]
    assert "las" not in scores.to_dict()


def test_the_dictionary_is_json():
    scores = evaluate([QUOTED], [QUOTED_ANSWER], "conll18")
    there_and_back = json.loads(json.dumps(scores.to_dict(), allow_nan=False))
    assert there_and_back["uas"] == 62.5
    assert there_and_back["uas_np"] == 80
    assert there_and_back["words"] == 8
    json.dumps(scores.rows())


@pytest.mark.parametrize("name", ["ud/it_partut-ud-test.conllu.xz", "conllx/da_ddt_test.conllx.xz"])
def test_gold_against_itself_is_perfect(shared, name):
    path = shared / "treebanks" / name
    for rules in ("conllx", "conll18"):
        scores = evaluate(read(path), read(path), rules, allow_multiple_roots=True)
        assert scores.uas == scores.las == scores.label_accuracy == 100
        assert scores.complete_both == scores.sentences > 0
