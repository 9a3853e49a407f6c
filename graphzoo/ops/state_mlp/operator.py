"""The fast backends as operators `graphzoo::...`, for compilers, exported programs and fake tensors."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

_ARGUMENTS = (
    "Tensor? x, Tensor? extra, Tensor weight, Tensor? extra_weight, Tensor b1, Tensor w2, Tensor b2, "
    "str backend"
)


def kernels_of(backend: str) -> Any:
    """Import the module of a fast backend, "numba" or "triton"."""
    return import_module(f"graphzoo.ops.state_mlp.{backend}")


@torch.library.custom_op("graphzoo::state_mlp", mutates_args=(), schema=f"({_ARGUMENTS}) -> Tensor")
def _forward(x: Tensor | None, extra: Tensor | None, *settings: Any) -> Tensor:
    *parameters, backend = settings
    out: Tensor = kernels_of(backend).forward(_contiguous(x), _contiguous(extra), *parameters)
    return out


@_forward.register_fake
def _(x: Tensor | None, extra: Tensor | None, *settings: Any) -> Tensor:
    some, b1 = x if x is not None else extra, settings[2]
    assert some is not None
    return some.new_empty(*some.shape[:2], b1.shape[0])


@torch.library.custom_op(
    "graphzoo::state_mlp_gradient",
    mutates_args=(),
    schema=f"(Tensor grad, {_ARGUMENTS}) -> ({', '.join(['Tensor'] * 6)})",
)
def _backward(grad: Tensor, x: Tensor | None, extra: Tensor | None, *settings: Any) -> tuple[Tensor, ...]:
    """Gradients of all tensors except `extra`; an empty tensor for those that are None.

    An operator cannot return None.
    """
    *parameters, backend = settings
    grad = grad.contiguous()
    by_x, _, *others = kernels_of(backend).gradient(grad, _contiguous(x), _contiguous(extra), *parameters)
    return tuple(grad.new_empty(0) if part is None else part for part in (by_x, *others))


@_backward.register_fake
def _(grad: Tensor, x: Tensor | None, extra: Tensor | None, *settings: Any) -> tuple[Tensor, ...]:
    return tuple(
        grad.new_empty(0) if part is None else torch.empty_like(part, memory_format=torch.contiguous_format)
        for part in (x, *settings[:-1])
    )


def _contiguous(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.backend = inputs
    ctx.save_for_backward(*tensors)


def _gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, extra, *parameters = ctx.saved_tensors
    by_x, *others = torch.ops.graphzoo.state_mlp_gradient(grad, x, extra, *parameters, ctx.backend)
    given = (None if part is None else found for part, found in zip(parameters, others, strict=True))
    return None if x is None else by_x, None, *given, None


_forward.register_autograd(_gradient, setup_context=_keep)
