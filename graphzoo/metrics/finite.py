"""The check of all metrics that scores are finite."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from graphzoo.errors import NonFiniteError


def require_finite(scores: Tensor, where: Callable[[Tensor], str]) -> None:
    """Require that scores are finite.

    Comparisons with NaN are false, so a model whose scores are NaN would rank first.

    Args:
        scores: Scores of any shape.
        where: Function from a mask of the scores that are not finite to a description of the first of them.

    Raises:
        NonFiniteError: if a score is NaN or infinite.
    """
    if not scores.numel():
        return
    # `aminmax` returns NaN if there is one. Unlike `isfinite` it needs no second tensor of this size.
    low, high = torch.aminmax(scores)
    if bool(torch.isfinite(low)) and bool(torch.isfinite(high)):
        return
    broken = ~torch.isfinite(scores)
    raise NonFiniteError(
        f"{int(broken.sum())} of {broken.numel()} scores are NaN or infinite and have no rank, the first "
        f"{where(broken)}. Look for the step where the loss became NaN, and lower the learning rate"
    )


def first_row(broken: Tensor) -> str:
    """Describe the first row of a mask [B, N] that has a True entry."""
    return f"in row {int(broken.any(dim=1).nonzero()[0])}"
