"""What a run is about to do, in a few lines: device, graph, split, model, batches."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_only

from graphzoo.shown import console

__all__ = ["RunSummary", "counted", "describe_run", "duration", "size"]

# Seconds for which steps are timed, and a run's length from which on it is told.
_TIMED, _WORTH_TELLING = 5.0, 60.0
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


class RunSummary(Callback):
    """Prints what `describe_run` says before the first step, and how long the run will take soon after it."""

    def __init__(self) -> None:
        self._began: tuple[float, int] | None = None  # when, and after how many steps
        self._told = False

    @rank_zero_only
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the lines."""
        for name, value in describe_run(trainer, pl_module):
            console().print(f"{name:<12}{value}", highlight=False, soft_wrap=True)

    @rank_zero_only
    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Print the time of the whole run once, when steps have been timed for some seconds."""
        if self._told or trainer.fit_loop._should_accumulate():
            return
        now = time.perf_counter()
        if self._began is None:  # the first step compiles
            self._began = now, trainer.global_step
            return
        steps, seconds = trainer.global_step - self._began[1], now - self._began[0]
        if steps < 3 or seconds < _TIMED:
            return
        self._told = True
        left = steps_left(trainer)
        if left is not None and left * seconds / steps >= _WORTH_TELLING:
            time_left = duration(left * seconds / steps)
            text = f"about {time_left} for {counted(left, 'step')}, validation not counted"
            console().print(f"{'still to go':<12}{text}", highlight=False, soft_wrap=True)


def steps_left(trainer: Trainer) -> int | None:
    """Steps of the optimiser until the run ends by itself; None where nobody can say."""
    ends = []
    if trainer.max_epochs is not None and trainer.max_epochs >= 0 and trainer.num_training_batches < math.inf:
        per_epoch = math.ceil(trainer.num_training_batches / trainer.accumulate_grad_batches)
        ends.append(trainer.max_epochs * per_epoch - trainer.global_step)
    if trainer.max_steps > 0:
        ends.append(trainer.max_steps - trainer.global_step)
    return min(ends, default=None)


def describe_run(trainer: Trainer, pl_module: LightningModule) -> Iterator[tuple[str, str]]:
    """Names and values for a reader.

    Args:
        trainer: In `fit`, its loaders set up.
        pl_module: A graphzoo task, its modules built.
    """
    datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
    processes = f", {trainer.world_size} processes" if trainer.world_size > 1 else ""
    yield "device", f"{trainer.strategy.root_device}{processes}, precision {trainer.precision}"
    if hasattr(datamodule, "describe_graph"):
        yield "graph", ", ".join(f"{count:,} {what}" for what, count in datamodule.describe_graph().items())
    if getattr(datamodule, "asks_near", False):
        yield "queries", datamodule.describe_queries()
    encoder = type(getattr(pl_module, "encoder", pl_module)).__name__
    trained = sum(p.numel() for p in pl_module.parameters() if p.requires_grad)
    yield "model", f"{encoder}, {trained:,} parameters"
    batches = trainer.num_training_batches
    parts = trainer.accumulate_grad_batches
    steps = "" if batches == math.inf else f"{counted(math.ceil(batches / parts), 'step')} an epoch"
    cut = f"each step in {parts} parts" if not steps else f"each in {parts} parts"
    limits = []
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        limits.append(counted(trainer.max_epochs, "epoch"))
    if trainer.max_steps > 0:
        limits.append(counted(trainer.max_steps, "step"))
    most = f"at most {' or '.join(limits)}" if limits else ""
    found = [steps or "epochs of unknown length", cut if parts > 1 else "", most]
    yield "training", ", ".join(part for part in found if part)


def counted(number: float, one: str, many: str = "") -> str:
    """A number and what it counts.

    Args:
        number: A whole number.
        one: The word for one of them.
        many: The word for several; `one` with an s by default.

    >>> counted(1, "batch", "batches"), counted(2000, "step")
    ('1 batch', '2,000 steps')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """A time for people: 0.23 s, 75 s, 12.5 min, 3.2 h, 4.1 d."""
    for unit, name in _UNITS:
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.1f} {name}"
    return f"{seconds:.3g} s"


def size(num_bytes: float) -> str:
    """Bytes for people: 312 MiB, 5.4 GiB."""
    return f"{num_bytes / 2**30:,.1f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:,.0f} MiB"
