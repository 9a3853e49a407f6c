"""Softmax attention with padding, and with dropout that leaves the global random state alone."""

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
    """`scaled_dot_product_attention`, whose dropout of the attention weights is drawn from a generator.

    Without dropout, and on CUDA, this is torch's function. Its kernels draw from the device's global
    generator: for the time of the call that one replaces `generator`, and is put back afterwards.
    Elsewhere torch has no fused kernel with dropout; a function of our own keeps one matrix [Q, T] per head
    for the backward pass, and what it draws does not depend on the number of threads.

    Args:
        query: [B, H, Q, D]; the result is [B, H, Q, E].
        key: [B, H, T, D].
        value: [B, H, T, E].
        mask: True where a key may be attended to, [B, T], bool; None where all may. At least one per row.
        p: Probability with which a weight is dropped, in [0, 1).
        generator: On the device of `query`; needed, and looked at, only with dropout.

    Raises:
        ValueError: if `p` is out of range, or there is dropout and no generator.
    """
    check_range(at_least=0, below=1, p=p)
    allowed = None if mask is None else mask[:, None, None]
    if p == 0:
        with _without_plans(query):
            return F.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
    if generator is None:
        raise ValueError("dropout needs a generator while training: take NoiseStream.generator(...)")
    if query.device.type == "cuda":
        return _attend_with_global_noise(query, key, value, allowed, p, generator)
    return _attend_with_own_noise(query, key, value, mask, p, generator)


@run_eagerly
def _attend_with_global_noise(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, p: float, generator: torch.Generator
) -> Tensor:
    with _standing_in_for(generator), _without_plans(query):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=p)


@contextmanager
def _without_plans(query: Tensor) -> Iterator[None]:
    """Keep cuDNN out: it makes a plan for every new shape, which takes far longer than the attention.

    On an H200 a bf16 step of 32 subgraphs of all sizes took 300 to 350 ms, in float32, which cuDNN does not
    take, 24 to 26 (torch 2.11). What else is switched on or off stays so; in compiled code torch chooses.
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
def _standing_in_for(generator: torch.Generator) -> Iterator[None]:
    """Let the global generator of a device draw what `generator` would, then put it back as it was."""
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
    """Weights are kept for the backward pass with a minus where they were dropped: one matrix says both."""

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
