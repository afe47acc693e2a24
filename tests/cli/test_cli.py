"""The command line as its users meet it: real processes, files, pipes, and bad input."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from parser.treebank import projective, read, read_all

CONFIG = 'factors = ["link"]\nbits = 14\nlabel_bits = 10\nlabel_epochs = 2\nepochs = 2\n'


def parser(*args, stdin=None, cwd=None):
    """Run the command; (exit code, stdout, stderr)."""
    done = subprocess.run(
        [sys.executable, "-m", "parser", *map(str, args)],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=cwd,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


def fails(code, message, *args, **kwargs):
    """The command exits with `code` and one line on stderr that holds `message`."""
    got, out, err = parser(*args, **kwargs)
    assert (got, out) == (code, ""), err
    assert message in err, err
    lines = [line for line in err.splitlines() if not line.startswith(("Usage:", "Try ", "\n"))]
    assert len([line for line in lines if line.strip()]) == 1, err


@pytest.fixture(scope="module")
def files(english, tmp_path_factory):
    """A folder with train.conllu, test.conllu, config.toml and a trained model."""
    folder = tmp_path_factory.mktemp("cli")
    sentences = read_all([english])
    for name, part in (("train", sentences[:110]), ("test", sentences[150:])):
        text = "".join(s.to_conll() for s in part)
        (folder / f"{name}.conllu").write_text(text, encoding="utf-8")
    (folder / "config.toml").write_text(CONFIG)
    code, out, err = parser(
        "train", "train.conllu", "-o", "m.model", "--config", "config.toml", cwd=folder
    )
    assert (code, out) == (0, ""), err
    assert "110 sentences" in err
    assert not (folder / "m.model.checkpoint").exists()
    return folder


def test_parse_changes_heads_and_relations_only(files):
    code, _, err = parser("parse", "m.model", "test.conllu", "-o", "out.conllu", cwd=files)
    assert code == 0, err
    before = (files / "test.conllu").read_text(encoding="utf-8").splitlines()
    after = (files / "out.conllu").read_text(encoding="utf-8").splitlines()
    assert len(before) == len(after)
    changed = 0
    for old, new in zip(before, after, strict=True):
        if old != new:
            old, new = old.split("\t"), new.split("\t")
            assert old[:6] + old[8:] == new[:6] + new[8:]
            changed += 1
    assert changed
    read_all([files / "out.conllu"])  # trees, all of them


def test_stdin_to_stdout_carries_conll_only_and_equals_files(files):
    text = (files / "test.conllu").read_text(encoding="utf-8")
    code, out, _ = parser("parse", "m.model", stdin=text, cwd=files)
    assert code == 0
    parser("parse", "m.model", "test.conllu", "-o", "out.conllu", "--jobs", 2, cwd=files)
    assert out == (files / "out.conllu").read_text(encoding="utf-8")
    code, again, err = parser("parse", "m.model", "--quiet", stdin=text, cwd=files)
    assert (again, err) == (out, "")


def test_packed_files_by_name(files):
    assert parser("parse", "m.model", "test.conllu", "-o", "out.conllu.gz", cwd=files)[0] == 0
    parser("parse", "m.model", "test.conllu", "-o", "out.conllu", cwd=files)
    packed = gzip.decompress((files / "out.conllu.gz").read_bytes())
    assert packed == (files / "out.conllu").read_bytes()


def test_confidence_goes_into_misc_and_a_comment(files):
    code, out, _ = parser("parse", "m.model", "test.conllu", "--confidence", cwd=files)
    assert code == 0
    words = [row.split("\t") for row in out.splitlines() if row.split("\t")[0].isdigit()]
    for word in words:
        misc = dict(pair.split("=", 1) for pair in word[9].split("|"))
        assert 0 <= float(misc["ArcProb"]) <= 1
        assert 0 <= float(misc["LabelProb"]) <= 1
    logs = [line for line in out.splitlines() if line.startswith("# tree_logprob = ")]
    assert len(logs) == len(list(read(files / "test.conllu")))
    assert all(float(line.split("=")[1]) <= 0 for line in logs)


def test_n_best(files):
    plain = parser("parse", "m.model", "test.conllu", cwd=files)[1]
    assert parser("parse", "m.model", "test.conllu", "--n-best", 1, cwd=files)[1] == plain
    out = parser("parse", "m.model", "test.conllu", "--n-best", 3, cwd=files)[1]
    ranks = [line for line in out.splitlines() if line.startswith("# tree_rank")]
    assert ranks[:3] == ["# tree_rank = 1", "# tree_rank = 2", "# tree_rank = 3"]


def test_keep_heads_keeps_them(files):
    heads = [s.heads.tolist() for s in read(files / "test.conllu")]
    # Some of these trees have crossing arcs, which a projective engine would refuse to keep.
    args = ["parse", "m.model", "test.conllu", "--keep-heads", "--engine", "mst"]
    out = parser(*args, cwd=files)[1]
    (files / "kept.conllu").write_text(out, encoding="utf-8")
    assert [s.heads.tolist() for s in read(files / "kept.conllu")] == heads


def test_eval_of_a_file_with_itself_is_perfect(files):
    code, out, _ = parser("eval", "test.conllu", "test.conllu", "--json", cwd=files)
    assert code == 0
    assert json.loads(out)["las"] == 100.0
    for options in (["--by", "relation", "--by", "length"], ["--confusions"], ["--errors"]):
        assert parser("eval", "test.conllu", "test.conllu", *options, cwd=files)[0] == 0


def test_eval_of_engines_agrees_with_eval_of_their_output(files):
    parser("parse", "m.model", "test.conllu", "-o", "out.conllu", "--engine", "mst", cwd=files)
    score = json.loads(parser("eval", "test.conllu", "out.conllu", "--json", cwd=files)[1])
    args = ["--model", "m.model", "--engine", "mst", "--engine", "projective", "--json"]
    rows = json.loads(parser("eval", "test.conllu", *args, cwd=files)[1])
    assert [row["engine"] for row in rows] == ["mst", "projective"]
    assert rows[0]["UAS"] == score["uas"]
    assert rows[0]["LAS"] == score["las"]
    assert rows[0]["tokens/s"] > 0


def test_eval_against_a_second_system(files):
    parser("parse", "m.model", "test.conllu", "-o", "out.conllu", cwd=files)
    args = ["test.conllu", "test.conllu", "--against", "out.conllu", "--json"]
    rows = json.loads(parser("eval", *args, cwd=files)[1])
    assert {row["measure"] for row in rows} == {"uas", "las"}
    assert all(0 < row["p"] < 0.05 for row in rows)


def test_info_and_show(files):
    code, out, _ = parser("info", "m.model", cwd=files)
    assert code == 0
    assert "mira" in out
    assert "nsubj" in out
    assert json.loads(parser("info", "m.model", "--json", cwd=files)[1])["version"] == 1
    code, out, _ = parser("show", "test.conllu", "--sentence", 2, cwd=files)
    second = list(read(files / "test.conllu"))[1]
    assert code == 0
    assert all(form in out for form in second.forms)
    assert "digraph" in parser("show", "test.conllu", "--sentence", 1, "--dot", cwd=files)[1]
    fails(1, "there is no sentence 9999", "show", "test.conllu", "--sentence", 9999, cwd=files)


BAD_ROW = "1\tA\t_\tX\t_\t_\t0\troot\t_\n\n"
CYCLE = "1\tA\t_\tX\t_\t_\t2\tx\t_\t_\n2\tB\t_\tX\t_\t_\t1\tx\t_\t_\n\n"
NO_GOLD = "1\tA\t_\tX\t_\t_\t_\t_\t_\t_\n\n"
FAR = "1\tA\t_\tX\t_\t_\t7\tx\t_\t_\n\n"
GOOD = "1\tA\t_\tX\t_\t_\t0\troot\t_\t_\n\n"


@pytest.mark.parametrize(
    ("text", "where"), [(BAD_ROW, ":3: sentence 2:"), (CYCLE, ":3"), (NO_GOLD, ":3"), (FAR, ":3")]
)
def test_bad_training_trees_are_named_with_file_line_and_reason(files, text, where):
    (files / "bad.conllu").write_text(GOOD + text)
    fails(1, f"bad.conllu{where}", "train", "bad.conllu", "-o", "x.model", cwd=files)
    assert not (files / "x.model").exists()


def test_skip_invalid_goes_on_and_counts(files):
    bad = GOOD + BAD_ROW + GOOD
    code, out, err = parser("parse", "m.model", "--skip-invalid", stdin=bad, cwd=files)
    assert code == 0
    assert out.count("\n\n") == 2
    assert "<stdin>:3" in err
    assert "1 sentences skipped" in err


def test_a_failed_parse_leaves_no_output(files):
    (files / "bad.conllu").write_text(GOOD * 50 + BAD_ROW)
    (files / "old").write_text("before")
    names = sorted(os.listdir(files))
    fails(1, "bad.conllu:101", "parse", "m.model", "bad.conllu", "-o", "old", cwd=files)
    assert (files / "old").read_text() == "before"
    assert sorted(os.listdir(files)) == names


def test_heads_that_leave_no_tree_are_named(files):
    text = (
        "1\tA\t_\tX\t_\t_\t0\tx\t_\t_\n2\tB\t_\tX\t_\t_\t0\tx\t_\t_\n"
        "3\tC\t_\tX\t_\t_\t_\tx\t_\t_\n\n"
    )
    fails(1, "<stdin>:1: sentence 1: ", "parse", "m.model", "--keep-heads", stdin=text, cwd=files)
    args = ["parse", "m.model", "--keep-heads", "--multi-root", "--quiet"]
    assert parser(*args, stdin=text, cwd=files)[0] == 0


def test_bad_models_are_refused_in_one_line(files):
    data = (files / "m.model").read_bytes()
    for name, content in (("cut", data[:5000]), ("empty", b""), ("random", os.urandom(3000))):
        (files / name).write_bytes(content)
        fails(1, f"{name}: not a model file", "parse", name, "test.conllu", cwd=files)
        fails(1, f"{name}: not a model file", "info", name, cwd=files)
    fails(1, "No such file", "parse", "nothing", "test.conllu", cwd=files)


def test_bad_use_exits_with_2(files):
    assert parser("parse")[0] == 2
    assert parser("train", "train.conllu", "-o", "x", "--learner", "svm", cwd=files)[0] == 2
    (files / "wrong.toml").write_text("epoch = 3\n")
    fails(
        2,
        "unknown setting 'epoch'",
        *("train", "train.conllu", "-o", "x", "--config", "wrong.toml"),
        cwd=files,
    )
    fails(
        2,
        "'grandma' is not one of link, sib",
        *("train", "train.conllu", "-o", "x", "--factors", "link,grandma"),
        cwd=files,
    )
    assert parser("eval", "test.conllu", cwd=files)[0] == 2
    assert parser("eval", "test.conllu", "test.conllu", "--engine", "mst", cwd=files)[0] == 2


@pytest.fixture(scope="module")
def second(files):
    """A second-order model beside the first-order one."""
    args = ("--factors", "link,childseq,grand", "--epochs", "4", "--dev", "test.conllu")
    code, _, err = parser("train", "train.conllu", "-o", "second.model", *args, cwd=files)
    assert code == 0
    assert "of the gold arcs among them" in err
    return files


def test_engines_of_a_second_order_model_are_compared_in_one_table(second):
    names = ["grandsibling", "grandsibling:decode=mbr", "hill-climbing:start=mst,restarts=2"]
    args = [word for name in names for word in ("--engine", name)]
    args = ["eval", "test.conllu", "--model", "second.model", *args]
    rows = json.loads(parser(*args, "--json", cwd=second)[1])
    assert [row["engine"] for row in rows] == names
    assert all(row["UAS"] > 50 for row in rows)
    assert "moves a sentence" in parser(*args, cwd=second)[1]


def test_a_model_is_timed_with_the_engine_that_it_parses_with(files):
    """Its own, unless another is asked for."""
    own = "hill-climbing:start=mst"
    args = ("train", "train.conllu", "-o", "own.model", "--factors", "link,grand", "--epochs", "1")
    assert parser(*args, "--engine", own, cwd=files)[0] == 0
    args = ("eval", "test.conllu", "--model", "own.model", "--json")
    (row,) = json.loads(parser(*args, cwd=files)[1])
    assert row["engine"] == own
    _, parsed, _ = parser("parse", "own.model", "test.conllu", cwd=files)
    (files / "own.conllu").write_text(parsed, encoding="utf-8")
    of_trees = json.loads(parser("eval", "test.conllu", "own.conllu", "--json", cwd=files)[1])
    assert row["UAS"] == pytest.approx(of_trees["uas"])


def test_exact_goes_on_until_trees_are_proved_best(second):
    args = ["eval", "test.conllu", "--model", "second.model"]
    few = "dual-decomposition:iterations=3,sweeps=0,nodes=0"
    engines = ("--engine", few, "--engine", "ad3")
    _, loose, _ = parser(*args, *engines, cwd=second)
    assert f"{few}: 100.00 % of the trees proved best" not in loose
    _, proved, _ = parser(*args, *engines, "--exact", cwd=second)
    assert proved.count(": 100.00 % of the trees proved best") == 2
    code, out, _ = parser("parse", "second.model", "test.conllu", "--exact", cwd=second)
    assert code == 0
    assert len(read_all(second / "test.conllu")) == out.count("\n\n")
    parse = ("parse", "second.model", "test.conllu", "--engine", "hill-climbing", "--exact")
    fails(1, "hill-climbing cannot prove that its trees are best", *parse, cwd=second)


def test_amortized_training_says_how_often_it_called_the_engine(files):
    args = ("train", "train.conllu", "-o", "amortized.model", "--factors", "link", "--epochs", "6")
    code, _, err = parser(*args, "--learner", "perceptron", "--amortize", cwd=files)
    assert code == 0
    share = float(err.rpartition("share_of_all ")[2].split()[0])
    assert 0 < share < 1
    fails(
        2,
        "only for learners that take best trees",
        *args,
        "--learner",
        "crf",
        "--amortize",
        cwd=files,
    )


def test_second_order_models_parse_with_confidence_n_best_and_kept_heads(second):
    args = ("parse", "second.model", "test.conllu")
    _, sure, _ = parser(*args, "--confidence", cwd=second)
    assert "ArcProb=" in sure
    assert "# tree_logprob = -" in sure
    _, several, _ = parser(*args, "--n-best", "3", cwd=second)
    assert several.count("# tree_rank = 3") > 20
    gold = [s for s in read_all(second / "test.conllu") if projective(s.heads)]
    text = "".join(s.to_conll() for s in gold)
    (second / "projective.conllu").write_text(text, encoding="utf-8")
    args = ("parse", "second.model", "projective.conllu", "-o", "kept.conllu", "--keep-heads")
    assert parser(*args, cwd=second)[0] == 0
    for before, after in zip(gold, read(second / "kept.conllu"), strict=True):
        assert after.heads.tolist() == before.heads.tolist()


def test_arcs_kept_only_so_that_there_is_a_tree_are_counted(files):
    (files / "tight.toml").write_text(
        CONFIG.replace('"link"', '"link", "grand"') + "prune_heads = 1"
    )
    args = ("train", "train.conllu", "-o", "tight.model", "--config", "tight.toml")
    assert parser(*args, cwd=files)[0] == 0
    args = ("parse", "tight.model", "test.conllu", "-o", "tight.conllu", "--jobs")
    told = [parser(*args, jobs, cwd=files)[2].splitlines()[0] for jobs in (1, 2)]
    count, _, said = told[0].removeprefix("pruner: ").partition(" ")
    assert int(count) > 0
    assert said == "arcs kept only so that there is a tree"
    assert told[1] == told[0]
    _, table, _ = parser("eval", "test.conllu", "--model", "tight.model", cwd=files)
    assert f": {count} {said}" in table


def test_engines_and_their_options_are_checked(second):
    args = ("parse", "second.model", "test.conllu", "--engine")
    fails(1, "engine mst cannot use the factor family childseq", *args, "mst", cwd=second)
    assert parser(*args, "mist", cwd=second)[0] == 2
    _, _, err = parser(*args, "hill-climbing:steps=3", cwd=second)
    assert "hill-climbing has no option 'steps'; it has start, restarts, seed" in err
    fails(
        1,
        "engine hill-climbing has no marginals",
        *args,
        "hill-climbing",
        "--confidence",
        cwd=second,
    )


def test_unreadable_paths_are_named(files):
    fails(1, "nothing.conllu: ", "parse", "m.model", "nothing.conllu", cwd=files)
    fails(1, "nothing.conllu: ", "train", "nothing.conllu", "-o", "x", cwd=files)
    fails(1, "no/such/x: ", "train", "train.conllu", "-o", "no/such/x", cwd=files)
    (files / "empty.conllu").write_text("")
    fails(1, "empty.conllu", "train", "empty.conllu", "-o", "x", cwd=files)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_closed_pipe_ends_quietly(files, jobs):
    text = (files / "test.conllu").read_text(encoding="utf-8") * 40
    (files / "many.conllu").write_text(text, encoding="utf-8")
    options = f"m.model many.conllu --quiet --jobs {jobs}"
    command = f"{sys.executable} -m parser parse {options} | head -n 1"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, cwd=files, check=True
    )
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        ("test.conllu >&-", 1, "Error: <stdout>: cannot write: it is closed\n"),
        ("- <&-", 1, "Error: <stdin>: cannot read: it is closed\n"),
        ("test.conllu -o out.conllu 2>&-", 0, ""),
    ],
)
def test_closed_streams_are_told(files, how, code, message):
    command = f"{sys.executable} -m parser parse m.model --quiet {how}"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, cwd=files, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", message)


def test_conllx_in_conllx_out(files):
    text = "".join(
        "\t".join([*row.split("\t")[:8], "_", "_"]) + "\n" if row else "\n"
        for row in (files / "test.conllu").read_text(encoding="utf-8").splitlines()
        if not row.startswith("#") and (not row or row.split("\t")[0].isdigit())
    )
    code, out, _ = parser("parse", "m.model", "--format", "conllx", stdin=text, cwd=files)
    assert code == 0
    assert len(out) > 1000
    fails(
        1,
        "CoNLL-X has no MISC",
        *("parse", "m.model", "--format", "conllx", "--confidence"),
        stdin=text,
        cwd=files,
    )


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_while_parsing_leaves_no_file_and_no_traceback(files, jobs):
    command = [sys.executable, "-m", "parser", "parse", "m.model", "-o", "cut.conllu", "--quiet"]
    process = subprocess.Popen(
        [*command, "--jobs", str(jobs)],
        cwd=files,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    process.stdin.write((files / "test.conllu").read_text(encoding="utf-8") * 20)
    process.stdin.flush()
    while not list(files.glob("*cut.conllu*")):  # the output under its first name
        time.sleep(0.05)
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "Traceback" not in err
    assert not list(files.glob("*cut.conllu*"))


def test_ctrl_c_leaves_a_checkpoint_that_resumes(files):
    args = ["train", "train.conllu", "-o", "long.model"]
    process = subprocess.Popen(
        [sys.executable, "-m", "parser", *args, "--config", "config.toml", "--epochs", "400"],
        cwd=files,
        stderr=subprocess.PIPE,
        text=True,
    )
    checkpoint = files / "long.model.checkpoint"
    for _ in range(600):
        if checkpoint.exists():
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume goes on" in err
    assert "Traceback" not in err
    done = err.count("epoch ")
    assert not (files / "long.model").exists()
    code, _, err = parser(
        *args, "--config", "config.toml", "--epochs", done + 1, "--resume", cwd=files
    )
    assert code == 0, err
    assert (files / "long.model").exists()
    whole = parser(
        *args[:3], "whole.model", "--config", "config.toml", "--epochs", done + 1, cwd=files
    )
    assert whole[0] == 0
    settings = json.loads(parser("info", "whole.model", "--json", cwd=files)[1])["settings"]
    assert settings["epochs"] == done + 1
    assert (files / "whole.model").read_bytes() == (files / "long.model").read_bytes()


def test_belief_propagation_gives_trees_confidences_and_k_best(files):
    """On arcs alone it is exact, so that all is as with the exact engine."""
    exact = {"--confidence": "projective:decode=mbr", "--n-best=3": "projective"}
    for option, engine in exact.items():
        outputs = []
        for name in (engine, "bp", "relaxed-bp"):
            args = ("parse", "m.model", "test.conllu", "--quiet", option, "--engine", name)
            code, out, err = parser(*args, cwd=files)
            assert (code, err) == (0, "")
            outputs.append(out)
        assert outputs[0] == outputs[1] == outputs[2]
    timing = ("eval", "test.conllu", "--model", "m.model", "--engine", "bp:iterations=3")
    code, out, _ = parser(*timing, cwd=files)
    assert code == 0
    assert "1.0 iterations a sentence, 100.0 % converged" in out
    args = ("parse", "m.model", "test.conllu", "--confidence", "--engine")
    fails(1, "engine bp:product=max has no marginals", *args, "bp:product=max", cwd=files)
    fails(2, "bp: damping: from 0 up to 1, got 1.0", *args, "bp:damping=1", cwd=files)
