"""Training behind a cache of trees: what stays the same, what is saved, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from parser.cli.train import train
from parser.inference import Cache
from parser.inference.amortized import AmortizationError
from parser.learning import Trainer
from parser.learning.learners import EPSILONS
from parser.model import Model, Settings, SettingsError
from parser.treebank import read_all

SECOND_ORDER = {"factors": ("link", "childseq", "grand"), "prune": True, "prune_bits": 12}
SSVM = Settings(
    factors=("link",),
    projective=False,
    single_root=True,
    labelled=False,
    bits=12,
    keep_rows=1.0,
    learner="ssvm",
    svm_c=0.1,
    interleave=False,
    inner_passes=5,
    epochs=200,
)


@pytest.fixture(scope="module")
def sentences(english):
    return [s for s in read_all([english]) if 4 <= len(s) <= 12][:15]


def run(sentences, settings=SSVM, debug=False, cache=None, **changes):
    """A trainer after its run; debug: every answer of the cache is compared with the engine's."""
    trainer = Trainer(replace(settings, **changes), sentences, cache=cache)
    if debug:
        trainer.learner.amortized.amortizer.debug = True
    trainer.run()
    return trainer


def statistics_of(learner):
    return learner.amortized.statistics


def statistics(trainer):
    return statistics_of(trainer.learner)


@pytest.fixture(scope="module")
def raw(sentences):
    trainer = run(sentences)
    assert trainer.learner.converged
    return trainer


# ---- exact modes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["seed", "exact", "margin"])
def test_exact_modes_go_the_way_of_the_run_without_a_cache(sentences, raw, mode):
    trainer = run(sentences, amortize=mode, debug=True)
    duals = [[e.measures["dual"] for e in each.history] for each in (raw, trainer)]
    assert duals[0] == duals[1]
    np.testing.assert_array_equal(trainer.learner.w, raw.learner.w)
    s = statistics(trainer)
    assert s.queries == len(raw.history) * len(sentences)
    assert s.approximate == 0
    assert s.new <= s.solved == s.queries - sum(s.hits.values())
    if mode != "seed":  # which by itself lets next to nothing through
        assert s.solved < 0.9 * s.queries


@pytest.mark.parametrize(
    "changes",
    [{"engine": "dual-decomposition"}, {"engine": "ilp"}, {"projective": True}],
    ids=["dual-decomposition", "ilp", "dynamic-program"],
)
def test_second_order_models_end_in_the_same_dual(sentences, changes):
    changes = SECOND_ORDER | {"epochs": 6} | changes
    few = sorted(sentences, key=len)[:3]
    ends = [run(few, amortize=mode, **changes) for mode in ("", "exact")]
    duals = [trainer.history[-1].measures["dual"] for trainer in ends]
    assert duals[0] == pytest.approx(duals[1], rel=1e-9)


@pytest.mark.parametrize("learner", ["perceptron", "mira"])
def test_online_learners_end_in_the_same_weights(sentences, learner):
    settings = replace(SSVM, learner=learner, epochs=12)
    tables = []
    for mode in ("", "exact"):
        trainer = run(sentences, settings, amortize=mode, debug=bool(mode))
        tables.append(trainer.learner.weights.average(1.0))
    np.testing.assert_array_equal(tables[0].rows, tables[1].rows)
    np.testing.assert_array_equal(tables[0].values, tables[1].values)
    s = statistics(trainer)
    assert s.queries == 12 * len(sentences)
    assert s.solved < 0.8 * s.queries


def test_interleaved_training_ends_in_the_same_weights(sentences):
    ends = [run(sentences, interleave=True, amortize=mode) for mode in ("", "exact")]
    np.testing.assert_array_equal(ends[0].learner.w, ends[1].learner.w)


# ---- approximate modes ---------------------------------------------------------------------------


def test_adaptive_training_ends_exact(sentences, raw):
    trainer = run(sentences, amortize="adaptive", debug=True)
    assert trainer.learner.converged
    assert trainer.learner.stage == len(EPSILONS)
    assert trainer.learner.amortized.epsilon == 0.0
    s = statistics(trainer)
    assert s.approximate > 0
    # Both stop with no violation above delta: neither dual is further from the optimum than this.
    for other in (trainer, raw):
        bound = 0.2 * other.learner.totals.sum() + 0.1 * len(sentences) * 0.1**2
        last = other.history[-1].measures
        assert 0 <= last["primal"] - last["dual"] <= bound
    duals = [each.history[-1].measures["dual"] for each in (trainer, raw)]
    assert duals[0] == pytest.approx(duals[1], rel=0.01)
    assert s.solved < statistics(run(sentences, amortize="exact")).solved


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_with_epsilon_the_dual_is_a_bound_that_no_pass_lowers(sentences, raw, epsilon):
    trainer = run(sentences, amortize="seed", epsilon=epsilon)
    duals = [e.measures["dual"] for e in trainer.history]
    assert (np.diff(duals) >= -1e-12).all()
    assert duals[-1] <= min(e.measures["primal"] for e in raw.history)
    s = statistics(trainer)
    assert 0 < s.approximate == s.queries - s.solved


def test_of_tau_answers_in_a_row_one_is_exact(sentences):
    trainer = run(sentences, amortize="seed", epsilon=10.0, tau=3)
    s = statistics(trainer)
    assert s.forced > 0
    assert s.solved >= s.queries // 3
    assert s.solved > statistics(run(sentences, amortize="seed", epsilon=10.0)).solved


# ---- the cache -----------------------------------------------------------------------------------


def test_a_cache_of_an_earlier_run_saves_calls_and_changes_nothing(sentences, raw):
    cache = Cache()
    first, second = (run(sentences, amortize="exact", cache=cache) for _ in range(2))
    assert statistics(second).solved == 0 < statistics(first).solved
    np.testing.assert_array_equal(second.learner.w, raw.learner.w)


def test_without_memory_every_problem_is_solved(sentences, raw):
    trainer = run(sentences, amortize="exact", amortize_memory=0.0)
    s = statistics(trainer)
    assert s.solved == s.queries == len(raw.history) * len(sentences)
    np.testing.assert_array_equal(trainer.learner.w, raw.learner.w)


def test_threads_change_nothing(sentences):
    ends = []
    for jobs in (1, 2):
        trainer = Trainer(replace(SSVM, amortize="exact", epochs=8), sentences, jobs=jobs)
        trainer.run()
        ends.append((trainer.learner.w, statistics(trainer).solved))
    np.testing.assert_array_equal(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]


def test_adaptive_training_goes_on_where_it_was(sentences, tmp_path):
    settings = replace(SSVM, amortize="adaptive")
    whole = run(sentences, settings)
    stop = len(whole.history) - 2
    checkpoint = tmp_path / "checkpoint"
    Trainer(replace(settings, epochs=stop), sentences, checkpoint=checkpoint).run()
    second = Trainer(settings, sentences, checkpoint=checkpoint)
    second.resume()
    assert second.learner.stage == len(EPSILONS) - 1
    assert second.learner.amortized.epsilon == 0.0
    second.run()
    np.testing.assert_allclose(second.learner.w, whole.learner.w, atol=1e-6)


# ---- debug, settings, the command line -----------------------------------------------------------


def test_debug_finds_a_cached_tree_that_is_not_the_best(sentences):
    learner = run(sentences, amortize="seed", epochs=1).learner
    engine, example = learner.amortized.engine, learner.examples[0]
    learner.amortized.reset()

    class Worst:
        def best(self, graph):
            return engine.best(replace(graph, scores=-graph.scores))

    learner.amortized.engine = Worst()
    learner.visit(example)
    learner.amortized.engine = engine
    assert statistics_of(learner).solved == 1
    learner.visit(example)  # the same problem, so that the answer is the worst tree
    assert statistics_of(learner).hits["seed"] == 1
    learner.amortized.amortizer.debug = True
    with pytest.raises(AmortizationError, match="condition seed: the cached solution has value"):
        learner.visit(example)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"amortize": "always"}, "amortize: one of , seed, exact, margin, adaptive"),
        ({"learner": "crf", "amortize": "exact"}, "amortize: only for learners that take best"),
        ({"learner": "mira", "k": 5, "amortize": "exact"}, "amortize: only for learners that"),
        ({"learner": "mira", "amortize": "adaptive"}, "amortize: adaptive is for learner ssvm"),
        ({"amortize": "adaptive", "epsilon": 1.0}, "amortize: adaptive .* sets epsilon itself"),
        ({"amortize": "seed", "epsilon": -1.0}, "epsilon: 0.0 to"),
        ({"amortize": "seed", "tau": -1}, "tau: 0 to"),
        ({"amortize_memory": -1.0}, "amortize_memory: 0.0 to"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(SettingsError, match=message):
        replace(SSVM, **changes)


def test_the_command_line_prints_calls_and_shares(english, tmp_path):
    (tmp_path / "small.toml").write_text("bits = 12\n")
    model = str(tmp_path / "model")
    arguments = [str(english), "-o", model, "--config", str(tmp_path / "small.toml")]
    arguments += ["--learner", "ssvm", "--factors", "link", "--unlabelled", "--epochs", "3"]
    arguments += ["--two-phase", "--amortize", "seed", "--epsilon", "1", "--tau", "9"]
    done = CliRunner().invoke(train, arguments)
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.output.splitlines() if line.startswith("epoch")]
    first, *_, last = lines
    every = len(read_all([english]))
    assert first[first.index("calls") + 1] == str(every)
    calls, share = (float(last[last.index(name) + 1]) for name in ("calls", "share"))
    assert calls <= every
    assert share == pytest.approx(calls / every, abs=1e-3)
    s = Model.load(model).settings
    assert (s.amortize, s.epsilon, s.tau) == ("seed", 1.0, 9)
