"""`graphzoo reproduce MODEL DATA --seeds 0,1,2 --splits 0-9`: one row of a results table, resumable."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphzoo.arguments import make_plan
from graphzoo.checkpoints import RUNS
from graphzoo.errors import UsageError
from graphzoo.presets import find_preset
from graphzoo.run_directory import several_processes
from graphzoo.runs import Run, refuse_options, run_command, runs_of, take_option

__all__ = ["mean_and_deviation", "paper_values", "reproduce_main"]

USAGE = (
    "usage: graphzoo reproduce MODEL DATA [--seeds 0,1,2] [--splits 0-9] [--recipe NAME] [--out DIR] "
    "[options of fit]"
)
_SHOWN = tuple(
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


def reproduce_main(argv: list[str]) -> int:
    """Fit and test one seed after the other, on every split that is asked for, then average.

    A heuristic has nothing to fit and is tested, by default with one seed: nothing in it is drawn. A run with
    results.json is not run again; one that was interrupted goes on from its last checkpoint.

    Args:
        argv: MODEL DATA, `--seeds` (0,1,2; with `--splits` 0), `--splits`, `--out`; everything else goes to
            `graphzoo fit`.

    Returns:
        0, or the exit status of the run that failed.
    """
    if not argv or "-h" in argv or "--help" in argv:
        sys.stdout.write(USAGE + "\n")
        return 0 if argv else 2
    if len(argv) < 2 or argv[0].startswith("-") or argv[1].startswith("-"):
        raise UsageError(f"reproduce needs a model and a data set\n{USAGE}")
    if several_processes():
        raise UsageError("reproduce starts its processes itself: run it without torchrun or srun")
    names, rest = argv[:2], argv[2:]
    splits, rest = take_option(rest, "--splits", "", USAGE)
    command = "test" if _is_heuristic(names[0]) else "fit"
    # Splits differ more than seeds do, and published rows take one run of each.
    seeds, rest = take_option(rest, "--seeds", "0" if splits or command == "test" else "0,1,2", USAGE)
    out, rest = take_option(rest, "--out", "", USAGE)
    refuse_options(rest, "reproduce", splits=bool(splits), usage=USAGE)
    runs = runs_of(seeds, splits)
    options = ["--model", names[0], "--data", names[1], *rest]
    plan = make_plan(command, options)  # unknown names are told before any seed runs
    row = f"{plan.model}-{plan.data}"
    if plan.recipe and plan.recipe != f"{plan.model}/{plan.data}":
        row += "-" + plan.recipe.rpartition("/")[2]
    directory = Path(out) if out else RUNS / "reproduce" / row
    _claim(directory, options)
    for run in runs:
        status = _run_once(directory / run.folder, run, command, options)
        if status:
            sys.stderr.write("The same reproduce command goes on from here.\n")
            return status
    paper = paper_values(plan.model, plan.recipe, plan.data)
    _report(directory, plan.model, plan.data, plan.recipe, runs, paper)
    return 0


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (n - 1); None for the latter with a single value.

    >>> mean_and_deviation([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def paper_values(model: str, recipe: str, data: str) -> dict[str, float]:
    """The published figures in a recipe's header, as `test/<metric>`.

    Args:
        model: Name of the model.
        recipe: `<model>/<name>`; empty or a file's name gives nothing.
        data: Name of the data; other data than the recipe's give nothing.
    """
    if not recipe.startswith(f"{model}/"):
        return {}
    name = recipe.rpartition("/")[2]
    header = find_preset("recipe", name, model=model).header
    if header.get("data", name) != data:
        return {}
    pairs = (pair.partition("=") for pair in header.get("paper", "").split())
    return {f"test/{name}": float(value) for name, _, value in pairs}


def _is_heuristic(model: str) -> bool:
    try:
        return find_preset("model", model).header.get("kind") == "heuristic"
    except UsageError:
        return False  # a class path, or a name that the plan is going to refuse


def _claim(directory: Path, options: list[str]) -> None:
    """Write down what the row is made of; seeds of other settings never get into the same mean."""
    record = directory / "command.json"
    if record.is_file():
        before = json.loads(record.read_text(encoding="utf-8"))
        begun = [*directory.glob("s*-*/results.json"), *directory.glob("s*-*/checkpoints/*.ckpt")]
        if before != options and begun:
            raise UsageError(
                f"{directory} holds seeds with other options: {' '.join(before)}\n"
                "Give those again, or another folder with --out DIR"
            )
    directory.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(options) + "\n", encoding="utf-8")


def _run_once(folder: Path, run: Run, command: str, options: list[str]) -> int:
    if (folder / "results.json").is_file():
        sys.stderr.write(f"{run}: finished before\n")
        return 0
    arguments = [command, *options, *run.options, "--run_dir", str(folder)]
    if (folder / "checkpoints" / "last.ckpt").is_file():
        sys.stderr.write(f"{run}: goes on from its last checkpoint\n")
        return run_command([*arguments, "--ckpt_path", str(folder)])
    if folder.exists():  # stopped before its first checkpoint: nothing in it can be used
        number = 1
        while (kept := folder.with_name(f"{folder.name}.stopped-{number}")).exists():
            number += 1
        folder.rename(kept)
    sys.stderr.write(f"{run}: starts\n")
    return run_command(arguments)


def _read_results(directory: Path, runs: list[Run]) -> list[dict[str, Any]]:
    """The results of all runs, which share settings, data and version.

    Raises:
        UsageError: naming the run that is missing or that differs.
    """
    found: list[dict[str, Any]] = []
    for run in runs:
        path = directory / run.folder / "results.json"
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
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


def _report(
    directory: Path, model: str, data: str, recipe: str, runs: list[Run], paper: dict[str, float]
) -> None:
    from rich import get_console
    from rich.table import Table

    from graphzoo.results import PERCENT, format_metric, write_results, write_rows

    found = _read_results(directory, runs)
    names = [name for name in _SHOWN if all(name in result["metrics"] for result in found)]
    names = names or sorted(set.intersection(*(set(result["metrics"]) for result in found)))
    rows: list[dict[str, Any]] = []
    for name in names:
        values = [result["metrics"][name] for result in found]
        mean, deviation = mean_and_deviation(values)
        row: dict[str, Any] = {"metric": name, "mean": mean, "std": deviation, "paper": paper.get(name)}
        rows.append(row | {str(run): value for run, value in zip(runs, values, strict=True)})
    write_rows(directory / "row.csv", rows)
    content = {
        "model": model,
        "data": data,
        "recipe": recipe or None,
        "seeds": list(dict.fromkeys(run.seed for run in runs)),
        "splits": list(dict.fromkeys(run.split for run in runs if run.split is not None)) or None,
        "metrics": {row["metric"]: {key: row[key] for key in ("mean", "std", "paper")} for row in rows},
        "runs": found,
    }
    write_results(directory / "row.json", content)
    counted = "run" if any(run.split is not None for run in runs) else "seed"
    plural = "s" if len(runs) > 1 else ""
    table = Table(
        title=f"{model} on {data}: test, {len(runs)} {counted}{plural}", title_justify="left", min_width=50
    )
    for column in ("metric", "mean ± std", "paper", "difference"):
        table.add_column(column, justify="left" if column == "metric" else "right")
    for row in rows:
        name = row["metric"].removeprefix("test/")
        spread = "" if row["std"] is None else f" ± {format_metric(name, row['std'])}"
        published, difference = row["paper"], ""
        if published is not None:
            sign = "+" if row["mean"] >= published else "-"
            difference = sign + format_metric(name, abs(row["mean"] - published))
        compared = "" if published is None else format_metric(name, published)
        shown = PERCENT.get(name, name)
        table.add_row(shown, f"{format_metric(name, row['mean'])}{spread}", compared, difference)
    get_console().print(table)
    sys.stderr.write(f"row: {directory / 'row.csv'}, {directory / 'row.json'}\n")
