"""Runs at Weights & Biases, written offline and read again."""

import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

PAGE = Path(__file__).resolve().parents[2] / "docs" / "wandb.md"
# Run of the fixture -> words in the column of tasks that include it.
KINDS = {
    "once": {"all", "KG"},
    "nodes": {"all", "nodes", "classes"},
    "labels": {"all", "nodes", "labels", "NodeFormer"},
    "links": {"all", "links"},
}


def documented():
    """Key -> words in the column of tasks, from the tables of docs/wandb.md."""
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", PAGE.read_text(), re.MULTILINE)
    return {key: set(tasks.strip().split(", ")) for key, tasks in rows}


def keys_of(run):
    """Keys of history and summary, with one key for all parts of a table."""
    logged = {*run.keys, *run.summary}
    media = {
        re.sub(r"\.(_type|path|sha256|values|bins|ncols|nrows|size|log_mode|.*artifact_path)$", "", key)
        for key in logged
    }
    # A chart is a table, with a description in the configuration.
    charts = {key.removesuffix("_table") for key in media if key.endswith("_table")}
    visualized = {
        key.removeprefix("_wandb.visualize.") for key in run.config if key.startswith("_wandb.visualize.")
    }
    assert charts == visualized
    return {key for key in (media | charts) if not key.startswith("_") and not key.endswith("_table")}


def test_the_page_uses_known_words_for_tasks():
    assert set().union(*documented().values()) == set().union(*KINDS.values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_has_the_keys_of_the_page_and_no_others(wandb_runs, kind):
    (run,) = getattr(wandb_runs, kind)
    expected = {key for key, words in documented().items() if words & KINDS[kind]}
    found = keys_of(run)
    assert expected <= found | set(run.config), expected - found - set(run.config)
    other = {key for key in found - expected - {"trainer/global_step"} if not key.startswith("lr-Adam")}
    assert other == set()


def test_settings_facts_tags_and_scores_are_those_of_the_run(wandb_runs):
    (run,) = wandb_runs.nodes
    results = json.loads((wandb_runs.folder / "nodes" / "results.json").read_text())
    assert run.config["data_fingerprint"] == results["data_fingerprint"]
    assert run.config["versions"] == results["versions"]
    assert (
        run.config["encoder"]["hidden_channels"] == 8 and run.config["config"]["trainer"]["max_epochs"] == 2
    )
    if (PAGE.parents[1] / ".git").exists() and shutil.which("git"):
        assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", run.config["commit"])
    else:  # an unpacked archive
        assert run.config["commit"] is None
    assert set(run.run.tags) == {
        "model:galit",
        "data:classes",
        "recipe:galit/nodes",
        "task:NodeClassification",
    }
    assert (run.run.project, run.run.run_group, run.run.display_name) == (
        "graphzoo",
        "galit-classes",
        "galit-classes-nodes",
    )
    assert run.config["group"] == run.run.run_group
    assert run.summary["test/acc"] == results["metrics"]["test/acc"]
    sizes = {part: run.summary[f"data/{part}"] for part in ("train", "valid", "test")}
    assert sizes == {part: results["split"][part] for part in sizes} and run.summary["data/nodes"] == 60
    assert len(set(sizes.values())) > 1
    validated = [row["val/acc"] for row in run.history if "val/acc" in row]
    assert run.summary["val/acc"] == {"max": max(validated)} and run.best["val/loss"] == ["min"]
    assert run.summary["best/validation"] == max(validated)
    paper = [row for row in run.history if "paper/acc" in row]
    assert {row["paper/acc"] for row in paper} == {0.9}
    steps = [row["trainer/global_step"] for row in paper]
    assert steps[0] == 0 and steps[-1] == 2, "a line needs two ends"


def test_sizes_are_those_of_each_part(wandb_runs):
    (run,) = wandb_runs.once
    for part in ("train", "valid", "test"):
        lines = (wandb_runs.folder / "families" / f"{part}.txt").read_text().splitlines()
        assert run.summary[f"data/{part}"] == len(lines)
    (run,) = wandb_runs.links
    split = json.loads((wandb_runs.folder / "links" / "results.json").read_text())["split"]
    assert [run.summary[f"data/{part}"] for part in split if f"data/{part}" in run.summary] == [
        split[part] for part in ("train", "valid", "test")
    ]


def test_the_summary_keeps_the_best_values_that_the_page_names(wandb_runs):
    from graphzoo.callbacks.wandb_run import BEST

    rows = re.findall(r"^\| `([^`]+)` \|[^|]+\|[^|]*\| (largest|least)? ?\|$", PAGE.read_text(), re.MULTILINE)
    named = {key: {"largest": ["max"], "least": ["min"], "": []}[word] for key, word in rows}
    for runs in (wandb_runs.once, wandb_runs.nodes, wandb_runs.labels, wandb_runs.links):
        (run,) = runs
        assert {key: run.best.get(key, []) for key in named} == named
    assert {key for key, word in named.items() if word} == set(BEST) - {"val/rmse"}


def test_no_local_path_is_sent(wandb_runs):
    for name in ("once", "nodes", "links"):
        (run,) = getattr(wandb_runs, name)
        loggers = run.config["config"]["trainer"]["logger"]
        assert [logger["init_args"]["save_dir"] for logger in loggers] == ["."]
        assert str(wandb_runs.folder) not in json.dumps(run.config["config"])


def test_bars_show_both_directions_together(wandb_runs):
    from graphzoo.analysis import Evaluation

    (run,) = wandb_runs.once
    rows = Evaluation.load(wandb_runs.folder / "once" / "evaluation" / "test").table("relations").data
    both = rows[rows.direction == "both"]
    path = run.path.parent / "files" / run.summary["evaluation/relations_mrr_table.path"]
    assert len(both) < len(rows)
    assert json.loads(path.read_text())["data"] == both[["relation", "mrr"]].to_numpy(dtype=object).tolist()


def test_a_run_is_continued_only_in_its_project(tmp_path):
    from graphzoo.callbacks.wandb_run import remembered_id

    assert remembered_id(tmp_path, "zoo", None) is None
    (tmp_path / "wandb").mkdir()
    known = {"id": "abc", "project": "zoo", "entity": "me"}
    (tmp_path / "wandb" / "id.json").write_text(json.dumps(known))
    assert remembered_id(tmp_path, "zoo", "me") == "abc"
    assert remembered_id(tmp_path, "other", "me") is None
    assert remembered_id(tmp_path, "zoo", "you") is None and remembered_id(tmp_path, "zoo", None) is None


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_changed_checkout_is_called_dirty(tmp_path):
    from graphzoo.callbacks.wandb_run import checkout_commit

    assert checkout_commit(tmp_path) is None

    def git(*words):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", "-C", tmp_path, *identity, *words], check=True, text=True, capture_output=True
        )
        return done.stdout.strip()

    git("init", "-q")
    (tmp_path / "a.py").write_text("a = 1\n")
    git("add", "a.py")
    git("commit", "-q", "-m", "a")
    git("tag", "-a", "v1", "-m", "a tag is no commit")
    commit = git("rev-parse", "HEAD")
    assert checkout_commit(tmp_path) == commit and len(commit) == 40
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "x").write_text("results change nothing")
    assert checkout_commit(tmp_path) == commit
    (tmp_path / "a.py").write_text("a = 2\n")
    assert checkout_commit(tmp_path) == f"{commit}-dirty"


def test_frozen_parameters_are_not_counted_and_the_address_is_printed_once(tmp_path, capsys):
    from graphzoo.callbacks import WandbRun

    module = torch.nn.Linear(3, 4)
    module.bias.requires_grad_(False)
    run = SimpleNamespace(config=SimpleNamespace(update=lambda *_, **__: None), summary={})
    run.group, run.offline, run.url = "", False, "https://wandb.example/runs/1"
    run.project, run.entity = "my zoo", "me"
    callback = WandbRun(tmp_path)
    callback._runs = lambda trainer: [(None, run)]
    split = {"train": 1, "valid": 2, "test": 3}
    spec = SimpleNamespace(num_nodes=6)
    datamodule = SimpleNamespace(spec=spec, describe_split=lambda: split)
    for _ in range(2):
        callback._describe(SimpleNamespace(datamodule=datamodule), module)
    assert run.summary["model/parameters"] == 12
    (line,) = capsys.readouterr().err.splitlines()  # printed once
    assert run.url in line and "graphzoo dashboard --project 'my zoo' --entity me" in line


def test_a_disabled_run_says_so(tmp_path, capsys):
    from graphzoo.callbacks import WandbRun

    WandbRun(tmp_path)._tell(SimpleNamespace(offline=False, url=None))
    err = capsys.readouterr().err
    assert "disabled" in err and "dashboard" not in err


@pytest.mark.parametrize("name", [*KINDS, "kg"])
def test_a_run_keeps_its_report_pictures_and_checkpoint(wandb_runs, name):
    listed = PAGE.read_text().partition("### Files\n")[2].partition("\n## ")[0]
    for run in getattr(wandb_runs, name):
        (artifact,) = run.artifacts
        assert artifact.name == f"run-{run.run.run_id}" and json.loads(artifact.metadata)["data"]
        files = {entry.path: Path(entry.local_path) for entry in artifact.manifest.contents}
        assert {path.partition("/")[0] for path in files} == set(re.findall(r"^- `([\w.]+)/?", listed, re.M))
        page = files["report.html"].read_text()
        assert str(wandb_runs.folder) not in page, "no folder of the machine"
        pictures = [path for path in files if path.startswith("pictures/")]
        assert len(pictures) == page.count("<figure") > 3 and all(files[path].is_file() for path in pictures)
        beside = files["checkpoints/best.ckpt"].parents[2].name
        assert beside == run.path.parent.name, "where the run's own file lies"
    kept = (wandb_runs.folder / name / "checkpoints" / "best.ckpt").read_bytes()
    assert files["checkpoints/best.ckpt"].read_bytes() == kept


def artifacts_of(folder):
    """Artifacts that a run logs for a best checkpoint in this folder."""
    from graphzoo.callbacks import WandbRun

    (folder / "best.ckpt").write_text("weights")
    logged = []
    run = SimpleNamespace(dir=str(folder / "wandb" / "files"), id="abc", log_artifact=logged.append)
    callback = WandbRun(folder)
    callback._runs = lambda trainer: [(None, run)]
    callback.keep_artifact(None, folder / "best.ckpt")
    return logged


def test_the_checkpoint_is_kept_if_the_report_fails(tmp_path, monkeypatch, capsys):
    from graphzoo.callbacks import wandb_run
    from graphzoo.errors import UsageError

    def fail(*_):
        raise UsageError("metrics.csv is damaged")

    monkeypatch.setattr(wandb_run, "_write_report", fail)
    logged = artifacts_of(tmp_path)
    assert [list(one.manifest.entries) for one in logged] == [["checkpoints/best.ckpt"]]
    assert "metrics.csv is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(("value", "kept"), [("false", 0), ("end", 1)])
def test_the_environment_can_switch_artifacts_off(value, kept, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_LOG_MODEL", value)
    logged = artifacts_of(tmp_path)
    assert len(logged) == kept == len([*tmp_path.rglob("artifact")])


def test_tables_are_those_of_the_run_directory(wandb_runs):
    from graphzoo.analysis import Evaluation

    for name, task in (("once", "kg"), ("nodes", "nodes"), ("links", "links")):
        (run,) = getattr(wandb_runs, name)
        kept = Evaluation.load(wandb_runs.folder / name / "evaluation" / "test")
        assert kept.tables and kept.figures == {k: v for k, v in run.summary.items() if k.startswith("test/")}
        for table in kept.tables:
            path = run.summary[f"evaluation/{table.name}.path"]
            written = json.loads((run.path.parent / "files" / path).read_text())
            assert written["columns"] == list(table.data.columns), task
            assert written["data"] == table.data.to_numpy(dtype=object).tolist(), table.name
            if table.kind == "histogram":
                for column in table.y:
                    assert (
                        run.summary[f"evaluation/{table.name}_{column}.values"] == table.data[column].tolist()
                    )


def test_a_resumed_run_continues_the_run_at_wandb(wandb_runs):
    first, second = wandb_runs.kg
    assert first.run.run_id == second.run.run_id == wandb_runs.once[0].run.run_id
    assert json.loads((wandb_runs.folder / "kg" / "wandb" / "id.json").read_text())["id"] == first.run.run_id
    assert len({run.run.run_id for run in (*wandb_runs.once, *wandb_runs.nodes, *wandb_runs.links)}) == 3
    epochs = [row["epoch"] for row in second.history if "val/mrr" in row]
    assert epochs == [2], "what was done is not done again, and logged once"
    config = yaml.safe_load((wandb_runs.folder / "kg" / "config.yaml").read_text())
    assert len(config["trainer"]["logger"]) == 1, "so is what the next resume begins with"
    validated = [row["val/mrr"] for run in (first, second) for row in run.history if "val/mrr" in row]
    assert second.summary["best/validation"] == max(validated)


def test_without_an_account_the_remedy_is_printed(tmp_path, monkeypatch, capsys):
    import wandb

    from graphzoo.cli import main

    def refuse(*_, **__):
        raise wandb.errors.UsageError("No API key configured. Use `wandb login` to log in.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHZOO_RUN_DIR", raising=False)
    monkeypatch.setattr(wandb, "init", refuse)
    command = ["fit", "--model=knowformer", "--data=umls", "--trainer=smoke", "--trainer.accelerator=cpu"]
    assert main([*command, "--logger=wandb", "--run_dir=run"]) == 2
    err = capsys.readouterr().err
    assert "No API key" in err and "WANDB_MODE=offline" in err


def test_nan_is_never_the_best_value(tmp_path):
    from graphzoo.callbacks import WandbRun

    callback = WandbRun(tmp_path)
    state = SimpleNamespace(fn="fit")
    for value in (math.nan, 0.7, math.inf, 0.9, 0.8):
        trainer = SimpleNamespace(
            state=state,
            sanity_checking=False,
            current_epoch=5,
            callback_metrics={"val/acc": torch.tensor(value)},
        )
        callback.on_validation_end(trainer, SimpleNamespace(monitor="val/acc", mode="max"))
    assert callback.state_dict() == {"best": pytest.approx(0.9)}
    callback.load_state_dict({"best": math.nan})
    assert callback.state_dict() == {"best": None}


def test_facts_of_a_users_datamodule_are_optional():
    from graphzoo.callbacks.wandb_run import _data_facts

    assert _data_facts(SimpleNamespace()) == {}
    assert _data_facts(SimpleNamespace(spec=SimpleNamespace(num_nodes=3))) == {"data/nodes": 3}
