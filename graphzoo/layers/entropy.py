"""The entropy of attention, as a number between 0 and 1."""

from __future__ import annotations

import torch
from torch import Tensor


def row_entropy(weights: Tensor, count: Tensor | None = None) -> Tensor:
    r"""Entropy of rows of attention weights, divided by the entropy of equal weights.

    .. math:: -\frac{1}{\log n} \sum_u w_u \log w_u

    Args:
        weights: Weights of at least 0 that sum to 1 over the last dimension, [..., n].
        count: Number of keys that a row may attend to, in a shape that broadcasts to [...]; None for n.

    Returns:
        [...], float32 or wider: 1 for equal weights; 0 if one weight is 1, or if there is only one key.

    >>> row_entropy(torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0]]))
    tensor([1., 0.])
    """
    weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    entropy = torch.special.entr(weights).sum(-1)
    most = torch.as_tensor(weights.shape[-1] if count is None else count, device=weights.device)
    bound = most.to(entropy.dtype).log()
    return torch.where(bound > 0, entropy / bound.clamp_min(1e-12), 0.0)
