"""The fast backends as operators `graphzoo::...`, for compilers, exported programs and fake tensors."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

_ARGUMENTS = (
    "Tensor z, Tensor aggregated, Tensor alpha, Tensor w1, Tensor b1, Tensor w2, Tensor b2, Tensor weight, "
    "Tensor bias, str backend"
)


def kernels_of(backend: str) -> Any:
    """Import the module of a fast backend, "numba" or "triton"."""
    return import_module(f"graphzoo.ops.message_update.{backend}")


@torch.library.custom_op("graphzoo::message_update", mutates_args=(), schema=f"({_ARGUMENTS}) -> Tensor")
def _forward(z: Tensor, aggregated: Tensor, *settings: Any) -> Tensor:
    *parameters, backend = settings
    out: Tensor = kernels_of(backend).forward(z.contiguous(), aggregated.contiguous(), *parameters)
    return out


@_forward.register_fake
def _(z: Tensor, *others: Any) -> Tensor:
    return torch.empty_like(z, memory_format=torch.contiguous_format)


@torch.library.custom_op(
    "graphzoo::message_update_gradient",
    mutates_args=(),
    schema=f"(Tensor grad, {_ARGUMENTS}) -> ({', '.join(['Tensor'] * 9)})",
)
def _backward(grad: Tensor, z: Tensor, aggregated: Tensor, *settings: Any) -> tuple[Tensor, ...]:
    *parameters, backend = settings
    rows = grad.contiguous(), z.contiguous(), aggregated.contiguous()
    gradients: tuple[Tensor, ...] = kernels_of(backend).gradient(*rows, *parameters)
    return gradients


@_backward.register_fake
def _(grad: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in arguments[:-1])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.backend = inputs
    ctx.save_for_backward(*tensors)


def _gradient(ctx: Any, grad: Tensor) -> Any:
    gradients = torch.ops.graphzoo.message_update_gradient(grad, *ctx.saved_tensors, ctx.backend)
    return *gradients, None


_forward.register_autograd(_gradient, setup_context=_keep)
