"""Accuracy and area under the ROC curve in float64, over known labels only."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors

from graphzoo.errors import NonFiniteError
from graphzoo.metrics.finite import first_row, require_finite
from graphzoo.system.tensors import check_tensors


class Accuracy(Metric):
    """Share of correct predictions, float64: of classes, or of yes-no labels; unknown labels are left out."""

    higher_is_better = True
    is_differentiable = False
    full_state_update = False
    correct: Tensor
    total: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("correct", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("total", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, logits: Tensor, target: Tensor) -> None:
        """Count a batch.

        Args:
            logits: [T, C].
            target: Classes [T], int64, -1 for unknown. Or yes-no labels [T, C], integers with -1 for unknown,
                or floats with NaN for unknown.

        Raises:
            NonFiniteError: for logits that are not finite: `argmax` would choose the class of a NaN.
            ValueError: for shapes that do not fit, or one column of logits for several classes.
        """
        target = _with_unknown(logits, target)
        if target.dim() == 1 and logits.shape[1] == 1 and bool((target > 0).any()):
            raise ValueError(
                f"logits {list(logits.shape)} have one class, but target has {int(target.max()) + 1}\n"
                "If target is a yes-no label, give target[:, None].float()"
            )
        require_finite(logits, first_row)
        if target.dim() == 1:
            right, known = logits.argmax(1) == target, target >= 0
        else:
            right, known = (logits > 0) == (target > 0.5), ~target.isnan()
        self.correct += (right & known).sum()
        self.total += known.sum()

    def compute(self) -> Tensor:
        """The share, a float64 scalar; NaN if no label is known."""
        return self.correct.double() / self.total.double()


class RocAuc(Metric):
    """Area under the ROC curve: of class 1 against class 0, or the mean over yes-no labels.

    As in OGB's evaluator, the mean leaves out labels that have no positives or no negatives.
    """

    higher_is_better = True
    is_differentiable = False
    full_state_update = False
    scores: list[Tensor]
    targets: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("dist_sync_fn", _gather_rows)
        super().__init__(**kwargs)
        self.add_state("scores", [], dist_reduce_fx="cat")
        self.add_state("targets", [], dist_reduce_fx="cat")

    def update(self, logits: Tensor, target: Tensor) -> None:
        """Store a batch.

        Args:
            logits: [T, 2] for classes, [T, C] for yes-no labels.
            target: Classes 0 and 1 [T], or yes-no labels [T, C]; unknown ones as for `Accuracy.update`.

        Raises:
            NonFiniteError: for logits that are not finite: NaN would rank above all others.
            ValueError: for shapes that do not fit, or classes other than 0 and 1.
        """
        target = _with_unknown(logits, target)
        require_finite(logits, first_row)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if target.dim() == 1:
            if logits.shape[1] != 2:
                raise ValueError(
                    f"ROC-AUC of classes needs two classes, got {logits.shape[1]}; use accuracy instead"
                )
            if bool((target > 1).any()):
                raise ValueError(f"target has class {int(target.max())}, but the classes must be 0 and 1")
            # The difference of logits orders nodes like the probability of class 1, but does not saturate.
            classes = target.to(logits.dtype).masked_fill(target < 0, torch.nan)
            logits, target = (logits[:, 1:] - logits[:, :1]), classes[:, None]
        # Detached, to free the autograd graph, and copied, since the caller may write to its buffers again.
        self.scores.append(logits.detach().clone())
        self.targets.append(target.clone())

    def per_label(self) -> Tensor:
        """The area of every label, [C], float64; NaN for labels without positives or without negatives."""
        scores, targets = _joined(self.scores), _joined(self.targets)
        areas = [roc_auc(score, target) for score, target in zip(scores.t(), targets.t(), strict=True)]
        return torch.stack(areas) if areas else scores.new_empty(0, dtype=torch.float64)

    def compute(self) -> Tensor:
        """The mean area, a float64 scalar; NaN if no label has both positives and negatives."""
        return self.per_label().nanmean()


def _with_unknown(logits: Tensor, target: Tensor) -> Tensor:
    """Check the shape of the target, and convert yes-no labels to floats with NaN for unknown."""
    if logits.dim() == 2 and target.shape in (logits.shape, logits.shape[:1]):
        if target.dim() == 1 or target.is_floating_point():
            return target
        if bool((target > 1).any()):
            raise ValueError(f"yes-no labels must be 0, 1, or -1 for unknown, got {int(target.max())}")
        return target.to(torch.float32).masked_fill(target < 0, torch.nan)
    given = f"logits {list(logits.shape)} do not fit target {list(target.shape)}"
    raise ValueError(
        f"{given}: logits must be [T, C], and target classes [T] or yes-no labels [T, C]"
        + ("\nGive classes as target.squeeze(1)" if target.shape[1:] == (1,) else "")
    )


def _gather_rows(rows: Tensor, group: Any = None) -> list[Tensor]:
    # In a process without batches, torchmetrics gives an empty float vector instead of rows of width C.
    own = torch.tensor(rows.shape[1] if rows.dim() == 2 else 0, device=rows.device)
    width = max(int(one) for one in gather_all_tensors(own, group))
    return gather_all_tensors(rows.to(torch.float64).reshape(len(rows), width).contiguous(), group)


def _joined(parts: list[Tensor] | Tensor) -> Tensor:
    """Join batches [T, C]; after gathering from several processes torchmetrics has joined them already."""
    if isinstance(parts, Tensor):
        return parts
    return torch.cat(parts) if parts else torch.empty(0, 0)


def roc_auc(scores: Tensor, target: Tensor) -> Tensor:
    r"""Probability that a positive scores above a negative, where ties count half (Mann and Whitney, 1947).

    .. math:: \mathrm{AUC} = \frac{\sum_{i \in P} \mathrm{rank}_i - |P| (|P| + 1) / 2}{|P| \, |N|}

    Args:
        scores: Scores [T], higher for likelier positives.
        target: 1 for positives, 0 for negatives, NaN for unknown, [T], float.

    Returns:
        float64 scalar; NaN without positives or without negatives.

    Raises:
        ValueError: for other shapes.
        NonFiniteError: if a score is NaN, which would rank above all others.

    >>> roc_auc(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0.0, 0.0, 1.0, 1.0]))
    tensor(0.7500, dtype=torch.float64)
    """
    check_tensors(scores=scores, target=target)
    if scores.dim() != 1 or scores.shape != target.shape:
        raise ValueError(f"scores and target must be [T], got {list(scores.shape)} and {list(target.shape)}")
    known = ~target.isnan()
    scores, positive = scores[known], target[known] > 0.5
    if bool(scores.isnan().any()):
        raise NonFiniteError(
            f"{int(scores.isnan().sum())} of {scores.numel()} scores are NaN, which have no rank"
        )
    # Tied scores have the mean of their one-based ranks. Twice this mean is an integer.
    _, place, count = torch.unique(scores, return_inverse=True, return_counts=True)
    last = count.cumsum(0)
    doubled = (2 * last - count + 1)[place]
    num_positive = positive.sum()
    num_negative = positive.numel() - num_positive
    wins = doubled[positive].sum() - num_positive * (num_positive + 1)
    area: Tensor = wins.double() / (2 * num_positive * num_negative).double()
    return area
