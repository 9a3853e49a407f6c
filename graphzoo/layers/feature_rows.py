"""A linear map of some rows of a feature table, for encoders that read few nodes of a large graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphzoo.layers.sparse_linear import SparseLinear
from graphzoo.ops.eager import run_eagerly
from graphzoo.ops.sparse import SparseMatrix, refuse_gradient


class FeatureRows(nn.Module):
    """`torch.nn.Linear` of some rows of a table [N, F]; a row that occurs several times is mapped only once.

    On CUDA every occurrence of a row of a dense table is mapped, unless the whole table has fewer rows: the
    host would wait for the number of distinct rows.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = SparseLinear(in_features, out_features)

    @run_eagerly
    def forward(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Map some rows of a table.

        Args:
            x: Table [N, F], dense or sparse, of any dtype except complex.
            rows: Numbers of the rows, [...], int64.

        Returns:
            The mapped rows [U, D], and for each entry of `rows` its position among them, [...], int64, as
            `torch.nn.functional.embedding` takes them.
        """
        if x.layout is torch.sparse_coo:
            x = x.to_sparse_csr()
        exports = torch.compiler.is_exporting()
        if not exports and rows.numel() >= x.shape[0]:
            return self.linear(self._cast(x)), rows
        # An export does not know the number of distinct rows, and the host would wait for it on a GPU.
        if exports or (rows.is_cuda and x.layout is torch.strided):
            each = torch.arange(rows.numel(), device=rows.device).view_as(rows)
            return self.linear(self._cast(x[rows.flatten()])), each
        distinct, position = torch.unique(rows, return_inverse=True)
        part = self._cast(x[distinct]) if x.layout is torch.strided else _sparse_rows(x, distinct)
        return self.linear(part), position

    def _cast(self, x: Tensor) -> Tensor:
        """Convert to the dtype of the weights, after rows are selected since a table may be large."""
        return x.to(self.linear.weight.dtype)


def _sparse_rows(x: Tensor, rows: Tensor) -> SparseMatrix:
    """Select rows of a CSR tensor, in the given order."""
    refuse_gradient(x)
    begin, end = x.crow_indices()[rows].long(), x.crow_indices()[rows + 1].long()
    rowptr = F.pad((end - begin).cumsum(0), (1, 0))
    # An entry has the same distance to the end of its row in `x` and in the result.
    shift = (end - rowptr[1:]).repeat_interleave(end - begin)
    entry = torch.arange(shift.numel(), device=x.device) + shift
    return SparseMatrix(rowptr, x.col_indices()[entry], x.values()[entry], (rows.numel(), x.shape[1]))
