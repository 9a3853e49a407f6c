"""Node states -> one logit per node and class."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from graphzoo.errors import UsageError, check_choice, check_range
from graphzoo.layers import NoiseStream, dropout
from graphzoo.sampling import hash_numbers

NodeDecoderKind = Literal["linear", "mlp"]

# Keeps its noise apart from that of an encoder with the same seed.
_PURPOSE = 0x6465636F


class NodeDecoder(nn.Module):
    """A linear layer D -> C, or a two-layer perceptron D -> D -> C, on every state.

    Args:
        in_channels: D.
        num_classes: C, classes or yes-no labels.
        kind: "linear" or "mlp".
        dropout: Share of each layer's input that is dropped in training.
        seed: Seed of dropout where a call names no noise.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        kind: NodeDecoderKind = "linear",
        dropout: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_choice("the decoder", kind, NodeDecoderKind)
        check_range(at_least=0, below=1, dropout=dropout)
        if num_classes < 1:
            raise UsageError("the data have no classes, so there is nothing to predict")
        self.dropout = dropout
        self.hidden = nn.Linear(in_channels, in_channels) if kind == "mlp" else None
        self.out = nn.Linear(in_channels, num_classes)
        self.noise = NoiseStream(hash_numbers(seed, _PURPOSE))

    def forward(self, states: Tensor, *, noise_seed: int | None = None) -> Tensor:
        """States [N, D] -> logits [N, C]; `noise_seed` names the draw of dropout, None takes the next."""
        drops = self.training and self.dropout > 0
        generator = self.noise.generator(noise_seed, states.device) if drops else None
        if self.hidden is not None:
            states = self.hidden(dropout(states, self.dropout, generator, self.training)).relu()
        logits: Tensor = self.out(dropout(states, self.dropout, generator, self.training))
        return logits
