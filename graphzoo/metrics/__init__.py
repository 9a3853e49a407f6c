"""Ranking and classification metrics, exact whatever the batches and processes. Loaded on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphzoo.metrics.classification import Accuracy as Accuracy
    from graphzoo.metrics.classification import RocAuc as RocAuc
    from graphzoo.metrics.classification import roc_auc as roc_auc
    from graphzoo.metrics.links import LinkMetric as LinkMetric
    from graphzoo.metrics.links import link_figures as link_figures
    from graphzoo.metrics.links import link_ranks as link_ranks
    from graphzoo.metrics.ranking import RankingMetric as RankingMetric
    from graphzoo.metrics.ranks import filtered_ranks as filtered_ranks
    from graphzoo.metrics.ranks import rank_targets as rank_targets
    from graphzoo.metrics.summary import group_table as group_table
    from graphzoo.metrics.summary import summarize_ranks as summarize_ranks
    from graphzoo.metrics.summary import tie_share as tie_share

_LAZY = {
    "Accuracy": "graphzoo.metrics.classification",
    "LinkMetric": "graphzoo.metrics.links",
    "RankingMetric": "graphzoo.metrics.ranking",
    "RocAuc": "graphzoo.metrics.classification",
    "filtered_ranks": "graphzoo.metrics.ranks",
    "group_table": "graphzoo.metrics.summary",
    "link_figures": "graphzoo.metrics.links",
    "link_ranks": "graphzoo.metrics.links",
    "rank_targets": "graphzoo.metrics.ranks",
    "roc_auc": "graphzoo.metrics.classification",
    "summarize_ranks": "graphzoo.metrics.summary",
    "tie_share": "graphzoo.metrics.summary",
}

__all__ = [
    "Accuracy",
    "LinkMetric",
    "RankingMetric",
    "RocAuc",
    "filtered_ranks",
    "group_table",
    "link_figures",
    "link_ranks",
    "rank_targets",
    "roc_auc",
    "summarize_ranks",
    "tie_share",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'graphzoo.metrics' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
