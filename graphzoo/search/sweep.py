"""A search space as a sweep of Weights & Biases: the same settings, chosen on the validation split alone."""

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
    """What `wandb sweep` takes: runs of `graphzoo fit` share the words `options`, `trials` is their most.

    `mode` is "max" or "min" of the validation metric; the sampler is "tpe", "random" or "grid".
    """
    parameters = {option: _parameter(choice) for option, choice in space.choices.items()}
    if sampler == "grid" and (endless := [o for o, p in parameters.items() if "values" not in p]):
        raise UsageError(
            f"{endless[0]} is a range of {space.path.name}, which a grid does not end in\n"
            "Take --sampler random, or a list of values"
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
    """Write a sweep to a new YAML file."""
    write_new_text(path, yaml.safe_dump(dict(sweep), sort_keys=False, allow_unicode=True), "--sweep")


def _parameter(choice: Choice | Range) -> dict[str, Any]:
    if isinstance(choice, Choice):
        # An agent writes values as Python does, and `None` would be a word.
        return {"values": ["null" if value is None else value for value in choice.values]}
    if values := _steps(choice):
        return {"values": values}
    ends = {"min": choice.low, "max": choice.high}
    if choice.whole:
        return {"distribution": "int_uniform", **ends}
    return {"distribution": "log_uniform_values" if choice.log else "uniform", **ends}


def _steps(choice: Range) -> list[Any]:
    """The values of a range with steps, which distributions of Weights & Biases would begin at 0.

    Whole numbers on a logarithmic scale are given by doubling.
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
