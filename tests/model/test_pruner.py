"""Which arcs a pruner keeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cython_ext import candidates
from parser.features import Vocabulary
from parser.graph import GraphError, all_arcs
from parser.inference import default_engine
from parser.learning import Trainer, TrainingError
from parser.model import Parser, Settings, make_pruner
from parser.model.pruner import likely
from parser.treebank import read_all
from parser.trees import is_tree


def settings(**changes):
    return Settings(
        **{"bits": 14, "prune_bits": 12, "prune_epochs": 2, "labelled": False, "epochs": 2}
        | changes
    )


@pytest.fixture(scope="module")
def sentences(english):
    return read_all([english])[:80]


@pytest.fixture(scope="module")
def trained(sentences):
    trainer = Trainer(settings(), sentences[:60], sentences[60:])
    return trainer, trainer.run()


def test_a_word_keeps_its_most_likely_heads():
    arcs = all_arcs(3)
    marginals = np.array([0.5, 0.2, 0.3, 0.98, 0.01, 0.01, 0.4, 0.3, 0.3])
    kept = likely(marginals, arcs, heads=3, threshold=0.1)
    assert kept.tolist() == [True] * 3 + [True, False, False] + [True] * 3
    kept = likely(marginals, arcs, heads=2, threshold=0.0)
    assert kept.tolist() == [True, False, True, True, True, False, True, True, False]


def test_of_equal_heads_the_lowest_are_kept():
    rng = np.random.default_rng(1)
    arcs = all_arcs(9)
    for heads in (1, 2, 5, 9):
        for threshold in (0.0, 0.3, 1.0):
            marginals = rng.integers(0, 6, len(arcs)) / 5
            kept = likely(marginals, arcs, heads, threshold).reshape(9, 9)
            for own, row in zip(marginals.reshape(9, 9), kept, strict=True):
                order = sorted(range(9), key=lambda a: (-own[a], a))
                best = {a for a in order[:heads] if own[a] >= threshold * own.max()}
                assert set(np.flatnonzero(row)) == best


def test_marked_arcs_are_selected():
    arcs, keep = all_arcs(4), np.zeros(16, bool)
    keep[[0, 5, 9, 13]] = True
    assert candidates.mark(np.array([5, 6, 15], np.int32), keep.view(np.uint8)) == 2
    kept = arcs.select(keep)
    assert kept.offsets.tolist() == [0, 1, 3, 4, 6]
    assert kept.heads.tolist() == arcs.heads[keep].tolist()
    assert kept.modifiers.tolist() == [1, 2, 2, 3, 4, 4]
    assert arcs.select(np.ones(16, bool)) is arcs
    keep[[5, 6]] = False
    with pytest.raises(GraphError, match="word 2 is left without a possible head"):
        arcs.select(keep)


def test_what_is_kept_is_within_the_limits_and_holds_a_tree(sentences):
    vocabulary = Vocabulary.build(sentences)
    rng = np.random.default_rng(0)
    table = rng.normal(size=(1 << 12, 16)).astype(np.float32)
    columns = [vocabulary.encode(s) for s in sentences]
    for projective in (False, True):
        chosen = settings(prune_heads=2, projective=projective, single_root=True)
        pruner = make_pruner(vocabulary, chosen, table)
        engine = default_engine(projective=projective)
        for each, (arcs, rescued) in zip(columns, pruner.select(columns), strict=True):
            assert np.diff(arcs.offsets).max() <= 2 + rescued
            (graph,) = pruner.scorer.graphs(
                [pruner.scorer.encode_ids(*each)],
                table,
                projective=projective,
                single_root=True,
                arcs=[arcs],
            )
            assert is_tree(engine.best(graph).heads.tolist())


def test_gold_arcs_are_never_pruned_in_training(sentences):
    trainer = Trainer(settings(prune_heads=1), sentences[:40])
    columns = [trainer.scorer.vocabulary.encode(s) for s in trainer.sentences]
    for sentence, arcs in zip(trainer.sentences, trainer.train_pruner(columns), strict=True):
        pairs = set(zip(arcs.heads.tolist(), arcs.modifiers.tolist(), strict=True))
        assert {(int(sentence.heads[m]), m) for m in range(1, len(sentence) + 1)} <= pairs
    assert trainer.data["pruner_recall_train"] < 100


def test_recall_is_recorded_and_true(trained, sentences):
    trainer, model = trained
    dev = sentences[60:]
    selected = model.pruner.select([model.vocabulary.encode(s) for s in dev])
    kept = [set(zip(a.heads.tolist(), a.modifiers.tolist(), strict=True)) for a, _ in selected]
    gold = [
        (int(s.heads[m]), m) in pairs
        for s, pairs in zip(dev, kept, strict=True)
        for m in range(1, len(s) + 1)
    ]
    assert model.record["data"]["pruner_recall_dev"] == round(100 * np.mean(gold), 2)
    assert trainer.data["pruner_recall_train"] > 90


def test_kept_heads_survive_the_pruner(trained, sentences):
    _, model = trained
    sentence = next(s for s in sentences if len(s) >= 6)
    heads = np.full(len(sentence) + 1, -1, np.int32)
    heads[2] = sentence.heads[2]
    parse = Parser(model, keep_heads=True).parse(replace(sentence, heads=heads))
    assert parse.heads[2] == sentence.heads[2]


def test_full_graphs_that_will_not_fit_are_refused_before_training(sentences, monkeypatch):
    monkeypatch.setattr("parser.graph.scored_graph.BYTES_LIMIT", 100_000)
    with pytest.raises(TrainingError, match=r"english\.conllu: sentence \d+: \d+ words with"):
        Trainer(settings(prune=False), sentences)


def test_a_crf_over_crossing_trees_with_parts_learns_by_belief_propagation(sentences):
    trainer = Trainer(settings(learner="crf", projective=False), sentences)
    assert trainer.settings.engine == "bp:iterations=5"
    for engine in ("hill-climbing", "bp:product=max"):
        with pytest.raises(TrainingError, match=f"which engine {engine} does not have"):
            Trainer(settings(learner="crf", projective=False, engine=engine), sentences)
