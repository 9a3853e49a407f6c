"""Softmax attention with padding, and with dropout that leaves the global random state alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional as F

from graphzoo.layers.noise import dropout
from graphzoo.ops.eager import run_eagerly

__all__ = ["masked_attention"]


def masked_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    p: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """`scaled_dot_product_attention`, whose dropout is drawn from a generator.

    Without dropout, and on CUDA, this is torch's function. Its kernels draw from the device's global
    generator: for the time of the call that one continues `generator`, and is put back afterwards. On the
    CPU torch has no fused kernel with dropout, and the probabilities are written out here.

    Args:
        query: [B, H, Q, D].
        key: [B, H, T, D].
        value: [B, H, T, D].
        mask: True where a key may be attended to, [B, T], bool; None where all may.
        p: Probability with which an attention weight is dropped, in [0, 1).
        generator: On the device of `query`; None only without dropout.

    Returns:
        [B, H, Q, D].
    """
    allowed = None if mask is None else mask[:, None, None]
    if p == 0:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
    assert generator is not None
    if query.device.type == "cuda":
        return _attend_with_global_noise(query, key, value, allowed, p, generator)
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    return dropout(torch.softmax(scores, -1), p, generator, True) @ value


@run_eagerly
def _attend_with_global_noise(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, p: float, generator: torch.Generator
) -> Tensor:
    with _in_place_of_global(generator):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=p)


@contextmanager
def _in_place_of_global(generator: torch.Generator) -> Iterator[None]:
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
