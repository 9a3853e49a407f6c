"""GALiT: linear attention on features that are denoised along the edges once, before training.

Guo, Liu, Ao, Tang, Chen, Zheng and He, "Graph-Agnostic Linear Transformers". Equation numbers are the
paper's. The authors published neither code nor settings: where the paper is silent (non-linearity and dropout
of f_I, initial values of the similarity maps), the choices are ours and stated in the docstrings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from graphzoo.encoders.checks import check_features, check_rates, check_sizes, check_spec
from graphzoo.encoders.pyg_form import has_other_forms
from graphzoo.encoders.sgc import DenoisedEncoder
from graphzoo.errors import UsageError, check_choice, check_range, check_whole
from graphzoo.layers import NoiseStream, SparseLinear, dropout, row_entropy
from graphzoo.ops import map_rows
from graphzoo.ops.cosine_attention import (
    CosineNorm,
    averaged_cosine_attention,
    check_settings,
    cosine_attention_rows,
    cosine_attention_weights,
    similarity_map,
)
from graphzoo.ops.eager import run_eagerly
from graphzoo.ops.random import hash_numbers
from graphzoo.types import GraphSpec

Similarity = Literal["cos", "wcos", "mcos", "qkcos"]
Attention = Literal["cosine", "none"]
# Dropout runs chunk by chunk over larger dense features, so that no second copy of them is made.
_WHOLE_ELEMENTS, _CHUNK_ELEMENTS = 1 << 25, 1 << 24


class CosineAttention(nn.Module):
    """Mean of H heads that see one value through similarity maps of their own (Eq. 24, 25 and 35).

    The similarity says what queries and keys are:

    - "cos": the states themselves. All heads are then the same, and only one is computed.
    - "wcos": the states times a vector for each head. It starts at 1, with several heads within 1/2 of it.
    - "mcos": a linear map of the states for each head.
    - "qkcos": two linear maps for each head, one for queries and one for keys.

    Linear maps start like those of `torch.nn.Linear`.
    """

    def __init__(
        self, channels: int, num_heads: int, similarity: Similarity, norm: CosineNorm, bias: float, eps: float
    ) -> None:
        super().__init__()
        self.num_heads, self.norm, self.bias, self.eps = num_heads, norm, bias, eps
        self.query_map, self.key_map = nn.ParameterList(), nn.ParameterList()
        if similarity == "wcos":
            spread = 0.5 if num_heads > 1 else 0.0
            self.query_map.append(torch.empty(num_heads, channels).uniform_(1 - spread, 1 + spread))
        elif similarity != "cos":
            for maps in (self.query_map, self.key_map)[: 2 if similarity == "qkcos" else 1]:
                bound = channels**-0.5
                maps.append(torch.empty(num_heads, channels, channels).uniform_(-bound, bound))
                maps.append(torch.empty(num_heads, channels).uniform_(-bound, bound))

    def forward(self, states: Tensor, value: Tensor) -> Tensor:
        """States [N, D] and value [N, D] -> [N, D]."""
        maps = tuple(self.query_map), tuple(self.key_map) or None
        return averaged_cosine_attention(states, value, *maps, norm=self.norm, bias=self.bias, eps=self.eps)

    def weights(self, states: Tensor, pairs: Tensor) -> Tensor:
        """Attention of the first node of each pair [2, P] to the second, [P, H]."""
        query, key = self._query_and_key(states)
        return cosine_attention_weights(query, key, pairs, norm=self.norm, bias=self.bias, eps=self.eps)

    def rows(self, states: Tensor, queries: Tensor) -> Tensor:
        """Attention of some nodes [Q] to all, [H, Q, N]."""
        query, key = self._query_and_key(states)
        return cosine_attention_rows(query, key, queries, norm=self.norm, bias=self.bias, eps=self.eps)

    def _query_and_key(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """[N, H, D] each."""
        heads = range(self.num_heads)
        query = torch.stack([similarity_map(states, tuple(self.query_map), h) for h in heads], 1)
        maps = tuple(self.key_map) or tuple(self.query_map)
        return query, torch.stack([similarity_map(states, maps, h) for h in heads], 1)


class GALiTLayer(nn.Module):
    """Z <- (1 - alpha) S(Z) f(Z) + alpha Z^_0 (Eq. 9 and 31); f is the identity or a linear layer."""

    def __init__(self, attention: CosineAttention, channels: int, alpha: float, linear_update: bool) -> None:
        super().__init__()
        self.attention, self.alpha = attention, alpha
        self.update = nn.Linear(channels, channels) if linear_update else nn.Identity()

    def forward(self, z: Tensor, denoised: Tensor) -> Tensor:
        """States [N, D] and embedded denoised features [N, D] -> states [N, D]."""
        attended: Tensor = self.attention(z, self.update(z))
        return torch.lerp(attended, denoised, self.alpha)


class GALiT(DenoisedEncoder):
    """GALiT encoder: features, raw and denoised -> states [N, D]; O(N), the edges are needed only once.

    f_I (Eq. 8) is input dropout, a linear layer, ReLU and dropout, shared by raw and denoised features; f_O
    is the decoder's.

    Args:
        spec: Sizes of the graph; `in_channels` is the width of the features.
        hidden_channels: Width D of all states.
        num_layers: Attention layers L.
        num_heads: Attention heads H, each of width D; their outputs are averaged. With
            similarity "cos" all heads are the same, and their number changes nothing.
        alpha: Weight of the denoised features in every layer, in [0, 1]; with 1 there are no layers.
        gamma: Weight of a node's own features in denoising, in (0, 1].
        num_iterations: K, steps of denoising; 0 leaves the features as they are.
        similarity: "cos", "wcos", "mcos" or "qkcos", see `CosineAttention`. The paper: "cos" where
            neighbours are mostly of one class, "mcos" where they are not.
        norm: "l2" (by node) or "fro" (over all nodes).
        attention: "cosine", or "none" for an MLP on the denoised features (alpha = 1).
        linear_update: Whether f of Eq. 30 is a linear layer.
        activation: Whether f_I has a ReLU.
        dropout: Dropout rate of the output of f_I.
        input_dropout: Dropout rate of the features.
        bias: The constant c of Eq. 18.
        eps: Lower bound of the attention weights before they are normalised (Theorem 2).
        seed: Seed of the dropout masks.
    """

    @has_other_forms
    def __init__(
        self,
        spec: GraphSpec,
        *,
        hidden_channels: int = 64,
        num_layers: int = 2,
        num_heads: int = 1,
        alpha: float = 0.5,
        gamma: float = 0.1,
        num_iterations: int = 10,
        similarity: Similarity = "cos",
        norm: CosineNorm = "l2",
        attention: Attention = "cosine",
        linear_update: bool = False,
        activation: bool = True,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        bias: float = 1.0,
        eps: float = 1e-6,
        seed: int = 0,
    ) -> None:
        check_spec("GALiT", spec)
        check_sizes(hidden_channels=hidden_channels, num_layers=num_layers, num_heads=num_heads)
        # The paper takes ten steps. The bound catches typing errors, which would keep a run from starting.
        check_whole(at_least=0, at_most=10_000, num_iterations=num_iterations)
        check_rates(dropout=dropout, input_dropout=input_dropout)
        check_range(at_least=0, at_most=1, alpha=alpha)
        check_range(above=0, at_most=1, gamma=gamma)
        check_choice("similarity", similarity, Similarity)
        check_choice("attention", attention, Attention)
        check_settings(norm, bias, eps)
        super().__init__(spec, gamma=gamma, num_iterations=num_iterations)
        self.out_channels, self.activation = hidden_channels, activation
        self.dropout, self.input_dropout = dropout, input_dropout
        self.input = SparseLinear(spec.in_channels, hidden_channels)
        self.layers = nn.ModuleList(
            GALiTLayer(
                CosineAttention(hidden_channels, num_heads, similarity, norm, bias, eps),
                hidden_channels,
                alpha,
                linear_update,
            )
            # A layer without effect is left out: it would get no gradient, and DDP would fail.
            for _ in range(0 if attention == "none" or alpha == 1 else num_layers)
        )
        self.attends_to_all = len(self.layers) > 0
        self.noise = NoiseStream(seed)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        *,
        noise_seed: int | None = None,
        denoised: Tensor | None = None,
    ) -> Tensor:
        """Encode features [N, F], dense or sparse CSR: [N, D].

        `denoised` is the result of `precompute`, or its rows of these nodes. Edges are read only without it.
        """
        check_features(x, self.spec)
        denoised = self._denoised(x, edge_index, denoised)
        draws = self.training and (self.dropout > 0 or self.input_dropout > 0)
        generator = self.noise.generator(noise_seed, x.device) if draws else None
        anchor = self._embed(denoised, generator)
        z = self._embed(x, generator) if len(self.layers) else anchor
        for layer in self.layers:
            z = layer(z, anchor)
        return z

    @torch.no_grad()
    def return_attention(
        self, x: Tensor, edge_index: Tensor | None, pairs: Tensor, *, denoised: Tensor | None = None
    ) -> list[Tensor]:
        """Attention of the first node of each pair [2, P] to the second, without dropout, for pictures.

        Returns:
            The weights [P, H] of each layer. The weights of one node, taken to all nodes, sum to 1.
        """
        layers = self._layer_inputs(x, edge_index, denoised)
        return [attention.weights(z, pairs) for attention, z in layers]

    @torch.no_grad()
    def attention(self, x: Tensor, edge_index: Tensor | None, queries: Tensor, **precomputed: Any) -> Tensor:
        """See `NodeEncoder.attention`; without dropout.

        Raises:
            UsageError: if the encoder was built without attention.
        """
        if not len(self.layers):
            raise UsageError("this GALiT has no attention (attention 'none', or alpha 1): nothing to show")
        layers = self._layer_inputs(x, edge_index, precomputed.get("denoised"))
        return torch.stack([attention.rows(z, queries) for attention, z in layers])

    @torch.no_grad()
    def attention_entropy(
        self, x: Tensor, edge_index: Tensor | None, queries: Tensor, **precomputed: Any
    ) -> Tensor | None:
        """See `NodeEncoder.attention_entropy`; one layer's rows are in memory at a time."""
        if not len(self.layers):
            return None
        layers = self._layer_inputs(x, edge_index, precomputed.get("denoised"))
        return torch.stack([row_entropy(attention.rows(z, queries)).mean() for attention, z in layers])

    def _layer_inputs(
        self, x: Tensor, edge_index: Tensor | None, denoised: Tensor | None
    ) -> Iterator[tuple[CosineAttention, Tensor]]:
        """Each layer's attention and the states [N, D] that it sees without dropout."""
        check_features(x, self.spec)
        anchor = self._embed(self._denoised(x, edge_index, denoised), None)
        z = self._embed(x, None) if len(self.layers) else anchor
        for layer in self.layers:
            assert isinstance(layer, GALiTLayer)
            yield layer.attention, z
            z = layer(z, anchor)

    def _embed(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """f_I of Eq. 8: [N, F] -> [N, D]; without a generator there is no dropout."""
        if x.layout is torch.strided:
            x = x.to(self.input.weight.dtype)  # denoised features are float32 with "bf16-true", too
        is_large = x.layout is torch.strided and x.numel() > _WHOLE_ELEMENTS
        if generator is not None and self.input_dropout > 0 and is_large:
            z = self._input_by_chunks(x, generator)
        else:
            z = self.input(x, self.input_dropout, generator)
        return dropout(z.relu() if self.activation else z, self.dropout, generator, generator is not None)

    @run_eagerly
    def _input_by_chunks(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """`input` for large features: the backward pass draws the masks again instead of keeping them."""
        name = _draw_name(generator)

        def embed(rows: tuple[Tensor, ...], shared: tuple[Tensor, ...], start: int) -> tuple[Tensor, ...]:
            own = torch.Generator(x.device).manual_seed(hash_numbers(name, start))
            kept = dropout(rows[0], self.input_dropout, own, True)
            return (nn.functional.linear(kept, *shared),)

        shared = (self.input.weight, self.input.bias)
        return map_rows(embed, (x,), shared, chunk_rows=max(1, _CHUNK_ELEMENTS // x.shape[1]))[0]


def _draw_name(generator: torch.Generator) -> int:
    """Draw a number that names the dropout masks of one call."""
    # The host would have to wait for a number drawn on a GPU. It knows the generator's state at once.
    state = None if generator.device.type == "cpu" else generator.get_state()
    drawn = torch.randint(2**62, (), generator=generator, device=generator.device)
    return int(drawn) if state is None else hash_numbers(*state.tolist())
