"""SGFormer with its authors' attention: one layer of linear all-pair attention beside a GCN.

Wu et al., "SGFormer: Simplifying and Empowering Transformers for Large-Graph Representations", NeurIPS 2023.
PyG's class (`SGFormerPyG`) normalises queries and keys in each row, where the authors divide by the norm of
the whole tensor, and its GCN has residual connections. The paper's attention branch has LayerNorm, a residual
connection and a value map; the authors' code with their commands for citation graphs has none of the three
(it does not read the commands' option for the residual).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from graphzoo.encoders.base import NodeEncoder
from graphzoo.encoders.checks import (
    cast_features,
    check_ends,
    check_features,
    check_rates,
    check_sizes,
    check_spec,
)
from graphzoo.encoders.gnn import GNNStack
from graphzoo.encoders.pyg_form import has_other_forms
from graphzoo.errors import check_choice, check_range
from graphzoo.layers import LayerNorm, NoiseStream, SparseLinear, dropout
from graphzoo.types import GraphSpec


def simple_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The paper's attention without softmax, D^-1 (N v + q (k^T v)), in O(N D^2).

    With q and k divided by their norms over all nodes, node u takes the value of node w with weight
    (q_u . k_w + N [u = w]) / (q_u . sum_w k_w + N).

    Args:
        q: Queries [N, H, D].
        k: Keys [N, H, D].
        v: Values [N, H, D].

    Returns:
        [N, H, D].
    """
    count = q.shape[0]
    q, k = (part / torch.linalg.vector_norm(part).clamp_min(torch.finfo(part.dtype).tiny) for part in (q, k))
    mixed = torch.einsum("nhm,hmd->nhd", q, torch.einsum("nhm,nhd->hmd", k, v))
    total = torch.einsum("nhm,hm->nh", q, k.sum(0))
    # not N v in the numerator: half precision ends at 65,504
    return (mixed / count + v) / (total / count + 1)[..., None]


class SGFormer(NodeEncoder):
    """SGFormer encoder: features [N, F] and edges -> states [N, D].

    The weights of the attention depend on all nodes that are encoded together: on parts of a graph they
    differ from those on the whole graph.

    Args:
        spec: Sizes of the graph; `in_channels` is the width of the features.
        hidden_channels: Width of both branches, and D; with `aggregate="cat"` D is twice that.
        num_layers: Layers of all-pair attention.
        num_heads: Heads of it, each as wide as the layer; their mean is taken.
        dropout: Dropout rate of the attention branch.
        layer_norm: Whether the attention branch has LayerNorm, after its first map and after each layer.
        alpha: Share of the attention beside the layer's input, in [0, 1]; 1 leaves out the residual.
        value_map: Whether values are a linear map of the layer's input; if not, they are this input.
        gnn_num_layers: GCN layers of the other branch; ReLU and dropout between them.
        gnn_dropout: Dropout rate of the GCN branch.
        graph_weight: Share of the GCN branch in the sum, in [0, 1].
        aggregate: "add" or "cat".
        seed: Seed of the noise stream.
    """

    attends_to_all = True

    @has_other_forms
    def __init__(
        self,
        spec: GraphSpec,
        *,
        hidden_channels: int = 64,
        num_layers: int = 1,
        num_heads: int = 1,
        dropout: float = 0.2,
        layer_norm: bool = True,
        alpha: float = 0.5,
        value_map: bool = True,
        gnn_num_layers: int = 4,
        gnn_dropout: float = 0.5,
        graph_weight: float = 0.8,
        aggregate: Literal["add", "cat"] = "add",
        seed: int = 0,
    ) -> None:
        check_spec("SGFormer", spec)
        check_sizes(
            hidden_channels=hidden_channels,
            num_layers=num_layers,
            num_heads=num_heads,
            gnn_num_layers=gnn_num_layers,
        )
        check_rates(dropout=dropout, gnn_dropout=gnn_dropout)
        check_range(at_least=0, at_most=1, alpha=alpha)
        check_branches(graph_weight, aggregate)
        super().__init__()
        self.spec, self.num_heads, self.dropout, self.alpha = spec, num_heads, dropout, alpha
        self.graph_weight, self.aggregate = graph_weight, aggregate
        self.out_channels = hidden_channels * (2 if aggregate == "cat" else 1)
        self.first = SparseLinear(spec.in_channels, hidden_channels)
        self.num_maps = 3 if value_map else 2  # queries, keys and perhaps values
        self.maps = nn.ModuleList(
            nn.Linear(hidden_channels, self.num_maps * num_heads * hidden_channels) for _ in range(num_layers)
        )
        self.norms = nn.ModuleList(
            LayerNorm(hidden_channels) if layer_norm else nn.Identity() for _ in range(num_layers + 1)
        )
        self.gnn = GNNStack(  # not `graph`, which is an attribute of an exported program
            spec.in_channels,
            hidden_channels,
            gnn_num_layers,
            kind="gcn",
            num_heads=1,
            dropout=gnn_dropout,
            last_is_linear=True,
        )
        self.noise = NoiseStream(seed)

    def forward(self, x: Tensor, edge_index: Tensor, *, noise_seed: int | None = None) -> Tensor:
        """Encode a graph.

        Args:
            x: Features [N, F], dense or sparse CSR.
            edge_index: Edges [2, E], int64; messages pass from the first to the second.
            noise_seed: Seed of dropout while training; None takes the next seed of the module's stream.

        Returns:
            States [N, D].
        """
        check_features(x, self.spec)
        check_ends(edge_index, x)
        x = cast_features(x, self.first)
        generator = self.noise.generator(noise_seed, x.device) if self.training else None
        attended = self._attend(x, generator)
        local: Tensor = self.gnn(x, edge_index, generator)
        if self.aggregate == "cat":
            return torch.cat([attended, local], -1)
        return self.graph_weight * local + (1 - self.graph_weight) * attended

    def _attend(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """The branch of all pairs: [N, F] -> [N, D]."""
        z = dropout(self.norms[0](self.first(x)).relu(), self.dropout, generator, self.training)
        for layer, norm in zip(self.maps, list(self.norms)[1:], strict=True):
            q, k, *rest = layer(z).view(z.shape[0], self.num_maps, self.num_heads, z.shape[1]).unbind(1)
            v = rest[0] if rest else z[:, None].expand_as(q)
            mixed = self.alpha * simple_attention(q, k, v).mean(1) + (1 - self.alpha) * z
            z = dropout(norm(mixed), self.dropout, generator, self.training)
        return z


def check_branches(graph_weight: float, aggregate: str) -> None:
    """Check how the two branches are combined."""
    check_range(at_least=0, at_most=1, graph_weight=graph_weight)
    check_choice("aggregate", aggregate, ("add", "cat"))
