"""What every metric says of scores that have no rank."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from graphzoo.errors import NonFiniteError


def require_finite(scores: Tensor, where: Callable[[Tensor], str]) -> None:
    """Raise on NaN and infinity: comparisons with NaN are false, so that a broken model would rank first.

    `where` makes of a mask of the broken scores what it says of the first of them.
    """
    if not scores.numel():
        return
    # aminmax hands NaN on and needs no second tensor of that size, which isfinite would.
    low, high = torch.aminmax(scores)
    if bool(torch.isfinite(low)) and bool(torch.isfinite(high)):
        return
    broken = ~torch.isfinite(scores)
    raise NonFiniteError(
        f"{int(broken.sum())} of {broken.numel()} scores are NaN or infinite, first {where(broken)}; they "
        "have no rank. Look for the step where the loss became NaN, and lower the learning rate"
    )


def first_row(broken: Tensor) -> str:
    """The first row of [B, N] that has a broken score."""
    return f"in row {int(broken.any(dim=1).nonzero()[0])}"
