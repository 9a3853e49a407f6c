"""The fast backends as operators, for `torch.compile`, `torch.export` and fake tensors."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from graphzoo.ops.prototype_layer.dropout import RowDropout
from graphzoo.ops.relational_spmm.query_graph import arranged

_NUM_SHARED = 13  # weight and bias of the queries, three sums, eight parameters
_ROWS = "Tensor states, Tensor value"
_SHARED = ", ".join(f"Tensor shared{i}" for i in range(_NUM_SHARED))
_ATTEND = f"str backend, int num_heads, float p, Tensor? keys, {_ROWS}, Tensor? skip, {_SHARED}"


def kernels_of(backend: str) -> Any:
    """Import the module of a fast backend, "numba" or "triton"."""
    return import_module(f"graphzoo.ops.prototype_layer.{backend}")


@torch.library.custom_op(
    "graphzoo::prototype_sums",
    mutates_args=(),
    schema=f"({_ROWS}, Tensor weight, Tensor bias, int num_heads, str backend) -> (Tensor, Tensor, Tensor)",
)
def _sums(states: Tensor, value: Tensor, *settings: Any) -> tuple[Tensor, ...]:
    *others, backend = settings
    rows = arranged(states, states), arranged(value, states)
    found: tuple[Tensor, ...] = kernels_of(backend).sums(*rows, *others)
    return found


@_sums.register_fake
def _(states: Tensor, *others: Any) -> tuple[Tensor, ...]:
    _, num_queries, channels = states.shape
    shapes = (num_queries, channels), (num_queries, channels, channels), (num_queries, channels)
    dtype = torch.float32 if others[-1] == "triton" else states.dtype
    return tuple(states.new_empty(shape, dtype=dtype) for shape in shapes)


@torch.library.custom_op(
    "graphzoo::prototype_sums_gradient",
    mutates_args=(),
    schema=f"(Tensor by_key, Tensor by_product, Tensor by_value, {_ROWS}, Tensor weight, Tensor bias, "
    "int num_heads, str backend) -> (Tensor, Tensor, Tensor, Tensor)",
)
def _sums_backward(
    by_key: Tensor, by_product: Tensor, by_value: Tensor, states: Tensor, value: Tensor, *settings: Any
) -> tuple[Tensor, ...]:
    *others, backend = settings
    grads, rows = (by_key, by_product, by_value), (arranged(states, states), arranged(value, states))
    gradients: tuple[Tensor, ...] = kernels_of(backend).sums_gradient(grads, *rows, *others)
    return gradients


@_sums_backward.register_fake
def _(
    by_key: Tensor, by_product: Tensor, by_value: Tensor, states: Tensor, value: Tensor, *settings: Any
) -> tuple[Tensor, ...]:
    weight, bias, *_ = settings
    return _like_rows(states), _like_rows(states), weight.new_empty(weight.shape), bias.new_empty(bias.shape)


def _keep_sums(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.settings = inputs[4:]


def _sums_gradient(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    gradients = torch.ops.graphzoo.prototype_sums_gradient(*grads, *ctx.saved_tensors, *ctx.settings)
    return *gradients, None, None


_sums.register_autograd(_sums_gradient, setup_context=_keep_sums)


@torch.library.custom_op("graphzoo::prototype_attend", mutates_args=(), schema=f"({_ATTEND}) -> Tensor")
def _attend(
    backend: str,
    num_heads: int,
    p: float,
    keys: Tensor | None,
    states: Tensor,
    value: Tensor,
    skip: Tensor | None,
    *shared: Tensor,
) -> Tensor:
    kernels = kernels_of(backend)
    states, value = arranged(states, states), arranged(value, states)
    skip = None if skip is None else arranged(skip, states)
    drawn = kernels.masks(None if keys is None else RowDropout(p, keys), states)
    out: Tensor = kernels.attend(states, value, skip, shared, num_heads, drawn)
    return out


@_attend.register_fake
def _(backend: str, num_heads: int, p: float, keys: Tensor | None, states: Tensor, *others: Any) -> Tensor:
    return _like_rows(states)


@torch.library.custom_op(
    "graphzoo::prototype_attend_gradient",
    mutates_args=(),
    schema=f"(Tensor grad, {_ATTEND}) -> ({', '.join(['Tensor'] * (3 + _NUM_SHARED))})",
)
def _attend_backward(
    grad: Tensor,
    backend: str,
    num_heads: int,
    p: float,
    keys: Tensor | None,
    states: Tensor,
    value: Tensor,
    skip: Tensor | None,
    *shared: Tensor,
) -> tuple[Tensor, ...]:
    """Gradients of all floating-point tensors; an empty tensor if `skip` is None."""
    kernels = kernels_of(backend)
    states, value = arranged(states, states), arranged(value, states)
    grad = arranged(grad, states)
    skip = None if skip is None else arranged(skip, states)
    drawn = kernels.masks(None if keys is None else RowDropout(p, keys), states)
    gradients = kernels.attend_gradient(grad, states, value, skip, shared, num_heads, drawn)
    return tuple(grad.new_empty(0) if part is None else part for part in gradients)


@_attend_backward.register_fake
def _(
    grad: Tensor,
    backend: str,
    num_heads: int,
    p: float,
    keys: Tensor | None,
    states: Tensor,
    value: Tensor,
    skip: Tensor | None,
    *shared: Tensor,
) -> tuple[Tensor, ...]:
    by_skip = grad.new_empty(0) if skip is None else _like_rows(states)
    return _like_rows(states), _like_rows(states), by_skip, *(x.new_empty(x.shape) for x in shared)


def _keep_attend(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.settings = inputs[:3]
    ctx.save_for_backward(*inputs[3:])


def _attend_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    gradients = torch.ops.graphzoo.prototype_attend_gradient(grad, *ctx.settings, *ctx.saved_tensors)
    by_states, by_value, by_skip, *by_shared = gradients
    by_skip = None if ctx.saved_tensors[3] is None else by_skip
    return None, None, None, None, by_states, by_value, by_skip, *by_shared


_attend.register_autograd(_attend_gradient, setup_context=_keep_attend)


def _like_rows(states: Tensor) -> Tensor:
    """A new tensor [N, B, D] with the memory layout of `states`."""
    return torch.empty_like(arranged(states, states))
