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
from parser.learning.learners import loss_augmented
from parser.model import Model, Settings, SettingsError
from parser.treebank import projective, read_all, roots

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


# ---- modes that go another way to the same end ---------------------------------------------------

LAZY = [
    {"amortize": "lazy"},
    {"amortize": "adaptive"},
    {"amortize": "seed", "epsilon": 1.0},
    {"amortize": "seed", "epsilon": 10.0, "tau": 3},
    {"amortize": "near", "epsilon": 1.0},
]
NAMES = ["lazy", "adaptive", "epsilon", "tau", "near"]


@pytest.mark.parametrize("interleave", [False, True])
@pytest.mark.parametrize("changes", LAZY, ids=NAMES)
def test_training_ends_where_no_tree_is_violated_by_more_than_delta(
    sentences, raw, changes, interleave
):
    trainer = run(sentences, debug=True, interleave=interleave, **changes)
    learner = trainer.learner
    assert learner.converged
    assert learner.amortized.epsilon == 0.0
    for example in learner.examples:  # by the engine itself
        _, graph = learner.score(example)
        graph = loss_augmented(graph, example.heads)
        pull = learner.totals[example.number] / (2 * SSVM.svm_c)
        violation = learner.engine.best(graph).score - graph.score(example.heads)
        assert violation - pull <= SSVM.delta + 1e-4
    last, theirs = trainer.history[-1].measures, raw.history[-1].measures
    bound = 2 * SSVM.delta * learner.totals.sum() + SSVM.svm_c * len(sentences) * SSVM.delta**2
    assert last["primal"] >= last["dual"]
    assert theirs["primal"] >= last["dual"]
    assert abs(last["dual"] - theirs["dual"]) <= bound
    assert last["dual"] == pytest.approx(theirs["dual"], rel=0.003)


@pytest.mark.parametrize(
    ("changes", "share"), [*zip(LAZY, (0.15, 0.3, 0.5, 0.8, 0.3), strict=True)]
)
def test_the_engine_is_called_less(sentences, raw, changes, share):
    problems = len(raw.history) * len(sentences)
    assert statistics(run(sentences, **changes)).solved < share * problems


@pytest.mark.parametrize("changes", LAZY, ids=NAMES)
def test_the_dual_is_a_bound_that_no_pass_lowers(sentences, raw, changes):
    trainer = run(sentences, **changes)
    duals = [e.measures["dual"] for e in trainer.history]
    assert (np.diff(duals) >= -1e-12).all()
    assert duals[-1] <= min(e.measures["primal"] for e in raw.history)


def test_a_lazy_pass_takes_all_violated_trees_that_the_search_meets(sentences, raw):
    trainer = run(sentences, amortize="lazy", debug=True, epochs=8)
    most = max(e.measures["added"] for e in trainer.history)
    assert most > len(sentences) >= max(e.measures["added"] for e in raw.history)
    assert most <= len(sentences) * (2 + trainer.learner.STARTS)


@pytest.mark.parametrize(
    "kind",
    [{"projective": True}, {"projective": False, "single_root": True}],
    ids=["crossing", "several roots"],
)
def test_lazy_training_keeps_to_the_kind_of_trees_where_gold_trees_do_not(sentences, kind):
    rng = np.random.default_rng(3)
    odd = []
    for s in sentences[:6]:
        order = rng.permutation(len(s)) + 1
        heads = np.full(len(s) + 1, -1)
        for at, word in enumerate(order.tolist()):
            several = at < 2 and not kind["projective"]
            heads[word] = 0 if several else rng.choice([*order[:at], *[0] * (at == 0)])
        odd.append(replace(s, heads=heads.astype(np.int32)))
    settings = replace(SSVM, **kind)
    ends = [run(odd, settings, amortize=mode, debug=bool(mode)) for mode in ("", "lazy")]
    duals = [trainer.history[-1].measures["dual"] for trainer in ends]
    assert all(trainer.learner.converged for trainer in ends)
    assert not any(ends[1].learner.within_reach)
    assert duals[1] <= ends[0].history[-1].measures["primal"]
    assert duals[0] == pytest.approx(duals[1], rel=0.003)
    for own in ends[1].learner.working:
        for structure in own.values():
            assert projective(structure.heads) or not settings.projective
            assert len(roots(structure.heads)) == 1


@pytest.fixture(scope="module")
def optimum(sentences):
    """Of the first six; from below, and nearly."""
    return run(sentences[:6], delta=1e-3, inner_passes=30).history[-1].measures["dual"]


@pytest.mark.parametrize("changes", LAZY, ids=NAMES)
@pytest.mark.parametrize("interleave", [False, True])
def test_each_pass_has_a_primal_that_is_not_below_the_optimum(
    sentences, optimum, changes, interleave
):
    """Bounds stand for trees that are not there; what a pass puts off is bounded every so often."""
    trainer = run(sentences[:6], interleave=interleave, **changes)
    primals = [e.measures["primal"] for e in trainer.history]
    assert min(primals) >= optimum
    assert (np.diff(primals[:-1]) <= 0).all()
    assert all(e.measures["gap"] > 0 for e in trainer.history)
    fresh = [e.number for e in trainer.history if e.measures["of_pass"] == e.number]
    assert fresh[-1] == len(trainer.history)
    assert len(fresh) > 2


def test_at_a_strict_stop_lazy_training_has_the_weights_of_the_optimum(sentences):
    few = sorted(sentences, key=len)[:3]
    ends = [run(few, delta=1e-5, inner_passes=50, amortize=mode) for mode in ("", "lazy")]
    assert all(each.learner.converged for each in ends)
    np.testing.assert_allclose(ends[0].learner.w, ends[1].learner.w, atol=1e-4)
    assert ends[1].history[-1].measures["gap"] < 1e-3


@pytest.mark.parametrize("engine", ["dual-decomposition:exact=yes", "ilp"])
def test_lazy_training_of_second_order_models_ends_at_the_same_dual(sentences, engine):
    few = sorted(sentences, key=len)[:2]
    changes = SECOND_ORDER | {"engine": engine, "delta": 0.05}
    debug = engine != "ilp"
    ends = [run(few, amortize=mode, debug=mode and debug, **changes) for mode in ("", "lazy")]
    assert all(each.learner.converged for each in ends)
    duals = [trainer.history[-1].measures["dual"] for trainer in ends]
    assert duals[0] == pytest.approx(duals[1], rel=0.01)
    assert statistics(ends[1]).solved < 0.5 * 2 * len(ends[0].history)


def test_with_epsilon_answers_are_approximate_and_of_tau_in_a_row_one_is_not(sentences):
    with_tau, without = (
        statistics(run(sentences, amortize="seed", epsilon=10.0, tau=tau, epochs=6))
        for tau in (3, 0)
    )
    assert without.approximate > 0 == without.forced
    assert with_tau.forced > 0


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


@pytest.mark.parametrize("at", [0.3, 0.9], ids=["early", "late"])
@pytest.mark.parametrize(
    "changes",
    [
        {"amortize": "lazy"},
        {"amortize": "lazy", "epochs": 25, **SECOND_ORDER},
        {"amortize": "adaptive"},
        {"amortize": "seed", "epsilon": 1.0, "tau": 3},
        {"amortize": "margin"},
        {"amortize": "exact", "learner": "perceptron", "epochs": 10, **SECOND_ORDER},
    ],
    ids=["lazy", "second order", "adaptive", "tau", "margin", "perceptron"],
)
def test_an_interrupted_run_ends_in_the_same_model(sentences, tmp_path, changes, at):
    settings = replace(SSVM, amortize_memory=1e-3, **changes)  # entries are evicted, too
    whole = Trainer(settings, sentences)
    whole.run().save(tmp_path / "whole")
    stop = round(at * len(whole.history))
    checkpoint = tmp_path / "checkpoint"
    Trainer(replace(settings, epochs=stop), sentences, checkpoint=checkpoint).run()
    second = Trainer(settings, sentences, checkpoint=checkpoint)
    second.resume()
    assert len(second.learner.amortized.cache) > 0 or changes["amortize"] == "lazy"
    second.run().save(tmp_path / "resumed")
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "whole").read_bytes()
    ours, theirs = statistics(second), statistics(whole)
    assert (ours.queries, ours.solved, ours.new) == (theirs.queries, theirs.solved, theirs.new)
    assert ours.hits == theirs.hits


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
        ({"amortize": "always"}, "amortize: one of , seed, exact, margin, near, lazy, adaptive"),
        ({"learner": "crf", "amortize": "exact"}, "amortize: only for learners that take best"),
        ({"learner": "mira", "k": 5, "amortize": "exact"}, "amortize: only for learners that"),
        ({"learner": "mira", "amortize": "adaptive"}, "amortize: adaptive is for learner ssvm"),
        ({"learner": "perceptron", "amortize": "lazy"}, "amortize: lazy is for learner ssvm"),
        ({"amortize": "near"}, "amortize: near needs an epsilon above 0"),
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
