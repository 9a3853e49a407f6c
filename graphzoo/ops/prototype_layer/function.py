"""Autograd of the fast backends, which avoids the dispatcher: it takes longer than a small kernel."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from graphzoo.ops.prototype_layer.dropout import RowDropout
from graphzoo.ops.relational_spmm.query_graph import arranged


class Sums(Function):
    """Sums of keys, of key-value products and of values; `kernels` is the module of a backend."""

    @staticmethod
    def forward(
        ctx: Any, kernels: Any, num_heads: int, states: Tensor, value: Tensor, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor, ...]:
        """See `sums` of the backends."""
        states, value = arranged(states, states), arranged(value, states)
        ctx.save_for_backward(states, value, weight, bias)
        ctx.kernels, ctx.num_heads = kernels, num_heads
        sums: tuple[Tensor, ...] = kernels.sums(states, value, weight, bias, num_heads)
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """See `sums_gradient` of the backends."""
        return None, None, *ctx.kernels.sums_gradient(grads, *ctx.saved_tensors, ctx.num_heads)


class Attend(Function):
    """Attention from the sums, then the feed-forward network; for `shared` see `attend` of the backends."""

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
        """See `attend` of the backends."""
        states, value = arranged(states, states), arranged(value, states)
        skip = None if skip is None else arranged(skip, states)
        ctx.save_for_backward(states, value, skip, *shared)
        ctx.kernels, ctx.num_heads, ctx.masks = kernels, num_heads, kernels.masks(dropout, states)
        out: Tensor = kernels.attend(states, value, skip, shared, num_heads, ctx.masks)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """See `attend_gradient` of the backends."""
        states, value, skip, *shared = ctx.saved_tensors
        rows = arranged(grad, states), states, value, skip
        return None, None, None, *ctx.kernels.attend_gradient(*rows, shared, ctx.num_heads, ctx.masks)
