"""Stops training at the first loss or gradient that is not a number, before it reaches the weights."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from graphzoo.tasks.finite import (
    describe_weights,
    listed,
    not_finite,
    require_finite_weights,
    stopped,
    texts_of_processes,
    values_of_processes,
)


def check_saved_weights(trainer: Trainer) -> None:
    """Raise `NonFiniteError` for bad weights, unless a `NanGuard` looks at those of every checkpoint."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    if not any(isinstance(callback, NanGuard) for callback in callbacks):
        require_finite_weights(trainer, trainer.lightning_module)


class NanGuard(Callback):
    """Checks the loss before each backward pass, the gradients before each step, the weights before saving.

    Without it, a network full of NaN keeps training silently, and some formulas for ranks call it perfect.

    To read a number from a GPU, the host has to wait for all earlier computations. So losses stay there and
    are checked together with the gradients, once a step. That is before the weights change.
    """

    def __init__(self) -> None:
        self._loss: Tensor | None = None  # of the step so far: its first bad one, else the latest

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget a step that an earlier fit has not ended."""
        self._loss = None

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Raise `NonFiniteError` for a bad loss; if any process has one, all of them raise."""
        loss = loss.detach().reshape(1)
        if _is_waited_for(loss):
            self._loss = loss if self._loss is None else torch.where(self._loss.isfinite(), loss, self._loss)
            return
        losses = values_of_processes(trainer, loss)  # one that stopped alone would leave others waiting
        if not bool(torch.isfinite(losses).all()):
            self._stop_at_loss(trainer, pl_module, losses)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Raise `NonFiniteError` for a bad gradient. A loss scaler skips such steps itself."""
        # A GPU's losses of the step, and below them the norms of the gradients: one look at all of them.
        loss, self._loss = self._loss, None
        losses = None if loss is None else values_of_processes(trainer, loss)
        gradients = {name: p.grad for name, p in pl_module.named_parameters() if p.grad is not None}
        if getattr(trainer.precision_plugin, "scaler", None) is not None:
            gradients = {}
        norms = torch.stack(torch._foreach_norm(list(gradients.values()))) if gradients else None
        seen = [torch.isfinite(values).all() for values in (losses, norms) if values is not None]
        if not seen or bool(torch.stack([flag.to(seen[0].device) for flag in seen]).all()):
            return
        if losses is not None and not bool(seen[0]):
            self._stop_at_loss(trainer, pl_module, losses)
        if bad := not_finite(gradients):
            self._stop(trainer, f"the gradient of {listed(bad)} is not finite")
        assert norms is not None
        huge = [name for name, norm in zip(gradients, norms, strict=True) if not bool(torch.isfinite(norm))]
        self._stop(trainer, f"the gradient of {listed(huge)} is too large: its norm is infinite")

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Raise `NonFiniteError` for bad weights, whoever writes the checkpoint."""
        require_finite_weights(trainer, pl_module)

    def _stop_at_loss(self, trainer: Trainer, pl_module: LightningModule, losses: Tensor) -> None:
        """Stop for the losses of all processes, [W], one of which is bad; every process calls this."""
        bad = int((~torch.isfinite(losses)).nonzero()[0])
        weights = texts_of_processes(trainer, describe_weights(pl_module))[bad]
        where = f" in process {bad}" if trainer.world_size > 1 else ""
        self._stop(trainer, f"the loss is {float(losses[bad])}{where}; {weights}")

    def _stop(self, trainer: Trainer, what: str) -> None:
        raise stopped(trainer, f"{what} (epoch {trainer.current_epoch}, step {trainer.global_step})")


def _is_waited_for(value: Tensor) -> bool:
    """Whether the host has to wait for a value, because it is on another device."""
    return value.device.type != "cpu"
