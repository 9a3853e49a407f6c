"""Convert a search space to a sweep of Weights & Biases, which also chooses by the validation split alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from graphzoo.errors import UsageError
from graphzoo.runs.results_file import BEST_VALIDATION
from graphzoo.search.space import Choice, Range, Space
from graphzoo.system.files import write_new_text

_METHODS = {"tpe": "bayes", "random": "random", "grid": "grid"}
_MOST_STEPS = 1000


def sweep_of(
    name: str,
    space: Space,
    options: Sequence[str],
    *,
    mode: str,
    sampler: str = "tpe",
    trials: int | None = None,
) -> dict[str, Any]:
    """Make the configuration of a sweep for `wandb sweep`.

    Args:
        name: Name of the sweep.
        space: The search space.
        options: Arguments of `graphzoo fit` that all runs share.
        mode: "max" or "min" of the validation metric.
        sampler: "tpe", "random" or "grid".
        trials: Most runs of the sweep; None sets no limit.

    Raises:
        UsageError: if the sampler is "grid" and an option is a range without steps, or has too many steps.
    """
    parameters = {option: _parameter(choice) for option, choice in space.choices.items()}
    if sampler == "grid" and (endless := [o for o, p in parameters.items() if "values" not in p]):
        raise UsageError(
            f"{endless[0]} is a range in {space.path.name}, but a grid needs a list of values\n"
            "Take --sampler random, or write a list of values"
        )
    sweep: dict[str, Any] = {
        "name": name,
        "method": _METHODS[sampler],
        "metric": {"name": BEST_VALIDATION, "goal": {"max": "maximize", "min": "minimize"}[mode]},
        "parameters": parameters,
        "program": "graphzoo",
        "command": ["${env}", "graphzoo", "fit", *options, "${args}"],
    }
    return sweep | ({} if trials is None else {"run_cap": trials})


def write_sweep(path: Path, sweep: Mapping[str, Any]) -> None:
    """Write a sweep to a new YAML file.

    Raises:
        UsageError: if the file exists or cannot be written.
    """
    write_new_text(path, yaml.safe_dump(dict(sweep), sort_keys=False, allow_unicode=True), "--sweep")


def _parameter(choice: Choice | Range) -> dict[str, Any]:
    if isinstance(choice, Choice):
        # An agent would write Python's `None`, which YAML reads as a text.
        return {"values": ["null" if value is None else value for value in choice.values]}
    if values := _steps(choice):
        return {"values": values}
    ends = {"min": choice.low, "max": choice.high}
    if choice.whole:
        return {"distribution": "int_uniform", **ends}
    return {"distribution": "log_uniform_values" if choice.log else "uniform", **ends}


def _steps(choice: Range) -> list[Any]:
    """The values of a range with steps, because stepped distributions of Weights & Biases begin at 0.

    Integers on a logarithmic scale are doubled from value to value.
    """
    if choice.whole and choice.log:
        values = []
        value = int(choice.low)
        while value < choice.high:
            values.append(value)
            value *= 2
        return [*values, int(choice.high)]
    if choice.step is None:
        return []
    count = int((choice.high - choice.low) / choice.step + 1e-9) + 1
    if count > _MOST_STEPS:
        raise UsageError(f"{choice} has {count:,} values; a sweep file takes up to {_MOST_STEPS:,}")
    steps = [choice.low + number * choice.step for number in range(count)]
    return steps if choice.whole else [float(f"{step:.12g}") for step in steps]
