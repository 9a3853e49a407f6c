"""Tables of runs and rows on the terminal."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from graphzoo.catalog.settings import word_of
from graphzoo.catalog.tasks import PERCENT, TaskInfo
from graphzoo.runs.published import PROTOCOLS, split_protocol
from graphzoo.runs.row import main_metric
from graphzoo.system.shown import cell, console


def spread(name: str, mean: float, deviation: float | None) -> str:
    """A mean with its deviation as tables show it: `84.63 ± 0.15`; `test/` in the name is optional."""
    name, _ = split_protocol(name)
    return format_metric(name, mean) + ("" if deviation is None else f" ± {format_metric(name, deviation)}")


def shown_setting(value: Any) -> str:
    """A setting as tables show it.

    >>> shown_setting(6.0996950013282746e-05), shown_setting(None)
    ('6.1e-05', 'null')
    """
    return f"{value:.4g}" if isinstance(value, float) else word_of(value)


def how_many(judged: int | None, most: int | None, unit: str) -> str:
    """The number of samples behind a metric, with the total if some were left out; "" if it is unknown.

    >>> how_many(10, 10, "queries"), how_many(262, 1322, "queries"), how_many(None, 10, "pairs")
    (', 10 queries', ', 262 of 1,322 queries', '')
    """
    if judged is None or not unit:
        return ""
    return f", {judged:,} {unit}" if most in (None, judged) else f", {judged:,} of {most:,} {unit}"


def how_many_each(results: Sequence[Mapping[str, Any]], unit: str) -> str:
    """`how_many` for the runs of a row, as a range if their splits differ in size.

    >>> how_many_each([{"evaluated": 452}, {"evaluated": 443}], "nodes")
    ', 443 to 452 nodes'
    """
    texts = {how_many(result.get("evaluated"), result.get("tested"), unit) for result in results}
    if len(texts) == 1:
        return texts.pop()
    judged = [result["evaluated"] for result in results if result.get("evaluated") is not None]
    return f", {' to '.join(f'{count:,}' for count in sorted({min(judged), max(judged)}))} {unit}"


def telling(metrics: Iterable[str], negatives: int | None, *, keep: Container[str] = ()) -> list[str]:
    """The metrics without Hits@K for K above the number of negatives, where it is always 1.

    >>> telling(["test/mrr", "test/hits@10", "test/hits@20", "test/hits@50"], 10, keep=["test/hits@50"])
    ['test/mrr', 'test/hits@10', 'test/hits@50']
    """
    most = math.inf if negatives is None else negatives
    ends = {name: name.partition("hits@")[2] for name in metrics}
    return [name for name, k in ends.items() if name in keep or not k.isdecimal() or int(k) <= most]


def print_rows(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print one row with all its metrics, or the rows of an ablation with their main metric."""
    from rich.table import Table

    table = Table(title=cell(title), title_justify="left", min_width=50)
    named = len(rows) > 1 or rows[0]["name"]
    if named:
        table.add_column("")
    for column in ("metric", "mean ± std", "paper", "difference"):
        table.add_column(column, justify="left" if column == "metric" else "right")
    for row in rows:
        of_paper = [name for name, figure in row["metrics"].items() if figure["paper"] is not None]
        shown_metrics = telling(row["metrics"], row.get("negatives"), keep=of_paper)
        for metric in [main_metric(row)] if named else shown_metrics:
            figure = row["metrics"][metric]
            (name, protocol), published, difference = split_protocol(metric), figure["paper"], ""
            if published is not None and not math.isnan(figure["mean"]):
                sign = "+" if figure["mean"] >= published else "-"
                difference = sign + format_metric(name, abs(figure["mean"] - published))
            paper = "" if published is None else spread(name, published, figure["paper_std"])
            shown = ", ".join(filter(None, [PERCENT.get(name, name), protocol]))
            cells = [shown, spread(name, figure["mean"], figure["std"]), paper, difference]
            table.add_row(*map(cell, [*([row["name"] or ""] if named else []), *cells]))
    console().print(table)
    for protocol in dict.fromkeys(row["protocol"] for row in rows if row.get("protocol")):
        console().print(cell(f"evaluated {protocol}"))
    compared = any(figure["paper"] for figure in rows[0]["metrics"].values())
    if not named and rows[0].get("differs"):
        console().print(cell(f"differs from the {'paper' if compared else 'recipe'}: {rows[0]['differs']}"))


def print_table(
    title: str, metrics: Mapping[str, float], rows: list[dict[str, Any]], split: str, task: TaskInfo | None
) -> None:
    """Print the metrics of a split; for queries also those of each direction.

    Args:
        title: The title.
        metrics: Logged values by name, such as "test/mrr".
        rows: Metrics per relation, as in `task.test_table`; only those over all relations are shown.
        split: "val" or "test".
        task: Says which metrics are shown; None for a user's own task, for which all are.
    """
    from rich.table import Table

    unit, columns = (task.unit, task.columns) if task else ("", {})
    names = [name for name in columns if f"{split}/{name}" in metrics]
    table = Table(title=cell(title), title_justify="left", min_width=len(title) + 2)
    if unit == "links":  # too many metrics for one line
        table.add_column("links")
        table.add_column({"val": "validation"}.get(split, split), justify="right")
        for name in names:
            table.add_row(columns[name], format_metric(name, metrics[f"{split}/{name}"]))
        console().print(table)
        return
    table.add_column(unit)
    for name in names or metrics:
        table.add_column(cell(columns.get(name, name)), justify="right")
    if names:
        label = "both directions" if unit == "queries" else {"val": "validation"}.get(split, split)
        table.add_row(label, *(format_metric(name, metrics[f"{split}/{name}"]) for name in names))
    else:
        table.add_row("all", *(format_metric(name, value) for name, value in metrics.items()))
    left = ["head", "tail"]
    for row in rows:
        # Only the first row of each direction counts, since a relation may be called "all".
        if row.get("relation") == "all" and row.get("direction") in left:
            left.remove(row["direction"])
            cells = [format_metric(name, row[name]) if name in row else "" for name in names]
            table.add_row(row["direction"], *cells)
    for other, words in PROTOCOLS.items():
        if f"{split}/{other}/mrr" in metrics:
            cells = [format_metric(name, metrics[f"{split}/{other}/{name}"]) for name in names]
            table.add_row(f"both, {words}", *cells)
    console().print(table)


def format_metric(name: str, value: float) -> str:
    """A metric as tables show it: accuracy, ROC-AUC and AP in per cent, mean ranks with one decimal.

    >>> format_metric("acc", 0.8234), format_metric("mrr", 0.8234)
    ('82.34', '0.8234')
    """
    if name in PERCENT:
        return f"{100 * value:.2f}"
    return f"{value:.1f}" if name == "mr" else f"{value:.4f}"
