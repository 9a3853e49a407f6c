"""Which tasks there are, and which encoders they take."""

from __future__ import annotations

from dataclasses import dataclass

from graphzoo.catalog.classes import encoder_plugins
from graphzoo.catalog.presets import Preset, list_presets
from graphzoo.errors import UsageError, nearest

__all__ = ["TASKS", "TaskInfo", "check_task", "model_names", "nearest_model"]


@dataclass(frozen=True)
class TaskInfo:
    """What the command has to know of a task before importing it.

    Args:
        class_path: The LightningModule.
        accepts: Kinds of encoder it can work with (`kind` in a model preset's header).
        reason: Why it takes no other.
        monitor: The validation metric that selects checkpoints and stops early; "auto" where it depends on
            the data, and the task knows it then.
        mode: "max" or "min" of it.
    """

    class_path: str
    accepts: tuple[str, ...]
    reason: str
    monitor: str = "auto"
    mode: str = "max"


TASKS = {
    "heuristic-estimation": TaskInfo(
        "graphzoo.tasks.HeuristicEstimation",
        ("pair",),
        "it needs an encoder that sees no more than the subgraph around a pair of nodes",
        monitor="val/rmse",
        mode="min",
    ),
    "kg-completion": TaskInfo(
        "graphzoo.tasks.KGCompletion",
        ("query",),
        "it needs an encoder that answers (head, relation, ?) with a state for every entity",
        monitor="val/mrr",
    ),
    "link-prediction": TaskInfo(
        "graphzoo.tasks.LinkPrediction",
        ("pair", "node", "query", "heuristic"),
        "it needs an encoder that turns node pairs, nodes or queries into states",
    ),
    "node-classification": TaskInfo(
        "graphzoo.tasks.NodeClassification",
        ("node",),
        "it needs an encoder that turns node features into a state for every node, whatever is asked",
    ),
}


def check_task(data: Preset, model: Preset) -> None:
    """Refuse an encoder that the data's task cannot use.

    Raises:
        UsageError: naming the reason and the models that fit.
    """
    task = TASKS.get(data.header.get("task", ""))
    kind = model.header.get("kind", "")
    if task is None or not kind or kind in task.accepts:
        return
    fitting = [preset.name for preset in list_presets("model") if preset.header.get("kind") in task.accepts]
    raise UsageError(
        f"model {model.name} (a {kind} encoder) cannot be used on {data.name}, whose task is "
        f"{data.header['task']}: {task.reason}\nModels for it: {', '.join(fitting)}"
    )


def model_names() -> list[str]:
    """Every name `--model` knows."""
    return [*(preset.name for preset in list_presets("model")), *encoder_plugins()]


def nearest_model(name: str) -> list[str]:
    """Names like `name`, the best first."""
    return nearest(name, model_names())
