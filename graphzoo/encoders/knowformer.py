"""KnowFormer: kernel attention on the states of two message-passing nets, for knowledge-graph completion.

Liu, Mao, Jiang and Li, "KnowFormer: Revisiting Transformers for Knowledge Graph Reasoning", ICML 2024.
Equation numbers are the paper's. There are no entity embeddings, so a trained encoder runs on any graph with
its relations.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from threading import get_ident
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphzoo.encoders.base import QueryEncoder
from graphzoo.encoders.checks import check_heads, check_queries, chosen
from graphzoo.errors import UsageError, check_choice, check_range, check_whole
from graphzoo.layers import NoiseStream, recorded_messages, row_entropy
from graphzoo.ops import QueryGraph, RelationalGraph, relational_spmm
from graphzoo.ops.attention import (
    AttentionNorm,
    exponential_attention,
    prototype_attention_weights,
    random_feature_attention,
)
from graphzoo.ops.message_update import message_update
from graphzoo.ops.prototype_layer import RowDropout, prototype_layer
from graphzoo.ops.prototype_layer.naive import feed_forward
from graphzoo.ops.random import hash_integers, normal_from_hash
from graphzoo.ops.relational_spmm.query_graph import to_query_major
from graphzoo.ops.state_mlp import state_mlp
from graphzoo.types import GraphSpec

AnyGraph = RelationalGraph | QueryGraph
Attention = Literal["prototype", "random_features", "exponential", "none"]


class MessageUpdate(nn.Module):
    """One message-passing layer: z <- z + LayerNorm(MLP2(agg + alpha * z)) (Eq. 5 and 6)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.randn(channels))
        self.lin1 = nn.Linear(channels, channels)
        self.lin2 = nn.Linear(channels, channels)
        self.norm = nn.LayerNorm(channels)

    def forward(self, z: Tensor, relation: Tensor, graph: AnyGraph, edge_mask: Tensor | None) -> Tensor:
        """States [N, B, D] and relation vectors [2R, B, D] -> states [N, B, D]."""
        # On CUDA, autocast keeps LayerNorm, and so z, in float32, but not the relation vectors.
        aggregated = relational_spmm(z, relation.to(z.dtype), graph, edge_mask=edge_mask)
        return self.update(z, aggregated)

    def update(self, z: Tensor, aggregated: Tensor) -> Tensor:
        """States and the sums of their messages, [N, B, D] each -> states [N, B, D]."""
        return message_update(z, aggregated, (self.alpha, *_own(self.lin1, self.lin2, self.norm)))


def _own(*modules: nn.Linear | nn.LayerNorm) -> tuple[Tensor, ...]:
    """Weight and bias of each module, read as attributes so that `torch.nn.utils.parametrize` has effect."""
    return tuple(part for module in modules for part in (module.weight, module.bias))


def relation_vectors(linear: nn.Linear, query: Tensor, graph: AnyGraph) -> Tensor:
    """Relation vectors conditioned on the query relation (Eq. 4): [B, D] -> [2R, B, D].

    If `query` has states of all relations instead, [2R, B, D], each of them is mapped on its own.
    """
    if query.dim() == 3:
        by_query: Tensor = linear(query.transpose(0, 1)) if isinstance(graph, QueryGraph) else linear(query)
        return by_query.transpose(0, 1) if isinstance(graph, QueryGraph) else by_query
    vectors: Tensor = linear(query)
    num_types = linear.out_features // query.shape[1]
    turned = vectors.view(query.shape[0], num_types, query.shape[1]).transpose(0, 1)
    return turned if isinstance(graph, QueryGraph) else turned.contiguous()


class QueryNet(nn.Module):
    """Q-RMPNN: structure without the head, told apart by noise; its layers share one relation map (Eq. 5)."""

    def __init__(self, channels: int, num_types: int, num_layers: int) -> None:
        super().__init__()
        self.lin1 = nn.Linear(channels + 1, channels)
        self.lin2 = nn.Linear(channels, channels)
        if num_layers:  # an unused map would get no gradient, and DDP would fail
            self.relation = nn.Linear(channels, num_types * channels)
        self.layers = nn.ModuleList(MessageUpdate(channels) for _ in range(num_layers))

    def forward(
        self, x: Tensor | None, noise: Tensor, query: Tensor, graph: AnyGraph, edge_mask: Tensor | None
    ) -> Tensor:
        """Layer input [N, B, D] (None for zeros), noise [N, B, 1], query embedding [B, D] -> [N, B, D]."""
        w1 = self.lin1.weight
        z = state_mlp(x, noise, w1[:, :-1], w1[:, -1], (self.lin1.bias, self.lin2.weight, self.lin2.bias))
        if len(self.layers):
            relation = relation_vectors(self.relation, query, graph)
            for layer in self.layers:
                z = layer(z, relation, graph, edge_mask)
        return z


class ValueNet(nn.Module):
    """V-RMPNN: structure seen from the head entity; every layer has its own relation map (Eq. 6)."""

    def __init__(self, channels: int, num_types: int, num_layers: int) -> None:
        super().__init__()
        self.lin1 = nn.Linear(2 * channels, channels)
        self.lin2 = nn.Linear(channels, channels)
        self.relations = nn.ModuleList(nn.Linear(channels, num_types * channels) for _ in range(num_layers))
        self.layers = nn.ModuleList(MessageUpdate(channels) for _ in range(num_layers))

    def forward(
        self, x: Tensor | None, head: Tensor, query: Tensor, graph: AnyGraph, edge_mask: Tensor | None
    ) -> Tensor:
        """Layer input [N, B, D] (None for zeros), heads [B], query embedding [B, D] -> [N, B, D]."""
        z = self._mark_head(x, head, graph)
        for relation, layer in zip(self.relations, self.layers, strict=True):
            assert isinstance(relation, nn.Linear)
            z = layer(z, relation_vectors(relation, query, graph), graph, edge_mask)
        return z

    def _mark_head(self, x: Tensor | None, head: Tensor, graph: AnyGraph) -> Tensor:
        """MLP([x, 1_{u = h}]); the indicator changes one row per query, and only that is computed again."""
        channels = self.lin2.in_features
        w1, b1, w2, b2 = self.lin1.weight, self.lin1.bias, self.lin2.weight, self.lin2.bias
        batch = torch.arange(head.numel(), device=head.device)
        if x is None:
            z = _mlp_rows(b1, w2, b2).expand(graph.num_nodes, head.numel(), channels)
            z = to_query_major(z) if isinstance(graph, QueryGraph) else z.clone()
            at_head = b1.expand(head.numel(), channels)
        else:
            z = state_mlp(x, None, w1[:, :channels], None, (b1, w2, b2))
            at_head = F.linear(x[head, batch], w1[:, :channels], b1)
        marked = _mlp_rows(at_head + w1[:, channels:].sum(1), w2, b2)
        return z.index_put_((head, batch), marked.to(z.dtype))


def _mlp_rows(hidden: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    return F.linear(hidden.relu(), w2, b2)


class KnowFormerLayer(nn.Module):
    """Attention between query net and value net, then a feed-forward network (Eq. 10 and 11)."""

    def __init__(
        self,
        channels: int,
        num_types: int,
        *,
        num_query_layers: int,
        num_value_layers: int,
        num_heads: int,
        dropout: float,
        norm: AttentionNorm,
        attention: Attention,
        query_net: bool,
        value_net: bool,
        num_random_features: int,
    ) -> None:
        super().__init__()
        self.num_heads, self.dropout, self.norm_kind, self.attention = num_heads, dropout, norm, attention
        if attention != "none":
            self.query_net = QueryNet(channels, num_types, num_query_layers) if query_net else None
            self.query_key = nn.Linear(channels, 2 * channels)
        self.value_net = ValueNet(channels, num_types, num_value_layers if value_net else 0)
        self.norm1 = nn.LayerNorm(channels)
        self.ffn1 = nn.Linear(channels, channels)
        self.ffn2 = nn.Linear(channels, channels)
        self.norm2 = nn.LayerNorm(channels)
        if attention == "random_features":
            self.projection: Tensor
            self.register_buffer("projection", torch.randn(num_random_features, channels // num_heads))

    def forward(
        self,
        x: Tensor | None,
        query: Tensor,
        head: Tensor,
        noise: Tensor,
        keys: Tensor,
        graph: AnyGraph,
        edge_mask: Tensor | None,
    ) -> Tensor:
        """One layer.

        Args:
            x: Layer input [N, B, D]; None stands for zeros.
            query: Embedding of the query relation, [B, D].
            head: Head of each query, [B].
            noise: Noise of the query net, [N, B, 1].
            keys: Hashes from which the dropout masks are drawn, [B], int64.
            graph: Facts.
            edge_mask: True where an edge may be used, [E]; None for all.

        Returns:
            States [N, B, D].
        """
        value = self.value_net(x, head, query, graph, edge_mask)
        parameters = _own(self.norm1, self.ffn1, self.ffn2, self.norm2)
        dropout = RowDropout(self.dropout, keys) if self.training and self.dropout > 0 else None
        if self.attention == "none":
            return feed_forward(value, x, parameters, dropout)
        states = self.query_key_states(x, query, head, noise, keys, graph, edge_mask)
        if self.attention != "prototype":
            return feed_forward(self._ablated_attention(states, value), x, parameters, dropout)
        return prototype_layer(
            states,
            value,
            x,
            (self.query_key.weight, self.query_key.bias),
            parameters,
            num_heads=self.num_heads,
            norm=self.norm_kind,
            dropout=dropout,
        )

    def query_key_states(
        self,
        x: Tensor | None,
        query: Tensor,
        head: Tensor,
        noise: Tensor,
        keys: Tensor,
        graph: AnyGraph,
        edge_mask: Tensor | None,
    ) -> Tensor:
        """States [N, B, D] that queries and keys are linear maps of, from the arguments of `forward`."""
        if self.query_net is not None:
            states: Tensor = self.query_net(x, noise, query, graph, edge_mask)
            return states
        return query.new_zeros(graph.num_nodes, *query.shape[-2:]) if x is None else x

    def attention_weights(self, states: Tensor, node: Tensor) -> Tensor:
        """Attention of one node per query, averaged over heads: [N, B, D] and node [B] -> [N, B]."""
        q, k = (self._split(part) for part in self.query_key(states).chunk(2, dim=-1))
        return prototype_attention_weights(q, k, node, norm=self.norm_kind).mean(-1)

    def _split(self, x: Tensor) -> Tensor:
        width = x.shape[-1] // self.num_heads  # not -1: a batch may hold no query
        return x.view(*x.shape[:-1], self.num_heads, width)  # [n, B, H, D / H]

    def _ablated_attention(self, states: Tensor, value: Tensor) -> Tensor:
        q, k = (self._split(part) for part in self.query_key(states).chunk(2, dim=-1))
        if self.attention == "exponential":
            return exponential_attention(q, k, self._split(value)).flatten(2)
        return random_feature_attention(q, k, self._split(value), self.projection).flatten(2)


class RelationConditioned(QueryEncoder):
    """KnowFormer without the source of its relation vectors, which subclasses give in `relation_inputs`.

    The settings are the keyword arguments of `KnowFormer`.
    """

    layers: nn.ModuleList

    def __init__(self, spec: GraphSpec, settings: dict[str, Any]) -> None:
        _check_settings(settings)
        super().__init__()
        self.spec, self.out_channels = spec, settings["hidden_channels"]
        self.noise_std = settings["noise_std"]
        self.noise = NoiseStream(persistent=False)

    def make_layers(self, settings: dict[str, Any], num_vectors: int) -> nn.ModuleList:
        """The layers. Their relation maps turn each row of `relation_inputs` into `num_vectors` vectors."""
        names = ("num_query_layers", "num_value_layers", "num_heads", "dropout", "norm", "attention",
                 "query_net", "value_net", "num_random_features")  # fmt: skip
        own = {name: settings[name] for name in names}
        return nn.ModuleList(
            KnowFormerLayer(self.out_channels, num_vectors, **own) for _ in range(settings["num_layers"])
        )

    @abstractmethod
    def relation_inputs(self, graph: AnyGraph, relation: Tensor) -> Tensor:
        """Input of the relation maps: query embeddings [B, D], or states of all relations [2R, B, D].

        Raises:
            UsageError: if the encoder was not built for the relations of this graph.
        """

    def forward(
        self,
        graph: AnyGraph,
        head: Tensor,
        relation: Tensor,
        *,
        edge_mask: Tensor | None = None,
        noise_seed: int | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Encode B queries.

        Args:
            graph: Facts with inverses: 2R edge types. With a `QueryGraph` N below is K, and noise is still
                that of the entity in the whole graph.
            head: Head of each query, a node of `graph`, [B], int64.
            relation: Relation of each query in 0..2R-1, [B], int64.
            edge_mask: True where an edge may be used, [E], bool; None for all.
            noise_seed: Noise and dropout are functions of (noise_seed, layer, head, relation, entity). With
                None, training takes the next seed of the encoder's noise stream, and evaluation takes 0.
            noise: Noise of the query nets, [L, N, B]; None draws it.

        Returns:
            States [N, B, D].

        Raises:
            UsageError: if the encoder was built for other edge types, or the graph has no such head or
                relation (values are checked on the CPU only).
        """
        check_queries(type(self).__name__, graph, head, relation)
        query = self.relation_inputs(graph, relation)
        if noise_seed is None:
            key: int | Tensor = self.noise.key() if self.training else 0
        else:
            key = noise_seed
        x: Tensor | None = None
        if isinstance(graph, QueryGraph):
            entity = graph.entities  # [K, B]
            asked = entity[head, torch.arange(head.numel(), device=head.device)]
        else:
            entity, asked = torch.arange(graph.num_nodes, device=head.device)[:, None], head
        for i, layer in enumerate(self.layers):
            keys = hash_integers(key, i, asked, relation)  # [B]
            if noise is None:
                drawn = self.noise_std * normal_from_hash(hash_integers(keys, entity), query.dtype)
            else:
                drawn = noise[i]
            x = layer(x, query, head, drawn[..., None], keys, graph, edge_mask)
        assert x is not None
        return x

    def edge_gradients(
        self,
        graph: AnyGraph,
        head: Tensor,
        relation: Tensor,
        score: Callable[[Tensor], Tensor],
        *,
        edge_mask: Tensor | None = None,
        noise_seed: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """See `QueryEncoder.edge_gradients`: messages of query and value nets alike (Eq. 5 and 6)."""
        with recorded_messages(self, MessageUpdate) as messages:
            states = self(graph, head, relation, edge_mask=edge_mask, noise_seed=noise_seed)
            value = score(states)
            return value.detach(), messages.edge_gradients(value, graph, edge_mask)

    @torch.no_grad()
    def attention(
        self,
        graph: AnyGraph,
        head: Tensor,
        relation: Tensor,
        node: Tensor,
        *,
        edge_mask: Tensor | None = None,
        noise_seed: int = 0,
    ) -> Tensor:
        """Attention of one node of each query, averaged over heads (the paper's Fig. 4); see `forward`.

        Returns:
            [L, N, B]; the N weights of a layer and query sum to 1, see `prototype_attention_weights`.

        Raises:
            UsageError: if the encoder was built with another attention than "prototype".
        """
        if self.init_args["attention"] != "prototype":
            raise UsageError(
                f"attention {self.init_args['attention']!r} has no weights to show; only 'prototype' has"
            )
        states: list[Tensor] = []
        thread = get_ident()

        def note(module: Any, arguments: Any, _: Tensor) -> None:
            if get_ident() == thread:  # another thread may run the same layer
                states.append(module.query_key_states(*arguments))

        with ExitStack() as stack:
            for layer in self.layers:
                stack.callback(layer.register_forward_hook(note).remove)
            self(graph, head, relation, edge_mask=edge_mask, noise_seed=noise_seed)
        rows = []
        for layer, layer_states in zip(self.layers, states, strict=True):
            assert isinstance(layer, KnowFormerLayer)
            rows.append(layer.attention_weights(layer_states, node))
        return torch.stack(rows)

    @torch.no_grad()
    def attention_entropy(
        self,
        graph: AnyGraph,
        head: Tensor,
        relation: Tensor,
        node: Tensor,
        *,
        edge_mask: Tensor | None = None,
        noise_seed: int = 0,
    ) -> Tensor | None:
        """See `QueryEncoder.attention_entropy`; a node's own weight is left out.

        Eq. 10 adds N to it, so that the entropy would stay below 1 even if all other weights were equal.
        """
        if self.init_args["attention"] != "prototype" or not head.numel():
            return None
        weights = self.attention(graph, head, relation, node, edge_mask=edge_mask, noise_seed=noise_seed)
        weights[:, node, torch.arange(node.numel(), device=node.device)] = 0
        rows = weights.transpose(1, 2)  # [L, B, N]
        rows = rows / rows.sum(-1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
        return row_entropy(rows, torch.tensor(graph.num_nodes - 1)).mean(1)


class KnowFormer(RelationConditioned):
    """KnowFormer encoder: B queries (head, relation, ?) on one graph -> states of every entity, [N, B, D].

    Args:
        spec: Sizes of the graph; `num_relations` counts forward relations.
        hidden_channels: Width D of all states; a multiple of `num_heads`.
        num_layers: Attention layers L.
        num_query_layers: Message-passing layers of each query net.
        num_value_layers: Message-passing layers of each value net.
        num_heads: Attention heads H.
        dropout: Dropout rate inside the feed-forward network.
        norm: Normalisation of queries and keys, see `graphzoo.ops.prototype_attention`.
        attention: "prototype" (the paper's), "none" (out = value), "random_features" or
            "exponential" (quadratic).
        query_net: Whether there are query nets; without them, queries and keys are linear maps of the layer
            input.
        value_net: Whether value nets pass messages; without them, values are the input MLP of
            [x, 1_{u = h}].
        noise_std: Standard deviation of the query net's noise; 0 switches it off.
        tie_initialization: Start all layers, and the message-passing layers inside each net, as copies of
            one, as the published code does.
        num_random_features: M of the "random_features" attention.
    """

    def __init__(
        self,
        spec: GraphSpec,
        *,
        hidden_channels: int = 32,
        num_layers: int = 3,
        num_query_layers: int = 2,
        num_value_layers: int = 3,
        num_heads: int = 4,
        dropout: float = 0.1,
        norm: AttentionNorm = "l2",
        attention: Attention = "prototype",
        query_net: bool = True,
        value_net: bool = True,
        noise_std: float = 4.0,
        tie_initialization: bool = False,
        num_random_features: int = 32,
    ) -> None:
        settings = {
            name: value for name, value in locals().items() if name in KnowFormer.__init__.__annotations__
        }
        num_types = 2 * spec.num_relations
        super().__init__(spec, settings)
        self.relation_embedding = nn.Embedding(num_types, hidden_channels)
        self.layers = self.make_layers(settings, num_types)
        if tie_initialization:
            self._tie_initialization()

    def relation_inputs(self, graph: AnyGraph, relation: Tensor) -> Tensor:
        """Embeddings of the queries, [B, D] (Eq. 4)."""
        num_types = self.relation_embedding.num_embeddings
        if graph.num_relations != num_types:
            raise UsageError(
                f"the encoder knows {num_types} edge types (relations and inverses), the graph has "
                f"{graph.num_relations}: build the graph with the relation vocabulary of the training graph"
            )
        embedded: Tensor = self.relation_embedding(relation)
        return embedded

    def _tie_initialization(self) -> None:
        for layer in self.layers:
            for module in layer.modules():
                if isinstance(module, nn.ModuleList):
                    for other in list(module)[1:]:
                        other.load_state_dict(module[0].state_dict())
        for other in list(self.layers)[1:]:
            other.load_state_dict(self.layers[0].state_dict())


def _check_settings(settings: dict[str, Any]) -> None:
    if settings["spec"].num_relations < 1:
        raise UsageError(
            "KnowFormer needs a graph with relations; the data has none (GraphSpec.num_relations is 0)"
        )
    check_whole(
        at_least=1, **chosen(settings, "hidden_channels", "num_layers", "num_heads", "num_random_features")
    )
    check_whole(at_least=0, **chosen(settings, "num_query_layers", "num_value_layers"))
    check_range(at_least=0, noise_std=settings["noise_std"])
    check_heads(**chosen(settings, "hidden_channels", "num_heads"))
    check_range(at_least=0, below=1, dropout=float(settings["dropout"]))
    check_choice("norm", settings["norm"], ("l2", "fro"))
    check_choice("attention", settings["attention"], ("prototype", "random_features", "exponential", "none"))
