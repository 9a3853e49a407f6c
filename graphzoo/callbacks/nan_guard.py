"""Stops training at the first loss or gradient that is no number, before it reaches the weights."""

from __future__ import annotations

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.optim import Optimizer

__all__ = ["NanGuard", "NonFiniteError"]


class NonFiniteError(ArithmeticError, ValueError):
    """A loss or gradient is NaN or infinite."""


class NanGuard(Callback):
    """Checks the loss before each backward pass and the gradients before each step.

    A network full of NaN trains on without a word, and some ranking formulas then call it perfect.
    """

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Raise `NonFiniteError` for a bad loss."""
        if not torch.isfinite(loss.detach()).all():
            bad = _first_bad({name: value.detach() for name, value in pl_module.named_parameters()})
            where = f"the weights of {bad} are not finite" if bad else "all weights are finite still"
            self._stop(trainer, f"the loss is {float(loss.detach())}; {where}")

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        """Raise `NonFiniteError` for a bad gradient. A loss scaler skips such steps itself."""
        if getattr(trainer.precision_plugin, "scaler", None) is not None:
            return
        gradients = {name: p.grad for name, p in pl_module.named_parameters() if p.grad is not None}
        if not gradients:
            return
        norms = torch.stack(torch._foreach_norm(list(gradients.values())))
        if not torch.isfinite(norms).all():
            self._stop(trainer, f"the gradient of {_first_bad(gradients)} is not finite")

    def _stop(self, trainer: Trainer, what: str) -> None:
        raise NonFiniteError(
            f"{what} (epoch {trainer.current_epoch}, step {trainer.global_step})\n"
            "Lower --model.lr or add --trainer.gradient_clip_val 1.0"
        )


def _first_bad(values: dict[str, Tensor]) -> str:
    return next((name for name, value in values.items() if not torch.isfinite(value).all()), "")
