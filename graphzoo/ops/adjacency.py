"""Normalised adjacency matrices of a graph, and of the graphs of its two-hop, four-hop, ... neighbours."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from graphzoo.errors import check_whole
from graphzoo.ops.relational_spmm.graph import check_edges
from graphzoo.ops.sparse import SparseMatrix, row_pointers, without_beta_warning

_log = logging.getLogger(__name__)

# Entries of an adjacency of about 2 GiB; computing it takes several times that. The system may kill a process
# that runs out of memory, without a message. So there is a warning before.
_MANY_PAIRS = 1 << 28


class SparseAdjacency(SparseMatrix):
    """The matrix D^(-1/2) A D^(-1/2) of a 0/1 pattern A.

    Row v has the edges u -> v, so `matmul` passes messages along the edges. D has the in-degrees. Entries of
    a node without incoming edges are zero.
    """

    @classmethod
    def from_pattern(
        cls, target: Tensor, source: Tensor, num_nodes: int, *, dtype: torch.dtype
    ) -> SparseAdjacency:
        """Build the matrix from targets [E] and sources [E] of distinct edges, sorted by (target, source)."""
        rowptr = row_pointers(target, num_nodes)
        in_degree = rowptr.diff()
        scale = in_degree.clamp(min=1).to(dtype).rsqrt() * (in_degree > 0)
        return cls(rowptr, source, scale[target] * scale[source], (num_nodes, num_nodes))

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.shape[0]

    @property
    def in_degree(self) -> Tensor:
        """Number of edges into each node, [N], int64."""
        return self.rowptr.diff().long()


class EdgePattern:
    """The distinct edges of a graph and self-loops, sorted once, for adjacencies of subsets of the edges."""

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        place, self._entry = torch.unique(
            _places(edge_index, num_nodes, self_loops=True), return_inverse=True
        )
        self._row, self._col = place // max(num_nodes, 1), place % max(num_nodes, 1)
        self._num_nodes = num_nodes

    def masked(self, edge_mask: Tensor, *, dtype: torch.dtype = torch.float32) -> SparseAdjacency:
        """`normalized_adjacency` of the edges whose mask [E] is True.

        On the CPU the other edges are left out. On a GPU they stay, as entries that are 0 and do not count in
        the degrees: leaving them out would make the host wait for their number.
        """
        last = self._row.numel()
        mask = torch.cat([edge_mask, edge_mask.new_ones(self._num_nodes)])
        kept = torch.zeros(last + 1, dtype=torch.bool, device=mask.device)
        kept = kept.index_fill_(0, torch.where(mask, self._entry, last), True)[:-1]
        if mask.device.type != "cpu":
            return self._with_zeros(kept, dtype)
        row, col = self._row[kept], self._col[kept]
        return SparseAdjacency.from_pattern(row, col, self._num_nodes, dtype=dtype)

    def _with_zeros(self, kept: Tensor, dtype: torch.dtype) -> SparseAdjacency:
        counted = kept.to(torch.promote_types(dtype, torch.float32))
        scale = counted.new_zeros(self._num_nodes).index_add_(0, self._row, counted).rsqrt()
        values = (scale[self._row] * scale[self._col] * kept).to(dtype)
        rowptr = row_pointers(self._row, self._num_nodes)
        return SparseAdjacency(rowptr, self._col, values, (self._num_nodes, self._num_nodes))


class PlainAdjacency(SparseAdjacency):
    """The normalised adjacency with self-loops, for programs that are traced.

    It uses plain torch operations whose shapes do not depend on values. Only `matmul` and `row_sums` work,
    and `matmul` needs memory for [E, D] messages. The edges [2, E] are int64. Self-loops among them and
    repeated edges stay as entries that are 0 and do not count in the degrees.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> None:
        dtype = torch.promote_types(dtype, torch.float32)  # bfloat16 has the integers up to 256 only
        nodes = torch.arange(num_nodes, device=edge_index.device)
        source, target = edge_index
        ordered, order = (source * num_nodes + target).sort()
        # Not `roll`, which fails in ONNX if there are no edges.
        is_new = ordered != torch.cat([ordered.new_full((1,), -1), ordered])[:-1]
        counts = torch.zeros_like(source, dtype=dtype).scatter(0, order, is_new.to(dtype)) * (
            source != target
        )
        self._source, self._target = torch.cat([edge_index[0], nodes]), torch.cat([edge_index[1], nodes])
        counts = torch.cat([counts, torch.ones_like(nodes, dtype=dtype)])
        scale = torch.zeros_like(nodes, dtype=dtype).index_add(0, self._target, counts).rsqrt()
        self._weight, self._num_nodes = scale[self._target] * scale[self._source] * counts, num_nodes

    def row_sums(self) -> Tensor:
        """Sum of each row's entries, [N]."""
        return torch.zeros_like(self._weight[: self._num_nodes]).index_add(0, self._target, self._weight)

    def matmul(self, x: Tensor) -> Tensor:
        """The product A x, [N, D], for x [N, D]."""
        messages = self._weight[:, None].to(x.dtype) * x[self._source]
        return torch.zeros_like(x).index_add(0, self._target, messages)


class AdjacencyOrders(tuple[SparseAdjacency, ...]):
    """A_1 ... A_R, see `adjacency_orders`."""

    __slots__ = ()

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> AdjacencyOrders:
        """Copy all of them to another device."""
        return AdjacencyOrders(order.to(device, non_blocking=non_blocking) for order in self)


def normalized_adjacency(
    edge_index: Tensor, num_nodes: int, *, self_loops: bool = True, dtype: torch.dtype = torch.float32
) -> SparseAdjacency:
    """The matrix D^(-1/2) A D^(-1/2), where A is 1 for every edge and D has the in-degrees.

    Args:
        edge_index: Source and target of every edge, [2, E], int64 or int32; repeated edges count once.
        num_nodes: N.
        self_loops: Whether to add a self-loop to every node. False keeps the self-loops of `edge_index`.
        dtype: Dtype of the values.

    Returns:
        [N, N]; row v has the edges u -> v.

    Raises:
        ValueError: for edges of another shape or dtype, or nodes outside 0..N-1.
    """
    row, col = _pattern(edge_index, num_nodes, self_loops=self_loops)
    return SparseAdjacency.from_pattern(row, col, num_nodes, dtype=dtype)


def adjacency_orders(
    edge_index: Tensor, num_nodes: int, num_orders: int, *, dtype: torch.dtype = torch.float32
) -> AdjacencyOrders:
    """Normalised adjacencies A_1 ... A_R of nodes up to 1, 2, 4, ... steps apart.

    A_1 has the edges and self-loops, and A_o the non-zero entries of A_{o-1} A_{o-1}. Each is normalised by
    its own degrees. A warning is logged before a large one is computed.

    Args:
        edge_index: Source and target of every edge, [2, E], int64 or int32.
        num_nodes: N.
        num_orders: R, the number of matrices; order o links nodes up to 2^(o-1) steps apart. 0 gives none.
        dtype: Dtype of the values.

    Returns:
        R matrices [N, N].

    Raises:
        ValueError: for edges or a number of orders that are not valid.
    """
    check_whole(at_least=0, num_orders=num_orders)
    orders: list[SparseAdjacency] = []
    for order in range(1, num_orders + 1):
        if order == 1:
            row, col = _pattern(edge_index, num_nodes, self_loops=True)
        else:
            if (pairs := _most_pairs(row, col, num_nodes)) > _MANY_PAIRS:
                _log.warning(
                    f"adjacency order {order} links up to {pairs:,} pairs of nodes: it takes "
                    f"{pairs * 8e-9:.0f} GB, and several times that while it is computed; to use less, lower "
                    "the number of orders (NodeFormer's rb_order)"
                )
            row, col = _square_pattern(row, col, num_nodes)
        orders.append(SparseAdjacency.from_pattern(row, col, num_nodes, dtype=dtype))
    return AdjacencyOrders(orders)


def _pattern(edge_index: Tensor, num_nodes: int, *, self_loops: bool) -> tuple[Tensor, Tensor]:
    """Targets and sources of the distinct edges, sorted."""
    place = torch.unique(_places(edge_index, num_nodes, self_loops=self_loops))
    return place // max(num_nodes, 1), place % max(num_nodes, 1)


def _places(edge_index: Tensor, num_nodes: int, *, self_loops: bool) -> Tensor:
    """The number N target + source of every edge, then those of the self-loops."""
    source, target = check_edges(edge_index, num_nodes)
    place = target * num_nodes + source
    if not self_loops:
        return place
    return torch.cat([place, torch.arange(num_nodes, device=place.device) * (num_nodes + 1)])


def _most_pairs(row: Tensor, col: Tensor, num_nodes: int) -> int:
    """An upper bound for the number of entries of the squared pattern, in O(E)."""
    counts = torch.bincount(row, minlength=num_nodes)
    reached = torch.zeros_like(counts).index_add_(0, row, counts[col])
    return int(reached.clamp(max=num_nodes).sum())


def _square_pattern(row: Tensor, col: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    # The product in COO, since torch has the one in CSR only if it is built with MKL. The values are numbers
    # of paths. They are positive, so no entry is lost to rounding or cancellation.
    matrix = torch.sparse_coo_tensor(
        torch.stack([row, col]),
        torch.ones(row.numel(), dtype=torch.float32, device=row.device),
        (num_nodes, num_nodes),
        is_coalesced=True,
        check_invariants=False,
    )
    with without_beta_warning():
        squared = torch.sparse.mm(matrix, matrix).coalesce()
    found_row, found_col = squared.indices()
    return found_row, found_col
