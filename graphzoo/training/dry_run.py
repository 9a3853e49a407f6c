"""`graphzoo fit --dry-run`: estimates time and memory of a run from a few steps, without writing a run."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.seed import isolate_rng
from rich.table import Table

from graphzoo.callbacks.diagnostics import peak_memory_gib
from graphzoo.callbacks.run_length import (
    Place,
    Remaining,
    ValidationClock,
    finish,
    interval_seconds,
    seconds_allowed,
    steps_per_epoch,
)
from graphzoo.callbacks.summary import describe_run
from graphzoo.errors import UsageError
from graphzoo.system.memory import available_bytes
from graphzoo.system.shown import cell, console
from graphzoo.system.units import counted, duration, size
from graphzoo.tasks.base import Task
from graphzoo.tasks.room import refuse_untrainable
from graphzoo.training.plan import RunState

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


class DryRun(ValidationClock):
    """Times a few steps and some batches of validation, then ends the run and says what it found.

    The Trainer's arguments `asked` say how often the real run validates.
    """

    def __init__(self, asked: dict[str, Any], state: RunState) -> None:
        super().__init__(time.perf_counter)
        self._state = state
        self._every: int | None = asked.get("check_val_every_n_epoch", 1)
        self._interval = asked.get("val_check_interval")
        interval_seconds(self._interval)  # refused before anything is timed
        self._in_steps = False  # whether the interval counts whole batches, which Lightning sees in parts
        self._steps: list[float] = []
        self._first = self._began = 0.0
        self._most_seconds = math.inf
        self._place: Place | None = None  # where it begins

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a model that cannot be trained here with its decoder; `FitsMemory` counted the encoder."""
        with trainer.precision_plugin.module_init_context():
            pl_module.configure_model()
        refuse_untrainable(trainer, pl_module)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Time validation where a resumed run has left it out, and start the clock of the first step."""
        self._most_seconds = seconds_allowed(trainer)
        if not self._batches:
            trainer.fit_loop.epoch_loop.val_loop.restarting = False
            with isolate_rng():
                trainer._run_sanity_check()
        self._first = self._began = time.perf_counter()

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._place is None:
            self._place = Place(trainer.current_epoch, batch_idx, trainer.global_step)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Note the time of a step, all its micro-batches and the loading of data included."""
        if trainer.fit_loop._should_accumulate():
            return
        finish(pl_module.device)
        now = time.perf_counter()
        self._steps.append(now - self._began)
        self._began = now
        enough = now - self._first > _SECONDS or trainer.is_last_batch
        done = len(self._steps) >= _STEPS or (enough and len(self._steps) >= 3)
        if trainer.strategy.broadcast(done):  # the first process's clock decides
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._steps:
            return
        self._in_steps = isinstance(pl_module, Task) and pl_module.micro_batches.count > 1
        _ask_largest(trainer, pl_module, (self._place or Place()).epoch)
        rows = [*describe_run(trainer, pl_module), *self._times(trainer), *_memory(pl_module.device)]
        if trainer.is_global_zero:
            table = Table(title=_TITLE, show_header=False, title_justify="left")
            for row in rows:
                table.add_row(*map(cell, row))
            console().print(table)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._steps:
            return
        self._state.began = False
        raise UsageError(
            f"there is no step to time: training already ends at epoch {trainer.current_epoch}, step "
            f"{trainer.global_step}\n"
            "Give a larger --trainer.max_epochs (max_steps, max_time, limit_train_batches), or no --ckpt_path"
        )

    def _times(self, trainer: Trainer) -> Iterator[tuple[str, str]]:
        steps = self._steps[1:] or self._steps  # the first compiles, and fills caches
        step = statistics.median(steps)
        yield "first step", f"{self._steps[0]:.3g} s, compiling and loading included"
        yield "a step", f"{step:.3g} s" + (f", the median of {len(steps)}" if len(steps) > 1 else "")
        per_epoch = steps_per_epoch(trainer)
        if per_epoch is not None:
            yield "training, an epoch", f"{duration(step * per_epoch)} in {counted(per_epoch, 'step')}"
        validation = 0.0
        if (whole := self.whole_validation(trainer)) is not None:
            validation, questions = whole
            batches = counted(sum(trainer.num_val_batches), "batch", "batches")
            asked = "" if questions is None else f", {questions:,} questions"
            yield "validation", f"{duration(validation)} in {batches}{asked}"
        elif self._batches:
            yield "validation", "unknown: its number of batches is not known"
        test = self.whole_test(trainer) if self._state.plan.tests else None
        datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
        if test is not None:
            more = test[0] * getattr(datamodule, "cost_left_out", 0.0)
            adds = f"; --data.test_both true adds the whole graph, about {duration(more)}" if more else ""
            yield "test", f"{duration(test[0])} in {counted(test[1], 'batch', 'batches')}{adds}"
        tested = test[0] if test else 0.0
        name = "still to go" if self._place else "the whole run"
        place = self._place or Place()
        remaining = Remaining(trainer, place, self._every, self._interval, in_steps=self._in_steps)
        yield name, self._in_all(trainer, remaining, step, validation, tested)
        if remaining.steps is not None:
            seconds, device = remaining.seconds(step, validation), trainer.strategy.root_device.type
            cost = getattr(datamodule, "test_cost", 1.0)
            if line := self._state.plan.shorter(seconds, tested, cost, device):
                yield line

    def _in_all(
        self, trainer: Trainer, remaining: Remaining, step: float, validation: float, test: float
    ) -> str:
        """The time of all that is left, training within the time that the run is given."""
        limit, tests = self._most_seconds, self._state.plan.tests
        after = ", then the test" if tests else ""
        left, per_epoch = remaining.steps, steps_per_epoch(trainer)
        if left is None:
            if limit < math.inf:
                return f"{duration(limit)}, when --trainer.max_time ends it{after}"
            if per_epoch is None and (trainer.max_epochs or 0) >= 0:
                return "unknown: the length of an epoch is not known"
            return "without an end: --trainer.max_epochs is not set"
        seconds = remaining.seconds(step, validation)
        whole_epochs = per_epoch is not None and left % per_epoch == 0
        amount = counted(left // per_epoch, "epoch") if per_epoch and whole_epochs else counted(left, "step")
        if limit < seconds:
            other = f"without it {duration(seconds)} for {amount}"
            return f"{duration(limit)}, when --trainer.max_time ends it ({other}){after}"
        return f"{duration(seconds + test)} for {amount}" + (" and the test" if test else after)


def _ask_largest(trainer: Trainer, module: Any, begun: int) -> None:
    """Take a part of a step in larger neighbourhoods of epochs later than `begun`, for their memory."""
    datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
    epoch = getattr(datamodule, "largest_epoch", 0)
    if epoch <= begun:
        return
    batch = trainer.strategy.batch_to_device(next(iter(datamodule._training_loader(epoch))))
    with trainer.precision_plugin.forward_context():
        loss = module.sample_losses(batch).sum()
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    torch.autograd.grad(loss, trained, allow_unused=True)


def _memory(device: torch.device) -> Iterator[tuple[str, str]]:
    peak = peak_memory_gib(device) * 2**30
    if math.isnan(peak):  # this system does not say
        return
    available = available_bytes(device)
    of = "" if available is None else f" of {size(available)} available to the process"
    yield "peak memory", f"{size(peak)}{of}, so far"


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """Let allocations fail when the machine's memory is used up, so that an error says what to do.

    Without a limit Linux allocates more memory than it has, and kills the process when the pages are written.
    There is no limit with a GPU, whose driver reserves far more address space than it uses.
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
