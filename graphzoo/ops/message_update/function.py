"""The fast backends for autograd: without the dispatcher, which takes longer than a small kernel."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd.function import Function, once_differentiable


class MessageUpdate(Function):
    """`apply(kernels, ...)` takes the module of a backend, and the arguments of its `forward`."""

    @staticmethod
    def forward(ctx: Any, kernels: Any, z: Tensor, aggregated: Tensor, *parameters: Tensor) -> Tensor:
        """See `forward` of the backends."""
        z, aggregated = z.contiguous(), aggregated.contiguous()
        ctx.save_for_backward(z, aggregated, *parameters)
        ctx.kernels = kernels
        out: Tensor = kernels.forward(z, aggregated, *parameters)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """See `gradient` of the backends."""
        return None, *ctx.kernels.gradient(grad.contiguous(), *ctx.saved_tensors)
