"""Every metric refuses scores that are NaN: compared with others, they could rank first."""

import math

import pytest
import torch

from graphzoo.errors import NonFiniteError
from graphzoo.metrics import (
    Accuracy,
    LinkMetric,
    RocAuc,
    filtered_ranks,
    link_figures,
    link_ranks,
    rank_targets,
)
from graphzoo.metrics.classification import roc_auc
from graphzoo.types import QueryBatch


def kg_batch(scores):
    zeros = torch.zeros(2, dtype=torch.int64)
    rows = torch.arange(2)
    empty = torch.empty(0, dtype=torch.int64)
    return rank_targets(
        scores,
        QueryBatch(
            head=zeros, relation=zeros, target=zeros, target_row=rows, target_index=rows,
            known_row=empty, known_entity=empty,
        ),
    )  # fmt: skip


def link_metric(scores):
    metric = LinkMetric(1, scores.numel() - 1, has_own_negatives=False)
    metric.update(scores.flatten(), torch.arange(scores.numel()))
    return metric.compute()


CLASSES, LABELS = torch.tensor([0, 0]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
# Each metric of scores [2, 2], whose first column has the scores of the right answers.
METRICS = {
    "filtered_ranks": lambda s: filtered_ranks(s, torch.zeros(2, dtype=torch.int64), torch.zeros(2, 2) > 0),
    "rank_targets": kg_batch,
    "link_ranks, pool": lambda s: link_ranks(s[:, 0], torch.zeros(3)),
    "link_ranks, own negatives": lambda s: link_ranks(s[:, 0], torch.zeros(2, 3)),
    "link_figures": lambda s: link_figures(s[:, 0], torch.zeros(3)),
    "LinkMetric: MRR, Hits, AUROC, AP": link_metric,
    "Accuracy, classes": lambda s: Accuracy().update(s, CLASSES),
    "Accuracy, yes-no labels": lambda s: Accuracy().update(s, LABELS),
    "RocAuc, classes": lambda s: RocAuc().update(s, CLASSES),
    "RocAuc, yes-no labels": lambda s: RocAuc().update(s, LABELS),
    "roc_auc": lambda s: roc_auc(s.flatten(), LABELS.flatten()),
}


@pytest.mark.fault("a score is NaN, in any metric", "refused with its position; it never ranks first")
@pytest.mark.parametrize("name", METRICS)
def test_nan_is_refused(name):
    METRICS[name](torch.tensor([[0.5, 0.1], [0.2, 0.3]]))
    with pytest.raises(NonFiniteError, match="NaN"):
        METRICS[name](torch.tensor([[0.5, 0.1], [math.nan, 0.3]]))


@pytest.mark.parametrize(
    "negative", [torch.full((3,), math.nan), torch.tensor([[0.1, 0.2], [math.nan, math.nan]])]
)
def test_negatives_that_are_all_nan_are_refused(negative):
    with pytest.raises(ValueError, match="none of its negatives has a score"):
        link_ranks(torch.tensor([0.5, 0.6]), negative)
