"""What a run shows: a bar with loss and queries/s on a terminal, and one line per epoch everywhere."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from lightning.pytorch.utilities import rank_zero_only
from rich import get_console

from graphzoo.callbacks.throughput import Throughput

__all__ = ["EpochLines", "ProgressBar"]


class ProgressBar(RichProgressBar):
    """Lightning's Rich bar with the rate of `Throughput` beside loss and validation metric."""

    def __init__(self) -> None:
        super().__init__(leave=False, console_kwargs={})

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """Loss, validation metric and queries/s."""
        metrics: dict[str, Any] = dict(super().get_metrics(trainer, pl_module))
        metrics.pop("v_num", None)
        if rate := _rate(trainer):
            metrics["queries/s"] = f"{rate:.0f}"
        return metrics


class EpochLines(Callback):
    """Prints one line per epoch: loss, validation metric, rate."""

    @rank_zero_only
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the line."""
        shown = [f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"]
        monitor = getattr(pl_module, "monitor", "")
        for name in ("train/loss", "train/loss_epoch", monitor):
            if name in trainer.callback_metrics:
                shown.append(f"{name} {float(trainer.callback_metrics[name]):.4f}")
        if rate := _rate(trainer):
            shown.append(f"{rate:.0f} queries/s")
        get_console().print("  ".join(shown), highlight=False)


def _rate(trainer: Trainer) -> float:
    found = [c for c in trainer.callbacks if isinstance(c, Throughput)]  # type: ignore[attr-defined]
    return found[0].queries_per_s if found else 0.0
