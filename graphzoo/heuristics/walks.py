"""Scores by random walks: the product of both nodes' PageRank, and personalised PageRank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from graphzoo.errors import check_range
from graphzoo.heuristics.adjacency import (
    MAX_BYTES,
    cheaper_side,
    check_pairs,
    column_width,
    columns_of,
    is_symmetric,
)
from graphzoo.heuristics.paths import shortest_path

# The distribution before and after a step, their difference, and a temporary of its sum: float64 each.
_BYTES_PER_ENTRY = 32

# Steps between two checks of the change. On a sparse graph a check takes about as long as a step.
_CHECK = 8


def pagerank(adjacency: Any, pairs: Any, *, alpha: float = 0.85, tol: float = 1e-13) -> NDArray[np.float64]:
    """PageRank of u times PageRank of v (Brin and Page, 1998).

    Args:
        adjacency: Result of `adjacency_matrix`, [N, N].
        pairs: Pairs (u, v), [B, 2], integers.
        alpha: Probability of following an edge, in [0, 1); otherwise the walk jumps to a random node.
        tol: Bound for the sum of the absolute errors of PageRank, without rounding errors.

    Returns:
        Scores [B], float64.

    Raises:
        UsageError: if `alpha` or `tol` is out of range.
        ValueError: if `adjacency` or `pairs` are not valid.
    """
    u, v = check_pairs(adjacency, pairs)
    check_range(at_least=0, below=1, alpha=alpha)
    check_range(at_least=1e-300, at_most=2, tol=tol)
    # p = alpha P^T p + (1 - alpha) / N; from dead ends walks jump to a random node.
    num_nodes = adjacency.shape[0]
    transition, dead_ends = _transition(adjacency)
    p = np.full(num_nodes, 1 / max(num_nodes, 1))
    # Each step multiplies the distance to the solution, at first at most 2, by alpha or less. The number of
    # steps is limited, since rounding errors may keep the change above the tolerance.
    most = max(1, math.ceil(math.log(tol / 2) / math.log(alpha))) if alpha else 1
    for _ in range(most if num_nodes else 0):
        following = alpha * (transition @ p)
        following += (1 - alpha + alpha * p[dead_ends].sum()) / num_nodes
        following /= following.sum()
        change = np.abs(following - p).sum()
        p = following
        # A change below 4e-15 is only rounding error.
        if change <= max(tol * (1 - alpha) / max(alpha, 1e-300), 4e-15):
            break
    scores: NDArray[np.float64] = p[u] * p[v]
    return scores


def personalized_pagerank(
    adjacency: Any,
    pairs: Any,
    *,
    alpha: float = 0.85,
    symmetric: bool = True,
    rtol: float = 1e-9,
    max_bytes: int = MAX_BYTES,
) -> NDArray[np.float64]:
    r"""Personalised PageRank of v for walks that restart at u, plus that of u for v; 0 without a path.

    This is entry v of :math:`\pi_u = (1 - \alpha) \sum_k \alpha^k x_k`, where :math:`x_k` is the distribution
    of the walk after k steps. The sum is computed until it is exact enough if all further :math:`x_k` are
    replaced by the last one. Walks restart at a dead end.

    Args:
        adjacency: Result of `adjacency_matrix`, [N, N].
        pairs: Pairs (u, v), [B, 2], integers.
        alpha: Probability of following an edge instead of restarting, in [0, 1).
        symmetric: Whether to add both directions; False takes only walks from u.
        rtol: Relative error of a score.
        max_bytes: Working memory; at least one distribution of N entries is used.

    Returns:
        Scores [B], float64.

    Raises:
        UsageError: if `alpha` is out of range.
        ValueError: if `adjacency` or `pairs` are not valid.
    """
    check_range(at_least=0, below=1, alpha=alpha)
    u, v = check_pairs(adjacency, pairs)
    width = column_width(adjacency, _BYTES_PER_ENTRY, max_bytes)
    walks = _Walks(*_transition(adjacency), alpha, rtol)
    scores = np.zeros(len(u))
    if not is_symmetric(adjacency):
        for start, goal in ((u, v), (v, u)) if symmetric else ((u, v),):
            leads = np.isfinite(shortest_path(adjacency, np.stack([start, goal], 1), max_bytes=max_bytes))
            scores[leads] += walks.scores(start[leads], goal[leads], width)
        return scores
    leads = np.isfinite(shortest_path(adjacency, pairs, max_bytes=max_bytes))
    u, v = u[leads], v[leads]
    goal, start = cheaper_side(adjacency, u, v)
    # Walks on an undirected graph are reversible: deg(u) pi_u(v) = deg(v) pi_v(u).
    degree = np.maximum(np.diff(adjacency.indptr), 1)
    both = 1 / degree[u] + 1 / degree[v] if symmetric else 1 / degree[u]
    scores[leads] = walks.scores(start, goal, width) * degree[start] * both
    return scores


@dataclass
class _Walks:
    """Random walks from several nodes at once."""

    transition: Any
    dead_ends: NDArray[np.int64]
    alpha: float
    rtol: float

    def scores(self, start: NDArray[np.int64], goal: NDArray[np.int64], width: int) -> NDArray[np.float64]:
        """Personalised PageRank of `goal` [B] for walks that restart at `start` [B]."""
        scores = np.zeros(len(start))
        for rows, sources, column in columns_of(start, width):
            scores[rows] = self._sum(sources, goal[rows], column)
        return scores

    def _sum(
        self, sources: NDArray[np.int64], goal: NDArray[np.int64], column: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        columns = np.arange(len(sources))
        walk = np.zeros((self.transition.shape[0], len(sources)))
        walk[sources, columns] = 1.0
        scores: NDArray[np.float64] = (1 - self.alpha) * walk[goal, column]
        unsettled = np.ones(len(scores), dtype=bool)
        weight = 1.0
        for step in count(1):
            following = self.transition @ walk
            following[sources, columns] += walk[self.dead_ends].sum(axis=0)
            weight *= self.alpha
            here = following[goal, column]
            scores[unsettled] += (1 - self.alpha) * weight * here[unsettled]
            if step % _CHECK == 0:
                # A step does not increase the distance of two distributions. So each later step changes the
                # distribution by at most as much as this one.
                change = np.abs(following - walk).sum(axis=0)
                rest = weight * change * (self.alpha / (1 - self.alpha))
                settled = unsettled & (rest[column] <= self.rtol * scores)
                scores[settled] += self.alpha * weight * here[settled]
                unsettled &= ~settled
                if not unsettled.any():
                    break
            walk = following
        return scores


def _transition(adjacency: Any) -> tuple[Any, NDArray[np.int64]]:
    """Probabilities of a step from column to row, [N, N], and the nodes without outgoing edges."""
    degree = np.diff(adjacency.indptr)
    share = np.divide(1.0, degree, where=degree > 0, out=np.zeros(len(degree)))
    rows = sparse.diags_array(share) @ adjacency
    return rows.T.tocsr(), np.flatnonzero(degree == 0)
