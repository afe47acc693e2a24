"""The experiment on a small treebank in place of the real ones."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from parser.graph import CHILDSEQ, CODES, GRAND, ScoredGraph, all_arcs
from parser.reproduction import Workshop, available, load
from parser.reproduction.koo_2010 import (
    AT,
    ENGINES,
    LIMITS,
    MODELS,
    SECOND_ORDER,
    SLIDES,
    TABLE_1,
    Koo2010,
    Sample,
    Scale,
    Solved,
    automata_alone,
    hits,
    near_mean,
    report,
    tables,
    tree_alone,
)
from parser.reproduction.workshop import counted
from parser.treebank import read_all
from tests.cli.test_cli import parser

SCALE = Scale(1, 800, Sample(15, 20, 10.0))


@pytest.fixture(scope="module")
def treebanks(english, tmp_path_factory):
    folder = tmp_path_factory.mktemp("treebanks")
    (folder / "ud").mkdir()
    sentences = read_all([english])
    for name, part in (("train", sentences[:110]), ("test", sentences[176:])):
        text = "".join(sentence.to_conll() for sentence in part)
        (folder / "ud" / f"en_lines-ud-{name}.conllu").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def results(treebanks, tmp_path_factory):
    """What the command prints as JSON, and the folder of its models and results."""
    folder = tmp_path_factory.mktemp("out")
    options = ("--treebank", treebanks, "--quick", "--epochs", 1, "-o", folder, "--json")
    code, out, err = parser("reproduce", "koo-2010", *options)
    assert code == 0, err
    trained = [line for line in err.splitlines() if "training" in line]
    assert [line.split("(")[1] for line in trained] == [f"{i} of 4 models)" for i in range(1, 5)]
    printed = json.loads(out)
    assert printed["tables"] == tables(printed["results"])
    return printed["results"], folder, options


@pytest.mark.slow
def test_the_report_has_the_published_figures_beside_ours(results):
    blocks = list(report(results[0]))
    assert "98.00" in blocks[1]
    rows = tables(results[0])
    ours, *published = rows["accuracy"]
    assert ours["treebank"] == "English LinES"
    assert all(50 < ours[f"our_{name}"] <= 100 for name in MODELS)
    assert ours["grandparent"] is None  # the slides do not have it
    assert [row["treebank"] for row in published] == [name for name, *_ in SLIDES.values()]
    assert [row["grandparent"] for row in published][:2] == [91.8, 85.8]
    assert [row["published_F1"] for row in rows["stopping"]][:4] == [90.63, 90.69, 90.7, None]
    assert [row[">50"] for row in rows["iterations"]][:2] == [0.4, 1.1]
    for row in rows["iterations"]:
        *shares, never = [value for value in row.values() if not isinstance(value, str)]
        assert sum(shares) == pytest.approx(100, abs=0.3)
        assert never is None or never <= shares[-1]
    assert len(rows["iterations"]) == len(TABLE_1) + 2 * len(SECOND_ORDER)


@pytest.mark.slow
def test_what_is_proved_is_what_exact_engines_find(results):
    for name in SECOND_ORDER:
        own = results[0]["languages"]["lines"][name]
        exact = Solved(**own["engines"]["dual decomposition, exact"])
        assert all(exact.certified)
        others = [own["engines"][title] for title in ENGINES] + [
            own["stopped"][str(limit)]["climbed"] for limit in LIMITS
        ]
        for other in (Solved(**each) for each in others):
            assert (np.array(other.score) <= np.array(exact.score) + 1e-6).all()
            agree = np.isclose(other.score, exact.score)
            assert agree[np.array(other.certified)].all()
        program = Solved(**own["programs"]["ILP"])
        assert program.score == pytest.approx(exact.take(own["programs"]["sentences"]).score)
        dp = Solved(**own["engines"]["projective DP"])
        same = Solved(**own["engines"]["dual decomposition, projective"])
        proved = np.array(same.certified)
        assert np.array(same.score)[proved] == pytest.approx(np.array(dp.score)[proved])
        here = Solved(**own["engines"]["projective DP, same arcs"])
        assert (np.array(here.score) <= np.array(exact.score) + 1e-6).all()


@pytest.mark.slow
def test_more_iterations_prove_more(results):
    for name in SECOND_ORDER:
        rows = [r for r in tables(results[0])["stopping"] if r["model"] == name]
        proved = [row["certified"] for row in rows]
        assert proved == sorted(proved)
        assert rows[-1]["same_score"] == 100
        own = results[0]["languages"]["lines"][name]["iterations"]["bounded-polyak"]
        for row, limit in zip(rows, LIMITS, strict=True):
            share = np.mean([e["certified"] and e["iterations"] <= limit for e in own])
            assert row["certified"] == pytest.approx(100 * share)


@pytest.mark.slow
def test_all_automata_are_solved_at_first_and_fewer_later(results):
    for row in tables(results[0])["resolving"]:
        shares = [row[str(k)] for k in AT if row[str(k)] is not None]
        assert shares[0] == 100
        assert max(shares[4:]) < 60
        assert min(shares) <= row["of_all"] <= 100


@pytest.mark.slow
def test_what_is_there_is_not_made_again(results):
    first, folder, options = results
    files = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    code, out, err = parser("reproduce", "koo-2010", *options)
    assert (code, err) == (0, "")
    assert json.loads(out)["results"] == first
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == files


@pytest.mark.slow
def test_a_result_that_is_missing_is_measured_again(results, treebanks):
    first, folder, _ = results
    next(folder.glob("lines-sibling-subproblems-*.json")).unlink()
    lines = []
    workshop = Workshop(folder, announce=lines.append)
    again = Koo2010(workshop, [load(treebanks, "lines")], SCALE).run()
    assert lines == ["measuring lines-sibling-subproblems"]
    assert again == first


def test_treebanks_with_crossing_trees_have_no_projective_model(treebanks, tmp_path):
    data = load(treebanks, "lines")
    workshop = Workshop(tmp_path / "out")
    assert [name for _, name in Koo2010(workshop, [data], SCALE).plan] == list(MODELS)
    rows = [
        f"{word}\tx\t_\tX\tX\t_\t{head}\tx\t_\t_\n" for word, head in enumerate((3, 4, 0, 3), 1)
    ]
    (tmp_path / "crossing.conllu").write_text("".join(rows) + "\n")
    crossing = read_all([str(tmp_path / "crossing.conllu")])
    data = replace(data, train=[*data.train, *20 * crossing])
    assert [name for _, name in Koo2010(workshop, [data], SCALE).plan] == list(MODELS)[:-1]


def random_graph(rng, families, n=6):
    """Arcs with normal scores; parts, which are all 0."""
    arcs = all_arcs(n)
    parts = {family: np.zeros(arcs.layout.size(CODES[family])) for family in families}
    return ScoredGraph(arcs, rng.normal(size=len(arcs)), False, False, parts)


def test_automata_without_parts_choose_the_best_arc_into_each_word():
    rng = np.random.default_rng(0)
    for _ in range(20):
        graph = random_graph(rng, (CHILDSEQ,))
        often, copies = automata_alone(graph)
        assert copies == 1
        best = graph.matrix()[:, 1:].argmax(0)
        assert (often == (graph.heads == best[graph.modifiers - 1])).all()


def test_automata_that_choose_heads_choose_best_arcs_twice():
    """But for two words that are the best heads of each other: no automaton chooses a cycle."""
    rng = np.random.default_rng(1)
    seen = 0
    for _ in range(20):
        graph = random_graph(rng, (CHILDSEQ, GRAND))
        often, copies = automata_alone(graph)
        assert copies == 2
        best = np.append(-1, graph.matrix()[:, 1:].argmax(0))
        if any(best[best[word]] == word for word in range(1, graph.n + 1) if best[word]):
            continue
        seen += 1
        assert (often == 2 * (graph.heads == best[graph.modifiers])).all()
    assert seen > 5


def test_arcs_are_counted_into_words_that_are_no_punctuation(english):
    sentence = next(s for s in read_all([english]) if len(s) < 12)
    assert not counted(sentence).all()
    arcs = all_arcs(len(sentence))
    gold = (sentence.heads[arcs.modifiers] == arcs.heads).astype(float)
    graph = ScoredGraph(arcs, gold, False, False, {})
    words = int(counted(sentence).sum())
    assert hits(tree_alone, graph, sentence) == [words, words, words]
    twice = (np.ones(len(arcs), int), 2)
    assert hits(lambda _: twice, graph, sentence) == [words, len(sentence) * words, 2 * words]


def test_sentences_of_mean_length_are_three_words_off_at_most_or_nearest():
    assert near_mean(np.array([1, 18, 20, 23, 40])).tolist() == [False, True, True, True, False]
    assert near_mean(np.array([1, 101])).tolist() == [True, True]


def test_a_part_of_sentences():
    solved = Solved([1, 3], [2, 6], [2, 4], [3, 7], [0.5, 0.25], [True, False], [1, 9], [0.1, 0.4])
    assert (solved.uas, solved.uas_all, solved.percent_certified) == (50.0, 60.0, 50.0)
    assert solved.rate == pytest.approx(4.0)
    part = solved.take([1])
    assert (part.words, part.score, part.certified, part.rate) == ([7], [0.25], [False], 2.5)
    assert part.microseconds().tolist() == pytest.approx([400_000.0])


def test_a_folder_without_treebanks_is_one_line_that_names_the_files(tmp_path):
    code, out, err = parser("reproduce", "koo-2010", "--treebank", tmp_path)
    assert (code, out, err.count("\n")) == (1, "", 1)
    for name in ("conllx/da_ddt_train.conllx", "ud/la_perseus-ud-test.conllu"):
        assert name in err


def test_each_experiment_has_its_own_treebanks(treebanks):
    assert available(treebanks) == ["lines"]
    options = ("--treebank", treebanks, "--language", "lines")
    code, _, err = parser("reproduce", "smith-eisner-2008", *options)
    assert code == 2
    assert "'lines' is not one of 'da', 'nl', 'en'" in err
