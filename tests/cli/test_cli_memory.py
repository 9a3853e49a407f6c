"""A training step that runs out of memory continues in halves, or the message names an option that helps."""

from pathlib import Path

import pytest
import torch

from graphzoo.system.memory import HeapTrimmer

MICRO = "Take a smaller --data.micro_batch_size; batch and loss stay what they are"
SMALLER = "ake a smaller --model.encoder.hidden_channels, or a device with more memory"
# Fixture, further options, remedy in the message, option with which the run is resumed.
TASKS = {
    "kg": ("fit", [], MICRO, "--data.micro_batch_size=8"),
    "links": ("fit_links", ["--data.batch_size=64"], MICRO, "--data.micro_batch_size=32"),
    "whole graph": ("fit_nodes", [], "Take --data.batch_size 30: training then takes parts", None),
    "parts": ("fit_nodes", ["--data.batch_size=20"], "Take --data.batch_size 10; or t" + SMALLER, None),
}


@pytest.mark.fault(
    "a training step that cannot be halved runs out of memory",
    ("status 1, with an option that needs less memory and the command that resumes from the last checkpoint"),
)
@pytest.mark.parametrize("task", TASKS)
def test_a_training_step_runs_out_of_memory(request, cli, task):
    fixture, options, remedy, less = TASKS[task]
    fit = request.getfixturevalue(fixture)
    # A step of the second epoch: an epoch has 4 steps of triples, 3 of links or parts, 1 of a whole graph.
    step = {"kg": 6, "links": 4, "whole graph": 2, "parts": 4}[task]
    breaks = ["--trainer.callbacks+=helpers.own.RunOut", f"--trainer.callbacks.step={step}"]
    result = fit("--run_dir=run", *breaks, *options, epochs=3, status=1)
    message = result.err[result.err.index("graphzoo: out of memory") :]
    assert "can't allocate memory" in message and remedy in message and "Traceback" not in result.err
    assert len(message.splitlines()) <= 6
    assert "Resume with: graphzoo fit --ckpt_path run" in message and "run/checkpoints/last.ckpt" in message
    before = torch.load("run/checkpoints/last.ckpt", weights_only=True)["global_step"]
    assert 0 < before <= step
    again = ["fit", "--ckpt_path=run", "--trust", *([less] if less else [])]
    done = cli(*again)
    assert done.status == 0, done.err
    assert torch.load("run/checkpoints/last.ckpt", weights_only=True)["global_step"] > step
    assert Path("run/results.json").is_file()


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize(
    ("fixture", "size", "half"), [("fit", 16, "8 queries"), ("fit_links", 60, "60 pairs")]
)
def test_a_step_continues_in_halves(request, fixture, size, half, step, caplog):
    fit = request.getfixturevalue(fixture)
    breaks = ["--trainer.callbacks+=helpers.own.RunOutInside", f"--trainer.callbacks.step={step}"]
    fit("--run_dir=run", f"--data.batch_size={size}", *breaks)
    assert caplog.text.count(f"out of memory while training: continuing with {half} at a time") == 1
    assert Path("run/results.json").is_file()


def test_a_run_without_a_checkpoint_is_started_again(fit):
    breaks = ["--trainer.callbacks+=helpers.own.RunOut", "--trainer.callbacks.step=1"]
    result = fit("--run_dir=run", *breaks, status=1)
    assert MICRO in result.err and "Start again: graphzoo fit --config run/config.yaml" in result.err
    assert len(result.err.splitlines()) <= 6


def test_no_smaller_micro_batch_is_suggested_for_one_query(fit):
    breaks = ["--trainer.callbacks+=helpers.own.RunOut", "--trainer.callbacks.step=1"]
    result = fit("--run_dir=run", *breaks, "--data.micro_batch_size=1", status=1)
    assert MICRO not in result.err and SMALLER in result.err


def test_a_run_looks_at_its_memory_after_batches_of_every_kind(fit, cli, monkeypatch):
    looks = []
    monkeypatch.setattr(HeapTrimmer, "look", lambda _: looks.append(1))

    def counted(result):
        assert result.status == 0, result.err
        count = len(looks)
        looks.clear()
        return count

    fits = counted(fit("--run_dir=run", "--no-test", epochs=1))
    validates, tests = (counted(cli(command, "--ckpt_path=run")) for command in ("validate", "test"))
    assert fits > validates > 0 < tests
