"""Scores of queries: averaged over draws of noise, and of all entities where only some are near."""

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
"""Neighbourhoods that are scored together: more would only fill memory."""
MARGIN = 20
"""How far below all logits a score has next to no part in a softmax."""
# Nothing outside has a probability to speak of.
_UNLIKELY = -20


def mean_of_draws(score: Callable[[int], Tensor], num_draws: int) -> Tensor:
    """The mean of `score(noise_seed)` over noise seeds 0 to `num_draws` - 1; a single draw is as it comes."""
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
    """Logits inside the neighbourhood; outside whole numbers below all of them, the nearest first.

    Queries are `head` [B] and `relation` [B]; `logits` of the nodes of a graph are [B, K], for its heads'
    places and the relations. Those outside lie `margin` below the lowest logit. Returns the scores [B, N],
    and which nodes lie outside, bool.
    """
    graph, levels = sampler.with_levels(head, relation)
    graph, levels = graph.to(head.device), levels.to(head.device)
    inside = logits(graph, graph.find(head), relation)
    # floats hold whole numbers exactly up to 2^24, so that levels stay apart
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

    Each is brought into a neighbourhood of its own, for the farthest node there. So its score depends on
    nobody else that is asked about, and costs as much as a query. `logits` as of `score_near`.
    """
    near, _ = sampler(head, relation, hides="none", outside="bring", target=tail)
    near = near.to(head.device)
    place: Tensor = near.find(tail)
    return logits(near, near.find(head), relation).gather(1, place[:, None]).squeeze(1)
