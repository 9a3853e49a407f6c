"""A graph and the values that an encoder precomputes for it, kept on the model's device."""

from __future__ import annotations

from os import PathLike
from typing import Any

import torch
from torch import Tensor

from graphzoo.encoders.base import NodeEncoder
from graphzoo.layers import SparseLinear
from graphzoo.ops.sparse import without_beta_warning


class PreparedGraph:
    """Features, edges and the encoder's precomputed values of one whole graph.

    Args:
        encoder: Its `precompute` is called once.
        x: Features [N, F], dense or sparse CSR.
        edge_index: [2, E], int64; kept only if the encoder needs it afterwards.
        device: Where the encoder is.
        cache: Folder for costly results, or None.
    """

    def __init__(
        self,
        encoder: NodeEncoder,
        x: Tensor,
        edge_index: Tensor,
        device: torch.device,
        cache: str | PathLike[str] | None = None,
    ) -> None:
        if device.type == "cpu" and _is_mostly_empty(x) and _takes_sparse(encoder):
            with without_beta_warning():
                matrix = x.to_sparse_csr()
        else:
            matrix = x
        # A validation before training may make them; training cannot use tensors of inference mode.
        with torch.inference_mode(False), torch.no_grad():
            prepared = encoder.precompute(matrix, edge_index, cache=cache)
            self.precomputed: dict[str, Any] = {name: value.to(device) for name, value in prepared.items()}
            self.x = matrix.to(device)
            self.edge_index = edge_index.to(device) if encoder.needs_edges else None
        self.source = (x, edge_index)
        self.device = device

    def is_of(self, x: Tensor, edge_index: Tensor | None, device: torch.device) -> bool:
        """Whether it was made of these very tensors, for this device."""
        return self.source[0] is x and self.source[1] is edge_index and self.device == device

    @property
    def is_sliceable(self) -> bool:
        """Whether a part of the graph needs only its nodes' rows of the precomputed values, and no edges."""
        size, values = self.x.shape[:1], self.precomputed.values()
        rows = all(isinstance(value, Tensor) and value.shape[:1] == size for value in values)
        return self.edge_index is None and rows

    def rows(self, index: Tensor) -> dict[str, Tensor]:
        """The precomputed values of some nodes."""
        return {name: value[index] for name, value in self.precomputed.items()}


def _takes_sparse(encoder: NodeEncoder) -> bool:
    return any(isinstance(module, SparseLinear) for module in encoder.modules())


def _is_mostly_empty(x: Tensor) -> bool:
    """Whether a sparse product is faster on a CPU: in bags of words, 1 or 2 % of the entries are not 0."""
    return x.layout is torch.strided and x.shape[1] >= 256 and int(torch.count_nonzero(x)) < 0.05 * x.numel()
