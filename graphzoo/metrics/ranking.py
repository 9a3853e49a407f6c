"""MR, MRR and Hits@k as a torchmetrics metric that gives the same bits for every batching and world size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors

from graphzoo.errors import check_choice, check_whole
from graphzoo.metrics.ranks import Ties
from graphzoo.metrics.summary import group_table, summarize_ranks, tie_share


def _gather_rows(rows: Tensor, group: Any = None) -> list[Tensor]:
    # A process that saw no query gets an empty float vector from torchmetrics; gathered beside the int64
    # rows of another process it would be garbage.
    return gather_all_tensors(rows.to(torch.int64).reshape(-1, 3).contiguous(), group)


class RankingMetric(Metric):
    """Filtered ranking metrics, collected target by target.

    The ranks themselves are kept (24 bytes a target), gathered from all processes, put in the order of their
    index and summed exactly, so that batch size, chunking, order and number of processes change no bit. A
    target that a padding sampler delivers twice counts once.

    Args:
        ties: Tie rule of `compute`: "realistic" (default), "optimistic" or "pessimistic".
        hits: The k of Hits@k.
        **kwargs: Passed on to `torchmetrics.Metric`.

    Attributes:
        num_ranked: Targets of all processes that the last `compute` was over.

    >>> metric = RankingMetric()
    >>> metric.update(torch.tensor([1, 2]), torch.tensor([1, 4]), torch.tensor([0, 1]))
    >>> round(metric.compute()["mrr"].item(), 4)
    0.6667
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    rows: list[Tensor]

    def __init__(self, *, ties: Ties = "realistic", hits: Sequence[int] = (1, 3, 10), **kwargs: Any) -> None:
        check_choice("ties", ties, Ties)
        for k in hits:
            check_whole(at_least=1, hits=k)
        kwargs.setdefault("dist_sync_fn", _gather_rows)
        super().__init__(**kwargs)
        self.ties: Ties = ties
        self.hits = tuple(hits)
        self.num_ranked = 0
        self.add_state("rows", default=[], dist_reduce_fx="cat")

    def update(self, optimistic: Tensor, pessimistic: Tensor, index: Tensor) -> None:
        """Add the ranks of a batch, [T], int64: one-based, the pessimistic at least the optimistic.

        The index is the number of each target in the whole split (`QueryBatch.target_index`).

        Raises:
            ValueError: if shapes differ, a tensor is not int64, or a rank is impossible.
        """
        for name, value in (("optimistic", optimistic), ("pessimistic", pessimistic), ("index", index)):
            if value.dim() != 1 or value.shape != index.shape or value.dtype != torch.int64:
                raise ValueError(
                    "optimistic, pessimistic and index must be int64 [T] of one length; "
                    f"{name} is {value.dtype} {list(value.shape)}, index {list(index.shape)}"
                )
        if bool(((optimistic < 1) | (pessimistic < optimistic)).any()):
            raise ValueError("ranks are one-based and pessimistic ones are at least the optimistic ones")
        self.rows.append(torch.stack([index, optimistic, pessimistic], dim=1))

    def compute(self) -> dict[str, Tensor]:
        """`mr`, `mrr` and `hits@<k>` over everything seen, float64 scalars on the CPU.

        Raises:
            ValueError: if nothing was recorded, or one index came with two different ranks.
        """
        optimistic, pessimistic, _ = self._merged()
        self.num_ranked = optimistic.numel()
        return self._figures(optimistic, pessimistic)

    def _figures(self, optimistic: Tensor, pessimistic: Tensor) -> dict[str, Tensor]:
        values = summarize_ranks(optimistic, pessimistic, ties=self.ties, hits=self.hits)
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}

    def ranks(self) -> tuple[Tensor, Tensor, Tensor]:
        """Optimistic and pessimistic ranks and index of all targets, in index order, [T] each, int64.

        Every process has to call this.
        """
        with self.sync_context(dist_sync_fn=self.dist_sync_fn):
            return self._merged()

    def compute_parts(self, starts: Sequence[int]) -> list[dict[str, Tensor] | None]:
        """`compute` for each of several parts, which begin at these indices; None for an empty part."""
        optimistic, pessimistic, index = self.ranks()
        part = torch.bucketize(index.contiguous(), torch.tensor(starts[1:]), right=True)
        parts = [part == number for number in range(len(starts))]
        return [self._figures(optimistic[p], pessimistic[p]) if bool(p.any()) else None for p in parts]

    def table(self, triples: Tensor, relations: Sequence[str]) -> list[dict[str, Any]]:
        """Rows per relation and direction, see `group_table`; every process has to call this."""
        return group_table(*self.ranks(), triples, relations, ties=self.ties, hits=self.hits)

    def tie_share(self) -> float:
        """Share of targets that tie with another candidate; every process has to call this."""
        optimistic, pessimistic, _ = self.ranks()
        return tie_share(optimistic, pessimistic)

    def _merged(self) -> tuple[Tensor, Tensor, Tensor]:
        # After a synchronisation torchmetrics leaves one tensor in place of the list.
        parts = [self.rows] if isinstance(self.rows, Tensor) else self.rows
        rows = torch.cat([torch.empty(0, 3, dtype=torch.int64), *(part.cpu() for part in parts)])
        rows = torch.unique(rows, dim=0)  # sorted by index, identical repeats dropped
        repeated = (rows[1:, 0] == rows[:-1, 0]).nonzero()
        if repeated.numel():
            first, second = rows[int(repeated[0])].tolist(), rows[int(repeated[0]) + 1].tolist()
            raise ValueError(
                f"target {first[0]} was ranked twice with different results ({first[1:]} and {second[1:]}); "
                "`index` must number the targets of the whole split, not of the batch"
            )
        return rows[:, 1], rows[:, 2], rows[:, 0]


class HitsAtK(RankingMetric):
    """One Hits@k as a number, for loops and callbacks that want a single value.

    Args:
        k: How many of the first ranks count.
        ties: Tie rule of `compute`, as in `RankingMetric`.
        **kwargs: Passed on to `torchmetrics.Metric`.

    >>> metric = HitsAtK(3)
    >>> metric.update(torch.tensor([1, 2]), torch.tensor([1, 4]), torch.tensor([0, 1]))
    >>> metric.compute().item()
    1.0
    """

    def __init__(self, k: int = 10, *, ties: Ties = "realistic", **kwargs: Any) -> None:
        super().__init__(ties=ties, hits=(k,), **kwargs)
        self.k = k

    def compute(self) -> Tensor:  # type: ignore[override]  # one number where the other has several
        """Share of targets ranked k or better, a float64 scalar on the CPU."""
        return super().compute()[f"hits@{self.k}"]
