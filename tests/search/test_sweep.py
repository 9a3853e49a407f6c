"""Sweep files made of a search space: `wandb sweep` accepts them, and `graphzoo fit` their options."""

from pathlib import Path

import pytest
import yaml

from graphzoo.catalog.presets import list_presets
from graphzoo.cli import commands as cli
from graphzoo.errors import UsageError
from graphzoo.runs.results_file import BEST_VALIDATION
from graphzoo.search.space import Choice, Range, Space, read_space
from graphzoo.search.sweep import sweep_of, write_sweep

# docs.wandb.ai/guides/sweeps/sweep-config-keys
KEYS = {"name", "method", "metric", "parameters", "program", "command", "run_cap"}
DISTRIBUTIONS = {"int_uniform": int, "uniform": (int, float), "log_uniform_values": (int, float)}


def valid(sweep):
    """Check the rules of Weights & Biases for the parts of sweep files that graphzoo writes."""
    assert set(sweep) <= KEYS and sweep["method"] in ("bayes", "random", "grid")
    assert set(sweep["metric"]) == {"name", "goal"} and sweep["metric"]["goal"] in ("maximize", "minimize")
    assert sweep["parameters"]
    for parameter in sweep["parameters"].values():
        if "values" in parameter:
            assert set(parameter) == {"values"} and parameter["values"] and None not in parameter["values"]
            continue
        assert set(parameter) == {"distribution", "min", "max"} and parameter["min"] < parameter["max"]
        kind = DISTRIBUTIONS[parameter["distribution"]]
        assert isinstance(parameter["min"], kind) and isinstance(parameter["max"], kind)
        assert parameter["distribution"] != "log_uniform_values" or parameter["min"] > 0
    assert sweep["command"][:3] == ["${env}", "graphzoo", "fit"] and sweep["command"][-1] == "${args}"
    return True


def agent(sweep, choose):
    """Arguments of the command that an agent starts, with values as `str` gives them."""
    values = {
        name: choose(parameter.get("values") or [parameter["min"], parameter["max"]])
        for name, parameter in sweep["parameters"].items()
    }
    words = []
    for word in sweep["command"][2:]:
        words += [f"--{name}={value}" for name, value in values.items()] if word == "${args}" else [word]
    return words


@pytest.mark.parametrize("preset", list_presets("search"), ids=lambda preset: preset.name)
def test_every_shipped_space_makes_a_sweep(preset):
    space = read_space(preset.path)
    sweep = sweep_of("x", space, ["--model", "galit"], mode="max", sampler="random", trials=7)
    assert valid(sweep) and sweep["run_cap"] == 7
    assert list(sweep["parameters"]) == list(space.choices)
    for name, choice in space.choices.items():
        values = sweep["parameters"][name].get("values")
        if values is not None:
            assert all(choice.holds(None if value == "null" else value) for value in values)
        else:
            assert choice.holds(sweep["parameters"][name]["min"])


def test_ranges_keep_their_ends_steps_and_scales():
    choices = {
        "model.a": Range(1, 8),
        "model.b": Range(0.1, 0.9),
        "model.c": Range(1e-6, 1e-2, log=True),
        "model.d": Range(0.1, 0.5, step=0.1),
        "model.e": Range(2, 11, step=3),
        "model.f": Range(16, 200, log=True),
        "model.g": Choice((None, True, "cos")),
    }
    sweep = sweep_of("x", Space(Path("x.yaml"), choices), [], mode="min")
    assert valid(sweep) and sweep["method"] == "bayes" and "run_cap" not in sweep
    assert sweep["metric"] == {"name": BEST_VALIDATION, "goal": "minimize"}
    assert sweep["parameters"] == {
        "model.a": {"distribution": "int_uniform", "min": 1, "max": 8},
        "model.b": {"distribution": "uniform", "min": 0.1, "max": 0.9},
        "model.c": {"distribution": "log_uniform_values", "min": 1e-6, "max": 1e-2},
        "model.d": {"values": [0.1, 0.2, 0.3, 0.4, 0.5]},
        "model.e": {"values": [2, 5, 8, 11]},
        "model.f": {"values": [16, 32, 64, 128, 200]},
        "model.g": {"values": ["null", True, "cos"]},
    }
    with pytest.raises(UsageError, match="model.a is a range in x.yaml"):
        sweep_of("x", Space(Path("x.yaml"), choices), [], mode="min", sampler="grid")


@pytest.fixture
def space(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("space.yaml").write_text(
        "space:\n  model.lr: [0.001, 0.01]\n  model.encoder.linear_update: [true, false]\n"
        "  model.encoder.similarity: [cos, mcos]\n  data.reduce_channels: [null, 4]\n"
        "  model.encoder.alpha: {low: 0.1, high: 0.9}\noptions:\n  trainer.max_epochs: 3\n"
    )


def test_fit_accepts_the_command_of_an_agent(space, capsys):
    words = [
        "search",
        "galit",
        "cora",
        "--space=space.yaml",
        "--trials=9",
        "--seeds=5",
        "--trainer.devices=1",
    ]
    assert cli.main([*words, "--sweep", "new/sweep.yaml"]) == 0
    assert "wandb sweep new/sweep.yaml" in capsys.readouterr().out
    sweep = yaml.safe_load(Path("new/sweep.yaml").read_text())
    assert valid(sweep) and sweep["run_cap"] == 9 and sweep["metric"]["goal"] == "maximize"
    first = agent(sweep, lambda values: values[0])
    assert {"--no-test", "--trainer.devices=1", "--trainer.max_epochs=3"} <= set(first)
    for choose, expected in (
        (first, (0.001, True, "cos", None)),
        (agent(sweep, lambda v: v[-1]), (0.01, False, "mcos", 4)),
    ):
        assert cli.main([*choose, "--print_config"]) == 0
        found = yaml.safe_load(capsys.readouterr().out)
        model = found["model"]["init_args"]
        encoder = model["encoder"]["init_args"]
        chosen = (model["lr"], encoder["linear_update"], encoder["similarity"])
        assert (*chosen, found["data"]["init_args"]["reduce_channels"]) == expected
        assert found["seed_everything"] == 5 and found["trainer"]["max_epochs"] == 3
        assert found["trainer"]["logger"][0]["class_path"].endswith("WandbLogger")


def test_typed_options_are_not_searched_and_no_file_is_overwritten(space, capsys):
    words = ["search", "galit", "cora", "--space=space.yaml", "--sweep=sweep.yaml"]
    assert cli.main([*words, "--model.lr=0.5"]) == 0
    sweep = yaml.safe_load(Path("sweep.yaml").read_text())
    assert "model.lr" not in sweep["parameters"] and "--model.lr=0.5" in sweep["command"]
    before = Path("sweep.yaml").read_bytes()
    assert cli.main(words) == 2
    assert "exists; give a new file" in capsys.readouterr().err and Path("sweep.yaml").read_bytes() == before
    assert not Path("runs").exists(), "no search has begun"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--seeds=0,1"], "a trial of a sweep is one run"),
        (["--window=5"], "--window is for trials"),
        (["--out=x"], "--out is for trials"),
        (["--sampler=cma"], "--sampler is one of tpe, random, grid"),
        (["--sampler=grid"], "is a range in space.yaml"),
    ],
)
def test_options_that_a_sweep_cannot_have_are_refused(space, capsys, more, expected):
    assert cli.main(["search", "galit", "cora", "--space=space.yaml", "--sweep=s.yaml", *more]) == 2
    err = capsys.readouterr().err
    assert expected in err and len(err.splitlines()) <= 6 and not Path("s.yaml").exists()


@pytest.mark.parametrize("name", ["file/s.yaml", "x" * 300])
def test_an_unwritable_file_is_refused_with_a_remedy(space, capsys, name):
    Path("file").write_text("no folder")
    assert cli.main(["search", "galit", "cora", "--space=space.yaml", f"--sweep={name}"]) == 2
    err = capsys.readouterr().err
    assert f"--sweep {name} cannot be written" in err and "Give a file in a folder" in err
    assert "Traceback" not in err and len(err.splitlines()) <= 6


def test_a_file_is_never_overwritten(tmp_path):
    write_sweep(tmp_path / "a.yaml", {"name": "x"})
    with pytest.raises(UsageError, match="exists"):
        write_sweep(tmp_path / "a.yaml", {"name": "y"})
    assert yaml.safe_load((tmp_path / "a.yaml").read_text()) == {"name": "x"}
