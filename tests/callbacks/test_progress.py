"""Lines of progress where there is no terminal, and the time left in the progress bar."""

import io
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks.progress.rich_progress import CustomTimeColumn
from rich.console import Console
from torch.utils.data import DataLoader, TensorDataset

from graphzoo.callbacks import EpochLines, ProgressBar, Throughput, progress
from graphzoo.callbacks.progress import NotebookBar
from graphzoo.callbacks.run_length import RunClock


class Module(LightningModule):
    """Moves `clock` forward by `seconds` in each batch of training and validation."""

    monitor = "val/own"

    def __init__(self, clock, seconds):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.clock, self.seconds, self.latest_loss = clock, seconds, None

    def training_step(self, batch, batch_idx):
        self.clock.now += self.seconds
        loss = (self.weight * 2).sum()
        self.latest_loss = loss.detach()
        return loss

    def validation_step(self, batch, batch_idx):
        self.clock.now += self.seconds
        self.log("val/own", 0.5)

    def test_step(self, batch, batch_idx):
        self.clock.now += self.seconds

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def lines(monkeypatch, seconds, *, every=60, batches=12, epochs=2, command="fit"):
    """Lines that a fit, validate or test prints if each batch takes `seconds`."""
    screen = Console(file=io.StringIO(), width=200)
    monkeypatch.setattr(progress, "console", lambda: screen)
    clock = Clock()
    loader = DataLoader(TensorDataset(torch.zeros(batches, 1)))
    trainer = Trainer(
        max_epochs=epochs, accelerator="cpu", accumulate_grad_batches=2, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, logger=False,
        callbacks=[RunClock(clock), EpochLines(every, clock)],
    )  # fmt: skip
    if command == "fit":
        trainer.fit(Module(clock, seconds), loader, loader)
    else:
        getattr(trainer, command)(Module(clock, seconds), loader, verbose=False)
    return screen.file.getvalue().splitlines()


def test_a_line_is_printed_every_minute_within_epochs_and_validations(monkeypatch):
    printed = lines(monkeypatch, 25.0)
    shown = [line.split("  ")[1] for line in printed]
    within = ["step 2/6", "step 3/6", "step 5/6", "step 6/6"]
    judged = [f"validation batch {number}/12" for number in (3, 6, 9, 12)]
    # The line of an epoch follows its validation, and every line begins a new minute.
    assert shown == [*within, *judged, "train/loss 2.0000", *within, *judged, "train/loss 2.0000"]
    assert printed[-1].startswith("epoch 2/2  train/loss 2.0000  val/own 0.5000")
    left = [float(line.partition("about ")[2].partition(" min")[0] or 0) for line in printed]
    steps, validation = 50 / 60, 5  # minutes
    assert left[1] == 0, "two steps say too little, and the first compiles"
    assert left[2] == pytest.approx(8 * steps + 2 * validation, abs=0.1), "after 4 of 12 steps"
    assert left[4:9] == pytest.approx([6 * steps + 2 * validation] * 4 + [6 * steps + validation])
    assert left[-5:] == [validation] * 4 + [0]


@pytest.mark.parametrize(("command", "what"), [("test", "test"), ("validate", "validation")])
def test_a_long_test_has_a_line_every_minute_and_a_short_one_none(monkeypatch, command, what):
    assert lines(monkeypatch, 25.0, batches=8, command=command) == [
        f"{what} batch 3/8  about 2.1 min to go",
        f"{what} batch 6/8  about 50 s to go",
    ]
    assert not lines(monkeypatch, 5.0, command=command) and not lines(
        monkeypatch, 25.0, every=float("inf"), command=command
    )


@pytest.mark.parametrize(("seconds", "every"), [(25.0, float("inf")), (0.5, 60)])
def test_epochs_have_a_line_each(monkeypatch, seconds, every):
    printed = lines(monkeypatch, seconds, every=every)
    assert [line[:9] for line in printed] == ["epoch 1/2", "epoch 2/2"]


def test_the_bar_shows_the_time_left_of_the_run():
    clock = RunClock()
    trainer = SimpleNamespace(callbacks=[clock])
    bar = ProgressBar()
    task = SimpleNamespace(elapsed=75.2, time_remaining=3.0, finished=False)

    def shown():
        columns = bar.configure_columns(trainer)
        return [column.render(task).plain for column in columns if isinstance(column, CustomTimeColumn)]

    assert shown() == ["0:01:15 • -:--:--"]
    clock.left = timedelta(hours=2).total_seconds()
    assert shown() == ["0:01:15 • 2:00:00"]
    assert progress._time_left(trainer) == "about 2.0 h"
    clock.tested = 59.0
    assert progress._time_left(trainer) == "about 2.0 h"
    clock.left, clock.tested = 30.0, 36_000.0
    assert progress._time_left(trainer) == "about 30 s of training and 10.0 h of test"
    clock.left = 0.0
    assert progress._time_left(trainer) == "about 10.0 h of test"
    assert "{remaining}" not in NotebookBar.BAR_FORMAT


@pytest.mark.parametrize(("rate", "shown"), [(1234.5, "1234"), (1.4, "1"), (0.42, "0.4"), (0.0, "")])
def test_a_rate_below_one_is_not_shown_as_zero(rate, shown):
    throughput = Throughput()
    throughput.queries_per_s = rate
    assert progress._rate(SimpleNamespace(callbacks=[throughput])) == shown
