"""What every metric says of scores that have no rank."""

from __future__ import annotations

from torch import Tensor

from graphzoo.errors import NonFiniteError

__all__ = ["no_rank"]


def no_rank(broken: Tensor, first: str) -> NonFiniteError:
    """The error for scores that are NaN or infinite: compared with NaN, a broken model would rank first.

    Args:
        broken: Which scores they are, of any shape, bool.
        first: Where the first of them is.
    """
    return NonFiniteError(
        f"{int(broken.sum())} of {broken.numel()} scores are NaN or infinite, first {first}; they have no "
        "rank. Look for the step where the loss became NaN, and lower the learning rate"
    )
