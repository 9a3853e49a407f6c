"""GCN, GAT and GraphSAGE from PyG's layers: baselines for the transformers.

Kipf and Welling, ICLR 2017; Velickovic et al., ICLR 2018; Hamilton, Ying and Leskovec, NeurIPS 2017.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from graphzoo.encoders.base import NodeEncoder
from graphzoo.encoders.checks import (
    cast_features,
    check_ends,
    check_features,
    check_heads,
    check_rates,
    check_sizes,
    check_spec,
)
from graphzoo.encoders.pyg_form import has_other_forms
from graphzoo.errors import check_choice
from graphzoo.layers import LastResult, NoiseStream, SparseLinear, dropout
from graphzoo.ops.eager import run_eagerly
from graphzoo.ops.sparse import without_beta_warning
from graphzoo.types import GraphSpec

GNNKind = Literal["gcn", "gat", "sage"]


class GNNStack(nn.Module):
    """Layers of one kind, each followed by ReLU and dropout; "sage" takes the mean of the neighbours.

    With `last_is_linear` the last layer has neither.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        *,
        kind: GNNKind,
        num_heads: int,
        dropout: float,
        last_is_linear: bool = False,
    ) -> None:
        super().__init__()
        self.dropout, self.last_is_linear, self.kind = dropout, last_is_linear, kind
        self._edges: LastResult[dict[Any, tuple[Tensor, ...]]] = LastResult()
        self.convs = nn.ModuleList(
            _conv(kind, in_channels if layer == 0 else hidden_channels, hidden_channels, num_heads)
            for layer in range(num_layers)
        )
        first = self.convs[0]
        # The input may be sparse, which PyG's own maps do not take.
        self.before: SparseLinear | None = None
        if kind == "sage":
            # Mapping the neighbours before the mean gives the same result, from narrower messages.
            self.before = SparseLinear(in_channels, hidden_channels, bias=False)
            first.lin_l = nn.Identity()
            first.lin_r = SparseLinear(in_channels, hidden_channels)
        else:
            first.lin = SparseLinear(in_channels, hidden_channels, bias=False)
            nn.init.xavier_uniform_(first.lin.weight)

    def forward(
        self, x: Tensor, edge_index: Tensor, generator: torch.Generator | None, *, has_loops: bool = True
    ) -> Tensor:
        """Inputs [N, F], dense or sparse CSR, and edges [2, E] -> states [N, D].

        `has_loops=False` promises that no edge is a self-loop. To search for some, the host waits for a GPU.
        """
        edges = self._prepared(edge_index, x.shape[0], x.dtype, has_loops)
        h: Any = x if self.before is None else (self.before(x), x)
        for number, conv in enumerate(self.convs, 1):
            h = conv(h, *edges)
            if number < len(self.convs) or not self.last_is_linear:
                h = dropout(h.relu(), self.dropout, generator, self.training)
        states: Tensor = h
        return states

    @run_eagerly
    def _prepared(
        self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype, has_loops: bool
    ) -> tuple[Tensor, ...]:
        """The edges as all layers take them, kept for later calls.

        For "gcn" and "gat" every node has a self-loop. For "gcn" there are also the weights of the edges.
        """
        if self.kind == "sage":
            return (edge_index,)
        key = (num_nodes, dtype, has_loops)
        if torch.compiler.is_exporting():  # the number of nodes is symbolic and cannot be a key
            return self._prepare(edge_index, *key)
        known = self._edges.get((edge_index,), dict)
        if key not in known:
            # the first call may be a validation in inference mode, and training needs the result, too
            with torch.inference_mode(False), torch.no_grad():
                known[key] = self._prepare(edge_index, *key)
        return known[key]

    def _prepare(
        self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype, has_loops: bool
    ) -> tuple[Tensor, ...]:
        from torch_geometric.nn.conv.gcn_conv import gcn_norm
        from torch_geometric.utils import add_self_loops, remove_self_loops

        edges = remove_self_loops(edge_index)[0] if has_loops else edge_index
        made: tuple[Tensor, ...] = add_self_loops(edges, num_nodes=num_nodes)[:1]
        if self.kind == "gcn":
            made = gcn_norm(*made, None, num_nodes, add_self_loops=False, dtype=dtype)
        return made


class GNN(NodeEncoder):
    """A graph neural network: features [N, F] and edges -> states [N, D].

    Args:
        spec: Sizes of the graph; `in_channels` is the width of the features.
        kind: "gcn", "gat" or "sage".
        hidden_channels: D, width of the states; with "gat" the heads' side by side.
        num_layers: Layers, each followed by ReLU and dropout.
        num_heads: Attention heads of "gat"; they divide `hidden_channels`.
        dropout: Dropout rate after every layer.
        input_dropout: Dropout rate of the features.
        seed: Seed of the noise stream.
    """

    @has_other_forms
    def __init__(
        self,
        spec: GraphSpec,
        *,
        kind: GNNKind = "gcn",
        hidden_channels: int = 64,
        num_layers: int = 2,
        num_heads: int = 8,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        seed: int = 0,
    ) -> None:
        check_gnn_settings(kind, hidden_channels, num_layers, num_heads, dropout)
        check_rates(input_dropout=input_dropout)
        check_spec("a GNN on the whole graph", spec)
        super().__init__()
        self.spec, self.out_channels, self.input_dropout = spec, hidden_channels, input_dropout
        self.layers = GNNStack(
            spec.in_channels, hidden_channels, num_layers, kind=kind, num_heads=num_heads, dropout=dropout
        )
        self.noise = NoiseStream(seed)

    def forward(self, x: Tensor, edge_index: Tensor, *, noise_seed: int | None = None) -> Tensor:
        """Encode a graph; messages pass from the first node of an edge to its second: [N, F] -> [N, D]."""
        check_features(x, self.spec)
        check_ends(edge_index, x)
        x = cast_features(x, self.layers)
        generator = self.noise.generator(noise_seed, x.device) if self.training else None
        states: Tensor = self.layers(self._drop_features(x, generator), edge_index, generator)
        return states

    def _drop_features(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """Dropout of the features, of the stored values if they are sparse."""
        if generator is None or self.input_dropout == 0:
            return x
        if x.layout is torch.strided:
            return dropout(x, self.input_dropout, generator, True)
        kept = dropout(x.values(), self.input_dropout, generator, True)
        with without_beta_warning():
            return torch.sparse_csr_tensor(
                x.crow_indices(), x.col_indices(), kept, x.shape, check_invariants=False
            )


def check_gnn_settings(
    kind: str, hidden_channels: int, num_layers: int, num_heads: int, dropout: float
) -> None:
    """Raise a `UsageError` for settings from which no `GNNStack` can be built."""
    check_choice("kind", kind, GNNKind)
    check_sizes(hidden_channels=hidden_channels, num_layers=num_layers, num_heads=num_heads)
    if kind == "gat":
        check_heads(hidden_channels, num_heads)
    check_rates(dropout=dropout)


def _conv(kind: str, in_channels: int, out_channels: int, num_heads: int) -> Any:
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv

    if kind == "gcn":
        return GCNConv(in_channels, out_channels, normalize=False)
    if kind == "sage":
        return SAGEConv(in_channels, out_channels)
    return GATConv(in_channels, out_channels // num_heads, heads=num_heads, add_self_loops=False)
