"""A small NodeFormer and graphs for it."""

import torch

from graphzoo.encoders import NodeFormer
from graphzoo.types import GraphSpec

SMALL = {"hidden_channels": 4, "num_heads": 3, "num_random_features": 5, "num_gumbel_samples": 3}


def graph(num_nodes=12, num_edges=20, in_channels=6, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_nodes, in_channels, generator=generator, dtype=torch.float64).to(dtype)
    return x, torch.randint(num_nodes, (2, num_edges), generator=generator)


def build(in_channels=6, dtype=torch.float32, **settings):
    torch.manual_seed(0)
    return NodeFormer(GraphSpec(num_nodes=12, in_channels=in_channels), **(SMALL | settings)).to(dtype)
