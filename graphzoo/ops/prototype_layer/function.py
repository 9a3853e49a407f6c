"""The fast backends for autograd: without the dispatcher, which takes longer than a small kernel."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from graphzoo.ops.prototype_layer.dropout import RowDropout
from graphzoo.ops.relational_spmm.query_graph import arranged


def prototype_layer(
    states: Tensor,
    value: Tensor,
    skip: Tensor | None,
    query_key: tuple[Tensor, Tensor],
    parameters: tuple[Tensor, ...],
    num_heads: int,
    dropout: RowDropout | None,
    kernels: Any,
) -> Tensor:
    """See `graphzoo.ops.prototype_layer.prototype_layer`; `kernels` is the module of a backend."""
    channels = states.shape[-1]
    weight, bias = query_key
    sums = _Sums.apply(kernels, num_heads, states, value, weight[channels:], bias[channels:])  # type: ignore[no-untyped-call]
    shared = weight[:channels], bias[:channels], *sums, *parameters
    out: Tensor = _Attend.apply(kernels, num_heads, dropout, states, value, skip, *shared)  # type: ignore[no-untyped-call]
    return out


class _Sums(Function):
    """`(states, value, weight, bias of the keys) -> sums of keys, of key-value products, of values`."""

    @staticmethod
    def forward(
        ctx: Any, kernels: Any, num_heads: int, states: Tensor, value: Tensor, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor, ...]:
        states, value = arranged(states, states), arranged(value, states)
        ctx.save_for_backward(states, value, weight, bias)
        ctx.kernels, ctx.num_heads = kernels, num_heads
        sums: tuple[Tensor, ...] = kernels.sums(states, value, weight, bias, num_heads)
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *ctx.kernels.sums_gradient(grads, *ctx.saved_tensors, ctx.num_heads)


class _Attend(Function):
    """Attention from the sums, and the feed-forward network."""

    @staticmethod
    def forward(
        ctx: Any,
        kernels: Any,
        num_heads: int,
        dropout: RowDropout | None,
        states: Tensor,
        value: Tensor,
        skip: Tensor | None,
        *shared: Tensor,
    ) -> Tensor:
        states, value = arranged(states, states), arranged(value, states)
        skip = None if skip is None else arranged(skip, states)
        ctx.save_for_backward(states, value, skip, *shared)
        ctx.kernels, ctx.num_heads, ctx.masks = kernels, num_heads, kernels.masks(dropout, states)
        out: Tensor = kernels.attend(states, value, skip, shared, num_heads, ctx.masks)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        states, value, skip, *shared = ctx.saved_tensors
        rows = arranged(grad, states), states, value, skip
        return None, None, None, *ctx.kernels.attend_gradient(*rows, shared, ctx.num_heads, ctx.masks)
