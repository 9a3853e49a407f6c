"""The paths of facts that contributed most to a score: a beam search over weighted edges."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

_BEAM = 256  # partial paths that are kept after each hop
_Integers = np.ndarray[Any, np.dtype[np.int64]]


class WeightedPath(NamedTuple):
    """The edges of a path, as positions in `edge_index`, and their mean weight."""

    weight: float
    edges: tuple[int, ...]


def best_paths(
    edge_index: _Integers,
    weight: np.ndarray[Any, np.dtype[np.floating[Any]]],
    source: int,
    target: int,
    *,
    k: int,
    max_length: int,
) -> list[WeightedPath]:
    """The k paths without repeated nodes whose edges have the highest mean weight, best first.

    The search is exact as long as no hop has more than 256 partial paths. Beyond that, those with the lowest
    weights are dropped. Paths of equal weight are ordered by their edges.

    Args:
        edge_index: Source and target of every edge, [2, E].
        weight: Weight of every edge, [E].
        source: First node of the paths.
        target: Last node of the paths.
        k: Number of paths.
        max_length: Largest number of edges in a path.
    """
    order = np.argsort(edge_index[0], kind="stable")
    begins = np.searchsorted(edge_index[0][order], np.arange(int(edge_index.max(initial=0)) + 2))
    paths: list[WeightedPath] = []
    nodes = np.array([[source]], dtype=np.int64)  # nodes of every partial path, [paths, hops + 1]
    edges = np.empty((1, 0), dtype=np.int64)
    total = np.zeros(1)
    for hop in range(1, max_length + 1):
        at = np.minimum(nodes[:, -1], len(begins) - 2)  # nodes with larger numbers have no edges
        count = np.where(nodes[:, -1] == at, begins[at + 1] - begins[at], 0)
        chain = np.repeat(np.arange(len(nodes)), count)
        offset = np.arange(len(chain)) - np.repeat(np.cumsum(count) - count, count)
        edge = order[begins[at[chain]] + offset]
        reached = edge_index[1][edge]
        fresh = ~(nodes[chain] == reached[:, None]).any(1)
        chain, edge, reached = chain[fresh], edge[fresh], reached[fresh]
        sums = total[chain] + weight[edge]
        ends = reached == target
        for position in np.flatnonzero(ends)[np.argsort(-sums[ends], kind="stable")[:k]]:
            whole = (*edges[chain[position]].tolist(), int(edge[position]))
            paths.append(WeightedPath(float(sums[position] / hop), whole))
        going = np.flatnonzero(~ends)
        going = going[np.argsort(-sums[going], kind="stable")[:_BEAM]]
        nodes = np.column_stack([nodes[chain[going]], reached[going]])
        edges = np.column_stack([edges[chain[going]], edge[going]])
        total = sums[going]
        if not len(going):
            break
    return sorted(paths, key=lambda path: (-path.weight, path.edges))[:k]
