"""The CPU backend as operators, for `torch.compile`, `torch.export` and fake tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["state_mlp"]

_ARGUMENTS = "Tensor? x, Tensor? extra, Tensor weight, Tensor? extra_weight, Tensor b1, Tensor w2, Tensor b2"


def state_mlp(
    x: Tensor | None,
    extra: Tensor | None,
    weight: Tensor,
    extra_weight: Tensor | None,
    parameters: tuple[Tensor, Tensor, Tensor],
) -> Tensor:
    """See `graphzoo.ops.state_mlp.state_mlp`."""
    out: Tensor = torch.ops.graphzoo.state_mlp(x, extra, weight, extra_weight, *parameters)
    return out


@torch.library.custom_op("graphzoo::state_mlp", mutates_args=(), schema=f"({_ARGUMENTS}) -> Tensor")
def _forward(x: Tensor | None, extra: Tensor | None, *parameters: Tensor | None) -> Tensor:
    from graphzoo.ops.state_mlp.numba import forward

    return forward(_contiguous(x), _contiguous(extra), *parameters)


@_forward.register_fake
def _(x: Tensor | None, extra: Tensor | None, *parameters: Tensor | None) -> Tensor:
    some, b1 = x if x is not None else extra, parameters[2]
    assert some is not None and b1 is not None
    return b1.new_empty(*some.shape[:2], b1.shape[0])


@torch.library.custom_op(
    "graphzoo::state_mlp_gradient",
    mutates_args=(),
    schema=f"(Tensor grad, {_ARGUMENTS}) -> ({', '.join(['Tensor'] * 6)})",
)
def _backward(
    grad: Tensor, x: Tensor | None, extra: Tensor | None, *parameters: Tensor | None
) -> tuple[Tensor, ...]:
    """Gradients of all but `extra`; empty for what is not there: an operator returns tensors."""
    from graphzoo.ops.state_mlp.numba import gradient

    grad = grad.contiguous()
    by_x, _, *others = gradient(grad, _contiguous(x), _contiguous(extra), *parameters)
    return tuple(grad.new_empty(0) if part is None else part for part in (by_x, *others))


@_backward.register_fake
def _(grad: Tensor, x: Tensor | None, extra: Tensor | None, *parameters: Tensor | None) -> tuple[Tensor, ...]:
    return tuple(
        grad.new_empty(0) if part is None else torch.empty_like(part, memory_format=torch.contiguous_format)
        for part in (x, *parameters)
    )


def _contiguous(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


def _keep(ctx: Any, inputs: tuple[Tensor | None, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, extra, *parameters = ctx.saved_tensors
    by_x, *others = torch.ops.graphzoo.state_mlp_gradient(grad, x, extra, *parameters)
    given = (None if part is None else found for part, found in zip(parameters, others, strict=True))
    return None if x is None else by_x, None, *given


_forward.register_autograd(_gradient, setup_context=_keep)
