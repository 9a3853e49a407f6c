"""Scores by the overlap of two neighbourhoods: common neighbours, Adamic-Adar, resource allocation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from graphzoo.heuristics.adjacency import MAX_BYTES, check_adjacency, check_pairs, chunks

# Entries of scipy (8 bytes for the value, up to 8 for the index), of both factors and of their product.
_BYTES_PER_ENTRY = 32


def common_neighbors(adjacency: Any, pairs: Any, *, max_bytes: int = MAX_BYTES) -> NDArray[np.float64]:
    r"""Number of common neighbours, :math:`|N(u) \cap N(v)|` (Newman, 2001).

    A link between u and v does not change it.

    Args:
        adjacency: Result of `adjacency_matrix`, [N, N]. In a directed graph, N(u) are the targets of u.
        pairs: Pairs (u, v), [B, 2], integers.
        max_bytes: Working memory; a larger value is not faster.

    Returns:
        Scores [B], float64.

    Raises:
        ValueError: if `adjacency` or `pairs` are not valid.

    >>> from graphzoo.heuristics import adjacency_matrix
    >>> path = adjacency_matrix([[0, 1], [1, 2]], 3)
    >>> common_neighbors(path, [[0, 2], [0, 1]])
    array([1., 0.])
    """
    check_adjacency(adjacency)
    return _overlap(adjacency, pairs, np.ones(adjacency.shape[0]), max_bytes)


def adamic_adar(adjacency: Any, pairs: Any, *, max_bytes: int = MAX_BYTES) -> NDArray[np.float64]:
    r"""Sum of :math:`1 / \log \deg w` over the common neighbours w (Adamic and Adar, 2003).

    In a directed graph the degree of w is its in-degree. A node of degree 1 counts 0; it can only be a common
    neighbour of a node with itself. A link between u and v does not change the score.

    Args:
        adjacency: Result of `adjacency_matrix`, [N, N].
        pairs: Pairs (u, v), [B, 2], integers.
        max_bytes: Working memory; a larger value is not faster.

    Returns:
        Scores [B], float64.

    Raises:
        ValueError: if `adjacency` or `pairs` are not valid.
    """
    check_adjacency(adjacency)
    degree = adjacency.sum(axis=0)
    weight = np.zeros(len(degree))
    np.divide(1.0, np.log(degree, where=degree > 1, out=np.ones(len(degree))), where=degree > 1, out=weight)
    return _overlap(adjacency, pairs, weight, max_bytes)


def resource_allocation(adjacency: Any, pairs: Any, *, max_bytes: int = MAX_BYTES) -> NDArray[np.float64]:
    r"""Sum of :math:`1 / \deg w` over the common neighbours w (Zhou et al., 2009).

    In a directed graph the degree of w is its in-degree. A link between u and v does not change the score.

    Args:
        adjacency: Result of `adjacency_matrix`, [N, N].
        pairs: Pairs (u, v), [B, 2], integers.
        max_bytes: Working memory; a larger value is not faster.

    Returns:
        Scores [B], float64.

    Raises:
        ValueError: if `adjacency` or `pairs` are not valid.
    """
    check_adjacency(adjacency)
    degree = adjacency.sum(axis=0)
    weight = np.divide(1.0, degree, where=degree > 0, out=np.zeros(len(degree)))
    return _overlap(adjacency, pairs, weight, max_bytes)


def _overlap(adjacency: Any, pairs: Any, weight: NDArray[np.float64], max_bytes: int) -> NDArray[np.float64]:
    """Sum of `weight` [N] over the common neighbours of each pair."""
    u, v = check_pairs(adjacency, pairs)
    degree = np.diff(adjacency.indptr).astype(np.int64)
    weighted = sparse.csr_array(
        (weight[adjacency.indices], adjacency.indices, adjacency.indptr), shape=adjacency.shape
    )
    scores = np.zeros(len(u))
    for part in chunks(degree[u] + degree[v] + 1, max(max_bytes // _BYTES_PER_ENTRY, 1)):
        scores[part] = adjacency[u[part]].multiply(weighted[v[part]]).sum(axis=1)
    return scores
