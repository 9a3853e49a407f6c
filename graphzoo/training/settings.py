"""Checks of settings that the parser accepts wrongly, and the seeds of data and task."""

from __future__ import annotations

import os
import typing
from importlib import import_module
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import WeightAveraging

from graphzoo.catalog.classes import arguments_of
from graphzoo.catalog.settings import flatten, read_settings
from graphzoo.errors import UsageError, check_range
from graphzoo.training.options import config_files
from graphzoo.training.plan import Plan


def own_seeds(plan: Plan) -> set[str]:
    """Find which of "data" and "model" have a seed of their own.

    The last file that sets `data.seed` or `model.seed` counts. A seed that equals the file's
    `seed_everything`, as in a printed configuration, is the run's and not the section's own. Earlier versions
    printed `model.seed: 0` beside any `seed_everything`; with `--seed`, that is not its own either.
    """
    own: set[str] = set()
    for file in filter(os.path.isfile, config_files(plan.arguments)):
        settings = flatten(read_settings(Path(file)))
        of_run = settings.get("seed_everything")
        for section in ("data", "model"):
            seed = settings.get(f"{section}.seed")
            if seed is None:
                continue
            follows = seed in (of_run, "${seed_everything}") or (
                seed == 0 and of_run is not None and plan.seed is not None
            )
            own = own - {section} if follows else own | {section}
    return own | {section for section in ("data", "model") if plan.names(f"{section}.seed")}


def follow_seed(config: Namespace, own: set[str]) -> None:
    """Set the run's seed in data and task, except in sections of `own` and those without a seed."""
    if "seed_everything" not in config:
        return  # a nested parser
    for section in {"data", "model"} - own:
        arguments = (config.get(section) or {}).get("init_args") or {}
        if "seed" in arguments:
            arguments["seed"] = int(config.seed_everything)


def refuse_nulls(config: dict[str, Any]) -> None:
    """Refuse `null` for arguments that need a value or whose type excludes it; the parser does not."""
    model = config.get("model") or {}
    encoder = (model.get("init_args") or {}).get("encoder")
    for option, described in (("model", model), ("data", config.get("data")), ("model.encoder", encoder)):
        if not isinstance(described, dict) or not described.get("class_path"):
            continue
        hints = _hints(described["class_path"])
        needed = _untyped_and_required(described["class_path"])
        for name, value in (described.get("init_args") or {}).items():
            hint = hints.get(name)
            if value is None and name in needed:
                raise UsageError(
                    f"{described['class_path']} needs --{option}.{name}\n"
                    f"Give it, or write a default into __init__, which may be {name}=None"
                )
            if value is None and hint not in (None, Any) and type(None) not in typing.get_args(hint):
                kind = getattr(hint, "__name__", str(hint))
                raise UsageError(
                    f"--{option}.{name}: expected {kind}, got null\nLeave it out to use the default"
                )


def _hints(class_path: str) -> dict[str, Any]:
    module, _, name = class_path.rpartition(".")
    try:
        return typing.get_type_hints(getattr(import_module(module), name).__init__)
    except (ImportError, AttributeError, NameError, TypeError):
        return {}  # unknown types: the class itself checks its arguments


def _untyped_and_required(class_path: str) -> set[str]:
    """Arguments without a type and a default: the parser makes them None if they are not given."""
    module, _, name = class_path.rpartition(".")
    try:
        arguments = arguments_of(getattr(import_module(module), name))
    except (ImportError, AttributeError, ValueError, TypeError):
        return set()
    return {each.name for each in arguments if each.default is each.empty is each.annotation}


def check_trainer(config: dict[str, Any]) -> None:
    """Refuse Trainer arguments that would fail only later; `config` holds the callbacks as objects."""
    for name in ("check_val_every_n_epoch", "accumulate_grad_batches"):
        check_range(at_least=1, **{f"--trainer.{name}": config.get(name)})
    given = config.get("callbacks") or []
    given = given if isinstance(given, list) else [given]
    if sum(isinstance(callback, WeightAveraging) for callback in given) > 1:
        raise UsageError(
            "two callbacks average the weights; one of them may come from the recipe\n"
            "Clear the list first: --trainer.callbacks=null --trainer.max_epochs=20"
        )


def refuse_spawned(trainer: Trainer) -> None:
    """Refuse strategies that start their processes from Python: `ddp_spawn`, `ddp_fork`, `ddp_notebook`."""
    method = getattr(trainer.strategy, "_start_method", "popen")
    if method != "popen":
        raise UsageError(
            f"the strategy starts its processes by {method}, which does not work for a command\n"
            "Take --trainer.strategy=ddp, which runs the same command once per device"
        )
