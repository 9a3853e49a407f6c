"""States of two nodes -> one logit for each pair."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from graphzoo.errors import check_choice, check_range
from graphzoo.layers import NoiseStream, dropout
from graphzoo.sampling import hash_numbers

PairDecoderKind = Literal["hadamard", "dot", "concat", "linear"]

# Makes its noise differ from that of an encoder with the same seed.
_PURPOSE = 0x7061697264


class PairDecoder(nn.Module):
    """Logits of pairs, from the states of their two nodes.

    The kinds are:

    - "hadamard": a two-layer perceptron on the elementwise product of both states.
    - "dot": the inner product of both states, without parameters.
    - "concat": a two-layer perceptron on the concatenation of both states.
    - "linear": a linear layer on the concatenation of both states (PENCIL, Sec. 3.3).

    The first two do not depend on the direction of a pair.

    Args:
        in_channels: D, width of one node's state.
        kind: "hadamard", "dot", "concat" or "linear".
        dropout: Dropout rate of the input of each layer.
        seed: Seed of dropout, for calls without `noise_seed`.

    Raises:
        UsageError: for an unknown kind or a dropout rate out of range.
    """

    def __init__(
        self, in_channels: int, *, kind: PairDecoderKind = "hadamard", dropout: float = 0.0, seed: int = 0
    ) -> None:
        super().__init__()
        check_choice("the decoder", kind, PairDecoderKind)
        check_range(at_least=0, below=1, dropout=dropout)
        self.kind, self.dropout = kind, dropout
        width = in_channels if kind == "hadamard" else 2 * in_channels
        self.hidden = nn.Linear(width, in_channels) if kind in ("hadamard", "concat") else None
        last = in_channels if self.hidden is not None else width
        self.out = None if kind == "dot" else nn.Linear(last, 1)
        self.noise = NoiseStream(hash_numbers(seed, _PURPOSE))

    def forward(self, source: Tensor, target: Tensor, *, noise_seed: int | None = None) -> Tensor:
        """Map the states of both nodes to logits [B].

        Args:
            source: States of the first nodes, [B, D].
            target: States of the second nodes, [B, D].
            noise_seed: Seed of dropout in training; None takes the next seed of the decoder's noise stream.
        """
        if self.out is None:
            return (source * target).sum(-1)
        drops = self.training and self.dropout > 0
        generator = self.noise.generator(noise_seed, source.device) if drops else None
        states = source * target if self.kind == "hadamard" else torch.cat([source, target], dim=-1)
        if self.hidden is not None:
            states = self.hidden(dropout(states, self.dropout, generator, self.training)).relu()
        logits: Tensor = self.out(dropout(states, self.dropout, generator, self.training))
        return logits.squeeze(-1)
