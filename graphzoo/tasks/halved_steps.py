"""Repeats a training step that runs out of memory in halves, with the same gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor

from graphzoo.system.memory import Halves

if TYPE_CHECKING:
    from graphzoo.tasks.base import Task


class HalvedSteps:
    """Losses and gradients of loader items. If memory runs out, those of an item's halves are added up.

    The step continues: gradients of earlier micro-batches stay, those of the failed backward pass are
    dropped. There is no second try with several processes, since DDP has already exchanged a part of the
    gradients, nor with float16, whose scaled loss cannot be released. Hooks on weights also see the gradients
    of the parts.

    Args:
        task: Has `part_loss` and `places_to_cut`.
        remedy: Line of the error for the case that a single sample is too much.
        can_repeat: Whether a training step computes `part_loss` and nothing else. If not, the loss is not
            computed again after a failed backward pass.
    """

    def __init__(self, task: Task, remedy: str, *, can_repeat: bool) -> None:
        self._task, self._halves, self._can_repeat = task, Halves("training", task.unit, remedy), can_repeat
        self._item: Any = None
        self._before: Tensor | None = None  # what the task had collected before this item

    @property
    def _can_halve(self) -> bool:
        trainer = self._task.trainer
        scales = getattr(trainer.precision_plugin, "scaler", None) is not None
        return isinstance(trainer.strategy, SingleDeviceStrategy) and not scales

    def loss(self, item: Any) -> Tensor:
        """The task's `part_loss` of a loader item."""
        task = self._task
        self._item, self._before = item, task.step_loss
        # `len` first: it does not wait for the device
        if len(item) <= self._halves.most or self._count() <= self._halves.most:
            try:
                return task.part_loss(item)
            except (MemoryError, RuntimeError, OSError) as error:
                if not self._can_halve:
                    raise
                self._halves.refuse(error, count := self._count(), count)
            self._halves.halve(count)  # outside of `except`: the error holds the tensors of the failed try
        return self._loss_of_halves()

    def backward(self, loss: Tensor, run: Callable[[Tensor], None]) -> None:
        """Let `run` add the gradients of the item's loss to those that exist already."""
        if self._item is None or not self._can_repeat or not self._can_halve:
            run(loss)
            return
        weights = self._weights()
        held = [weight.grad for weight in weights]
        for weight in weights:
            weight.grad = None
        try:
            run(loss)
        except (MemoryError, RuntimeError, OSError) as error:
            self._put_back(weights, held)
            self._halves.refuse(error, count := self._count(), count)
        else:
            self._put_back(weights, held, add=True)
            self._item = self._before = None
            return
        loss.detach_()  # frees the tensors that the step kept for its gradients
        self._halves.halve(count)
        trainer = self._task.trainer
        with trainer.precision_plugin.forward_context():
            again = self._loss_of_halves()
        run(again / trainer.accumulate_grad_batches)
        self._item = self._before = None

    def _weights(self) -> list[torch.nn.Parameter]:
        return [weight for weight in self._task.parameters() if weight.requires_grad]

    def _count(self) -> int:
        return len(self._task.places_to_cut(self._item)) - 1

    @staticmethod
    def _put_back(weights: list[torch.nn.Parameter], held: list[Tensor | None], *, add: bool = False) -> None:
        for weight, before in zip(weights, held, strict=True):
            if not add:
                weight.grad = before
            elif before is not None:
                weight.grad = before if weight.grad is None else before.add_(weight.grad)

    def _loss_of_halves(self) -> Tensor:
        """The loss of the item, computed in halves; its gradients are computed at the same time."""
        task, item, weights = self._task, self._item, self._weights()
        places = task.places_to_cut(item)
        sums: list[Tensor | None] = [None] * len(weights)
        task.step_loss = self._before

        def work(start: int, stop: int) -> Tensor:
            before = task.step_loss
            try:
                loss = task.part_loss(item.part(places[start], places[stop]))
                with torch.autocast(task.device.type, enabled=False):  # as outside of a step
                    gradients = torch.autograd.grad(loss, weights, allow_unused=True)
            except BaseException:
                task.step_loss = before
                raise
            for number, gradient in enumerate(gradients):
                if gradient is not None:
                    known = sums[number]
                    sums[number] = gradient if known is None else known + gradient
            return loss.detach()

        value = torch.stack(self._halves(work, len(places) - 1)).sum()
        result: Tensor = _Known.apply(value, sums, *weights)  # type: ignore[no-untyped-call]
        return result


class _Known(torch.autograd.Function):
    """A value whose gradients were computed before."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: list[Tensor | None], *weights: Tensor) -> Tensor:
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, []
        return None, None, *(None if gradient is None else gradient * scale for gradient in gradients)
