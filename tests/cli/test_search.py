"""`graphzoo search`: budget, validation only, interruption, several processes, and the recipe it writes."""

import csv
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from helpers.warm_python import python

from graphzoo.catalog.presets import list_presets
from graphzoo.catalog.settings import word_of
from graphzoo.cli import search as module
from graphzoo.cli.search import _options_of, is_anothers
from graphzoo.search.space import Choice, nested, read_space

SPACE = """
space:
  model.lr: [0.001, 0.01, 0.05]
  model.encoder.alpha: {low: 0.1, high: 0.9}
options:
  trainer.max_epochs: 3
"""
FOLDER = Path("runs/search/galit-nodes-space")
CONFIGS = "trials/*/seed-0/run/config.yaml"


@pytest.fixture
def search(cli, tiny_nodes):
    """`search(*more, status=0)` runs a few trials of a small GALiT and checks the status."""
    Path("space.yaml").write_text(SPACE, encoding="utf-8")

    def run(*arguments, status=0):
        command = ["search", "galit", "nodes", f"--data.path={tiny_nodes}", "--space=space.yaml"]
        small = ["--model.encoder.hidden_channels=8", "--trainer.accelerator=cpu"]
        result = cli(*command, *small, *arguments)
        assert result.status == status, result.err
        return result

    return run


def trials(folder=FOLDER):
    with (folder / "trials.csv").open(encoding="utf-8") as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


@pytest.fixture
def untested():
    """Fail the test if the test split is used."""
    from graphzoo.tasks import NodeClassification

    def refuse(*_):
        raise AssertionError("the test split was used")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NodeClassification, "test_step", refuse)
        yield patch


def test_a_search_keeps_to_validation_and_writes_a_recipe(search, cli, results, untested, tiny_nodes):
    found = search("--trials=4", "--seeds=0,1")
    rows = trials()
    assert len(rows) == 4 and {row["state"] for row in rows} <= {"complete", "pruned"}
    assert rows[0]["model.lr"] == "0.01" and rows[0]["model.encoder.alpha"] == "0.5", "the preset's own"
    judged = [row for row in rows if row["state"] == "complete"]
    best = max(judged, key=lambda row: float(row["value"]))
    values = [float(value) for value in best["values"].split()]
    assert float(best["value"]) == pytest.approx(sum(values) / 2)
    assert "trial 3 (4 of 4)" in found.err and "best of 4 trials" in found.out
    assert list(FOLDER.rglob("config.yaml")) and not list(FOLDER.rglob("graph")), "a copy for every trial"

    summary = json.loads((FOLDER / "search.json").read_text())
    assert summary["best"]["trial"] == int(best["trial"]) and summary["monitor"] == "val/acc"
    recipe = (FOLDER / "best.yaml").read_text()
    assert f"# settings: trial {best['trial']}, best of 4 (tpe, seed 0), over space.yaml" in recipe
    assert "# space: model.lr {0.001, 0.01, 0.05}; model.encoder.alpha [0.1 .. 0.9]" in recipe
    settings = yaml.safe_load(recipe)
    assert settings["model"]["init_args"]["lr"] == float(best["model.lr"])
    assert settings["trainer"]["max_epochs"] == 3 and settings["data"]["init_args"]["path"] == tiny_nodes

    untested.undo()
    again = ["fit", "--model=galit", "--data=nodes", f"--data.path={tiny_nodes}", "--run_dir=again"]
    again += [f"--recipe={FOLDER / 'best.yaml'}", "--trainer.accelerator=cpu", "--logger=csv", "--seed=1"]
    done = cli(*again)
    assert done.status == 0, done.err
    values = summary["best"]["values"]
    assert results("again")["validation"]["best val/acc"] == values[1], "the same run"


def test_an_interrupted_search_is_resumed_like_an_uninterrupted_one(search, untested):
    search("--trials=5", "--out=whole")
    search("--trials=2", "--out=parts")
    assert len(trials(Path("parts"))) == 2
    search("--trials=5", "--out=parts")
    assert trials(Path("parts")) == trials(Path("whole"))


def test_a_trial_that_was_stopped_is_run_again(search):
    stop = ["--trainer.callbacks+=helpers.own.SendSignal", "--trainer.callbacks.epoch=1",
            "--trainer.callbacks.batch=0"]  # fmt: skip
    stopped = search("--trials=2", *stop, status=143)
    assert "stopped. Run the same command to continue" in stopped.err
    assert not (FOLDER / "trials.csv").exists() and not (FOLDER / "best.yaml").exists()
    # The settings are repeated in a new folder.
    again = search("--trials=2", *stop, status=143)
    assert "trial 1: stopped" in again.err
    logs = [path.read_text() for path in sorted(FOLDER.glob("trials/*/seed-0/run/config.yaml"))]
    assert len(logs) == 2
    chosen = [yaml.safe_load(text)["model"]["init_args"] for text in logs]
    assert chosen[0]["lr"] == chosen[1]["lr"] and chosen[0]["encoder"] == chosen[1]["encoder"]


def test_trials_of_a_killed_process_are_run_again(search):
    from graphzoo.search.study import TrialStudy

    search("--trials=1")
    study = TrialStudy(
        FOLDER, read_space(Path("space.yaml")), direction="maximize", sampler="tpe", seed=0, num_runs=1
    )
    lost = study.study.ask(study.distributions)  # its process has ended: the lock is free
    with study.next_trial(budget=9) as held:
        assert study.take_back_orphans() == 1, "a trial that is being worked on is left alone"
    assert study.take_back_orphans() == 1
    found = search("--trials=3")
    assert "interrupted" not in found.err, "both wait already"
    expected = [{k: str(v) for k, v in trial.params.items()} for trial in (lost, held)]
    done = [{name: row[name] for name in row if name.startswith("model.")} for row in trials()]
    assert done[1:] == expected


def test_settings_that_cannot_run_end_the_search(search):
    Path("space.yaml").write_text("space: {model.encoder.num_layers: [0, -1, -2]}")
    failed = search("--trials=9", "--sampler=grid", status=1)
    assert "The first 3 trials failed" in failed.err and "num_layers" in failed.err
    assert len(trials()) == 3 and all("num_layers" in row["note"] for row in trials())


def test_a_search_with_only_failed_trials_is_an_error_each_time(search):
    Path("space.yaml").write_text("space: {model.encoder.num_layers: [0, -1]}")
    for _ in range(2):
        failed = search("--trials=2", "--sampler=grid", status=1)
        assert "No trial could be evaluated so far; see" in failed.err


def test_a_recipe_found_on_redrawn_splits_is_for_the_given_split(search, cli, results):
    result = search(
        "--trials=1", "--data.split=given-redrawn", "--splits=0-1", "--data.normalize_features=true"
    )
    recipe = Path("runs/search/galit-nodes-space/best.yaml")
    assert yaml.safe_load(recipe.read_text())["data"]["init_args"]["split"] == "given"
    assert "on split given-redrawn" in recipe.read_text().partition("model:")[0]
    command = shlex.split(result.err.splitlines()[-1].partition("test it once with graphzoo ")[2])
    assert cli(*command, "--in-process", "--out=row").status == 0
    assert results("row/seed-0")["split"]["name"] == "given"


def test_a_redrawn_split_in_a_configuration_file_is_not_tested(search):
    Path("mine.yaml").write_text("data: {init_args: {split: given-redrawn}}")
    command = search("--trials=1", "--config=mine.yaml", "--splits=0-1").err.splitlines()[-1]
    assert shlex.split(command)[-1] == "--data.split=given"
    assert yaml.safe_load((FOLDER / "best.yaml").read_text())["data"]["init_args"]["split"] == "given"


def test_a_grid_runs_every_combination_once(search):
    Path("space.yaml").write_text("space: {model.lr: [0.01, 0.02], model.encoder.alpha: [0.2, 0.4]}")
    search("--trials=4", "--sampler=grid", "--trainer.max_epochs=1")
    assert {(row["model.lr"], row["model.encoder.alpha"]) for row in trials()} == {
        (rate, alpha) for rate in ("0.01", "0.02") for alpha in ("0.2", "0.4")
    }


def test_a_range_in_a_grid_is_refused_before_the_search_begins(search):
    """A search folder accepts only its first space, so a later correction would be refused."""
    Path("space.yaml").write_text("space: {model.lr: {low: 0.01, high: 0.02}}")
    assert "grid needs lists" in search("--trials=1", "--sampler=grid", status=2).err
    Path("space.yaml").write_text("space: {model.lr: [0.01]}")
    search("--trials=1", "--sampler=grid", "--trainer.max_epochs=1")


def test_the_first_trial_has_the_default_settings(search, cli, results, tiny_nodes):
    """The first trial has the settings of `fit`, including defaults that no preset sets."""
    Path("space.yaml").write_text("space: {data.normalize_features: [true, false], model.lr: [0.01, 0.5]}")
    search("--trials=1", "--trainer.max_epochs=2")
    assert trials()[0]["data.normalize_features"] == "False" and trials()[0]["model.lr"] == "0.01"
    command = [
        "fit",
        "--model=galit",
        "--data=nodes",
        f"--data.path={tiny_nodes}",
        "--run_dir=run",
        "--logger=csv",
    ]
    cli(*command, "--model.encoder.hidden_channels=8", "--trainer.accelerator=cpu", "--trainer.max_epochs=2")
    found = json.loads((FOLDER / "search.json").read_text())["best"]["value"]
    assert results("run")["validation"]["best val/acc"] == found


@pytest.mark.parametrize("preset", list_presets("search"), ids=lambda preset: preset.name)
def test_shipped_spaces_hold_options_that_exist(cli, tiny_nodes, preset):
    models = [model.name for model in list_presets("model") if preset.name.startswith(model.name)]
    space = read_space(preset.path)
    values = {n: c.values if isinstance(c, Choice) else (c.low, c.high) for n, c in space.choices.items()}
    ends = [{name: found[place] for name, found in values.items()} for place in (0, -1)]
    for chosen in ends:
        words = [f"--{name}={word_of(value)}" for name, value in {**space.options, **chosen}.items()]
        command = ["fit", f"--model={max(models, key=len)}", "--data=nodes", f"--data.path={tiny_nodes}"]
        shown = cli(*command, *words, "--print_config")
        assert shown.status == 0, shown.err
        assert space.fitting(yaml.safe_load(shown.out)) == chosen


def test_the_score_of_a_run_is_its_best_window_of_epochs(search):
    Path("space.yaml").write_text("space: {model.lr: [0.01]}")
    search("--trials=1", "--trainer.max_epochs=6", "--window=3")
    with (FOLDER / "trials/0000/seed-0/run/metrics.csv").open() as file:
        curve = [float(row["val/acc"]) for row in csv.DictReader(file) if row["val/acc"]]
    means = [sum(curve[start : start + 3]) / 3 for start in range(4)]
    found = json.loads((FOLDER / "search.json").read_text())
    assert len(curve) == 6 and found["best"]["value"] == pytest.approx(max(means), abs=1e-12)
    validation = json.loads((FOLDER / "trials/0000/seed-0/validation.json").read_text())
    assert validation["epoch"] == 2 + means.index(max(means))
    assert "best mean of 3 epochs in a row" in (FOLDER / "best.yaml").read_text()
    failed = search("--trials=3", "--trainer.max_epochs=2", "--window=3", "--out=short", status=1)
    assert "fewer than 3 validations" in failed.err


def test_typed_options_are_not_searched(search):
    found = search("--trials=2", "--model.lr=0.3", "--model.init_args.weight_decay=0.1")
    assert "model.lr is set on the command line: not searched" in found.err
    assert "model.lr" not in trials()[0] and "model.encoder.alpha" in trials()[0]
    rates = [yaml.safe_load(path.read_text())["model"]["init_args"]["lr"] for path in FOLDER.glob(CONFIGS)]
    assert rates == [0.3, 0.3]
    assert yaml.safe_load((FOLDER / "best.yaml").read_text())["model"]["init_args"]["lr"] == 0.3
    refused = search("--out=none", "--model.lr=0.3", "--model.encoder.alpha=0.2", status=2)
    assert "the command line and its files set all options" in refused.err and not Path("none").exists()


def test_options_that_an_optimizer_replaces_are_not_searched(search):
    found = search("--trials=1", "--optimizer=SGD", "--optimizer.lr=0.1")
    assert "model.lr is of the task's own optimiser, which --optimizer replaces: not searched" in found.err
    assert "model.lr" not in trials()[0] and "model.encoder.alpha" in trials()[0]
    Path("mine.yaml").write_text("optimizer: {class_path: torch.optim.SGD, init_args: {lr: 0.1}}")
    found = search("--trials=1", "--config=mine.yaml", "--out=file")
    assert "model.lr is of the task's own optimiser" in found.err


def test_settings_of_a_configuration_file_are_not_searched(search):
    """In the printed command it follows the recipe, whose values it would replace."""
    Path("mine.yaml").write_text("data: {init_args: {}}\nmodel: {init_args: {lr: 0.3}}")
    found = search("--trials=2", "--config", "mine.yaml")
    assert "model.lr is set in mine.yaml: not searched" in found.err and "model.lr" not in trials()[0]
    rates = [yaml.safe_load(path.read_text())["model"]["init_args"]["lr"] for path in FOLDER.glob(CONFIGS)]
    assert rates == [0.3, 0.3]
    Path("none.yaml").write_text("model: graphzoo.tasks.NodeClassification")
    assert "not searched" not in search("--trials=1", "--config=none.yaml", "--out=class").err
    Path("all.yaml").write_text("model: {lr: 0.3, encoder: {init_args: {alpha: 0.2}}}")
    refused = search("--out=none", "--config=all.yaml", status=2)
    assert "the command line and its files set all options" in refused.err and not Path("none").exists()


@pytest.mark.parametrize(("name", "words"), [("smoke", ["--trainer=smoke"]), ("galit", [])])
def test_a_preset_named_like_the_recipe_does_not_replace_it(search, name, words):
    Path(f"{name}.yaml").write_text("model: {init_args: {weight_decay: 0.25}}")
    search("--trials=1", f"--recipe={name}.yaml", *words)
    best = yaml.safe_load((FOLDER / "best.yaml").read_text())
    assert best["model"]["init_args"]["weight_decay"] == 0.25 and "encoder" in best["model"]["init_args"]
    assert "accelerator" in best["trainer"] and "logger" not in best["trainer"], "no preset's settings"


def test_an_own_class_is_in_the_recipe(search, cli, tiny_nodes, monkeypatch):
    """In a task given by its class, too, which the command for the test names."""
    Path("own_galit.py").write_text("from graphzoo.encoders import GALiT\nclass Mine(GALiT): pass\n")
    monkeypatch.delitem(sys.modules, "own_galit", raising=False)
    Path("space.yaml").write_text("space: {model.lr: [0.02]}\noptions: {trainer.max_epochs: 1}\n")
    search("--trials=1", "--model.encoder.class_path=own_galit.Mine")
    encoder = yaml.safe_load((FOLDER / "best.yaml").read_text())["model"]["init_args"]["encoder"]
    assert encoder == {"class_path": "own_galit.Mine", "init_args": {"hidden_channels": 8}}
    words = ["search", "graphzoo.tasks.NodeClassification", "nodes", "--model.encoder=own_galit.Mine"]
    words += [f"--data.path={tiny_nodes}", "--space=space.yaml", "--trials=1", "--trainer.accelerator=cpu"]
    done = cli(*words)
    assert done.status == 0, done.err
    command = shlex.split(done.err.splitlines()[-1].partition("test it once with graphzoo ")[2])
    tested = cli(*command, "--seeds=0", "--in-process", "--out=row")
    assert tested.status == 0, tested.err
    model = yaml.safe_load(Path("row/seed-0/config.yaml").read_text())["model"]
    assert model["class_path"] == "graphzoo.tasks.NodeClassification" and model["init_args"]["lr"] == 0.02
    assert model["init_args"]["encoder"]["class_path"] == "own_galit.Mine"
    monkeypatch.delitem(sys.modules, "own_galit")


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["--model.dropout", "0.1", "--model.init_args.dropout", "0.2", "--model.dropout", "0.3"], 0.3),
        (["--model.dropout=0.1", "--model.init_args.dropout=0.2"], 0.2),
    ],
)
def test_of_two_spellings_the_last_one_counts(words, settings):
    options, left_out = _options_of(words)
    assert nested(options) == {"model": {"init_args": {"dropout": settings}}} and not left_out


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("2024-01-15", "2024-01-15"),
        ("2024_01_15", "2024_01_15"),
        ("007", "007"),
        ("null", None),
        ("[a.tsv, 2024-01-15]", ["a.tsv", "2024-01-15"]),
    ],
)
def test_the_name_of_a_folder_stays_as_it_was_typed(word, value):
    assert _options_of([f"--data.path={word}", "--model.lr=1_0"]) == (
        {"data.path": value, "model.lr": 10},
        [],
    )


def test_the_files_are_written_though_nobody_reads_the_table(search, monkeypatch):
    """rich ends the process where the reader of its output has left."""

    def left(*_):
        raise SystemExit(1)

    monkeypatch.setattr(module, "console", lambda: SimpleNamespace(print=left))
    search("--trials=1", "--trainer.max_epochs=1", status=1)
    assert (FOLDER / "best.yaml").is_file() and (FOLDER / "search.json").is_file()


def test_a_configuration_file_named_like_the_recipe_does_not_replace_it(search):
    Path("base.yaml").write_text("model: {init_args: {weight_decay: 0.25}}")
    Path("mine").mkdir()
    Path("mine/base.yaml").write_text("trainer: {max_epochs: 2}")
    search("--trials=1", "--recipe=base.yaml", "--config=mine/base.yaml")
    best = yaml.safe_load((FOLDER / "best.yaml").read_text())
    assert best["model"]["init_args"]["weight_decay"] == 0.25
    assert "--config=mine/base.yaml" in (FOLDER / "best.yaml").read_text().partition("\nmodel:")[0]


def test_two_processes_share_a_folder(search, tiny_nodes, monkeypatch):
    """Two processes started together on a grid run each combination once."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    Path("space.yaml").write_text("space: {model.lr: [0.01, 0.02, 0.03], model.encoder.alpha: [0.2, 0.4]}")
    command = [
        python(),
        "-m",
        "graphzoo.cli",
        "search",
        "galit",
        "nodes",
        f"--data.path={tiny_nodes}",
    ]
    command += ["--space=space.yaml", "--sampler=grid", "--out=shared", "--trainer.max_epochs=1"]
    command += ["--trainer.accelerator=cpu"]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [process.communicate(timeout=300)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], errors
    tried = [(row["model.lr"], row["model.encoder.alpha"]) for row in trials(Path("shared"))]
    assert len(tried) == 6 == len(set(tried)), tried
    assert {row["state"] for row in trials(Path("shared"))} <= {"complete", "pruned"}


def test_hopeless_trials_are_pruned(search):
    from graphzoo.search.study import TrialStudy

    search("--trials=1", "--seeds=0-2")
    space = read_space(Path("space.yaml"))
    study = TrialStudy(FOLDER, space, direction="maximize", sampler="tpe", seed=0, num_runs=3)
    values = study.complete[0].user_attrs["values"]
    best, mean = max(values), sum(values) / 3
    # With a first run below this, two runs as good as the best do not reach the best mean.
    needed = 3 * mean - 2 * best
    assert study.is_hopeless([needed - 1e-6]) and not study.is_hopeless([needed + 1e-6])
    assert not study.is_hopeless([best])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["galit"], "needs a model and a data set"),
        (["galt", "cora"], "Did you mean: galit"),
        (["galit", "cora", "--trials=0"], "--trials takes a whole number of at least 1"),
        (["galit", "cora", "--minutes=-1"], "--minutes takes a number of at least 0.01"),
        (["galit", "cora", "--sampler=best"], "--sampler is one of tpe, random, grid"),
        (["galit", "cora", "--seeds=a"], "--seeds takes numbers"),
        (["galit", "cora", "--sampler_seed=1,2"], "--sampler_seed takes a whole number"),
        (["galit", "cora", "--run_dir=x"], "search sets --run_dir itself"),
        (["galit", "cora", "--space=nowhere.yaml"], "there is no search space 'nowhere.yaml'"),
        (["galit", "cora", "--space=galti"], "Did you mean: galit"),
        (
            ["nodeformer", "cora", "--space=galit"],
            "galit.yaml: nodeformer on cora has no option model.encoder.gamma",
        ),
        (
            ["nodeformer", "cora", "--space=galit", "--sweep=sweep.yaml"],
            "galit.yaml: nodeformer on cora has no option model.encoder.gamma",
        ),
        (["galit", "graphzoo.datamodules.NodeDataModule"], "search takes a data set by name, and"),
        (["heuristic.cn", "cora"], "cannot be used on cora"),
        (["pencil", "ogbl-ppa"], "there is no search space for pencil: add --space FILE"),
    ],
)
def test_wrong_command_lines_are_refused(cli, arguments, message):
    result = cli("search", *arguments)
    assert result.status == 2 and message in result.err, result.err
    assert len(result.err.splitlines()) <= 6 and not Path("runs").exists()


def test_other_settings_and_other_files_are_refused(search, workplace):
    search("--trials=1")
    other = search("--trials=1", "--model.weight_decay=0.1", status=2)
    assert "holds trials with other options" in other.err
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    assert "holds other files" in search("--out=full", status=2).err
    assert [path.name for path in Path("full").iterdir()] == ["notes.txt"]
    Path("begins").mkdir()
    for name in ("lock", ".command.json.7.tmp"):  # files of another process that begins the same search
        Path("begins", name).touch()
    search("--out=begins", "--trials=1")
    wrong = search("--out=none", "--model.encoder.num_layer=3", status=2)
    assert "num_layer" in wrong.err and not Path("none").exists(), "refused before any trial"


def test_a_search_is_not_continued_with_a_changed_preset_and_not_taken_for_a_row(search, cli, monkeypatch):
    preset = Path("presets/recipe/galit/nodes.yaml")
    preset.parent.mkdir(parents=True)
    preset.write_text("trainer: {max_epochs: 1}\n")
    monkeypatch.setenv("GRAPHZOO_CONFIGS", "presets")
    search("--trials=1")
    row = cli("reproduce", "galit", "nodes", "--data.path=own.npz", f"--out={FOLDER}")
    assert row.status == 2 and f"{FOLDER} is a folder of graphzoo search\n" in row.err
    preset.write_text("trainer: {max_epochs: 2}\n")
    changed = search("--trials=2", status=2)
    assert "trials made before $GRAPHZOO_CONFIGS/recipe/galit/nodes.yaml changed" in changed.err


def test_a_search_that_begins_meanwhile_is_not_anothers(tmp_path, monkeypatch):
    """Another process writes command.json between two checks of the folder."""
    listed = Path.iterdir

    def begin_then_list(folder):
        (folder / "command.json").touch()
        (folder / "study.journal").touch()
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", begin_then_list)
    assert not is_anothers(tmp_path)


def test_trials_of_changed_data_are_not_continued(cli, search, tiny_nodes):
    shutil.copy(tiny_nodes, "own.npz")
    search("--trials=1", "--data.path=own.npz", "--trainer.max_epochs=1")
    arrays = dict(np.load("own.npz"))
    masks = {name: arrays[name][::-1] for name in arrays if name.endswith("mask")}
    assert masks
    np.savez("own.npz", **{**arrays, **masks})  # the same graph with another split
    refused = search("--trials=2", "--data.path=own.npz", "--trainer.max_epochs=1", status=2)
    assert "holds trials made before the data changed" in refused.err and len(trials()) == 1


def test_the_command_that_tests_the_recipe_names_own_files(search, tiny_nodes):
    err = search("--trials=1").err
    assert f"reproduce galit nodes --recipe {FOLDER / 'best.yaml'} --data.path={tiny_nodes}\n" in err


def test_the_command_that_tests_the_recipe_has_options_that_a_recipe_cannot_hold(search, cli):
    """A recipe cannot hold an argument of a callback without the callback."""
    callback = ["--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.patience=2"]
    words = [*callback, "--optimizer=SGD", "--optimizer.lr", "0.1", "--quiet", "--out=my search"]
    err = search("--trials=1", *words).err
    recipe = yaml.safe_load(Path("my search/best.yaml").read_text())
    assert "callbacks" not in recipe["trainer"]
    command = shlex.split(err.splitlines()[-1].partition("test it once with graphzoo ")[2])
    assert command[-4:] == [*callback, "--optimizer=SGD", "--optimizer.lr=0.1"]
    done = cli(*command, "--seeds=0", "--in-process", "--out=row")
    assert done.status == 0, done.err
    config = yaml.safe_load(Path("row/seed-0/config.yaml").read_text())
    assert config["optimizer"]["init_args"]["lr"] == 0.1
    assert config["trainer"]["callbacks"][-1]["init_args"]["patience"] == 2
