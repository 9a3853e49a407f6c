"""GALiT: a transformer that meets the graph once, before training, in features denoised along its edges.

Guo, Liu, Ao, Tang, Chen, Zheng and He, "Graph-Agnostic Linear Transformers". Equation numbers are the
paper's. The authors published neither code nor settings: where the paper is silent (non-linearity and dropout
of f_I, initial values of the similarity maps), the choices are ours and stated in the docstrings.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Any, Literal

import torch
from torch import Tensor, nn

from graphzoo.encoders.base import NodeEncoder
from graphzoo.encoders.checks import check_features, check_rows, chosen
from graphzoo.errors import UsageError, check_range
from graphzoo.layers import LastResult, NoiseStream, SparseLinear, dropout, row_entropy
from graphzoo.ops import cached_denoise, denoise_features, map_rows
from graphzoo.ops.cosine_attention import (
    CosineNorm,
    averaged_cosine_attention,
    check_settings,
    cosine_attention_rows,
    cosine_attention_weights,
    similarity_map,
)
from graphzoo.ops.eager import run_eagerly
from graphzoo.ops.random import hash_integers
from graphzoo.ops.sparse import SparseMatrix
from graphzoo.types import GraphSpec

__all__ = ["GALiT"]

Similarity = Literal["cos", "wcos", "mcos", "qkcos"]
# Larger dense features are dropped out chunk by chunk, so that no second copy of them is made.
_WHOLE_ELEMENTS, _CHUNK_ELEMENTS = 1 << 25, 1 << 24


class CosineAttention(nn.Module):
    """Mean of H heads that see one value through similarity maps of their own (Eq. 24, 25 and 35).

    Args:
        channels: Width D of the states, and of every head.
        num_heads: H. All heads of "cos" are the same, so that one is computed.
        similarity: "cos": queries and keys are the states; "wcos": their product with a vector, which starts
            at 1, for several heads within 1/2 of it; "mcos": a linear map of them; "qkcos": one for queries
            and one for keys. Linear maps start as those of `torch.nn.Linear`.
        norm: See `graphzoo.ops.cosine_linear_attention`.
        bias: See `graphzoo.ops.cosine_linear_attention`.
        eps: See `graphzoo.ops.cosine_linear_attention`.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        similarity: Similarity,
        *,
        norm: CosineNorm,
        bias: float,
        eps: float,
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
        return averaged_cosine_attention(
            states,
            value,
            tuple(self.query_map),
            tuple(self.key_map) or None,
            norm=self.norm,
            bias=self.bias,
            eps=self.eps,
        )

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


class GALiT(NodeEncoder):
    """GALiT encoder: features, raw and denoised -> states [N, D]; O(N), the edges are needed only once.

    f_I (Eq. 8) is input dropout, a linear layer, ReLU and dropout, shared by raw and denoised features; f_O
    is the decoder's.

    Args:
        spec: Facts of the graph; `in_channels` is looked at.
        hidden_channels: Width D of all states.
        num_layers: Attention layers L.
        num_heads: Attention heads H, each of width D; their outputs are averaged.
        alpha: Weight of the denoised features in every layer, in [0, 1]; with 1 there are no layers.
        gamma: Weight of a node's own features in denoising, in (0, 1].
        num_iterations: K, steps of denoising; 0 leaves the features as they are.
        similarity: "cos", "wcos", "mcos" or "qkcos", see `CosineAttention`. The paper: "cos" where
            neighbours are mostly of one class, "mcos" where they are not.
        norm: "l2" (by node) or "fro" (over all nodes).
        attention: "cosine", or "none" for an MLP on the denoised features (alpha = 1).
        linear_update: Whether f of Eq. 30 is a linear layer.
        activation: Whether f_I has a ReLU.
        dropout: Of the output of f_I.
        input_dropout: Of the features.
        bias: The constant c of Eq. 18.
        eps: Lower bound of the attention weights before they are normalised (Theorem 2).
        seed: Names the stream of dropout masks.

    Raises:
        ValueError: for settings that make no sense, naming the setting.
    """

    needs_edges = False

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
        attention: Literal["cosine", "none"] = "cosine",
        linear_update: bool = False,
        activation: bool = True,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        bias: float = 1.0,
        eps: float = 1e-6,
        seed: int = 0,
    ) -> None:
        _check_settings(
            {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        )
        super().__init__()
        self.spec, self.out_channels = spec, hidden_channels
        self.gamma, self.num_iterations, self.activation = gamma, num_iterations, activation
        self.dropout, self.input_dropout = dropout, input_dropout
        self.input = SparseLinear(spec.in_channels, hidden_channels)
        self.layers = nn.ModuleList(
            GALiTLayer(
                CosineAttention(hidden_channels, num_heads, similarity, norm=norm, bias=bias, eps=eps),
                hidden_channels,
                alpha,
                linear_update,
            )
            # a layer without effect would get no gradient, which DDP takes for an error
            for _ in range(0 if attention == "none" or alpha == 1 else num_layers)
        )
        self.noise = NoiseStream(seed)
        self._denoised: LastResult[Tensor] = LastResult()
        self._sparse: LastResult[SparseMatrix] = LastResult()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        *,
        noise_seed: int | None = None,
        denoised: Tensor | None = None,
    ) -> Tensor:
        """Encode the graph.

        Args:
            x: Raw features [N, F], dense or sparse CSR.
            edge_index: [2, E], int64; only looked at where `denoised` is None.
            noise_seed: Names the draw of dropout while training; None takes the next of the module's own.
            denoised: What `precompute` returned, [N, F], or the rows of it that belong to `x`. None: made
                from `edge_index`, and kept while calls bring the same tensors.

        Returns:
            States [N, D].

        Raises:
            ValueError: if both `edge_index` and `denoised` are missing, or shapes do not fit.
        """
        denoised = self._check_denoised(x, edge_index, denoised)
        draws = self.training and (self.dropout > 0 or self.input_dropout > 0)
        generator = self.noise.generator(noise_seed, x.device) if draws else None
        anchor = self._embed(denoised, generator)
        z = self._embed(x, generator) if len(self.layers) else anchor
        for layer in self.layers:
            z = layer(z, anchor)
        return z

    def precompute(
        self, x: Tensor, edge_index: Tensor, *, cache: str | PathLike[str] | None = None
    ) -> dict[str, Any]:
        """The denoised features (Eq. 29), see `graphzoo.ops.cached_denoise`: all that GALiT needs of a graph.

        Args:
            x: Features [N, F], dense or sparse CSR.
            edge_index: [2, E], int64.
            cache: Folder in which they are kept; None keeps nothing.

        Returns:
            `{"denoised": [N, F]}`, dense; row i belongs to node i, so that parts of a graph take their rows.
        """
        settings: dict[str, Any] = {"gamma": self.gamma, "num_iterations": self.num_iterations}
        return {"denoised": cached_denoise(x, edge_index, cache=cache, **settings)}

    @torch.no_grad()
    def return_attention(
        self, x: Tensor, edge_index: Tensor | None, pairs: Tensor, *, denoised: Tensor | None = None
    ) -> list[Tensor]:
        """Attention weights of chosen node pairs, without dropout, for pictures.

        Args:
            x: As for `forward`.
            edge_index: As for `forward`.
            pairs: The node that looks and the node that it looks at, [2, P], int64.
            denoised: As for `forward`.

        Returns:
            For each layer the weights [P, H]; over all nodes that one looks at they sum to 1.
        """
        looks = self._layer_inputs(x, edge_index, denoised)
        return [attention.weights(z, pairs) for attention, z in looks]

    @torch.no_grad()
    def attention(self, x: Tensor, edge_index: Tensor | None, queries: Tensor, **precomputed: Any) -> Tensor:
        """Weights with which some nodes attend to all, without dropout.

        Args:
            x: As for `forward`.
            edge_index: As for `forward`.
            queries: Nodes [Q], int64.
            **precomputed: What `precompute` returned.

        Returns:
            [L, H, Q, N]; a row sums to 1.

        Raises:
            UsageError: if the encoder was built without attention.
        """
        if not len(self.layers):
            raise UsageError("this GALiT has no attention (attention 'none', or alpha 1): nothing to show")
        looks = self._layer_inputs(x, edge_index, precomputed.get("denoised"))
        return torch.stack([attention.rows(z, queries) for attention, z in looks])

    @torch.no_grad()
    def attention_entropy(
        self, x: Tensor, edge_index: Tensor | None, queries: Tensor, **precomputed: Any
    ) -> Tensor | None:
        """See `NodeEncoder.attention_entropy`; one layer's rows are in memory at a time."""
        if not len(self.layers):
            return None
        looks = self._layer_inputs(x, edge_index, precomputed.get("denoised"))
        return torch.stack([row_entropy(attention.rows(z, queries)).mean() for attention, z in looks])

    def _layer_inputs(
        self, x: Tensor, edge_index: Tensor | None, denoised: Tensor | None
    ) -> Iterator[tuple[CosineAttention, Tensor]]:
        """Each layer's attention and the states [N, D] that it sees without dropout."""
        anchor = self._embed(self._check_denoised(x, edge_index, denoised), None)
        z = self._embed(x, None) if len(self.layers) else anchor
        for layer in self.layers:
            assert isinstance(layer, GALiTLayer)
            yield layer.attention, z
            z = layer(z, anchor)

    def _check_denoised(self, x: Tensor, edge_index: Tensor | None, denoised: Tensor | None) -> Tensor:
        check_features(x, self.spec)
        if denoised is None:
            if edge_index is None:
                raise ValueError("GALiT needs the edges once: pass edge_index, or denoised= from precompute")
            found: Tensor = self._denoise(x, edge_index)
            return found
        check_rows("denoised", denoised, x)
        return denoised

    @run_eagerly
    def _denoise(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self._denoised.get(
            (x, edge_index),
            lambda: denoise_features(x, edge_index, gamma=self.gamma, num_iterations=self.num_iterations),
        )

    def _embed(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """f_I of Eq. 8: [N, F] -> [N, D]; no generator, no dropout."""
        z = self._input(x, generator)
        if self.activation:
            z = z.relu()
        return dropout(z, self.dropout, generator, generator is not None)

    def _input(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        p = self.input_dropout
        if generator is None or p == 0:
            out: Tensor = self.input(x)
        elif x.layout is not torch.strided:
            sparse = self._sparse.get((x,), lambda: SparseMatrix.from_tensor(x))
            kept = dropout(sparse.values, p, generator, True)
            out = self.input(sparse.with_values(kept))
        elif x.numel() <= _WHOLE_ELEMENTS:
            out = self.input(dropout(x, p, generator, True))
        else:
            out = self._input_by_chunks(x, generator)
        return out

    @run_eagerly
    def _input_by_chunks(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """The same for wide features: masks are drawn again in the backward pass instead of kept."""
        name = int(torch.randint(2**62, (), generator=generator, device=generator.device))

        def embed(rows: tuple[Tensor, ...], shared: tuple[Tensor, ...], start: int) -> tuple[Tensor, ...]:
            own = torch.Generator(x.device).manual_seed(int(hash_integers(name, start)))
            kept = dropout(rows[0], self.input_dropout, own, True)
            return (nn.functional.linear(kept, *shared),)

        shared = (self.input.weight, self.input.bias)
        return map_rows(embed, (x,), shared, chunk_rows=max(1, _CHUNK_ELEMENTS // x.shape[1]))[0]


def _check_settings(settings: dict[str, Any]) -> None:
    if settings["spec"].in_channels < 1:
        raise ValueError(
            "GALiT needs node features; the data has none (GraphSpec.in_channels is 0): "
            "add some, for instance degrees or one-hot node numbers"
        )
    check_range(at_least=1, **chosen(settings, "hidden_channels", "num_layers", "num_heads"))
    # the paper takes ten; without a bound a slip of the key is a run that never begins
    check_range(at_least=0, at_most=10_000, num_iterations=int(settings["num_iterations"]))
    check_range(at_least=0, below=1, **chosen(settings, "dropout", "input_dropout"))
    check_range(at_least=0, at_most=1, alpha=float(settings["alpha"]))
    check_range(above=0, at_most=1, gamma=float(settings["gamma"]))
    for name, choices in (
        ("similarity", ("cos", "wcos", "mcos", "qkcos")),
        ("attention", ("cosine", "none")),
    ):
        if settings[name] not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {settings[name]!r}")
    check_settings(settings["norm"], float(settings["bias"]), float(settings["eps"]))
