"""NodeFormer: all-pair message passing on a latent graph, in time linear in nodes and edges.

Wu, Zhao, Li, Wipf and Yan, "NodeFormer: A Scalable Graph Structure Learning Transformer for Node
Classification", NeurIPS 2022. Where paper and published settings differ, this follows the settings: heads are
concatenated and mapped back, relational bias takes the value projections, layers have residual and LayerNorm.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphzoo.encoders.base import NodeEncoder
from graphzoo.encoders.checks import check_features, check_rates, check_sizes, check_spec
from graphzoo.encoders.pyg_form import has_other_forms
from graphzoo.errors import UsageError, check_choice, check_range, check_whole
from graphzoo.layers import LastResult, LayerNorm, NoiseStream, SparseLinear, dropout, row_entropy
from graphzoo.layers.noise import in_evaluation
from graphzoo.ops.adjacency import AdjacencyOrders, PlainAdjacency, SparseAdjacency, adjacency_orders
from graphzoo.ops.eager import run_eagerly
from graphzoo.ops.kernelized_attention import attend_features, edge_log_weights
from graphzoo.ops.random_features import draw_gumbel, orthogonal_projection, random_features_at
from graphzoo.ops.sparse import SparseMatrix
from graphzoo.types import GraphSpec

RelationalTransform = Literal["sigmoid", "identity"]

# On the CPU, features that are wider and emptier than this are multiplied as a sparse matrix.
_SPARSE_WIDTH, _SPARSE_SHARE = 256, 0.05


class NodeFormerLayer(nn.Module):
    """Kernelized Gumbel-softmax attention with relational bias, heads joined by a linear map (Alg. 1)."""

    def __init__(
        self, channels: int, num_heads: int, tau: float, rb_order: int, rb_transform: RelationalTransform
    ) -> None:
        super().__init__()
        self.channels, self.num_heads = channels, num_heads
        self.tau, self.rb_transform = tau, rb_transform
        self.query_key_value = nn.Linear(channels, 3 * num_heads * channels)
        self.out = nn.Linear(num_heads * channels, channels)
        start = 0.1 if rb_transform == "sigmoid" else 1.0
        self.relational_bias = nn.Parameter(torch.full((rb_order, num_heads), start)) if rb_order else None

    def forward(
        self, x: Tensor, projection: Tensor, gumbel: Tensor | None, adjacency: AdjacencyOrders
    ) -> tuple[Tensor, Tensor, Tensor]:
        """States [N, D], directions [M, D], noise [N, H, K] or None -> [N, D], phi(q), phi(k) [N, H, M]."""
        query, key, value = self.query_key_value(x).view(-1, 3, self.num_heads, self.channels).unbind(1)
        phi_q = random_features_at(query, projection, tau=self.tau, is_query=True)
        phi_k = random_features_at(key, projection, tau=self.tau, is_query=False)
        out: Tensor = self.out(attend_features(phi_q, phi_k, value, tau=self.tau, gumbel=gumbel).flatten(1))
        if self.relational_bias is not None:
            out = out + self._relational(x, adjacency)
        return out, phi_q, phi_k

    def _relational(self, x: Tensor, adjacency: AdjacencyOrders) -> Tensor:
        """Sum over orders and heads of s(b) A v, joined as in `out`.

        A (x W) = (A x) W: messages are the D channels of the states rather than the H D of the values, and
        value map, strength and output map of all heads melt into one D x D matrix per order.
        """
        assert self.relational_bias is not None
        bias = self.relational_bias
        strength = torch.sigmoid(bias) if self.rb_transform == "sigmoid" else bias
        rows = slice(2 * self.num_heads * self.channels, None)
        value_weight = self.query_key_value.weight[rows].view(self.num_heads, self.channels, -1)
        value_bias = self.query_key_value.bias[rows].view(self.num_heads, self.channels, 1)
        joined = self.out.weight.view(self.channels, self.num_heads, self.channels)
        maps = torch.einsum("rh,chd,hde->rec", strength, joined, torch.cat([value_weight, value_bias], 2))
        return _messages(x, adjacency, bias.shape[0]) @ maps.flatten(0, 1)


@run_eagerly
def _messages(x: Tensor, adjacency: AdjacencyOrders, num_orders: int) -> Tensor:
    """A_o (x, 1) of every order side by side, [N, R (D + 1)]."""
    messages = [(order.matmul(x), order.row_sums()[:, None].to(x.dtype)) for order in adjacency[:num_orders]]
    return torch.cat([part for message in messages for part in message], 1)


@run_eagerly
def _edge_loss(layers: list[tuple[Tensor, Tensor]], edges: SparseAdjacency) -> Tensor:
    """Mean over layers, edges and heads of log(pi) / d, from the features of queries and keys."""
    if not edges.values.numel():  # of a graph without nodes
        return torch.stack([query.sum() + key.sum() for query, key in layers]).sum()
    per_edge = edges.in_degree.to(edges.values.dtype).reciprocal()[edges.row_of_entry()]
    means = [(edge_log_weights(q, k, edges).mean(1) * per_edge).mean() for q, k in layers]
    return torch.stack(means).mean()


class NodeFormer(NodeEncoder):
    r"""NodeFormer encoder: features [N, F] and edges -> states [N, D].

    While training, every pass draws new directions of the random features and new Gumbel noise. In evaluation
    there is no Gumbel noise, and the directions are always the same, on every device and in every precision.

    Without relational bias (`rb_order=0`) no edges are needed; the edge loss needs them for its own part.

    Args:
        spec: Sizes of the graph; `in_channels` is the width of the features.
        hidden_channels: Width of the states and of each head.
        num_layers: Attention layers L.
        num_heads: Attention heads H.
        num_random_features: M, random features per head.
        num_gumbel_samples: K, noisy samples whose results are averaged.
        tau: Temperature, above 0; small values sharpen the choice of neighbours.
        rb_order: R, adjacency orders of the relational bias: 1 takes the edges, 2 also paths of two edges, 3
            also paths of four; 0 is no relational bias.
        rb_transform: Function from the learned bias to its strength: "sigmoid" (the bias starts at 0.1) or
            "identity" (it starts at 1).
        edge_loss_weight: Weight of the edge-level regularisation, 0 for none.
        use_gumbel: Whether Gumbel noise is added while training.
        dropout: Dropout rate after the input map and after every layer.
        input_dropout: Dropout rate of the features; not in the paper.
        layer_norm: Whether LayerNorm follows the input map and every layer.
        residual: Whether the layer input is added before its LayerNorm.
        activation: Whether ELU follows every layer; it always follows the input map.
        jumping_knowledge: Whether to return the states of all layers side by side; D is then
            hidden_channels (L + 1).
        seed: Seed of the noise stream.
    """

    needs_edges, attends_to_all = False, True

    @has_other_forms
    def __init__(
        self,
        spec: GraphSpec,
        *,
        hidden_channels: int = 32,
        num_layers: int = 2,
        num_heads: int = 4,
        num_random_features: int = 30,
        num_gumbel_samples: int = 10,
        tau: float = 0.25,
        rb_order: int = 2,
        rb_transform: RelationalTransform = "sigmoid",
        edge_loss_weight: float = 1.0,
        use_gumbel: bool = True,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        layer_norm: bool = True,
        residual: bool = True,
        activation: bool = False,
        jumping_knowledge: bool = False,
        seed: int = 0,
    ) -> None:
        check_spec("NodeFormer", spec)
        check_sizes(hidden_channels=hidden_channels, num_layers=num_layers, num_heads=num_heads)
        check_sizes(num_random_features=num_random_features, num_gumbel_samples=num_gumbel_samples)
        check_whole(at_least=0, rb_order=rb_order)
        check_range(at_least=0, edge_loss_weight=edge_loss_weight)
        check_range(above=0, tau=tau)
        check_rates(dropout=dropout, input_dropout=input_dropout)
        check_choice("rb_transform", rb_transform, RelationalTransform)
        super().__init__()
        self.spec, self.edge_loss_weight = spec, edge_loss_weight
        self.dropout, self.input_dropout = dropout, input_dropout
        self.hidden_channels, self.num_heads = hidden_channels, num_heads
        self.num_random_features = num_random_features
        self.num_gumbel_samples = num_gumbel_samples if use_gumbel else 0
        self.rb_order, self.residual, self.activation = rb_order, residual, activation
        self.jumping_knowledge = jumping_knowledge
        self.out_channels = hidden_channels * (num_layers + 1 if jumping_knowledge else 1)
        self.lin_in = SparseLinear(spec.in_channels, hidden_channels)
        self.layers = nn.ModuleList(
            NodeFormerLayer(hidden_channels, num_heads, tau, rb_order, rb_transform)
            for _ in range(num_layers)
        )
        norms = (LayerNorm(hidden_channels) if layer_norm else nn.Identity() for _ in range(num_layers + 1))
        self.norms = nn.ModuleList(norms)
        self.noise = NoiseStream(seed)
        self._adjacency: LastResult[AdjacencyOrders] = LastResult()
        self._features: LastResult[SparseMatrix | None] = LastResult()
        # Directions to use instead of drawn ones: an exported program cannot draw.
        self.fixed: list[Tensor] | None = None

    def precompute(
        self, x: Tensor, edge_index: Tensor | None, *, cache: str | PathLike[str] | None = None
    ) -> dict[str, Any]:
        """Adjacency orders, and the features as a sparse matrix where that is faster; `cache` is not used.

        Edges may be None if neither relational bias nor edge loss is on.
        """
        prepared: dict[str, Any] = {}
        if edge_index is not None:
            num_orders = max(self.rb_order, int(self.edge_loss_weight != 0))
            dtype = torch.promote_types(x.dtype, torch.float32)
            prepared["adjacency"] = adjacency_orders(edge_index, x.shape[0], num_orders, dtype=dtype)
        if _better_sparse(x):
            prepared["features"] = SparseMatrix.from_tensor(x)
        return prepared

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        *,
        noise_seed: int | None = None,
        adjacency: AdjacencyOrders | None = None,
        features: SparseMatrix | None = None,
    ) -> Tensor:
        """Encode features [N, F], dense or sparse CSR, and edges [2, E]: [N, D].

        Edges may be None without relational bias, or if `adjacency` and `features` are given, the results of
        `precompute`. Otherwise these are computed, and kept for the next call with the same tensors.
        """
        return self._encode(x, *self._graph(x, edge_index, adjacency, features), noise_seed)

    def forward_with_auxiliary(
        self, x: Tensor, edge_index: Tensor | None, *, noise_seed: int | None = None, **precomputed: Any
    ) -> tuple[Tensor, Tensor | None]:
        """`forward`, and the edge-level regularisation times its weight, or None if that is 0.

        The term is minus the mean over layers, edges u -> v (self-loops included) and heads of log(pi) / d:
        pi is the noise-free weight with which v attends to u, d the number of edges that arrive at v.
        """
        if self.edge_loss_weight == 0:
            return self.forward(x, edge_index, noise_seed=noise_seed, **precomputed), None
        adjacency, features = self._graph(x, edge_index, **precomputed)
        if not adjacency:
            raise UsageError("the edge loss needs edge_index: give it, or set edge_loss_weight=0")
        layers: list[tuple[Tensor, Tensor]] = []
        states = self._encode(x, adjacency, features, noise_seed, lambda *phi: layers.append(phi))
        return states, -self.edge_loss_weight * _edge_loss(layers, adjacency[0])

    @torch.no_grad()
    def return_attention(self, x: Tensor, edge_index: Tensor | None, pairs: Tensor) -> list[Tensor]:
        """Noise-free weights with which v attends to u, of pairs (u, v) [2, P], as in evaluation.

        Returns:
            One tensor [P, H] per layer.
        """
        pattern, position = SparseMatrix.from_pairs(pairs, x.shape[0])
        return self._measure_layers(
            x, edge_index, {}, lambda q, k: edge_log_weights(q, k, pattern).exp()[position]
        )

    @torch.no_grad()
    def attention(self, x: Tensor, edge_index: Tensor | None, queries: Tensor, **precomputed: Any) -> Tensor:
        """See `NodeEncoder.attention`: as in evaluation, whatever the mode."""
        return torch.stack(
            self._measure_layers(x, edge_index, precomputed, lambda q, k: _rows(q[queries], k))
        )

    @torch.no_grad()
    def attention_entropy(
        self, x: Tensor, edge_index: Tensor | None, queries: Tensor, **precomputed: Any
    ) -> Tensor:
        """See `NodeEncoder.attention_entropy`; one layer's rows are in memory at a time."""
        return torch.stack(
            self._measure_layers(
                x, edge_index, precomputed, lambda q, k: row_entropy(_rows(q[queries], k)).mean()
            )
        )

    def _measure_layers(
        self,
        x: Tensor,
        edge_index: Tensor | None,
        precomputed: dict[str, Any],
        measure: Callable[[Tensor, Tensor], Tensor],
    ) -> list[Tensor]:
        """Apply `measure` to phi(q) and phi(k) [N, H, M] of every layer, in evaluation mode."""
        measured: list[Tensor] = []
        with in_evaluation(self):
            graph = self._graph(x, edge_index, **precomputed)
            self._encode(x, *graph, None, lambda *phi: measured.append(measure(*phi)))
        return measured

    @run_eagerly
    def _graph(
        self,
        x: Tensor,
        edge_index: Tensor | None,
        adjacency: AdjacencyOrders | None = None,
        features: SparseMatrix | None = None,
    ) -> tuple[AdjacencyOrders, SparseMatrix | None]:
        """The results of `precompute`: the given ones, or computed from `x` and `edge_index` and kept."""
        check_features(x, self.spec)
        if torch.compiler.is_exporting():
            traced = self._traced_graph(x, edge_index) if adjacency is None else adjacency
            return traced, None
        if adjacency is None:
            adjacency, features = self._prepared(x, edge_index)
        assert adjacency is not None
        if len(adjacency) < self.rb_order:
            raise UsageError(
                f"relational bias of order {self.rb_order} needs edge_index: give it, or set rb_order=0"
            )
        return adjacency, features

    def _prepared(self, x: Tensor, edge_index: Tensor | None) -> tuple[AdjacencyOrders, SparseMatrix | None]:
        """The results of `precompute`, each kept on its own.

        A layer in front of the encoder makes new features in every step, while the edges stay the same.
        """
        prepared: dict[str, Any] = {}

        def make() -> AdjacencyOrders:
            prepared.update(self.precompute(x, edge_index))
            orders: AdjacencyOrders = prepared.get("adjacency", AdjacencyOrders())
            return orders

        def make_features() -> SparseMatrix | None:
            return (prepared or self.precompute(x, None)).get("features")

        adjacency = AdjacencyOrders()
        if edge_index is not None:
            has_loss = self.edge_loss_weight != 0
            adjacency = self._adjacency.get((edge_index,), make, x.shape[0], x.dtype, has_loss)
        return adjacency, self._features.get((x,), make_features, x.requires_grad)

    def _traced_graph(self, x: Tensor, edge_index: Tensor | None) -> AdjacencyOrders:
        """The first adjacency order, by torch's own operations."""
        if self.rb_order > 1:
            raise UsageError(
                f"an exported program makes no adjacency beyond the edges, but rb_order is {self.rb_order}\n"
                "Give it `adjacency`, as graphzoo export does, or set rb_order=1"
            )
        if edge_index is None:
            return AdjacencyOrders()
        return AdjacencyOrders([PlainAdjacency(edge_index, x.shape[0], self.lin_in.weight.dtype)])

    @run_eagerly
    def draw_projections(self) -> list[Tensor]:
        """The random directions [M, D] of every layer in evaluation.

        They are drawn in float32 on the CPU and then moved: another device or precision would draw others.
        """
        generator, weight = self.noise.fixed_generator("cpu"), self.lin_in.weight
        device, dtype = weight.device, torch.promote_types(weight.dtype, torch.float32)
        size = (self.num_random_features, self.hidden_channels)
        drawn = [orthogonal_projection(*size, generator) for _ in self.layers]
        return [one.to(device, dtype, non_blocking=weight.is_cuda) for one in drawn]

    def _encode(
        self,
        x: Tensor,
        adjacency: AdjacencyOrders,
        features: SparseMatrix | None,
        noise_seed: int | None,
        on_layer: Callable[[Tensor, Tensor], None] | None = None,
    ) -> Tensor:
        """`forward` on prepared inputs; `on_layer` is called with phi(q) and phi(k) of every layer."""
        training = self.training
        generator = self.noise.generator(noise_seed, x.device) if training else None
        fixed = self.fixed
        if not training and fixed is None:
            fixed = self.draw_projections()
        if x.layout is torch.strided:
            x = x.to(self.lin_in.weight.dtype)
        inputs = x if features is None else features
        h = F.elu(self.norms[0](self.lin_in(inputs, self.input_dropout, generator)))
        h = dropout(h, self.dropout, generator, training)
        states = [h]
        for number, (layer, norm) in enumerate(zip(self.layers, list(self.norms)[1:], strict=True)):
            if generator is None:
                assert fixed is not None
                noise: tuple[Tensor, Tensor | None] = fixed[number], None
            else:
                noise = self._draw(x.shape[0], generator)
            update, phi_q, phi_k = layer(h, *noise, adjacency)
            if on_layer is not None:
                on_layer(phi_q, phi_k)
            del phi_q, phi_k  # these are large: free them before the next layer runs
            h = norm(update + h if self.residual else update)
            h = dropout(F.elu(h) if self.activation else h, self.dropout, generator, training)
            states.append(h)
        return torch.cat(states, 1) if self.jumping_knowledge else h

    @run_eagerly
    def _draw(self, num_nodes: int, generator: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """Draw for a pass of training: random directions [M, D], and Gumbel noise [N, H, K] if it is on."""
        dtype = torch.promote_types(self.lin_in.weight.dtype, torch.float32)
        projection = orthogonal_projection(
            self.num_random_features, self.hidden_channels, generator, dtype=dtype
        )
        if self.num_gumbel_samples == 0:
            return projection, None
        return projection, draw_gumbel((num_nodes, self.num_heads, self.num_gumbel_samples), generator, dtype)


def _rows(query: Tensor, key: Tensor) -> Tensor:
    """Rows of weights [H, Q, N] from features [Q, H, M] and [N, H, M]."""
    products = torch.einsum("qhm,nhm->hqn", query, key)
    return products / products.sum(-1, keepdim=True)


def _better_sparse(x: Tensor) -> bool:
    if x.layout is not torch.strided:
        return True
    if x.device.type != "cpu" or x.requires_grad or x.shape[1] < _SPARSE_WIDTH:
        return False
    return int(torch.count_nonzero(x)) <= _SPARSE_SHARE * x.numel()
