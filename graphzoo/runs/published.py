"""Rows of results tables: several runs of one setting, their mean, and the published figure beside it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from graphzoo.catalog.presets import Preset, find_preset
from graphzoo.errors import UsageError
from graphzoo.runs.series import Run
from graphzoo.system.json_file import read_json
from graphzoo.system.shown import cell, console

__all__ = [
    "SHOWN",
    "Published",
    "check_figures",
    "check_names",
    "compare",
    "find_recipe",
    "main_metric",
    "mean_and_deviation",
    "parse_published",
    "print_rows",
    "published_values",
    "read_results",
    "read_row",
    "spread",
    "write_row",
]

SHOWN = tuple(
    f"test/{name}"
    for name in (
        "mrr",
        "hits@1",
        "hits@3",
        "hits@10",
        "hits@20",
        "hits@50",
        "hits@100",
        "mr",
        "acc",
        "auroc",
        "ap",
        "rmse",
    )  # fmt: skip
)


_LONGEST_NAME = 200
_LARGEST = 1e100


class Published(NamedTuple):
    """A figure of a paper.

    Args:
        value: The mean.
        deviation: Its standard deviation; None where the paper gives none.
    """

    value: float
    deviation: float | None = None


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (n - 1); None for the latter with a single value.

    >>> mean_and_deviation([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def parse_published(text: str) -> dict[str, Published]:
    """Figures as recipes write them, as `test/<metric>`.

    Args:
        text: Such as `acc=0.851±0.006 auroc=0.9`.

    >>> parse_published("acc=0.851±0.006 mrr=0.5")["test/acc"]
    Published(value=0.851, deviation=0.006)
    """
    found: dict[str, Published] = {}
    for pair in text.split():
        name, _, figure = pair.partition("=")
        value, _, deviation = figure.partition("±")
        found[f"test/{name}"] = Published(float(value), float(deviation) if deviation else None)
    return found


def find_recipe(model: str, recipe: str, data: str) -> Preset | None:
    """The recipe of that name, if it is one of graphzoo's for these data.

    Args:
        model: Name of the model.
        recipe: `<model>/<name>`; empty or a file's name finds nothing.
        data: Name of the data; other data than the recipe's find nothing.
    """
    if not recipe.startswith(f"{model}/"):
        return None
    name = recipe.rpartition("/")[2]
    found = find_preset("recipe", name, model=model)
    return found if found.header.get("data", name) == data else None


def published_values(model: str, recipe: str, data: str) -> dict[str, Published]:
    """The published figures in a recipe's header, as `test/<metric>`; see `find_recipe`."""
    found = find_recipe(model, recipe, data)
    return {} if found is None else parse_published(found.header.get("paper", ""))


def read_results(directory: Path, runs: list[Run]) -> list[dict[str, Any]]:
    """The results of all runs of a row, which share settings, data and version.

    Args:
        directory: Folder of the row.
        runs: Its runs.

    Raises:
        UsageError: naming the run that is missing or that differs.
    """
    found: list[dict[str, Any]] = []
    for run in runs:
        path = directory / run.folder / "results.json"
        try:
            result = read_json(path)
            result["metrics"].items()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"{run}: {path} is missing or damaged\n"
                f"Move {path.parent} away; the same command then runs it again"
            ) from error
        found.append(result)
    for what, key in (("settings", "config_hash"), ("data", "data_fingerprint"), ("graphzoo", "versions")):
        values = [result.get(key) for result in found]
        if key == "versions":
            values = [(value or {}).get("graphzoo") for value in values]
        usual = max(values, key=values.count)
        odd = [(run, value) for run, value in zip(runs, values, strict=True) if value != usual]
        if odd:
            run, value = odd[0]
            raise UsageError(
                f"{run} has other {what} than the other runs ({value}, there {usual}): no mean\n"
                f"Move {directory / run.folder} away; the same command then runs it again"
            )
    return found


def write_row(
    directory: Path,
    runs: list[Run],
    *,
    model: str,
    data: str,
    recipe: str,
    name: str = "",
    published: Mapping[str, Published] | None = None,
    command: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Average the runs of a row, and write `row.csv` and `row.json`.

    Args:
        directory: Folder of the row.
        runs: Its runs, all finished.
        model: Name of the model.
        data: Name of the data.
        recipe: `<model>/<name>`, a file's name, or empty.
        name: What sets the row of an ablation apart.
        published: Figures of the paper; None takes those of the recipe.
        command: What makes the row again.

    Returns:
        What `row.json` holds.

    Raises:
        UsageError: if a run is missing or differs from the others.
    """
    from graphzoo.runs.results_file import write_results, write_rows

    found = read_results(directory, runs)
    if published is None:
        published = published_values(model, recipe, data)
    common = set.intersection(*(set(result["metrics"]) for result in found))
    names = [metric for metric in SHOWN if metric in common] or sorted(common)
    metrics: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for metric in names:
        values = [result["metrics"][metric] for result in found]
        mean, deviation = mean_and_deviation(values)
        paper = published.get(metric)
        metrics[metric] = {
            "mean": mean,
            "std": deviation,
            "paper": paper.value if paper else None,
            "paper_std": paper.deviation if paper else None,
            "values": values,
        }
        row = {"metric": metric, **{key: metrics[metric][key] for key in ("mean", "std", "paper")}}
        rows.append(row | {str(run): value for run, value in zip(runs, values, strict=True)})
    write_rows(directory / "row.csv", rows)
    preset = find_recipe(model, recipe, data)
    header = preset.header if preset else {}
    differs = header.get("differs")
    if any(found["paper"] is not None for found in metrics.values()):
        from graphzoo.runs.changes import what_differs
        from graphzoo.runs.record import read_record

        differs = what_differs(read_record(directory / runs[0].folder), ablation=bool(name))
    content = {
        "model": model,
        "data": data,
        "recipe": recipe or None,
        "name": name or None,
        "claim": header.get("claim"),
        "differs": differs or None,
        "command": shlex.join(command) if command else None,
        "seeds": list(dict.fromkeys(run.seed for run in runs)),
        "splits": list(dict.fromkeys(run.split for run in runs if run.split is not None)) or None,
        "metrics": metrics,
        "runs": found,
    }
    write_results(directory / "row.json", content)
    return content


def spread(name: str, mean: float, deviation: float | None) -> str:
    """`84.63 ± 0.15`: a mean with its deviation, as tables show the metric `name`."""
    from graphzoo.runs.results_file import format_metric

    return format_metric(name, mean) + ("" if deviation is None else f" ± {format_metric(name, deviation)}")


def compare(mean: float, paper: float | None, paper_std: float | None) -> str:
    """How a mean stands to the published one.

    Args:
        mean: Ours.
        paper: The published figure; None gives "".
        paper_std: Its standard deviation, if published.

    Returns:
        "above"; "met" within the paper's deviation, or if the mean rounds to the published digits; "below".

    >>> compare(0.85, 0.851, 0.006), compare(0.84, 0.851, 0.006), compare(0.852, 0.851, None)
    ('met', 'below', 'above')
    >>> compare(0.14023, 0.1402, None), compare(0.14017, 0.1402, None), compare(0.14014, 0.1402, None)
    ('met', 'met', 'below')
    """
    if paper is None:
        return ""
    # papers give three or four digits; zeros at the end are lost
    rounded = round(mean, max(3, len(repr(paper).partition(".")[2])))
    if rounded > paper:
        return "above"
    within = paper_std is not None and mean >= paper - paper_std
    return "met" if within or rounded == paper else "below"


def main_metric(row: Mapping[str, Any]) -> str:
    """The metric that a row is shown by: the first with a published figure, else the first."""
    metrics = row["metrics"]
    return str(
        next((name for name in metrics if metrics[name].get("paper") is not None), next(iter(metrics)))
    )


def print_rows(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print one row metric by metric, or the rows of an ablation one below the other.

    Args:
        title: Above the table.
        rows: From `write_row`.
    """
    from rich.table import Table

    from graphzoo.runs.results_file import PERCENT, format_metric

    table = Table(title=cell(title), title_justify="left", min_width=50)
    named = len(rows) > 1 or rows[0]["name"]
    if named:
        table.add_column("")
    for column in ("metric", "mean ± std", "paper", "difference"):
        table.add_column(column, justify="left" if column == "metric" else "right")
    for row in rows:
        for metric in [main_metric(row)] if named else row["metrics"]:
            found = row["metrics"][metric]
            name, published, difference = metric.removeprefix("test/"), found["paper"], ""
            if published is not None:
                sign = "+" if found["mean"] >= published else "-"
                difference = sign + format_metric(name, abs(found["mean"] - published))
            paper = "" if published is None else spread(name, published, found["paper_std"])
            cells = [PERCENT.get(name, name), spread(name, found["mean"], found["std"]), paper, difference]
            table.add_row(*map(cell, [*([row["name"] or ""] if named else []), *cells]))
    console().print(table)
    if not named and rows[0].get("differs") and any(found["paper"] for found in rows[0]["metrics"].values()):
        console().print(cell(f"differs from the paper: {rows[0]['differs']}"))


def check_figures(figures: Iterable[Any]) -> None:
    """Refuse figures of which no mean and deviation can be made.

    Args:
        figures: Of metrics; NaN stands for one that could not be had.

    Raises:
        ValueError: for no number, or one that is too large.
        TypeError: for no number either.
    """
    for figure in figures:
        if not (math.isnan(value := float(figure)) or abs(value) <= _LARGEST):
            raise ValueError(f"{value} is no figure of a test")


def check_names(content: Mapping[str, Any]) -> None:
    """Refuse names, notes and seeds of a run or a row that no table could show.

    Args:
        content: Of a results.json or row.json.

    Raises:
        ValueError: for a name that is too long, or none at all, and for seeds that are no numbers.
    """
    for key in ("model", "data", "recipe", "name"):
        if not isinstance(found := content.get(key), str | None) or len(found or "") > _LONGEST_NAME:
            raise ValueError(f"{key} is no name of at most {_LONGEST_NAME} letters")
    for key in ("differs", "command"):
        if not isinstance(content.get(key), str | None):
            raise ValueError(f"{key} is no text")
    for key in ("seeds", "splits"):
        listed = content.get(key)
        if listed is not None and not (isinstance(listed, list) and all(map(_is_seed, listed))):
            raise ValueError(f"{key} is no list of whole numbers")
    if any(len(name) > _LONGEST_NAME for name in content["metrics"]):
        raise ValueError(f"the name of a metric has more than {_LONGEST_NAME} letters")


def _is_seed(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 64


def read_row(path: Path) -> dict[str, Any]:
    """What `write_row` wrote.

    Args:
        path: A `row.json`.

    Raises:
        UsageError: if it is none.
    """
    try:
        content: dict[str, Any] = read_json(path)
        if not content["metrics"]:
            raise ValueError("no metrics")
        for found in content["metrics"].values():
            others = [found["std"], found.get("paper"), found.get("paper_std")]
            figures = [found["mean"], *found["values"], *others]
            if not all(isinstance(figure, int | float | None) for figure in figures):
                raise TypeError("a figure that is no number")
            check_figures(figure for figure in figures if figure is not None)
        if not isinstance(content["model"], str) or not isinstance(content["data"], str):
            raise TypeError("model and data are words")
        check_names(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path} is no row of results ({error})\nMake it again with graphzoo reproduce"
        ) from error
    return content
