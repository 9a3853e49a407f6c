"""`graphzoo results [PATH...]`: finished rows and runs as one table."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphzoo.checkpoints import RUNS
from graphzoo.errors import UsageError, suggestion
from graphzoo.rows import SHOWN, compare, main_metric, mean_and_deviation, published_values, read_row, spread
from graphzoo.runs import take_flag, take_option

__all__ = ["collect", "results_main", "to_markdown"]

USAGE = (
    "usage: graphzoo results [PATH...] [--format table|markdown|csv] [--metric NAME]\n"
    "       [--data A,B] [--model A,B] [--commands]"
)
_FORMATS = ("table", "markdown", "csv")
_COLUMNS = ("data", "model", "metric", "ours", "runs", "paper", "", "differs", "command")


def results_main(argv: list[str]) -> int:
    """Print rows that `graphzoo reproduce` made, and single runs, the paper's figures beside them.

    Args:
        argv: Files `row.json` or folders that hold some, at any depth (`runs` by default); single runs are
            shown where they belong to no row. `--format`, `--metric` (the first of each row by default),
            `--data` and `--model` (names, with commas), `--commands` (what makes each row again).
    """
    if "-h" in argv or "--help" in argv:
        sys.stdout.write(USAGE + "\n")
        return 0
    form, rest = take_option(argv, "--format", "table", USAGE)
    metric, rest = take_option(rest, "--metric", "", USAGE)
    datas, rest = take_option(rest, "--data", "", USAGE)
    models, rest = take_option(rest, "--model", "", USAGE)
    commands, rest = take_flag(rest, "--commands")
    if form not in _FORMATS:
        hint = suggestion(form, _FORMATS) or f"There are: {', '.join(_FORMATS)}"
        raise UsageError(f"unknown format {form!r}\n{hint}")
    if odd := [word for word in rest if word.startswith("-")]:
        raise UsageError(f"unknown option {odd[0]}\n{USAGE}")
    rows = collect([Path(word) for word in rest] or [RUNS])
    wanted = f"test/{metric.removeprefix('test/')}" if metric else ""
    for key, names in (("data", datas), ("model", models)):
        if names:
            rows = [row for row in rows if row[key] in names.split(",")]
    rows = [row for row in rows if not wanted or wanted in row["metrics"]]
    if not rows:
        raise UsageError("there are no such results\nMake some: graphzoo reproduce galit cora --seeds 0,1,2")
    lines = [_line(row, wanted, commands=commands) for row in rows]
    if form == "table":
        _print(lines)
    else:
        sys.stdout.write(to_markdown(lines) if form == "markdown" else _to_csv(rows))
    return 0


def collect(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Rows in files and below folders, sorted by data, model and recipe.

    Args:
        paths: Files `row.json` or folders.

    Raises:
        UsageError: for a path that is not there and a file that is no row.
    """
    found: dict[Path, dict[str, Any]] = {}
    for path in paths:
        if path.is_file():
            found[path] = read_row(path)
        elif path.is_dir():
            found |= {file: read_row(file) for file in sorted(path.rglob("row.json"))}
            found |= {file: row for file in sorted(path.rglob("results.json")) if (row := _single_run(file))}
        elif path == RUNS:
            continue
        else:
            raise UsageError(f"there is no {path}\nGive a folder of runs or a row.json")
    order = ("data", "model", "recipe", "name")
    return sorted(found.values(), key=lambda row: tuple(row.get(key) or "" for key in order))


def _single_run(path: Path) -> dict[str, Any] | None:
    """A finished run that belongs to no row, as a row of one."""
    if (path.parent.parent / "command.json").is_file():
        return None
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        metrics = result["metrics"].items()
        tested = {name: float(value) for name, value in metrics if name.startswith("test/")}
        model, data, recipe = str(result["model"]), str(result["data"]), result.get("recipe") or ""
        trained = result.get("command") == "fit" or result.get("checkpoint") or not result["num_parameters"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is damaged ({error})\nMove it away, or run it again") from error
    names = [name for name in SHOWN if name in tested] or sorted(tested)
    if not names or not trained:  # weights as they were drawn are no result
        return None
    try:
        published = published_values(model, recipe, data)
    except UsageError:
        published = {}  # a recipe that is no longer there
    found: dict[str, Any] = {}
    for name in names:
        mean, deviation = mean_and_deviation([tested[name]])
        paper = published.get(name)
        found[name] = {
            "mean": mean,
            "std": deviation,
            "paper": paper.value if paper else None,
            "paper_std": paper.deviation if paper else None,
            "values": [tested[name]],
        }
    seeds = [result["seed"]] if result.get("seed") is not None else []
    content = {"model": model, "data": data, "recipe": recipe or None, "name": None, "differs": None}
    return {**content, "seeds": seeds, "splits": None, "metrics": found}


def _line(row: Mapping[str, Any], metric: str, *, commands: bool) -> list[str]:
    from graphzoo.results import PERCENT

    metric = metric or main_metric(row)
    found = row["metrics"][metric]
    name = metric.removeprefix("test/")
    model = row["model"]
    recipe = (row.get("recipe") or "").rpartition("/")[2]
    if recipe and recipe != row["data"]:
        model += f" ({recipe})"
    if row.get("name"):
        model += f": {row['name']}"
    paper, paper_std = found.get("paper"), found.get("paper_std")
    published = "" if paper is None else spread(name, paper, paper_std)
    shown = PERCENT.get(name, name)
    runs = str(len(found["values"]))
    told = compare(found["mean"], paper, paper_std)
    ours = spread(name, found["mean"], found["std"])
    command = f"`{row['command']}`" if commands and row.get("command") else ""
    return [row["data"], model, shown, ours, runs, published, told, row.get("differs") or "", command]


def _print(lines: list[list[str]]) -> None:
    from rich import get_console
    from rich.table import Table

    kept = [place for place in range(len(_COLUMNS)) if any(line[place] for line in lines)]
    table = Table()
    for place in kept:
        right = _COLUMNS[place] in ("ours", "runs", "paper")
        table.add_column(_COLUMNS[place], justify="right" if right else "left", overflow="fold")
    for line in lines:
        table.add_row(*(line[place] for place in kept))
    console = get_console()
    console.print(table, width=None if console.is_terminal else 200)  # a file has no edge to fold at


def to_markdown(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as a Markdown table; columns that are empty everywhere are left out.

    Args:
        lines: As `_COLUMNS` says.
    """
    kept = [place for place in range(len(_COLUMNS)) if any(line[place] for line in lines)]

    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells[place].replace("|", "\\|") for place in kept) + " |\n"

    return row(_COLUMNS) + "|" + "---|" * len(kept) + "\n" + "".join(map(row, lines))


def _to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """All metrics of all rows in full precision."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ["data", "model", "recipe", "name"]
    writer.writerow([*names, "metric", "mean", "std", "runs", "paper", "paper_std"])
    for row in rows:
        for metric, found in row["metrics"].items():
            who = [row.get(name) for name in names]
            figures = [found["mean"], found["std"], len(found["values"]), found.get("paper")]
            writer.writerow([*who, metric.removeprefix("test/"), *figures, found.get("paper_std")])
    return text.getvalue()
