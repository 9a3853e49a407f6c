"""The adjacency matrix in scipy's form, and functions of it that several heuristics use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

MAX_BYTES = 2**28
"""Default working memory of a heuristic: 256 MiB, beside graph, pairs and scores."""


def adjacency_matrix(edge_index: Any, num_nodes: int, *, symmetric: bool = True) -> Any:
    """Adjacency matrix of a simple graph: repeated edges count once, and self-loops are left out.

    Args:
        edge_index: Edges u -> v, [2, E], integers; a NumPy array or a tensor on the CPU.
        num_nodes: N.
        symmetric: Whether every edge also counts in the other direction.

    Returns:
        `scipy.sparse.csr_array` [N, N] with entries 1.0 (float64) and sorted indices. Row u has the edges
        u -> v.

    Raises:
        ValueError: for edges of another shape or kind, or nodes outside 0..N-1.
    """
    edges = np.asarray(edge_index)
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise ValueError(f"edge_index must be [2, E], got {list(edges.shape)}")
    if edges.size and edges.dtype.kind not in "iu":
        raise ValueError(f"edge_index must be whole numbers, got {edges.dtype}")
    if edges.size and not (edges.min() >= 0 and edges.max() < num_nodes):
        found = f"{edges.min()}..{edges.max()}"
        raise ValueError(f"edge_index has nodes {found}, but the graph has nodes 0..{num_nodes - 1}")
    source, target = edges[:, edges[0] != edges[1]]
    if symmetric:
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
    ones = np.ones(len(source))
    adjacency = sparse.coo_array((ones, (source, target)), shape=(num_nodes, num_nodes)).tocsr()
    adjacency.sort_indices()
    adjacency.data[:] = 1.0
    return adjacency


def check_adjacency(adjacency: Any) -> None:
    """Require a square `csr_array`, else raise `ValueError`; `csr_matrix` has another meaning of `*`."""
    if not isinstance(adjacency, sparse.csr_array) or adjacency.shape != (adjacency.shape[0],) * 2:
        shape = f" of shape {list(adjacency.shape)}" if hasattr(adjacency, "shape") else ""
        raise ValueError(
            f"adjacency must be a square scipy.sparse.csr_array, got {type(adjacency).__name__}{shape}\n"
            "Make it with graphzoo.heuristics.adjacency_matrix(edge_index, num_nodes)"
        )


def check_pairs(adjacency: Any, pairs: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The columns u and v of `pairs` [B, 2]; raises `ValueError` for another shape or nodes outside."""
    check_adjacency(adjacency)
    checked = np.asarray(pairs)
    if checked.ndim != 2 or checked.shape[1] != 2:
        raise ValueError(f"pairs must be [B, 2], got {list(checked.shape)}")
    if checked.size and checked.dtype.kind not in "iu":
        raise ValueError(f"pairs must be whole numbers, got {checked.dtype}")
    if checked.size and not (checked.min() >= 0 and checked.max() < adjacency.shape[0]):
        raise ValueError(
            f"pairs have nodes {checked.min()}..{checked.max()}, "
            f"but the graph has nodes 0..{adjacency.shape[0] - 1}"
        )
    u, v = checked.astype(np.int64, copy=False).T
    return u, v


def is_symmetric(adjacency: Any) -> bool:
    """Whether every edge has its reverse."""
    return bool((adjacency != adjacency.T).nnz == 0)


def chunks(cost: NDArray[np.int64], limit: int) -> Iterator[slice]:
    """Cut a list into slices with a total cost of at most `limit`; a single item may cost more.

    >>> list(chunks(np.array([3, 3, 3, 9, 1]), 6))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None), slice(4, 5, None)]
    """
    ends = np.cumsum(cost)
    start = 0
    while start < len(cost):
        spent = ends[start - 1] if start else 0
        stop = max(int(np.searchsorted(ends, spent + limit, side="right")), start + 1)
        yield slice(start, stop)
        start = stop


def neighbors_of(adjacency: Any, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The neighbours of all `nodes`, concatenated: for each its position in `nodes`, and the neighbour."""
    degree = np.diff(adjacency.indptr)[nodes]
    owner = np.repeat(np.arange(len(nodes)), degree)
    offset = np.repeat(adjacency.indptr[nodes] - np.cumsum(degree) + degree, degree)
    return owner, adjacency.indices[offset + np.arange(len(owner))]


def has_link(adjacency: Any, u: NDArray[np.int64], v: NDArray[np.int64], max_bytes: int) -> NDArray[np.bool_]:
    """Whether there is an edge between u and v, in either direction, [B]."""
    degree = np.diff(adjacency.indptr).astype(np.int64)
    linked = np.zeros(len(u), dtype=bool)
    for part in chunks(degree[u] + degree[v] + 1, max(max_bytes // 32, 1)):
        for near, far in ((u[part], v[part]), (v[part], u[part])):
            owner, neighbor = neighbors_of(adjacency, near)
            linked[part.start + owner[neighbor == far[owner]]] = True
    return linked


def cheaper_side(
    adjacency: Any, u: NDArray[np.int64], v: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Swap u and v if u has fewer distinct nodes and the graph is undirected.

    The second of the returned arrays then has fewer distinct nodes. Each of them costs a column.
    """
    if len(np.unique(u)) < len(np.unique(v)) and is_symmetric(adjacency):
        return v, u
    return u, v


def column_width(adjacency: Any, bytes_per_entry: int, max_bytes: int) -> int:
    """Number of columns [N] to compute at once, at most 64: more exceed the caches and are slower."""
    fitting: int = max_bytes // (bytes_per_entry * max(adjacency.shape[0], 1))
    return min(max(fitting, 1), 64)


def columns_of(
    ends: NDArray[np.int64], width: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Group `ends` [B] by node, with up to `width` distinct nodes in a group.

    Yields the positions of a group in `ends`, its distinct nodes in ascending order, and for each position
    the index of its node among these.
    """
    nodes, column = np.unique(ends, return_inverse=True)
    order = np.argsort(column, kind="stable")
    starts = np.arange(0, len(nodes), width)
    for start, rows in zip(starts, np.split(order, np.searchsorted(column[order], starts[1:])), strict=False):
        yield rows, nodes[start : start + width], column[rows] - start


class Group(NamedTuple):
    """Pairs that are computed together, with a column [N] for each distinct end."""

    rows: NDArray[np.int64]  # positions of the pairs
    near: NDArray[np.int64]  # one node of each pair
    ends: NDArray[np.int64]  # the distinct other nodes
    column: NDArray[np.int64]  # for each pair, the index of its other node in `ends`
    hides_link: bool  # whether each pair has its own column, in which its link is left out


def groups(
    adjacency: Any, u: NDArray[np.int64], v: NDArray[np.int64], hidden: NDArray[np.bool_], width: int
) -> Iterator[Group]:
    """Divide pairs into groups of at most `width` columns; pairs with a hidden link do not share columns."""
    alone, shared = np.flatnonzero(hidden), np.flatnonzero(~hidden)
    for start in range(0, len(alone), width):
        rows = alone[start : start + width]
        yield Group(rows, u[rows], v[rows], np.arange(len(rows)), True)
    near, far = cheaper_side(adjacency, u[shared], v[shared])
    for rows, ends, column in columns_of(far, width):
        yield Group(shared[rows], near[rows], ends, column, False)
