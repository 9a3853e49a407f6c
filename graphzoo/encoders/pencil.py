"""PENCIL: a plain transformer on the sampled subgraph of a node pair, without node ids or handmade features.

Truong, Song, Loveland, Ju, Zhao, Shah and Tang, "Plain Transformers are Surprisingly Powerful Link
Predictors", 2026.
Tokens are the N nodes of the subgraph, u and v first, and behind them the two task tokens of u and v.
"""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphzoo.encoders.base import PairEncoder
from graphzoo.encoders.checks import check_heads, check_rates, check_sizes, refuse_features, require_features
from graphzoo.errors import UsageError, check_choice
from graphzoo.layers import FeatureRows, LayerNorm, NoiseStream, dropout, masked_attention, row_entropy
from graphzoo.layers.noise import in_evaluation
from graphzoo.types import GraphSpec, PairSubgraphs

ResidualNorm = Literal["row", "none", "column"]
ProjectionInit = Literal["orthogonal", "shifted_gaussian", "low_rank"]

# BERT's (Devlin et al., 2019, as Hugging Face has it): spread of initial weights, and of LayerNorm.
_INIT_STD, _NORM_EPS = 0.02, 1e-12
# Settings of the projections with which App. C.4 compares the orthogonal one.
_SHIFTED_MEAN, _LOW_RANK = 0.1, 5
# Tokens that keep a processor busy, without and with CUDA: a smaller group of its own gains nothing.
_MIN_TOKENS = (1024, 32768)


class PENCILLayer(nn.Module):
    """A BERT layer Z = T_k(H), and behind it the multiplicative residual Z + P_k(A Z) (Eq. 2)."""

    def __init__(
        self, channels: int, num_heads: int, ffn_channels: int, dropout: float, residual: bool
    ) -> None:
        super().__init__()
        self.channels, self.num_heads, self.dropout = channels, num_heads, dropout
        self.query_key_value = nn.Linear(channels, 3 * channels)
        self.attention_out = nn.Linear(channels, channels)
        self.attention_norm = LayerNorm(channels, eps=_NORM_EPS)
        self.ffn_in = nn.Linear(channels, ffn_channels)
        self.ffn_out = nn.Linear(ffn_channels, channels)
        self.ffn_norm = LayerNorm(channels, eps=_NORM_EPS)
        self.propagation = nn.Linear(channels, channels) if residual else None

    def forward(
        self, h: Tensor, mask: Tensor | None, operator: Tensor | None, generator: torch.Generator | None
    ) -> Tensor:
        """States [B, T, D], mask [B, T] (False at padding), operator [B, T, S] or None -> [B, T, D].

        The mask is None if there is no padding: flash kernels take no mask.
        """
        query, key, value = self._heads(self.query_key_value(h), 3)
        z = self._transform(h, query, key, value, mask, generator)
        return z if self.propagation is None else z + self._propagate(operator, z[:, :-2])

    def read_pair(
        self,
        h: Tensor,
        mask: Tensor | None,
        operator: Tensor | None,
        generator: torch.Generator | None,
        senders: Tensor | None,
    ) -> Tensor:
        """`forward` for the two task tokens alone, [B, 2, D].

        `senders` [B, R] holds at least all nodes from which u or v receives. Other nodes are not computed.
        """
        rows = h[:, -2:]
        if senders is not None:
            rows = torch.cat([rows, h.gather(1, senders[..., None].expand(-1, -1, self.channels))], 1)
        split = self.channels
        weight, bias = self.query_key_value.weight, self.query_key_value.bias
        (query,) = self._heads(F.linear(rows, weight[:split], bias[:split]), 1)
        key, value = self._heads(F.linear(h, weight[split:], bias[split:]), 2)
        z = self._transform(rows, query, key, value, mask, generator)
        if self.propagation is None or operator is None or senders is None:
            return z[:, :2]
        received = operator[:, -2:].gather(2, senders[:, None].expand(-1, 2, -1))
        return z[:, :2] + self._propagate(received, z[:, 2:])

    def weights(self, h: Tensor, mask: Tensor) -> Tensor:
        """Attention weights of states [B, T, D], [B, H, T, T]; rows and columns of padding are 0."""
        query, key, _ = self._heads(self.query_key_value(h), 3)
        scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
        weights = torch.softmax(scores.masked_fill(~mask[:, None, None], -torch.inf), -1)
        return weights * mask[:, None, :, None]

    def _heads(self, x: Tensor, count: int) -> tuple[Tensor, ...]:
        """[B, T, count D] -> count tensors [B, H, T, D / H]."""
        # Unbinding before the transpose lets the backward pass join the gradients in one copy.
        parts = x.view(*x.shape[:2], count, self.num_heads, self.channels // self.num_heads).unbind(2)
        return tuple(part.transpose(1, 2) for part in parts)

    def _transform(
        self,
        h: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        generator: torch.Generator | None,
    ) -> Tensor:
        """The BERT layer without its first three maps."""
        p = self.dropout if self.training else 0.0
        mixed = masked_attention(query, key, value, mask, p=p, generator=generator)
        attended = self.attention_out(mixed.transpose(1, 2).flatten(2))
        h = self.attention_norm(h + dropout(attended, p, generator, self.training))
        update = self.ffn_out(F.gelu(self.ffn_in(h)))
        z: Tensor = self.ffn_norm(h + dropout(update, p, generator, self.training))
        return z

    def _propagate(self, operator: Tensor | None, z: Tensor) -> Tensor:
        assert self.propagation is not None and operator is not None
        out: Tensor = self.propagation(operator.to(z.dtype) @ z)
        return out


class PENCIL(PairEncoder):
    r"""PENCIL encoder: subgraphs around B pairs -> the states of the two task tokens, [B, 2 D].

    Row i of the encoding is (one-hot of i | row i of the adjacency | role). The task tokens copy the rows of
    u and v, with another role (Fig. 2). The encoding is never built: with the projection :math:`W_0` cut into
    its three parts, :math:`H_0 = W_{id} + A W_{adj} + W_{role} + G(X)` (Eq. 1).

    The order of the nodes is part of the input: the sampler draws a new one for every visit to a pair.
    Padding and the other pairs of a batch change nothing.

    Args:
        spec: Sizes of the graph; `max_subgraph_nodes` is the sampler's budget, `in_channels` the width of the
            node features, 0 for none.
        hidden_channels: D, width of the states.
        num_layers: Layers.
        num_heads: Attention heads, a divisor of D.
        ffn_channels: Width between the two maps of the feed-forward network.
        dropout: Dropout rate of the attention weights, and of the outputs of attention and feed-forward
            network.
        max_nodes: N_max, which decides the shape of the projection and so its scale; None takes the data's.
        multiplicative_residual: Whether P_k(A Z) is added to each layer.
        residual_norm: "row" divides each row of A + I by its sum, "column" each column by the square root of
            its node's row sum, "none" leaves A + I as it is.
        projection_init: "orthogonal", or what the paper compares it with: "shifted_gaussian" (mean 0.1) and
            "low_rank" (5), whose entries have the spread of the orthogonal one's.
        trainable_projection: Whether the projection is learned; if not, it stays as it was drawn.
        position_embedding: Whether to add a learned vector for each position. The task tokens have positions
            of their own, whatever the padding.
        use_features: Whether node features are used where the data has any.
        seed: Seed of the noise stream.
    """

    projection: Tensor

    def __init__(
        self,
        spec: GraphSpec,
        *,
        hidden_channels: int = 512,
        num_layers: int = 4,
        num_heads: int = 8,
        ffn_channels: int = 2048,
        dropout: float = 0.1,
        max_nodes: int | None = None,
        multiplicative_residual: bool = True,
        residual_norm: ResidualNorm = "row",
        projection_init: ProjectionInit = "orthogonal",
        trainable_projection: bool = False,
        position_embedding: bool = False,
        use_features: bool = True,
        seed: int = 0,
    ) -> None:
        sizes = {"hidden_channels": hidden_channels, "num_layers": num_layers, "num_heads": num_heads}
        check_sizes(**sizes, ffn_channels=ffn_channels)
        check_heads(hidden_channels, num_heads)
        check_rates(dropout=dropout)
        _check_max_nodes(max_nodes, spec)
        check_choice("residual_norm", residual_norm, ResidualNorm)
        check_choice("projection_init", projection_init, ProjectionInit)
        super().__init__()
        self.spec, self.residual_norm = spec, residual_norm
        self.hidden_channels, self.out_channels = hidden_channels, 2 * hidden_channels
        self.max_nodes = spec.max_subgraph_nodes if max_nodes is None else max_nodes
        self.use_features = use_features
        self.has_dropout, self.multiplicative_residual = dropout > 0, multiplicative_residual
        self.features = (
            FeatureRows(spec.in_channels, hidden_channels) if use_features and spec.in_channels else None
        )
        self.positions = nn.Embedding(self.max_nodes + 2, hidden_channels) if position_embedding else None
        self.layers = nn.ModuleList(
            PENCILLayer(hidden_channels, num_heads, ffn_channels, dropout, multiplicative_residual)
            for _ in range(num_layers)
        )
        self.apply(_init_as_bert)
        projection = _draw_projection(2 * self.max_nodes + 2, hidden_channels, projection_init)
        if trainable_projection:
            self.projection = nn.Parameter(projection)
        else:
            self.register_buffer("projection", projection)
        self.noise = NoiseStream(seed)

    def forward(
        self, subgraphs: PairSubgraphs, x: Tensor | None = None, *, noise_seed: int | None = None
    ) -> Tensor:
        """Encode subgraphs of at most `max_nodes` nodes: [B, 2 D]; `use_features=False` ignores `x`.

        Raises:
            UsageError: if subgraphs are larger than `max_nodes`, or features are missing, of
                another width, or given to an encoder that was built without any.
        """
        self._check(subgraphs, x)
        adjacency = subgraphs.adjacency
        drops = self.training and self.has_dropout
        generator = self.noise.generator(noise_seed, adjacency.device) if drops else None
        mapped, rows = self._mapped(subgraphs, x)
        groups = _groups_of_size(subgraphs)
        if groups is None:
            near = max(subgraphs.near, default=None) if subgraphs.near is not None else None
            num_nodes = None if _fills(subgraphs) else subgraphs.num_nodes
            return self._encode(adjacency, num_nodes, mapped, rows, generator, near)
        states = []
        for pairs, size, smallest, near in groups:
            group = adjacency[pairs, :size, :size]
            part = rows[pairs, :size]
            num_nodes = None if smallest == size else subgraphs.num_nodes[pairs]
            states.append(self._encode(group, num_nodes, mapped, part, generator, near))
        order = torch.cat([pairs for pairs, *_ in groups])
        return torch.cat(states)[torch.argsort(order)]

    @torch.no_grad()
    def attention(self, subgraphs: PairSubgraphs, x: Tensor | None = None) -> Tensor:
        """Weights with which the tokens of each subgraph attend to each other, without dropout.

        All weights are in memory: ask for few pairs at a time.

        Returns:
            [L, B, H, S + 2, S + 2], the task tokens last. A row sums to 1; rows of padding are 0. In the last
            layer `forward` uses only the rows of the task tokens.
        """
        self._check(subgraphs, x)
        mapped, rows = self._mapped(subgraphs, x)
        h, mask, operator = self._start(subgraphs.adjacency, subgraphs.num_nodes, mapped, rows)
        assert mask is not None
        maps = []
        with in_evaluation(self):
            for layer in self.layers:
                assert isinstance(layer, PENCILLayer)
                maps.append(layer.weights(h, mask))
                h = layer(h, mask, operator, None)
        return torch.stack(maps)

    @torch.no_grad()
    def attention_entropy(self, subgraphs: PairSubgraphs, x: Tensor | None = None) -> Tensor | None:
        """See `PairEncoder.attention_entropy`; of the last layer only the task tokens' rows count."""
        if not len(subgraphs.num_nodes):
            return None
        weights = self.attention(subgraphs, x)
        count = subgraphs.num_nodes + 2  # [B]
        entropy = row_entropy(weights, count[:, None, None]).mean(2)  # [L, B, S + 2]
        place = torch.arange(weights.shape[-1], device=count.device)
        task = place >= weights.shape[-1] - 2
        used = task | (place < subgraphs.num_nodes[:, None])
        means = [layer[used].mean() for layer in entropy[:-1]]
        return torch.stack([*means, entropy[-1][:, task].mean()])

    def _encode(
        self,
        links: Tensor,
        num_nodes: Tensor | None,
        mapped: Tensor | None,
        rows: Tensor,
        generator: torch.Generator | None,
        near: int | None,
    ) -> Tensor:
        """Links [B, S, S], sizes [B], mapped features [U, D] and the row of each node [B, S] -> [B, 2 D].

        Sizes are None if the host knows that all are S. `near` is the largest of `PairSubgraphs.near`, or
        None if that is unknown.
        """
        h, mask, operator = self._start(links, num_nodes, mapped, rows)
        for layer in self.layers[:-1]:
            h = layer(h, mask, operator, generator)
        senders = None if operator is None else _senders(operator, near)
        last = cast(PENCILLayer, self.layers[-1])
        return last.read_pair(h, mask, operator, generator, senders).flatten(1)

    def _mapped(self, subgraphs: PairSubgraphs, x: Tensor | None) -> tuple[Tensor | None, Tensor]:
        """Mapped features [U, D], or None, and for each node the row that belongs to it, [B, S]."""
        rows = subgraphs.nodes.clamp_min(0)
        return (None, rows) if self.features is None or x is None else self.features(x, rows)

    def _start(
        self, links: Tensor, num_nodes: Tensor | None, mapped: Tensor | None, rows: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """States before the first layer [B, T, D], the mask of `PENCILLayer`, and the operator."""
        adjacency = links.to(self.projection.dtype)
        valid, mask = torch.ones_like(links[:, 0], dtype=torch.bool), None
        if num_nodes is not None:
            valid = torch.arange(adjacency.shape[1], device=adjacency.device) < num_nodes[:, None]
            mask = F.pad(valid, (0, 2), value=True)
        operator = _operator(adjacency, valid, self.residual_norm) if self.multiplicative_residual else None
        return self._embed(adjacency, None if mapped is None else F.embedding(rows, mapped)), mask, operator

    def _embed(self, adjacency: Tensor, features: Tensor | None) -> Tensor:
        """States of all tokens before the first layer (Eq. 1), [B, S + 2, D]."""
        num_nodes, budget, weight = adjacency.shape[1], self.max_nodes, self.projection
        h = adjacency @ weight[budget : budget + num_nodes] + weight[:num_nodes]
        if features is not None:
            h = h + features
        roles = weight[2 * budget :]
        h = torch.cat([h + roles[0], h[:, :2] + roles[1]], 1)
        if self.positions is not None:
            position = self.positions.weight
            h = h + torch.cat([position[:num_nodes], position[budget:]])
        return h

    def _check(self, subgraphs: PairSubgraphs, x: Tensor | None) -> None:
        if not isinstance(subgraphs, PairSubgraphs):
            raise UsageError(
                f"PENCIL takes a PairSubgraphs first, got a {type(subgraphs).__name__}\n"
                "Give sampler(pairs, seed=...), sampler a graphzoo.sampling.PairSubgraphSampler"
            )
        num_nodes = subgraphs.nodes.shape[1]
        if num_nodes > self.max_nodes:
            raise UsageError(
                f"a subgraph has {num_nodes} nodes, but the encoder was built for at most {self.max_nodes}: "
                "sample with that max_nodes, or build the encoder with a larger one"
            )
        if self.features is not None:
            require_features(x, self.spec, subgraphs.nodes)
        elif self.use_features:
            refuse_features(x)


def _fills(subgraphs: PairSubgraphs) -> bool:
    """Whether no subgraph is padded and the host knows it."""
    if torch.compiler.is_compiling() or subgraphs.sizes is None:
        return False
    return min(subgraphs.sizes, default=0) == subgraphs.adjacency.shape[1]


def _groups_of_size(subgraphs: PairSubgraphs) -> list[tuple[Tensor, int, int, int | None]] | None:
    """Groups of pairs whose subgraphs have similar sizes; None if one group for all pairs is faster.

    Each group is (pairs, largest size, smallest size, largest `PairSubgraphs.near`). The next smaller
    subgraph joins a group if its padding is below a tenth, or if the group does not keep the device busy yet.
    """
    num_nodes, padded = subgraphs.num_nodes, subgraphs.adjacency.shape[1]
    # Compiled code cannot wait for the sizes.
    if torch.compiler.is_compiling() or num_nodes.numel() * padded <= _MIN_TOKENS[num_nodes.is_cuda]:
        return None
    order = torch.argsort(num_nodes, descending=True, stable=True)
    known, near = subgraphs.sizes, subgraphs.near
    if known is None:  # not from our sampler: the host has to wait for the device
        known = tuple(num_nodes.tolist())
    places = sorted(range(len(known)), key=known.__getitem__, reverse=True)  # the same order, on the host
    sizes = [known[place] for place in places]
    starts = [0]
    for i, size in enumerate(sizes):
        largest = sizes[starts[-1]]
        if size < 0.9 * largest and (i - starts[-1]) * largest >= _MIN_TOKENS[num_nodes.is_cuda]:
            starts.append(i)
    if len(starts) == 1 and sizes[0] == padded:
        return None
    ends = [*starts[1:], len(sizes)]
    return [
        (order[i:j], sizes[i], sizes[j - 1], None if near is None else max(near[p] for p in places[i:j]))
        for i, j in zip(starts, ends, strict=True)
    ]


def _operator(adjacency: Tensor, valid: Tensor, norm: ResidualNorm) -> Tensor:
    """Weights with which tokens receive from nodes, [B, S + 2, S] (App. A without the two zero columns).

    The rows of the task tokens are copies of those of u and v, so they receive from u and v, too.
    """
    # Degrees are counted in float32 at least: bfloat16 cannot count beyond 256.
    wide = adjacency.to(torch.promote_types(adjacency.dtype, torch.float32))
    operator = wide + torch.diag_embed(valid.to(wide.dtype))
    if norm != "none":
        degree = operator.sum(-1).clamp_min(1)  # 0 where padded
        operator = operator / degree[..., None] if norm == "row" else operator * degree.rsqrt()[:, None]
    return torch.cat([operator, operator[:, :2]], 1).to(adjacency.dtype)


def _senders(operator: Tensor, most: int | None = None) -> Tensor:
    """Positions of the nodes from which the task tokens receive, filled up with other nodes, [B, R].

    `most` is R, if the host knows it; otherwise the host waits for the device.
    """
    sends = (operator[:, -2:] != 0).any(1)
    # Compiled code cannot wait for R: it takes all nodes.
    if torch.compiler.is_compiling() or not sends.numel():
        return torch.arange(sends.shape[1], device=sends.device).expand_as(sends)
    order = torch.argsort(sends, dim=1, descending=True, stable=True)
    return order[:, : int(sends.sum(1).max()) if most is None else most]


def _draw_projection(rows: int, columns: int, init: ProjectionInit) -> Tensor:
    # Always in float32: the decomposition that makes a matrix orthogonal does not support bfloat16.
    projection = torch.empty(rows, columns, dtype=torch.float32)
    std = max(rows, columns) ** -0.5  # of an orthogonal matrix's entries
    if init == "orthogonal":
        nn.init.orthogonal_(projection)
    elif init == "shifted_gaussian":
        nn.init.normal_(projection, _SHIFTED_MEAN, std)
    else:
        thin = torch.randn(rows, _LOW_RANK, dtype=torch.float32), projection.new_empty(_LOW_RANK, columns)
        torch.matmul(thin[0], thin[1].normal_(), out=projection).mul_(std / _LOW_RANK**0.5)
    return projection.to(torch.get_default_dtype())


def _init_as_bert(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=_INIT_STD)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


def _check_max_nodes(max_nodes: int | None, spec: GraphSpec) -> None:
    if max_nodes is None and not spec.max_subgraph_nodes:
        raise UsageError(
            "PENCIL needs the size of the largest subgraph, which the data does not give: set max_nodes"
        )
    if max_nodes is not None and max_nodes < max(2, spec.max_subgraph_nodes):
        raise UsageError(
            f"max_nodes must be at least {max(2, spec.max_subgraph_nodes)}, the size of sampled subgraphs, "
            f"got {max_nodes}"
        )
