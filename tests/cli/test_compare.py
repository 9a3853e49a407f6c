"""`graphzoo compare`: the choice of a model for a graph by its validation score."""

import json
import signal
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

import graphzoo
from graphzoo.catalog.tasks import TASKS
from graphzoo.cli.compare import _predicting
from graphzoo.errors import UsageError
from graphzoo.runs.lock import RunLock
from graphzoo.search import compare as module

SHORT = ["--in-process", "--trainer.max_epochs=2", "--trainer.accelerator=cpu"]


@pytest.fixture
def nodes(workplace):
    """Options for a ring of two classes, which the first feature separates."""
    generator = np.random.default_rng(0)
    y = np.arange(40) // 20
    x = generator.normal(size=(40, 3)).astype("float32")
    x[:, 0] += 3 * y
    ring = np.stack([np.arange(40), np.roll(np.arange(40), 1)])
    np.savez(workplace / "ring.npz", x=x, edge_index=ring, y=y)
    return ["--data", "nodes", "--data.path", "ring.npz"]


def trials_take(seconds, monkeypatch):
    """Every trial seems to take as long, whatever the speed of the machine."""
    clock = count(step=seconds)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))


def trials(folder):
    return [json.loads(line) for line in Path(folder, "trials.jsonl").read_text().splitlines()]


def test_models_are_compared_and_the_best_one_predicts(cli, nodes, monkeypatch):
    trials_take(2, monkeypatch)
    done = cli("compare", *nodes, "--models", "mlp,galit", "--minutes", 0.5, *SHORT, "--out", "found")
    assert done.status == 0, done.err
    found = json.loads(Path("found/compare.json").read_text())
    assert {row["model"] for row in found["models"]} == {"mlp", "galit"}
    best = found["models"][0]
    assert best["score"] >= found["models"][1]["score"] and best["runs"] > 1, "settings or seeds are tried"
    assert {trial["seed"] for trial in trials("found")} == {0, 1, 2} and best["deviation"] is not None
    assert "edges inside a class 96 %" in done.out and found["advice"] in done.out.replace("\n", " ")
    assert "test/acc" in found["test"] and Path("found/compare.png").stat().st_size > 5000
    assert cli("predict", "--ckpt_path", found["winner"], "--out", "labels.csv").status == 0
    assert "found is a comparison, whose table is in found/compare.json" in cli("results", "found").err
    validated = [Path(found["winner"], "metrics.csv").read_text().splitlines()[0]]
    assert "test/acc" not in validated[0], "only the best model is tested"


def test_a_stopped_comparison_continues(cli, nodes, monkeypatch):
    trials_take(4, monkeypatch)
    run, calls = module._here, []

    def stopped(words, log):
        calls.append(words)
        if len(calls) == 2:
            log.write_text("")
            return 143, 0.0
        return run(words, log)

    monkeypatch.setattr(module, "_here", stopped)
    words = [
        "compare",
        *nodes,
        "--models",
        "mlp,gcn",
        "--minutes",
        0.2,
        *SHORT,
        "--no-test",
        "--out",
        "found",
    ]
    first = cli(*words)
    assert first.status == 143 and "Run the same command to continue" in first.err
    assert [trial["model"] for trial in trials("found")] == ["mlp"]
    assert cli(*words).status == 0
    assert [trial["model"] for trial in trials("found")][:2] == ["mlp", "gcn"], "mlp was not run again"
    refused = cli(*[word if word != "mlp,gcn" else "mlp" for word in words])
    assert refused.status == 2 and "holds trials with other models" in refused.err


def test_a_recipe_changes_neither_split_nor_metric_of_its_model(cli, nodes, monkeypatch):
    recipe = Path("presets/recipe/gcn/nodes.yaml")
    recipe.parent.mkdir(parents=True)
    data = "data: {init_args: {split: random-20-40-40}}"
    recipe.write_text(f"{data}\nmodel: {{init_args: {{metric: roc_auc, lr: 0.02}}}}\n")
    monkeypatch.setenv("GRAPHZOO_CONFIGS", "presets")
    trials_take(250, monkeypatch)
    words = ["--models", "mlp,gcn", "--minutes", 10, *SHORT, "--no-test", "--out"]
    assert cli("compare", *nodes, *words, "found").status == 0
    configs = [
        yaml.safe_load(Path(f"found/runs/{run}/config.yaml").read_text()) for run in ("000-mlp", "001-gcn")
    ]
    protocols = [(one["data"]["init_args"]["split"], one["model"]["init_args"]["metric"]) for one in configs]
    assert protocols == [(None, None)] * 2 and configs[1]["model"]["init_args"]["lr"] == 0.02
    record = json.loads(Path("found/command.json").read_text())
    Path("found/command.json").write_text(json.dumps(record | {"protocol": []}))
    refused = cli("compare", *nodes, *words, "found")  # as if recipes had set the protocol
    assert refused.status == 2 and "found holds trials with other protocol" in refused.err
    custom = cli("compare", *nodes, *words, "custom", "--data.split", "random-50-25-25")
    (mlp, gcn) = (
        json.loads(line)["metrics"] for line in Path("custom/trials.jsonl").read_text().splitlines()[:2]
    )
    assert custom.status == 0 and mlp.keys() == gcn.keys()
    split = yaml.safe_load(Path("custom/runs/001-gcn/config.yaml").read_text())["data"]["init_args"]["split"]
    assert split == "random-50-25-25"
    recipe.write_text(recipe.read_text().replace("0.02", "0.03"))
    refused = cli("compare", *nodes, *words, "custom", "--data.split", "random-50-25-25")
    assert "trials made before $GRAPHZOO_CONFIGS/recipe/gcn/nodes.yaml changed" in refused.err


def test_own_model_presets_are_compared_if_named(cli, nodes, monkeypatch):
    own = Path("presets/model/narrow.yaml")
    own.parent.mkdir(parents=True)
    settings = "{class_path: graphzoo.encoders.MLP, init_args: {hidden_channels: 4}}"
    own.write_text(f"# kind: node\nmodel: {{init_args: {{encoder: {settings}}}}}\n")
    monkeypatch.setenv("GRAPHZOO_CONFIGS", "presets")
    trials_take(150, monkeypatch)
    words = ["--minutes", 10, *SHORT, "--no-test", "--out", "found"]
    done = cli("compare", *nodes, "--models", "narrow,mlp,sgc", *words)
    assert done.status == 0, done.err
    assert [trial["model"] for trial in trials("found")][:3] == ["mlp", "sgc", "narrow"]
    assert all(trial["metrics"] for trial in trials("found")[:3])
    refused = cli("compare", *nodes, "--models", "pencil").err
    assert "model pencil (a pair encoder) cannot be used on nodes" in refused
    triples = cli("compare", "--data", "links", "--data.path", "ring.npz", "--models", "knowformer-any").err
    assert "the weights of knowformer-any are for other data" in triples


def test_a_model_of_an_own_class_is_tested(cli, nodes, monkeypatch):
    """In another process than this one, which has not imported the class, its trial runs without --trust."""
    Path("own_mlp.py").write_text("from graphzoo.encoders import MLP\nclass Mine(MLP): pass\n")
    own = Path("presets/model/mine.yaml")
    own.parent.mkdir(parents=True)
    own.write_text("# kind: node\nmodel: {init_args: {encoder: own_mlp.Mine}}\n")
    monkeypatch.setenv("GRAPHZOO_CONFIGS", "presets")

    def apart(words, log, limit, passed):
        ran = module._here(words, log)
        del sys.modules["own_mlp"]
        return ran

    monkeypatch.setattr(module, "_apart", apart)
    words = ["--models", "mine", "--minutes", 0.05, *SHORT[1:], "--out", "found", "--logger", "tensorboard"]
    done = cli("compare", *nodes, *words)
    assert done.status == 0, done.err
    assert "mine on the test split: " in done.out and done.out.rstrip().endswith("labels.csv --trust")
    assert len([*Path("found").glob("test-*/tensorboard/events.*")]) == 1
    monkeypatch.delitem(sys.modules, "own_mlp")


def test_the_best_model_is_tested_with_the_given_logger(cli, nodes, monkeypatch):
    trials_take(3, monkeypatch)
    words = ["--models", "mlp", "--minutes", 0.05, *SHORT, "--out", "found"]
    done = cli("compare", *nodes, *words, "--logger", "tensorboard")
    assert done.status == 0 and "--trust" not in done.err, done.err
    assert list(Path("found").glob("test-*/tensorboard/events.*"))


def test_a_failed_model_stays_in_the_table(cli, nodes, monkeypatch):
    trials_take(4, monkeypatch)
    run = module._here

    def broken(words, log):
        if "gcn" in words:
            log.write_text("graphzoo: it cannot be\n")
            return 1, 0.0
        return run(words, log)

    monkeypatch.setattr(module, "_here", broken)
    words = ["--models", "mlp,gcn", "--minutes", 0.2, *SHORT, "--no-test", "--out", "found"]
    assert cli("compare", *nodes, *words).status == 0
    last = json.loads(Path("found/compare.json").read_text())["models"][-1]
    assert last["model"] == "gcn" and last["score"] is None and last["note"] == "it cannot be"


def test_a_failed_model_is_tried_again_by_the_same_command(cli, nodes, monkeypatch):
    """It gets its share although the time is spent: the start of a trial, 10 s, and a quarter of 27 s."""
    run, is_broken = module._here, True
    given = []

    def broken(words, log):
        given.append((words[2], next((word for word in words if "max_time" in word), "")))
        if "gcn" in words and is_broken:
            log.write_text("graphzoo: out of memory\n")
            return 1, 0.0
        return run(words, log)

    monkeypatch.setattr(module, "_here", broken)
    trials_take(10, monkeypatch)
    monkeypatch.setattr(module, "_trained", lambda run: 0.01)
    words = [
        "compare",
        *nodes,
        "--models",
        "mlp,gcn",
        "--minutes",
        0.45,
        *SHORT,
        "--no-test",
        "--out",
        "found",
    ]
    assert "gcn failed. Run the same command to try again" in cli(*words).err
    is_broken = False
    given.clear()
    again = cli(*words)
    assert given == [("gcn", "--trainer.max_time=00:00:00:06")], "mlp is not tried again"
    assert "gcn, which failed before (17 s left)" in again.err and "failed. Run" not in again.err
    gcn = next(
        row for row in json.loads(Path("found/compare.json").read_text())["models"] if row["model"] == "gcn"
    )
    assert gcn["score"] is not None and gcn["runs"] == 2
    given.clear()
    assert cli(*words).status == 0 and not given, "nothing is left to try"


def test_only_a_model_without_any_score_counts_as_failed(tmp_path):
    known = {"monitor": "val/acc", "mode": "max", "num_valid": 100}
    comparison = module.Comparison(tmp_path, ["--data", "nodes"], ["mlp", "gcn", "gat", "sage"], **known)
    broken, scored = {"note": "out of memory"}, {"metrics": {"val/acc": 0.5}}
    comparison.trials = [
        module.Trial("mlp", **scored),
        module.Trial("mlp", **broken),
        module.Trial("gcn", **broken),
        module.Trial("gat", **broken),
        module.Trial("gat", seed=1, **scored),
        module.Trial("sage", note=f"{module._NO_SHARE} 3 s, ended"),
    ]
    assert comparison.failed() == ["gcn", "gat"]


def test_progress_is_a_bar_in_a_terminal_and_lines_elsewhere(cli, nodes, monkeypatch):
    from contextlib import contextmanager

    from graphzoo.cli import compare as command

    shown = []

    @contextmanager
    def bar(what, total):
        shown.append((what, total))
        yield lambda *step: shown.append(step)

    def trial(words, log):
        log.write_text("graphzoo: too large\n")
        return 1, 0.0

    monkeypatch.setattr(module, "_here", trial)
    monkeypatch.setattr(command, "progress", bar)
    trials_take(2, monkeypatch)
    words = ["compare", *nodes, "--models", "mlp,gcn", "--minutes", 0.5, *SHORT, "--out"]
    lines = cli(*words, "one").err
    assert "mlp (30 s left)" in lines and lines.count("s left)") == 2
    assert shown == [("comparing", 30.0), (2.0,), (2.0,)]
    shown.clear()
    monkeypatch.setattr(command, "is_watched", lambda: True)
    assert "left)" not in cli(*words, "two").err
    assert shown == [("comparing", 30.0), (0, "mlp"), (2.0,), (0, "gcn"), (2.0,)]


def test_a_trial_in_a_new_process_reports_elapsed_time(tmp_path, monkeypatch):
    reported = []
    monkeypatch.setattr(module, "_GLANCE", 0.0)
    status, _ = module._apart(["list", "--help"], tmp_path / "log", 100, reported.append)
    assert status == 0 and reported and all(seconds > 0 for seconds in reported)


def test_stopped_and_untried_models_are_noted_in_the_table(cli, nodes, monkeypatch):
    trials_take(100, monkeypatch)
    monkeypatch.setattr(module, "_trained", lambda run: 27.0)
    words = ["--models", "mlp,gcn", "--minutes", 1.5, *SHORT, "--no-test", "--out", "found"]
    assert cli("compare", *nodes, *words).status == 0
    rows = json.loads(Path("found/compare.json").read_text())["models"]
    assert [row["note"] for row in rows] == ["stopped after its share of 27 s", "not tried: no time was left"]


def test_other_seeds_of_a_stopped_run_get_the_same_time(tmp_path, monkeypatch):
    given = []

    def run(self, model, seed, settings, share, passed):
        given.append((model, seed, bool(settings), round(share)))
        cut = f"{module.STOPPED} of {share:.0f} s" if model == "galit" else ""
        score = {"val/acc": 0.9 if model == "galit" and not settings else 0.5}
        return module.Trial(model, seed, settings, score, 10.0, note=cut, share=share), 0

    monkeypatch.setattr(module.Comparison, "_run", run)
    monkeypatch.setattr(module.Comparison, "_draw", lambda self, model: {})
    known = {"monitor": "val/acc", "mode": "max", "num_valid": 100}
    comparison = module.Comparison(tmp_path, ["--data", "nodes"], ["mlp", "galit"], **known)
    assert comparison.work(100, lambda *_: None, lambda _: None) == 0
    first = [("mlp", 0, False, 30), ("galit", 0, False, 50)]
    assert given == [*first, ("galit", 1, False, 50), ("mlp", 1, False, 70), ("galit", 2, False, 50),
                     ("mlp", 2, False, 50)]  # fmt: skip


def test_shipped_weights_are_compared_on_triples(cli, tiny_kg, monkeypatch):
    trials_take(6, monkeypatch)
    words = [
        "--data",
        "kg",
        "--data.path",
        str(tiny_kg),
        "--models",
        "knowformer-any;knowformer",
        "--minutes",
        0.3,
    ]
    done = cli("compare", *words, *SHORT, "--out", "found")
    assert done.status == 0, done.err
    found = json.loads(Path("found/compare.json").read_text())
    assert {row["model"] for row in found["models"]} == {"knowformer-any", "knowformer"}
    assert all(0 < row["score"] < 1 for row in found["models"]) and 0 < found["test"]["test/mrr"] < 1


def test_compare_from_python_returns_a_table(nodes, workplace, monkeypatch):
    trials_take(6, monkeypatch)
    table = graphzoo.compare(
        "nodes", path="ring.npz", minutes=0.2, models=["mlp"], out="found", options=[*SHORT, "--no-test"]
    )
    assert list(table["model"]) == ["mlp"] and table.attrs["advice"].startswith("Take mlp.")
    with pytest.raises(UsageError, match="no model 'mlq'"):
        graphzoo.compare("nodes", path="ring.npz", models=["mlq"])


def test_a_graph_in_memory_is_saved_beside_its_trials(workplace, monkeypatch):
    trials_take(3, monkeypatch)
    triples = [(f"e{i}", f"r{i % 2}", f"e{(3 * i + 1) % 12}") for i in range(60)]
    settings = {"minutes": 0.1, "models": ["knowformer"], "options": [*SHORT, "--no-test"]}
    first = graphzoo.compare(triples, **settings)
    (folder,) = Path("runs/compare").iterdir()
    assert (folder / f"{folder.name}.npz").is_file() and first.attrs["winner"].startswith(str(folder))
    again = graphzoo.compare(triples, **settings)
    assert again["score"].tolist() == first["score"].tolist()
    with pytest.raises(UsageError, match="give one of the two"):
        graphzoo.compare(triples, path="train.tsv")


def test_wrong_command_lines_are_refused(cli, nodes):
    assert "no model 'galid'" in cli("compare", *nodes, "--models", "galid").err
    assert "--data" in cli("compare").err
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("words")
    refused = cli("compare", *nodes, "--out", "mine")
    assert refused.status == 2 and "mine holds other files" in refused.err
    assert (
        "compare has no models for citeseer-heuristics" in cli("compare", "--data", "citeseer-heuristics").err
    )


def test_a_damaged_list_of_trials_is_named(cli, nodes, monkeypatch):
    trials_take(3, monkeypatch)
    words = ["compare", *nodes, "--models", "mlp", "--minutes", 0.1, *SHORT, "--no-test", "--out", "found"]
    assert cli(*words).status == 0
    with Path("found/trials.jsonl").open("a") as file:
        file.write('{"model": "gcn", "made": 1}\n')
    refused = cli(*words)
    assert refused.status == 2 and "trials.jsonl, line" in refused.err and "is damaged" in refused.err


def test_memory_is_0_where_the_system_does_not_measure_it(tmp_path, monkeypatch):
    """Windows has neither `os.wait4` nor `resource`."""
    words = ["list", "--nonsense"]
    status, peak = module._apart(words, tmp_path / "log", 60, lambda seconds: None)
    assert status == 2 and peak > 0.005 and "--nonsense" in (tmp_path / "log").read_text()
    monkeypatch.delattr(module.os, "wait4")
    assert module._apart(words, tmp_path / "log", 60, lambda seconds: None) == (2, 0.0)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert module._here(words, tmp_path / "log") == (2, 0.0)


def test_the_output_ends_with_a_command_that_predicts(cli, nodes):
    words = ["--models", "galit", "--minutes", 0.1, "--in-process", "--trainer.accelerator=cpu", "--no-test"]
    done = cli("compare", *nodes, *words, "--trainer.max_epochs=100000", "--out", "found")
    assert done.status == 0 and "Time limit" not in done.out + done.err, done.err
    # A fast machine may finish all epochs in time.
    is_cut = "stopped after its share" in Path("found/trials.jsonl").read_text()
    assert ("galit was stopped before the training ended" in " ".join(done.out.split())) == is_cut
    winner = json.loads(Path("found/compare.json").read_text())["winner"]
    command = f"graphzoo predict {winner} --out labels.csv"
    assert done.out.replace("\n", "").endswith(command.replace("\n", ""))
    assert cli(*command.split()[1:]).status == 0 and Path("labels.csv").is_file()
    kg, own = TASKS["kg-completion"], ["--data", "kg", "--data.path=facts"]
    expected = "graphzoo predict --model knowformer-any --data.path facts --queries FILE"
    assert _predicting("knowformer-any", own, kg) == expected
    assert _predicting("knowformer-any", ["--data", "umls"], kg) == expected.replace("facts", "umls")


def test_a_new_best_model_is_tested(cli, nodes, monkeypatch):
    leader = ["mlp"]
    rows = module.Comparison.rows

    def led(self):
        return sorted(rows(self), key=lambda row: row.model != leader[0])

    monkeypatch.setattr(module.Comparison, "rows", led)
    trials_take(250, monkeypatch)
    words = ["compare", *nodes, "--models", "mlp,gcn", "--minutes", 10, *SHORT, "--out", "found"]
    assert cli(*words).status == 0
    leader[0] = "gcn"
    again = cli(*words)
    assert again.status == 0 and "testing gcn" in again.err
    found = json.loads(Path("found/compare.json").read_text())
    (tested,) = Path("found").glob("test-*-gcn/results.json")
    result = json.loads(tested.read_text())
    assert result["model"] == "gcn" and found["test"] == result["metrics"]
    assert "testing" not in cli(*words).err, "the test split is used once"


def test_a_stopped_or_failed_test_is_repeated(cli, nodes, monkeypatch):
    trials_take(3, monkeypatch)
    from graphzoo.cli import compare as command

    run, statuses = command.run_here, [130, 1]

    def ended(words):
        place = Path(words[words.index("--run_dir") + 1])
        if not statuses:
            return run(words)
        place.mkdir()
        (place / "config.yaml").write_text("# graphzoo")
        return statuses.pop(0)

    monkeypatch.setattr(command, "run_here", ended)
    words = ["compare", *nodes, "--models", "mlp", "--minutes", 0.05, *SHORT, "--out", "found"]
    stopped = cli(*words)
    assert stopped.status == 130 and "stopped. Run the same command to continue" in stopped.err
    assert not Path("found/compare.json").exists()
    failed = cli(*words)
    assert failed.status == 1 and "The test failed. Run the same command" in failed.err
    assert json.loads(Path("found/compare.json").read_text())["test"] == {}, "the table is written"
    assert cli(*words).status == 0
    assert "test/acc" in json.loads(Path("found/compare.json").read_text())["test"]


def test_a_comparison_has_one_writer(cli, nodes, monkeypatch):
    trials_take(3, monkeypatch)
    run, refused = module._here, []
    words = ["compare", *nodes, "--models", "mlp", "--minutes", 0.05, *SHORT, "--no-test", "--out", "found"]

    def twice(*trial):
        if not refused:
            refused.append(cli(*words))
        return run(*trial)

    monkeypatch.setattr(module, "_here", twice)
    assert cli(*words).status == 0
    assert refused[0].status == 2 and "found is being written by process" in refused[0].err
    assert "write elsewhere with --out DIR" in refused[0].err
    assert not Path("found/run.lock").exists() and cli(*words).status == 0, "the lock is released"


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """`stand_in(commands)` makes new processes run these shell commands. An unhandled signal raises."""

    def unexpected(signum, frame):
        raise RuntimeError(f"signal {signum}")

    def run_instead(commands):
        script = tmp_path / "stand-in"
        script.write_text(f"#!/bin/sh\n{commands}\n")
        script.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(script))

    before = {number: signal.signal(number, unexpected) for number in (signal.SIGTERM, signal.SIGINT)}
    yield run_instead
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_trial_that_ignores_sigterm_is_killed(stand_in, cli, nodes, monkeypatch):
    stand_in("trap 'echo SIGTERM' TERM\nfor i in $(seq 100); do sleep 0.1; done\nexit 3")
    monkeypatch.setattr(module, "_PATIENCE", 1.0)
    monkeypatch.setattr(module, "_LEAST", 0.1)
    words = ["--models", "mlp", "--minutes", 0.01, "--no-test", "--out", "found"]
    assert cli("compare", *nodes, *words).status == 1
    assert Path("found/runs/000-mlp.log").read_text() == "SIGTERM\nSIGTERM\n", "SIGTERM twice, then SIGKILL"
    (trial,) = trials("found")
    assert trial["seconds"] < 8 and trial["note"].startswith("its share, 0 s, ended"), trial


@pytest.mark.parametrize(
    ("name", "then", "status"), [("TERM", "exec sleep 20", 143), ("INT", "exit 130", 130)]
)
def test_stopping_a_comparison_stops_its_trial(stand_in, cli, nodes, monkeypatch, name, then, status):
    monkeypatch.setenv("PL_GLOBAL_SEED", "3")
    stand_in(f"echo seed ${{PL_GLOBAL_SEED:-free}}\nsleep 0.3\nkill -{name} $PPID\n{then}")
    stopped = cli("compare", *nodes, "--models", "mlp", "--minutes", 0.2, "--no-test", "--out", "found")
    assert stopped.status == status and "stopped. Run the same command to continue" in stopped.err
    assert not Path("found/trials.jsonl").exists(), "the trial is run again"
    assert Path("found/runs/000-mlp.log").read_text() == "seed free\n"


def test_a_comparison_is_not_continued_on_changed_data(cli, nodes, monkeypatch):
    trials_take(3, monkeypatch)
    words = ["compare", *nodes, "--models", "mlp", "--minutes", 0.05, *SHORT, "--no-test", "--out", "found"]
    assert cli(*words).status == 0
    record = json.loads(Path("found/command.json").read_text())
    arrays = dict(np.load("ring.npz"))
    np.savez("ring.npz", **{**arrays, "x": arrays["x"] + 1})
    refused = cli(*words)
    assert refused.status == 2 and "found holds trials made before the data changed" in refused.err
    without_data = {key: value for key, value in record.items() if key != "data"}
    Path("found/command.json").write_text(json.dumps(without_data))
    assert cli(*words).status == 0, "a record without data is accepted"
    assert len(json.loads(Path("found/command.json").read_text())["data"]) == 2


def test_a_list_without_a_model_is_refused(cli, nodes):
    with pytest.raises(UsageError, match="--models names no model\nLeave it out"):
        graphzoo.compare("nodes", path="ring.npz", models=[])
    assert {cli("compare", *nodes, "--models", given).status for given in (",", "")} == {2}


def test_models_from_python_may_be_one_string(nodes):
    with pytest.raises(UsageError, match="no model 'mlq' for these data"):
        graphzoo.compare("nodes", path="ring.npz", models="mlp,mlq")


def test_the_advice_names_models_that_were_not_tried(cli, nodes, monkeypatch):
    trials_take(100, monkeypatch)
    monkeypatch.setattr(module, "_apart", lambda words, log, limit, passed: module._here(words, log))
    words = ["compare", *nodes, "--models", "mlp,gcn", "--minutes", 1.5, "--no-test"]
    here, apart = (
        " ".join(cli(*words, *short, "--out", f"of-{len(short)}").out.split()) for short in (SHORT, SHORT[1:])
    )
    untried = "Not tried, as time ran out: gcn."
    assert f"{untried} --in-process starts trials faster." in apart
    assert untried in here and "--in-process" not in here


def test_a_trial_that_outlives_its_comparison_keeps_its_folder(cli, nodes, monkeypatch):
    """As after `kill -9` of the comparison during its first trial."""
    trials_take(3, monkeypatch)
    words = ["compare", *nodes, "--models", "mlp", "--minutes", 0.05, *SHORT, "--no-test", "--out", "found"]
    assert cli(*words).status == 0
    Path("found/trials.jsonl").unlink()
    lock = RunLock(Path("found/runs/000-mlp"))
    lock.take()
    try:
        refused = cli(*words)
        assert Path("found/runs/000-mlp/config.yaml").is_file()
    finally:
        lock.release()
    assert refused.status == 2 and "found/runs/000-mlp is being written by process" in refused.err
    assert cli(*words).status == 0, "the folder is free after the trial"


def simulated(monkeypatch, folder, models, seconds, *, words=(), speed=None):
    """A comparison of simulated trials, and the arguments of each trial.

    A model needs `speed[model]` seconds; without an entry it uses its whole share. Scores grow with time.
    """
    given = []

    def run(self, model, seed, settings, share, passed):
        needed = (speed or {}).get(model, 10_000.0)
        took = min(share, needed)
        given.append((model, seed, settings, round(share)))
        cut = f"{module.STOPPED} of {share:.0f} s" if took == share else ""
        score = {"val/acc": 1 - 1 / (2 + took)}
        if model == "late" and share < 50:
            score, cut = {}, f"its share, {share:.0f} s, ended before a validation: give more --minutes"
        return module.Trial(model, seed, settings, score, took, note=cut, share=share), 0

    monkeypatch.setattr(module.Comparison, "_run", run)
    known = {"monitor": "val/acc", "mode": "max", "num_valid": 100}
    comparison = module.Comparison(folder, ["--data", "nodes", *words], models, **known)
    assert comparison.work(seconds, lambda *_: None, lambda _: None) == 0
    return comparison, given


def test_models_stopped_early_get_more_time_in_a_longer_comparison(tmp_path, monkeypatch):
    """The longer run replaces the shorter one in the table."""
    models, speed = ["mlp", "gcn", "late"], {"mlp": 5.0}
    first, _ = simulated(monkeypatch, tmp_path, models, 60, speed=speed)
    rows = {row.model: row for row in first.rows()}
    assert rows["gcn"].note.startswith(module.STOPPED) and rows["late"].score is None
    second, given = simulated(monkeypatch, tmp_path, models, 150, speed=speed)
    begun = [(model, share) for model, seed, settings, share in given if not seed and not settings]
    assert [model for model, _ in begun] == ["gcn", "late"], "a completed model is not repeated"
    rows = {row.model: row for row in second.rows()}
    assert rows["gcn"].trials[0].share > 1.5 * first.rows()[0].trials[0].share
    assert len({trial.share for trial in rows["gcn"].trials}) == 1, "other seeds get the same time"
    _, given = simulated(monkeypatch, tmp_path, models, 160, speed=speed)
    assert not any(not seed and not settings for _, seed, settings, _ in given), "10 s more are too few"


def test_drawn_settings_get_no_more_time_than_those_of_the_preset(tmp_path, monkeypatch):
    _, given = simulated(monkeypatch, tmp_path, ["mlp", "sgc", "gcn", "sage", "gat", "galit"], 300)
    shares = {model: share for model, seed, settings, share in given if not seed and not settings}
    drawn = [(model, share) for model, seed, settings, share in given if settings and not seed]
    assert drawn and all(share <= shares[model] for model, share in drawn)


def test_options_of_the_user_are_not_drawn(tmp_path, monkeypatch):
    words = ["--model.encoder.dropout=0.5", "--model.init_args.lr", "0.5", "--config", "own.yaml"]
    monkeypatch.chdir(tmp_path)
    Path("own.yaml").write_text("model: {init_args: {weight_decay: 0.5}}\n")
    _, given = simulated(monkeypatch, tmp_path, ["galit"], 300, words=words, speed={"galit": 5.0})
    drawn = set().union(*(settings for _, _, settings, _ in given))
    assert drawn and not drawn & {"model.encoder.dropout", "model.lr", "model.weight_decay"}
    everything = [f"--{name}=1" for name in module._space("galit").choices]
    _, given = simulated(monkeypatch, tmp_path / "b", ["galit"], 300, words=everything, speed={"galit": 5.0})
    assert not any(settings for _, _, settings, _ in given)


def with_starts(monkeypatch, folder, models, seconds, *, start, end=0.0, broken=()):
    """A comparison whose trials train as long as they may, after `start` seconds, and its (model, share)s."""
    given = []

    def run(self, model, seed, settings, share, passed):
        given.append((model, round(share, 1)))
        if model in broken:
            return module.Trial(model, seconds=broken[model], note="out of memory", share=share), 0
        note, took = f"{module.STOPPED} of {share:.0f} s", start + share + end
        known = {"note": note, "share": share, "trained": share}
        return module.Trial(model, seed, settings, {"val/acc": 0.5}, took, **known), 0

    monkeypatch.setattr(module.Comparison, "_run", run)
    known = {"monitor": "val/acc", "mode": "max", "num_valid": 100}
    comparison = module.Comparison(folder, ["--data", "nodes"], models, **known)
    assert comparison.work(seconds, lambda *_: None, lambda _: None) == 0
    return comparison, given


def test_the_start_of_trials_is_part_of_their_share(tmp_path, monkeypatch):
    """Only the first trial, before which no start was measured, takes more than its share."""
    models = ["mlp", "sgc", "gcn", "gat"]
    comparison, given = with_starts(monkeypatch, tmp_path, models, 200, start=15.0, end=5.0)
    # 60 % of 200 s: 30 s for the first, whose 50 s leave 70 s for three, 20 s of each before and after
    assert given[:2] == [("mlp", 30.0), ("sgc", 15.0)]
    assert {share for model, share in given[1:4]} == {15.0}, "the least, as the part is shorter"
    assert comparison.seconds <= 200


def test_a_trial_is_ended_a_minute_after_its_share(tmp_path, monkeypatch):
    """While no start was measured, it has a minute for that, too."""
    limits = []

    def ended(words, log, limit, passed):
        log.write_text("")
        limits.append(limit)
        return 1, 0.0

    monkeypatch.setattr(module, "_apart", ended)
    known = {"monitor": "val/acc", "mode": "max", "num_valid": 100}
    comparison = module.Comparison(tmp_path, ["--data", "nodes"], ["mlp", "gcn"], **known)
    comparison._run("mlp", 0, {}, 30.0, lambda _: None)
    comparison.trials = [module.Trial("mlp", metrics={"val/acc": 0.5}, seconds=50.0, trained=30.0)]
    comparison._run("gcn", 0, {}, 25.0, lambda _: None)
    assert limits == [30 + 60 + 60, 25 + 20 + 60]


@pytest.mark.parametrize("start", [5.0, 20.0, 50.0])
def test_no_trial_begins_that_cannot_end_in_time(tmp_path, monkeypatch, start):
    models = ["mlp", "sgc", "gcn", "sage", "gat", "galit", "sgformer", "nodeformer", "polynormer"]
    comparison, given = with_starts(monkeypatch, tmp_path, models, 60, start=start)
    assert comparison.seconds <= 60 and given[0] == ("mlp", 4.0)


def test_the_time_of_a_failure_is_missing_to_the_others(tmp_path, monkeypatch):
    broken = {"mlp": 130.0}
    comparison, given = with_starts(
        monkeypatch, tmp_path, ["mlp", "sgc", "gcn"], 300, start=0.0, broken=broken
    )
    assert given[:3] == [("mlp", 60.0), ("sgc", 25.0), ("gcn", 25.0)]
    assert comparison.seconds <= 300


def test_a_longer_comparison_divides_what_is_left_among_its_models(tmp_path, monkeypatch):
    """Twice the time: all models were stopped and are trained for longer, none at the cost of the others."""
    models = ["mlp", "sgc", "gcn"]
    first, _ = with_starts(monkeypatch, tmp_path, models, 300, start=0.0)
    second, given = with_starts(monkeypatch, tmp_path, models, 600, start=0.0)
    shares = {share for _, share in given}
    assert [model for model, _ in given] == models and len(shares) == 1
    assert shares.pop() == pytest.approx((600 - first.seconds) / 3, abs=0.1) and second.seconds <= 600.1


def test_a_run_that_ends_by_itself_is_not_called_stopped(cli, nodes, monkeypatch):
    """Its start may take longer than its share."""
    trials_take(100, monkeypatch)
    words = ["--models", "mlp", "--minutes", 1.5, *SHORT, "--no-test", "--out", "found"]
    done = cli("compare", *nodes, *words)
    assert "90 s for all trials\n" in done.err and "100 s of it for trials" in done.err
    (trial,) = trials("found")
    assert trial["seconds"] == 100 > trial["share"] and trial["note"] == "" and 0 < trial["trained"] < 100


def test_a_limit_of_time_in_a_file_is_refused_as_on_the_command_line(cli, nodes, monkeypatch):
    trials_take(3, monkeypatch)
    Path("short.yaml").write_text("trainer: {max_time: {minutes: 5}}\n")
    Path("unset.yaml").write_text("trainer: {max_time: null, max_epochs: 2}\n")
    words = ["compare", *nodes, "--models", "mlp", "--minutes", 0.05, "--in-process", "--no-test"]
    refused = cli(*words, "--out", "found", "--config", "short.yaml")
    assert refused.status == 2 and "short.yaml sets trainer.max_time" in refused.err
    assert "--minutes" in refused.err and not Path("found").exists()
    assert cli(*words, "--out", "found", "--config=unset.yaml").status == 0
