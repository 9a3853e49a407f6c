"""Negative tails for training queries: uniform over entities not known to answer, without rejection."""

from __future__ import annotations

import torch
from torch import Tensor

from graphzoo.ops.random import hash_integers, uniform_from_hash


def sample_negatives(
    index: Tensor,
    known_row: Tensor,
    known_entity: Tensor,
    *,
    num_entities: int,
    num_negatives: int,
    seed: int,
    epoch: int,
) -> tuple[Tensor, Tensor]:
    """Draw entities uniformly and with replacement from those not known to answer each query.

    The k-th negative of a query is a function of (seed, epoch, index of the query, k) alone, so batch size,
    ranks and micro-batches change nothing. Rank u among the non-answers is turned into an entity by the order
    statistic `u + #{i : a_i - i <= u}` of the sorted answers a_0 < a_1 < ..., so that no draw is ever
    rejected.

    Args:
        index: Global index of each query, [B], int64.
        known_row: Query of each known answer, [M], int64, ascending.
        known_entity: The answers, [M], int64, ascending within a row, no repeats.
        num_entities: N.
        num_negatives: K, draws per query.
        seed: Seed of the run.
        epoch: Epoch, so that every epoch has its own negatives.

    Returns:
        Entities [B, K], int64, and a mask [B], bool: False for a query that every entity answers, whose
        entities are then meaningless.
    """
    num_queries = index.numel()
    # Rows ascend, so they are found instead of counted: `bincount` waits for a device to know its size.
    begin = torch.searchsorted(known_row, torch.arange(num_queries + 1, device=index.device))
    known_count = begin.diff()  # [B]
    free_count = num_entities - known_count
    draw = torch.arange(num_negatives, device=index.device)
    bits = hash_integers(seed, epoch, index[:, None], draw[None, :])
    rank = (uniform_from_hash(bits) * free_count[:, None]).long()  # [B, K], 0 <= rank < free_count
    rank = torch.minimum(rank, (free_count - 1).clamp(min=0)[:, None])

    first = begin[:-1]
    position = torch.arange(known_entity.numel(), device=index.device) - first[known_row]
    # One sorted list of keys for all rows: a row's keys lie in [row * N, (row + 1) * N).
    keys = known_row * num_entities + (known_entity - position)
    wanted = torch.arange(num_queries, device=index.device)[:, None] * num_entities + rank
    skipped = torch.searchsorted(keys, wanted.reshape(-1), right=True).view_as(rank) - first[:, None]
    return (rank + skipped).clamp(max=num_entities - 1), free_count > 0
