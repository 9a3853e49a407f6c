"""A small PENCIL and subgraph sizes for it."""

import torch

from graphzoo.encoders import PENCIL
from graphzoo.types import GraphSpec

SMALL = {"hidden_channels": 12, "num_layers": 2, "num_heads": 3, "ffn_channels": 20, "max_nodes": 11}
# Among them are subgraphs of the two endpoints alone and of the largest size.
SIZES = [5, 2, 11, 8, 2, 6]


def build(in_channels=0, dtype=torch.float64, **settings):
    """An encoder in evaluation mode, with weights far from their small initial values."""
    torch.manual_seed(0)
    encoder = PENCIL(GraphSpec(num_nodes=40, in_channels=in_channels), **(SMALL | settings)).to(dtype)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return encoder.eval()
