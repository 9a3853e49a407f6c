"""Panels of the dashboard show keys that runs log; errors of the command are short."""

import json
import subprocess
import sys

import pytest
import yaml

from graphzoo.catalog.presets import find_preset, list_presets
from graphzoo.cli import commands as cli
from graphzoo.errors import UsageError
from graphzoo.report.dashboard import KINDS, SECTIONS, panels, workspace
from graphzoo.runs.published import parse_published

RUNS = {"kg": "once", "nodes": "nodes", "links": "links"}


def value_of(config, path):
    """Value of a setting, by its dotted path."""
    for part in path.split("."):
        config = config[part]
    return config


@pytest.mark.parametrize("task", KINDS)
def test_a_run_has_the_keys_of_each_panel_of_its_task(wandb_runs, task):
    of_classes, of_labels = wandb_runs.nodes[0], wandb_runs.labels[0]
    chosen = panels(task)
    assert list(dict.fromkeys(panel.section for panel in chosen)) == list(SECTIONS)
    for panel in chosen:
        (run,) = getattr(wandb_runs, RUNS[task])
        if task == "nodes":  # a panel is for classes or for multi-label data
            run = of_labels if any(name.endswith("/auroc") for name in panel.metrics) else of_classes
        if panel.metrics == ("train/auxiliary_loss",):  # only this model logs it
            run = of_labels
        for metric in panel.metrics:
            if metric.startswith("config:"):
                assert value_of(run.config, metric.removeprefix("config:")) is not None
            elif panel.kind == "table":
                assert run.summary[f"{metric}._type"] == "table-file", metric
            elif panel.kind in ("line", "seeds"):
                assert len([row for row in run.history if metric in row]) >= 1, metric
            else:
                assert metric in run.summary, metric


@pytest.mark.parametrize("preset", list_presets("recipe"), ids=lambda preset: preset.name)
def test_published_metrics_of_a_recipe_have_a_line_and_a_test_panel(preset):
    published = parse_published(preset.header.get("paper", ""))
    data = find_preset("data", preset.header.get("data", preset.name.partition("/")[2]))
    module = yaml.safe_load(data.path.read_text())["data"]["class_path"].rpartition(".")[2]
    task = {"NodeDataModule": "nodes", "LinkDataModule": "links"}.get(module, "kg")
    for name in published:
        metric = name.removeprefix("test/")
        lines = {frozenset(panel.metrics) for panel in panels(task) if panel.kind == "line"}
        assert any({f"val/{metric}", f"paper/{metric}"} <= line for line in lines), name
        assert any(name in panel.metrics for panel in panels(task)), name


def test_all_panels_are_those_of_the_tasks_together(wandb_runs):
    everything = panels()
    assert {panel for task in KINDS for panel in panels(task)} == set(everything)
    kinds = {panel.kind for panel in everything if panel.section == "Comparison"}
    assert {"parallel", "seeds", "seed bars"} <= kinds
    (run,) = wandb_runs.nodes
    assert run.config["group"] == run.run.run_group, "seeds are averaged over it"


@pytest.mark.parametrize("task", ["all", *KINDS])
def test_the_file_has_every_panel(tmp_path, capsys, task):
    pytest.importorskip("wandb_workspaces")
    out = tmp_path / "new" / "dashboard.json"
    assert cli.main(["dashboard", "--project", "zoo", "--task", task, f"--out={out}"]) == 0
    found = json.loads(out.read_text())
    sections = found["spec"]["section"]["panelBankConfig"]["sections"]
    written = {section["name"]: len(section["panels"]) for section in sections if section["panels"]}
    chosen = panels(task)
    assert written == {name: sum(panel.section == name for panel in chosen) for name in SECTIONS}
    text = out.read_text()
    assert all(
        metric.removeprefix("config:").rpartition(".")[2] in text for p in chosen for metric in p.metrics
    )
    assert found["project"] == "zoo" and f"{len(chosen)} panels" in capsys.readouterr().out
    assert cli.main(["dashboard", "--project=zoo", f"--out={out}"]) == 2
    assert "exists; give a new file" in capsys.readouterr().err and out.read_text() == text


@pytest.mark.parametrize("name", ["file/dashboard.json", "x" * 300])
def test_an_unwritable_file_is_refused_with_a_remedy(tmp_path, capsys, name):
    pytest.importorskip("wandb_workspaces")
    (tmp_path / "file").write_text("no folder")
    out = tmp_path / name
    assert cli.main(["dashboard", "--project=zoo", f"--out={out}"]) == 2
    err = capsys.readouterr().err
    # Long lines are cut.
    assert f"--out {out} cannot be written"[:200] in err and "Give a file in a folder" in err
    assert "Traceback" not in err and len(err.splitlines()) <= 6


def test_panels_average_seeds_with_their_deviation():
    pytest.importorskip("wandb_workspaces")
    made = workspace("zoo", "me", task="nodes")
    (comparison,) = [section for section in made.sections if section.name == "Comparison"]
    averaged = [panel for panel in comparison.panels if getattr(panel, "groupby", None)]
    assert len(averaged) == 4
    for panel in averaged:
        assert (panel.groupby, panel.groupby_aggfunc, panel.groupby_rangefunc) == ("group", "mean", "stddev")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--projekt", "zoo"], "Did you mean: --project?"),
        (["--entity", "me"], "required: --project"),
        (["--project"], "--project needs a value"),
        (["zoo"], "required: --project"),
        (["zoo", "--project", "zoo"], "takes no 'zoo'"),
        (["--project", "zoo", "--task", "node"], "--task is one of all, kg, links, nodes, got 'node'"),
    ],
)
def test_errors_for_wrong_options_are_short(capsys, words, expected):
    assert cli.main(["dashboard", *words]) == 2
    err = capsys.readouterr().err
    assert expected in err and len(err.splitlines()) <= 6


def test_without_the_package_or_a_login_a_remedy_is_printed(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "wandb_workspaces", None)
        patch.setitem(sys.modules, "wandb_workspaces.workspaces", None)
        assert cli.main(["dashboard", "--project", "zoo", f"--out={tmp_path / 'x.json'}"]) == 2
    assert "pip install 'graphzoo[dashboard]'" in capsys.readouterr().err
    import wandb

    def refuse():
        raise wandb.errors.UsageError("api_key not configured")

    monkeypatch.setattr(wandb, "Api", refuse)
    assert cli.main(["dashboard", "--project", "zoo"]) == 2
    assert "--out FILE" in capsys.readouterr().err
    pytest.importorskip("wandb_workspaces")
    import wandb_workspaces.workspaces as ws

    def fail(self):
        raise OSError("no route to host")

    monkeypatch.setattr(ws.Workspace, "save", fail)
    assert cli.main(["dashboard", "--project", "zoo", "--entity", "me"]) == 2
    assert "no route to host" in capsys.readouterr().err


def test_help_fits_a_screen_and_imports_nothing_heavy(capsys):
    assert cli.main(["dashboard", "--help"]) == 0
    assert len(capsys.readouterr().out.splitlines()) < 24
    code = (
        "import sys; from graphzoo.cli import main; main(['dashboard', '--help']);"
        "assert not {'torch', 'wandb', 'pandas', 'lightning'} & set(sys.modules), sorted(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0
    with pytest.raises(UsageError, match="--project"):
        from graphzoo.cli.dashboard import dashboard_main

        dashboard_main(["zoo"])
