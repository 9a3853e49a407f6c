"""What a run shows: a bar with loss and queries/s on a terminal, and one line per epoch everywhere."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar, TQDMProgressBar
from lightning.pytorch.utilities import rank_zero_only
from rich import get_console

from graphzoo.callbacks.checkpoint import is_last_epoch
from graphzoo.callbacks.throughput import Throughput
from graphzoo.system.shown import console

__all__ = ["EpochLines", "NotebookBar", "ProgressBar", "in_notebook"]

_FEW = 50


class ProgressBar(RichProgressBar):
    """Lightning's Rich bar with the rate of `Throughput` beside loss and validation metric."""

    def __init__(self) -> None:
        super().__init__(leave=False, console_kwargs={})

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show a bar, unless an epoch is a single batch: hundreds of bars a minute only take time."""
        if trainer.num_training_batches == 1:
            self.disable()
        super().on_train_start(trainer, pl_module)

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """Loss, validation metric and rate."""
        return _with_rate(super().get_metrics(trainer, pl_module), trainer, pl_module)


class NotebookBar(TQDMProgressBar):
    """The same for notebooks: a widget, or without ipywidgets a line of text.

    Rich's bar would need ipywidgets, and grow by a line at every change in notebooks that are only printed.
    """

    def __init__(self) -> None:
        super().__init__(leave=False)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show a bar, unless an epoch is a single batch."""
        if trainer.num_training_batches == 1:
            self.disable()
        super().on_train_start(trainer, pl_module)

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """Loss, validation metric and rate."""
        return _with_rate(super().get_metrics(trainer, pl_module), trainer, pl_module)


def in_notebook() -> bool:
    """Whether what is printed goes to a notebook."""
    return get_console().is_jupyter


def _with_rate(metrics: Mapping[str, Any], trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
    shown = {name: value for name, value in metrics.items() if name != "v_num"}
    if rate := _rate(trainer):
        shown[f"{_unit(pl_module)}/s"] = f"{rate:.0f}"
    return shown


class EpochLines(Callback):
    """Prints one line per epoch: loss, validation metric, rate.

    Of more than 50 epochs those are shown that end a second after the last one shown, and the first and last.
    """

    def __init__(self) -> None:
        self._shown_at = -math.inf

    @rank_zero_only
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the line."""
        few = trainer.max_epochs is not None and 0 <= trainer.max_epochs <= _FEW
        if not (few or time.monotonic() - self._shown_at >= 1 or is_last_epoch(trainer)):
            return
        self._shown_at = time.monotonic()
        shown = [f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"]
        logged: dict[str, Any] = dict(trainer.callback_metrics)
        latest = getattr(pl_module, "latest_loss", None)
        if latest is not None:
            logged = {**logged, "train/loss": latest}
        for name in ("train/loss", "train/loss_epoch", getattr(pl_module, "monitor", "")):
            if name in logged:
                shown.append(f"{name} {float(logged[name]):.4f}")
        if rate := _rate(trainer):
            shown.append(f"{rate:.0f} {_unit(pl_module)}/s")
        console().print("  ".join(shown), highlight=False)


def _unit(pl_module: LightningModule) -> str:
    return str(getattr(pl_module, "unit", "queries"))


def _rate(trainer: Trainer) -> float:
    throughputs = [c for c in trainer.callbacks if isinstance(c, Throughput)]  # type: ignore[attr-defined]
    return throughputs[0].queries_per_s if throughputs else 0.0
