"""`graphzoo fit --dry-run`: what a run will take, from a few timed steps; no run is written."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Timer
from lightning.pytorch.utilities.seed import isolate_rng
from rich.table import Table

from graphzoo.arguments import Plan
from graphzoo.callbacks.diagnostics import peak_memory_gib
from graphzoo.errors import UsageError
from graphzoo.memory import available_bytes
from graphzoo.shown import console
from graphzoo.summary import counted, describe_run, duration, size
from graphzoo.tasks.room import refuse_untrainable

__all__ = ["DRY_SETTINGS", "DryRun", "limited_memory"]

_TITLE = "dry run: writes no run; downloads and caches are kept"
_STEPS, _SECONDS = 20, 10.0  # as many steps as fit into the time, between 3 and 20

DRY_SETTINGS: dict[str, Any] = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    # Validation is timed in the sanity check; it must not begin again while steps are timed.
    "num_sanity_val_steps": 2,
    "check_val_every_n_epoch": 10**9,
    "val_check_interval": None,
    "min_epochs": None,
    "min_steps": None,
}
"""Arguments of the Trainer that a dry run sets, whatever the user's say."""


class DryRun(Callback):
    """Times a few steps and some batches of validation, then ends the run and says what it found.

    Args:
        asked: The Trainer's arguments as the user has them: how often the real run validates.
        plan: Told when no step was taken that the settings are at fault.

    Raises:
        UsageError: for a `val_check_interval` that is no time.
    """

    def __init__(self, asked: dict[str, Any], plan: Plan) -> None:
        self._plan = plan
        self._after = ", then the test" if plan.tests else ""
        self._every: int | None = asked.get("check_val_every_n_epoch", 1)
        interval = asked.get("val_check_interval")
        self._interval: float = 1.0 if interval is None else interval
        self._interval_seconds: float | None = None
        if isinstance(interval, str | timedelta | dict):
            self._interval_seconds = _seconds(interval)
        self._steps: list[float] = []
        self._validations: list[float] = []
        self._first = self._began = 0.0
        self._most_seconds = math.inf
        self._place: tuple[int, int, int] | None = None  # epoch, batch and step where it begins

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a model that cannot be trained here with its decoder; `Began` has counted the encoder."""
        with trainer.precision_plugin.module_init_context():
            pl_module.configure_model()
        refuse_untrainable(trainer, pl_module)

    def on_validation_batch_start(self, *_: Any) -> None:
        """Start the clock."""
        self._began = time.perf_counter()

    def on_validation_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Note the time."""
        _finish(pl_module.device)
        self._validations.append(time.perf_counter() - self._began)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Time validation where a resumed run has left it out, and start the clock of the first step."""
        remaining = (c.time_remaining() for c in trainer.callbacks if isinstance(c, Timer))  # type: ignore[attr-defined]
        self._most_seconds = min((left for left in remaining if left is not None), default=math.inf)
        if not self._validations:
            trainer.fit_loop.epoch_loop.val_loop.restarting = False
            with isolate_rng():
                trainer._run_sanity_check()
        self._first = self._began = time.perf_counter()

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Note where a resumed run stands."""
        if self._place is None:
            self._place = (trainer.current_epoch, batch_idx, trainer.global_step)

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
        if not self._steps:
            return
        rows = [*describe_run(trainer, pl_module), *self._times(trainer), *_memory(pl_module.device)]
        if trainer.is_global_zero:
            table = Table(title=_TITLE, show_header=False, title_justify="left")
            for row in rows:
                table.add_row(*row)
            console().print(table)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse settings with which nothing is trained.

        Raises:
            UsageError: if no step was taken.
        """
        if self._steps:
            return
        self._plan.began = False
        raise UsageError(
            f"there is no step to time: training stands at epoch {trainer.current_epoch}, step "
            f"{trainer.global_step}, and ends there\n"
            "Give a larger --trainer.max_epochs (max_steps, max_time, limit_train_batches), or no --ckpt_path"
        )

    @property
    def _begin(self) -> tuple[int, int, int]:
        return self._place or (0, 0, 0)

    def _times(self, trainer: Trainer) -> Iterator[tuple[str, str]]:
        steps = self._steps[1:] or self._steps  # the first compiles, and fills caches
        step = statistics.median(steps)
        yield "first step", f"{self._steps[0]:.3g} s, compiling and loading included"
        yield "a step", f"{step:.3g} s" + (f", the median of {len(steps)}" if len(steps) > 1 else "")
        per_epoch = _steps_per_epoch(trainer)
        if per_epoch is not None:
            yield "training, an epoch", f"{duration(step * per_epoch)} in {counted(per_epoch, 'step')}"
        validation = 0.0
        if self._validations:
            batches = sum(trainer.num_val_batches)
            if batches < math.inf:
                validation = min(self._validations) * batches
                yield "validation", f"{duration(validation)} in {counted(batches, 'batch', 'batches')}"
            else:
                yield "validation", "nobody can say: its number of batches is not known"
        yield "still to go" if any(self._begin) else "the whole run", self._whole(trainer, step, validation)

    def _whole(self, trainer: Trainer, step: float, validation: float) -> str:
        """The time of all that is left: training, validation, within the time that the run is given."""
        limit = self._most_seconds
        left, per_epoch = self._left(trainer), _steps_per_epoch(trainer)
        if left is None:
            if limit < math.inf:
                return f"{duration(limit)}, when --trainer.max_time ends it{self._after}"
            if per_epoch is None and (trainer.max_epochs or 0) >= 0:
                return "nobody can say: the length of an epoch is not known"
            return "as long as it is let: --trainer.max_epochs is not set"
        if self._interval_seconds is not None:
            rounds = step * left // max(self._interval_seconds, step)
        else:
            rounds = self._rounds(trainer, left)
        seconds = step * left + rounds * validation
        whole_epochs = per_epoch is not None and left % per_epoch == 0
        amount = counted(left // per_epoch, "epoch") if per_epoch and whole_epochs else counted(left, "step")
        if limit < seconds:
            other = f"without it {duration(seconds)} for {amount}"
            return f"{duration(limit)}, when --trainer.max_time ends it ({other}){self._after}"
        return f"{duration(seconds)} for {amount}{self._after}"

    def _left(self, trainer: Trainer) -> int | None:
        """Steps from where the run stands to its end; None without an end."""
        epoch, batch, step = self._begin
        ends = []
        per_epoch = _steps_per_epoch(trainer)
        if trainer.max_epochs is not None and trainer.max_epochs >= 0 and per_epoch is not None:
            ends.append((trainer.max_epochs - epoch) * per_epoch - batch // trainer.accumulate_grad_batches)
        if trainer.max_steps > 0:
            ends.append(trainer.max_steps - step)
        return min(ends, default=None)

    def _rounds(self, trainer: Trainer, left: int) -> float:
        """Validations within so many steps, when Lightning counts them in batches."""
        epoch, batch, _ = self._begin
        parts, batches = trainer.accumulate_grad_batches, trainer.num_training_batches
        per_epoch = _steps_per_epoch(trainer)
        interval = max(1, self._interval) if isinstance(self._interval, int) else self._interval
        if isinstance(interval, float):  # a share of an epoch
            interval = max(1, int(batches * interval)) if per_epoch is not None else math.inf
        if per_epoch is None:
            return left * parts // interval
        if self._every is None:
            return (left / per_epoch) * batches // interval
        every, within = self._every, batches // interval

        def until(steps: int) -> float:
            epochs, rest = divmod(steps, per_epoch)
            begun = min(within, rest * parts // interval) if (epochs + 1) % every == 0 else 0
            return epochs // every * within + begun

        start = epoch * per_epoch + batch // parts
        return until(start + left) - until(start)


def _steps_per_epoch(trainer: Trainer) -> int | None:
    """Steps of the optimiser; None where the length of an epoch is not known."""
    batches = trainer.num_training_batches
    return None if batches == math.inf else math.ceil(batches / trainer.accumulate_grad_batches)


def _seconds(interval: str | timedelta | dict[str, int]) -> float:
    try:
        if isinstance(interval, str):
            days, hours, minutes, seconds = map(int, interval.split(":"))
            interval = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        elif isinstance(interval, dict):
            interval = timedelta(**interval)
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"--trainer.val_check_interval: {interval!r} is no time\nWrite DD:HH:MM:SS, such as 00:00:30:00"
        ) from error
    return interval.total_seconds()


def _memory(device: torch.device) -> Iterator[tuple[str, str]]:
    peak = peak_memory_gib(device) * 2**30
    if math.isnan(peak):  # this system does not say
        return
    available = available_bytes(device)
    of = "" if available is None else f" of {size(available)} that the process can have"
    yield "peak memory", f"{size(peak)}{of}, so far"


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
    limit = min([limit, *(bound for bound in before if bound != resource.RLIM_INFINITY)])  # never more
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
