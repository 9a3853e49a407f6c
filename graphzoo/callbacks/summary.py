"""What a run is about to do, in a few lines: device, graph, split, model, batches."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_only

from graphzoo.callbacks.run_length import Place, Remaining, ValidationClock, seconds_allowed
from graphzoo.system.shown import console
from graphzoo.system.units import counted, duration

__all__ = ["RunSummary", "describe_run"]

# Seconds for which steps are timed, and a run's length from which on it is told.
_TIMED, _WORTH_TELLING = 5.0, 60.0


class RunSummary(ValidationClock):
    """Prints what `describe_run` says before the first step, and how long the run will take soon after it."""

    def __init__(self) -> None:
        super().__init__()
        self._began: tuple[float, Place] | None = None  # when, and where
        self._told = False

    @rank_zero_only
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the lines."""
        for name, value in describe_run(trainer, pl_module):
            console().print(f"{name:<12}{value}", highlight=False, soft_wrap=True)

    @rank_zero_only
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Print the time of the whole run once, when steps have been timed for some seconds."""
        if self._told or trainer.fit_loop._should_accumulate():
            return
        now, place = time.perf_counter(), Place(trainer.current_epoch, batch_idx + 1, trainer.global_step)
        if self._began is None:  # the first step compiles
            self._began = now, place
            return
        steps, seconds = place.step - self._began[1].step, now - self._began[0]
        if steps < 3 or seconds < _TIMED:
            return
        self._told = True
        if text := self._remaining(trainer, place, seconds / steps):
            console().print(f"{'still to go':<12}{text}", highlight=False, soft_wrap=True)

    def _remaining(self, trainer: Trainer, place: Place, step: float) -> str:
        """The time that is left, validation included, in words; empty where it is short or unknown."""
        remaining = Remaining(trainer, place, trainer.check_val_every_n_epoch, _interval(trainer))
        limit, validation = seconds_allowed(trainer), self.whole_validation(trainer)
        needed = math.inf if remaining.steps is None else remaining.seconds(step, (validation or (0.0,))[0])
        if min(limit, needed) < _WORTH_TELLING or limit == needed == math.inf:
            return ""
        if limit < needed:
            return f"about {duration(limit)}, when --trainer.max_time ends it"
        counts = "validation counted" if validation else "validation not counted"
        return f"about {duration(needed)} for {counted(remaining.steps or 0, 'step')}, {counts}"


def _interval(trainer: Trainer) -> Any:
    """The Trainer's `val_check_interval` as it was given; a time is kept apart from the number."""
    seconds: float | None = getattr(trainer, "_val_check_time_interval", None)
    return trainer.val_check_interval if seconds is None else timedelta(seconds=seconds)


def describe_run(trainer: Trainer, pl_module: LightningModule) -> Iterator[tuple[str, str]]:
    """Names and values for a reader, once the loaders and modules are built."""
    datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
    processes = f", {trainer.world_size} processes" if trainer.world_size > 1 else ""
    products = torch.get_float32_matmul_precision()
    faster = "" if products == "highest" else f", float32 products {products}"
    yield "device", f"{trainer.strategy.root_device}{processes}, precision {trainer.precision}{faster}"
    if hasattr(datamodule, "describe_graph"):
        yield "graph", ", ".join(f"{count:,} {what}" for what, count in datamodule.describe_graph().items())
    if words := getattr(datamodule, "features_in_words", ""):
        yield "features", words
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
    if not limits and seconds_allowed(trainer) == math.inf and not trainer.early_stopping_callbacks:
        most = "without an end: set --trainer.max_epochs or --trainer.max_time"
    lengths = [steps or "epochs of unknown length", cut if parts > 1 else "", most]
    yield "training", ", ".join(part for part in lengths if part)
