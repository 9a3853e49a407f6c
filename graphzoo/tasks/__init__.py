"""Tasks: one LightningModule each, with loss, metrics and optimiser; encoders are known by kind only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.tasks.base import Task as Task
    from graphzoo.tasks.heuristic_estimation import HeuristicEstimation as HeuristicEstimation
    from graphzoo.tasks.kg_completion import KGCompletion as KGCompletion
    from graphzoo.tasks.link_prediction import LinkPrediction as LinkPrediction
    from graphzoo.tasks.node_classification import NodeClassification as NodeClassification

_LAZY = {
    "Task": "base",
    "HeuristicEstimation": "heuristic_estimation",
    "KGCompletion": "kg_completion",
    "LinkPrediction": "link_prediction",
    "NodeClassification": "node_classification",
}

__all__ = ["HeuristicEstimation", "KGCompletion", "LinkPrediction", "NodeClassification", "Task"]

__getattr__, __dir__ = attach(__name__, _LAZY)
