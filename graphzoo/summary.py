"""What a run is about to do, in a few lines: device, graph, split, model, batches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_only
from rich import get_console

__all__ = ["RunSummary", "counted", "describe_run", "duration", "size"]

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


class RunSummary(Callback):
    """Prints what `describe_run` says before the first step."""

    @rank_zero_only
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the lines."""
        for name, value in describe_run(trainer, pl_module):
            get_console().print(f"{name:<12}{value}", highlight=False, soft_wrap=True)


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
