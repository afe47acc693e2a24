"""The epoch loop: the same model every time, interrupted or not, and the best epoch kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parser.evaluation import Reference, Rules
from parser.inference import find_engine
from parser.learning import Trainer, TrainingError
from parser.model import Model, Parser, Settings, SettingsError
from parser.treebank import Sentence, read_all

SETTINGS = Settings(bits=14, label_bits=10, label_epochs=2, epochs=4, seed=3)


@pytest.fixture(scope="module")
def data(english):
    sentences = read_all([english])
    return sentences[:80], sentences[80:120]


def saved(model, path):
    model.save(path)
    return path.read_bytes()


@pytest.mark.parametrize("learner", ["mira", "crf"])
def test_an_interrupted_run_ends_in_the_same_model(data, tmp_path, learner):
    settings = replace(SETTINGS, learner=learner, optimizer="adagrad")
    whole = Trainer(settings, *data).run()

    checkpoint = tmp_path / "model.checkpoint"
    first = Trainer(settings, *data, checkpoint=checkpoint)

    def interrupt(epoch):
        if epoch.number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.run(interrupt)
    assert (first.saved, len(first.history)) == (2, 3)
    second = Trainer(settings, *data, checkpoint=checkpoint)
    second.resume()
    assert second.saved == len(second.history) == 2
    assert saved(second.run(), tmp_path / "resumed") == saved(whole, tmp_path / "whole")


def test_the_saved_model_gives_exactly_its_dev_score(data, tmp_path):
    trainer = Trainer(SETTINGS, *data)
    path = tmp_path / "model"
    trainer.run().save(path)
    parser = Parser(Model.load(path))
    parses = [parser.parse(s) for s in data[1]]
    reference = Reference(data[1], Rules.named("conll18", allow_multiple_roots=True))
    scores = reference.score([p.heads for p in parses], [p.deprels for p in parses])
    best = max((e for e in trainer.history if e.best), key=lambda e: e.number)
    assert (scores.uas, scores.las) == (best.dev_uas, best.dev_las)
    assert best.dev_las == max(e.dev_las for e in trainer.history)


def test_the_same_seed_gives_the_same_bytes_and_threads_change_nothing(data, tmp_path):
    one = saved(Trainer(SETTINGS, *data).run(), tmp_path / "one")
    two = saved(Trainer(SETTINGS, *data, jobs=2).run(), tmp_path / "two")
    other = saved(Trainer(replace(SETTINGS, seed=4), *data).run(), tmp_path / "other")
    assert one == two != other


def test_later_weights_count_more_but_not_in_the_pruner(data):
    settings = replace(SETTINGS, labelled=False, epochs=1)
    alike, later = (Trainer(replace(settings, recency=r), data[0]).run() for r in (0.0, 2.0))
    np.testing.assert_array_equal(alike.pruner.table.rows, later.pruner.table.rows)
    np.testing.assert_array_equal(alike.pruner.table.values, later.pruner.table.values)
    # Weights start at 0, so those of the later states are larger.
    assert np.abs(later.table.values).mean() > 1.2 * np.abs(alike.table.values).mean()


def test_learners_of_large_margins_count_later_weights_more_by_default(data):
    for learner, expected in {"mira": 2.0, "perceptron": 0.0, "crf": 0.0, "ssvm": 2.0}.items():
        trainer = Trainer(replace(SETTINGS, learner=learner), data[0])
        assert trainer.settings.recency == trainer.learner.weights.recency == expected
    chosen = replace(SETTINGS, learner="crf", recency=1.0)
    assert Trainer(chosen, data[0]).learner.weights.recency == 1.0


@pytest.mark.parametrize("recency", [-0.5, 4.5, float("nan")])
def test_a_recency_out_of_range_is_refused(recency):
    with pytest.raises(SettingsError, match=r"recency: 0.0 to 4.0, got"):
        Settings(recency=recency)


@pytest.mark.parametrize(
    "changes",
    [
        {"factors": ("link",), "optimizer": "adagrad"},
        {"factors": ("link", "childseq", "grand"), "projective": True},
        {"factors": ("link", "sib"), "projective": False, "epochs": 2},
    ],
    ids=str,
)
def test_threads_that_share_a_batch_change_nothing(data, tmp_path, changes):
    settings = replace(SETTINGS, learner="crf", batch=8, labelled=False, **changes)
    one, two = (
        saved(Trainer(settings, data[0], jobs=jobs).run(), tmp_path / f"{jobs}") for jobs in (1, 2)
    )
    assert one == two
    assert one != saved(Trainer(replace(settings, batch=7), data[0]).run(), tmp_path / "other")


def test_batches_are_for_the_crf_alone():
    with pytest.raises(SettingsError, match="batch: learner mira takes one sentence at a time"):
        replace(SETTINGS, batch=2)


def test_the_engine_of_the_settings_trains_and_is_the_models(data, tmp_path):
    name = "bp:iterations=3,schedule=parallel"
    trainer = Trainer(replace(SETTINGS, engine=name, epochs=1), *data)
    assert trainer.learner.engine.name == name
    model = trainer.run()
    assert model.scale != 1.0
    model.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    assert loaded.settings.engine == name
    engine = Parser(loaded).engine
    assert (engine.name, engine.iterations, engine.schedule) == (name, 3, "parallel")
    assert engine.scale == model.scale
    assert Parser(loaded, find_engine("grandsibling")).engine.name == "grandsibling"


@pytest.mark.parametrize("learner", ["mira", "perceptron"])
@pytest.mark.parametrize("name", ["dual-decomposition:exact=yes", "ad3", "ilp"])
def test_engines_of_programs_and_decompositions_train(english, name, learner):
    sentences = [sentence for sentence in read_all([english]) if len(sentence) <= 8][:15]
    settings = replace(
        SETTINGS, engine=name, learner=learner, projective=False, labelled=False, epochs=6
    )
    losses = []
    model = Trainer(settings, sentences).run(lambda epoch: losses.append(epoch.loss))
    assert losses[-1] < 0.3 * losses[0]
    gold = np.concatenate([sentence.heads for sentence in sentences])
    found = np.concatenate([Parser(model).parse(sentence).heads for sentence in sentences])
    assert (gold == found).mean() > 0.95


def test_dev_scores_of_a_model_whose_trees_depend_on_the_scale_are_given_again(data):
    lines = []
    settings = replace(SETTINGS, engine="bp:iterations=3", epochs=1, labelled=False)
    model = Trainer(settings, *data, announce=lines.append).run()
    trees = [Parser(model).parse(sentence).heads for sentence in data[1]]
    right = sum((t == s.heads)[1:].sum() for t, s in zip(trees, data[1], strict=True))
    uas = 100 * right / sum(map(len, data[1]))
    assert lines[-1] == f"scores are log potentials times {model.scale}; so dev UAS {uas:.2f}"
    lines.clear()
    Trainer(replace(settings, engine=""), *data, announce=lines.append).run()
    assert not any("log potentials" in line for line in lines)


def test_an_engine_for_one_kind_of_trees_decides(data):
    first = replace(SETTINGS, factors=("link",))
    assert Trainer(replace(first, engine="mst"), data[0]).settings.projective is False
    assert Trainer(replace(first, engine="projective"), data[0]).settings.projective is True
    assert Trainer(replace(first, engine="bp"), data[0]).settings.projective is True


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learner": "crf", "engine": "hill-climbing"}, "engine hill-climbing does not have"),
        ({"engine": "mst"}, "engine mst cannot use the factor family childseq"),
        ({"engine": "sibling"}, "engine sibling cannot use the factor family grand"),
        (
            {"engine": "grandsibling", "projective": False},
            "engine grandsibling cannot keep to non-projective trees",
        ),
        (
            {"learner": "crf", "projective": False, "factors": ("link", "grandsib")},
            "engine bp:iterations=5 cannot use the factor family grandsib",
        ),
    ],
    ids=str,
)
def test_engines_that_cannot_train_the_model_are_refused(data, changes, message):
    with pytest.raises(TrainingError, match=message) as caught:
        Trainer(replace(SETTINGS, **changes), *data)
    assert "\n" not in str(caught.value)


def test_an_engine_that_does_not_exist_is_refused():
    with pytest.raises(SettingsError, match="engine: 'bq' is not one of mst, projective"):
        Settings(engine="bq")
    with pytest.raises(SettingsError, match="engine: bp has no option 'steps'; it has iterations"):
        Settings(engine="bp:steps=3")


def planted(size, seed):
    """Trees in which `c` depends on whichever of `a` and `b` has no child yet.

    The first such child, at some distance before it, tells its head by its form, and half of the
    trees have crossing arcs.
    """
    rng = np.random.default_rng(seed)
    sentences = []
    for _ in range(size):
        first, second = rng.permutation([2, 3]).tolist()
        before, after = (rng.choice(["x", "y", "z"], rng.integers(2, 5)).tolist() for _ in "ab")
        forms = ["verb", "a", "b", *before, f"d{first}", *after, "c"]
        heads = [-1, 0, *[1] * (len(before) + 2), first, *[1] * len(after), second]
        tags = ["filler" if form in "xyz" else form[0] for form in forms]
        sentences.append(
            Sentence.from_columns(forms, upos=tags, heads=heads, deprels=["_"] * len(forms))
        )
    return sentences


def test_a_crf_learns_second_order_structure_by_belief_propagation(tmp_path):
    train, dev = planted(60, 0), planted(40, 1)
    settings = replace(SETTINGS, learner="crf", labelled=False, batch=4)
    arcs = Trainer(replace(settings, factors=("link",)), train, dev)
    parts = Trainer(replace(settings, factors=("link", "childseq", "grand")), train, dev, jobs=2)
    arcs.run()
    model = parts.run()
    assert not parts.settings.projective
    assert max(e.dev_uas for e in arcs.history) < 97
    assert max(e.dev_uas for e in parts.history) > 99
    model.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    assert loaded.settings.engine == "bp:iterations=5"
    parser = Parser(loaded, confidence=True)
    assert parser.engine.name == "bp:iterations=5"
    right = 0
    for sentence in dev:
        parse = parser.parse(sentence)
        right += int((parse.heads == sentence.heads)[1:].sum())
        assert parse.arc_probabilities.min() >= 0
        assert parse.arc_probabilities.max() <= 1 + 1e-9
    assert right > 0.99 * sum(map(len, dev))


def test_training_stops_when_patience_runs_out(data):
    trainer = Trainer(replace(SETTINGS, epochs=40, patience=2), *data)
    trainer.run()
    scores = [e.dev_las for e in trainer.history]
    assert len(scores) == min(40, 1 + scores.index(max(scores)) + 2)


def test_of_equal_epochs_the_last_is_kept_and_patience_counts_from_the_first(data, monkeypatch):
    settings = replace(SETTINGS, labelled=False, prune=False, factors=("link",), epochs=9)
    trainer = Trainer(replace(settings, patience=3), *data)
    scores = iter([50.0, 60.0, 60.0, 40.0, 60.0, 70.0])
    kept = []

    def score(table):
        kept.append(table)
        return next(scores), None

    monkeypatch.setattr(trainer, "score", score)
    model = trainer.run()
    assert [e.number for e in trainer.history if e.best] == [1, 2, 3, 5]
    assert len(trainer.history) == 5
    np.testing.assert_array_equal(model.table.rows, kept[4].rows)
    np.testing.assert_array_equal(model.table.values, kept[4].values)


def test_without_a_dev_set_the_last_epoch_counts(data):
    trainer = Trainer(SETTINGS, data[0])
    model = trainer.run()
    assert all(e.best for e in trainer.history)
    assert model.scale == 1.0


def test_the_tree_constraint_follows_the_training_trees():
    def tree(*heads):
        n = len(heads)
        return Sentence.from_columns(["w"] * n, heads=[-1, *heads], deprels=["x"] * n)

    chain, fork, crossing = tree(0, 1, 2), tree(0, 0, 2), tree(3, 0, 2)
    cases = [([chain], True, True), ([chain, fork], True, False), ([chain, crossing], False, True)]
    for sentences, projective, single_root in cases:
        s = Trainer(SETTINGS, sentences).settings
        assert (s.projective, s.single_root) == (projective, single_root)
    forced = Trainer(replace(SETTINGS, projective=True), [chain, crossing])
    assert forced.settings.projective


def test_checkpoints_of_other_runs_are_refused(data, tmp_path):
    checkpoint = tmp_path / "model.checkpoint"
    with pytest.raises(TrainingError, match="no checkpoint"):
        Trainer(SETTINGS, *data, checkpoint=checkpoint).resume()
    Trainer(replace(SETTINGS, epochs=1), *data, checkpoint=checkpoint).run()
    with pytest.raises(TrainingError, match="other settings"):
        Trainer(replace(SETTINGS, seed=9), *data, checkpoint=checkpoint).resume()
    with pytest.raises(TrainingError, match="other training data"):
        Trainer(SETTINGS, data[0][1:], data[1], checkpoint=checkpoint).resume()
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    with pytest.raises(TrainingError, match="not a whole checkpoint"):
        Trainer(SETTINGS, *data, checkpoint=checkpoint).resume()


def test_probabilities_are_calibrated_on_the_dev_set(data):
    model = Trainer(SETTINGS, *data).run()
    parser = Parser(model, confidence=True)
    parses = [(s, parser.parse(s)) for s in data[1]]
    mean = np.mean([p for _, parse in parses for p in parse.arc_probabilities])
    right = np.mean([x for s, parse in parses for x in (parse.heads == s.heads)[1:]])
    assert abs(mean - right) < 0.06
    for _, parse in parses:
        assert parse.log_probability <= 0
