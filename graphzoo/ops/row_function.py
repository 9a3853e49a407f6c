"""Autograd of the fast row operations, which avoids the dispatcher: it takes longer than a small kernel."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd.function import Function, once_differentiable


class RowFunction(Function):
    """An operation of a backend: `apply(kernels, ...)` takes its module and the arguments of `forward`."""

    @staticmethod
    def forward(
        ctx: Any, kernels: Any, rows: Tensor | None, more: Tensor | None, *parameters: Tensor | None
    ) -> Tensor:
        """See `forward` of the backends."""
        rows, more = (None if part is None else part.contiguous() for part in (rows, more))
        ctx.save_for_backward(rows, more, *parameters)
        ctx.kernels = kernels
        out: Tensor = kernels.forward(rows, more, *parameters)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """See `gradient` of the backends."""
        return None, *ctx.kernels.gradient(grad.detach().contiguous(), *ctx.saved_tensors)
