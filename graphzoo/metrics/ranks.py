"""Filtered ranks from scores: by definition, and with bounded memory for the batches of an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from graphzoo.errors import check_choice, check_range
from graphzoo.metrics.finite import first_row, require_finite
from graphzoo.system.memory import Halves
from graphzoo.system.tensors import check_tensors
from graphzoo.types import QueryBatch

Ties = Literal["realistic", "optimistic", "pessimistic"]


def combine_ties(
    optimistic: Tensor, pessimistic: Tensor, ties: Ties, *, dtype: torch.dtype = torch.float64
) -> Tensor:
    """The ranks by a tie rule, from optimistic and pessimistic ranks; `UsageError` for an unknown rule."""
    check_choice("ties", ties, Ties)
    if ties == "realistic":
        return (optimistic + pessimistic).to(dtype) / 2
    if ties == "optimistic":
        return optimistic.to(dtype)
    return pessimistic.to(dtype)


def filtered_ranks(
    scores: Tensor, target: Tensor, filter_mask: Tensor, *, ties: Ties = "realistic"
) -> Tensor:
    r"""Rank of the answer among all entities that are not known answers (Bordes et al., 2013).

    .. math:: \mathrm{optimistic}_b = 1 + |\{n : s_{bn} > s_{bt_b}\}|, \qquad
              \mathrm{pessimistic}_b = \mathrm{optimistic}_b + |\{n \ne t_b : s_{bn} = s_{bt_b}\}|

    where n runs over the entities that `filter_mask` does not mask. The realistic rank is the mean of both,
    so that equal scores for all entities give the middle rank, not the first.

    Args:
        scores: Scores [B, N], higher is better, of any float dtype.
        target: The answer, an entity, [B], int64.
        filter_mask: True if (head, relation, n) is a known fact and n is not the answer, [B, N], bool.
        ties: "realistic", "optimistic" or "pessimistic".

    Returns:
        One-based ranks, [B], float32.

    Raises:
        ValueError: if shapes or dtypes do not fit, a target is out of range or masked, or a score is not
            finite.

    >>> known = torch.tensor([[True, False, False]])
    >>> filtered_ranks(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([2]), known)
    tensor([1.])
    """
    _require_scores(scores)
    num_queries, num_entities = scores.shape
    if target.shape != (num_queries,):
        raise ValueError(f"target must be [{num_queries}] like the rows of scores, got {list(target.shape)}")
    if filter_mask.shape != scores.shape or filter_mask.dtype != torch.bool:
        raise ValueError(
            f"filter_mask must be torch.bool {list(scores.shape)}, "
            f"got {filter_mask.dtype} {list(filter_mask.shape)}"
        )
    _require_range("target", target, num_entities)
    require_finite(scores, first_row)
    column = target.unsqueeze(1)
    masked = filter_mask.gather(1, column).squeeze(1)
    if bool(masked.any()):
        row = int(masked.nonzero()[0])
        raise ValueError(
            f"the target of row {row} (entity {int(target[row])}) is masked by filter_mask; "
            "clear the mask at the answer itself"
        )
    own = scores.gather(1, column)
    optimistic = 1 + ((scores > own) & ~filter_mask).sum(dim=1)
    # The "- 1" is for the target, which ties with itself.
    pessimistic = optimistic + ((scores == own) & ~filter_mask).sum(dim=1) - 1
    return combine_ties(optimistic, pessimistic, ties, dtype=torch.float32)


def rank_targets(scores: Tensor, batch: QueryBatch, *, max_bytes: int = 64 * 2**20) -> tuple[Tensor, Tensor]:
    """Filtered ranks of all targets of an evaluation batch; a query may have several targets.

    There is no mask [B, N]. Entities with a score above (or equal to) a target's are counted among all N, and
    those among the known answers are subtracted. Counts are integers, so the chunk size does not change the
    result.

    Args:
        scores: Scores [B, N], higher is better, of any float dtype.
        batch: The queries with their targets and known answers, which may include the targets.
        max_bytes: Working memory beside `scores`; at least one row is used. If memory runs out, chunks are
            halved.

    Returns:
        Optimistic and pessimistic ranks, one-based, [T] each, int64, in the order of `batch.target`.

    Raises:
        ValueError: if shapes do not fit, an index is out of range, or a score is NaN or infinite.
    """
    check_range(at_least=1, max_bytes=max_bytes)
    _require_batch(scores, batch)
    require_finite(scores, lambda broken: _first_query(broken, batch))
    own = scores[batch.target_row, batch.target]  # [T]
    above, level = _count_all(scores, batch.target_row, own, max_bytes)
    known_above, known_level = _count_known(scores, batch, own, max_bytes)
    optimistic = 1 + above - known_above
    return optimistic, optimistic + (level - 1) - known_level


def _count_all(scores: Tensor, row: Tensor, own: Tensor, max_bytes: int) -> tuple[Tensor, Tensor]:
    """Numbers of entities with a score above, and equal to, each target's, itself included, [T]."""
    above, level = torch.empty_like(row), torch.empty_like(row)

    def count(start: int, stop: int) -> None:
        block, value = scores[row[start:stop]], own[start:stop, None]  # [c, N], [c, 1]
        above[start:stop] = _count_true(block > value)
        level[start:stop] = _count_true(block == value)

    # The gathered scores, the comparison, and the int32 temporaries of a sum over bytes.
    bytes_per_target = scores.shape[1] * (scores.element_size() + 1 + 4)
    _in_chunks(row.numel(), max_bytes // max(1, bytes_per_target), count)
    return above, level


def _count_true(hits: Tensor) -> Tensor:
    """Sums of the rows of `hits` [c, N], bool; as bytes, they are summed twice as fast."""
    return hits.view(torch.uint8).sum(dim=1, dtype=torch.int32)


def _count_known(scores: Tensor, batch: QueryBatch, own: Tensor, max_bytes: int) -> tuple[Tensor, Tensor]:
    """Numbers of other known answers of the query with a score above, and equal to, each target's, [T]."""
    row, target = batch.target_row, batch.target
    known_row, known_entity = _distinct_known(batch, scores.shape[1])
    first = torch.searchsorted(known_row, row)
    counts = torch.searchsorted(known_row, row, right=True) - first
    above, level = torch.empty_like(row), torch.empty_like(row)

    def count(start: int, stop: int) -> None:
        length = counts[start:stop]
        owner = torch.repeat_interleave(torch.arange(start, stop, device=row.device), length)  # [P]
        within = torch.arange(owner.numel(), device=row.device) - (length.cumsum(0) - length)[owner - start]
        entity = known_entity[first[owner] + within]
        score, value, other = scores[row[owner], entity], own[owner], entity != target[owner]
        for result, hit in ((above, score > value), (level, score == value)):
            hits = torch.zeros(stop - start, dtype=torch.int64, device=row.device)
            result[start:stop] = hits.index_add_(0, owner - start, (hit & other).to(torch.int64))

    # A dozen int64 temporaries per (target, known answer) pair.
    bytes_per_target = 96 * (int(counts.max()) if counts.numel() else 0)
    _in_chunks(row.numel(), max_bytes // max(1, bytes_per_target), count)
    return above, level


def _distinct_known(batch: QueryBatch, num_entities: int) -> tuple[Tensor, Tensor]:
    """The known answers sorted by row, without repeats, so that none is subtracted twice."""
    key = batch.known_row * num_entities + batch.known_entity
    if bool((key[1:] > key[:-1]).all()):
        return batch.known_row.contiguous(), batch.known_entity
    key = torch.unique(key)
    return torch.div(key, num_entities, rounding_mode="floor"), key % num_entities


def _in_chunks(total: int, size: int, work: Callable[[int, int], None]) -> None:
    """Call `work(start, stop)` for chunks of 0..total-1; if memory runs out, repeat with half the size."""
    Halves("ranking", "targets", "Take a smaller --data.eval_batch_size")(work, total, size)


def _require_scores(scores: Tensor) -> None:
    check_tensors(scores=scores)
    if scores.dim() != 2:
        raise ValueError(f"scores must be [B, N], got {list(scores.shape)}")
    if not scores.is_floating_point():
        raise ValueError(f"scores must be floating point, got {scores.dtype}")


def _require_range(name: str, index: Tensor, size: int) -> None:
    if index.dtype != torch.int64:
        raise ValueError(f"{name} must be int64, got {index.dtype}")
    if index.numel() and (int(index.min()) < 0 or int(index.max()) >= size):
        raise ValueError(f"{name} must lie in 0..{size - 1}, got {int(index.min())}..{int(index.max())}")


def _require_batch(scores: Tensor, batch: QueryBatch) -> None:
    _require_scores(scores)
    num_queries, num_entities = scores.shape
    if batch.head.shape != (num_queries,) or batch.relation.shape != (num_queries,):
        raise ValueError(
            f"scores has {num_queries} rows, the batch {batch.head.numel()} heads "
            f"and {batch.relation.numel()} relations"
        )
    for name, row_name in (("target", "target_row"), ("known_entity", "known_row")):
        entity, row = getattr(batch, name), getattr(batch, row_name)
        if entity.dim() != 1 or entity.shape != row.shape:
            raise ValueError(f"{name} {list(entity.shape)} and {row_name} {list(row.shape)} differ")
        _require_range(row_name, row, num_queries)
        _require_range(name, entity, num_entities)


def _first_query(broken: Tensor, batch: QueryBatch) -> str:
    row = int(broken.any(dim=1).nonzero()[0])
    return f"in row {row} (head {int(batch.head[row])}, relation {int(batch.relation[row])})"
