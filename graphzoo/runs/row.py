"""row.json: several runs of one setting, averaged."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from graphzoo.errors import UsageError
from graphzoo.runs.published import check_figures, check_names
from graphzoo.runs.results_file import read_results
from graphzoo.system.memory import raise_if_not_the_file


@contextlib.contextmanager
def left_out(damaged: list[UsageError] | None) -> Iterator[None]:
    """Collect an error about one file in `damaged`, so that others can be shown; None raises it."""
    try:
        yield
    except UsageError as error:
        if damaged is None:
            raise
        damaged.append(error)


def main_metric(row: Mapping[str, Any]) -> str:
    """The metric that a row is shown by: the first with a published score, else the first."""
    metrics: Mapping[str, Any] = row["metrics"]
    published = (name for name in metrics if metrics[name].get("paper") is not None)
    return next(published, next(iter(metrics)))


def read_row(path: Path) -> dict[str, Any]:
    """Read a row that `write_row` wrote; a `UsageError` if it is damaged."""
    try:
        content = read_results(path)
        if not content["metrics"]:
            raise ValueError("no metrics")
        for metric in content["metrics"].values():
            others = [metric["std"], metric.get("paper"), metric.get("paper_std")]
            figures = [metric["mean"], *metric["values"], *others]
            if not all(isinstance(figure, int | float | None) for figure in figures):
                raise TypeError("a figure that is not a number")
            check_figures(figure for figure in figures if figure is not None)
        if not isinstance(content["model"], str) or not isinstance(content["data"], str):
            raise TypeError("model and data are words")
        check_names(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise_if_not_the_file(error, path)
        raise UsageError(
            f"{path} is not a row of results ({error})\nMake it again with graphzoo reproduce"
        ) from error
    return content
