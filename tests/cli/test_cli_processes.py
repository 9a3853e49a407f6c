"""Runs of two processes by the command: one output, one run directory, the scores of a single process."""

import csv
import json
import os
import subprocess
from pathlib import Path

import pytest
from helpers import process_jobs
from helpers.wandb_records import read_offline_run
from helpers.warm_python import python

from graphzoo.cli import commands as cli

TESTS = str(Path(__file__).parents[1])


def start(command, **environment):
    return subprocess.run(
        [python(), "-m", "graphzoo.cli", *command.split()],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


THREE = (
    "fit --model knowformer --data kg --data.path few --model.encoder.hidden_channels 8 --run_dir run "
    "--trainer.max_epochs 1 --trainer.accelerator cpu --trainer.strategy ddp --trainer.devices 3"
)


@pytest.fixture
def few(tmp_path, monkeypatch):
    """Data with two training triples, one for validation and one for the test."""
    monkeypatch.chdir(tmp_path)
    Path("few").mkdir()
    Path("few/train.txt").write_text("a\tr\tb\nb\tr\tc\n")
    Path("few/valid.txt").write_text("a\tr\tc\n")
    Path("few/test.txt").write_text("b\tr\ta\n")


@pytest.mark.slow
@pytest.mark.fault("more processes than samples", "all processes end, with the metrics of a single process")
def test_three_processes_share_two_triples(few, capsys):
    done = start(THREE)
    assert done.returncode == 0, done.stderr
    assert cli.main(["test", "--ckpt_path", "run", "--trainer", "cpu", "--run_dir", "alone"]) == 0
    capsys.readouterr()
    both, alone = (json.loads(Path(run, "results.json").read_text())["metrics"] for run in ("run", "alone"))
    assert both == alone


@pytest.mark.slow
@pytest.mark.fault(
    "a run of several processes is refused before training", "one message; its run directory is removed"
)
def test_several_processes_that_cannot_start_leave_no_files(few):
    done = start(f"{THREE} --data.batch_size 1")
    assert done.returncode == 2, done.stderr
    assert "batch_size 1 is less than the 3 processes" in done.stderr
    assert not Path("run").exists()


@pytest.mark.parametrize("strategy", ["ddp_spawn", "ddp_fork", "ddp_notebook"])
@pytest.mark.fault("a strategy that starts its processes from Python", "refused with a strategy that works")
def test_strategies_that_the_command_cannot_use_are_refused(few, strategy, capsys):
    command = THREE.replace("strategy ddp", f"strategy {strategy}")
    assert cli.main(command.split()) == 2
    assert "--trainer.strategy=ddp" in capsys.readouterr().err and not Path("run").exists()


@pytest.mark.slow
@pytest.mark.fault(
    "one of several training processes runs out of memory",
    "all processes end; the message has an option that needs less memory",
)
def test_both_processes_end_if_one_runs_out_of_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    process_jobs.write_families(tmp_path / "families")
    done = start(
        "fit --model knowformer --data kg --data.path families --data.batch_size 8 --trainer.accelerator cpu "
        "--trainer.devices 2 --trainer.strategy ddp --model.encoder.hidden_channels 8 --run_dir run "
        "--trainer.callbacks+ helpers.own.RunOutInside --trainer.callbacks.step 2",
        PYTHONPATH=os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")]),
    )  # the first process to arrive runs out of memory, the other waits for its gradients
    assert done.returncode == 1, done.stderr
    assert "Take a smaller --data.micro_batch_size" in done.stderr and "Traceback" not in done.stderr
    assert "continuing with" not in done.stderr


@pytest.mark.slow
def test_a_run_of_two_processes_is_read_by_one(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    process_jobs.write_families(tmp_path / "families")
    options = "--trainer.accelerator cpu --trainer.devices 2 --trainer.strategy ddp --trainer.max_epochs 1"
    command = (
        f"fit --model knowformer --data kg --data.path families --data.batch_size 8 {options} "
        "--model.encoder.hidden_channels 8 --run_dir run --logger wandb"
    )
    done = start(command, WANDB_MODE="offline")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("epoch 1/1") == done.stdout.count("both directions") == 1
    assert done.stderr.count("writes run") == done.stderr.count("results: run/results.json") == 1
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()].count("run") == 1
    assert len(list(Path("run/wandb").glob("offline-run-*"))) == 1, "one run at W&B, too"
    assert len(read_offline_run("run").keys & {"test/mrr", "val/mrr"}) == 2
    with open("run/metrics.csv") as file:
        assert len([row for row in csv.DictReader(file) if row["train/queries_per_s"]]) == 1
    assert cli.main(["test", "--ckpt_path", "run", "--trainer", "cpu", "--run_dir", "again"]) == 0
    capsys.readouterr()
    both, alone = (json.loads(Path(run, "results.json").read_text())["metrics"] for run in ("run", "again"))
    assert both == alone and "test/mrr" in both
    assert "LOCAL_RANK" not in os.environ, "one process, in which nothing of several is left"
