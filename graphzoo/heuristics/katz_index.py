"""The Katz index: all walks between two nodes, long ones damped."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import linalg

from graphzoo.errors import UsageError, check_range, check_whole
from graphzoo.heuristics.adjacency import (
    MAX_BYTES,
    Group,
    check_pairs,
    column_width,
    groups,
    has_link,
    neighbors_of,
)
from graphzoo.heuristics.paths import shortest_path
from graphzoo.system.progress import progress

# Terms and their successors, float64.
_BYTES_PER_ENTRY = 16

# Terms between two looks at the bound, which cost about as much as a term on a sparse graph.
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

    The series is summed term by term. No term is below 0, so nothing cancels: scores of distant pairs keep
    their relative precision, and nodes that no walk joins get exactly 0. It ends where a bound on all that
    follows, by the norm of A, is below `rtol` of every score.

    Args:
        adjacency: From `adjacency_matrix`, [N, N].
        pairs: (u, v), [B, 2], integers.
        beta: Damping per edge, above 0.
        max_length: Longest walk that counts; None for all, which needs beta times the norm of A below 1.
        hide_link: Score every pair in the graph without its own link, in either direction; costs a column per
            linked pair.
        rtol: Relative error of a score.
        max_bytes: Working memory; at least one column of N entries is held.

    Returns:
        Scores [B], float64.

    Raises:
        UsageError: if the series does not converge.
        ValueError: for settings that make no sense.
    """
    check_katz(beta, max_length)
    u, v = check_pairs(adjacency, pairs)
    scores = np.zeros(len(u))
    series = _Series(adjacency, beta, max_length, _decay(adjacency, beta, max_length), rtol)
    width = column_width(adjacency, _BYTES_PER_ENTRY, max_bytes)
    # Pairs that no walk joins have their score now; that of any other is above 0 sooner or later.
    joined = np.isfinite(shortest_path(adjacency, pairs, hide_link=hide_link, max_bytes=max_bytes))
    hidden = has_link(adjacency, u, v) if hide_link else np.zeros(len(u), dtype=bool)
    places = np.flatnonzero(joined)
    with progress("summing walks of pairs", len(places)) as advance:
        for group in groups(adjacency, u[places], v[places], hidden[places], width):
            scores[places[group.rows]] = series.sum(group)
            advance(len(group.rows))
    return scores


def check_katz(beta: float, max_length: int | None) -> None:
    """Refuse settings that make no sense; `max_length` None is all walks."""
    check_range(above=0, beta=beta)
    check_whole(at_least=1, max_length=max_length)


@dataclass
class _Series:
    """What is summed, and until when."""

    adjacency: Any
    beta: float
    max_length: int | None
    decay: float
    rtol: float

    def sum(self, group: Group) -> NDArray[np.float64]:
        """Scores of a group's pairs, one column of walks per end."""
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
                # of sums and not of squares, which are 0 long before the terms are
                rest = term.sum(axis=0) * (self.decay / (1 - self.decay))
                unsettled &= rest[column] > self.rtol * scores
                if not unsettled.any():
                    break
        return scores


class _OwnLinks:
    """Takes the link of pair c out of column c: sums over the neighbours of both ends, but for each other."""

    def __init__(self, adjacency: Any, u: NDArray[np.int64], v: NDArray[np.int64]) -> None:
        self.rows = np.concatenate([u, v])
        self.columns = np.tile(np.arange(len(u)), 2)
        other = np.concatenate([v, u])
        owner, neighbor = neighbors_of(adjacency, self.rows)
        kept = neighbor != other[owner]
        self.owner, self.neighbor = owner[kept], neighbor[kept]

    def leave_out(self, following: NDArray[np.float64], term: NDArray[np.float64]) -> None:
        """Replace two entries of each column of `following` = A `term`; subtracting would cancel digits."""
        values = term[self.neighbor, self.columns[self.owner]]
        following[self.rows, self.columns] = np.bincount(self.owner, values, minlength=len(self.rows))


def _decay(adjacency: Any, beta: float, max_length: int | None) -> float:
    """A bound below 1 on the norm of beta A, by which terms shrink at least."""
    if max_length is not None or not adjacency.nnz:
        return 0.0
    # Cheap and always above the norm; the norm itself is only needed where this does not prove convergence.
    norm = float(np.sqrt(adjacency.sum(axis=0).max() * adjacency.sum(axis=1).max()))
    if beta * norm >= 0.9:
        norm = _norm(adjacency)
    if beta * norm >= 1:
        # of links both ways, the norm is the largest eigenvalue; else the series may converge above it
        fails = "does not converge" if not (adjacency != adjacency.T).nnz else "may not converge"
        raise UsageError(
            f"the Katz index {fails} on this graph: beta {beta:g} times the norm of its adjacency "
            f"matrix, {norm:.6g}, is not below 1\n"
            f"Take a beta below {1 / norm:.2g}, or count short walks only: max_length 3"
        )
    return beta * norm


def _norm(adjacency: Any) -> float:
    """Spectral norm, a hair too large."""
    if min(adjacency.shape) <= 8:
        return float(np.linalg.norm(adjacency.toarray(), 2))
    # A start of ones: it is not orthogonal to the leading vector of a matrix without negative entries.
    largest = linalg.svds(adjacency, k=1, v0=np.ones(adjacency.shape[0]), return_singular_vectors=False)
    return float(largest[0]) * (1 + 1e-9)
