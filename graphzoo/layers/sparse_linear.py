"""A linear map that also takes sparse input, such as wide bags of words."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphzoo.layers.noise import dropout
from graphzoo.ops.last_result import LastResult
from graphzoo.ops.sparse import SparseMatrix


class SparseLinear(nn.Linear):
    """`torch.nn.Linear` that also takes sparse input, which is not converted to a dense tensor.

    A sparse tensor is converted to a `SparseMatrix`, which is kept for further calls with the same tensor.
    Gradients flow to weight and bias, but not to sparse input. Parameters, their names and their
    initialisation are those of `torch.nn.Linear`.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__(in_features, out_features, bias)
        self._last: LastResult[SparseMatrix] = LastResult()

    def forward(
        self, x: Tensor | SparseMatrix, p: float = 0.0, generator: torch.Generator | None = None
    ) -> Tensor:
        """Map `x` [N, in_features] to [N, out_features].

        Args:
            x: Dense tensor, sparse CSR tensor or `SparseMatrix`.
            p: Probability of dropping an entry of `x` first; of sparse input, a stored value.
            generator: Generator of this dropout; None drops nothing.

        Raises:
            UsageError: for a sparse tensor that requires a gradient, or `p` outside [0, 1).
        """
        drops = generator is not None and p > 0
        if isinstance(x, Tensor):
            if x.layout is torch.strided:
                return F.linear(dropout(x, p, generator, drops), self.weight, self.bias)
            sparse = x
            x = self._last.get((sparse,), lambda: SparseMatrix.from_tensor(sparse))
        kept = dropout(x.values, p, generator, drops)
        out: Tensor = (x.with_values(kept) if drops else x).matmul(self.weight.t())
        return out if self.bias is None else out + self.bias
