"""Products of a sparse and a dense matrix, differentiable in the dense one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from graphzoo.errors import UsageError
from graphzoo.ops.eager import run_eagerly
from graphzoo.ops.relational_spmm.graph import check_edges


def refuse_gradient(x: Tensor) -> None:
    """Raise a `UsageError` if a sparse tensor requires a gradient."""
    if x.requires_grad and x.layout is not torch.strided:
        raise UsageError("sparse features get no gradient\nGive x.detach(), or dense features")


class SparseMatrix:
    """A constant sparse matrix in CSR form, for many products.

    Entries are sorted by row, and by column within a row. The transpose is computed at the first backward
    pass and kept. So both directions sum each row of their result in a fixed order.

    Args:
        rowptr: Position of the first entry of each row, [rows + 1], int32 or int64.
        col: Column of each entry, [nnz], int32 or int64.
        values: Value of each entry, [nnz], float.
        shape: Number of rows and of columns.
    """

    def __init__(self, rowptr: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> None:
        index = torch.int32 if max(*shape, col.numel()) < 2**31 else torch.int64
        self.rowptr, self.col, self.values = rowptr.to(index), col.to(index), values.detach()
        self.shape = shape
        self._transposed: SparseMatrix | None = None
        self._order: Tensor | None = None  # positions of this matrix's entries in the transpose's order
        self._pattern: SparseMatrix | None = None  # a matrix with the same entries, which keeps its transpose
        self._row_sums: Tensor | None = None
        self._handles: dict[torch.dtype, Tensor] = {}

    @classmethod
    def from_tensor(cls, x: Tensor) -> SparseMatrix:
        """Convert a tensor [rows, columns], dense or of any sparse layout.

        Repeated entries of a COO tensor are summed.

        Raises:
            ValueError: if the tensor has not two dimensions, or is sparse and requires a gradient.
        """
        if x.dim() != 2:
            raise ValueError(f"a sparse matrix has two dimensions, got shape {list(x.shape)}")
        refuse_gradient(x)
        shape = (int(x.shape[0]), int(x.shape[1]))
        if x.layout is torch.sparse_csr:
            return cls(x.crow_indices(), x.col_indices(), x.values(), shape)
        coo = x.to_sparse_coo().coalesce()  # type: ignore[no-untyped-call]
        row, col = coo.indices()
        return cls(row_pointers(row, shape[0]), col, coo.values(), shape)

    @classmethod
    def from_pairs(cls, edge_index: Tensor, num_nodes: int) -> tuple[SparseMatrix, Tensor]:
        """A matrix with a 1 in row v and column u for pairs (u, v) [2, E], and each pair's entry number [E].

        Raises:
            ValueError: for pairs of another shape or dtype, or nodes outside 0..num_nodes-1.
        """
        source, target = check_edges(edge_index, num_nodes)
        place, position = torch.unique(target * num_nodes + source, return_inverse=True)
        row, col = place // max(num_nodes, 1), place % max(num_nodes, 1)
        values = torch.ones(col.numel(), device=col.device)
        return cls(row_pointers(row, num_nodes), col, values, (num_nodes, num_nodes)), position

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return int(self.col.numel())

    @property
    def device(self) -> torch.device:
        """Device of the matrix."""
        return self.values.device

    def row_sums(self) -> Tensor:
        """Sum of each row's values, [rows]; computed once."""
        if self._row_sums is None:
            self._row_sums = self._multiply(self.values.new_ones(self.shape[1], 1))[:, 0]
        return self._row_sums

    def row_of_entry(self) -> Tensor:
        """Row of each entry, [nnz], int64, ascending."""
        rows = torch.arange(self.shape[0], device=self.device)
        return rows.repeat_interleave(self.rowptr.diff().long(), output_size=self.nnz)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        """Copy the matrix to another device; return the same object if it is already there."""
        device = torch.empty(0, device=device).device
        if device == self.device:
            return self
        rowptr, col = (part.to(device, non_blocking=non_blocking) for part in (self.rowptr, self.col))
        return type(self)(rowptr, col, self.values.to(device, non_blocking=non_blocking), self.shape)

    def with_values(self, values: Tensor) -> SparseMatrix:
        """A matrix with the same entries and other values [nnz]; both share the transpose's order."""
        changed = SparseMatrix(self.rowptr, self.col, values, self.shape)
        changed._pattern = self
        return changed

    def to_dense(self) -> Tensor:
        """The matrix as a dense tensor [rows, columns]."""
        dense = self.values.new_zeros(self.shape)
        return dense.index_put_((self.row_of_entry(), self.col.long()), self.values, accumulate=True)

    def transpose(self) -> SparseMatrix:
        """The transposed matrix, computed once."""
        # The transpose has no reference back to this matrix. In a cycle only the garbage collector would free
        # both, and the matrices of each step (parts, dropout) would fill the memory before it runs.
        if self._transposed is None:
            if self._pattern is not None:
                transposed = self._pattern.transpose()
                self._order = self._pattern._order
                assert self._order is not None
                self._transposed = transposed.with_values(self.values[self._order])
                return self._transposed
            # A stable sort keeps the entries of each column sorted by row.
            order = torch.argsort(self.col, stable=True)
            rows, columns = self.shape
            self._transposed = SparseMatrix(
                row_pointers(self.col, columns),
                self.row_of_entry()[order],
                self.values[order],
                (columns, rows),
            )
            self._order = order
        return self._transposed

    @run_eagerly
    def matmul(self, x: Tensor) -> Tensor:
        """The product `self @ x`, differentiable in `x` any number of times.

        Args:
            x: Dense [columns, F], of any float dtype.

        Returns:
            [rows, F] in the dtype of `x`; sums are computed in float32 or wider.

        Raises:
            ValueError: for another shape, or integers.
        """
        if not x.is_floating_point():
            raise ValueError(
                f"a sparse matrix is multiplied by floating-point numbers, got x of {x.dtype}: give x.float()"
            )
        if x.dim() != 2 or x.shape[0] != self.shape[1]:
            raise ValueError(
                f"a sparse matrix {list(self.shape)} is multiplied by x of shape [{self.shape[1]}, F], "
                f"got {list(x.shape)}"
            )
        out: Tensor = _Product.apply(x, self)  # type: ignore[no-untyped-call]
        return out

    @run_eagerly
    def sampled_product(self, a: Tensor, b: Tensor) -> Tensor:
        """The product `a_h @ b_h.T` of each head h, only at the entries of this matrix; differentiable once.

        The values of this matrix are ignored.

        Args:
            a: [rows, H, F].
            b: [columns, H, F].

        Returns:
            [nnz, H], in float32 or wider.
        """
        out: Tensor = _SampledProduct.apply(a, b, self)  # type: ignore[no-untyped-call]
        return out

    def _multiply(self, x: Tensor) -> Tensor:
        dtype = torch.promote_types(torch.promote_types(self.values.dtype, x.dtype), torch.float32)
        if dtype not in self._handles:
            self._handles[dtype] = _csr_tensor(self.rowptr, self.col, self.values.to(dtype), self.shape)
        with torch.autocast(x.device.type, enabled=False):
            out: Tensor = self._handles[dtype] @ x.to(dtype).contiguous()
        return out.to(x.dtype)

    def __getstate__(self) -> dict[str, Any]:
        # Leaves out the CSR tensors, which are slow to pickle and cheap to create.
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


class _SampledProduct(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix = matrix
        ctx.save_for_backward(a, b)
        dtype = torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32)
        pattern = _csr_tensor(matrix.rowptr, matrix.col, matrix.values.new_zeros(matrix.nnz), matrix.shape)
        pattern = pattern.to(dtype)
        with torch.autocast(a.device.type, enabled=False):
            products = [
                torch.sparse.sampled_addmm(pattern, left, right.t(), beta=0.0).values()
                for left, right in zip(_heads(a, dtype), _heads(b, dtype), strict=True)
            ]
            return torch.stack(products, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        a, b = ctx.saved_tensors
        matrix, transposed = ctx.matrix, ctx.matrix.transpose()
        by_row = grad.t().contiguous()  # [H, nnz]
        by_column = by_row[:, matrix._order]
        with torch.autocast(grad.device.type, enabled=False):
            grad_a = [
                _csr_tensor(matrix.rowptr, matrix.col, values, matrix.shape) @ x
                for values, x in zip(by_row, _heads(b, grad.dtype), strict=True)
            ]
            grad_b = [
                _csr_tensor(transposed.rowptr, transposed.col, values, transposed.shape) @ x
                for values, x in zip(by_column, _heads(a, grad.dtype), strict=True)
            ]
            return torch.stack(grad_a, 1).to(a.dtype), torch.stack(grad_b, 1).to(b.dtype), None


def _heads(x: Tensor, dtype: torch.dtype) -> Tensor:
    """[N, H, F] -> [H, N, F], each head contiguous."""
    return x.to(dtype).transpose(0, 1).contiguous()


def row_pointers(row: Tensor, num_rows: int) -> Tensor:
    """Position of the first entry of each row, [rows + 1], from the row of every entry, [nnz]."""
    if row.is_cuda:  # `bincount` makes the host wait for the size of its result
        counts = torch.zeros(num_rows, dtype=torch.int64, device=row.device)
        counts.index_add_(0, row, torch.ones_like(row, dtype=torch.int64))
    else:
        counts = torch.bincount(row, minlength=num_rows)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _csr_tensor(rowptr: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    with without_beta_warning():
        return torch.sparse_csr_tensor(rowptr, col, values, shape, check_invariants=False)


@contextmanager
def without_beta_warning() -> Iterator[None]:
    """Hide torch's warning that its CSR layout is in beta state, about which a user can do nothing."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        yield
