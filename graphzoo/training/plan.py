"""The pre-pass: turns names into configuration files before anything heavy is imported.

`fit --model knowformer --data umls X` becomes `--config data/umls.yaml --config model/knowformer.yaml
--config recipe/knowformer/umls.yaml X`. Data comes first, since its preset names the task whose arguments the
others set; all presets stand before the user's own arguments, so that these win wherever they are typed.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphzoo.catalog.classes import encoder_plugins, find_plugin
from graphzoo.catalog.presets import Preset, find_preset, list_presets, read_header
from graphzoo.catalog.tasks import TASKS, check_task, model_names, nearest_model
from graphzoo.errors import UsageError
from graphzoo.runs.checkpoints import locate
from graphzoo.runs.directory import is_child, several_processes
from graphzoo.training.options import (
    FLAGS,
    check_options,
    header_of_configs,
    join_lines,
    only_configs,
    passes_through,
    split_options,
    watch_metric,
    without_configs,
)

__all__ = ["Plan", "draw_seed", "make_plan"]


@dataclass(frozen=True)
class Plan:
    """What a command line asks for; `RunState` says what has become of it.

    Args:
        command: fit, validate or test.
        arguments: What LightningCLI gets.
        typed: The user's own arguments, presets and checkpoint left out.
        model: Name of the model, for the run directory and the results; empty until it is known.
        data: Likewise for the data.
        recipe: `<model>/<name>` or empty.
        seed: Seed given on the command line.
        run_dir: Directory given on the command line, or that of the run that is resumed.
        checkpoint: File to start from.
        source_run: The run directory that `checkpoint` lies in.
        run_config: The configuration of `source_run`, when the command line leans on it.
        resume: Whether the run goes on in `source_run`.
        encoder_from_checkpoint: Whether the checkpoint alone says which encoder is meant.
        override: Whether settings may differ from the checkpoint's.
        trust: Whether classes named by a run's files may be imported whatever they are.
        debug: Whether errors that are no wrong setting show their traceback.
        dry_run: Whether a few steps are timed and nothing is written.
        quiet: Whether nothing is said but the result and what went wrong.
        tests: Whether `fit` ends with the test split.
        leaves_graph: Whether `fit` leaves what prediction needs beside the weights; trials do not.
        used: What was taken, for the line printed at the start.
        callbacks: More callbacks for the Trainer, from a caller in Python.
    """

    command: str
    arguments: tuple[str, ...]
    typed: tuple[str, ...] = ()
    model: str = ""
    data: str = ""
    recipe: str = ""
    seed: int | None = None
    run_dir: Path | None = None
    checkpoint: Path | None = None
    source_run: Path | None = None
    run_config: Path | None = None
    resume: bool = False
    encoder_from_checkpoint: bool = False
    override: bool = False
    trust: bool = False
    debug: bool = False
    dry_run: bool = False
    quiet: bool = False
    tests: bool = True
    leaves_graph: bool = True
    used: tuple[str, ...] = ()
    callbacks: tuple[Any, ...] = ()

    def names(self, option: str) -> bool:
        """Whether the user's arguments set `option`, written short or with `init_args`."""
        group, _, key = option.partition(".")
        spellings = (f"--{group}.{key}", f"--{group}.init_args.{key}")
        return any(argument.partition("=")[0].rstrip("+") in spellings for argument in self.typed)

    def taking(self, used: str, *words: str, **names: Any) -> Plan:
        """The plan with further words in front of the user's, what they stand for, and what they bring."""
        return replace(self, used=(*self.used, used), arguments=(*self.arguments, *words), **names)


def make_plan(command: str, argv: list[str]) -> Plan:
    """Resolve the names of a fit, validate or test command line.

    Args:
        command: fit, validate or test.
        argv: Everything after the command.

    Raises:
        UsageError: for unknown names, a model that does not suit the data's task, missing values or files.
    """
    values, flags, rest = split_options(argv)
    check_options(command, rest)
    plan = _wish(command, values, flags, rest)
    data = _data(values.get("data"))
    model = _model(values.get("model"))
    plan = _locate_checkpoint(plan, values.get("ckpt_path"), data, model)
    own_config = any(argument.partition("=")[0] in ("--config", "-c") for argument in rest)
    if plan.source_run is not None and not own_config and not (data and model):
        plan = _lean_on_run(plan, plan.source_run)
    elif own_config:
        plan = replace(plan, **_names_in(header_of_configs(rest)))
    plan = _check_complete(plan, data, model, own_config)
    plan = _apply_model(_apply_data(plan, data), model)
    _check_pair(plan, data, model)
    plan = _apply_recipe(plan, values.get("recipe"), fresh=model is not None and plan.run_config is None)
    plan = _apply_loggers(_apply_trainer(plan, values.get("trainer")), values.get("logger"))
    if isinstance(data, Preset) and (needed := data.header.get("requires")):
        if not own_config and not plan.names(needed):
            raise UsageError(f"data {data.name} needs your files: add --{needed} FOLDER_OR_FILES")
    # A model preset without a data preset fits no task by itself: the user's file has to come first then.
    lead = rest if own_config and model is not None and data is None else []
    task = TASKS.get(data.header.get("task", "")) if isinstance(data, Preset) else None
    typed = watch_metric(without_configs(rest) if lead else rest, task)
    seed = [] if plan.seed is None else ["--seed_everything", str(plan.seed)]
    start = [] if plan.checkpoint is None else ["--ckpt_path", str(plan.checkpoint)]
    return replace(plan, arguments=(*only_configs(lead), *plan.arguments, *typed, *seed, *start))


def _wish(command: str, values: dict[str, str], flags: set[str], rest: list[str]) -> Plan:
    """What the words say by themselves."""
    if command != "fit":
        for flag in sorted(flags):
            if FLAGS[flag].startswith("fit: "):
                told = f"--{flag.replace('_', '-')} is for fit, {command} trains nothing"
                raise UsageError(f"{told}\nLeave it out: graphzoo {command}")
    return Plan(
        command,
        (),
        tuple(rest),
        seed=_seed(values.get("seed")),
        run_dir=Path(values["run_dir"]) if "run_dir" in values else None,
        tests="no_test" not in flags,
        override="override" in flags,
        trust="trust" in flags,
        debug="debug" in flags,
        dry_run="dry_run" in flags,
        quiet="quiet" in flags,
    )


def _lean_on_run(plan: Plan, run: Path) -> Plan:
    """The configuration of the run whose checkpoint was given."""
    config = run / "config.yaml"
    names = _names_in(read_header(config))
    plan = replace(
        plan.taking(f"the configuration of {run}", "--config", str(config), **names), run_config=config
    )
    if plan.resume and not plan.tests:
        return plan.taking("no test as so far")
    return plan


def _check_pair(plan: Plan, data: Preset | str | None, model: Preset | str | None) -> None:
    """Refuse a model that does not suit the data's task, and a training of what cannot be trained."""
    if isinstance(data, Preset) and isinstance(model, Preset):
        check_task(data, model)
    if plan.command == "fit" and isinstance(model, Preset) and model.header.get("kind") == "heuristic":
        raise UsageError(
            f"model {model.name} is a heuristic: there is nothing to train\n"
            "Evaluate it with graphzoo test and the same --model and --data"
        )


def _data(value: str | None) -> Preset | str | None:
    if value is None or passes_through("data", value):
        return value
    try:
        return find_preset("data", value)
    except UsageError as error:
        if Path(value).exists():
            raise UsageError(
                f"unknown data {value!r}, but there is such a file\n"
                f"For your own triples: --data kg --data.path {value}; for a graph of nodes with features: "
                f"--data nodes --data.path {value}"
            ) from error
        raise


def _model(value: str | None) -> Preset | str | None:
    if value is None or passes_through("model", value):
        return value
    if (plugin := find_plugin(value)) and not any(preset.name == value for preset in list_presets("model")):
        return "plugin:" + plugin.name
    try:
        return find_preset("model", value)
    except UsageError as error:
        close = nearest_model(value)
        hint = (
            f"Did you mean: {', '.join(close)}?" if close else f"There are: {', '.join(model_names()[:8])}."
        )
        raise UsageError(
            join_lines(f"unknown model {value!r}", hint, "`graphzoo list` shows all names.")
        ) from error


def _locate_checkpoint(
    plan: Plan, value: str | None, data: Preset | str | None, model: Preset | str | None
) -> Plan:
    if value is None:
        return plan
    pattern = f"{_short(model) or '*'}-{_short(data) or '*'}"
    checkpoint, run = locate(plan.command, value, run_dir=plan.run_dir, pattern=pattern)
    plan = replace(plan, checkpoint=checkpoint, source_run=run)
    in_place = plan.run_dir is None or (run is not None and _same(plan.run_dir, run))
    if plan.command != "fit" or checkpoint.stem != "last" or run is None or not in_place:
        return plan
    # asked for once, the test split is left alone to the end
    tests = plan.tests and read_header(run / "config.yaml").get("test") != "no"
    return replace(plan, resume=True, run_dir=run, tests=tests)


def _check_complete(
    plan: Plan, data: Preset | str | None, model: Preset | str | None, own_config: bool
) -> Plan:
    """Say what is missing, unless a configuration file or the checkpoint brings it."""
    if own_config or plan.run_config is not None:
        return plan
    if data is None:
        names = ", ".join(preset.name for preset in list_presets("data")[:6])
        if plan.checkpoint is not None:
            raise UsageError(
                f"{plan.checkpoint} lies in no run directory, so it does not say which data to use\n"
                f"Add --data NAME ({names}, ...) or give the run directory itself"
            )
        raise UsageError(
            f"{plan.command} needs a data set: add --data NAME\n"
            f"There are: {names}, ... (`graphzoo list data`)"
        )
    if model is not None or plan.names("model.encoder"):
        return plan
    if plan.checkpoint is not None:
        return replace(plan, encoder_from_checkpoint=True)
    task = TASKS.get(data.header.get("task", "")) if isinstance(data, Preset) else None
    presets = [
        preset
        for preset in list_presets("model")
        if task is None or preset.header.get("kind") in task.accepts
    ]
    names = ", ".join([*(preset.name for preset in presets), *encoder_plugins()])
    raise UsageError(f"{plan.command} needs a model: add --model NAME\nThere are: {names}")


def _apply_data(plan: Plan, data: Preset | str | None) -> Plan:
    if data is None:
        return plan
    if isinstance(data, str):
        return replace(plan, data=_short(data))
    return plan.taking(f"data {data.name}", "--config", str(data.path), data=data.name)


def _apply_model(plan: Plan, model: Preset | str | None) -> Plan:
    if model is None:
        return plan
    if isinstance(model, Preset):
        return plan.taking(f"model {model.name}", "--config", str(model.path), model=model.name)
    name = _short(model)
    if model.startswith("plugin:") and (plugin := find_plugin(name)):
        path = plugin.value.replace(":", ".")
        return plan.taking(f"model {plugin.name} ({path})", f"--model.init_args.encoder={path}", model=name)
    return replace(plan, model=name)


def _apply_recipe(plan: Plan, value: str | None, *, fresh: bool) -> Plan:
    """The recipe asked for, or the one that model and data have together."""
    if value == "none":
        return replace(plan, recipe="")
    if value is not None and value.endswith((".yaml", ".yml")):
        if not Path(value).is_file():
            raise UsageError(f"there is no recipe file {value!r}")
        return plan.taking(f"recipe {value}", "--config", value, recipe=Path(value).stem)
    if value is not None:
        if not plan.model:
            raise UsageError(f"--recipe {value} needs --model NAME: recipes belong to a model")
        recipe = find_preset("recipe", value.removeprefix(f"{plan.model}/"), model=plan.model)
    elif not fresh:
        return plan
    else:
        usual = f"{plan.model}/{plan.data}"
        mine = [preset for preset in list_presets("recipe", plan.model) if preset.name == usual]
        if not mine:
            return plan.taking("no recipe")
        recipe = mine[0]
    return plan.taking(f"recipe {recipe.name}", "--config", str(recipe.path), recipe=recipe.name)


def _apply_trainer(plan: Plan, value: str | None) -> Plan:
    if value is None or passes_through("trainer", value):
        return plan
    preset = find_preset("trainer", value)
    return plan.taking(f"trainer {preset.name}", "--config", str(preset.path))


def _apply_loggers(plan: Plan, value: str | None) -> Plan:
    presets = [find_preset("logger", name) for name in dict.fromkeys((value or "").split(",")) if name]
    # `csv` clears the list that the others add to.
    for preset in sorted(presets, key=lambda preset: preset.name != "csv"):
        plan = plan.taking(f"logger {preset.name}", "--config", str(preset.path))
    return plan


def _names_in(header: dict[str, str]) -> dict[str, Any]:
    """Names that a saved configuration carries in its first lines."""
    return {key: header.get(key, "") for key in ("model", "data", "recipe")}


def draw_seed() -> int:
    """A seed drawn by chance: Lightning's `true`. All processes of a run have the same.

    Raises:
        UsageError: when processes started from outside would draw one each.
    """
    drawn = os.environ.get("PL_GLOBAL_SEED", "")
    if is_child() and drawn.isdecimal():
        return int(drawn)
    if several_processes():
        raise UsageError("--seed true would draw another seed in every process\nGive a number: --seed 1")
    return secrets.randbelow(2**32)


def _seed(value: str | None) -> int | None:
    if value is None:
        return None
    if value.lower() == "true":
        return draw_seed()
    if not value.isdecimal() or int(value) >= 2**32:
        raise UsageError(f"--seed must be a whole number from 0 to {2**32 - 1}, got {value!r}")
    return int(value)


def _short(choice: Preset | str | None) -> str:
    """The name for run directories: a preset's name, or the last part of a class path."""
    if choice is None:
        return ""
    if isinstance(choice, Preset):
        return choice.name
    return (
        choice.removeprefix("plugin:") if choice.startswith("plugin:") else choice.rpartition(".")[2].lower()
    )


def _same(one: Path, other: Path) -> bool:
    return one.absolute() == other.absolute()
