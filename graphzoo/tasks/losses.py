"""Logs the training loss of each step, or its mean over an epoch that has few steps."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.optim import Optimizer


class LogsLosses(LightningModule):
    """A LightningModule that logs the mean loss of each global batch, which it may get in parts.

    A checkpoint from the middle of an epoch has the sums of its losses. If it is resumed, the task calls
    `_resume_losses`, so that it logs the same as without the stop.

    Attributes:
        step_loss: Sum of losses and number of samples so far in this step and process, each divided by the
            size of the global batch, [2], float32; None before the first part.
    """

    def __init__(self) -> None:
        super().__init__()
        self.step_loss: Tensor | None = None
        self._has_samples = False  # whether this process had any in this step
        self._sums: dict[str, tuple[Tensor, int]] = {}
        self._latest_loss: Tensor | None = None

    @property
    def logs_epochs(self) -> bool:
        """Whether an epoch has so few steps that the mean of its losses is logged, not each of them."""
        return False

    @property
    def latest_loss(self) -> Tensor | None:
        """`train/loss` of the last step, or its mean over the epoch so far if `logs_epochs`; None at first.

        Lightning shows a callback only values that were logged before its hook. At the end of an epoch that
        would be the loss of the previous epoch.
        """
        total, count = self._sums.get("train/loss", (None, 1))
        return self._latest_loss if total is None else total / count

    def configure_model(self) -> None:
        """Forget losses that are left from a fit that ended in the middle of an epoch."""
        self._sums, self.step_loss, self._latest_loss = {}, None, None
        self._has_samples = False

    def collect_loss(self, losses: Tensor, num_global: int) -> None:
        """Add the losses [B] of a part of the global batch to `train/loss`, which is logged once per step.

        A step without samples logs nothing: a part of a graph may have no training nodes (`num_global` is 0),
        and the answers of all queries may lie outside their neighbourhoods.
        """
        if not num_global:
            return
        self._has_samples = self._has_samples or losses.numel() > 0
        total = losses.detach().float().sum()
        part = torch.stack([total, total.new_full((), losses.numel())]) / num_global
        self.step_loss = part if self.step_loss is None else self.step_loss + part

    def log_training(self, name: str, value: Tensor) -> None:
        """Log a value of one step, or its mean over the epoch if `logs_epochs`.

        Lightning's own mean (`on_epoch=True`) would start again if an epoch is resumed in its middle. With
        several processes the value of the first one is logged.
        """
        if name == "train/loss":
            self._latest_loss = value.detach()
        if not self.logs_epochs:
            self._log_now(name, value)
            return
        total, count = self._sums.get(name, (torch.zeros_like(value), 0))
        self._sums[name] = (total + value, count + 1)

    def _log_now(self, name: str, value: Tensor) -> None:
        self.log(name, value, prog_bar=name == "train/loss", batch_size=1, sync_dist=False)

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Log the mean loss of the step's global batch as `train/loss`, the same in every process."""
        if self.step_loss is None:
            return
        total, share = self.trainer.strategy.reduce(self.step_loss, reduce_op="sum")
        self.step_loss, has_samples, self._has_samples = None, self._has_samples, False
        if has_samples or float(share):  # waits for the device only without samples in this process
            self.log_training("train/loss", total / share.clamp(min=1e-12))

    def on_train_epoch_end(self) -> None:
        """Log the means over the epoch."""
        sums, self._sums = self._sums, {}
        for name, (total, count) in sums.items():
            self._log_now(name, total / count)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the sums of losses of an unfinished epoch."""
        if self._sums:
            checkpoint["graphzoo_sums"] = {name: [*pair] for name, pair in self._sums.items()}

    def _resume_losses(self, checkpoint: dict[str, Any]) -> None:
        """Continue the sums of an unfinished epoch."""
        sums = checkpoint.get("graphzoo_sums", {})
        self._sums = {name: (total, int(count)) for name, (total, count) in sums.items()}
