"""Dropout whose mask is a function of what it falls on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphzoo.ops.random import hash_integers


@dataclass(frozen=True, eq=False)
class RowDropout:
    """Dropout of [n, B, D] that depends on (key of the query, entity, channel): chunks and batches agree."""

    p: float  # probability to drop, rounded to a multiple of 2^-16
    keys: Tensor  # names of the masks, one for each query, [B], int64

    @property
    def threshold(self) -> int:
        """A channel is kept when its 16 bits, read as a signed number, reach this."""
        return min(round(self.p * 65536), 65535) - 32768

    @property
    def scale(self) -> float:
        """1 / (1 - p)."""
        return 65536 / (32768 - self.threshold)

    def words(self, channels: int) -> Tensor:
        """Hashes of query and channels, four channels to a word, [B, ceil(D / 4)]."""
        word = torch.arange(-(-channels // 4), device=self.keys.device)
        return hash_integers(self.keys[:, None], word)

    def entities(self, start: int, stop: int) -> Tensor:
        """Hashes of entities, [stop - start]."""
        return hash_integers(7, torch.arange(start, stop, device=self.keys.device))

    def mask(self, hidden: Tensor, start: int) -> Tensor:
        """0 or 1 / (1 - p) for the rows from entity `start` on, [n, B, D]."""
        length, _, channels = hidden.shape
        bits = self.words(channels)[None] ^ self.entities(start, start + length)[:, None, None]
        kept = hash_integers(bits).view(torch.int16)[..., :channels] >= self.threshold
        return kept.to(hidden.dtype) * self.scale
