"""Search spaces: YAML files with options and the values that a search may choose."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphzoo.catalog.settings import read_settings
from graphzoo.errors import UsageError

SAMPLERS = ("tpe", "random", "grid")
"""How a search chooses settings; here, since importing Optuna takes long."""
_GROUPS = ("model", "data", "trainer")


@dataclass(frozen=True)
class Choice:
    """One of several values."""

    values: tuple[Any, ...]  # at least one; numbers, texts, booleans or None

    def holds(self, value: Any) -> bool:
        """Whether `value` is one of them; 1 and True are different."""
        return any(value == own and isinstance(value, bool) == isinstance(own, bool) for own in self.values)

    def __str__(self) -> str:
        return "{" + ", ".join(map(_as_text, self.values)) + "}"


def _as_text(value: Any) -> str:
    """A value; a text that could be taken for another value, or for two, has quotes."""
    is_word = isinstance(value, str) and re.fullmatch(r"[^\W\d][\w./-]*", value)
    return value if is_word and value not in ("None", "True", "False", "inf", "nan") else repr(value)


@dataclass(frozen=True)
class Range:
    """A number between two ends; if both ends are integers, only integers."""

    low: float
    high: float
    log: bool = False  # whether values are drawn uniformly on a logarithmic scale
    step: float | None = None  # distance between values; None is 1 for integers, and no steps for floats

    @property
    def whole(self) -> bool:
        """Whether only integers are in the range."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def holds(self, value: Any) -> bool:
        """Whether `value` is in the range and on a step."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not self.low <= value <= self.high or (self.whole and not isinstance(value, int)):
            return False
        steps = (value - self.low) / self.step if self.step else 0.0
        return math.isclose(steps, round(steps), abs_tol=1e-9)

    def __str__(self) -> str:
        more = (", log" if self.log else "") + (f", step {self.step}" if self.step else "")
        return f"[{self.low} .. {self.high}{more}]"


@dataclass(frozen=True)
class Space:
    """The content of a file such as `configs/search/galit.yaml`."""

    path: Path
    choices: dict[str, Choice | Range]  # values by option, named without dashes
    options: dict[str, Any] = field(default_factory=dict)  # options with the same value in every trial

    def describe(self) -> dict[str, Any]:
        """Plain values that are equal if and only if two spaces are the same."""
        return {
            "space": {name: str(choice) for name, choice in self.choices.items()},
            "fixed": dict(self.options),
        }

    def without(self, names: Iterable[str]) -> Space:
        """The space without some of its options.

        Args:
            names: Names of options without dashes, with or without `init_args`.

        Raises:
            UsageError: if no option is left.
        """
        given = {".".join(_parts(name)) for name in names if name.partition(".")[0] in _GROUPS}
        left = {name: choice for name, choice in self.choices.items() if ".".join(_parts(name)) not in given}
        if not left:
            raise UsageError(
                f"{self.path}: the command line and its files set all options of the search space\n"
                "Leave out some of them"
            )
        return Space(self.path, left, self.options)

    def fitting(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a configuration of LightningCLI that are in the space, by option."""
        usual = {name: _look_up(settings, name) for name in self.choices}
        return {name: value for name, value in usual.items() if self.choices[name].holds(value)}

    def absent(self, settings: Mapping[str, Any]) -> list[str]:
        """Options that are not in a complete configuration: misspelt ones, or those of another model."""
        return [name for name in self.choices if _is_checked(name) and _look_up(settings, name) is _Absent]


def read_space(path: Path) -> Space:
    """Read a search space from a YAML file.

    `space:` maps options to lists of values or to `{low, high, log, step}`. `options:` is optional and maps
    options to a value for every trial.

    Raises:
        UsageError: if the file cannot be read or has another form.
    """
    content = read_settings(path)
    if not isinstance(content, dict) or not isinstance(content.get("space"), dict) or not content["space"]:
        raise UsageError(f"{path} has no search space\nWrite `space:` and below it `model.lr: [0.01, 0.001]`")
    if unknown := sorted(set(map(str, content)) - {"space", "options"}):
        raise UsageError(f"{path}: unknown entry {unknown[0]!r}\nThere are `space` and `options`")
    options = content.get("options") or {}
    if not isinstance(options, dict):
        raise UsageError(f"{path}: `options` has to be a mapping such as `trainer.max_epochs: 300`")
    for name in [*content["space"], *options]:
        group, *rest = str(name).split(".")
        if group not in _GROUPS or not all(rest) or not set(rest) - {"init_args"}:
            raise UsageError(f"{path}: {name!r} is not an option; write for example model.lr")
    if twice := sorted(set(content["space"]) & set(options)):
        raise UsageError(f"{path}: {twice[0]} is in both `space` and `options`; remove one")
    choices = {str(name): _choice(path, str(name), value) for name, value in content["space"].items()}
    return Space(path, choices, {str(name): value for name, value in options.items()})


def _choice(path: Path, name: str, value: Any) -> Choice | Range:
    if isinstance(value, list) and value:
        if odd := [item for item in value if not isinstance(item, str | int | float | None)]:
            raise UsageError(f"{path}: {name} has the value {odd[0]!r}; only numbers and texts can be tried")
        return Choice(tuple(map(_number, value)))
    if isinstance(value, dict) and {"low", "high"} <= set(value) <= {"low", "high", "log", "step"}:
        low, high, step = (_number(value.get(name)) for name in ("low", "high", "step"))
        log = value.get("log")
        if not isinstance(log, bool | None):
            raise UsageError(f"{path}: {name} has the range {value}\nlog must be true or false")
        numbers = [number for number in (low, high, step) if number is not None]
        if all(isinstance(n, int | float) and not isinstance(n, bool) and math.isfinite(n) for n in numbers):
            whole = isinstance(low, int) and isinstance(high, int)
            if whole and step is not None and not isinstance(step, int):
                raise UsageError(f"{path}: {name} has the range {value}\nIts step must be whole, too")
            if not low < high or (log and low <= 0) or (step is not None and (log or step <= 0)):
                raise UsageError(
                    f"{path}: {name} has the range {value}\nlow must be below high, and step above 0; with "
                    "log: true, low must be above 0, and step left out"
                )
            if step is not None and step > high - low:
                raise UsageError(
                    f"{path}: {name} has the range {value}\nIts step is too large: low is the only value"
                )
            return Range(low, high, bool(log), step)
    raise UsageError(
        f"{path}: {name} is {value!r}\nWrite a list of values, or {{low: 0.001, high: 0.1, log: true}}"
    )


def _number(value: Any) -> Any:
    """Convert texts such as `1e-3` and `1.5e3` to numbers; YAML needs a point and a sign in the exponent."""
    is_number = isinstance(value, str) and re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+", value)
    return float(value) if is_number else value


def _parts(name: str) -> list[str]:
    """The path of an option such as `model.encoder.gamma` in a configuration, with `init_args` of classes."""
    group, *rest = [part for part in name.split(".") if part != "init_args"]
    if rest == ["encoder", "class_path"]:
        return ["model", "init_args", *rest]
    if group == "model" and rest[:1] == ["encoder"] and len(rest) > 1:
        return ["model", "init_args", "encoder", "init_args", *rest[1:]]
    return [group, *(["init_args"] if group != "trainer" else []), *rest]


def _is_checked(name: str) -> bool:
    """Whether a complete configuration must have this option; options below loggers may be missing."""
    return not name.startswith("trainer.") or name.count(".") == 1


def _look_up(settings: Mapping[str, Any], name: str) -> Any:
    value: Any = settings
    for part in _parts(name):
        if not isinstance(value, Mapping) or part not in value:
            return _Absent
        value = value[part]
    return value


class _Absent:
    """Marks an option that a configuration does not have."""


def nested(options: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Options as a nested configuration, merged over a copy of `base`.

    If an option names a class and others its arguments, the name becomes the `class_path`.

    >>> nested({"model.encoder.gamma": 0.1, "trainer.max_epochs": 3})
    {'model': {'init_args': {'encoder': {'init_args': {'gamma': 0.1}}}}, 'trainer': {'max_epochs': 3}}
    """
    whole = copy.deepcopy(dict(base or {}))
    # a class comes before its arguments
    for name in sorted(options, key=lambda name: _parts(name)[-1] not in ("encoder", "class_path")):
        *folders, last = _parts(name)
        place = whole
        for folder in folders:
            below = place.get(folder)
            named = {"class_path": below} if isinstance(below, str) else {}
            place[folder] = below if isinstance(below, dict) else named
            place = place[folder]
        if last == "class_path" and place.get(last) != options[name]:
            place.pop("init_args", None)  # of the other class
        place[last] = options[name]
    return whole
