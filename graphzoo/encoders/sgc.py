"""SGC: features averaged over neighbours K times before training, then only a linear map.

Wu, Zhang, de Souza, Fifty, Yu and Weinberger, "Simplifying Graph Convolutional Networks", ICML 2019.
"""

from __future__ import annotations

from os import PathLike
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphzoo.encoders.base import NodeEncoder
from graphzoo.encoders.checks import check_features, check_rows, check_spec
from graphzoo.encoders.pyg_form import has_other_forms
from graphzoo.errors import UsageError, check_whole
from graphzoo.layers import LastResult, SparseLinear
from graphzoo.ops import cached_denoise, denoise_features
from graphzoo.ops.adjacency import EdgePattern
from graphzoo.ops.eager import run_eagerly
from graphzoo.ops.sparse import refuse_gradient
from graphzoo.types import GraphSpec


class DenoisedEncoder(NodeEncoder):
    """An encoder that uses the edges only once, to denoise the features (see `graphzoo.ops.cached_denoise`).

    Args:
        spec: See `NodeEncoder`.
        gamma: Weight of a node's own features.
        num_iterations: Steps of denoising.
        denoise: Whether to denoise; False for an encoder that does not use the graph.
    """

    needs_edges = False
    prepared: ClassVar[str] = "denoised"
    """Name of the denoised features in `precompute` and `forward`."""

    def __init__(self, spec: GraphSpec, *, gamma: float, num_iterations: int, denoise: bool = True) -> None:
        super().__init__()
        self.spec, self.gamma, self.num_iterations, self.denoise = spec, gamma, num_iterations, denoise
        self._last: LastResult[Tensor] = LastResult()
        self._pattern: LastResult[EdgePattern] = LastResult()

    def precompute(
        self, x: Tensor, edge_index: Tensor, *, cache: str | PathLike[str] | None = None
    ) -> dict[str, Any]:
        """The denoised features by their name, dense [N, F]; row i belongs to node i."""
        if not self.denoise:
            return {}
        settings: dict[str, Any] = {"gamma": self.gamma, "num_iterations": self.num_iterations}
        return {self.prepared: cached_denoise(x, edge_index, cache=cache, **settings)}

    def precompute_masked(
        self, x: Tensor, edge_index: Tensor, edge_mask: Tensor
    ) -> tuple[Tensor | None, dict[str, Any]]:
        """See `NodeEncoder.precompute_masked`; edges are sorted once for all masks, without a wait."""
        if type(self).precompute is not DenoisedEncoder.precompute:
            return super().precompute_masked(x, edge_index, edge_mask)
        if not self.denoise:
            return None, {}
        both = self._pattern.get(
            (x, edge_index), lambda: EdgePattern(torch.cat([edge_index, edge_index.flip(0)], 1), x.shape[0])
        )
        adjacency = both.masked(edge_mask.repeat(2), dtype=torch.promote_types(x.dtype, torch.float32))
        return None, {
            self.prepared: denoise_features(
                x, adjacency, gamma=self.gamma, num_iterations=self.num_iterations
            )
        }

    def _denoised(self, x: Tensor, edge_index: Tensor | None, given: Tensor | None) -> Tensor:
        """The given denoised features [N, F], or `x` denoised along the edges.

        The result is kept for the next call with the same tensors, unless `x` requires a gradient.
        """
        if given is None:
            if edge_index is None:
                name = f"{type(self).__name__} needs the edges once"
                raise UsageError(f"{name}: pass edge_index, or {self.prepared}= from precompute")
            if torch.compiler.is_exporting():
                raise UsageError(
                    f"exported, {type(self).__name__} takes no edges: give {self.prepared}= from precompute"
                )
            given = self._denoise(x, edge_index)
        check_rows(self.prepared, given, x)
        return given

    @run_eagerly
    def _denoise(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.requires_grad:
            return self._denoise_with_gradient(x, edge_index)
        # Kept from a validation in inference mode until training, whose backward pass needs it.
        with torch.inference_mode(False), torch.no_grad():
            facts = self.gamma, self.num_iterations
            return self._last.get(
                (x, edge_index), lambda: self.precompute(x, edge_index)[self.prepared], *facts
            )

    def _denoise_with_gradient(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Denoise features that require a gradient. They differ in each step, so nothing is kept."""
        refuse_gradient(x)
        if type(self).precompute is DenoisedEncoder.precompute:
            settings: dict[str, Any] = {"gamma": self.gamma, "num_iterations": self.num_iterations}
            return denoise_features(x, edge_index, with_gradient=True, **settings)
        own: Tensor = self.precompute(x, edge_index)[self.prepared]
        if not own.requires_grad:
            name = type(self).__name__
            raise UsageError(f"what {name}.precompute makes has no gradient for x\nGive x.detach()")
        return own


class SGC(DenoisedEncoder):
    r"""SGC encoder: :math:`S^K X` (Eq. 8), S the symmetric-normalised adjacency with self-loops.

    The linear map and the softmax of the paper are the task's decoder. The encoder itself has nothing to
    learn unless `hidden_channels` is set. An edge counts once and in both directions, as in GALiT's
    denoising: this is the same computation with gamma = 0, and shares its cache.

    Args:
        spec: Sizes of the graph; `in_channels` is the width of the features.
        num_steps: K, steps of propagation, 0 to 10,000.
        hidden_channels: Width of a linear map of the propagated features; 0 for no map, so that D is F.
    """

    prepared = "propagated"
    _like: Tensor

    @has_other_forms
    def __init__(self, spec: GraphSpec, *, num_steps: int = 2, hidden_channels: int = 0) -> None:
        check_spec("SGC", spec)
        check_whole(at_least=0, at_most=10_000, num_steps=num_steps)
        check_whole(at_least=0, hidden_channels=hidden_channels)
        super().__init__(spec, gamma=0.0, num_iterations=num_steps)
        self.out_channels = hidden_channels or spec.in_channels
        self.map = SparseLinear(spec.in_channels, hidden_channels) if hidden_channels else None
        # follows `.to(dtype)`: without weights, nothing else tells the precision
        self.register_buffer("_like", torch.empty(0, dtype=torch.float32), persistent=False)

    def forward(
        self, x: Tensor, edge_index: Tensor | None = None, *, propagated: Tensor | None = None
    ) -> Tensor:
        """Encode features [N, F], dense or sparse CSR: [N, D].

        `propagated` is the result of `precompute`, or its rows of these nodes. Without it, edges are read.
        """
        check_features(x, self.spec)
        is_given = propagated is not None
        propagated = self._denoised(x, edge_index, propagated)
        if self.map is None:
            follows_x = self._like.dtype == torch.float32 and x.is_floating_point()
            # the caller may write to what is returned, but not to what is kept for the next call
            return propagated.to(x.dtype if follows_x else self._like.dtype, copy=not is_given)
        states: Tensor = self.map(propagated.to(self.map.weight.dtype))  # denoised in float32
        return states
