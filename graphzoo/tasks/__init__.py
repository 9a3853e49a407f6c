"""Tasks: one LightningModule each, with loss, metrics and optimiser. A task knows only an encoder's kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.tasks.base import Task as Task
    from graphzoo.tasks.heuristic_estimation import HeuristicEstimation as HeuristicEstimation
    from graphzoo.tasks.kg_completion import KGCompletion as KGCompletion
    from graphzoo.tasks.link_prediction import LinkPrediction as LinkPrediction
    from graphzoo.tasks.node_classification import NodeClassification as NodeClassification

__getattr__, __dir__, __all__ = attach(__name__)
