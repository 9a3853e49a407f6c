"""Ranking and classification metrics, whose results do not depend on batches or processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.metrics.classification import Accuracy as Accuracy
    from graphzoo.metrics.classification import RocAuc as RocAuc
    from graphzoo.metrics.classification import roc_auc as roc_auc
    from graphzoo.metrics.links import LinkMetric as LinkMetric
    from graphzoo.metrics.links import link_figures as link_figures
    from graphzoo.metrics.links import link_ranks as link_ranks
    from graphzoo.metrics.ranking import HitsAtK as HitsAtK
    from graphzoo.metrics.ranking import RankingMetric as RankingMetric
    from graphzoo.metrics.ranks import filtered_ranks as filtered_ranks
    from graphzoo.metrics.ranks import rank_targets as rank_targets
    from graphzoo.metrics.summary import group_table as group_table
    from graphzoo.metrics.summary import summarize_ranks as summarize_ranks
    from graphzoo.metrics.summary import tie_share as tie_share

__getattr__, __dir__, __all__ = attach(__name__)
