"""The fast backends for autograd: without the dispatcher, which takes longer than a small kernel."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd.function import Function, once_differentiable


class StateMLP(Function):
    """`apply(kernels, ...)` takes the module of a backend, and the arguments of its `forward`."""

    @staticmethod
    def forward(
        ctx: Any, kernels: Any, x: Tensor | None, extra: Tensor | None, *parameters: Tensor | None
    ) -> Tensor:
        """See `forward` of the backends."""
        x, extra = (None if part is None else part.contiguous() for part in (x, extra))
        ctx.save_for_backward(x, extra, *parameters)
        ctx.kernels = kernels
        out: Tensor = kernels.forward(x, extra, *parameters)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """See `gradient` of the backends."""
        return None, *ctx.kernels.gradient(grad.detach().contiguous(), *ctx.saved_tensors)
