"""results.json and the table at the end of a run."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphzoo.system.shown import cell, console

__all__ = [
    "FORMAT",
    "PERCENT",
    "SELECTED",
    "config_hash",
    "format_metric",
    "print_table",
    "selection_of",
    "shaping_callbacks",
    "write_results",
    "write_rows",
]

FORMAT = 1

# Which checkpoint was judged, as results.json says it; null for one that the user named otherwise, or none.
SELECTED = ("best validation", "last epoch", "last epoch, never validated")

_RANKING = {"mrr": "MRR", "hits@1": "Hits@1", "hits@3": "Hits@3", "hits@10": "Hits@10", "mr": "MR"}
# The field gives these in per cent; results.json has them as they are.
PERCENT = {"acc": "accuracy %", "auroc": "ROC-AUC %", "ap": "AP %"}
_LINKS = _RANKING | {f"hits@{k}": f"Hits@{k}" for k in (20, 50, 100)} | PERCENT
_ERRORS = {"rmse": "RMSE"}
# What differs between machines or between the runs of one row, not between settings.
_MACHINE = {"root", "download", "num_workers", "seed", "path", "split_index"}
_TRAINER = (
    "max_epochs",
    "max_steps",
    "precision",
    "gradient_clip_val",
    "accumulate_grad_batches",
    "limit_train_batches",
    "limit_val_batches",
    "limit_test_batches",
)


# Callbacks that look on, or keep what there is: no figure depends on them.
_WATCHING = ("Checkpoint", "Monitor", "ProgressBar", "Summary", "PredictionWriter")


def shaping_callbacks(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The callbacks of a run on which its figures depend, such as averages of the weights.

    Args:
        config: The whole configuration as plain values.

    Returns:
        `class_path` and `init_args` of each, without arguments that are None.
    """
    given: Any = (config.get("trainer") or {}).get("callbacks") or []
    kept = []
    for entry in given if isinstance(given, list) else [given]:
        described: Any = entry if isinstance(entry, Mapping) else {"class_path": str(entry)}
        path = _public_path(str(described.get("class_path")))
        if not path.endswith(_WATCHING):
            given_arguments = described.get("init_args")
            arguments = dict(given_arguments) if isinstance(given_arguments, Mapping) else {}
            kept.append({"class_path": path, "init_args": _without_none(arguments)})
    return kept


def _public_path(path: str) -> str:
    """The name by which a package shows a class of one of its modules, so that both spellings are one."""
    for package in ("graphzoo.callbacks", "lightning.pytorch.callbacks"):
        if path.startswith(f"{package}."):
            return f"{package}.{path.rpartition('.')[2]}"
    return path


def _without_none(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: arguments[name] for name in sorted(arguments) if arguments[name] is not None}


def config_hash(config: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits that runs with the same settings share, whatever their seed and machine.

    Args:
        config: The whole configuration as plain values.
    """
    kept = {
        "model": _without(config.get("model"), {"seed"}),
        "data": _without(config.get("data"), _MACHINE),
        "trainer": {name: (config.get("trainer") or {}).get(name) for name in _TRAINER},
    }
    if callbacks := shaping_callbacks(config):
        kept["callbacks"] = callbacks
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _without(section: Any, names: set[str]) -> Any:
    if not isinstance(section, Mapping):
        return section
    arguments = section.get("init_args") or {}
    return {**section, "init_args": {key: value for key, value in arguments.items() if key not in names}}


def selection_of(result: Mapping[str, Any]) -> str | None:
    """Which checkpoint the figures of a results.json are of: one of `SELECTED`, or None.

    Args:
        result: Its content; that of earlier versions does not say so itself.
    """
    if "selection" in result:
        found = result["selection"]
        return found if found in SELECTED else None
    if result.get("best_epoch") is None:
        return None
    if Path(str(result.get("checkpoint") or "best.ckpt")).name == "best.ckpt":
        return SELECTED[0]
    if result.get("command", "fit") != "fit":
        return None  # what a test was given then left no trace of having been validated
    return SELECTED[1] if result.get("validation") else SELECTED[2]


def write_results(path: Path, content: Mapping[str, Any]) -> None:
    """Write results.json in one piece: a reader sees all of it or none.

    Args:
        path: The file.
        content: Plain values; numbers keep their full precision.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".json.part")
    temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write dictionaries with the same keys as CSV.

    Args:
        path: The file.
        rows: At least one.
    """
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)


# The other protocol of a model that trains in neighbourhoods, in words.
_PROTOCOLS = {"whole_graph": "on the whole graph", "neighbourhood": "in neighbourhoods"}


def print_table(title: str, metrics: Mapping[str, float], rows: list[dict[str, Any]], split: str) -> None:
    """Print the figures of a split: of nodes or links, or of both directions, then of head and tail queries.

    Args:
        title: Above the table.
        metrics: Logged values such as `test/mrr`.
        rows: Table per relation and direction, as `task.test_table`; rows of all relations are shown.
        split: "val" or "test".
    """
    from rich.table import Table

    judged, columns = "nodes", PERCENT
    if f"{split}/mrr" in metrics:
        judged, columns = ("queries", _RANKING) if f"{split}/mr" in metrics else ("links", _LINKS)
    elif f"{split}/rmse" in metrics:
        judged, columns = "pairs", _ERRORS
    names = [name for name in columns if f"{split}/{name}" in metrics]
    table = Table(title=cell(title), title_justify="left", min_width=len(title) + 2)
    if judged == "links":  # too many figures for one line
        table.add_column("links")
        table.add_column({"val": "validation"}.get(split, split), justify="right")
        for name in names:
            table.add_row(columns[name], format_metric(name, metrics[f"{split}/{name}"]))
        console().print(table)
        return
    table.add_column(judged)
    if names and judged == "nodes":
        names.append("loss")
    for name in names or metrics:
        table.add_column(cell(columns.get(name, name)), justify="right")
    if names:
        label = "both directions" if judged == "queries" else {"val": "validation"}.get(split, split)
        table.add_row(label, *(format_metric(name, metrics[f"{split}/{name}"]) for name in names))
    else:
        table.add_row("all", *(format_metric(name, value) for name, value in metrics.items()))
    left = ["head", "tail"]
    for row in rows:
        # The first of each direction: a relation may itself be called "all".
        if row.get("relation") == "all" and row.get("direction") in left:
            left.remove(row["direction"])
            cells = [format_metric(name, row[name]) if name in row else "" for name in names]
            table.add_row(row["direction"], *cells)
    for other in _PROTOCOLS:
        if f"{split}/{other}/mrr" in metrics:
            cells = [format_metric(name, metrics[f"{split}/{other}/{name}"]) for name in names]
            table.add_row(f"both, {_PROTOCOLS[other]}", *cells)
    console().print(table)


def format_metric(name: str, value: float) -> str:
    """A figure as tables show it: accuracy, ROC-AUC and AP in per cent, mean ranks with one digit.

    >>> format_metric("acc", 0.8234), format_metric("mrr", 0.8234)
    ('82.34', '0.8234')
    """
    if name in PERCENT:
        return f"{100 * value:.2f}"
    return f"{value:.1f}" if name == "mr" else f"{value:.4f}"
