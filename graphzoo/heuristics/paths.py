"""Shortest paths of many pairs, by breadth-first searches from 64 nodes at once, with one bit for each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphzoo.heuristics.adjacency import (
    MAX_BYTES,
    Group,
    check_adjacency,
    check_pairs,
    chunks,
    groups,
    has_link,
)
from graphzoo.system.progress import progress


def shortest_path(
    adjacency: Any,
    pairs: Any,
    *,
    unreachable: float = math.inf,
    hide_link: bool = False,
    max_bytes: int = MAX_BYTES,
) -> NDArray[np.float64]:
    """Number of edges on a shortest path from u to v.

    Args:
        adjacency: Result of `adjacency_matrix`, [N, N].
        pairs: Pairs (u, v), [B, 2], integers.
        unreachable: Distance of pairs without a path.
        hide_link: Whether to measure every pair in the graph without its own link, in both directions. This
            takes a search for each linked pair.
        max_bytes: Working memory; at least 24 bytes for each node are used, and 8 for each edge of the node
            with most edges.

    Returns:
        Distances [B], float64; 0 for u = v.

    Raises:
        ValueError: if `adjacency` or `pairs` are not valid.

    >>> from graphzoo.heuristics import adjacency_matrix
    >>> path = adjacency_matrix([[0, 1], [1, 2]], 4)
    >>> shortest_path(path, [[0, 2], [0, 3], [1, 1]])
    array([ 2., inf,  0.])
    """
    u, v = check_pairs(adjacency, pairs)
    distance = np.full(len(u), np.nan)
    if not len(u):
        return distance
    # A search from the end v follows edges backwards: a node is reached if an edge of its row leads to one.
    search = _Search(adjacency, max_bytes)
    hidden = has_link(adjacency, u, v, max_bytes) if hide_link else np.zeros(len(u), dtype=bool)
    with progress("shortest paths of pairs", len(u)) as advance:
        for group in groups(adjacency, u, v, hidden, search.width):
            distance[group.rows] = search.run(group)
            advance(len(group.rows))
    distance[np.isnan(distance)] = unreachable
    return distance


def diameter(adjacency: Any, *, max_bytes: int = MAX_BYTES) -> int:
    """Number of edges of the longest of all shortest paths, over all components; 0 without edges.

    This takes N searches, some seconds for a citation graph of 20,000 nodes.

    Args:
        adjacency: Result of `adjacency_matrix`, [N, N].
        max_bytes: Working memory, see `shortest_path`.

    Raises:
        ValueError: if `adjacency` is not valid.
    """
    check_adjacency(adjacency)
    search = _Search(adjacency, max_bytes)
    nodes = np.arange(adjacency.shape[0])
    parts = (nodes[start : start + search.width] for start in nodes[:: search.width])
    return max(map(search.depth, parts), default=0)


class _Search:
    """Breadth-first searches, `width` at a time."""

    def __init__(self, adjacency: Any, max_bytes: int) -> None:
        self.adjacency = adjacency
        degree = np.diff(adjacency.indptr).astype(np.int64)
        # For an empty row `reduceat` returns the next row's entry, so rows without edges are left out.
        self.rows = np.flatnonzero(degree)
        num_nodes = adjacency.shape[0]
        words = max(max_bytes // 2 // (24 * max(num_nodes, 1)), 1)
        self.width = 64 * min(words, 64)
        per_edge = 8 * self.width // 64
        self.parts = list(chunks(degree[self.rows], max(max_bytes // 2 // per_edge, 1)))

    def run(self, group: Group) -> NDArray[np.float64]:
        """Distances of a group's pairs, NaN without a path."""
        _, near, ends, column, hides_link = group
        word, bit = column // 64, _bits(len(ends))[column]
        distance = np.where(near == ends[column], 0.0, np.nan)
        frontier = self._start(ends)
        reached = frontier.copy()
        length = 0
        while frontier.any() and np.isnan(distance).any():
            length += 1
            frontier = self._step(frontier)
            if hides_link and length == 1:
                # A search can use the pair's link only in its first step, so it is removed only here.
                np.bitwise_and.at(frontier, (near, word), ~bit)
            frontier &= ~reached
            reached |= frontier
            distance[np.isnan(distance) & ((frontier[near, word] & bit) > 0)] = length
        return distance

    def depth(self, ends: NDArray[np.int64]) -> int:
        """Length of the longest shortest path to one of `ends`."""
        frontier = self._start(ends)
        reached = frontier.copy()
        length = -1
        while frontier.any():
            length += 1
            frontier = self._step(frontier) & ~reached
            reached |= frontier
        return length

    def _start(self, ends: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The first frontier, [N, C / 64]: bit c is set for node `ends[c]`."""
        frontier = np.zeros((self.adjacency.shape[0], -(-len(ends) // 64)), dtype=np.uint64)
        np.bitwise_or.at(frontier, (ends, np.arange(len(ends)) // 64), _bits(len(ends)))
        return frontier

    def _step(self, frontier: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The next frontier: each node gets all bits of its neighbours."""
        pointer, indices = self.adjacency.indptr, self.adjacency.indices
        following = np.zeros_like(frontier)
        for part in self.parts:
            rows = self.rows[part]
            first, last = pointer[rows[0]], pointer[rows[-1] + 1]
            gathered = frontier[indices[first:last]]
            following[rows] = np.bitwise_or.reduceat(gathered, pointer[rows] - first, axis=0)
        return following


def _bits(count: int) -> NDArray[np.uint64]:
    """The bit of each of `count` columns within its word."""
    return np.uint64(1) << (np.arange(count) % 64).astype(np.uint64)
