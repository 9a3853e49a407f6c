"""Compiled loops behind the hard negatives of one node.

No value here may depend on the machine: sums are made in one order, and a multiplication and an addition are
never one instruction.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from graphzoo.ops.row_kernels import jit

_jit = partial(jit, fastmath=False)
# splitmix64, as in graphzoo.ops.random
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_HASH_BITS = 31


@_jit
def resource_allocation(node: int, start: Any, end: Any) -> Any:
    r"""Score of every node x: :math:`\sum_w 1 / d_w` over common neighbours w of `node` and x, [N].

    `start` [N + 1] has the first place of each node's neighbours in `end`, where they are sorted.
    """
    scores = np.zeros(start.size - 1)
    for i in range(start[node], start[node + 1]):
        between = end[i]
        share = 1.0 / (start[between + 1] - start[between])
        for j in range(start[between], start[between + 1]):
            scores[end[j]] += share
    return scores


@_jit
def personalized_pagerank(node: int, start: Any, end: Any, teleport: float, tolerance: float) -> Any:
    """Forward push from `node` (Andersen, Chung and Lang, FOCS 2006), [N].

    A walk starts again with probability `teleport`. A node is pushed while its residual is at least
    `tolerance` times its degree; the nodes wait in a queue, so that the order is fixed. Neighbours are given
    as in `resource_allocation`.
    """
    num_nodes = start.size - 1
    scores = np.zeros(num_nodes)
    residual = np.zeros(num_nodes)
    waiting = np.zeros(num_nodes, dtype=np.bool_)
    queue = np.empty(num_nodes, dtype=np.int64)
    residual[node] = 1.0
    queue[0] = node
    waiting[node] = True
    first, count = 0, 1
    while count:
        at = queue[first]
        first = (first + 1) % num_nodes
        count -= 1
        waiting[at] = False
        pushed = residual[at]
        residual[at] = 0.0
        degree = start[at + 1] - start[at]
        if degree == 0:
            # nowhere to go: every walk starts and ends here
            scores[at] += pushed
            continue
        scores[at] += teleport * pushed
        share = (1.0 - teleport) * pushed / degree
        for j in range(start[at], start[at + 1]):
            other = end[j]
            residual[other] += share
            if not waiting[other] and residual[other] >= tolerance * (start[other + 1] - start[other]):
                waiting[other] = True
                queue[(first + count) % num_nodes] = other
                count += 1
    return scores


@_jit
def _ranks(scores: Any, candidates: Any) -> Any:
    """One plus the number of candidates that score higher, for each candidate."""
    values = -scores[candidates]
    order = np.argsort(values)
    ranks = np.empty(candidates.size, dtype=np.int64)
    rank = 1
    for place in range(order.size):
        if place and values[order[place]] != values[order[place - 1]]:
            rank = place + 1
        ranks[order[place]] = rank
    return ranks


@_jit
def _tie_breaker(seed: int, node: int, partner: int, other: int) -> Any:
    """31 bits of a hash of its arguments."""
    state = np.uint64(0)
    for part in (seed, node, partner, other):
        state = (state + _GOLDEN) ^ (np.uint64(part) * _MIX_1)
        state = (state ^ (state >> np.uint64(30))) * _MIX_1
        state = (state ^ (state >> np.uint64(27))) * _MIX_2
        state ^= state >> np.uint64(31)
    return np.int64(state >> np.uint64(64 - _HASH_BITS))


@_jit
def choose_for_node(
    node: int,
    partners: Any,
    start: Any,
    end: Any,
    known_start: Any,
    known_end: Any,
    similar: Any,
    k: int,
    teleport: float,
    tolerance: float,
    seed: int,
) -> Any:
    """The k nodes that look most like neighbours of `node`, for each link to `partners`, best first, [Q, k].

    Neighbours in the message graph, and the known ones that must not be chosen, are given as in
    `resource_allocation`. `similar` is the similarity of every node's features to those of `node`, [N], or
    empty; `seed` decides between equal ranks. k is at most the number of candidates.
    """
    num_nodes = start.size - 1
    is_candidate = np.ones(num_nodes, dtype=np.bool_)
    is_candidate[node] = False
    for i in range(known_start[node], known_start[node + 1]):
        is_candidate[known_end[i]] = False
    candidates = np.flatnonzero(is_candidate)
    num_scores = 3 if similar.size else 2
    scores = np.empty((num_scores, num_nodes))
    scores[0] = resource_allocation(node, start, end)
    scores[1] = personalized_pagerank(node, start, end, teleport, tolerance)
    if similar.size:
        scores[2] = similar
    ranks = np.empty((num_scores, candidates.size), dtype=np.int64)
    for s in range(num_scores):
        ranks[s] = _ranks(scores[s], candidates)

    chosen = np.empty((partners.size, k), dtype=np.int64)
    keys = np.empty(candidates.size, dtype=np.int64)
    for q in range(partners.size):
        partner = partners[q]
        for i in range(candidates.size):
            other = candidates[i]
            if other == partner:
                keys[i] = np.iinfo(np.int64).max
                continue
            best = np.int64(num_nodes)
            for s in range(num_scores):
                # the partner is not a candidate of this link: the next ones move up
                ahead = is_candidate[partner] and scores[s, partner] > scores[s, other]
                best = min(best, ranks[s, i] - np.int64(ahead))
            keys[i] = (best << _HASH_BITS) | _tie_breaker(seed, node, partner, other)
        chosen[q] = candidates[_smallest(keys, k)]
    return chosen


@_jit
def _smallest(keys: Any, k: int) -> Any:
    """Places of the k smallest keys, in their order."""
    bound = np.partition(keys, k - 1)[k - 1]
    places = np.flatnonzero(keys <= bound)
    return places[np.argsort(keys[places])[:k]]
