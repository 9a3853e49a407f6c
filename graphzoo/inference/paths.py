"""The chains of facts that carried a score most, found by beam search over edges with weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

_BEAM = 256  # chains that are kept from hop to hop
_Integers = np.ndarray[Any, np.dtype[np.int64]]


class WeightedPath(NamedTuple):
    """Positions of edges one after another, and their mean weight."""

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
    """The k paths without repeated nodes whose edges weigh most in the mean, best first.

    Exact while no hop has more than 256 chains; beyond that the lighter ones are dropped on the way. Equal
    weights come in the order of their edges, [2, E] from and to, whose weights are [E].
    """
    order = np.argsort(edge_index[0], kind="stable")
    begins = np.searchsorted(edge_index[0][order], np.arange(int(edge_index.max(initial=0)) + 2))
    paths: list[WeightedPath] = []
    nodes = np.array([[source]], dtype=np.int64)  # of every chain, [chains, hops + 1]
    edges = np.empty((1, 0), dtype=np.int64)
    total = np.zeros(1)
    for hop in range(1, max_length + 1):
        at = np.minimum(nodes[:, -1], len(begins) - 2)  # a node beyond all edges has none
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
    return sorted(paths, key=lambda path: (-path.weight, path.edges))[:k]
