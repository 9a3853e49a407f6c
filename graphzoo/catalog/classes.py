"""Which tasks there are, which encoders they take, and whose classes may be imported on the word of a file.

Standard library only. Encoders of other packages register under the entry-point group `graphzoo.encoders`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from graphzoo.catalog.presets import Preset, list_presets
from graphzoo.errors import UsageError, nearest, normalise

__all__ = [
    "ENCODER_GROUP",
    "TASKS",
    "TaskInfo",
    "check_task",
    "class_path",
    "encoder_plugins",
    "find_plugin",
    "is_trusted",
    "load_class",
]

ENCODER_GROUP = "graphzoo.encoders"


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


def encoder_plugins() -> dict[str, EntryPoint]:
    """Encoders that other installed packages offer, by name."""
    return {entry.name: entry for entry in entry_points(group=ENCODER_GROUP)}


def find_plugin(name: str) -> EntryPoint | None:
    """The plug-in encoder of that name, compared like preset names."""
    for plugin, entry in encoder_plugins().items():
        if normalise(plugin) == normalise(name):
            return entry
    return None


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


def is_trusted(class_path: str) -> bool:
    """Whether a file that is not the user's own command line may have this class imported.

    True for graphzoo's own, Lightning's and torch's classes, plug-ins and imported classes made of these.
    """
    module, _, name = class_path.rpartition(".")
    if module.partition(".")[0] in {"graphzoo", "lightning"} or module.startswith(
        ("torch.optim", "torchmetrics.")
    ):
        return True
    if any(entry.value.replace(":", ".") == class_path for entry in encoder_plugins().values()):
        return True
    # Imported already and made for this purpose: `subprocess.Popen` is imported too.
    bases = getattr(getattr(sys.modules.get(module), name, None), "__mro__", ())
    return any(base.__module__.partition(".")[0] in {"graphzoo", "lightning"} for base in bases)


def class_path(value: object) -> str:
    """Dotted path of an object's class; graphzoo's own classes by their public, not their file's name."""
    cls = type(value)
    module = cls.__module__
    if module.startswith("graphzoo."):
        module = ".".join(module.split(".")[:2])
    return f"{module}.{cls.__qualname__}"


def load_class(path: str, source: str | os.PathLike[str], *, trust: bool = False) -> type:
    """Import a class that a file names.

    Args:
        path: Its dotted path.
        source: The file, for messages.
        trust: Import it even if nobody registered or imported it.

    Raises:
        UsageError: if it is not trusted, not there, or no class.
    """
    module, _, name = path.rpartition(".")
    if not module:
        raise UsageError(f"{source}: {path!r} is no dotted class path")
    for entry in encoder_plugins().values():
        # A plug-in may be registered by a shorter path than that of the module which defines its class.
        if entry.value.partition(":")[0].partition(".")[0] == module.partition(".")[0]:
            plugin: type = entry.load()
            if path in (entry.value.replace(":", "."), f"{plugin.__module__}.{plugin.__qualname__}"):
                return plugin
    if not (trust or is_trusted(path)):
        raise UsageError(
            f"{source}: names the class {path}, which is neither graphzoo's, nor a plug-in's, nor "
            "imported. Import its module first, or say trust=True (--trust) if you trust the file"
        )
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{source}: {path} cannot be imported: {error}") from error
    if not isinstance(found, type):
        raise UsageError(f"{source}: {path} is no class")
    return found


def model_names() -> list[str]:
    """Every name `--model` knows."""
    return [*(preset.name for preset in list_presets("model")), *encoder_plugins()]


def nearest_model(name: str) -> list[str]:
    """Names like `name`, the best first."""
    return nearest(name, model_names())
