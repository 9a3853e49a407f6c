"""`graphzoo reproduce MODEL DATA --seeds 0,1,2`: one row of a results table, resumable."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from graphzoo.arguments import make_plan
from graphzoo.checkpoints import RUNS
from graphzoo.errors import UsageError
from graphzoo.presets import find_preset
from graphzoo.run_directory import several_processes

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
    if not argv or "-h" in argv or "--help" in argv:
        sys.stdout.write(USAGE + "\n")
        return 0 if argv else 2
    if len(argv) < 2 or argv[0].startswith("-") or argv[1].startswith("-"):
        raise UsageError(f"reproduce needs a model and a data set\n{USAGE}")
    if several_processes():
        raise UsageError("reproduce starts its processes itself: run it without torchrun or srun")
    names, rest = argv[:2], argv[2:]
    seeds, rest = _take(rest, "--seeds", "0,1,2")
    out, rest = _take(rest, "--out", "")
    for taken in ("--seed", "--seed_everything", "--run_dir", "--ckpt_path", "--model", "--data"):
        if any(token.partition("=")[0] == taken for token in rest):
            raise UsageError(f"reproduce sets {taken} itself; leave it out\n{USAGE}")
    for token in rest:
        name, _, value = token.partition("=")
        unfit = name.startswith(("--print_config", "--help")) or name.endswith(".help")
        if unfit or (name == "--trainer.fast_dev_run" and value.lower() not in ("false", "0")):
            raise UsageError(f"reproduce cannot use {name}: such a run leaves no results\n{USAGE}")
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
    paper = paper_values(plan.model, plan.recipe, plan.data)
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
        found = range(int(first), int(last if dash else first) + 1)
        if not found:
            raise UsageError(f"--seeds {text}: {part} is empty; write {last}-{first}")
        numbers += found
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
    if (run / "results.json").is_file():
        sys.stderr.write(f"seed {seed}: finished before\n")
        return 0
    arguments = ["fit", *options, "--seed", str(seed), "--run_dir", str(run)]
    if (run / "checkpoints" / "last.ckpt").is_file():
        sys.stderr.write(f"seed {seed}: goes on from its last checkpoint\n")
        return _run([*arguments, "--ckpt_path", str(run)])
    if run.exists():  # stopped before its first checkpoint: nothing in it can be used
        number = 1
        while (kept := run.with_name(f"{run.name}.stopped-{number}")).exists():
            number += 1
        run.rename(kept)
    sys.stderr.write(f"seed {seed}: starts\n")
    return _run(arguments)


def _run(arguments: list[str]) -> int:
    """The command in a process of its own: Lightning starts more with this one's command line."""
    dropped = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "GRAPHZOO_RUN_DIR", "PL_GLOBAL_SEED")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    # A Ctrl-C reaches both processes; a SIGTERM this one alone. Either way the seed saves, and then both end.
    with subprocess.Popen([sys.executable, "-m", "graphzoo.cli", *arguments], env=environment) as process:
        before = _pass_on(process)
        try:
            status = process.wait()
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)
    return 128 - status if status < 0 else status


def _pass_on(process: subprocess.Popen[bytes]) -> dict[signal.Signals, Any]:
    if threading.current_thread() is not threading.main_thread():
        return {}

    def forward(signum: int, frame: FrameType | None) -> None:
        process.send_signal(signum)

    return {
        signal.SIGTERM: signal.signal(signal.SIGTERM, forward),
        signal.SIGINT: signal.signal(signal.SIGINT, lambda signum, frame: None),
    }


def _read_results(directory: Path, seeds: list[int]) -> list[dict[str, Any]]:
    """The results of all seeds, which share settings, data and version.

    Raises:
        UsageError: naming the seed that is missing or that differs.
    """
    found: list[dict[str, Any]] = []
    for seed in seeds:
        path = directory / f"seed-{seed}" / "results.json"
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            result["metrics"].items()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"seed {seed}: {path} is missing or damaged\n"
                f"Move {path.parent} away; the same command then runs this seed again"
            ) from error
        found.append(result)
    for what, key in (("settings", "config_hash"), ("data", "data_fingerprint"), ("graphzoo", "versions")):
        values = [result.get(key) for result in found]
        if key == "versions":
            values = [(value or {}).get("graphzoo") for value in values]
        usual = max(values, key=values.count)
        odd = [(seed, value) for seed, value in zip(seeds, values, strict=True) if value != usual]
        if odd:
            seed, value = odd[0]
            raise UsageError(
                f"seed {seed} has other {what} than the other seeds ({value}, there {usual}): no mean\n"
                f"Move {directory / f'seed-{seed}'} away; the same command then runs this seed again"
            )
    return found


def _report(
    directory: Path, model: str, data: str, recipe: str, seeds: list[int], paper: dict[str, float]
) -> None:
    from rich import get_console
    from rich.table import Table

    from graphzoo.results import write_results, write_rows

    found = _read_results(directory, seeds)
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
