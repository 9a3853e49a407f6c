"""Dropout whose mask is a function of query, entity and channel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphzoo.ops.random import hash_integers


@dataclass(frozen=True, eq=False)
class RowDropout:
    """Dropout of [n, B, D] states.

    The mask is a hash of the query's key, the entity and the channel. So it does not depend on how entities
    are cut into chunks or queries into batches.
    """

    p: float  # probability of dropping, rounded to a multiple of 2^-16
    keys: Tensor  # seed of each query's mask, [B], int64

    @property
    def threshold(self) -> int:
        """A channel is kept if its 16 random bits, as a signed integer, are at least this."""
        return min(round(self.p * 65536), 65535) - 32768

    @property
    def scale(self) -> float:
        """1 / (1 - p)."""
        return 65536 / (32768 - self.threshold)

    def words(self, channels: int) -> Tensor:
        """Hashes of the query and of each four channels, [B, ceil(D / 4)], int64."""
        word = torch.arange(-(-channels // 4), device=self.keys.device)
        return hash_integers(self.keys[:, None], word)

    def entities(self, start: int, stop: int) -> Tensor:
        """Hashes of the entities start..stop-1, [stop - start], int64."""
        return hash_integers(7, torch.arange(start, stop, device=self.keys.device))

    def mask(self, hidden: Tensor, start: int) -> Tensor:
        """Factors 0 or 1 / (1 - p) for `hidden` [n, B, D], whose rows are entities from `start`."""
        length, _, channels = hidden.shape
        bits = self.words(channels)[None] ^ self.entities(start, start + length)[:, None, None]
        kept = hash_integers(bits).view(torch.int16)[..., :channels] >= self.threshold
        return kept.to(hidden.dtype) * self.scale
