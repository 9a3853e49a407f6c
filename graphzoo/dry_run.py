"""`graphzoo fit --dry-run`: what a run will take, from a few timed steps; nothing is written."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from rich import get_console
from rich.table import Table

from graphzoo.callbacks.diagnostics import peak_memory_gib
from graphzoo.memory import available_bytes, refuse_what_cannot_fit
from graphzoo.summary import describe_run, duration, size

__all__ = ["DRY_SETTINGS", "DryRun", "limited_memory"]

_STEPS, _SECONDS = 20, 10.0  # as many steps as fit into the time, between 3 and 20
_BYTES_PER_WEIGHT = 16  # weight, gradient, and two moments of Adam, single precision

DRY_SETTINGS: dict[str, Any] = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    # Validation is timed in the sanity check; it must not begin again while steps are timed.
    "num_sanity_val_steps": 2,
    "check_val_every_n_epoch": 10**9,
    "val_check_interval": None,
}
"""Arguments of the Trainer that a dry run sets, whatever the user's say."""


class DryRun(Callback):
    """Times a few steps and some batches of validation, then ends the run and says what it found.

    Args:
        asked: The Trainer's arguments as the user has them: how often the real run validates.
    """

    def __init__(self, asked: dict[str, Any]) -> None:
        self._every = asked.get("check_val_every_n_epoch") or 1
        self._interval = asked.get("val_check_interval") or 1.0
        self._steps: list[float] = []
        self._validations: list[float] = []
        self._first = self._began = 0.0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a model whose gradients and optimiser cannot fit beside its weights."""
        pl_module.configure_model()
        weights = sum(p.numel() for p in pl_module.parameters() if p.requires_grad)
        refuse_what_cannot_fit(
            _BYTES_PER_WEIGHT * weights,
            trainer.strategy.root_device,
            f"training {weights:,} parameters (weights, gradients, two moments)",
            "Take a smaller --model.encoder.hidden_channels or --model.encoder.num_layers",
        )

    def on_validation_batch_start(self, *_: Any) -> None:
        """Start the clock."""
        self._began = time.perf_counter()

    def on_validation_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Note the time."""
        _finish(pl_module.device)
        self._validations.append(time.perf_counter() - self._began)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock of the first step."""
        self._first = self._began = time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Note the time of a step, all its micro-batches and the loading of data included."""
        if trainer.fit_loop._should_accumulate():
            return
        _finish(pl_module.device)
        now = time.perf_counter()
        self._steps.append(now - self._began)
        self._began = now
        long = now - self._first > _SECONDS
        done = len(self._steps) >= _STEPS or (long and len(self._steps) >= 3)
        if trainer.strategy.broadcast(done):  # the first process's clock decides
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say what was found."""
        rows = [*describe_run(trainer, pl_module), *self._times(trainer), *_memory(pl_module.device)]
        if trainer.is_global_zero:
            table = Table(title="dry run, nothing is written", show_header=False, title_justify="left")
            for row in rows:
                table.add_row(*row)
            get_console().print(table)

    def _times(self, trainer: Trainer) -> Iterator[tuple[str, str]]:
        steps = self._steps[1:] or self._steps  # the first compiles, and fills caches
        step = statistics.median(steps)
        batches = trainer.num_training_batches
        per_epoch = math.ceil(batches / trainer.accumulate_grad_batches) if batches != math.inf else math.inf
        yield "first step", f"{self._steps[0]:.3g} s, compiling and loading included"
        yield "a step", f"{step:.3g} s, the median of {len(steps)}"
        epoch = step * per_epoch
        yield (
            "training, an epoch",
            f"{duration(epoch)} in {per_epoch:,} {'step' if per_epoch == 1 else 'steps'}",
        )
        rounds = 0.0
        if self._validations:
            batch = min(self._validations)
            whole = batch * sum(trainer.num_val_batches)
            yield "validation", f"{duration(whole)} in {sum(trainer.num_val_batches):,} batches"
            often = 1 / self._interval if isinstance(self._interval, float) else batches / self._interval
            rounds = whole * max(1.0, often) / self._every
        epochs: float | None = trainer.max_epochs
        if trainer.max_steps is not None and trainer.max_steps > 0:
            most = trainer.max_steps / per_epoch
            epochs = most if epochs is None or epochs < 0 else min(epochs, most)
        if epochs is None or epochs < 0:
            yield "the whole run", "as long as it is let: --trainer.max_epochs is not set"
        else:
            yield (
                "the whole run",
                f"{duration((epoch + rounds) * epochs)} for {epochs:,g} epochs, then the test",
            )


def _memory(device: torch.device) -> Iterator[tuple[str, str]]:
    peak = peak_memory_gib(device) * 2**30
    if math.isnan(peak):  # this system does not say
        return
    available = available_bytes(device)
    of = "" if available is None else f" of {size(available)} that the process can have"
    yield "peak memory", f"{size(peak)}{of}, in these steps"


def _finish(device: torch.device) -> None:
    """Wait for what a GPU has still to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """Let allocations fail when the machine's memory is used up, so that an error says what to do.

    Without a limit Linux hands out more than there is, and kills the process when the pages are written. Not
    with a GPU, whose driver reserves far more address space than it uses.
    """
    available = available_bytes(torch.device("cpu"))
    statm = Path("/proc/self/statm")
    if available is None or not statm.is_file() or torch.cuda.is_available():
        yield
        return
    import resource  # not on Windows, which has no such limit

    pages, resident = map(int, statm.read_text(encoding="ascii").split()[:2])
    page = resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * page + available - resident * page
    if before[1] != resource.RLIM_INFINITY:
        limit = min(limit, before[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
