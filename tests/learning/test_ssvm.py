"""The structured SVM: coordinate steps, optimum, duality, and runs that go on from a checkpoint."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.optimize import minimize, minimize_scalar

from parser.cli.train import train
from parser.features import Vocabulary
from parser.graph import CODES, ScoredGraph, all_arcs
from parser.learning import Example, Ssvm, Trainer
from parser.learning.ssvm import room_above, size_of
from parser.model import Model, Settings, SettingsError, make_scorer
from parser.treebank import Sentence, projective, read_all
from parser.trees import enumerate_trees

SECOND_ORDER = ("link", "childseq", "grand")
MODES = pytest.mark.parametrize("interleave", [False, True], ids=["two-phase", "interleave"])


def learner_for(sentences, jobs=1, **settings):
    defaults = {"projective": False, "factors": ("link",), "single_root": True}
    defaults |= {"bits": 10, "interleave": False}
    chosen = Settings(learner="ssvm", **{**defaults, **settings})
    scorer = make_scorer(Vocabulary.build(sentences), chosen)
    learner = Ssvm(scorer, chosen.make_engine(), chosen, jobs)
    examples = [
        Example(scorer.vocabulary.encode(s), s.heads, number=i) for i, s in enumerate(sentences)
    ]
    learner.begin(examples)
    return learner, examples


def one_pass(learner, examples):
    loss = 0.0
    size = learner.batch
    for first in range(0, len(examples), size):
        loss += learner.step(examples[first : first + size])
    learner.end_epoch()
    return loss


def to_the_end(learner, examples, passes=300):
    for _ in range(passes):
        one_pass(learner, examples)
        if learner.converged:
            return
    raise AssertionError(f"not converged: {learner.measures}")


def structures(learner):
    return [s for own in learner.working for s in own.values()]


@pytest.fixture(scope="module")
def tiny():
    """Sentences of 2 to 4 words, two of them with the same words and other trees."""
    trees = [[0, 1], [2, 0, 2], [3, 0, 2], [0, 1, 2], [0, 4, 1, 1], [2, 3, 0, 3]]
    words = ["ab", "bca", "acb", "acb", "bacb", "cabb"]
    return [
        Sentence.from_columns(list(w), upos=list(w.upper()), heads=[-1, *t], deprels=["_"] * len(t))
        for w, t in zip(words, trees, strict=True)
    ]


@pytest.fixture(scope="module")
def sentences(english):
    return [s for s in read_all([english]) if 4 <= len(s) <= 12][:30]


def dense(learner, example, heads):
    index, values = learner.vector(example, heads)
    out = np.zeros(learner.w.size)
    out[index] = values
    return out


# ---- one coordinate ------------------------------------------------------------------------------


def objective(learner):
    """D(alpha), from the dual variables alone."""
    w, penalty, gain = np.zeros(learner.w.size), 0.0, 0.0
    for example, own in zip(learner.examples, learner.working, strict=True):
        for s in own.values():
            index, values = learner.vector_of(example, s)
            w[index] += s.alpha * values.astype(np.float64)
            gain += s.alpha * (s.heads != example.heads).sum()
        penalty += sum(s.alpha for s in own.values()) ** 2
    return w @ w / 2 + penalty / (4 * learner.settings.svm_c) - gain


@pytest.mark.parametrize("c", [0.001, 0.1, 10.0])
def test_an_update_is_the_minimum_along_its_coordinate(sentences, c):
    learner, examples = learner_for(sentences[:6], svm_c=c)
    for _ in range(3):
        one_pass(learner, examples)
    rng = np.random.default_rng(0)
    for s in structures(learner):
        s.alpha *= rng.uniform(0, 2)
    learner.sum_up()
    for i in range(len(examples)):
        for s in learner.working[i].values():

            def along(alpha, s=s):
                before, s.alpha = s.alpha, alpha
                value = objective(learner)
                s.alpha = before
                return value

            high = 2 * s.alpha + 20 / s.square
            best = minimize_scalar(
                along, bounds=(0, high), method="bounded", options={"xatol": 1e-12}
            )
            learner.update(i, s)
            assert s.alpha == pytest.approx(best.x, abs=1e-5 * high)
            assert along(s.alpha) <= min(best.fun, along(0.0)) + 1e-9


@MODES
@pytest.mark.parametrize("factors", [("link",), SECOND_ORDER], ids=["arcs", "parts"])
def test_no_update_raises_the_dual_objective(sentences, monkeypatch, interleave, factors):
    sentences = [s for s in sentences if projective(s.heads)][:6]
    learner, examples = learner_for(
        sentences, projective=True, factors=factors, interleave=interleave, inner_passes=3
    )
    values = [0.0]
    update = learner.update

    def watched(number, structure):
        gradient = update(number, structure)
        values.append(objective(learner))
        return gradient

    monkeypatch.setattr(learner, "update", watched)
    for _ in range(3):
        one_pass(learner, examples)
    assert len(values) > 50
    assert np.diff(values).max() <= 1e-12
    assert values[-1] < -0.02
    assert learner.dual() == pytest.approx(-values[-1], rel=1e-12)


# ---- the optimum ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "factors"), [(False, ("link",)), (True, ("link",)), (True, SECOND_ORDER)], ids=str
)
@pytest.mark.parametrize("c", [0.001, 0.1])
def test_the_optimum_is_that_of_a_quadratic_program_over_all_trees(tiny, kind, factors, c):
    tiny = [s for s in tiny if projective(s.heads) or not kind]
    learner, examples = learner_for(
        tiny, projective=kind, factors=factors, svm_c=c, delta=1e-5, inner_passes=100
    )
    vectors, losses, owners = [], [], []
    for i, e in enumerate(examples):
        for tree in enumerate_trees(len(e.heads) - 1, projective=kind, single_root=True):
            heads = np.array(tree, np.int32)
            vectors.append(dense(learner, e, heads))
            losses.append((heads != e.heads).sum())
            owners.append(i)
    phi, losses = np.array(vectors), np.array(losses, float)
    same = np.equal.outer(owners, owners)
    q = phi @ phi.T + same / (2 * c)
    found = minimize(
        lambda a: (a @ q @ a / 2 - losses @ a, q @ a - losses),
        np.zeros(len(q)),
        jac=True,
        bounds=[(0, None)] * len(q),
        method="L-BFGS-B",
        options={"ftol": 1e-16, "gtol": 1e-10, "maxiter": 100_000, "maxfun": 200_000},
    )
    to_the_end(learner, examples)
    assert learner.measures["dual"] == pytest.approx(-found.fun, rel=1e-6)
    np.testing.assert_allclose(learner.w, found.x @ phi, atol=1e-4)


def test_at_the_strict_stop_primal_and_dual_of_real_sentences_meet(sentences):
    few = sorted(sentences, key=len)[:4]
    learner, examples = learner_for(few, svm_c=0.001, delta=5e-6, inner_passes=100, bits=12)
    to_the_end(learner, examples)
    m = learner.measures
    assert m["of_pass"] == learner.passes
    assert 0 <= m["gap"] < 1e-6
    assert m["dual"] > 0.01


@MODES
@pytest.mark.parametrize("c", [0.001, 0.1])
def test_at_the_strict_stop_primal_and_dual_meet(tiny, interleave, c):
    learner, examples = learner_for(
        tiny, svm_c=c, delta=1e-7, inner_passes=200, interleave=interleave
    )
    to_the_end(learner, examples)
    assert abs(learner.measures["gap"]) < 1e-6
    assert learner.measures["added"] == 0
    # xi = A / 2C for every sentence, and w is that of the table.
    slacks = [learner.visit(e).slack for e in examples]
    np.testing.assert_allclose(slacks, learner.totals / (2 * c), atol=1e-5)
    assert max(slacks) > 0.01
    np.testing.assert_allclose(learner.weights.table.ravel(), learner.w, rtol=1e-6)
    primal = learner.w @ learner.w / 2 + c * np.square(slacks).sum()
    assert learner.measures["primal"] == pytest.approx(primal, rel=1e-9)


def test_both_modes_end_in_the_same_weights(tiny):
    ends = []
    for interleave in (False, True):
        learner, examples = learner_for(tiny, interleave=interleave, delta=1e-6, svm_c=0.001)
        to_the_end(learner, examples)
        ends.append(learner.w)
    np.testing.assert_allclose(*ends, atol=1e-6)


def test_the_gap_at_the_stop_is_within_its_bound(sentences):
    learner, examples = learner_for(sentences[:12], delta=0.1, svm_c=1e-4)
    gaps = []
    for _ in range(100):
        one_pass(learner, examples)
        m = learner.measures
        gaps.append(m["gap"])
        assert m["primal"] >= m["dual"]
        if learner.converged:
            break
    assert learner.converged
    bound = 0.2 * learner.totals.sum() + 1e-4 * len(examples) * 0.1**2
    assert m["primal"] - m["dual"] <= bound
    assert m["of_pass"] == len(gaps)
    assert gaps[0] == 1
    assert gaps[-1] < 0.05


def test_a_learner_that_has_converged_changes_nothing_more(tiny):
    learner, examples = learner_for(tiny, interleave=True, delta=0.01)
    to_the_end(learner, examples)
    before, measures = learner.w.copy(), learner.measures
    one_pass(learner, examples)
    np.testing.assert_array_equal(learner.w, before)
    assert learner.measures["dual"] == measures["dual"]


# ---- the gap of each pass ------------------------------------------------------------------------


def true_primal(learner, examples):
    """Under the present weights, by all trees; and the dual there."""
    slacks = 0.0
    for e in examples:
        _, graph = learner.score(e)
        n, kind = graph.n, graph.projective
        every = enumerate_trees(n, projective=kind, single_root=graph.single_root)
        heads = [np.array(tree, np.int32) for tree in every]
        gains = [(h != e.heads).sum() + graph.score(h) - graph.score(e.heads) for h in heads]
        slacks += max(0.0, *gains) ** 2
    return learner.w @ learner.w / 2 + learner.settings.svm_c * slacks, learner.dual()


@MODES
@pytest.mark.parametrize(
    ("factors", "engine", "exact"),
    [
        (("link",), "", True),
        (SECOND_ORDER, "hill-climbing", False),
        (SECOND_ORDER, "dual-decomposition", True),
        (("link", "sib"), "hill-climbing", False),
        (("link", "sib", "nocross"), "bp:iterations=5", False),
    ],
    ids=str,
)
def test_the_gap_of_each_pass_is_true(tiny, interleave, factors, engine, exact):
    learner, examples = learner_for(
        tiny, factors=factors, engine=engine, interleave=interleave, svm_c=0.01
    )
    truth = [(0.01 * sum(len(s) ** 2 for s in tiny), 0.0)]
    for _ in range(20):
        size = learner.batch
        for first in range(0, len(examples), size):
            learner.step(examples[first : first + size])
        truth.append(true_primal(learner, examples))  # before what ends the pass moves the weights
        learner.end_epoch()
        m = learner.measures
        assert m["dual"] == pytest.approx(truth[-1][1], rel=1e-9)
        primal, of_pass = m["primal"], m["of_pass"]
        assert primal >= truth[of_pass][0] * (1 - 1e-6)
        assert m["gap"] == pytest.approx((primal - m["dual"]) / primal)
        if exact and not (interleave and engine):  # a short ascent leaves a little
            assert primal == pytest.approx(truth[of_pass][0], rel=1e-5)
        if exact and not interleave:
            assert primal == pytest.approx(min(p for p, _ in truth), rel=1e-5)
        if learner.converged:
            break
    assert of_pass > 0
    assert m["gap"] < (0.5 if exact else 0.95)


@MODES
@pytest.mark.parametrize("engine", ["", "hill-climbing"])
def test_no_weight_depends_on_how_often_the_primal_is_found(
    sentences, monkeypatch, interleave, engine
):
    ends = []
    for every in (1, 3, 1000):
        monkeypatch.setattr(Ssvm, "EVERY", every)
        learner, examples = learner_for(
            sentences[:8], factors=("link", "childseq"), engine=engine, interleave=interleave
        )
        primals = []
        for _ in range(7):
            one_pass(learner, examples)
            primals.append(learner.measures["primal"])
        assert (np.diff(primals) <= 0).all()
        ends.append((learner.w.copy(), primals))
    for w, primals in ends[1:]:
        np.testing.assert_array_equal(w, ends[0][0])
        assert all(few >= many for few, many in zip(primals, ends[0][1], strict=True))


@pytest.mark.parametrize("projective_only", [False, True])
@pytest.mark.parametrize(
    "families",
    [(), ("childseq",), ("childseq", "grand"), ("grandsib", "sib"), ("nocross", "sib", "grand")],
    ids=str,
)
def test_no_tree_is_above_the_room(families, projective_only):
    rng = np.random.default_rng(len(families))
    rooms, truths = 0.0, 0.0
    for _ in range(10):
        arcs = all_arcs(4)
        graph = ScoredGraph(
            arcs,
            rng.normal(size=len(arcs)),
            projective_only,
            True,
            {f: rng.normal(size=arcs.layout.size(CODES[f])) for f in families},
        )
        every = enumerate_trees(4, projective=projective_only, single_root=True)
        trees = [np.array(tree, np.int32) for tree in every]
        scores = [graph.score(tree) for tree in trees]
        at = rng.integers(len(trees))
        room, truth = room_above(graph, trees[at]), max(scores) - scores[at]
        assert room >= truth - 1e-9
        rooms, truths = rooms + room, truths + truth
        assert room_above(graph, trees[int(np.argmax(scores))]) >= 0.0
    if set(families) <= {"childseq", "grand"}:
        assert rooms < 1.5 * truths


def test_hill_climbing_converges_with_a_gap_of_bounds(sentences):
    learner, examples = learner_for(
        sentences[:10], factors=SECOND_ORDER, engine="hill-climbing", svm_c=1e-4
    )
    for _ in range(12):
        one_pass(learner, examples)
        assert learner.measures["primal"] >= learner.measures["dual"]
    assert learner.measures["gap"] < 0.5


def test_a_gold_tree_out_of_reach_does_no_harm(tiny):
    crossing = [s for s in tiny if not projective(s.heads)]
    assert crossing
    learner, examples = learner_for(tiny, projective=True, delta=1e-6, svm_c=0.001)
    to_the_end(learner, examples)
    assert abs(learner.measures["gap"]) < 1e-5


# ---- the working set -----------------------------------------------------------------------------


def test_inner_passes_shrink_to_what_moves_and_end_with_the_whole_working_set(
    sentences, monkeypatch
):
    learner, examples = learner_for(sentences[:8], svm_c=0.1)
    for _ in range(6):
        one_pass(learner, examples)
    learner.settings = replace(learner.settings, inner_passes=1000, delta=1e-4)
    visits = []
    update = learner.update

    def watched(number, structure):
        before, gradient = structure.alpha, update(number, structure)
        visits.append((structure.key, before == structure.alpha == 0.0))
        return gradient

    monkeypatch.setattr(learner, "update", watched)
    learner.minimise(range(8))
    size = len(structures(learner))
    visited = [key for key, _ in visits]
    assert len(set(visited)) == size == len(set(visited[-size:]))
    passes = max(map(visited.count, set(visited)))
    assert 2 < passes < 1000
    assert len(visits) < 0.95 * passes * size
    for i, own in enumerate(learner.working):
        for s in own.values():
            margin = learner.margin(examples[i], s)
            gradient = margin + learner.totals[i] / (2 * 0.1) - s.loss
            assert (abs(gradient) if s.alpha else -gradient) <= 1e-4


def test_vectors_are_gold_features_minus_those_of_the_tree(sentences):
    learner, examples = learner_for(sentences, factors=SECOND_ORDER, bits=14)
    rng = np.random.default_rng(0)
    learner.w[:] = rng.normal(size=learner.w.size)
    learner.weights.table.ravel()[:] = learner.w
    for example in examples[:10]:
        n = len(example.heads) - 1
        heads = np.array([-1, 0, *rng.permutation(np.ones(n - 1, np.int32))], np.int32)
        _, graph = learner.score(example)
        s = learner.structure(example, heads)
        difference = graph.score(example.heads) - graph.score(heads)
        assert learner.margin(example, s) == pytest.approx(difference, abs=1e-3)
        assert s.square == pytest.approx(np.square(dense(learner, example, heads)).sum())
        assert s.loss == (heads != example.heads).sum()
    assert len(learner.vector(examples[0], examples[0].heads)[0]) == 0


def test_no_tree_is_in_a_working_set_twice_or_stays_there_idle(sentences):
    learner, examples = learner_for(sentences, interleave=True, svm_c=1.0)
    seen = 0
    for _ in range(15):
        one_pass(learner, examples)
        seen += learner.measures["added"]
        for own in learner.working:
            assert all(key == s.heads.tobytes() for key, s in own.items())
            assert sum(s.alpha == 0 for s in own.values()) <= learner.IDLE
        assert all(s.idle < learner.IDLE for s in structures(learner))
    assert len(structures(learner)) < seen


@pytest.mark.parametrize("room", [0.0, 1e-4])
def test_vectors_without_room_are_made_anew_and_change_nothing(sentences, room):
    ends = []
    for memory in (2.0, room):
        learner, examples = learner_for(sentences[:12], svm_memory=memory, interleave=True)
        for _ in range(8):
            one_pass(learner, examples)
            kept = sum(size_of(s.vector) for s in structures(learner) if s.vector is not None)
            assert kept + learner.room == memory * 2**30
            assert kept <= memory * 2**30
        ends.append((learner.w, sum(s.vector is None for s in structures(learner))))
    np.testing.assert_array_equal(ends[0][0], ends[1][0])
    assert ends[0][1] == 0 < ends[1][1]


def test_candidate_arcs_are_kept_to(sentences):
    learner, examples = learner_for(sentences[:10], delta=1e-3, svm_c=1e-4, inner_passes=30)
    rng = np.random.default_rng(0)
    pruned = []
    for e in examples:
        arcs = all_arcs(len(e.heads) - 1)
        keep = (rng.random(len(arcs)) < 0.5) | (e.heads[arcs.modifiers] == arcs.heads)
        pruned.append(replace(e, arcs=arcs.select(keep)))
    learner.begin(pruned)
    to_the_end(learner, pruned)
    assert abs(learner.measures["gap"]) < 0.01
    for e, own in zip(pruned, learner.working, strict=True):
        candidates = set(zip(e.arcs.heads.tolist(), e.arcs.modifiers.tolist(), strict=True))
        assert own
        for s in own.values():
            assert {(h, m) for m, h in enumerate(s.heads.tolist()) if m} <= candidates


# ---- runs ----------------------------------------------------------------------------------------

RUN = Settings(
    learner="ssvm",
    factors=("link",),
    bits=14,
    prune_bits=12,
    label_bits=10,
    label_epochs=1,
    inner_passes=4,
    epochs=5,
    seed=3,
)


@pytest.fixture(scope="module")
def data(english):
    read = read_all([english])
    return read[:30], read[80:100]


def saved(model, path):
    model.save(path)
    return path.read_bytes()


@MODES
def test_an_interrupted_run_ends_in_the_same_model(data, tmp_path, interleave):
    settings = replace(RUN, interleave=interleave, factors=("link", "childseq"))
    whole = Trainer(settings, *data).run()
    checkpoint = tmp_path / "model.checkpoint"

    def interrupt(epoch):
        if epoch.number == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Trainer(settings, *data, checkpoint=checkpoint).run(interrupt)
    second = Trainer(replace(settings, svm_memory=0.0), *data, checkpoint=checkpoint)
    second.resume()
    second.settings = replace(second.settings, svm_memory=2.0)  # as the model's record has it
    assert len(second.history) == 3
    assert saved(second.run(), tmp_path / "resumed") == saved(whole, tmp_path / "whole")


@MODES
def test_training_ends_when_the_learner_has_converged(data, tmp_path, interleave):
    settings = replace(RUN, interleave=interleave, delta=0.5, svm_c=1e-4, epochs=200)
    settings = replace(settings, labelled=False)
    checkpoint = tmp_path / "checkpoint"
    trainer = Trainer(settings, *data, checkpoint=checkpoint)
    model = trainer.run()
    assert 3 < len(trainer.history) < 100
    last = trainer.history[-1].measures
    assert last["added"] == 0
    assert last["gap"] < 0.2
    assert model.record["epochs"][-1]["gap"] == last["gap"]
    again = Trainer(settings, *data, checkpoint=checkpoint)
    again.resume()
    again.run()
    assert len(again.history) == len(trainer.history)


@MODES
def test_threads_change_nothing(data, tmp_path, interleave):
    settings = replace(RUN, interleave=interleave)
    one, two = (
        saved(Trainer(settings, *data, jobs=jobs).run(), tmp_path / f"{jobs}") for jobs in (1, 2)
    )
    assert one == two


def test_the_model_is_a_mean_of_the_weights_after_all_passes(data):
    trainer = Trainer(replace(RUN, keep_rows=1.0, recency=1.5), data[0])
    states = []
    table = trainer.run(lambda _: states.append(trainer.learner.w.copy())).table
    assert not trainer.learner.converged
    dense = np.zeros_like(trainer.learner.weights.table)
    dense[table.rows] = table.values
    counts = np.arange(1, len(states) + 1) ** 1.5
    np.testing.assert_allclose(dense.ravel(), counts @ states / counts.sum(), atol=1e-6)
    assert np.abs(dense.ravel() - states[-1]).max() > 1e-5
    share = trainer.learner.compact(0.25)
    assert len(share.rows) == round(0.25 * len(table.rows))
    left_out = np.setdiff1d(table.rows, share.rows)
    assert np.abs(dense[left_out]).max(1).max() <= np.abs(share.values).max(1).min()


def test_the_model_is_the_last_weights_once_training_has_converged(tiny):
    trainer = Trainer(replace(RUN, keep_rows=1.0, epochs=500), tiny)
    table = trainer.run().table
    assert trainer.learner.converged
    dense = np.zeros_like(trainer.learner.weights.table)
    dense[table.rows] = table.values
    np.testing.assert_allclose(dense.ravel(), trainer.learner.w, atol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"projective": True, "factors": ("link", "childseq")},
        {"factors": SECOND_ORDER},
        {"factors": ("link", "sib"), "engine": "bp:iterations=5"},
    ],
    ids=str,
)
def test_it_learns_as_much_as_mira(english, settings):
    read = [s for s in read_all([english]) if projective(s.heads)]
    train, dev = read[:100], read[100:150]
    settings = {"factors": ("link",), "projective": False} | settings
    scores = {}
    for learner in ("mira", "ssvm"):
        chosen = Settings(
            learner=learner,
            bits=15,
            prune_bits=12,
            labelled=False,
            inner_passes=2,
            epochs=5,
            **settings,
        )
        trainer = Trainer(chosen, train, dev)
        trainer.run()
        scores[learner] = max(e.dev_uas for e in trainer.history)
    assert scores["ssvm"] > scores["mira"] - 1.5


def test_the_command_line_prints_both_objectives_of_each_pass(english, tmp_path):
    (tmp_path / "small.toml").write_text("bits = 12\n")
    model = str(tmp_path / "model")
    arguments = [str(english), "-o", model, "--config", str(tmp_path / "small.toml")]
    arguments += ["--learner", "ssvm", "--factors", "link", "--unlabelled", "--epochs", "3"]
    arguments += ["--two-phase", "--svm-c", "0.002", "--delta", "0.3", "--inner-passes", "2"]
    arguments += ["--svm-memory", "0.25"]
    run = CliRunner().invoke(train, arguments)
    assert run.exit_code == 0, run.output
    lines = [line.split() for line in run.output.splitlines() if line.startswith("epoch")]
    assert len(lines) == 3
    names = ("dual", "primal", "of_pass", "gap", "calls", "added", "trees")
    for line in lines:
        dual, primal, of_pass, gap, calls, added, trees = (
            float(line[line.index(n) + 1]) for n in names
        )
        assert of_pass <= float(line[1])
        assert gap == pytest.approx(1 - dual / primal, abs=1e-4)
        assert 0 < added <= calls == len(read_all([english]))
        assert added <= trees
    s = Model.load(model).settings
    assert (s.svm_c, s.delta, s.inner_passes, s.interleave) == (0.002, 0.3, 2, False)
    assert s.svm_memory == 0.25


@pytest.mark.parametrize("name", ["svm_c", "delta", "inner_passes", "svm_memory"])
def test_settings_out_of_range_are_refused(name):
    value = -1 if name in ("inner_passes", "svm_memory") else 0.0
    with pytest.raises(SettingsError, match=f"{name}: "):
        Settings(**{name: value})
