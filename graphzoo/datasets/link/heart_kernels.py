"""Compiled loops that compute the hard negatives of one node.

No value may depend on the machine. So sums have a fixed order, and a multiplication and an addition are never
fused into one instruction.
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

    The graph is in CSR form: the neighbours of node v are `end[start[v]:start[v + 1]]`, sorted.
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
    """Personalised PageRank of `node` by forward push (Andersen, Chung and Lang, FOCS 2006), [N].

    A walk starts again with probability `teleport`. A node is pushed while its residual is at least
    `tolerance` times its degree. A queue fixes the order of the pushes. The graph is given as in
    `resource_allocation`.
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
            # A node without neighbours: every walk stays here.
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
    """For each candidate one plus the number of candidates with a higher score."""
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
    """31 bits of a hash of the arguments."""
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
    """For each link from `node`, the k candidates that are most like neighbours of `node`.

    Args:
        node: The node.
        partners: Other ends of the links, [Q].
        start: Message graph in CSR form, as in `resource_allocation`.
        end: See `start`.
        known_start: Known neighbours, which are not candidates, in the same form.
        known_end: See `known_start`.
        similar: Similarity of the features of all nodes to those of `node`, [N]; empty if there are none.
        k: How many are chosen; at most the number of candidates.
        teleport: See `personalized_pagerank`.
        tolerance: See `personalized_pagerank`.
        seed: Seed of the order of equal ranks.

    Returns:
        The chosen nodes, best first, [Q, k], int64.
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
                # The partner is not a candidate of this link: nodes ranked behind it move up.
                ahead = is_candidate[partner] and scores[s, partner] > scores[s, other]
                best = min(best, ranks[s, i] - np.int64(ahead))
            keys[i] = (best << _HASH_BITS) | _tie_breaker(seed, node, partner, other)
        chosen[q] = candidates[_smallest(keys, k)]
    return chosen


@_jit
def _smallest(keys: Any, k: int) -> Any:
    """Positions of the k smallest keys, in ascending order of the keys."""
    bound = np.partition(keys, k - 1)[k - 1]
    places = np.flatnonzero(keys <= bound)
    return places[np.argsort(keys[places])[:k]]
