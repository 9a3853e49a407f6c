"""Softmax attention with padding, and with dropout that does not use the global random state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable
from torch.nn import functional as F

from graphzoo.errors import check_range
from graphzoo.layers.noise import draw_kept
from graphzoo.ops.eager import run_eagerly


def masked_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    p: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """`scaled_dot_product_attention` with dropout of the attention weights from a given generator.

    Without dropout, and on CUDA, this calls torch's function. Its CUDA kernels draw from the device's global
    generator. So this gets the state of `generator` during the call, and then its own state back. On other
    devices torch has no fused kernel with dropout. There graphzoo's own function stores one matrix [Q, T] per
    head for the backward pass; its dropout does not depend on the number of threads.

    Args:
        query: [B, H, Q, D].
        key: [B, H, T, D].
        value: [B, H, T, E].
        mask: True for keys that are attended to, at least one in each row, [B, T], bool; None for all.
        p: Probability of dropping a weight, in [0, 1).
        generator: Generator on the device of `query`; needed only with dropout.

    Returns:
        [B, H, Q, E].

    Raises:
        ValueError: if `p` is out of range, or above 0 without a generator.
    """
    check_range(at_least=0, below=1, p=p)
    allowed = None if mask is None else mask[:, None, None]
    if p == 0:
        with _without_cudnn(query):
            return F.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
    if generator is None:
        raise ValueError("dropout needs a generator in training, such as NoiseStream.generator(...)")
    if query.device.type == "cuda":
        return _attend_with_global_noise(query, key, value, allowed, p, generator)
    return _attend_with_own_noise(query, key, value, mask, p, generator)


@run_eagerly
def _attend_with_global_noise(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, p: float, generator: torch.Generator
) -> Tensor:
    with _global_state_of(generator), _without_cudnn(query):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=p)


@contextmanager
def _without_cudnn(query: Tensor) -> Iterator[None]:
    """A context in which torch's attention does not use cuDNN.

    cuDNN makes a plan for every new shape, which takes far longer than the attention. On an H200 a step of 32
    subgraphs of different sizes took 300 to 350 ms in bfloat16, and 24 to 26 ms in float32, which cuDNN does
    not support (torch 2.11). Other settings are not changed. In compiled code torch chooses the backend.
    """
    if query.device.type != "cuda" or torch.compiler.is_compiling():
        yield
        return
    before = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


@contextmanager
def _global_state_of(generator: torch.Generator) -> Iterator[None]:
    """A context in which the global generator of the device continues `generator`; its state is restored."""
    device = generator.device
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]
        index = torch.cuda.current_device() if device.index is None else device.index
        shared = torch.cuda.default_generators[index]
    else:
        shared = torch.default_generator
    before = shared.get_state()
    shared.set_state(generator.get_state())
    try:
        yield
        generator.set_state(shared.get_state())
    finally:
        shared.set_state(before)


@run_eagerly
def _attend_with_own_noise(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, p: float, generator: torch.Generator
) -> Tensor:
    rows = [x.flatten(0, 1) for x in (query, key, value)]
    with torch.autocast(query.device.type, enabled=False):
        out: Tensor = _Attention.apply(*rows, mask, query.shape[1], p, generator)  # type: ignore[no-untyped-call]
    return out.view(*query.shape[:3], value.shape[-1])


class _Attention(Function):
    """Attention with dropout; in the stored weights, those that were dropped are negative."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        num_heads: int,
        p: float,
        generator: torch.Generator,
    ) -> Tensor:
        ctx.factor = query.shape[-1] ** -0.5
        scores = torch.bmm(query, key.transpose(1, 2)).mul_(ctx.factor)
        if mask is not None:
            hidden = torch.zeros_like(mask, dtype=scores.dtype).masked_fill_(~mask, -torch.inf)
            scores.view(-1, num_heads, *scores.shape[1:]).add_(hidden[:, None, None])
        weights = torch.softmax(scores, -1)
        keep, ctx.scale = draw_kept(weights, p, generator)
        weights.mul_(keep.to(weights.dtype).mul_(2).sub_(1))
        ctx.save_for_backward(query, key, value, weights)
        return torch.bmm(weights.relu(), value).mul_(ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, weights = ctx.saved_tensors
        grad = grad * ctx.scale
        grad_value = torch.bmm(weights.relu().transpose(1, 2), grad)
        grad_weights = torch.bmm(grad, value.transpose(1, 2))
        grad_weights = torch.ops.aten.threshold_backward(grad_weights, weights, 0)
        grad_scores = torch._softmax_backward_data(grad_weights, weights.abs(), -1, weights.dtype)
        grad_scores.mul_(ctx.factor)
        grad_query = torch.bmm(grad_scores, key)
        grad_key = torch.bmm(grad_scores.transpose(1, 2), query)
        return grad_query, grad_key, grad_value, None, None, None, None
