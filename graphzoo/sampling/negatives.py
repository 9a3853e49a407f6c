"""Uniform draws of entities that are not known answers of training queries, without rejection."""

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
    """Draw negatives for each query, uniformly and with replacement from entities not known to be answers.

    The k-th negative of a query is a function of (seed, epoch, index of the query, k). So it does not depend
    on batch size, processes or micro-batches. No draw is rejected: the u-th entity that is not an answer is
    `u + #{i : a_i - i <= u}`, where a_0 < a_1 < ... are the sorted answers.

    Args:
        index: Number of each query in the training split, [B], int64.
        known_row: Row of the query of each known answer, [M], int64, ascending.
        known_entity: The known answers, [M], int64, ascending within a row, without repeats.
        num_entities: N.
        num_negatives: K, negatives for each query.
        seed: Seed of the run.
        epoch: Epoch; every epoch has other negatives.

    Returns:
        Entities [B, K], int64, and a mask [B], bool. The mask is False for a query that all entities answer;
        its entities are then meaningless.
    """
    num_queries = index.numel()
    # Rows are ascending, so a search finds their first positions. `bincount` would make the host wait.
    begin = torch.searchsorted(known_row, torch.arange(num_queries + 1, device=index.device))
    known_count = begin.diff()  # [B]
    free_count = num_entities - known_count
    draw = torch.arange(num_negatives, device=index.device)
    bits = hash_integers(seed, epoch, index[:, None], draw[None, :])
    rank = (uniform_from_hash(bits) * free_count[:, None]).long()  # [B, K], 0 <= rank < free_count

    first = begin[:-1]
    position = torch.arange(known_entity.numel(), device=index.device) - first[known_row]
    # One sorted list of keys for all rows; the keys of a row are in [row * N, (row + 1) * N).
    keys = known_row * num_entities + (known_entity - position)
    wanted = torch.arange(num_queries, device=index.device)[:, None] * num_entities + rank
    skipped = torch.searchsorted(keys, wanted.reshape(-1), right=True).view_as(rank) - first[:, None]
    return (rank + skipped).clamp(max=num_entities - 1), free_count > 0
