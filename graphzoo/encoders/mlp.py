"""A perceptron on each node's own features, raw or denoised along the edges: what a graph adds to it."""

from __future__ import annotations

from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from graphzoo.encoders.base import NodeEncoder
from graphzoo.encoders.checks import check_features, check_rates, check_rows, check_sizes, check_spec
from graphzoo.errors import check_range
from graphzoo.layers import LastResult, NoiseStream, SparseLinear, dropout
from graphzoo.ops import cached_denoise
from graphzoo.ops.eager import run_eagerly
from graphzoo.ops.sparse import SparseMatrix
from graphzoo.types import GraphSpec

__all__ = ["MLP"]


class MLP(NodeEncoder):
    """Linear layers with ReLU and dropout: features [N, F] -> states [N, D].

    With `denoise` the features are GALiT's (Eq. 29): what is left of GALiT without attention.

    Args:
        spec: Facts of the graph; `in_channels` is the width of the features.
        hidden_channels: D, width of every layer.
        num_layers: Layers, each followed by ReLU and dropout; the task's decoder comes on top.
        denoise: Whether features are denoised along the edges once, before training.
        gamma: Weight of a node's own features in denoising, in (0, 1].
        num_iterations: Steps of denoising, 0 to 10,000.
        dropout: After every layer.
        input_dropout: Of the features.
        seed: Of the noise stream.

    Raises:
        ValueError: for settings that make no sense, naming the setting.
    """

    needs_edges = False

    def __init__(
        self,
        spec: GraphSpec,
        *,
        hidden_channels: int = 64,
        num_layers: int = 1,
        denoise: bool = False,
        gamma: float = 0.1,
        num_iterations: int = 10,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        seed: int = 0,
    ) -> None:
        check_spec("an MLP", spec)
        check_sizes(hidden_channels=hidden_channels, num_layers=num_layers)
        check_rates(dropout=dropout, input_dropout=input_dropout)
        check_range(above=0, at_most=1, gamma=gamma)
        check_range(at_least=0, at_most=10_000, num_iterations=num_iterations)
        super().__init__()
        self.spec, self.out_channels = spec, hidden_channels
        self.denoise, self.gamma, self.num_iterations = denoise, gamma, num_iterations
        self.dropout, self.input_dropout = dropout, input_dropout
        self.layers = nn.ModuleList(
            SparseLinear(spec.in_channels if layer == 0 else hidden_channels, hidden_channels)
            for layer in range(num_layers)
        )
        self.noise = NoiseStream(seed)
        self._denoised: LastResult[Tensor] = LastResult()
        self._sparse: LastResult[SparseMatrix] = LastResult()

    def precompute(
        self, x: Tensor, edge_index: Tensor, *, cache: str | PathLike[str] | None = None
    ) -> dict[str, Any]:
        """`{"denoised": [N, F]}`, dense, a row per node; without denoising nothing.

        Args:
            x: Features [N, F], dense or sparse CSR.
            edge_index: [2, E], int64.
            cache: Folder in which they are kept; None keeps nothing.
        """
        if not self.denoise:
            return {}
        settings: dict[str, Any] = {"gamma": self.gamma, "num_iterations": self.num_iterations}
        return {"denoised": cached_denoise(x, edge_index, cache=cache, **settings)}

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        *,
        noise_seed: int | None = None,
        denoised: Tensor | None = None,
    ) -> Tensor:
        """Encode a graph.

        Args:
            x: Features [N, F], dense or sparse CSR.
            edge_index: [2, E], int64; only looked at to denoise, where `denoised` is None.
            noise_seed: Names the dropout while training; None takes the next of the module's stream.
            denoised: From `precompute`, or the rows of it that belong to `x`.

        Returns:
            States [N, D].

        Raises:
            ValueError: if edges are needed and missing, or shapes do not fit.
        """
        check_features(x, self.spec)
        if self.denoise:
            x = self._check_denoised(x, edge_index, denoised)
        generator = self.noise.generator(noise_seed, x.device) if self.training else None
        h: Any = self._drop_features(x, generator)
        for layer in self.layers:
            h = dropout(layer(h).relu(), self.dropout, generator, self.training)
        states: Tensor = h
        return states

    def _check_denoised(self, x: Tensor, edge_index: Tensor | None, denoised: Tensor | None) -> Tensor:
        if denoised is None:
            if edge_index is None:
                raise ValueError("denoising needs the edges: pass edge_index, or denoised= from precompute")
            denoised = self._denoise(x, edge_index)
        check_rows("denoised", denoised, x)
        return denoised

    @run_eagerly
    def _denoise(self, x: Tensor, edge_index: Tensor) -> Tensor:
        denoised: Tensor = self._denoised.get(
            (x, edge_index), lambda: self.precompute(x, edge_index)["denoised"]
        )
        return denoised

    def _drop_features(self, x: Tensor, generator: torch.Generator | None) -> Tensor | SparseMatrix:
        """Input dropout: of the stored values where the features are sparse."""
        if generator is None or self.input_dropout == 0:
            return x
        if x.layout is torch.strided:
            return dropout(x, self.input_dropout, generator, True)
        sparse = self._sparse.get((x,), lambda: SparseMatrix.from_tensor(x))
        return sparse.with_values(dropout(sparse.values, self.input_dropout, generator, True))
