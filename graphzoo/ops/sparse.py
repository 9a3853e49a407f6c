"""Sparse times dense matrix, differentiable in the dense one: the matrix and its transpose in CSR form."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function

__all__ = ["SparseMatrix"]


class SparseMatrix:
    """A constant sparse matrix that is multiplied many times.

    Rows are sorted, and columns within a row. The transpose is made at the first backward pass and kept, so
    that both directions sum each row of their result in one fixed order.

    Args:
        rowptr: Where each row begins, [rows + 1], int32 or int64.
        col: Column of each entry, [nnz], like rowptr.
        values: [nnz], float.
        shape: Rows and columns.
    """

    def __init__(self, rowptr: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> None:
        index = torch.int32 if max(*shape, col.numel()) < 2**31 else torch.int64
        self.rowptr, self.col, self.values = rowptr.to(index), col.to(index), values.detach()
        self.shape = shape
        self._transposed: SparseMatrix | None = None
        self._handles: dict[torch.dtype, Tensor] = {}

    @classmethod
    def from_entries(cls, row: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> SparseMatrix:
        """Entries in any order, [nnz] each; those of one place are summed."""
        coo = torch.sparse_coo_tensor(
            torch.stack([row, col]), values, shape, check_invariants=False
        ).coalesce()
        row, col = coo.indices()
        return cls(_row_pointers(row, shape[0]), col, coo.values(), shape)

    @classmethod
    def from_tensor(cls, x: Tensor) -> SparseMatrix:
        """A tensor [rows, columns], dense or of any sparse layout.

        Raises:
            ValueError: if the tensor has not two dimensions or wants a gradient, which this would not give.
        """
        if x.dim() != 2:
            raise ValueError(f"a sparse matrix has two dimensions, got shape {list(x.shape)}")
        if x.requires_grad:
            raise ValueError("sparse input is constant and gets no gradient: detach it, or make it dense")
        shape = (int(x.shape[0]), int(x.shape[1]))
        if x.layout is torch.sparse_csr:
            return cls(x.crow_indices(), x.col_indices(), x.values(), shape)
        coo = x.to_sparse_coo().coalesce()  # type: ignore[no-untyped-call]
        row, col = coo.indices()
        return cls(_row_pointers(row, shape[0]), col, coo.values(), shape)

    @property
    def nnz(self) -> int:
        """Stored entries."""
        return int(self.col.numel())

    @property
    def device(self) -> torch.device:
        """Where the matrix lives."""
        return self.values.device

    def row_of_entry(self) -> Tensor:
        """Row of each entry, [nnz], int64, ascending."""
        rows = torch.arange(self.shape[0], device=self.device)
        return rows.repeat_interleave(self.rowptr.diff().long(), output_size=self.nnz)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> SparseMatrix:
        """The matrix on another device, a known transpose included; itself when it is there already."""
        device = torch.empty(0, device=device).device
        if device == self.device:
            return self
        moved = object.__new__(type(self))
        moved.__dict__.update(self.__dict__)
        moved._handles = {}
        for name in ("rowptr", "col", "values"):
            setattr(moved, name, getattr(self, name).to(device, non_blocking=non_blocking))
        if self._transposed is not None:
            moved._transposed = self._transposed.to(device, non_blocking=non_blocking)
            moved._transposed._transposed = moved
        return moved

    def transpose(self) -> SparseMatrix:
        """The transposed matrix, made once."""
        if self._transposed is None:
            # Stable: entries stay sorted by row within each column.
            order = torch.argsort(self.col, stable=True)
            rows, columns = self.shape
            self._transposed = SparseMatrix(
                _row_pointers(self.col, columns),
                self.row_of_entry()[order],
                self.values[order],
                (columns, rows),
            )
            self._transposed._transposed = self
        return self._transposed

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def matmul(self, x: Tensor) -> Tensor:
        """`self @ x` for dense `x` [columns, F] of any float dtype -> [rows, F] of that dtype.

        Sums are made in float32 at least. Differentiable in `x`, any number of times.

        Raises:
            ValueError: if the shapes do not fit.
        """
        if x.dim() != 2 or x.shape[0] != self.shape[1]:
            raise ValueError(
                f"a sparse matrix {list(self.shape)} takes x of shape [{self.shape[1]}, F], "
                f"got {list(x.shape)}"
            )
        out: Tensor = _Product.apply(x, self)  # type: ignore[no-untyped-call]
        return out

    def _multiply(self, x: Tensor) -> Tensor:
        dtype = torch.promote_types(torch.promote_types(self.values.dtype, x.dtype), torch.float32)
        if dtype not in self._handles:
            self._handles[dtype] = _csr_tensor(self.rowptr, self.col, self.values.to(dtype), self.shape)
        with torch.autocast(x.device.type, enabled=False):
            out: Tensor = self._handles[dtype] @ x.to(dtype).contiguous()
        return out.to(x.dtype)

    def __getstate__(self) -> dict[str, Any]:
        # Tensors of the CSR layout are pickled with a detour; they cost nothing to make again.
        return {**self.__dict__, "_handles": {}}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, nnz={self.nnz}, device='{self.device}')"


class _Product(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix = matrix
        return matrix._multiply(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Product.apply(grad, ctx.matrix.transpose()), None  # type: ignore[no-untyped-call]


def _row_pointers(row: Tensor, num_rows: int) -> Tensor:
    counts = torch.bincount(row, minlength=num_rows)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _csr_tensor(rowptr: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        # Once per process torch says that its CSR layout is in beta state, which no user can act upon.
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        return torch.sparse_csr_tensor(rowptr, col, values, shape, check_invariants=False)
