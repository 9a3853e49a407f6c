"""A run of two processes by the command: one voice, one run directory, the figures of a single process."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import process_jobs
import pytest
from wandb_records import read_offline_run

from graphzoo.cli import commands as cli


@pytest.mark.slow
def test_two_processes_write_what_one_reads(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    process_jobs.write_families(tmp_path / "families")
    options = "--trainer.accelerator cpu --trainer.devices 2 --trainer.strategy ddp --trainer.max_epochs 1"
    command = (
        f"fit --model knowformer --data kg --data.path families --data.batch_size 8 {options} "
        "--model.encoder.hidden_channels 8 --run_dir run --logger wandb"
    )
    done = subprocess.run(
        [sys.executable, "-m", "graphzoo.cli", *command.split()],
        env={**os.environ, "OMP_NUM_THREADS": "1", "WANDB_MODE": "offline"},
        capture_output=True,
        text=True,
        timeout=300,
    )
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
