"""Metrics of links: MRR and Hits@K against shared or own negatives, AUROC and average precision.

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

HITS = (1, 3, 10, 20, 50, 100)


def check_name(metric: str) -> None:
    """Refuse the name of a metric that does not exist."""
    name, at, k = metric.partition("@")
    if name in ("mrr", "auroc", "ap") and not at:
        return
    if name != "hits" or not re.fullmatch("[1-9][0-9]*", k):  # as it is logged
        raise UsageError(f"metric must be mrr, auroc, ap or hits@K, got {metric!r}")


def link_ranks(positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """Best and worst one-based rank of every positive among its negatives.

    Args:
        positive: Scores [P].
        negative: Scores [Q] of a pool that all positives share, or [P, K] of each positive's own; NaN where
            there is none.

    Returns:
        Optimistic ranks (ties below the positive) and pessimistic ones (ties above), [P] each, int64.

    Raises:
        NonFiniteError: if a positive is NaN, which no negative is above.
        ValueError: for other shapes, or if all negatives of a positive are NaN, so that it would be first
            among none.

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
    if positive.dim() != 1 or negative.dim() not in (1, 2):
        raise ValueError(
            "positive must be [P] and negative [Q] or [P, K], got "
            f"{list(positive.shape)} and {list(negative.shape)}: give scores.squeeze(-1)"
        )
    if negative.dim() == 2 and len(negative) != len(positive):
        raise ValueError(
            f"{len(positive)} positives need negatives [{len(positive)}, K] of their own, or a pool [Q]; "
            f"got {list(negative.shape)}"
        )
    if bool(positive.isnan().any()):
        raise NonFiniteError(
            f"{int(positive.isnan().sum())} of {positive.numel()} scores of positives are NaN, first that of "
            f"positive {int(positive.isnan().nonzero()[0])}; they have no rank"
        )
    alone = negative.isnan().all(-1).reshape(-1)
    if bool(alone.any()):
        raise ValueError(
            f"positive {int(alone.nonzero()[0])} has no negative with a score: it cannot be ranked among none"
        )


def link_figures(positive: Tensor, negative: Tensor, hits: Sequence[int] = HITS) -> dict[str, Tensor]:
    r"""MRR, Hits@K and, against a pool, AUROC and AP.

    .. math:: \mathrm{MRR} = \tfrac1P \sum_i \rho_i^{-1}, \quad
              \rho_i = 1 + \#\{s^- > s_i\} + \tfrac12 \#\{s^- = s_i\}

    Hits@K follows OGB where negatives are shared: a positive counts when it scores strictly above the K-th
    best negative, so ties are lost. Against its own negatives it counts when :math:`\rho_i \le K`, as in
    HeaRT.

    Args:
        positive: Scores [P].
        negative: Scores [Q] or [P, K], see `link_ranks`.
        hits: The K of Hits@K.

    Returns:
        `mrr`, `hits@<K>`, and against a pool `auroc` and `ap`: float64 scalars.

    Raises:
        NonFiniteError: if a positive is NaN.
        ValueError: without any positive, or with one whose negatives are all NaN.
    """
    if not positive.numel():
        raise ValueError("no positive pair to rank: the split is empty or no batch was evaluated")
    optimistic, pessimistic = link_ranks(positive, negative)
    # Halves are exact, so equal ranks add up to the same bits in any order of equal values.
    ranks = (optimistic + pessimistic).double() / 2
    figures = {"mrr": (1 / ranks).sum() / ranks.numel()}
    judged = pessimistic if negative.dim() == 1 else ranks
    figures |= {f"hits@{k}": (judged <= k).double().mean() for k in hits}
    pool = negative[~negative.isnan()] if negative.dim() == 1 else negative.new_empty(0)
    if pool.numel():
        scores = torch.cat([positive, pool])
        label = torch.cat([torch.ones_like(positive), torch.zeros_like(pool)])
        figures["auroc"] = roc_auc(scores, label)
        # Places instead of scores: torchmetrics squashes scores into (0, 1), which makes ties of large ones.
        values, place = torch.unique(scores, return_inverse=True)
        share = (place + 1).double() / (values.numel() + 1)
        figures["ap"] = binary_average_precision(share, label.long()).double()
    return figures


def _gather_rows(rows: Tensor, group: Any = None) -> list[Tensor]:
    # A process that scored nothing gets an empty vector of another shape and type from torchmetrics.
    return gather_all_tensors(rows.to(torch.float64).reshape(-1, 2).contiguous(), group)


class LinkMetric(Metric):
    """The figures of a split, whatever batches, order and processes its pairs were scored in.

    Pairs are numbered: the P positives first, then the pool, or the K negatives of the first positive, of the
    second, and so on. Scores of a pair that comes several times (relabelled) are averaged.

    Args:
        num_positives: P.
        num_negatives: Q of a pool, or K of each positive.
        has_own_negatives: Which of the two.
        hits: The K of Hits@K.
        **kwargs: Passed on to `torchmetrics.Metric`.

    Attributes:
        num_ranked: Positives of all processes that the last `compute` ranked.
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
        """Add scores [B] of pairs by their numbers `index` [B], int64.

        Raises:
            NonFiniteError: for scores that are not finite: they have no rank.
            ValueError: for shapes that do not fit, and pairs that the split does not have.
        """
        if scores.shape != index.shape or scores.dim() != 1:
            raise ValueError(f"scores {list(scores.shape)} and index {list(index.shape)} must both be [B]")
        wrong = (index < 0) | (index >= self._total)
        if bool((wrong | ~scores.isfinite()).any()):  # one wait for the device in a batch that is right
            if bool(wrong.any()):
                raise ValueError(f"index must lie in 0..{self._total - 1}, got {int(index[wrong][0])}")
            require_finite(scores, lambda broken: f"that of pair {int(index[broken][0])}")
        self.rows.append(torch.stack([index.double(), scores.double()], dim=1))

    def compute(self) -> dict[str, Tensor]:
        """See `link_figures`; nothing without a positive that can be ranked.

        Pairs that were not scored (limited batches) are left out, and positives none of whose negatives were.
        """
        positive, negative = self._merged()
        seen, ranked = ~positive.isnan(), ~negative.isnan()
        seen &= ranked.any(-1) if self.has_own_negatives else bool(ranked.any())
        self.num_ranked = int(seen.sum())
        if self.num_positives and not bool(seen.any()):
            return {}
        return link_figures(positive[seen], negative[seen] if self.has_own_negatives else negative, self.hits)

    def is_complete(self) -> bool:
        """Whether every pair was scored; every process has to call this."""
        return not any(bool(scores.isnan().any()) for scores in self.scores())

    def scores(self) -> tuple[Tensor, Tensor]:
        """Mean scores of positives [P] and negatives [Q] or [P, K], float64, NaN where nothing was scored.

        Every process has to call this.
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
            # Sorted by score within a pair, so that sums do not depend on who scored which copy first.
            order = score.argsort(stable=True)
            order = order[index[order].argsort(stable=True)]
            index, score = index[order], score[order]
            table = torch.zeros(total, dtype=torch.float64).index_add_(0, index, score) / count
        else:  # ogbl-citation2 evaluates 87 million pairs: nothing of their number is made without need
            table = torch.full((total,), torch.nan, dtype=torch.float64).index_copy_(0, index, score)
        positive, negative = table[: self.num_positives], table[self.num_positives :]
        return positive, negative.view(self.num_positives, self.num_negatives) if own else negative
