"""Averages several runs into a row."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphzoo.errors import UsageError
from graphzoo.runs.published import (
    Published,
    average_metrics,
    find_recipe,
    is_comparable,
    published_values,
)
from graphzoo.runs.results_file import read_results, write_results, write_rows
from graphzoo.runs.series import Run
from graphzoo.system.memory import raise_if_not_the_file


def read_runs(directory: Path, runs: list[Run]) -> list[dict[str, Any]]:
    """Read the results of all runs of a row.

    Raises:
        UsageError: if one is missing or damaged, or differs in settings, data or version.
    """
    results: list[dict[str, Any]] = []
    for run in runs:
        path = directory / run.folder / "results.json"
        try:
            result = read_results(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise_if_not_the_file(error, path)
            raise UsageError(
                f"{run}: {path} is missing or damaged\n"
                f"Move {path.parent} away; the same command then runs it again"
            ) from error
        if resumed := result.get("resumed"):
            raise UsageError(
                f"{run} was resumed {resumed}, so it does not have the settings of the row\n"
                f"Move {path.parent} away; the same command then runs it again"
            )
        if not result["metrics"]:
            raise UsageError(
                f"{run}: {path} has no test scores, and a row needs them\n"
                f"Leave limit_test_batches=0 out, and move {path.parent} away"
            )
        results.append(result)
    several = len({run.split for run in runs}) > 1
    for what, values in (
        ("settings", [result.get("config_hash") for result in results]),
        ("data", [_data_of(result, any_split=several) for result in results]),
        ("graphzoo", [(result.get("versions") or {}).get("graphzoo") for result in results]),
    ):
        usual = max(values, key=values.count)
        odd = [(run, value) for run, value in zip(runs, values, strict=True) if value != usual]
        if odd:
            run, value = odd[0]
            remedy = f"Move {directory / run.folder} away; the same command then runs it again"
            if what == "data":
                remedy = f"If the data have changed, move {directory} away, or give another folder: --out NEW"
            raise UsageError(
                f"{run} has other {what} than the other runs ({value}, there {usual}): they have no common "
                f"mean\n{remedy}"
            )
    return results


def _data_of(result: Mapping[str, Any], *, any_split: bool) -> Any:
    """The fingerprint of a run's data, on request one that is the same for every split of them."""
    split = result.get("split") or {}
    # that of links and triples covers the split, that of nodes does not
    whole = (split.get("links") or split.get("triples")) if any_split else None
    return whole or result.get("data_fingerprint")


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
    """Average the finished runs of a row, write `row.csv` and `row.json`, and return the latter's content.

    Args:
        directory: Folder of the row.
        runs: Its runs.
        model: Name of the model.
        data: Name of the data.
        recipe: `<model>/<name>`, the name of a file, or "".
        name: What sets a row of an ablation apart; "" for other rows.
        published: Published scores; None takes those of the recipe, except under another protocol of links.
        command: Words of the command that makes the row again.
    """
    results = read_runs(directory, runs)
    if published is None:
        published = published_values(model, recipe, data)
    if not is_comparable(model, recipe, data, results[0]):
        published = {}
    metrics = average_metrics([result["metrics"] for result in results], published)
    write_rows(directory / "row.csv", [_csv_row(metric, row, runs) for metric, row in metrics.items()])
    preset = find_recipe(model, recipe, data)
    header = preset.header if preset else {}
    differs = header.get("differs")
    if not name or any(figure["paper"] is not None for figure in metrics.values()):
        from graphzoo.runs.changes import what_differs
        from graphzoo.runs.record import read_record

        differs = what_differs(read_record(directory / runs[0].folder), ablation=bool(name))
    content = {
        "model": model,
        "data": data,
        "data_name": results[0].get("data_name"),
        "recipe": recipe or None,
        "name": name or None,
        "claim": header.get("claim"),
        "differs": differs or None,
        "command": shlex.join(command) if command else None,
        "seeds": list(dict.fromkeys(run.seed for run in runs)),
        "splits": list(dict.fromkeys(run.split for run in runs if run.split is not None)) or None,
        "tested": results[0].get("tested"),
        "evaluated": results[0].get("evaluated"),
        "negatives": results[0].get("negatives"),
        "protocol": results[0].get("protocol"),
        "metrics": metrics,
        "runs": results,
    }
    write_results(directory / "row.json", content)
    return content


def _csv_row(metric: str, row: Mapping[str, Any], runs: Sequence[Run]) -> dict[str, Any]:
    """A metric's mean, deviation and paper, then its value of every run."""
    values = {str(run): value for run, value in zip(runs, row["values"], strict=True)}
    return {"metric": metric, **{key: row[key] for key in ("mean", "std", "paper")}, **values}
