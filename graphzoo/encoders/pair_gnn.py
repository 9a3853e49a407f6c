"""GCN, GAT and GraphSAGE on subgraphs around node pairs, with or without marks on the pair."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from graphzoo.encoders.base import PairEncoder
from graphzoo.encoders.checks import refuse_features, require_features
from graphzoo.encoders.gnn import GNNKind, GNNStack, check_gnn_settings
from graphzoo.layers import FeatureRows, NoiseStream
from graphzoo.ops.eager import run_eagerly
from graphzoo.types import GraphSpec, PairSubgraphs


class PairGNN(PairEncoder):
    """A graph neural network over sampled subgraphs -> the states of both nodes, [B, 2 D].

    The subgraphs of a batch form one graph of unconnected parts. The input of a node is the constant 1. With
    `identity_aware` (You et al., 2021; Zhu et al., 2021) two marks say whether the node is u or v. If the
    data has node features, these follow, mapped to width D.

    Args:
        spec: Sizes of the graph; `in_channels` is the width of the features, 0 for none.
        kind: "gcn", "gat" or "sage".
        identity_aware: Whether u and v are marked in the input.
        hidden_channels: D, width of a node's state; with "gat" the heads' side by side.
        num_layers: Layers, each followed by ReLU and dropout.
        num_heads: Attention heads of "gat"; they divide `hidden_channels`.
        dropout: Dropout rate after every layer.
        use_features: Whether node features are used where the data has any.
        seed: Seed of the noise stream.
    """

    def __init__(
        self,
        spec: GraphSpec,
        *,
        kind: GNNKind = "gcn",
        identity_aware: bool = False,
        hidden_channels: int = 512,
        num_layers: int = 2,
        num_heads: int = 8,
        dropout: float = 0.0,
        use_features: bool = True,
        seed: int = 0,
    ) -> None:
        check_gnn_settings(kind, hidden_channels, num_layers, num_heads, dropout)
        super().__init__()
        self.spec, self.identity_aware = spec, identity_aware
        self.out_channels = 2 * hidden_channels
        self.use_features = use_features
        has_features = use_features and spec.in_channels > 0
        self.features = FeatureRows(spec.in_channels, hidden_channels) if has_features else None
        width = 1 + 2 * identity_aware + hidden_channels * has_features
        self.layers = GNNStack(
            width, hidden_channels, num_layers, kind=kind, num_heads=num_heads, dropout=dropout
        )
        self.noise = NoiseStream(seed)

    def forward(
        self, subgraphs: PairSubgraphs, x: Tensor | None = None, *, noise_seed: int | None = None
    ) -> Tensor:
        """Encode a batch of pair subgraphs: [B, 2 D]; `use_features=False` ignores `x`."""
        nodes, edge_index, pair = _joined(subgraphs)
        inputs = self._inputs(nodes, pair, x)
        generator = self.noise.generator(noise_seed, nodes.device) if self.training else None
        states = self.layers(inputs, edge_index, generator, has_loops=subgraphs.links is None)
        pair_states: Tensor = states[pair].flatten(1)
        return pair_states

    def _inputs(self, nodes: Tensor, pair: Tensor, x: Tensor | None) -> Tensor:
        dtype = next(self.parameters()).dtype
        marks = torch.ones(len(nodes), 1 + 2 * self.identity_aware, dtype=dtype, device=nodes.device)
        if self.identity_aware:
            marks[:, 1:] = 0
            for column, places in enumerate(pair.t(), 1):
                marks[:, column].index_fill_(0, places, 1)
        parts = [marks]
        if self.features is not None:
            mapped, rows = self.features(require_features(x, self.spec, nodes), nodes)
            parts.append(F.embedding(rows, mapped))
        elif self.use_features:
            refuse_features(x)
        return torch.cat(parts, 1)


@run_eagerly
def _joined(subgraphs: PairSubgraphs) -> tuple[Tensor, Tensor, Tensor]:
    """Join the subgraphs: node ids in the whole graph [n], edges [2, e], positions of u and v [B, 2]."""
    size = subgraphs.nodes.shape[1]
    valid = torch.arange(size, device=subgraphs.nodes.device) < subgraphs.num_nodes[:, None]
    place = (valid.flatten().cumsum(0) - 1).view_as(valid)
    is_cuda = place.is_cuda
    node = _places(valid, subgraphs.sizes if is_cuda else None)
    link = _places(subgraphs.adjacency, subgraphs.links if is_cuda else None)
    edge_index = torch.stack([place.flatten()[link // size], place[link // size**2, link % size]])
    return subgraphs.nodes.flatten()[node], edge_index, place[:, :2]


def _places(mask: Tensor, counts: tuple[int, ...] | None) -> Tensor:
    """Positions of the True entries of a flattened mask, in order.

    With `counts`, how many entries are True in each part, the host does not wait for the device.
    """
    mask = mask.flatten()
    if counts is None:
        return mask.nonzero()[:, 0]
    return torch.searchsorted(mask.cumsum(0), torch.arange(1, sum(counts) + 1, device=mask.device))
