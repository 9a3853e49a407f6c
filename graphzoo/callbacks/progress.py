"""Shows the progress of a run: on a terminal a bar with loss, rate and time left; everywhere, lines."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar as BaseBar
from lightning.pytorch.callbacks import RichProgressBar, TQDMProgressBar
from lightning.pytorch.callbacks.progress.rich_progress import CustomTimeColumn
from lightning.pytorch.utilities import rank_zero_only
from rich import get_console
from rich.progress import Task
from rich.text import Text

from graphzoo.callbacks.run_length import RunClock, steps_per_epoch
from graphzoo.callbacks.summary import time_left
from graphzoo.callbacks.throughput import Throughput
from graphzoo.callbacks.training_end import is_last_epoch
from graphzoo.system.shown import console
from graphzoo.system.units import duration

_FEW = 50


class _RunBar(BaseBar):
    """What both bars have: the rate of `Throughput`, and none for epochs of a single batch."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show a bar, unless an epoch is a single batch: hundreds of bars a minute only take time."""
        if trainer.num_training_batches == 1:
            self.disable()
        super().on_train_start(trainer, pl_module)

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """Loss, validation metric and rate."""
        metrics = super().get_metrics(trainer, pl_module)
        shown: dict[str, Any] = {name: value for name, value in metrics.items() if name != "v_num"}
        return shown | ({f"{_unit(pl_module)}/s": rate} if (rate := _rate(trainer)) else {})


class ProgressBar(_RunBar, RichProgressBar):
    """Lightning's Rich bar with a rate, and the time left of the run, not of the epoch."""

    def __init__(self) -> None:
        super().__init__(leave=False, console_kwargs={})

    def configure_columns(self, trainer: Trainer) -> list[Any]:
        """Lightning's, with the run's time."""
        clock = _clock(trainer)
        columns = super().configure_columns(trainer)
        if clock is None:
            return columns
        return [_RunTime(c.style, clock) if isinstance(c, CustomTimeColumn) else c for c in columns]


class _RunTime(CustomTimeColumn):
    """The time of an epoch so far, and that until the end of training."""

    def __init__(self, style: Any, clock: RunClock) -> None:
        super().__init__(style)
        self._clock = clock

    def render(self, task: Task) -> Text:
        left = "-:--:--" if self._clock.left == math.inf else str(timedelta(seconds=int(self._clock.left)))
        return Text(f"{timedelta(seconds=int(task.elapsed or 0))} • {left}", style=self.style)


class NotebookBar(_RunBar, TQDMProgressBar):
    """The same for notebooks: a widget, or without ipywidgets a line of text.

    Rich's bar would need ipywidgets, and grow by a line at every change in notebooks that are only printed.
    """

    BAR_FORMAT = TQDMProgressBar.BAR_FORMAT.replace("<{remaining}", "")

    def __init__(self) -> None:
        super().__init__(leave=False)

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """Loss, validation metric, rate, and the time left of the run."""
        shown = super().get_metrics(trainer, pl_module)
        return shown | ({"left": left} if (left := _time_left(trainer)) else {})


def in_notebook() -> bool:
    """Whether what is printed goes to a notebook."""
    return get_console().is_jupyter


class EpochLines(Callback):
    """Prints one line per epoch: loss, validation metric, rate, and the time left of the run.

    With more than 50 epochs, the first and the last are shown, and others at most once a second.

    Args:
        seconds: After this time without a line, one is printed within an epoch, a validation or a test, too.
        clock: Gives the time in seconds.
    """

    def __init__(self, seconds: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._shown_at = self._began = -math.inf
        self._done = 0  # batches of a test, or of a validation outside a fit

    @rank_zero_only
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock of the first line."""
        self._shown_at = self._clock() - 1

    @rank_zero_only
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        few = trainer.max_epochs is not None and 0 <= trainer.max_epochs <= _FEW
        if few or self._clock() - self._shown_at >= 1 or is_last_epoch(trainer):
            self._show(trainer, pl_module, "")

    @rank_zero_only
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Print a line where an epoch takes long."""
        if self._is_due():
            step, of = 1 + batch_idx // trainer.accumulate_grad_batches, steps_per_epoch(trainer)
            self._show(trainer, pl_module, f"step {step:,}" + ("" if of is None else f"/{of:,}"))

    @rank_zero_only
    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        """Print a line where a validation takes long."""
        if trainer.state.fn == "validate":
            self._count("validation", trainer.num_val_batches)
        elif self._is_due() and not trainer.sanity_checking:
            self._show(
                trainer, pl_module, f"validation batch {batch_idx + 1:,}/{sum(trainer.num_val_batches):,}"
            )

    @rank_zero_only
    def on_test_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        """Print a line where a test takes long."""
        self._count("test", trainer.num_test_batches)

    @rank_zero_only
    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock of the first line."""
        self._shown_at = self._began = self._clock()
        self._done = 0

    @rank_zero_only
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock of the first line outside a fit."""
        if trainer.state.fn == "validate":
            self.on_test_start(trainer, pl_module)

    def _count(self, what: str, batches: list[int | float]) -> None:
        """Count a batch of an evaluation; print a line if one is due."""
        self._done, total = self._done + 1, sum(batches)
        if not self._is_due() or self._done == total:
            return
        self._shown_at = self._clock()
        shown = f"{what} batch {self._done:,}"
        if total < math.inf:
            left = (self._shown_at - self._began) / self._done * (total - self._done)
            shown += f"/{total:,}  about {duration(left)} to go"
        console().print(shown, highlight=False, soft_wrap=True)

    def _is_due(self) -> bool:
        return self._clock() - self._shown_at >= self._seconds

    def _show(self, trainer: Trainer, pl_module: LightningModule, where: str) -> None:
        self._shown_at = self._clock()
        # -1 where steps or the time end the run
        total = f"/{trainer.max_epochs}" if (trainer.max_epochs or -1) > 0 else ""
        shown = [f"epoch {trainer.current_epoch + 1}{total}"]
        if where:
            shown.append(where)
        logged: dict[str, Any] = dict(trainer.callback_metrics)
        latest = getattr(pl_module, "latest_loss", None)
        if latest is not None:
            logged = {**logged, "train/loss": latest}
        for name in ("train/loss", "train/loss_epoch", getattr(pl_module, "monitor", "")):
            if name in logged:
                shown.append(f"{name} {float(logged[name]):.4f}")
        if rate := _rate(trainer):
            shown.append(f"{rate} {_unit(pl_module)}/s")
        if left := _time_left(trainer):
            shown.append(f"{left} to go")
        console().print("  ".join(shown), highlight=False, soft_wrap=True)


def _unit(pl_module: LightningModule) -> str:
    return str(getattr(pl_module, "unit", "queries"))


def _rate(trainer: Trainer) -> str:
    """The rate so far; empty before the first batch."""
    throughputs = [c for c in trainer.callbacks if isinstance(c, Throughput)]  # type: ignore[attr-defined]
    rate = throughputs[0].queries_per_s if throughputs else 0.0
    return "" if not rate else f"{rate:.0f}" if rate >= 1 else f"{rate:.1g}"


def _clock(trainer: Trainer) -> RunClock | None:
    return next((c for c in trainer.callbacks if isinstance(c, RunClock)), None)  # type: ignore[attr-defined]


def _time_left(trainer: Trainer) -> str:
    clock = _clock(trainer)
    return "" if clock is None else time_left(clock)
