"""MR, MRR and Hits@k as a torchmetrics metric whose bits do not depend on batches or number of processes."""

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
    # In a process without queries, torchmetrics gives an empty float vector. Gathered together with the int64
    # rows of another process, it would give wrong numbers.
    return gather_all_tensors(rows.to(torch.int64).reshape(-1, 3).contiguous(), group)


class RankingMetric(Metric):
    """Filtered ranking metrics.

    The ranks of all targets are stored (24 bytes each), gathered from all processes, sorted by their index
    and summed exactly. So batch size, chunking, order and number of processes change no bit of the result. A
    target counts once even if a padding sampler evaluates it twice.

    Args:
        ties: Tie rule of `compute`: "realistic", "optimistic" or "pessimistic".
        hits: Values of k for Hits@k.
        **kwargs: Arguments of `torchmetrics.Metric`.

    Attributes:
        num_ranked: Number of targets that the last `compute` averaged over, over all processes.

    Raises:
        UsageError: for an unknown tie rule, or a k that is not a whole number of at least 1.

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
        """Add the ranks of a batch.

        Args:
            optimistic: Best one-based rank of each target, [T], int64.
            pessimistic: Worst one-based rank of each target, [T], int64.
            index: Number of each target in the whole split (`QueryBatch.target_index`), [T], int64.

        Raises:
            ValueError: if shapes differ, a tensor is not int64, or a rank is below 1 or the pessimistic one
                below the optimistic one.
        """
        for name, value in (("optimistic", optimistic), ("pessimistic", pessimistic), ("index", index)):
            if value.dim() != 1 or value.shape != index.shape or value.dtype != torch.int64:
                raise ValueError(
                    "optimistic, pessimistic and index must be int64 [T] of one length; "
                    f"{name} is {value.dtype} {list(value.shape)}, index {list(index.shape)}"
                )
        if bool(((optimistic < 1) | (pessimistic < optimistic)).any()):
            raise ValueError("ranks must be at least 1, and pessimistic ranks at least the optimistic ones")
        self.rows.append(torch.stack([index, optimistic, pessimistic], dim=1))

    def compute(self) -> dict[str, Tensor]:
        """The metrics `mr`, `mrr` and `hits@<k>` of all batches, float64 scalars on the CPU.

        Raises:
            ValueError: if there are no ranks, or one index has two different ranks.
        """
        optimistic, pessimistic, _ = self._merged()
        self.num_ranked = optimistic.numel()
        return self._figures(optimistic, pessimistic)

    def _figures(self, optimistic: Tensor, pessimistic: Tensor) -> dict[str, Tensor]:
        values = summarize_ranks(optimistic, pessimistic, ties=self.ties, hits=self.hits)
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}

    def ranks(self) -> tuple[Tensor, Tensor, Tensor]:
        """Optimistic ranks, pessimistic ranks and index of all targets, sorted by index, [T] each, int64.

        All processes must call this together.
        """
        with self.sync_context(dist_sync_fn=self.dist_sync_fn):
            return self._merged()

    def compute_parts(self, starts: Sequence[int]) -> list[dict[str, Tensor] | None]:
        """`compute` for each of several parts of the index, which begin at `starts`; None for an empty part.

        All processes must call this together.
        """
        optimistic, pessimistic, index = self.ranks()
        part = torch.bucketize(index.contiguous(), torch.tensor(starts[1:]), right=True)
        parts = [part == number for number in range(len(starts))]
        return [self._figures(optimistic[p], pessimistic[p]) if bool(p.any()) else None for p in parts]

    def table(self, triples: Tensor, relations: Sequence[str]) -> list[dict[str, Any]]:
        """Metrics by relation and direction, see `group_table`; all processes must call this together."""
        return group_table(*self.ranks(), triples, relations, ties=self.ties, hits=self.hits)

    def tie_share(self) -> float:
        """Share of targets that tie with another candidate; all processes must call this together."""
        optimistic, pessimistic, _ = self.ranks()
        return tie_share(optimistic, pessimistic)

    def _merged(self) -> tuple[Tensor, Tensor, Tensor]:
        # After gathering from several processes, torchmetrics has one tensor in place of the list.
        parts = [self.rows] if isinstance(self.rows, Tensor) else self.rows
        rows = torch.cat([torch.empty(0, 3, dtype=torch.int64), *(part.cpu() for part in parts)])
        rows = torch.unique(rows, dim=0)  # sorted by index, without repeated rows
        repeated = (rows[1:, 0] == rows[:-1, 0]).nonzero()
        if repeated.numel():
            first, second = rows[int(repeated[0])].tolist(), rows[int(repeated[0]) + 1].tolist()
            raise ValueError(
                f"target {first[0]} was ranked twice with different results ({first[1:]} and {second[1:]}); "
                "`index` must number the targets of the whole split, not of the batch"
            )
        return rows[:, 1], rows[:, 2], rows[:, 0]


class HitsAtK(RankingMetric):
    """Hits@k for one k, as a single number.

    Args:
        k: Largest rank that counts as a hit.
        ties: Tie rule of `compute`, see `RankingMetric`.
        **kwargs: Arguments of `torchmetrics.Metric`.

    >>> metric = HitsAtK(3)
    >>> metric.update(torch.tensor([1, 2]), torch.tensor([1, 4]), torch.tensor([0, 1]))
    >>> metric.compute().item()
    1.0
    """

    def __init__(self, k: int = 10, *, ties: Ties = "realistic", **kwargs: Any) -> None:
        super().__init__(ties=ties, hits=(k,), **kwargs)
        self.k = k

    def compute(self) -> Tensor:  # type: ignore[override]  # one number instead of several
        """Share of targets with a rank of at most k, a float64 scalar on the CPU."""
        return super().compute()[f"hits@{self.k}"]
