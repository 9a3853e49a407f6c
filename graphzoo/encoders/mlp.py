"""An MLP on each node's features, raw or denoised along the edges: a baseline without attention."""

from __future__ import annotations

from torch import Tensor, nn

from graphzoo.encoders.checks import cast_features, check_features, check_rates, check_sizes, check_spec
from graphzoo.encoders.pyg_form import has_other_forms
from graphzoo.encoders.sgc import DenoisedEncoder
from graphzoo.errors import check_range, check_whole
from graphzoo.layers import NoiseStream, SparseLinear, dropout
from graphzoo.types import GraphSpec


class MLP(DenoisedEncoder):
    """Linear layers with ReLU and dropout: features [N, F] -> states [N, D].

    With `denoise` the features are denoised as in GALiT (Eq. 29): this is GALiT without attention.

    Args:
        spec: Sizes of the graph; `in_channels` is the width of the features.
        hidden_channels: D, width of every layer.
        num_layers: Layers, each followed by ReLU and dropout; the task's decoder comes on top.
        denoise: Whether features are denoised along the edges once, before training.
        gamma: Weight of a node's own features in denoising, in (0, 1].
        num_iterations: Steps of denoising, 0 to 10,000.
        dropout: Dropout rate after every layer.
        input_dropout: Dropout rate of the features.
        seed: Seed of the noise stream.
    """

    @has_other_forms
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
        check_whole(at_least=0, at_most=10_000, num_iterations=num_iterations)
        super().__init__(spec, gamma=gamma, num_iterations=num_iterations, denoise=denoise)
        self.out_channels = hidden_channels
        self.dropout, self.input_dropout = dropout, input_dropout
        self.layers = nn.ModuleList(
            SparseLinear(spec.in_channels if layer == 0 else hidden_channels, hidden_channels)
            for layer in range(num_layers)
        )
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

        Edges are read only to denoise the features, if `denoised`, the result of `precompute`, is missing.
        """
        check_features(x, self.spec)
        if self.denoise:  # in float32
            x = self._denoised(x, edge_index, denoised)
        x = cast_features(x, self.layers)
        generator = self.noise.generator(noise_seed, x.device) if self.training else None
        rates = [self.input_dropout, *(len(self.layers) - 1) * [0.0]]
        for layer, rate in zip(self.layers, rates, strict=True):
            x = dropout(layer(x, rate, generator).relu(), self.dropout, generator, self.training)
        return x
