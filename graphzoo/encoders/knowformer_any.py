"""KnowFormer for relations that it has never seen: it computes their vectors from the entities they share.

The encoder is KnowFormer (Liu et al., ICML 2024). Message passing over a graph of relations, from the query
relation, is the idea of ULTRA (Galkin et al., "Towards Foundation Models for Knowledge Graph Reasoning", ICLR
2024). Weights by overlap and shared pairs are ours.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphzoo.encoders.knowformer import AnyGraph, MessageUpdate, RelationConditioned
from graphzoo.errors import check_whole
from graphzoo.layers.relation_graph import NUM_WAYS, RelationGraph, compare_relations
from graphzoo.ops import QueryGraph
from graphzoo.ops.attention import AttentionNorm
from graphzoo.types import GraphSpec


class RelationNet(nn.Module):
    """States of all relations for a query relation, by message passing over the graph of relations.

    In that graph, relations that share entities are neighbours.

    Args:
        channels: Width D.
        num_layers: Layers of message passing.
        shared_pairs: Whether messages also pass between relations that share pairs (head, tail).
        weighted: Whether messages are weighted by how much two relations share; if not, by 1.
    """

    def __init__(self, channels: int, num_layers: int, shared_pairs: bool, weighted: bool) -> None:
        super().__init__()
        self.weighted = weighted
        self.num_ways = NUM_WAYS if shared_pairs else NUM_WAYS - 2
        self.lin1 = nn.Linear(2, channels)
        self.lin2 = nn.Linear(channels, channels)
        self.ways = nn.ModuleList(
            nn.Linear(self.num_ways * channels, channels, bias=False) for _ in range(num_layers)
        )
        self.layers = nn.ModuleList(MessageUpdate(channels) for _ in range(num_layers))

    def forward(self, graph: RelationGraph, query: Tensor) -> Tensor:
        """Graph of relations and query relations [Q] -> states of all relations, [2R, Q, D]."""
        graph = graph if self.weighted else graph.unweighted()
        num_types, count = graph.inverse.numel(), query.numel()
        marks = torch.zeros(num_types, count, 2, device=query.device, dtype=self.lin1.weight.dtype)
        column = torch.arange(count, device=query.device)
        one = marks.new_ones(())  # a number of Python would be copied to the device
        marks[query, column, 0] = one
        marks[graph.inverse[query], column, 1] = one
        z: Tensor = self.lin2(F.relu(self.lin1(marks)))
        for ways, layer in zip(self.ways, self.layers, strict=True):
            assert isinstance(layer, MessageUpdate)
            met = graph.propagate(z.flatten(1))[:, : self.num_ways].reshape(
                num_types, self.num_ways, *z.shape[1:]
            )
            z = layer.update(z.contiguous(), ways(met.transpose(1, 2).flatten(2)))
        return z


class KnowFormerAny(RelationConditioned):
    """KnowFormer whose relation vectors are computed from the graph, so that it runs on any relations.

    No weight belongs to a relation. Renaming or renumbering entities and relations changes no score beyond
    rounding, unless `noise_std` is above 0: noise is a function of these numbers.

    Args:
        spec: Sizes of the graph.
        hidden_channels: Width D of all states; a multiple of `num_heads`.
        num_layers: Attention layers L.
        num_query_layers: Message-passing layers of each query net.
        num_value_layers: Message-passing layers of each value net.
        num_relation_layers: Layers of message passing over the graph of relations.
        shared_pairs: Whether messages also pass between relations that share pairs (head, tail); ULTRA has
            only the four ways of sharing an entity.
        weighted_relations: Whether messages are weighted by how much two relations share; ULTRA's weights are
            0 and 1.
        num_heads: Attention heads H.
        dropout: Dropout rate inside the feed-forward network.
        norm: Normalisation of queries and keys, see `graphzoo.ops.prototype_attention`.
        query_net: Whether there are query nets; without them, queries and keys are linear maps of the layer
            input.
        attention: "prototype" (the paper's) or "none" (out = value).
        noise_std: Standard deviation of the query net's noise.
    """

    any_relations: ClassVar[bool] = True

    def __init__(
        self,
        spec: GraphSpec,
        *,
        hidden_channels: int = 32,
        num_layers: int = 3,
        num_query_layers: int = 2,
        num_value_layers: int = 3,
        num_relation_layers: int = 3,
        shared_pairs: bool = True,
        weighted_relations: bool = True,
        num_heads: int = 4,
        dropout: float = 0.1,
        norm: AttentionNorm = "l2",
        query_net: bool = True,
        attention: str = "prototype",
        noise_std: float = 0.0,
    ) -> None:
        settings = {
            name: value for name, value in locals().items() if name in KnowFormerAny.__init__.__annotations__
        }
        check_whole(at_least=1, num_relation_layers=num_relation_layers)
        settings |= {"value_net": True, "num_random_features": 1}
        super().__init__(spec, settings)
        self.relation_net = RelationNet(
            hidden_channels, num_relation_layers, shared_pairs, weighted_relations
        )
        self.layers = self.make_layers(settings, 1)

    def relation_inputs(self, graph: AnyGraph, relation: Tensor) -> Tensor:
        """States of all relations as each query sees them, [2R, B, D]."""
        by_query = isinstance(graph, QueryGraph)  # its messages are stored query by query
        # How many relations are distinct is unknown while exporting; a GPU would make the host wait for it.
        if torch.compiler.is_exporting() or (relation.is_cuda and self.training):
            every: Tensor = self.relation_net(compare_relations(graph), relation)
            return every.transpose(0, 1).contiguous().transpose(0, 1) if by_query else every
        distinct, row = torch.unique(relation, return_inverse=True)
        states: Tensor = self.relation_net(compare_relations(graph), distinct)  # [2R, Q, D]
        return states.transpose(0, 1)[row].transpose(0, 1) if by_query else states[:, row]
