"""Whether the device has enough memory to train a model, checked before it is allocated; and remedies."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.nn.parameter import is_lazy

from graphzoo.system.memory import available_bytes, refuse_what_cannot_fit
from graphzoo.tasks.base import Task

SMALLER_MODEL = "Take a smaller --model.encoder.hidden_channels or --model.encoder.num_layers"
"""The remedy when weights and optimiser alone are too large: a smaller batch would not help."""


def refuse_untrainable(trainer: Trainer, module: LightningModule) -> None:
    """Refuse a model whose weights, gradients and moments alone exceed the memory; the data are set up.

    An encoder that is not built yet is counted without memory for its weights, if its class allows that.
    """
    part: nn.Module = module
    if isinstance(module, Task) and module.encoder is None:
        with trainer.precision_plugin.module_init_context():
            outline = module.outline()
        if outline is None:
            return
        part = outline
    weights = _sized(part)
    learned = [p for p in weights if p.requires_grad]
    # All tasks use Adam, which keeps two moments of each weight, unless another optimiser replaces it.
    adam = isinstance(module, Task) and "configure_optimizers" not in vars(module)
    kept, beside = (3, ", gradients and Adam's two moments") if adam else (1, " and gradients")
    refuse_what_cannot_fit(
        _bytes(weights) + kept * _bytes(learned),
        trainer.strategy.root_device,
        f"training {sum(p.numel() for p in learned):,} parameters (weights{beside} alone)",
        SMALLER_MODEL,
    )


def what_takes_less(task: Task, error: BaseException) -> str:
    """The remedy when memory ran out, one line: `less_memory`, unless no batch is small enough."""
    if task.encoder is None or _came_from_optimizer(error):
        return SMALLER_MODEL
    available = available_bytes(task.device)
    if available is not None and task.device.type == "cuda":
        available += torch.cuda.memory_allocated(task.device)
    # weights, gradients and Adam's two moments
    needed = 4 * _bytes([p for p in _sized(task) if p.requires_grad])
    return SMALLER_MODEL if available is not None and needed > available else task.less_memory


def _sized(module: nn.Module) -> list[nn.Parameter]:
    """The weights, without those of lazy modules, which have no size before the first batch."""
    return [p for p in module.parameters() if not is_lazy(p)]


def _bytes(weights: Sequence[nn.Parameter]) -> int:
    return sum(p.numel() * p.element_size() for p in weights)


def _came_from_optimizer(error: BaseException) -> bool:
    """Whether an error was raised by the optimiser's own step, not by the model inside of it."""
    frames = list(traceback.walk_tb(error.__traceback__))
    module = frames[-1][0].f_globals.get("__name__", "") if frames else ""
    return bool(module.startswith(("torch.optim.", "torch.utils._foreach")))
