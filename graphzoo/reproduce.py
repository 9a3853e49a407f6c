"""`graphzoo reproduce MODEL DATA --seeds 0,1,2`: one row of a results table, resumable."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphzoo.arguments import make_plan
from graphzoo.checkpoints import RUNS
from graphzoo.errors import UsageError
from graphzoo.presets import find_preset

__all__ = ["mean_and_deviation", "paper_values", "reproduce_main"]

USAGE = "usage: graphzoo reproduce MODEL DATA [--seeds 0,1,2] [--recipe NAME] [--out DIR] [options of fit]"
_SHOWN = ("test/mrr", "test/hits@1", "test/hits@3", "test/hits@10", "test/mr")


def reproduce_main(argv: list[str]) -> int:
    """Fit and test one seed after the other, then average.

    A seed with results.json is not run again; one that was interrupted goes on from its last checkpoint.

    Args:
        argv: MODEL DATA, `--seeds`, `--out`; everything else goes to `graphzoo fit`.

    Returns:
        0, or the exit status of the seed that failed.
    """
    if not argv or argv[0] in ("-h", "--help"):
        sys.stdout.write(USAGE + "\n")
        return 0 if argv else 2
    if len(argv) < 2 or argv[0].startswith("-") or argv[1].startswith("-"):
        raise UsageError(f"reproduce needs a model and a data set\n{USAGE}")
    names, rest = argv[:2], argv[2:]
    seeds, rest = _take(rest, "--seeds", "0,1,2")
    out, rest = _take(rest, "--out", "")
    for taken in ("--seed", "--seed_everything", "--run_dir", "--ckpt_path", "--model", "--data"):
        if any(token.partition("=")[0] == taken for token in rest):
            raise UsageError(f"reproduce sets {taken} itself; leave it out\n{USAGE}")
    numbers = _seeds(seeds)
    options = ["--model", names[0], "--data", names[1], *rest]
    plan = make_plan("fit", options)  # unknown names are told before any seed runs
    row = f"{plan.model}-{plan.data}"
    if plan.recipe and plan.recipe != f"{plan.model}/{plan.data}":
        row += "-" + plan.recipe.rpartition("/")[2]
    directory = Path(out) if out else RUNS / "reproduce" / row
    _claim(directory, options)
    for seed in numbers:
        status = _run_seed(directory / f"seed-{seed}", seed, options)
        if status:
            sys.stderr.write("The same reproduce command goes on from here.\n")
            return status
    paper = paper_values(plan.model, plan.recipe)
    _report(directory, plan.model, plan.data, plan.recipe, numbers, paper)
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


def paper_values(model: str, recipe: str) -> dict[str, float]:
    """The published figures in a recipe's header, as `test/<metric>`.

    Args:
        model: Name of the model.
        recipe: `<model>/<name>`; empty or a file's name gives nothing.
    """
    if not recipe.startswith(f"{model}/"):
        return {}
    header = find_preset("recipe", recipe.rpartition("/")[2], model=model).header
    pairs = (pair.partition("=") for pair in header.get("paper", "").split())
    return {f"test/{name}": float(value) for name, _, value in pairs}


def _take(rest: list[str], option: str, default: str) -> tuple[str, list[str]]:
    kept: list[str] = []
    value = default
    words = iter(rest)
    for word in words:
        name, equals, text = word.partition("=")
        if name != option:
            kept.append(word)
            continue
        found = text if equals else next(words, "")
        if not found or found.startswith("--"):
            raise UsageError(f"{option} needs a value\n{USAGE}")
        value = found
    return value, kept


def _seeds(text: str) -> list[int]:
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"--seeds takes numbers such as 0,1,2 or 0-4, got {text!r}")
        numbers += range(int(first), int(last if dash else first) + 1)
    return list(dict.fromkeys(numbers))


def _claim(directory: Path, options: list[str]) -> None:
    """Write down what the row is made of; seeds of other settings never get into the same mean."""
    record = directory / "command.json"
    if record.is_file():
        before = json.loads(record.read_text(encoding="utf-8"))
        begun = [*directory.glob("seed-*/results.json"), *directory.glob("seed-*/checkpoints/*.ckpt")]
        if before != options and begun:
            raise UsageError(
                f"{directory} holds seeds with other options: {' '.join(before)}\n"
                "Give those again, or another folder with --out DIR"
            )
    directory.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(options) + "\n", encoding="utf-8")


def _run_seed(run: Path, seed: int, options: list[str]) -> int:
    from graphzoo.cli import main

    if (run / "results.json").is_file():
        sys.stderr.write(f"seed {seed}: finished before\n")
        return 0
    if (run / "checkpoints" / "last.ckpt").is_file():
        sys.stderr.write(f"seed {seed}: goes on from its last checkpoint\n")
        return main(["fit", "--ckpt_path", str(run)])
    if run.exists():
        shutil.rmtree(run)  # stopped before its first checkpoint: nothing in it can be used
    sys.stderr.write(f"seed {seed}: starts\n")
    return main(["fit", *options, "--seed", str(seed), "--run_dir", str(run)])


def _report(
    directory: Path, model: str, data: str, recipe: str, seeds: list[int], paper: dict[str, float]
) -> None:
    from rich import get_console
    from rich.table import Table

    from graphzoo.results import write_results, write_rows

    found: list[dict[str, Any]] = [
        json.loads((directory / f"seed-{seed}" / "results.json").read_text(encoding="utf-8"))
        for seed in seeds
    ]
    names = [name for name in _SHOWN if all(name in result["metrics"] for result in found)]
    names = names or sorted(set.intersection(*(set(result["metrics"]) for result in found)))
    rows: list[dict[str, Any]] = []
    for name in names:
        values = [result["metrics"][name] for result in found]
        mean, deviation = mean_and_deviation(values)
        row: dict[str, Any] = {"metric": name, "mean": mean, "std": deviation, "paper": paper.get(name)}
        rows.append(row | {f"seed {seed}": value for seed, value in zip(seeds, values, strict=True)})
    write_rows(directory / "row.csv", rows)
    content = {
        "model": model,
        "data": data,
        "recipe": recipe or None,
        "seeds": seeds,
        "metrics": {row["metric"]: {key: row[key] for key in ("mean", "std", "paper")} for row in rows},
        "runs": found,
    }
    write_results(directory / "row.json", content)
    plural = "s" if len(seeds) > 1 else ""
    table = Table(
        title=f"{model} on {data}: test, {len(seeds)} seed{plural}", title_justify="left", min_width=50
    )
    for column in ("metric", "mean ± std", "paper", "difference"):
        table.add_column(column, justify="left" if column == "metric" else "right")
    for row in rows:
        spread = "" if row["std"] is None else f" ± {row['std']:.4f}"
        published = row["paper"]
        compared = ("", "") if published is None else (f"{published:.3f}", f"{row['mean'] - published:+.4f}")
        table.add_row(row["metric"].removeprefix("test/"), f"{row['mean']:.4f}{spread}", *compared)
    get_console().print(table)
    sys.stderr.write(f"row: {directory / 'row.csv'}, {directory / 'row.json'}\n")
