"""Scores of queries: averaged over draws of noise, and for entities inside and outside a neighbourhood."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphzoo.ops.norms import wide

if TYPE_CHECKING:
    from graphzoo.ops import QueryGraph
    from graphzoo.sampling import NeighbourhoodSampler


NEAR_QUERIES = 32
"""Neighbourhoods that are scored together: more would only take memory."""
MARGIN = 20
"""So far below all other logits, a score contributes next to nothing to a softmax."""
# Largest score outside a neighbourhood: a probability near 0.
_UNLIKELY = -20


def mean_of_draws(score: Callable[[int], Tensor], num_draws: int) -> Tensor:
    """The mean of `score(noise_seed)` over the noise seeds 0 to `num_draws` - 1."""
    scores = score(0)
    if num_draws == 1:
        return scores
    total = wide(scores)
    for draw in range(1, num_draws):
        total = total + score(draw)
    return total / num_draws


def score_near(
    sampler: NeighbourhoodSampler,
    head: Tensor,
    relation: Tensor,
    logits: Callable[[QueryGraph, Tensor, Tensor], Tensor],
    *,
    margin: int = 0,
) -> tuple[Tensor, Tensor]:
    """Score all nodes for each query: logits inside its neighbourhood, integers below them outside.

    Args:
        sampler: Makes the neighbourhoods.
        head: Heads of the queries, [B], int64.
        relation: Relations of the queries, [B], int64.
        logits: Function from a graph, the heads' positions in it and the relations to logits [B, K].
        margin: How far scores outside lie below the lowest logit. The nearest nodes outside come first.

    Returns:
        Scores [B, N], and which nodes lie outside, [B, N], bool.
    """
    graph, levels = sampler.with_levels(head, relation)
    graph, levels = graph.to(head.device), levels.to(head.device)
    inside = logits(graph, graph.find(head), relation)
    # integers, since floats hold them exactly up to 2^24: levels stay distinct
    scores = (inside.amin(1, keepdim=True).floor() - margin).clamp(max=_UNLIKELY) - levels
    return scores.scatter_(1, graph.nodes, inside), levels > 0


def outside_near(sampler: NeighbourhoodSampler, head: Tensor, relation: Tensor) -> Tensor:
    """Which nodes lie outside the neighbourhood of each query `head`, `relation` [B]: [B, N], bool."""
    found = torch.ones(head.numel(), sampler.num_entities, dtype=torch.bool, device=head.device)
    for start in range(0, head.numel(), NEAR_QUERIES):
        part = slice(start, start + NEAR_QUERIES)
        near, _ = sampler(head[part], relation[part])
        found[part].scatter_(1, near.nodes.to(head.device), False)
    return found


def score_far(
    sampler: NeighbourhoodSampler,
    head: Tensor,
    relation: Tensor,
    tail: Tensor,
    logits: Callable[[QueryGraph, Tensor, Tensor], Tensor],
) -> Tensor:
    """Logits [P] of nodes outside their query's neighbourhood; `head`, `relation` and `tail` are [P].

    Each node is brought into a neighbourhood of its own, where it replaces the farthest node. Its score does
    not depend on the other nodes, and costs as much as a query. For `logits` see `score_near`.
    """
    near, _ = sampler(head, relation, hides="none", outside="bring", target=tail)
    near = near.to(head.device)
    place: Tensor = near.find(tail)
    return logits(near, near.find(head), relation).gather(1, place[:, None]).squeeze(1)
