"""The table of tasks: their classes, the encoders that they take, and their metrics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from graphzoo.catalog.classes import encoder_plugins
from graphzoo.catalog.presets import Preset, list_presets
from graphzoo.errors import UsageError

RANKING = {"mrr": "MRR", "hits@1": "Hits@1", "hits@3": "Hits@3", "hits@10": "Hits@10", "mr": "MR"}
_PREDICT = "graphzoo.cli.predict_tables"
_PROGRAM = "graphzoo.inference.program"
# Metrics that are usually reported in per cent. results.json has them as shares.
PERCENT = {"acc": "accuracy %", "auroc": "ROC-AUC %", "ap": "AP %"}


_ERRORS = ("mr", "rmse")


def is_error(metric: str) -> bool:
    """Whether lower values of a metric are better; takes its short or its logged name.

    >>> is_error("rmse"), is_error("test/whole_graph/mr"), is_error("test/mrr")
    (True, True, False)
    """
    return metric.rpartition("/")[2] in _ERRORS


@dataclass(frozen=True)
class TaskInfo:
    """A row of the table: all facts about a task that are needed before its class is imported.

    A new task is a class and a row here. Functions are named by import path; see `function_of`.
    """

    kind: str  # short name, in files of a run and for `graphzoo dashboard`
    title: str  # name of the task in the literature
    class_path: str  # class path of the LightningModule
    datamodule: str  # class of the data
    accepts: tuple[str, ...]  # kinds of encoder that it takes (`kind` in the header of a model preset)
    reason: str  # why it takes no other kind, for messages
    unit: str  # what is evaluated: nodes, links, queries or pairs
    columns: Mapping[str, str]  # metrics and their names in tables, the main one first
    monitor: str = "auto"  # metric of early stopping and, by default, checkpoints; "auto": the task decides
    mode: str = "max"  # "max" or "min" of this metric
    inference: str = ""  # class of `graphzoo.inference` for its models; "" if there is none
    example: str = "model.predict(...)"  # call of that class, for the model card
    options: tuple[str, ...] = ()  # options of `graphzoo predict` for this task, those with questions first
    needed: str = ""  # error of predict if no question is given; "" if none is needed
    tables: tuple[str, str] = ("", "")  # functions of (model, arguments): answers, and scores of given rows
    pictures: str = ""  # function of (model, record, options, prefix, depth_drawn): pictures for a report
    program: str = ""  # function of (task, scale): the module that `graphzoo export --to torch.export` traces
    compared: tuple[str, ...] = ()  # models that `graphzoo compare` tries, simple ones first
    facts: str = ""  # function of a data module: facts of its graph that explain which model does well
    has_splits: bool = True  # whether its data by name can have several splits


def _percent(*names: str) -> dict[str, str]:
    return {name: PERCENT[name] for name in names}


TASKS = {
    "heuristic-estimation": TaskInfo(
        kind="pairs",
        title="estimation of link heuristics",
        class_path="graphzoo.tasks.HeuristicEstimation",
        datamodule="LinkDataModule",
        accepts=("pair",),
        reason="it needs an encoder that sees only the subgraph around a pair of nodes",
        unit="pairs",
        columns={"rmse": "RMSE"},
        monitor="val/rmse",
        mode="min",
    ),
    "kg-completion": TaskInfo(
        kind="kg",
        title="knowledge-graph completion",
        class_path="graphzoo.tasks.KGCompletion",
        datamodule="KGDataModule",
        accepts=("query",),
        reason="it needs an encoder that answers (head, relation, ?) with a state for every entity",
        unit="queries",
        columns=RANKING,
        monitor="val/mrr",
        inference="KGModel",
        example='model.predict(head="...", relation="...", k=10)',
        options=(
            *("queries", "score", "batch_size", "explain", "reverse_weight"),
            *("top_k", "known", "candidates"),
        ),
        needed="give either --queries FILE (top answers) or --score FILE (scores of given facts)",
        tables=(f"{_PREDICT}.answer_tables", f"{_PREDICT}.score_tables"),
        pictures="graphzoo.report.models.choose.of_facts",
        program=f"{_PROGRAM}.of_facts",
        compared=("knowformer-any", "knowformer-any, fine-tuned", "knowformer"),
        facts="graphzoo.search.facts.of_triples",
        has_splits=False,
    ),
    "link-prediction": TaskInfo(
        kind="links",
        title="link prediction",
        class_path="graphzoo.tasks.LinkPrediction",
        datamodule="LinkDataModule",
        accepts=("pair", "node", "query", "heuristic"),
        reason="it needs an encoder that turns node pairs, nodes or queries into states",
        unit="links",
        columns=RANKING | {f"hits@{k}": f"Hits@{k}" for k in (20, 50, 100)} | _percent("auroc", "ap"),
        inference="LinkModel",
        example='model.predict(["..."], k=10)',
        options=("nodes", "score", "batch_size", "top_k", "known", "candidates"),
        needed="give either --nodes FILE (best partners of these nodes) or --score FILE (scores of pairs)\n"
        "For the best partners of every node, list all nodes in the file",
        tables=(f"{_PREDICT}.partner_tables", f"{_PREDICT}.pair_tables"),
        pictures="graphzoo.report.models.choose.of_pairs",
        program=f"{_PROGRAM}.of_links",
        compared=(
            *("heuristic.cn", "heuristic.aa", "heuristic.ra", "heuristic.katz"),
            *("gcn", "sage", "pencil", "knowformer"),
        ),
        facts="graphzoo.search.facts.of_links",
    ),
    "node-classification": TaskInfo(
        kind="nodes",
        title="node classification",
        class_path="graphzoo.tasks.NodeClassification",
        datamodule="NodeDataModule",
        accepts=("node",),
        reason="it needs an encoder that turns node features into a state for every node",
        unit="nodes",
        columns=_percent("acc", "auroc") | {"loss": "loss"},
        inference="NodeModel",
        example="model.predict()",
        options=("nodes", "probabilities", "embeddings"),
        tables=(f"{_PREDICT}.label_tables", f"{_PREDICT}.label_tables"),
        pictures="graphzoo.report.models.choose.of_nodes",
        program=f"{_PROGRAM}.of_nodes",
        compared=("mlp", "sgc", "gcn", "sage", "gat", "galit", "sgformer", "nodeformer", "polynormer"),
        facts="graphzoo.search.facts.of_nodes",
    ),
}


def task_of(value: object) -> TaskInfo | None:
    """The row of a task, given as an object, a class or `graphzoo.tasks.NAME`; None if it has no row."""
    if isinstance(value, str):
        names = [value]
    else:
        classes = (value if isinstance(value, type) else type(value)).__mro__
        names = [f"{'.'.join(each.__module__.split('.')[:2])}.{each.__name__}" for each in classes]
    return next((row for name in names for row in TASKS.values() if row.class_path == name), None)


def task_of_data(name: str) -> TaskInfo | None:
    """The task of a data preset; None for other names."""
    presets = (preset for preset in list_presets("data") if preset.name == name)
    return next((TASKS.get(preset.header.get("task", "")) for preset in presets), None)


def check_same_task(described: Mapping[str, Any], task: TaskInfo | None, name: str) -> None:
    """Refuse weights that another task has trained.

    Args:
        described: The description that is saved with the weights.
        task: The task of the data; None checks nothing.
        name: Name of the weights, for the message.

    Raises:
        UsageError: if the tasks differ.
    """
    own = task_of(described.get("task"))
    if task is not None and own is not None and own is not task:
        raise UsageError(
            f"{name} is a model for {own.title}, but the data are for {task.title}\n"
            f"Give data for {own.title} by name, or --data {own.kind} --data.path YOURS"
        )


def inference_of(task_class: type) -> str:
    """The class of `graphzoo.inference` for models of a task; "" if there is none."""
    rows = filter(None, map(task_of, task_class.__mro__))
    return next((row.inference for row in rows if row.inference), "")


def function_of(path: str) -> Callable[..., Any]:
    """Import the function that a row names by its path."""
    module, _, name = path.rpartition(".")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def usual_task(kind: str) -> str | None:
    """The usual task of a kind of encoder; None if there is none."""
    return next((name for name, row in TASKS.items() if row.inference and row.accepts[0] == kind), None)


def inference_task(model: object) -> TaskInfo:
    """The row of the task of a `KGModel`, `LinkModel` or `NodeModel`."""
    return next(row for row in TASKS.values() if row.inference == type(model).__name__)


def check_task(data: Preset, model: Preset) -> None:
    """Refuse a model whose encoder the task of the data cannot use.

    Raises:
        UsageError: if so; the message has the reason and the models that fit.
    """
    task = TASKS.get(data.header.get("task", ""))
    kind = model.header.get("kind", "")
    if task is None or not kind or kind in task.accepts:
        return
    raise UsageError(
        f"model {model.name} (a {kind} encoder) cannot be used on {data.name}, whose task is "
        f"{data.header['task']}: {task.reason}\nModels for it: {', '.join(models_with(task.accepts))}"
    )


def models_with(kinds: Collection[str]) -> list[str]:
    """The names of model presets whose encoder is of one of these kinds."""
    return [preset.name for preset in list_presets("model") if preset.header.get("kind") in kinds]


def model_names() -> list[str]:
    """All names that `--model` accepts."""
    return [*(preset.name for preset in list_presets("model")), *encoder_plugins()]
