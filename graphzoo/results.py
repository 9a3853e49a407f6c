"""results.json and the table at the end of a run."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["FORMAT", "config_hash", "print_table", "write_results", "write_rows"]

FORMAT = 1

_COLUMNS = {"mrr": "MRR", "hits@1": "Hits@1", "hits@3": "Hits@3", "hits@10": "Hits@10", "mr": "MR"}
# What differs between machines, not between results.
_MACHINE = {"root", "download", "num_workers", "seed", "path"}
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
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _without(section: Any, names: set[str]) -> Any:
    if not isinstance(section, Mapping):
        return section
    arguments = section.get("init_args") or {}
    return {**section, "init_args": {key: value for key, value in arguments.items() if key not in names}}


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


def print_table(title: str, metrics: Mapping[str, float], rows: list[dict[str, Any]], split: str) -> None:
    """Print the figures of a split: both directions, then those of the head and tail queries.

    Args:
        title: Above the table.
        metrics: Logged values such as `test/mrr`.
        rows: Table per relation and direction, as `task.test_table`; rows of all relations are shown.
        split: "val" or "test".
    """
    from rich import get_console
    from rich.table import Table

    names = [name for name in _COLUMNS if f"{split}/{name}" in metrics]
    table = Table(title=title, title_justify="left", min_width=len(title) + 2)
    table.add_column("queries")
    for name in names or metrics:
        table.add_column(_COLUMNS.get(name, name), justify="right")
    if names:
        table.add_row("both directions", *(_format(name, metrics[f"{split}/{name}"]) for name in names))
    else:
        table.add_row("all", *(_format(name, value) for name, value in metrics.items()))
    for row in rows:
        if row.get("relation") == "all" and row.get("direction") in ("head", "tail"):
            cells = [_format(name, row[name]) if name in row else "" for name in names]
            table.add_row(row["direction"], *cells)
    get_console().print(table)


def _format(name: str, value: float) -> str:
    return f"{value:.1f}" if name == "mr" else f"{value:.4f}"
