"""Node states -> one logit for each node and class."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from graphzoo.errors import UsageError, check_choice, check_range
from graphzoo.layers import NoiseStream, dropout
from graphzoo.sampling import hash_numbers

NodeDecoderKind = Literal["linear", "mlp"]

# Makes its noise differ from that of an encoder with the same seed.
_PURPOSE = 0x6465636F


class NodeDecoder(nn.Module):
    """A linear layer D -> C, or a two-layer perceptron D -> D -> C, on every state.

    Args:
        in_channels: D, width of the states.
        num_classes: C, number of classes or of yes-no labels.
        kind: "linear", or "mlp" for the perceptron.
        dropout: Dropout rate of the input of each layer.
        seed: Seed of dropout, for calls without `noise_seed`.

    Raises:
        UsageError: for an unknown kind, a dropout rate out of range, or no classes.
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
            raise UsageError("the data has no classes or labels to predict (GraphSpec.num_classes is 0)")
        self.dropout = dropout
        self.hidden = nn.Linear(in_channels, in_channels) if kind == "mlp" else None
        self.out = nn.Linear(in_channels, num_classes)
        self.noise = NoiseStream(hash_numbers(seed, _PURPOSE))

    def forward(self, states: Tensor, *, noise_seed: int | None = None) -> Tensor:
        """Map states [N, D] to logits [N, C].

        Args:
            states: States of the nodes.
            noise_seed: Seed of dropout in training; None takes the next seed of the decoder's noise stream.
        """
        drops = self.training and self.dropout > 0
        generator = self.noise.generator(noise_seed, states.device) if drops else None
        if self.hidden is not None:
            states = self.hidden(dropout(states, self.dropout, generator, self.training)).relu()
        logits: Tensor = self.out(dropout(states, self.dropout, generator, self.training))
        return logits
