"""Stops training at the first loss or gradient that is not a number, before it reaches the weights."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from graphzoo.errors import NonFiniteError
from graphzoo.tasks.finite import (
    describe_weights,
    listed,
    not_finite,
    require_finite_weights,
    stopped,
    texts_of_processes,
    values_of_processes,
)

__all__ = ["NanGuard", "NonFiniteError", "check_saved_weights"]


def check_saved_weights(trainer: Trainer) -> None:
    """Raise `NonFiniteError` for bad weights, unless a `NanGuard` looks at those of every checkpoint."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    if not any(isinstance(callback, NanGuard) for callback in callbacks):
        require_finite_weights(trainer, trainer.lightning_module)


class NanGuard(Callback):
    """Checks the loss before each backward pass, the gradients before each step, the weights before saving.

    A network full of NaN trains on without a word, and some ranking formulas then call it perfect.
    """

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Raise `NonFiniteError` for a bad loss: with several processes in all of them, whose ever it is."""
        losses = values_of_processes(trainer, loss)  # one that stopped alone would leave others waiting
        good = torch.isfinite(losses)
        if bool(good.all()):
            return
        bad = int((~good).nonzero()[0])
        weights = texts_of_processes(trainer, describe_weights(pl_module))[bad]
        where = f" in process {bad}" if trainer.world_size > 1 else ""
        self._stop(trainer, f"the loss is {float(losses[bad])}{where}; {weights}")

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Raise `NonFiniteError` for a bad gradient. A loss scaler skips such steps itself."""
        if getattr(trainer.precision_plugin, "scaler", None) is not None:
            return
        gradients = {name: p.grad for name, p in pl_module.named_parameters() if p.grad is not None}
        if not gradients:
            return
        norms = torch.stack(torch._foreach_norm(list(gradients.values())))
        if bool(torch.isfinite(norms).all()):
            return
        if bad := not_finite(gradients):
            self._stop(trainer, f"the gradient of {listed(bad)} is not finite")
        huge = [name for name, norm in zip(gradients, norms, strict=True) if not bool(torch.isfinite(norm))]
        self._stop(trainer, f"the gradient of {listed(huge)} is too large: its norm is infinite")

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Raise `NonFiniteError` for bad weights, whoever writes the checkpoint."""
        require_finite_weights(trainer, pl_module)

    def _stop(self, trainer: Trainer, what: str) -> None:
        raise stopped(trainer, f"{what} (epoch {trainer.current_epoch}, step {trainer.global_step})")
