"""Runs at Weights & Biases, written without a network and read back."""

import json
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "wandb.md"
TASKS = {"KG": "kg", "nodes": "nodes", "links": "links"}


def promised():
    """Key -> tasks, of every table of the page."""
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", PAGE.read_text(), re.MULTILINE)
    return {key: list(TASKS) if tasks.strip() == "all" else tasks.strip().split(", ") for key, tasks in rows}


def keys_of(run):
    """Keys of configuration, history and summary; a table's parts stand for the table."""
    logged = {*run.keys, *run.summary}
    media = {
        re.sub(r"\.(_type|path|sha256|values|bins|ncols|nrows|size|log_mode|.*artifact_path)$", "", key)
        for key in logged
    }
    # a chart is a table beside a description in the configuration
    charts = {key.removesuffix("_table") for key in media if key.endswith("_table")}
    visualized = {
        key.removeprefix("_wandb.visualize.") for key in run.config if key.startswith("_wandb.visualize.")
    }
    assert charts == visualized
    return {key for key in (media | charts) if not key.startswith("_") and not key.endswith("_table")}


@pytest.mark.parametrize("task", TASKS)
def test_a_run_holds_every_key_that_the_page_promises_and_no_other(wandb_runs, task):
    (run,) = getattr(wandb_runs, {"KG": "once"}.get(task, TASKS[task]))
    expected = {key for key, tasks in promised().items() if task in tasks}
    found = keys_of(run)
    assert expected <= found | set(run.config), expected - found - set(run.config)
    other = {key for key in found - expected - {"trainer/global_step"} if not key.startswith("lr-Adam")}
    assert other == set()


def test_settings_facts_tags_and_figures_are_those_of_the_run(wandb_runs):
    (run,) = wandb_runs.nodes
    results = json.loads((wandb_runs.folder / "nodes" / "results.json").read_text())
    assert run.config["data_fingerprint"] == results["data_fingerprint"]
    assert run.config["versions"] == results["versions"]
    assert (
        run.config["encoder"]["hidden_channels"] == 8 and run.config["config"]["trainer"]["max_epochs"] == 2
    )
    assert len(run.config["commit"]) == 40
    assert set(run.run.tags) == {"model:galit", "data:nodes", "recipe:galit/nodes", "task:NodeClassification"}
    assert (run.run.project, run.run.run_group, run.run.display_name) == (
        "graphzoo",
        "galit-nodes",
        "galit-nodes-nodes",
    )
    assert run.summary["test/acc"] == results["metrics"]["test/acc"]
    assert run.summary["data/test"] == results["split"]["test"] and run.summary["data/nodes"] == 60
    validated = [row["val/acc"] for row in run.history if "val/acc" in row]
    assert run.summary["val/acc"] == {"max": max(validated)} and run.best["val/loss"] == ["min"]
    assert run.summary["best/validation"] == max(validated)
    paper = [row for row in run.history if "paper/acc" in row]
    assert {row["paper/acc"] for row in paper} == {0.9}
    steps = [row["trainer/global_step"] for row in paper]
    assert steps[0] == 0 and steps[-1] == 2, "a line needs two ends"


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


def test_who_goes_on_goes_on_in_the_same_run(wandb_runs):
    first, second = wandb_runs.kg
    assert first.run.run_id == second.run.run_id == wandb_runs.once[0].run.run_id
    assert json.loads((wandb_runs.folder / "kg" / "wandb" / "id.json").read_text())["id"] == first.run.run_id
    assert len({run.run.run_id for run in (*wandb_runs.once, *wandb_runs.nodes, *wandb_runs.links)}) == 3
    epochs = [row["epoch"] for row in second.history if "val/mrr" in row]
    assert epochs == [2], "what was done is not done again"
    validated = [row["val/mrr"] for run in (first, second) for row in run.history if "val/mrr" in row]
    assert second.summary["best/validation"] == max(validated)


def test_without_an_account_the_way_out_is_said(tmp_path, monkeypatch, capsys):
    import wandb

    from graphzoo.cli import main

    def refuse(*_, **__):
        raise wandb.errors.UsageError("No API key configured. Use `wandb login` to log in.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHZOO_RUN_DIR", raising=False)
    monkeypatch.setattr(wandb, "init", refuse)
    command = ["fit", "--model=knowformer", "--data=umls", "--trainer=smoke", "--trainer.accelerator=cpu"]
    assert main([*command, "--logger=wandb", "--run_dir=run"]) == 2
    told = capsys.readouterr().err
    assert "No API key" in told and "WANDB_MODE=offline" in told
