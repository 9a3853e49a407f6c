"""Encoders that record the arguments of their calls."""

import torch
from torch import nn

from graphzoo.encoders.base import NodeEncoder
from graphzoo.layers import NoiseStream, SparseLinear, dropout


class Averaging(NodeEncoder):
    """Linear maps of a node's features and of its neighbours' mean; it needs edges in every call."""

    def __init__(self, spec, *, hidden_channels: int = 8, p: float = 0.0):
        super().__init__()
        self.out_channels = hidden_channels
        self.own = nn.Linear(spec.in_channels, hidden_channels)
        self.other = nn.Linear(spec.in_channels, hidden_channels)
        self.noise, self.p = NoiseStream(), p
        self.calls = []

    def forward(self, x, edge_index, *, noise_seed=None):
        self.calls.append((self.training, noise_seed))
        source, target = edge_index
        mean = torch.zeros_like(x).index_add(0, target, x[source])
        count = torch.bincount(target, minlength=x.shape[0]).clamp(min=1)
        states = (self.own(x) + self.other(mean / count[:, None])).relu()
        generator = self.noise.generator(noise_seed, x.device) if self.training else None
        return dropout(states, self.p, generator, self.training)


class Prepared(NodeEncoder):
    """Needs edges only in `precompute`, which sums features of neighbours; it has an auxiliary loss."""

    needs_edges = False
    weight = 0.25

    def __init__(self, spec, *, hidden_channels: int = 8):
        super().__init__()
        self.out_channels = hidden_channels
        self.lin = SparseLinear(spec.in_channels, hidden_channels)
        self.prepared, self.seen = [], []

    def precompute(self, x, edge_index, *, cache=None):
        self.prepared.append((x, cache))
        dense = x if x.layout is torch.strided else x.to_dense()
        source, target = edge_index
        return {"summed": torch.zeros_like(dense).index_add(0, target, dense[source])}

    def forward(self, x, edge_index, *, noise_seed=None, summed=None):
        self.seen.append((edge_index, x.shape[0]))
        return self.lin(x) + nn.functional.linear(summed, self.lin.weight)

    def forward_with_auxiliary(self, x, edge_index, *, noise_seed=None, **precomputed):
        states = self(x, edge_index, **precomputed)
        return states, self.weight * states.square().mean()
