"""Metrics of links: MRR, Hits@K, AUROC and average precision.

All positives share a pool of negatives, or each positive has its own ones.

The conventions are those of OGB's evaluators and of Li et al., "Evaluating Graph Neural Networks for Link
Prediction", NeurIPS 2023.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional.classification import binary_average_precision
from torchmetrics.utilities.distributed import gather_all_tensors

from graphzoo.errors import NonFiniteError, UsageError
from graphzoo.metrics.classification import roc_auc
from graphzoo.metrics.finite import require_finite
from graphzoo.system.tensors import check_tensors

HITS = (1, 3, 10, 20, 50, 100)


def check_name(metric: str) -> None:
    """Raise a `UsageError` if a metric does not exist."""
    name, at, k = metric.partition("@")
    if name in ("mrr", "auroc", "ap") and not at:
        return
    if name != "hits" or not re.fullmatch("[1-9][0-9]*", k):  # "hits@010" would not match the logged name
        raise UsageError(f"metric must be mrr, auroc, ap or hits@K, got {metric!r}")


def link_ranks(positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """Best and worst one-based rank of every positive among its negatives.

    Args:
        positive: Scores of positives, [P].
        negative: Scores [Q] of a pool that all positives share, or [P, K] of the negatives of each positive;
            NaN for missing ones.

    Returns:
        Optimistic ranks (the positive is above negatives with equal scores) and pessimistic ones (it is below
        them), [P] each, int64.

    Raises:
        NonFiniteError: if the score of a positive is NaN, since no negative would be above it.
        ValueError: for other shapes, or if a positive has no negatives.

    >>> link_ranks(torch.tensor([0.5]), torch.tensor([0.9, 0.5, 0.1]))
    (tensor([2]), tensor([3]))
    """
    _require_rank(positive, negative)
    if negative.dim() == 2:
        above = (negative > positive[:, None]).sum(1)
        return above + 1, above + (negative == positive[:, None]).sum(1) + 1
    pool = negative[~negative.isnan()].sort().values
    above = pool.numel() - torch.searchsorted(pool, positive, right=True)
    level = pool.numel() - torch.searchsorted(pool, positive, right=False)
    return above + 1, level + 1


def _require_rank(positive: Tensor, negative: Tensor) -> None:
    check_tensors(positive=positive, negative=negative)
    if positive.dim() != 1 or negative.dim() not in (1, 2):
        raise ValueError(
            "positive must be [P] and negative [Q] or [P, K], got "
            f"{list(positive.shape)} and {list(negative.shape)}: give scores.squeeze(-1)"
        )
    if negative.dim() == 2 and len(negative) != len(positive):
        raise ValueError(
            f"{len(positive)} positives need negatives [{len(positive)}, K], or a pool [Q] that all share; "
            f"got {list(negative.shape)}"
        )
    if bool(positive.isnan().any()):
        raise NonFiniteError(
            f"{int(positive.isnan().sum())} of {positive.numel()} scores of positives are NaN and have no "
            f"rank, the first that of positive {int(positive.isnan().nonzero()[0])}"
        )
    alone = negative.isnan().all(-1).reshape(-1)
    if bool(alone.any()):
        raise ValueError(
            f"positive {int(alone.nonzero()[0])} cannot be ranked: none of its negatives has a score"
        )


def link_figures(positive: Tensor, negative: Tensor, hits: Sequence[int] = HITS) -> dict[str, Tensor]:
    r"""MRR and Hits@K; for a pool of negatives also AUROC and average precision (AP).

    .. math:: \mathrm{MRR} = \tfrac1P \sum_i \rho_i^{-1}, \quad
              \rho_i = 1 + \#\{s^- > s_i\} + \tfrac12 \#\{s^- = s_i\}

    Hits@K is the share of positives that count. With a pool, a positive counts if its score is above that of
    the K-th best negative, and not equal to it, as in OGB. With its own negatives, it counts if
    :math:`\rho_i \le K`, as in HeaRT.

    Args:
        positive: Scores of positives, [P].
        negative: Scores [Q] or [P, K], see `link_ranks`.
        hits: Values of K for Hits@K.

    Returns:
        float64 scalars `mrr`, `hits@<K>`, and with a pool `auroc` and `ap`.

    Raises:
        NonFiniteError: if the score of a positive is NaN.
        ValueError: for other shapes, without positives, or if a positive has no negatives.
    """
    if not positive.numel():
        raise ValueError("no positive pair to rank: the split is empty or no batch was evaluated")
    optimistic, pessimistic = link_ranks(positive, negative)
    # Halves are exact in float64.
    ranks = (optimistic + pessimistic).double() / 2
    figures = {"mrr": (1 / ranks).sum() / ranks.numel()}
    judged = pessimistic if negative.dim() == 1 else ranks
    figures |= {f"hits@{k}": (judged <= k).double().mean() for k in hits}
    pool = negative[~negative.isnan()] if negative.dim() == 1 else negative.new_empty(0)
    if pool.numel():
        scores = torch.cat([positive, pool])
        label = torch.cat([torch.ones_like(positive), torch.zeros_like(pool)])
        figures["auroc"] = roc_auc(scores, label)
        # torchmetrics maps scores to (0, 1) by a sigmoid, which would make large ones equal. So it gets the
        # positions of the sorted scores instead, which are in (0, 1).
        values, place = torch.unique(scores, return_inverse=True)
        share = (place + 1).double() / (values.numel() + 1)
        figures["ap"] = binary_average_precision(share, label.long()).double()
    return figures


def _gather_rows(rows: Tensor, group: Any = None) -> list[Tensor]:
    # In a process without scores, torchmetrics gives an empty vector of another shape and dtype.
    return gather_all_tensors(rows.to(torch.float64).reshape(-1, 2).contiguous(), group)


class LinkMetric(Metric):
    """The metrics of `link_figures` for a split.

    The result does not depend on the batches, their order or the processes in which pairs are scored. Pairs
    are numbered: first the P positives, then the negatives of the pool, or the K negatives of the first
    positive, those of the second, and so on. If a pair is scored several times (with other node labels), the
    scores are averaged.

    Args:
        num_positives: P.
        num_negatives: Q, the size of the pool, or K, the negatives of each positive.
        has_own_negatives: Whether each positive has its own negatives.
        hits: Values of K for Hits@K.
        **kwargs: Arguments of `torchmetrics.Metric`.

    Attributes:
        num_ranked: Number of positives that the last `compute` ranked, over all processes.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    rows: list[Tensor]

    def __init__(
        self,
        num_positives: int,
        num_negatives: int,
        *,
        has_own_negatives: bool,
        hits: Sequence[int] = HITS,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("dist_sync_fn", _gather_rows)
        super().__init__(**kwargs)
        self.num_positives, self.num_negatives = num_positives, num_negatives
        self.has_own_negatives, self.hits = has_own_negatives, tuple(hits)
        self.num_ranked = 0
        self.add_state("rows", default=[], dist_reduce_fx="cat")

    @property
    def _total(self) -> int:
        return self.num_positives + self.num_negatives * (self.num_positives if self.has_own_negatives else 1)

    def update(self, scores: Tensor, index: Tensor) -> None:
        """Add a batch.

        Args:
            scores: Scores [B].
            index: Number of each pair in the split, [B], int64.

        Raises:
            NonFiniteError: for scores that are not finite and so have no rank.
            ValueError: for shapes that do not fit, or numbers that the split does not have.
        """
        if scores.shape != index.shape or scores.dim() != 1:
            raise ValueError(f"scores {list(scores.shape)} and index {list(index.shape)} must both be [B]")
        wrong = (index < 0) | (index >= self._total)
        if bool((wrong | ~scores.isfinite()).any()):  # for a valid batch the host waits only once
            if bool(wrong.any()):
                raise ValueError(f"index must lie in 0..{self._total - 1}, got {int(index[wrong][0])}")
            require_finite(scores, lambda broken: f"that of pair {int(index[broken][0])}")
        self.rows.append(torch.stack([index.double(), scores.double()], dim=1))

    def compute(self) -> dict[str, Tensor]:
        """The metrics of `link_figures`; empty if no positive can be ranked.

        Pairs without a score are left out (if the Trainer limits batches, for example), and also positives
        whose negatives have no scores.
        """
        positive, negative = self._merged()
        seen, ranked = ~positive.isnan(), ~negative.isnan()
        seen &= ranked.any(-1) if self.has_own_negatives else bool(ranked.any())
        self.num_ranked = int(seen.sum())
        if self.num_positives and not bool(seen.any()):
            return {}
        return link_figures(positive[seen], negative[seen] if self.has_own_negatives else negative, self.hits)

    def is_complete(self) -> bool:
        """Whether every pair has a score; all processes must call this together."""
        return not any(bool(scores.isnan().any()) for scores in self.scores())

    def scores(self) -> tuple[Tensor, Tensor]:
        """Mean scores of positives [P] and of negatives [Q] or [P, K], float64; NaN for pairs without one.

        All processes must call this together.
        """
        with self.sync_context(dist_sync_fn=self.dist_sync_fn):
            return self._merged()

    def _merged(self) -> tuple[Tensor, Tensor]:
        parts = [self.rows] if isinstance(self.rows, Tensor) else self.rows
        rows = torch.cat([torch.empty(0, 2, dtype=torch.float64), *(part.cpu() for part in parts)])
        index, score = rows[:, 0].long(), rows[:, 1]
        own, total = self.has_own_negatives, self._total
        count = torch.bincount(index, minlength=total)
        if int(torch.count_nonzero(count)) < index.numel():
            # Sorted by score within a pair, so that sums do not depend on the order of scoring.
            order = score.argsort(stable=True)
            order = order[index[order].argsort(stable=True)]
            index, score = index[order], score[order]
            table = torch.zeros(total, dtype=torch.float64).index_add_(0, index, score) / count
        else:  # ogbl-citation2 evaluates 87 million pairs, so this avoids further tensors of that size
            table = torch.full((total,), torch.nan, dtype=torch.float64).index_copy_(0, index, score)
        positive, negative = table[: self.num_positives], table[self.num_positives :]
        return positive, negative.view(self.num_positives, self.num_negatives) if own else negative
