"""The Katz index: the number of walks between two nodes, where long walks are damped."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import linalg
from scipy.sparse.csgraph import connected_components

from graphzoo.errors import UsageError, check_range, check_whole
from graphzoo.heuristics.adjacency import (
    MAX_BYTES,
    Group,
    check_pairs,
    column_width,
    groups,
    has_link,
    is_symmetric,
    neighbors_of,
)
from graphzoo.heuristics.paths import shortest_path
from graphzoo.system.progress import progress

# The current and the next term, float64.
_BYTES_PER_ENTRY = 16

# Terms between two checks of the bound. On a sparse graph a check takes about as long as a term.
_CHECK = 4


def katz(
    adjacency: Any,
    pairs: Any,
    *,
    beta: float = 0.005,
    max_length: int | None = None,
    hide_link: bool = False,
    rtol: float = 1e-10,
    max_bytes: int = MAX_BYTES,
) -> NDArray[np.float64]:
    r"""Damped number of walks, :math:`\sum_{l \ge 1} \beta^l (A^l)_{uv}` (Katz, 1953).

    The series is summed term by term. No term is negative, so digits do not cancel: scores of distant pairs
    keep their relative precision, and pairs without a walk get exactly 0. The sum stops when a bound for the
    remaining terms, from the norm of A, is below `rtol` times every score.

    Args:
        adjacency: Result of `adjacency_matrix`, [N, N].
        pairs: Pairs (u, v), [B, 2], integers.
        beta: Damping for each edge, above 0.
        max_length: Length of the longest walk that counts; None for all walks, for which beta times the norm
            of A must be below 1.
        hide_link: Whether to score every pair in the graph without its own link, in both directions. This
            takes a column for each linked pair.
        rtol: Relative error of a score.
        max_bytes: Working memory; at least one column of N entries is used.

    Returns:
        Scores [B], float64.

    Raises:
        UsageError: if the series does not converge, or a setting is out of range.
        ValueError: if `adjacency` or `pairs` are not valid.
    """
    check_katz(beta, max_length)
    u, v = check_pairs(adjacency, pairs)
    scores = np.zeros(len(u))
    series = _Series(adjacency, beta, max_length, _decay(adjacency, beta, max_length), rtol)
    width = column_width(adjacency, _BYTES_PER_ENTRY, max_bytes)
    hidden = has_link(adjacency, u, v, max_bytes) if hide_link else np.zeros(len(u), dtype=bool)
    # Pairs without a walk keep the score 0. All others get a positive score, so their sums stop.
    places = np.flatnonzero(_are_joined(adjacency, u, v, hidden, max_bytes))
    with progress("summing walks of pairs", len(places)) as advance:
        for group in groups(adjacency, u[places], v[places], hidden[places], width):
            scores[places[group.rows]] = series.sum(group)
            advance(len(group.rows))
    return scores


def _are_joined(
    adjacency: Any, u: NDArray[np.int64], v: NDArray[np.int64], hidden: NDArray[np.bool_], max_bytes: int
) -> NDArray[np.bool_]:
    """Whether there is a path between the nodes of each pair [B], without its own link where `hidden`."""
    # In an undirected graph, components answer this for all pairs at once.
    is_open = ~hidden if is_symmetric(adjacency) else np.zeros(len(u), dtype=bool)
    component = connected_components(adjacency)[1] if is_open.any() else np.zeros(0)
    joined = np.zeros(len(u), dtype=bool)
    joined[is_open] = component[u[is_open]] == component[v[is_open]]
    for hide_link in (False, True):
        searched = np.flatnonzero(~is_open & (hidden == hide_link))
        pairs = np.stack([u[searched], v[searched]], 1)
        lengths = shortest_path(adjacency, pairs, hide_link=hide_link, max_bytes=max_bytes)
        joined[searched] = np.isfinite(lengths)
    return joined


def check_katz(beta: float, max_length: int | None) -> None:
    """Require beta > 0 and max_length >= 1, or None for all walks; raises `UsageError`."""
    check_range(above=0, beta=beta)
    check_whole(at_least=1, max_length=max_length)


@dataclass
class _Series:
    """The series, and the settings that say when to stop."""

    adjacency: Any
    beta: float
    max_length: int | None
    decay: float
    rtol: float

    def sum(self, group: Group) -> NDArray[np.float64]:
        """Scores of a group's pairs, with one column of walks for each end."""
        _, near, ends, column, hides_link = group
        own_links = _OwnLinks(self.adjacency, near, ends) if hides_link else None
        term = np.zeros((self.adjacency.shape[0], len(ends)))
        term[ends, np.arange(len(ends))] = 1.0
        scores, unsettled = np.zeros(len(near)), np.ones(len(near), dtype=bool)
        for length in islice(count(1), self.max_length):
            following = self.adjacency @ term
            if own_links is not None:
                own_links.leave_out(following, term)
            term = following
            term *= self.beta
            scores[unsettled] += term[near, column][unsettled]
            if self.max_length is None and length % _CHECK == 0:
                # Sums, not squares, which would underflow to 0 much earlier than the terms.
                rest = term.sum(axis=0) * (self.decay / (1 - self.decay))
                unsettled &= rest[column] > self.rtol * scores
                if not unsettled.any():
                    break
        return scores


class _OwnLinks:
    """Leaves the link of pair c out of column c.

    It sums over the neighbours of u without v, and over those of v without u.
    """

    def __init__(self, adjacency: Any, u: NDArray[np.int64], v: NDArray[np.int64]) -> None:
        self.rows = np.concatenate([u, v])
        self.columns = np.tile(np.arange(len(u)), 2)
        other = np.concatenate([v, u])
        owner, neighbor = neighbors_of(adjacency, self.rows)
        kept = neighbor != other[owner]
        self.owner, self.neighbor = owner[kept], neighbor[kept]

    def leave_out(self, following: NDArray[np.float64], term: NDArray[np.float64]) -> None:
        """Replace the two entries u and v in each column of `following` = A `term`.

        They are computed anew, since subtracting the link's share would cancel digits.
        """
        values = term[self.neighbor, self.columns[self.owner]]
        following[self.rows, self.columns] = np.bincount(self.owner, values, minlength=len(self.rows))


def _decay(adjacency: Any, beta: float, max_length: int | None) -> float:
    """A bound below 1 for the norm of beta A: each term is smaller than the one before by this factor."""
    if max_length is not None or not adjacency.nnz:
        return 0.0
    # This bound is cheap. The norm itself is computed only if the bound does not prove convergence.
    norm = float(np.sqrt(adjacency.sum(axis=0).max() * adjacency.sum(axis=1).max()))
    if beta * norm >= 0.9:
        norm = _norm(adjacency)
    if beta * norm >= 1:
        # If links are symmetric, the norm is the largest eigenvalue. Otherwise the series may still converge.
        fails = "does not converge" if not (adjacency != adjacency.T).nnz else "may not converge"
        raise UsageError(
            f"the Katz index {fails} on this graph: beta {beta:g} times the norm of its adjacency "
            f"matrix, {norm:.6g}, is not below 1\n"
            f"Take a beta below {1 / norm:.2g}, or count only short walks, such as max_length 3"
        )
    return beta * norm


def _norm(adjacency: Any) -> float:
    """Spectral norm, slightly too large."""
    if min(adjacency.shape) <= 8:
        return float(np.linalg.norm(adjacency.toarray(), 2))
    # A vector of ones is not orthogonal to the leading singular vector, since no entry is negative.
    largest = linalg.svds(adjacency, k=1, v0=np.ones(adjacency.shape[0]), return_singular_vectors=False)
    return float(largest[0]) * (1 + 1e-9)
