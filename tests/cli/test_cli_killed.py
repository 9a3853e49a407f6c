"""Runs of the command that end early: kill -9, a full disk, Ctrl-C during the test."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.link_graphs import make_link_graph
from helpers.own import SMALL
from helpers.same_runs import figures, same_training

from graphzoo.errors import UsageError
from graphzoo.runs.checkpoints import is_whole
from graphzoo.runs.directory import choose_run_directory

REPOSITORY = Path(__file__).resolve().parents[2]
ALWAYS = [
    "--trainer.accelerator=cpu",
    "--trainer.max_epochs=4",
    "--trainer.enable_progress_bar=false",
    "--logger=csv",
]

SMALL_PENCIL = ["hidden_channels=8", "num_layers=1", "num_heads=2", "ffn_channels=8"]
SMALL_PENCIL = [f"--model.encoder.{setting}" for setting in SMALL_PENCIL] + ["--data.depth=1"]

# One process imports everything and forks a child for each command. The child kills itself at the n-th call
# of a function after the checkpoint of the first epoch.
KILL = """
import importlib, json, os, signal, sys
from pathlib import Path

import graphzoo.training.lightning_cli, graphzoo.tasks
from graphzoo.cli import main

def die_at(last, path, name, number):
    module, _, cls = path.partition(":")
    owner = importlib.import_module(module)
    owner = getattr(owner, cls) if cls else owner
    kept, calls = getattr(owner, name), []
    def replaced(*arguments, **settings):
        if Path(last).exists():
            calls.append(1)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return kept(*arguments, **settings)
    setattr(owner, name, replaced)

ended = {}
for name, (command, place) in json.load(sys.stdin).items():
    child = os.fork()
    if child == 0:
        die_at(f"killed/{name}/checkpoints/last.ckpt", *place)
        os._exit(main(command))
    ended[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(ended))
"""


@pytest.fixture
def links(tmp_path):
    """A file of links without features or negatives."""
    path = tmp_path / "links.csv"
    pairs = make_link_graph().train.tolist()
    path.write_text("source,target\n" + "".join(f"n{u},n{v}\n" for u, v in pairs))
    return path


@pytest.mark.fault(
    "kill -9 while a checkpoint is written, in a training step, or in validation",
    ("`fit --ckpt_path` resumes, with the weights, optimiser and metrics of an uninterrupted run"),
)
def test_a_run_resumes_after_kill_9(cli, results, tiny_kg, tiny_nodes, links):
    """Each task is killed in another function, after the checkpoint of the first epoch."""
    runs = {
        "kg": (
            ["--model=knowformer", "--data=kg", f"--data.path={tiny_kg}", *SMALL],
            ("graphzoo.callbacks.checkpoint_file:_Writer", "write", 5),
        ),
        "nodes": (
            ["--model=nodeformer", "--data=nodes", f"--data.path={tiny_nodes}", "--data.batch_size=13"]
            + ["--model.encoder.hidden_channels=8"],
            ("graphzoo.tasks:NodeClassification", "training_step", 3),
        ),
        "links": (
            ["--model=pencil", "--data=links", f"--data.path={links}", "--data.batch_size=64", *SMALL_PENCIL],
            ("graphzoo.tasks:LinkPrediction", "validation_step", 1),
        ),
    }
    commands = {
        name: (["fit", *words, *ALWAYS, f"--run_dir=killed/{name}"], place)
        for name, (words, place) in runs.items()
    }
    done = subprocess.run(
        [sys.executable, "-c", KILL],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == dict.fromkeys(runs, -9), done.stderr
    for name, (words, _) in runs.items():
        assert not Path(f"killed/{name}/results.json").exists()
        assert is_whole(Path(f"killed/{name}/checkpoints/last.ckpt"))
        result = cli("fit", "--ckpt_path", f"killed/{name}")
        assert result.status == 0, result.err
        assert cli("fit", *words, *ALWAYS, f"--run_dir=whole/{name}").status == 0
        for kind in ("last", "best"):
            file = f"{name}/checkpoints/{kind}.ckpt"
            same_training(f"whole/{file}", f"killed/{file}")
        assert figures(f"whole/{name}") == figures(f"killed/{name}")
        assert results(f"whole/{name}")["metrics"] == results(f"killed/{name}")["metrics"]


@pytest.mark.fault(
    "the disk or quota is full while a checkpoint is written",
    ("status 1 with the file and the command that resumes; the previous checkpoint stays complete"),
)
def test_a_full_disk_keeps_the_previous_checkpoint(fit, cli, results):
    fit("--run_dir=whole", epochs=3)
    full = [
        "--trainer.callbacks+=helpers.own.FullDisk",
        "--trainer.callbacks.epoch=2",
        "--trainer.callbacks.size=9000",
    ]
    failed = fit("--run_dir=run", *full, epochs=3, status=1)
    assert "cannot write" in failed.err and "checkpoints/" in failed.err and "File too large" in failed.err
    assert "Resume with: graphzoo fit --ckpt_path run" in failed.err
    assert len(failed.err.splitlines()) <= 6, failed.err
    left = sorted(path.name for path in Path("run/checkpoints").iterdir())
    assert left == ["best.ckpt", "last.ckpt"] and all(
        is_whole(Path("run/checkpoints") / name) for name in left
    )
    assert cli("fit", "--ckpt_path", "run", "--trust").status == 0
    same_training("whole/checkpoints/last.ckpt", "run/checkpoints/last.ckpt")
    assert figures("whole") == figures("run") and results("whole")["metrics"] == results("run")["metrics"]


@pytest.mark.fault("Ctrl-C while the best checkpoint is tested", "status 130 and the command that resumes")
def test_ctrl_c_while_testing(fit, cli):
    """Lightning turns Ctrl-C into `sys.exit(1)`, the status of a failed run."""
    # A shell that starts the tests in the background makes them ignore SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        stopped = fit("--run_dir=run", "--trainer.callbacks+=helpers.own.InterruptTest", epochs=1, status=130)
    finally:
        signal.signal(signal.SIGINT, before)
    assert "stopped at once" in stopped.err and "graphzoo fit --ckpt_path run --trust" in stopped.err


@pytest.mark.fault(
    "a run is killed in its first epoch, before a checkpoint exists",
    "the message has the command that starts it again with the same settings",
)
def test_a_run_without_a_checkpoint_begins_anew(cli, workplace):
    (workplace / "run").mkdir()
    (workplace / "run" / "config.yaml").write_text("# graphzoo\n")
    result = cli("fit", "--ckpt_path", "run")
    assert result.status == 2 and "graphzoo fit --config run/config.yaml" in result.err


@pytest.mark.fault("metrics.csv ends with an incomplete line", "the line is dropped when the run is resumed")
def test_an_incomplete_line_of_metrics_is_dropped(tmp_path):
    from graphzoo.callbacks import MetricsFile

    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n1,0.5\n2,0.4\n12,0.")
    metrics = MetricsFile(tmp_path)
    metrics.forget_after(20)
    metrics.log_metrics({"loss": 0.3}, step=3)
    assert path.read_text().splitlines() == ["step,loss", "1,0.5", "2,0.4", "3,0.3"]


@pytest.mark.parametrize(
    "name", ["results.json", "checkpoints/best.ckpt", "checkpoints/last.ckpt", "config.yaml"]
)
def test_a_folder_that_cannot_be_resumed_is_not_offered_for_it(tmp_path, name):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / name).write_text("# graphzoo 0.1.0\n")
    with pytest.raises(UsageError, match="holds a run already") as refused:
        choose_run_directory("a", "b", wanted=run)
    assert (", or resume it" in str(refused.value)) == name.endswith("last.ckpt")
    assert ("go on from its best epoch" in str(refused.value)) == name.endswith("best.ckpt")


def test_the_job_script_starts_a_run_and_resumes_it_when_requeued(tmp_path):
    page = (REPOSITORY / "docs" / "distributed.md").read_text(encoding="utf-8")
    script = next(part for part in page.split("```sh\n") if part.startswith("#!/bin/bash")).split("```")[0]

    def started():
        shell = ["bash", "-c", f'srun() {{ echo "$*"; }}\n{script}']
        return subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    first = started()
    assert first.startswith("graphzoo fit --model knowformer") and first.endswith("--run_dir runs/fb15k237-8")
    (tmp_path / "runs" / "fb15k237-8").mkdir(parents=True)  # of a run that was killed early
    assert started() == first
    (moved,) = (tmp_path / "runs").iterdir()
    assert moved.name.startswith("fb15k237-8.stopped-")
    last = tmp_path / "runs" / "fb15k237-8" / "checkpoints" / "last.ckpt"
    last.parent.mkdir(parents=True)
    last.touch()
    assert started() == "graphzoo fit runs/fb15k237-8"
