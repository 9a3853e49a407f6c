"""`graphzoo dashboard`: the panels of a Weights & Biases workspace.

A panel is a plain tuple here, so that tests can look for its metrics in a run. `wandb-workspaces` makes the
workspace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from graphzoo.catalog.tasks import TASKS
from graphzoo.errors import UsageError

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Workspace


KINDS = tuple(task.kind for task in TASKS.values() if task.inference)

SECTIONS = ("Quality", "Optimisation", "Speed", "Data", "Comparison")

Kind = Literal["line", "number", "bars", "seeds", "seed bars", "table", "parallel"]


@dataclass(frozen=True)
class Panel:
    """One panel of the workspace."""

    section: str
    title: str
    # "line": curves over steps. "number" and "bars": values of the summary. "seeds" and "seed bars": lines
    # and bars of the mean over a group of runs, with one standard deviation. "table": a logged table.
    # "parallel": parallel coordinates.
    kind: Kind
    metrics: tuple[str, ...]  # logged names; names of settings begin with "config:"
    tasks: tuple[str, ...]  # short names of the tasks that have the panel


_Row = tuple[str, Kind, str, tuple[str, ...]]  # title, kind, metrics and tasks
_KG, _NODES, _LINKS = ("kg",), ("nodes",), ("links",)
_COMPARED = {"mrr": "MRR", "acc": "accuracy", "auroc": "ROC-AUC"}
_SCORES = _COMPARED | {"ap": "average precision"}
_HITS = {f"hits@{k}": f"Hits@{k}" for k in (20, 50, 100)}


def _each(scores: Mapping[str, str], title: str, kind: Kind, metrics: str) -> list[_Row]:
    """A row for each score, with the tasks that have it.

    The words of a score replace WORDS in the title, and its name replaces METRIC in the metrics.
    """
    rows = [task for task in TASKS.values() if task.inference]
    return [
        (
            title.replace("WORDS", words),
            kind,
            metrics.replace("METRIC", name),
            tuple(task.kind for task in rows if name in task.columns),
        )
        for name, words in scores.items()
    ]


def _settings(first: str, metric: str) -> str:
    names = ("model", "lr", "weight_decay", first, "encoder.hidden_channels", "encoder.num_layers")
    return " ".join([*(f"config:{name}" for name in names), metric])


_VALIDATION = "Validation WORDS, and the paper's on test"
_OVER_SEEDS = "WORDS and the paper's, mean ± std over seeds"
_TIES = "test/mrr_optimistic test/mrr_realistic test/mrr_pessimistic"
_KG_HITS = "val/hits@1 val/hits@3 val/hits@10 paper/hits@1 paper/hits@10"
_ROWS: dict[str, list[_Row]] = {
    "Quality": [
        *_each(_SCORES, _VALIDATION, "line", "val/METRIC paper/METRIC"),
        (_VALIDATION.replace("WORDS", "Hits@1, 3 and 10"), "line", _KG_HITS, _KG),
        *_each(_HITS, _VALIDATION, "line", "val/METRIC paper/METRIC"),
        ("Validation loss", "line", "val/loss", _NODES),
        *_each(_SCORES, "Test WORDS", "number", "test/METRIC"),
        ("Test Hits@1, 3 and 10", "bars", "test/hits@1 test/hits@3 test/hits@10", _KG),
        ("Test Hits@20, 50 and 100", "bars", "test/hits@20 test/hits@50 test/hits@100", _LINKS),
        ("Test MRR of queries for heads and for tails", "bars", "test/mrr_head test/mrr_tail", _KG),
        ("Gap between tails and heads", "number", "test/head_tail_gap", _KG),
        ("Test MRR by tie rule", "bars", _TIES, _KG),
        ("Share of answers that tie", "number", "test/tie_share", _KG),
        ("Relations", "table", "evaluation/relations", _KG),
        ("Triples ranked last", "table", "evaluation/worst", _KG),
        ("Triples ranked first", "table", "evaluation/best", _KG),
        ("Classes", "table", "evaluation/classes", _NODES),
        ("Confusion", "table", "evaluation/confusion", _NODES),
        ("States of test nodes", "table", "evaluation/embedding", _NODES),
        ("Scores of links and of other pairs", "table", "evaluation/scores", _LINKS),
        ("Hits@K over K", "table", "evaluation/hits", _LINKS),
    ],
    "Optimisation": [
        ("Training loss", "line", "train/loss", KINDS),
        ("Learning rate", "line", "train/lr", KINDS),
        ("Norm of the gradient", "line", "train/grad_norm", KINDS),
        ("Entropy of the attention", "line", "train/attention_entropy", KINDS),
        ("Loss of the edges (NodeFormer), weighted", "line", "train/auxiliary_loss", _NODES + _LINKS),
    ],
    "Speed": [
        ("Queries per second", "line", "train/queries_per_s", _KG),
        ("Nodes per second", "line", "train/nodes_per_s", _NODES),
        ("Pairs per second", "line", "train/pairs_per_s", _LINKS),
        ("Seconds per step: computing, waiting", "line", "train/step_seconds train/data_seconds", KINDS),
        ("Peak memory, GiB", "line", "train/peak_memory_gib", KINDS),
    ],
    "Data": [
        ("Nodes or entities", "number", "data/nodes", KINDS),
        ("Relations", "number", "data/relations", _KG),
        ("Sizes of the split", "bars", "data/train data/valid data/test", KINDS),
    ],
    "Comparison": [
        *_each(_COMPARED, f"Validation {_OVER_SEEDS}", "seeds", "val/METRIC paper/METRIC"),
        *_each(_COMPARED | _HITS, f"Test {_OVER_SEEDS}", "seed bars", "test/METRIC paper/METRIC"),
        ("Settings and test MRR", "parallel", _settings("loss", "test/mrr"), _KG),
        ("Settings and test accuracy", "parallel", _settings("dropout", "test/acc"), _NODES),
        ("Settings and test ROC-AUC", "parallel", _settings("dropout", "test/auroc"), _NODES),
        ("Settings and test MRR of links", "parallel", _settings("dropout", "test/mrr"), _LINKS),
        ("Parameters", "number", "model/parameters", KINDS),
    ],
}


def panels(task: str = "all") -> list[Panel]:
    """The panels of a task, by its short name, in the order of `SECTIONS`; "all" gives those of all tasks."""
    return [
        Panel(section, title, kind, tuple(metrics.split()), tasks)
        for section in SECTIONS
        for title, kind, metrics, tasks in _ROWS[section]
        if task in ("all", *tasks)
    ]


def workspace(project: str, entity: str, *, task: str = "all", name: str = "graphzoo") -> Workspace:
    """Make the workspace with the panels of a task, or of all tasks, without sending it.

    Raises:
        UsageError: if wandb-workspaces is not installed.
    """
    try:
        import wandb_workspaces.workspaces as ws
    except ImportError as error:
        raise UsageError(
            "the dashboard needs wandb-workspaces, which is not installed\n"
            "Install it: pip install 'graphzoo[dashboard]'"
        ) from error
    chosen = panels(task)
    return ws.Workspace(
        entity=entity,
        project=project,
        name=name,
        sections=[
            ws.Section(
                name=section,
                panels=[_made(panel) for panel in chosen if panel.section == section],
                is_open=section in ("Quality", "Comparison"),
            )
            for section in SECTIONS
        ],
        settings=ws.WorkspaceSettings(x_axis="trainer/global_step"),
    )


def _made(panel: Panel) -> Any:
    wr: Any = import_module("wandb_workspaces.reports.v2")
    over_seeds = {"groupby": "group", "groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}
    more = over_seeds if panel.kind.startswith("seed") else {}
    metrics = list(panel.metrics)
    if panel.kind in ("line", "seeds"):
        return wr.LinePlot(title=panel.title, x="trainer/global_step", y=metrics, **more)
    if panel.kind == "number":
        return wr.ScalarChart(title=panel.title, metric=wr.SummaryMetric(metrics[0]))
    if panel.kind in ("bars", "seed bars"):
        return wr.BarPlot(title=panel.title, metrics=[wr.SummaryMetric(name) for name in metrics], **more)
    if panel.kind == "table":
        return wr.WeavePanelSummaryTable(table_name=metrics[0])
    columns = [
        wr.ParallelCoordinatesPlotColumn(
            wr.Config(name.removeprefix("config:")) if name.startswith("config:") else wr.SummaryMetric(name)
        )
        for name in metrics
    ]
    return wr.ParallelCoordinatesPlot(title=panel.title, columns=columns)
