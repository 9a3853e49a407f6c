"""Recipes of KnowFormer, `graphzoo reproduce` and `graphzoo doctor` from the command line."""

import json
import os
import re
import shutil
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch
import yaml
from helpers import warm_python

from graphzoo.catalog.presets import list_presets
from graphzoo.cli import doctor, doctor_gpu, main
from graphzoo.cli import reproduce as reproduce_module
from graphzoo.datasets import load_knowledge_graph
from graphzoo.inference.export import export_run
from graphzoo.runs.lock import RunLock
from graphzoo.runs.published import Published, mean_and_deviation, published_values
from graphzoo.training import start as start_module
from graphzoo.training.start import run_command

PRESETS = {
    preset.name.partition("/")[2]: preset
    for preset in list_presets("recipe", "knowformer")
    if "-link" not in preset.name
}
RECIPES = list(PRESETS)
STATE_QUERIES = [
    name for name in RECIPES if re.search(r"\d queries", PRESETS[name].header.get("differs", ""))
]
# Recipes whose own data are small.
SMALL_DATA = ["nell995-v1", "fb15k237-v1"]
ONE_STEP = [
    "--trainer.max_epochs=1", "--trainer.limit_val_batches=1", "--trainer.limit_test_batches=1",
    "--trainer.num_sanity_val_steps=0", "--trainer.accelerator=cpu", "--logger=csv", "--run_dir=run",
]  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_runs_a_step(cli, tiny_kg, results, name):
    path, num_valid = str(tiny_kg), 12
    if "validate_on: inference" in PRESETS[name].path.read_text():
        shutil.copytree(tiny_kg, "second")
        num_valid = 5
        few = Path("second/valid.txt").read_text().splitlines()[:num_valid]
        Path("second/valid.txt").write_text("\n".join(few) + "\n")
        path = f"[{path},second]"
    result = cli("fit", "--model=knowformer", "--data=kg", "--data.path", path, "--recipe", name, *ONE_STEP)
    assert result.status == 0, result.err
    assert f"recipe knowformer/{name}" in result.err
    found = results("run")
    assert found["recipe"] == f"knowformer/{name}"
    assert found["steps"] >= 1 and 0 < found["metrics"]["test/mrr"] <= 1
    assert found["split"]["valid"] == num_valid
    if name.endswith("-inference"):
        export_run("run", "exported")
        assert "chosen on validation of the second graph" in Path("exported/README.md").read_text()


@pytest.mark.skipif(not os.environ.get("GRAPHZOO_DATA"), reason="GRAPHZOO_DATA is not set: no raw data")
@pytest.mark.parametrize("name", SMALL_DATA)
def test_recipe_on_its_own_data(cli, results, name):
    few = ["--data.batch_size=4", "--data.micro_batch_size=2", "--trainer.limit_train_batches=1"]
    result = cli("fit", "--model=knowformer", "--data", name, *ONE_STEP, *few)
    assert result.status == 0, result.err
    assert results("run")["steps"] == 1
    assert (Path("run") / "graph" / "inference_graph.npz").is_file(), "tested on the other graph of the pair"


@pytest.mark.skipif(not os.environ.get("GRAPHZOO_DATA"), reason="GRAPHZOO_DATA is not set: no raw data")
@pytest.mark.parametrize("name", STATE_QUERIES)
def test_recipes_state_the_number_of_training_queries(name):
    """An epoch has at most as many queries as training triples, whatever the limit of batches."""
    preset = PRESETS[name]
    settings = yaml.safe_load(preset.path.read_text(encoding="utf-8"))
    graph, _ = load_knowledge_graph(preset.header["data"], download=False)
    trainer, batch_size = settings["trainer"], settings["data"]["init_args"]["batch_size"]
    num_queries = trainer["max_epochs"] * min(trainer["limit_train_batches"] * batch_size, len(graph.train))
    assert f"{num_queries:,} queries" in preset.header["differs"]


def test_paper_values_come_from_the_recipe():
    assert published_values("knowformer", "knowformer/umls", "umls") == {
        "test/mrr": Published(0.971),
        "test/hits@1": Published(0.958),
        "test/hits@10": Published(0.998),
    }
    assert published_values("knowformer", "knowformer/umls-demo", "umls")["test/mrr"].value == 0.971
    assert published_values("knowformer", "knowformer/umls", "kg") == {}, "published for other data"
    assert published_values("knowformer", "", "umls") == {}


def test_mean_and_deviation():
    assert mean_and_deviation([2.0, 4.0, 6.0]) == (4.0, 2.0)
    assert mean_and_deviation([5.0]) == (5.0, None)


def test_reproduce_resumes_and_never_runs_a_finished_seed_again(cli, results, monkeypatch):
    # In this process, for speed. `test_reproduce_starts_a_clean_process_per_seed` covers new processes.
    monkeypatch.setattr(reproduce_module, "run_command", main)
    command = [
        "reproduce",
        "knowformer",
        "umls",
        "--seeds=0-1",
        "--recipe=umls-demo",
        "--trainer=smoke",
        "--logger=csv",
    ]
    command += ["--trainer.max_epochs=2", "--model.encoder.hidden_channels=8", "--trainer.accelerator=cpu"]
    stop = [
        "--trainer.callbacks+=helpers.own.SendSignal",
        "--trainer.callbacks.epoch=1",
        "--trainer.callbacks.batch=0",
    ]
    row = Path("runs/reproduce/knowformer-umls-umls-demo")

    stopped = cli(*command, *stop)
    assert stopped.status == 143 and "to continue" in stopped.err
    assert not (row / "seed-0/results.json").exists()
    done = cli(*command, *stop)  # seed 0 resumes, then seed 1 is stopped
    assert done.status == 143 and "seed 0: resumes" in done.err and "seed 1: starts" in done.err
    first = (row / "seed-0/results.json").stat().st_mtime_ns
    finished = cli(*command, *stop)
    assert finished.status == 0, finished.err
    assert "seed 0: finished before" in finished.err
    second = row / "seed-1/results.json"
    second.write_text(json.dumps(json.loads(second.read_text()) | {"resumed": "with other settings"}))
    refused = cli(*command, "--seeds=0-2", *stop)
    assert refused.status == 2 and "seed 1 was resumed with other settings" in refused.err
    assert "starts" not in refused.err, "refused before seed 2 is trained"
    second.write_text(json.dumps(json.loads(second.read_text()) | {"resumed": None}))
    assert (row / "seed-0/results.json").stat().st_mtime_ns == first

    values = [results(row / f"seed-{seed}")["metrics"]["test/mrr"] for seed in (0, 1)]
    table = json.loads((row / "row.json").read_text())["metrics"]["test/mrr"]
    assert table["mean"] == pytest.approx(sum(values) / 2) and table["paper"] == 0.971
    assert table["std"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    assert [results(row / f"seed-{seed}")["seed"] for seed in (0, 1)] == [0, 1]
    assert "±" in finished.out and "0.971" in finished.out

    mixed = cli(*command, "--model.lr=0.1")
    assert mixed.status == 2 and "other options" in mixed.err, "seeds of other settings never share a mean"


@pytest.fixture
def finished_row(workplace):
    """A row of three finished seeds."""
    content = {"metrics": {"test/mrr": 0.5}, "config_hash": "a", "data_fingerprint": "b"}
    for seed in range(3):
        (workplace / f"row/seed-{seed}").mkdir(parents=True)
        results = {**content, "versions": {"graphzoo": "1"}, "seed": seed}
        (workplace / f"row/seed-{seed}/results.json").write_text(json.dumps(results))
    return workplace / "row"


@pytest.mark.parametrize(
    "key, value",
    [("config_hash", "z"), ("data_fingerprint", "z"), ("versions", {"graphzoo": "2"}), ("metrics", None)],
)
def test_reproduce_averages_seeds_of_one_setting_only(cli, finished_row, key, value):
    command = ["reproduce", "knowformer", "umls", "--seeds=0-2", "--out=row"]
    assert cli(*command).status == 0
    path = finished_row / "seed-1/results.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    result = cli(*command)
    assert result.status == 2 and "seed 1" in result.err and len(result.err.splitlines()) <= 6, result.err


def test_reproduce_averages_no_seeds_of_a_changed_preset(cli, finished_row, monkeypatch):
    preset = Path("presets/recipe/knowformer/umls.yaml")
    preset.parent.mkdir(parents=True)
    preset.write_text("trainer: {max_epochs: 1}\n")
    monkeypatch.setenv("GRAPHZOO_CONFIGS", "presets")
    command = ["reproduce", "knowformer", "umls", "--seeds=0-2", "--out=row"]
    assert cli(*command).status == 0
    preset.write_text("trainer: {max_epochs: 2}\n")
    refused = cli(*command)
    assert refused.status == 2
    assert "seeds made before $GRAPHZOO_CONFIGS/recipe/knowformer/umls.yaml changed" in refused.err


def test_a_seed_without_test_scores_ends_the_row_at_once(cli, monkeypatch):
    """A configuration file with `limit_test_batches: 0` has this effect."""
    started = []

    def run(words):
        folder = Path(words[words.index("--run_dir") + 1])
        folder.mkdir(parents=True)
        (folder / "results.json").write_text('{"metrics": {}}')
        started.append(folder.name)
        return 0

    monkeypatch.setattr(reproduce_module, "run_command", run)
    refused = cli("reproduce", "knowformer", "umls", "--out=row")
    assert refused.status == 2 and "seed 0: row/seed-0/results.json has no test scores" in refused.err
    assert started == ["seed-0"]


def test_reproduce_starts_a_clean_process_per_seed(cli, monkeypatch, finished_row):
    """Lightning starts processes of further devices with the command line of the calling process."""
    (finished_row / "seed-1/results.json").rename(finished_row / "seed-1/notes.txt")
    started = []

    class Process:
        def __init__(self, words, env):
            started.append((words, env))

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def wait(self):
            return -15

    monkeypatch.setattr(start_module.subprocess, "Popen", Process)
    for name in ("LOCAL_RANK", "WORLD_SIZE", "GRAPHZOO_RUN_DIR"):
        monkeypatch.setenv(name, "1")
    for number in (1, 2):
        result = cli("reproduce", "knowformer", "umls", "--out=row")
        assert result.status == 143 and "to continue" in result.err
        assert (finished_row / f"seed-1.stopped-{number}").is_dir()
        (finished_row / "seed-1").mkdir()
    assert (finished_row / "seed-1.stopped-1/notes.txt").is_file()
    words, environment = started[0]
    assert words[:4] == [sys.executable, "-m", "graphzoo.cli", "fit"]
    assert words[-4:] == ["--seed", "1", "--run_dir", "row/seed-1"]
    assert not {"LOCAL_RANK", "WORLD_SIZE", "GRAPHZOO_RUN_DIR"} & set(environment)


def test_run_command_returns_the_exit_status(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    assert run_command(["--version"]) == 0
    assert run_command(["fit"]) == 2


def test_run_command_imports_no_module_of_the_current_folder(monkeypatch, workplace):
    """With the folder on this process's own path, as for `python -m`, the new one has it, too."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    Path("argparse.py").write_text("raise SystemExit(9)\n")
    assert run_command(["list", "trainer"]) == 0
    monkeypatch.syspath_prepend(str(workplace))
    assert run_command(["list", "trainer"]) == 9


@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize(("name", "status"), [("INT", 130), ("TERM", 143)])
def test_a_signal_while_a_seed_ends_is_not_lost(monkeypatch, tmp_path, name, status, own):
    """The signal reaches this process alone, as from `kill -INT` or a supervisor."""
    script = tmp_path / "seed"
    script.write_text(f"#!/bin/sh\ntrap '' TERM\nkill -{name} $PPID\nsleep 0.2\nexit {own}\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    assert run_command(["fit"]) == status


@pytest.mark.parametrize(("in_foreground", "received"), [(False, 2), (True, 1)])
def test_signals_to_the_command_alone_are_passed_to_the_seed(monkeypatch, tmp_path, in_foreground, received):
    """In the foreground of a terminal the first of two may be a Ctrl-C, which the seed receives as well."""
    script = tmp_path / "seed"
    once = "sleep 0.5\nkill -INT $PPID\n"
    script.write_text(f"#!/bin/sh\ntrap 'echo received >> received' INT\n{once}{once}sleep 0.5\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(start_module, "_is_in_foreground", lambda: in_foreground)
    assert run_command(["fit"]) == 130
    assert Path("received").read_text() == "received\n" * received


def test_reproduce_help_anywhere(cli):
    result = cli("reproduce", "knowformer", "umls", "--help")
    assert result.status == 0 and "usage: graphzoo reproduce" in result.out


def test_doctor_reports_packages_and_backends(cli):
    report = cli("doctor")
    assert report.status == 0
    assert "default (numba): works" in report.out
    for word in ("torch ", "lightning", "wandb", "torch-scatter", "data root"):
        assert word in report.out


def test_doctor_says_that_a_data_root_is_a_file(cli, monkeypatch, tmp_path):
    (tmp_path / "afile").write_text("")
    monkeypatch.setenv("GRAPHZOO_DATA", str(tmp_path / "afile"))
    assert "afile is a file, not a folder" in cli("doctor").out


@pytest.mark.parametrize("is_installed", [True, False])
def test_doctor_names_every_required_package_that_is_missing(cli, monkeypatch, is_installed):
    def requires(name):
        if not is_installed:
            raise PackageNotFoundError(name)
        return ["wandb>=0.20", "nowhere[all]>=1; python_version > '3'", "onnxscript; extra == 'onnx'"]

    monkeypatch.setattr(doctor, "requires", requires)
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    report = cli("doctor")
    missing = [line.split()[0] for line in report.out.splitlines() if "MISSING" in line]
    assert report.status == 1
    if is_installed:
        assert missing == ["wandb", "nowhere"]
    else:  # requirements in pyproject.toml
        assert {"torch", "wandb", "optuna", "omegaconf", "safetensors", "scipy"} <= set(missing)


def test_doctor_says_what_the_cache_holds(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "cache, " not in cli("doctor").out
    for name, num_bytes in {"a.graph": 3 << 20, "deep/b.graph": 1 << 19, "a.graph.lock": 5}.items():
        path = tmp_path / "graphzoo" / "pair-graphs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(num_bytes))
    (tmp_path / "graphzoo" / "pair-graphs" / "gone").symlink_to("nowhere")
    report = cli("doctor").out.splitlines()
    (line,) = [line for line in report if line.startswith("cache, ")]
    assert line.split() == "cache, pair-graphs 3.5 MiB in 2 files; graphzoo clean removes them".split()


def test_doctor_checks_a_gpu_s_ops_steps_and_processes(cli, monkeypatch):
    """The checks run on the CPU here: this tests the checks, not the results of a GPU."""
    monkeypatch.setattr(sys, "executable", warm_python.python())
    report = cli("doctor", "--gpu", "--device", "cpu", "--quick", "--out", "found.json")
    assert report.status == 0, report.out
    found = json.loads(Path("found.json").read_text())
    checks = {check["check"]: check for check in found["checks"]}
    assert all(check["ok"] for check in checks.values()) and found["devices"][0]["device"] == "cpu"
    assert float(checks["prototype_layer, bfloat16"]["error"]) > float(
        checks["prototype_layer, float32"]["error"]
    )
    step = checks["step of PENCIL, 32 links, 32-true"]
    assert step["loss"] == step["on_cpu"] and step["gradient"] == step["gradient_on_cpu"] > 0
    for name in ("one is killed", "one runs out of memory"):
        statuses = json.loads(checks[f"2 processes, {name}"]["statuses"])
        assert statuses[1] == 9 and statuses[0] not in (0, None)
    assert "found.json exists" in cli("doctor", "--gpu", "--device", "cpu", "--out", "found.json").err
    assert "--quick is for --gpu" in cli("doctor", "--quick").err


def test_doctor_sees_gradients_that_are_nan():
    """Python's `max` ignores a NaN that is not its first argument."""

    def make():
        def run(backend, x, y):
            zero = y - 1
            return x + (zero if backend else torch.where(zero > 0, zero.sqrt(), zero))  # 0 * inf

        return run, [torch.ones(2, 2, 4), torch.ones(2, 2, 4)]

    found = doctor_gpu._compare(make, torch.float32, "float32", torch.device("cpu"), 1.0)
    assert not found["ok"] and found["error"] == "nan" and found["backend"] == "numba"


def test_doctor_says_which_op_fails(cli, monkeypatch):
    from graphzoo.ops import message_update as module
    from graphzoo.ops import state_mlp as mlp_module

    def wrong(z, aggregated, parameters, *, backend=None):
        return z + aggregated + (0 if backend else 1) + 0 * sum(p.sum() for p in parameters)

    def broken(*arguments, **settings):
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(module, "message_update", wrong)
    monkeypatch.setattr(mlp_module, "state_mlp", broken)
    monkeypatch.setattr(doctor_gpu, "step_checks", lambda *a, **k: [])
    monkeypatch.setattr(doctor_gpu, "process_checks", lambda devices: [])
    report = cli("doctor", "--gpu", "--device", "cpu", "--quick", "--out", "found.json")
    assert report.status == 1
    failed = [line for line in report.out.splitlines() if line.startswith("FAILED")]
    assert len(failed) == 4 and any("RuntimeError: no kernel image" in line for line in failed), report.out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_doctor_without_a_gpu_says_so(cli):
    refused = cli("doctor", "--gpu")
    assert refused.status == 2 and "no GPU is visible to torch\n--device cpu" in refused.err
    assert not Path("doctor-gpu.json").exists()


def test_doctor_names_the_remedy_for_what_is_missing(cli, monkeypatch):
    from graphzoo.cli import doctor

    monkeypatch.setattr(
        doctor, "_version", lambda name: None if name in ("torch-scatter", "numba") else "1.0"
    )
    report = cli("doctor")
    assert report.status == 1
    assert (
        "MISSING: pip install numba" in report.out
        and "pip install --no-build-isolation torch-scatter" in report.out
    )


def test_download_of_the_embedded_graph_needs_no_network(cli):
    result = cli("download", "UMLS")
    assert result.status == 0 and Path(result.out.split(": ")[1].strip()).is_dir()


def test_reproduce_refuses_a_run_of_another_process(cli, monkeypatch, finished_row):
    """Another process writes the run, which has no checkpoint yet."""
    monkeypatch.setattr(reproduce_module, "run_command", lambda words: 1)
    run = finished_row / "seed-1"
    (run / "results.json").rename(run / "config.yaml")
    writer = RunLock(run)
    writer.take()
    command = ["reproduce", "knowformer", "umls", "--out=row"]
    refused = cli(*command)
    assert refused.status == 2 and "seed-1 is being written by process" in refused.err
    assert (run / "config.yaml").is_file() and not (finished_row / "seed-1.stopped-1").exists()
    writer.release()
    assert cli(*command).status == 1
    assert [path.name for path in (finished_row / "seed-1.stopped-1").iterdir()] == ["config.yaml"]
    assert not run.exists()


def test_options_of_a_row_are_fixed_while_its_first_run_is_written(cli, monkeypatch, workplace):
    """Otherwise the scores of this run would be filed under the options of the second command."""
    monkeypatch.setattr(reproduce_module, "run_command", lambda words: 1)
    command = ["reproduce", "knowformer", "umls", "--out=row", "--seeds=0"]
    run = workplace / "row" / "seed-0"
    run.mkdir(parents=True)
    assert cli(*command, "--model.lr", "0.1").status == 1
    run.mkdir()
    writer = RunLock(run)
    writer.take()
    refused = cli(*command)
    assert refused.status == 2 and "row holds seeds with other options" in refused.err
    assert "seed-0 is being written" in cli(*command, "--model.lr=0.1").err, "the same option, written with ="
    writer.release()
    assert cli(*command).status == 1, "no run has the other options"


@pytest.mark.parametrize(
    "seeds, message",
    [("0-99999999999", "more than 10,000 numbers"), ("4294967296", "numbers from 0 to 4294967295")],
)
def test_too_many_and_too_large_seeds_are_refused_before_anything_is_written(cli, workplace, seeds, message):
    for command in ("reproduce", "search"):
        refused = cli(command, "gcn", "cora", f"--seeds={seeds}", "--out=row")
        assert refused.status == 2 and message in refused.err, refused.err
    assert not (workplace / "row").exists()
