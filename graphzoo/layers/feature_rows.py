"""A linear map of some rows of a feature table, for encoders that see a few nodes of a large graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphzoo.layers.sparse_linear import SparseLinear
from graphzoo.ops.eager import run_eagerly
from graphzoo.ops.sparse import SparseMatrix, refuse_gradient


class FeatureRows(nn.Module):
    """`torch.nn.Linear` of a table's rows [N, F], each distinct one mapped once, however often asked for.

    On CUDA each entry is, unless the table is smaller: to learn which are distinct, the host would wait.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = SparseLinear(in_features, out_features)

    @run_eagerly
    def forward(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Map rows [...], int64, of a table [N, F], dense or sparse CSR, of any dtype but complex.

        Returns:
            Mapped rows, [U, D], and which of them each entry of `rows` is, int64: `F.embedding` takes both.
        """
        exports = torch.compiler.is_exporting()
        if not exports and rows.numel() >= x.shape[0]:
            return self.linear(self._cast(x)), rows
        # How many rows differ is no number in an export, and one of a GPU only when all before it is done.
        if exports or (rows.is_cuda and x.layout is torch.strided):
            each = torch.arange(rows.numel(), device=rows.device).view_as(rows)
            return self.linear(self._cast(x[rows.flatten()])), each
        distinct, position = torch.unique(rows, return_inverse=True)
        part = self._cast(x[distinct]) if x.layout is torch.strided else _sparse_rows(x, distinct)
        return self.linear(part), position

    def _cast(self, x: Tensor) -> Tensor:
        """To the precision of the weights, after rows are taken: a table may be large."""
        return x.to(self.linear.weight.dtype)


def _sparse_rows(x: Tensor, rows: Tensor) -> SparseMatrix:
    """Some rows of a CSR tensor, in the order given."""
    refuse_gradient(x)
    begin, end = x.crow_indices()[rows].long(), x.crow_indices()[rows + 1].long()
    rowptr = F.pad((end - begin).cumsum(0), (1, 0))
    # Entry i of the result is as far from the end of its row here as it is there.
    shift = (end - rowptr[1:]).repeat_interleave(end - begin)
    entry = torch.arange(shift.numel(), device=x.device) + shift
    return SparseMatrix(rowptr, x.col_indices()[entry], x.values()[entry], (rows.numel(), x.shape[1]))
