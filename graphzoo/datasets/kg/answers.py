"""The known answers of queries (head, relation, ?), in both directions, for whole batches at once."""

from __future__ import annotations

import torch
from torch import Tensor


class AnswerIndex:
    r"""The answers of every query (head, relation), inverses included, in CSR form.

    .. math:: A(h, r) = \{t : (h, r, t) \in T\}, \qquad A(t, r + R) = \{h : (h, r, t) \in T\}

    Args:
        triples: Known triples T, [n, 3], int64; duplicates count once.
        num_entities: N.
        num_relations: Forward relations R.

    Raises:
        ValueError: if triples are not [n, 3], an id is out of range, or N · 2R · N does not fit into int64.
    """

    def __init__(self, triples: Tensor, num_entities: int, num_relations: int) -> None:
        if triples.ndim != 2 or triples.size(1) != 3:
            raise ValueError(f"triples must have shape [n, 3], got {list(triples.shape)}")
        if num_entities * num_entities * 2 * max(num_relations, 1) >= 2**63:
            raise ValueError(
                f"{num_entities:,} entities and {num_relations:,} relations are too many for one index"
            )
        head, relation, tail = triples.long().unbind(1)
        _check_range(head, num_entities, "head")
        _check_range(tail, num_entities, "tail")
        _check_range(relation, num_relations, "relation")
        self.num_entities = num_entities
        self.num_relations = num_relations
        query = torch.cat(
            [head * 2 * num_relations + relation, tail * 2 * num_relations + relation + num_relations]
        )
        # One key per pair of query and answer: sorting it also sorts the answers of each query.
        pair = torch.unique(query * num_entities + torch.cat([tail, head]))
        self._entity = pair % num_entities if num_entities else pair
        self._query, size = torch.unique_consecutive(
            pair // num_entities if num_entities else pair, return_counts=True
        )
        self._start = torch.cat([size.new_zeros(1), size.cumsum(0)])

    def __len__(self) -> int:
        return int(self._entity.numel())

    def counts(self, head: Tensor, relation: Tensor) -> Tensor:
        """Number of answers of each query (head, relation in 0..2R-1), [B], int64.

        Raises:
            ValueError: if an id is out of range.
        """
        return self._ranges(head, relation)[1]

    def lookup(self, head: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """All answers of a batch of queries (head, relation in 0..2R-1), each [B], int64.

        Returns:
            For each of the M answers the row of its query in the batch [M] and its entity [M], int64, sorted
            by (row, entity).

        Raises:
            ValueError: if an id is out of range.
        """
        start, count = self._ranges(head, relation)
        row = torch.repeat_interleave(torch.arange(count.numel(), device=count.device), count)
        within = torch.arange(row.numel(), device=row.device) - (count.cumsum(0) - count)[row]
        return row, self._entity[start[row] + within]

    def _ranges(self, head: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        _check_range(relation, 2 * self.num_relations, "relation")
        _check_range(head, self.num_entities, "head")
        if not self._query.numel():
            return torch.zeros_like(head), torch.zeros_like(head)
        key = head * 2 * self.num_relations + relation
        position = torch.searchsorted(self._query, key).clamp_(max=self._query.numel() - 1)
        is_known = self._query[position] == key
        start = self._start[position]
        return start, torch.where(is_known, self._start[position + 1] - start, torch.zeros_like(start))


def _check_range(values: Tensor, size: int, what: str) -> None:
    if values.numel():
        low, high = (int(value) for value in torch.aminmax(values))
        if low < 0 or high >= size:
            raise ValueError(f"{what} ids must lie in 0..{size - 1}, got {low if low < 0 else high}")
