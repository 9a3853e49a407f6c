"""Scores averaged over draws of an encoder's noise."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


def mean_of_draws(score: Callable[[int], Tensor], num_draws: int) -> Tensor:
    """The mean of `score(noise_seed)` over noise seeds 0 to `num_draws` - 1; a single draw is as it comes."""
    scores = score(0)
    if num_draws == 1:
        return scores
    total = scores.float()
    for draw in range(1, num_draws):
        total = total + score(draw)
    return total / num_draws
