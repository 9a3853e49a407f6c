"""Norms of heads and rows, and the precision of sums over all nodes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

TINY = 1e-24  # squared norms below it count as zero


def inverse_norm(squares: Tensor) -> Tensor:
    """1 / sqrt(squares), in float32 for half precision; 0 with gradient 0 for squares that count as zero."""
    squares = wide(squares)  # TINY would be zero in float16
    return torch.where(squares > TINY, squares.clamp_min(TINY).rsqrt(), 0.0)


def wide(x: Tensor) -> Tensor:
    """Convert half precision, which has too few digits for sums over all nodes, to float32."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float = 1e-5) -> Tensor:
    """LayerNorm over the last dimension, in float32 or wider; see `graphzoo.layers.LayerNorm`."""
    shift = None if bias is None else wide(bias)
    normed = F.layer_norm(wide(x), weight.shape, wide(weight), shift, eps)
    return normed.to(weight.dtype)
