"""States of entities for each query -> one logit for each query and entity."""

from __future__ import annotations

from torch import Tensor, nn


class EntityDecoder(nn.Module):
    """Two-layer perceptron d -> d -> 1 on every state (KnowFormer, section 4.2, below Eq. 12).

    Args:
        in_channels: D, width of the states.
    """

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.lin1 = nn.Linear(in_channels, in_channels)
        self.lin2 = nn.Linear(in_channels, 1)

    def forward(self, states: Tensor) -> Tensor:
        """States [N, B, D] -> logits [B, N]."""
        logits: Tensor = self.lin2(self.lin1(states).relu_())
        return logits.squeeze(-1).t()
