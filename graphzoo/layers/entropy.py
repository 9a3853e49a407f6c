"""How widely attention is spread, between 0 and 1."""

from __future__ import annotations

import torch
from torch import Tensor


def row_entropy(weights: Tensor, count: Tensor | None = None) -> Tensor:
    r"""Entropy of rows of attention weights, divided by that of equal weights.

    .. math:: -\frac{1}{\log n} \sum_u w_u \log w_u

    Args:
        weights: At least 0, summing to 1 over the last dimension, [..., n].
        count: How many of the n may be attended to, [...] or broadcasting to it; None: all.

    Returns:
        [...], float32 or wider: 1 for equal weights, 0 where all lies on one, or where there is only one.

    >>> row_entropy(torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0]]))
    tensor([1., 0.])
    """
    weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    entropy = torch.special.entr(weights).sum(-1)
    most = torch.as_tensor(weights.shape[-1] if count is None else count, device=weights.device)
    bound = most.to(entropy.dtype).log()
    return torch.where(bound > 0, entropy / bound.clamp_min(1e-12), 0.0)
