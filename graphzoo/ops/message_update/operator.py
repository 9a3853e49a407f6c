"""The CPU backend as operators, for `torch.compile`, `torch.export` and fake tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["message_update"]

_ARGUMENTS = (
    "Tensor z, Tensor aggregated, Tensor alpha, Tensor w1, Tensor b1, Tensor w2, Tensor b2, Tensor weight, "
    "Tensor bias"
)


def message_update(z: Tensor, aggregated: Tensor, parameters: tuple[Tensor, ...]) -> Tensor:
    """See `graphzoo.ops.message_update.message_update`."""
    out: Tensor = torch.ops.graphzoo.message_update(z, aggregated, *parameters)
    return out


@torch.library.custom_op("graphzoo::message_update", mutates_args=(), schema=f"({_ARGUMENTS}) -> Tensor")
def _forward(z: Tensor, aggregated: Tensor, *parameters: Tensor) -> Tensor:
    from graphzoo.ops.message_update.numba import forward

    return forward(z.contiguous(), aggregated.contiguous(), *parameters)


@_forward.register_fake
def _(z: Tensor, *others: Tensor) -> Tensor:
    return torch.empty_like(z, memory_format=torch.contiguous_format)


@torch.library.custom_op(
    "graphzoo::message_update_gradient",
    mutates_args=(),
    schema=f"(Tensor grad, {_ARGUMENTS}) -> ({', '.join(['Tensor'] * 9)})",
)
def _backward(grad: Tensor, z: Tensor, aggregated: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
    from graphzoo.ops.message_update.numba import gradient

    return gradient(grad.contiguous(), z.contiguous(), aggregated.contiguous(), *parameters)


@_backward.register_fake
def _(grad: Tensor, *arguments: Tensor) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in arguments)


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradient(ctx: Any, grad: Tensor) -> Any:
    return torch.ops.graphzoo.message_update_gradient(grad, *ctx.saved_tensors)


_forward.register_autograd(_gradient, setup_context=_keep)
