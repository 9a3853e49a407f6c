"""The curves of `Diagnostics` are right, and training is the same without them."""

import csv
import logging
import math
from types import SimpleNamespace

import pytest
import torch
from helpers import process_jobs
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.profilers import SimpleProfiler

from graphzoo.callbacks import Diagnostics, MetricsFile
from graphzoo.callbacks import diagnostics as module
from graphzoo.callbacks.diagnostics import FetchTimer, is_milestone
from graphzoo.errors import OutOfMemoryError

KEYS = {"lr", "grad_norm", "step_seconds", "data_seconds", "peak_memory_gib", "attention_entropy"}
JOBS = {  # every task, with each kind of encoder
    "kg-bce": KEYS,
    "nodes-whole": KEYS,
    "links-pencil": KEYS,
    "links-galit": KEYS,
    "links-knowformer": KEYS,
    "nodes-parts": KEYS,
}


class Gradients(Callback):
    """Gradient norm of every step, from its definition."""

    def __init__(self):
        self.norms = []

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        squares = [
            float(p.grad.double().square().sum()) for p in pl_module.parameters() if p.grad is not None
        ]
        self.norms.append(math.sqrt(sum(squares)))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    process_jobs.write_data(folder)
    return folder


@pytest.fixture
def fit(data, tmp_path):
    """`fit(job, *callbacks, **trainer)` trains; returns the task, the trainer and the rows of metrics.csv."""

    def run(job, *callbacks, epochs=2, prepare=None, ckpt_path=None, **settings):
        task, datamodule = process_jobs._MAKE[job](data, 1)
        if prepare is not None:
            prepare(task)
        seed_everything(0, verbose=False)
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        quiet = {
            name: False for name in ("enable_checkpointing", "enable_progress_bar", "enable_model_summary")
        }
        trainer = Trainer(
            max_epochs=epochs, accelerator="cpu", logger=MetricsFile(folder), callbacks=list(callbacks),
            log_every_n_steps=settings.pop("log_every_n_steps", 2), **quiet, **settings,
        )  # fmt: skip
        resumed = {"ckpt_path": ckpt_path, "weights_only": True} if ckpt_path else {}
        trainer.fit(task, datamodule=datamodule, **resumed)
        with (folder / "metrics.csv").open() as file:
            rows = [{k: v for k, v in row.items() if v} for row in csv.DictReader(file)]
        return SimpleNamespace(task=task, trainer=trainer, rows=rows)

    return run


def column(run, name):
    return [float(row[f"train/{name}"]) for row in run.rows if f"train/{name}" in row]


@pytest.mark.parametrize("job", JOBS)
def test_every_task_has_its_curves_and_trains_the_same_without_them(fit, job):
    torch.manual_seed(3)
    without = fit(job)
    state = torch.get_rng_state()
    torch.manual_seed(3)
    with_them = fit(job, Diagnostics())
    assert torch.equal(torch.get_rng_state(), state)
    ours, theirs = (run.task.state_dict() for run in (with_them, without))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    for name, value in without.trainer.callback_metrics.items():
        assert torch.equal(with_them.trainer.callback_metrics[name], value), name
    found = {name.removeprefix("train/") for row in with_them.rows for name in row}
    assert JOBS[job] <= found, JOBS[job] - found
    for name in JOBS[job]:
        assert all(math.isfinite(value) for value in column(with_them, name))
    assert all(0 < value <= 1 + 1e-6 for value in column(with_them, "attention_entropy"))
    assert min(column(with_them, "step_seconds")) > 0 and min(column(with_them, "peak_memory_gib")) > 0


def test_rows_are_logged_at_lightnings_steps_and_at_milestones(fit):
    gradients = Gradients()
    run = fit("kg-parts", Diagnostics(), gradients, gradient_clip_val=0.5, epochs=3, log_every_n_steps=5)
    per_epoch = len(gradients.norms) // 3
    assert per_epoch > 5 and run.trainer.lightning_module.parts_of_batch > 1
    ends = [per_epoch, 2 * per_epoch]  # the third epoch is not a milestone
    due = [step for step in range(1, 3 * per_epoch + 1) if step % 5 == 0 or step in ends]
    rows = [row for row in run.rows if "train/grad_norm" in row]
    # Lightning numbers steps from 0. The row of an epoch has the number of its last step.
    assert [int(row["step"]) + 1 for row in rows] == due
    expected = [gradients.norms[step - 1] for step in due]
    assert column(run, "grad_norm") == pytest.approx(expected, rel=1e-5)
    assert column(run, "lr") == [0.005] * len(due)


def test_a_run_resumed_before_a_row_logs_the_norm_of_the_last_step(fit, tmp_path):
    path = tmp_path / "own.ckpt"
    save = LambdaCallback(on_validation_end=lambda trainer, _: trainer.save_checkpoint(path))
    whole = fit("kg-parts", Diagnostics(), save, epochs=1, log_every_n_steps=100)
    rest = fit("kg-parts", Diagnostics(), epochs=1, log_every_n_steps=100, ckpt_path=path)
    assert column(rest, "grad_norm") == column(whole, "grad_norm") != []


def test_times_are_means_over_steps(fit, monkeypatch):
    """Each reading of the clock is a second later, so a batch takes 1 s and loading it takes 1 s."""
    seconds = iter(range(10**6))
    monkeypatch.setattr(module.time, "perf_counter", lambda: float(next(seconds)))
    run = fit("kg-parts", Diagnostics(), epochs=1, log_every_n_steps=3)
    parts = run.trainer.lightning_module.parts_of_batch
    first = next(row for row in run.rows if "train/step_seconds" in row)
    assert int(first["step"]) == 2
    assert float(first["train/step_seconds"]) == float(first["train/data_seconds"]) == parts > 1
    diagnostics, stop = Diagnostics(), LambdaCallback(on_train_batch_end=lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # within a step
        fit("kg-parts", diagnostics, stop)
    run = fit("kg-parts", diagnostics, epochs=1, log_every_n_steps=3)
    assert column(run, "step_seconds")[0] == column(run, "data_seconds")[0] == parts


def test_a_profiler_of_the_user_is_kept(fit):
    profiler = SimpleProfiler()
    run = fit("kg-bce", Diagnostics(), epochs=1, profiler=profiler)
    assert run.trainer.profiler is profiler
    assert column(run, "step_seconds") and not column(run, "data_seconds")
    assert isinstance(fit("kg-bce", Diagnostics(), epochs=1).trainer.profiler, FetchTimer)


def test_a_measurement_that_runs_out_of_memory_is_left_out(fit, caplog):
    calls = []

    def prepare(task):
        def refuse(batch):
            calls.append(batch)
            raise OutOfMemoryError("out of memory")

        task.attention_entropy = refuse

    with caplog.at_level(logging.WARNING):
        run = fit("nodes-whole", Diagnostics(), epochs=3, prepare=prepare)
    assert len(calls) == 1 and "train/attention_entropy" in caplog.text
    assert column(run, "grad_norm") and not column(run, "attention_entropy")

    def broken(task):
        task.attention_entropy = lambda batch: torch.zeros(2)[5]

    with pytest.raises(IndexError):
        fit("nodes-whole", Diagnostics(), epochs=1, prepare=broken)


def test_the_entropy_of_all_layers_is_averaged(fit):
    def prepare(task):
        task.attention_entropy = lambda batch: torch.tensor([0.25, 0.75, 0.875])

    run = fit("nodes-whole", Diagnostics(), epochs=1, prepare=prepare)
    assert column(run, "attention_entropy") == [0.625]


def test_entropy_is_measured_at_milestones_and_in_long_epochs(fit, monkeypatch):
    calls = []

    def prepare(task):
        task.attention_entropy = lambda batch: calls.append(task.trainer.current_epoch)

    fit("nodes-whole", Diagnostics(), epochs=25, prepare=prepare)
    assert calls == [epoch for epoch in range(25) if is_milestone(epoch)] == [0, 1, 4, 9, 19]
    calls.clear()
    fit("kg-parts", Diagnostics(), epochs=4, prepare=prepare)
    assert calls == [0, 1]
    monkeypatch.setattr(module, "_MANY_BATCHES", 10)
    calls.clear()
    fit("kg-parts", Diagnostics(), epochs=4, prepare=prepare)
    assert calls == [0, 1, 2, 3]
