"""KnowFormer: kernel attention between relational message-passing nets, for knowledge-graph completion.

Liu, Mao, Jiang and Li, "KnowFormer: Revisiting Transformers for Knowledge Graph Reasoning", ICML 2024.
Equation numbers are the paper's. There are no entity embeddings, so a trained encoder runs on any graph with
its relations.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphzoo.encoders.base import QueryEncoder
from graphzoo.ops import RelationalGraph, relational_spmm
from graphzoo.ops.attention import (
    AttentionNorm,
    apply_prototypes,
    exponential_attention,
    random_feature_attention,
    sum_prototypes,
)
from graphzoo.ops.map_rows import map_rows
from graphzoo.sampling.random import hash_integers, normal_from_hash
from graphzoo.types import GraphSpec

__all__ = ["KnowFormer"]

Attention = Literal["prototype", "random_features", "exponential", "none"]


def _mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    return F.linear(F.linear(x, w1, b1).relu_(), w2, b2)


class MessageUpdate(nn.Module):
    """One message-passing layer: z <- z + LayerNorm(MLP2(agg + alpha * z)) (Eq. 5 and 6)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.randn(channels))
        self.lin1 = nn.Linear(channels, channels)
        self.lin2 = nn.Linear(channels, channels)
        self.norm = nn.LayerNorm(channels)

    def forward(
        self, z: Tensor, relation: Tensor, graph: RelationalGraph, edge_mask: Tensor | None
    ) -> Tensor:
        """States [N, B, D] and relation vectors [2R, B, D] -> states [N, B, D]."""
        # On CUDA, autocast keeps LayerNorm, and so z, in float32, but not the relation vectors.
        aggregated = relational_spmm(z, relation.to(z.dtype), graph, edge_mask=edge_mask)
        (out,) = map_rows(_update, (z, aggregated), tuple(self.parameters()), gradient=_update_gradient)
        return out


def _update(rows: tuple[Tensor, ...], shared: tuple[Tensor, ...], start: int) -> tuple[Tensor, ...]:
    z, aggregated = rows
    alpha, w1, b1, w2, b2, weight, bias = shared
    hidden = _mlp(torch.addcmul(aggregated, z, alpha), w1, b1, w2, b2)
    return (z + F.layer_norm(hidden, weight.shape, weight, bias),)


def _update_gradient(
    rows: tuple[Tensor, ...], shared: tuple[Tensor, ...], start: int, grads: tuple[Tensor, ...]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Gradient of `_update` by hand: it runs more often than all else, and autograd doubles its time."""
    alpha, w1, b1, w2, b2, weight, bias = shared
    channels = alpha.numel()
    z, aggregated, grad = (x.reshape(-1, channels) for x in (*rows, grads[0]))
    u = torch.addcmul(aggregated, z, alpha)
    h = torch.addmm(b1, u, w1.t()).relu_()
    y = torch.addmm(b2, h, w2.t())
    _, mean, rstd = torch.native_layer_norm(y, (channels,), weight, bias, 1e-5)
    grad_y, grad_weight, grad_bias = torch.ops.aten.native_layer_norm_backward(
        grad, y, (channels,), mean, rstd, weight, bias, [True, True, True]
    )
    grad_h = torch.ops.aten.threshold_backward(grad_y @ w2, h, 0)
    grad_u = grad_h @ w1
    by_shared = (
        (grad_u * z).sum(0), grad_h.t() @ u, grad_h.sum(0), grad_y.t() @ h, grad_y.sum(0), grad_weight,
        grad_bias,
    )  # fmt: skip
    return (torch.addcmul(grad, grad_u, alpha).view_as(rows[0]), grad_u.view_as(rows[0])), by_shared


def relation_vectors(linear: nn.Linear, query: Tensor) -> Tensor:
    """Relation vectors conditioned on the query relation (Eq. 4): [B, D] -> [2R, B, D]."""
    vectors: Tensor = linear(query)
    num_types = linear.out_features // query.shape[1]
    return vectors.view(query.shape[0], num_types, query.shape[1]).transpose(0, 1).contiguous()


class QueryNet(nn.Module):
    """Q-RMPNN: structure without the head, told apart by noise; its layers share one relation map (Eq. 5)."""

    def __init__(self, channels: int, num_types: int, num_layers: int) -> None:
        super().__init__()
        self.lin1 = nn.Linear(channels + 1, channels)
        self.lin2 = nn.Linear(channels, channels)
        if num_layers:  # an unused map would get no gradient, which DDP takes for an error
            self.relation = nn.Linear(channels, num_types * channels)
        self.layers = nn.ModuleList(MessageUpdate(channels) for _ in range(num_layers))

    def forward(
        self, x: Tensor | None, noise: Tensor, query: Tensor, graph: RelationalGraph, edge_mask: Tensor | None
    ) -> Tensor:
        """Layer input [N, B, D] (None for zeros), noise [N, B, 1], query embedding [B, D] -> [N, B, D]."""
        rows = (noise,) if x is None else (noise, x)
        weights = (self.lin1.weight, self.lin1.bias, self.lin2.weight, self.lin2.bias)
        (z,) = map_rows(self._input, rows, weights)
        if len(self.layers):
            relation = relation_vectors(self.relation, query)
            for layer in self.layers:
                z = layer(z, relation, graph, edge_mask)
        return z

    @staticmethod
    def _input(rows: tuple[Tensor, ...], shared: tuple[Tensor, ...], start: int) -> tuple[Tensor, ...]:
        w1, b1, w2, b2 = shared
        hidden = rows[0] * w1[:, -1] + b1
        if len(rows) == 2:
            hidden = hidden + F.linear(rows[1], w1[:, :-1])
        return (F.linear(hidden.relu(), w2, b2),)


class ValueNet(nn.Module):
    """V-RMPNN: structure seen from the head entity; every layer has its own relation map (Eq. 6)."""

    def __init__(self, channels: int, num_types: int, num_layers: int) -> None:
        super().__init__()
        self.lin1 = nn.Linear(2 * channels, channels)
        self.lin2 = nn.Linear(channels, channels)
        self.relations = nn.ModuleList(nn.Linear(channels, num_types * channels) for _ in range(num_layers))
        self.layers = nn.ModuleList(MessageUpdate(channels) for _ in range(num_layers))

    def forward(
        self, x: Tensor | None, head: Tensor, query: Tensor, graph: RelationalGraph, edge_mask: Tensor | None
    ) -> Tensor:
        """Layer input [N, B, D] (None for zeros), heads [B], query embedding [B, D] -> [N, B, D]."""
        z = self._mark_head(x, head, graph.num_nodes)
        for relation, layer in zip(self.relations, self.layers, strict=True):
            assert isinstance(relation, nn.Linear)
            z = layer(z, relation_vectors(relation, query), graph, edge_mask)
        return z

    def _mark_head(self, x: Tensor | None, head: Tensor, num_nodes: int) -> Tensor:
        """MLP([x, 1_{u = h}]): the indicator changes one row per query, so only those rows see its
        weights.
        """
        channels = self.lin2.in_features
        w1, b1, w2, b2 = self.lin1.weight, self.lin1.bias, self.lin2.weight, self.lin2.bias
        batch = torch.arange(head.numel(), device=head.device)
        if x is None:
            z = _mlp_rows(b1, w2, b2).expand(num_nodes, head.numel(), channels).clone()
            at_head = b1.expand(head.numel(), channels)
        else:
            (z,) = map_rows(lambda rows, w, _: (_mlp(rows[0], *w),), (x,), (w1[:, :channels], b1, w2, b2))
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
        graph: RelationalGraph,
        edge_mask: Tensor | None,
    ) -> Tensor:
        """One layer.

        Args:
            x: Layer input [N, B, D]; None stands for zeros.
            query: Embedding of the query relation, [B, D].
            head: [B].
            noise: Noise of the query net, [N, B, 1].
            keys: Names of the dropout masks, [B], int64.
            graph: Facts.
            edge_mask: [E] or None.

        Returns:
            [N, B, D].
        """
        value = self.value_net(x, head, query, graph, edge_mask)
        skip = () if x is None else (x,)
        tail = (keys, *self.norm1.parameters(), *self.ffn1.parameters(), *self.ffn2.parameters(),
                *self.norm2.parameters())  # fmt: skip
        if self.attention == "none":
            (out,) = map_rows(lambda r, s, i: (self._finish(r[0], r[1:], s, i),), (value, *skip), tail)
            return out
        states = (
            value.new_zeros(value.shape) if x is None else x
        )  # what q and k are made of without a query net
        if self.query_net is not None:
            states = self.query_net(x, noise, query, graph, edge_mask)
        weight, bias = self.query_key.weight, self.query_key.bias
        if self.attention != "prototype":
            attended = self._ablated_attention(states, value)
            (out,) = map_rows(lambda r, s, i: (self._finish(r[0], r[1:], s, i),), (attended, *skip), tail)
            return out

        num_nodes, channels, norm = value.shape[0], value.shape[-1], self.norm_kind

        def sums_of(rows: tuple[Tensor, ...], shared: tuple[Tensor, ...], start: int) -> tuple[Tensor, ...]:
            w, b = shared
            key = F.linear(rows[0], w[channels:], b[channels:])
            q = F.linear(rows[0], w[:channels], b[:channels]) if norm == "fro" else key
            return sum_prototypes(q, key, rows[1], self.num_heads, norm)

        def attend(rows: tuple[Tensor, ...], shared: tuple[Tensor, ...], start: int) -> tuple[Tensor, ...]:
            w, b = shared[:2]
            sums = shared[2 : 2 + num_sums]
            out = apply_prototypes(F.linear(rows[0], w, b), rows[1], sums, num_nodes, self.num_heads, norm)
            return (self._finish(out, rows[2:], shared[2 + num_sums :], start),)

        num_sums = 3 if norm == "l2" else 5
        sums = map_rows(sums_of, (states, value), (weight, bias), num_sums=num_sums)
        shared = (weight[:channels], bias[:channels], *sums, *tail)
        (out,) = map_rows(attend, (states, value, *skip), shared)
        return out

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.num_heads, -1)  # [n, B, H, D / H]

    def _ablated_attention(self, states: Tensor, value: Tensor) -> Tensor:
        q, k = (self._split(part) for part in self.query_key(states).chunk(2, dim=-1))
        if self.attention == "exponential":
            return exponential_attention(q, k, self._split(value)).flatten(2)
        return random_feature_attention(q, k, self._split(value), self.projection).flatten(2)

    def _finish(
        self, attended: Tensor, skip: tuple[Tensor, ...], shared: tuple[Tensor, ...], start: int
    ) -> Tensor:
        """A = LN(x + attention), LN(A + FFN(A)) (Eq. 11) for the rows from `start` on."""
        keys, n1w, n1b, w1, b1, w2, b2, n2w, n2b = shared
        x = attended if not skip else attended + skip[0]
        x = F.layer_norm(x, n1w.shape, n1w, n1b)
        hidden = F.linear(x, w1, b1).relu()
        if self.training and self.dropout > 0:
            hidden = hidden * self._dropout_mask(hidden, keys, start)
        return F.layer_norm(x + F.linear(hidden, w2, b2), n2w.shape, n2w, n2b)

    def _dropout_mask(self, hidden: Tensor, keys: Tensor, start: int) -> Tensor:
        """Mask / (1 - p): a function of (key of the query, entity, channel), so chunks and batches agree."""
        length, _, channels = hidden.shape
        entity = torch.arange(start, start + length, device=hidden.device)
        words = torch.arange(
            -(-channels // 4), device=hidden.device
        )  # 4 channels take 16 bits each of one hash
        bits = hash_integers(keys[:, None], words)[None] ^ hash_integers(7, entity)[:, None, None]
        bits = hash_integers(bits).view(torch.int16)[..., :channels]
        dropped = min(round(self.dropout * 65536), 65535)
        return (bits >= dropped - 32768).to(hidden.dtype) * (65536 / (65536 - dropped))


class KnowFormer(QueryEncoder):
    """KnowFormer encoder: B queries (head, relation, ?) on one graph -> states of every entity, [N, B, D].

    Args:
        spec: Facts of the graph; `num_relations` counts forward relations.
        hidden_channels: Width D of all states; a multiple of `num_heads`.
        num_layers: Attention layers L.
        num_query_layers: Message-passing layers of each query net.
        num_value_layers: Message-passing layers of each value net.
        num_heads: Attention heads H.
        dropout: Inside the feed-forward network.
        norm: Normalisation of queries and keys, see `graphzoo.ops.prototype_attention`.
        attention: "prototype" (the paper's), "none" (out = value), "random_features" or "exponential"
        (quadratic).
        query_net: False: queries and keys from a linear map of the layer input.
        value_net: False: values are the input MLP of [x, 1_{u = h}], without messages.
        noise_std: Standard deviation of the query net's noise; 0 switches it off.
        tie_initialization: Start all layers, and the message-passing layers inside each net, as copies of
            one, as the published code does.
        num_random_features: M of the "random_features" attention.

    Raises:
        ValueError: for sizes that cannot be built, naming the setting.
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
        _check_settings(settings)
        super().__init__()
        self.spec, self.out_channels, self.noise_std = spec, hidden_channels, noise_std
        num_types = 2 * spec.num_relations
        self.relation_embedding = nn.Embedding(num_types, hidden_channels)
        self.layers = nn.ModuleList(
            KnowFormerLayer(
                hidden_channels,
                num_types,
                num_query_layers=num_query_layers,
                num_value_layers=num_value_layers,
                num_heads=num_heads,
                dropout=dropout,
                norm=norm,
                attention=attention,
                query_net=query_net,
                value_net=value_net,
                num_random_features=num_random_features,
            )
            for _ in range(num_layers)
        )
        if tie_initialization:
            self._tie_initialization()

    def forward(
        self,
        graph: RelationalGraph,
        head: Tensor,
        relation: Tensor,
        *,
        edge_mask: Tensor | None = None,
        noise_seed: int = 0,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Encode B queries.

        Args:
            graph: Facts with inverses: 2R edge types.
            head: [B], int64.
            relation: [B], int64, in 0..2R-1.
            edge_mask: True where an edge may be used, [E], bool.
            noise_seed: Noise and dropout are functions of (noise_seed, layer, head, relation, entity).
            noise: The query nets' noise itself, [L, N, B], instead of the drawn one.

        Returns:
            States [N, B, D].

        Raises:
            ValueError: if the graph's edge types are not the ones the encoder was built for.
        """
        num_types = self.relation_embedding.num_embeddings
        if graph.num_relations != num_types:
            raise ValueError(
                f"the encoder knows {num_types} edge types (relations and inverses), the graph has "
                f"{graph.num_relations}: build the graph with the relation vocabulary of the training graph"
            )
        query = self.relation_embedding(relation)
        x: Tensor | None = None
        entity = torch.arange(graph.num_nodes, device=head.device)
        for i, layer in enumerate(self.layers):
            keys = hash_integers(noise_seed, i, head, relation)  # [B]
            if noise is None:
                drawn = self.noise_std * normal_from_hash(hash_integers(keys, entity[:, None]), query.dtype)
            else:
                drawn = noise[i]
            x = layer(x, query, head, drawn[..., None], keys, graph, edge_mask)
        assert x is not None
        return x

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
        raise ValueError(
            "KnowFormer needs a graph with relations; the data has none (GraphSpec.num_relations is 0)"
        )
    for name in ("hidden_channels", "num_layers", "num_heads", "num_random_features"):
        if int(settings[name]) < 1:
            raise ValueError(f"{name} must be at least 1, got {settings[name]}")
    for name in ("num_query_layers", "num_value_layers", "noise_std"):
        if float(settings[name]) < 0:
            raise ValueError(f"{name} must be at least 0, got {settings[name]}")
    if int(settings["hidden_channels"]) % int(settings["num_heads"]):
        raise ValueError(
            f"hidden_channels ({settings['hidden_channels']}) must be a multiple of "
            f"num_heads ({settings['num_heads']})"
        )
    if not 0 <= float(settings["dropout"]) < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {settings['dropout']}")
    for name, choices in (
        ("norm", ("l2", "fro")),
        ("attention", ("prototype", "random_features", "exponential", "none")),
    ):
        if settings[name] not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {settings[name]!r}")
