"""What a run was asked for beyond its presets, and the command that asks for it again."""

from __future__ import annotations

import functools
import inspect
import shlex
from collections.abc import Mapping
from typing import Any

from graphzoo.errors import UsageError
from graphzoo.presets import Preset, find_preset, list_presets
from graphzoo.registry import load_class
from graphzoo.report.records import Record, flatten
from graphzoo.rows import find_recipe
from graphzoo.runs import word_of
from graphzoo.settings_file import read_settings

__all__ = ["changed_settings", "repeat_command"]

# Where and how a run is watched, which changes no figure.
_NO_MATTER = (
    "data.root",
    "data.download",
    "data.num_workers",
    "trainer.accelerator",
    "trainer.devices",
    "trainer.logger",
    "trainer.callbacks",
    "trainer.enable_progress_bar",
    "trainer.enable_model_summary",
    "trainer.enable_checkpointing",
    "trainer.log_every_n_steps",
    "trainer.default_root_dir",
    "trainer.profiler",
)
_SECTIONS = ("model", "data", "trainer", "optimizer", "lr_scheduler")


def changed_settings(record: Record) -> dict[str, tuple[Any, Any]]:
    """Settings that differ from those of the run's presets, where they are silent from the classes' own.

    Args:
        record: A run.

    Returns:
        Name -> (this run's value, the usual one). Empty for a run without config.yaml.
    """
    found = {
        name: value
        for name, value in flatten(record.config).items()
        if name.partition(".")[0] in _SECTIONS and name not in _NO_MATTER
    }
    usual = _of_presets(record)
    usual = _defaults(record.config) | usual
    return {
        name: (value, usual.get(name))
        for name, value in found.items()
        if not _same(value, usual.get(name)) and not name.endswith(".seed")
    }


def repeat_command(record: Record) -> str:
    """A command line that trains the run again: names, seed and the settings that were changed.

    Args:
        record: A run of `graphzoo fit` or `graphzoo test`.
    """
    words = ["graphzoo", str(record.result.get("command") or "fit")]
    words += ["--model", record.model, "--data", record.data]
    own = f"{record.model}/{record.data}"
    recipe = _recipe(record)
    if recipe is not None and recipe.name != own:
        words += ["--recipe", recipe.name.removeprefix(f"{record.model}/")]
    elif recipe is None and any(preset.name == own for preset in list_presets("recipe", record.model)):
        words += ["--recipe", "none"]  # what a recipe in a file of the user's said is among the changes
    seed = record.result.get("seed", record.config.get("seed_everything"))
    if isinstance(seed, int) and not isinstance(seed, bool):
        words += ["--seed", str(seed)]
    if words[1] != "fit" and record.result.get("checkpoint"):
        words += ["--ckpt_path", str(record.result["checkpoint"])]
    for name, (value, _) in changed_settings(record).items():
        words.append(f"--{name}={word_of(value)}")
    return shlex.join(words)


def _of_presets(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for preset in _presets(record):
        found |= flatten(read_settings(preset.path))
    return found


def _presets(record: Record) -> list[Preset]:
    presets: list[Preset] = []
    for kind, name in (("data", record.data), ("model", record.model)):
        try:
            presets.append(find_preset(kind, name))
        except UsageError:
            continue  # a class path, or a name that only the user's machine knows
    recipe = _recipe(record)
    return [*presets, recipe] if recipe is not None else presets


def _recipe(record: Record) -> Preset | None:
    try:
        return find_recipe(record.model, record.recipe, record.data)
    except UsageError:
        return None  # it is no longer there


def _defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """Default values in the signatures of the classes that the configuration names."""
    model = config.get("model") or {}
    encoder = (model.get("init_args") or {}).get("encoder") if isinstance(model, dict) else None
    found = []
    for prefix, described in (("model", model), ("model.encoder", encoder), ("data", config.get("data"))):
        path = described.get("class_path") if isinstance(described, dict) else None
        if isinstance(path, str):
            found.append((prefix, path))
    return dict(_defaults_of(tuple(found)))


@functools.cache
def _defaults_of(classes: tuple[tuple[str, str], ...]) -> Mapping[str, Any]:
    """The same of prefixes and class paths; a report asks twice for each of its settings."""
    from lightning.pytorch import Trainer

    found = _signature(Trainer, "trainer") | {"trainer.use_distributed_sampler": False}
    for prefix, path in classes:
        try:
            # a class that nobody registered is not imported for a picture
            found |= _signature(load_class(path, "config.yaml"), prefix)
        except UsageError:
            continue
    return found


def _signature(cls: type, prefix: str) -> dict[str, Any]:
    parameters = inspect.signature(cls).parameters.values()
    return {
        f"{prefix}.{parameter.name}": parameter.default
        for parameter in parameters
        if parameter.default is not parameter.empty
    }


def _same(one: Any, other: Any) -> bool:
    if isinstance(other, str) and "${" in other:
        return True  # follows another setting
    if one in (None, [], {}, "") and other in (None, [], {}, ""):
        return True
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        return one is other
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return list(map(str, one)) == list(map(str, other))
    try:
        return float(one) == float(other)  # YAML reads 1e-3 as a word
    except (TypeError, ValueError):
        return str(one) == str(other)
