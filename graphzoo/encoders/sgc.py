"""SGC: features averaged over neighbours K times, once, and nothing but a linear map after it.

Wu, Zhang, de Souza, Fifty, Yu and Weinberger, "Simplifying Graph Convolutional Networks", ICML 2019.
"""

from __future__ import annotations

from os import PathLike
from typing import Any

from torch import Tensor

from graphzoo.encoders.base import NodeEncoder
from graphzoo.encoders.checks import check_features, check_rows, check_spec
from graphzoo.errors import check_range
from graphzoo.layers import LastResult, SparseLinear
from graphzoo.ops import cached_denoise
from graphzoo.ops.eager import run_eagerly
from graphzoo.types import GraphSpec

__all__ = ["SGC"]


class SGC(NodeEncoder):
    r"""SGC encoder: :math:`S^K X` (Eq. 8), S the symmetric-normalised adjacency with self-loops.

    The linear map and the softmax of the paper are the task's decoder, so that the encoder itself has nothing
    to learn unless `hidden_channels` is set. An edge counts once and in both directions, as in GALiT's
    denoising, whose loops and cache this shares (gamma = 0).

    Args:
        spec: Facts of the graph; `in_channels` is the width of the features.
        num_steps: K, steps of propagation, 0 to 10,000.
        hidden_channels: Width of a linear map of the propagated features; 0: the features themselves, F wide.

    Raises:
        ValueError: for sizes that cannot be built, naming the setting.
    """

    needs_edges = False

    def __init__(self, spec: GraphSpec, *, num_steps: int = 2, hidden_channels: int = 0) -> None:
        check_spec("SGC", spec)
        check_range(at_least=0, at_most=10_000, num_steps=num_steps)
        check_range(at_least=0, hidden_channels=hidden_channels)
        super().__init__()
        self.spec, self.num_steps = spec, num_steps
        self.out_channels = hidden_channels or spec.in_channels
        self.map = SparseLinear(spec.in_channels, hidden_channels) if hidden_channels else None
        self._last: LastResult[Tensor] = LastResult()

    def precompute(
        self, x: Tensor, edge_index: Tensor, *, cache: str | PathLike[str] | None = None
    ) -> dict[str, Any]:
        """The propagated features, `{"propagated": [N, F]}`, dense, a row per node.

        Args:
            x: Features [N, F], dense or sparse CSR.
            edge_index: [2, E], int64.
            cache: Folder in which they are kept; None keeps nothing.
        """
        propagated = cached_denoise(x, edge_index, gamma=0.0, num_iterations=self.num_steps, cache=cache)
        return {"propagated": propagated}

    def forward(
        self, x: Tensor, edge_index: Tensor | None = None, *, propagated: Tensor | None = None
    ) -> Tensor:
        """Encode a graph.

        Args:
            x: Features [N, F], dense or sparse CSR; only their shape counts where `propagated` is given.
            edge_index: [2, E], int64; only looked at where `propagated` is None.
            propagated: From `precompute`, or the rows of it that belong to `x`; None: made from `edge_index`,
                and kept while calls bring the same tensors.

        Returns:
            States [N, D].

        Raises:
            ValueError: if both `edge_index` and `propagated` are missing, or shapes do not fit.
        """
        check_features(x, self.spec)
        if propagated is None:
            if edge_index is None:
                raise ValueError("SGC needs the edges once: pass edge_index, or propagated= from precompute")
            propagated = self._propagate(x, edge_index)
        check_rows("propagated", propagated, x)
        states: Tensor = propagated if self.map is None else self.map(propagated)
        return states

    @run_eagerly
    def _propagate(self, x: Tensor, edge_index: Tensor) -> Tensor:
        propagated: Tensor = self._last.get(
            (x, edge_index), lambda: self.precompute(x, edge_index)["propagated"]
        )
        return propagated
