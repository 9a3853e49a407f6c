"""Resolves the names on a command line into configuration files, before any slow import.

`fit --model knowformer --data umls X` becomes `--config data/umls.yaml --config model/knowformer.yaml
--config recipe/knowformer/umls.yaml X`. Data comes first: its preset names the task whose arguments the other
presets set. All presets come before the user's own arguments, so that these take precedence.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from graphzoo.catalog.classes import encoder_plugins, find_plugin
from graphzoo.catalog.presets import Preset, find_preset, list_presets, read_header, recipe_for_cpu
from graphzoo.catalog.tasks import TASKS, TaskInfo, check_task, model_names
from graphzoo.catalog.weights import WEIGHTS
from graphzoo.errors import UsageError, check_choice, normalise, suggestion
from graphzoo.runs.checkpoints import locate
from graphzoo.runs.directory import GIVEN_DATA, is_child, several_processes
from graphzoo.runs.lock import RunLock
from graphzoo.system.units import duration
from graphzoo.training.options import (
    FLAGS,
    MATMUL_PRECISIONS,
    OF_OPTIMIZER,
    check_options,
    config_files,
    names_optimizer,
    passes_through,
    split_options,
    watch_metric,
)

_LONG = 7200.0  # seconds; for a longer training on a CPU, a shorter recipe is suggested


@dataclass(frozen=True)
class Plan:
    """What a command line asks for; `RunState` holds the state of the run itself."""

    command: str  # fit, validate or test
    arguments: tuple[str, ...]  # passed to LightningCLI
    typed: tuple[str, ...] = ()  # the user's own arguments, without presets and checkpoint
    model: str = ""  # its name, for the run directory and the results; "" while unknown
    data: str = ""
    recipe: str = ""  # <model>/<name>
    recipe_file: str = ""  # its path, if it is read for this plan
    names_recipe: bool = False  # the user named the recipe
    seed: int | None = None  # given on the command line
    run_dir: Path | None = None  # given on the command line, or of the run that is resumed
    checkpoint: Path | None = None  # file to start from, or to evaluate
    source_run: Path | None = None  # the run directory that contains `checkpoint`
    run_config: Path | None = None  # configuration of `source_run`, if it replaces --model and --data
    resume: bool = False  # whether the run in `source_run` is resumed
    encoder_from_checkpoint: bool = False  # the encoder is the one stored with the checkpoint or `weights`
    matmul_precision: str | None = None  # of float32 products: given, or of the run that is resumed
    weights: str = ""  # exported weights to start from or to evaluate: a folder or a name
    override: bool = False  # --override: settings may differ from the checkpoint's
    trust: bool = False  # --trust: any class that a run's files name may be imported
    debug: bool = False  # --debug: errors other than wrong settings show their traceback
    dry_run: bool = False  # --dry-run: a few steps are timed, and nothing is written
    quiet: bool = False  # --quiet: only results and errors are printed
    tests: bool = True  # `fit` evaluates the test split at its end
    leaves_graph: bool = True  # `fit` also writes the graph that prediction needs; trials do not
    used: tuple[str, ...] = ()  # presets that were applied, for the line printed at the start
    callbacks: tuple[Any, ...] = ()  # further callbacks, given in Python

    def names(self, option: str) -> bool:
        """Whether the user's arguments set `option`, with or without `init_args` in its name."""
        group, _, key = option.partition(".")
        spellings = (f"--{group}.{key}", f"--{group}.init_args.{key}")
        return any(argument.partition("=")[0].rstrip("+") in spellings for argument in self.typed)

    def for_cpu(self, seconds: float, device: str) -> str:
        """A shorter recipe and its scores, if the published training takes hours on a CPU; else "".

        A run that is resumed, starts from weights, or has settings of the user's own gets no suggestion.
        """
        own = ("--model.", "--data.", "--config", "--trainer.max_", "--trainer.limit_")
        elsewhere = ("--data.root", "--data.num_workers")  # change no score
        begun = self.checkpoint is not None or self.weights
        changed = any(x.startswith(own) and x.partition("=")[0] not in elsewhere for x in self.typed)
        if device != "cpu" or seconds < _LONG or begun or changed:
            return ""
        preset = recipe_for_cpu(self.recipe)
        if preset is None or preset.header.get("data", preset.name.rpartition("/")[2]) != self.data:
            return ""
        return f"--recipe {preset.name.rpartition('/')[2]}: {preset.header['measured']}"

    def shorter(self, training: float, test: float, test_cost: float, device: str) -> tuple[str, str] | None:
        """A setting that shortens a run of hours, for what takes most of them, and a word for it.

        Args:
            training: Seconds of training, validations included.
            test: Seconds of the test after it.
            test_cost: Cost of the test under both protocols, as a multiple of that under one.
            device: Type of the device.
        """
        if test > max(training, _LONG):
            if test_cost > 2 and not self.names("data.test_both"):
                once = duration(test / test_cost)
                return "shorter", f"--data.test_both false tests under one protocol only, in about {once}"
            return "shorter", "--no-test ends the run with the training; graphzoo test RUN tests it later"
        if text := self.for_cpu(training, device):
            return "for a CPU", text
        lengths = ("--trainer.max_", "--trainer.limit_", "--config", "--trainer=")  # files may set them, too
        is_cut = self.resume or "--trainer" in self.typed or any(x.startswith(lengths) for x in self.typed)
        if device != "cpu" or training < _LONG or is_cut:
            return None
        return "shorter", "--trainer.max_time 00:02:00:00 ends the training after two hours"

    def taking(self, used: str, *words: str, **names: Any) -> Plan:
        """The plan with one more preset.

        Args:
            used: The preset in words, for the line printed at the start.
            *words: Its arguments; they are added before those of the user.
            **names: Further fields of the plan that it sets.
        """
        return replace(self, used=(*self.used, used), arguments=(*self.arguments, *words), **names)


@dataclass
class RunState:
    """The state of a run; the plan that it belongs to does not change."""

    plan: Plan
    arguments: list[str]  # passed to LightningCLI: the plan's, with untrusted files replaced by checked ones
    model: str  # its name; may come from the configuration or the checkpoint
    data: str
    data_name: str = ""  # shown name of the data; for own data, that of the folder or file
    run_dir: Path | None = None  # where the run is written; None until it is chosen
    device: str = "cpu"  # kind of device that the run uses
    missing: list[Path] = field(default_factory=list)  # folders that the run creates, the innermost first
    left_out: dict[str, Any] = field(default_factory=dict)  # Trainer arguments that need --trust
    wrote: Path | None = None  # the config.yaml that this process wrote
    events: set[Path] | None = None  # TensorBoard files of the resumed run
    resumed: str = ""  # which settings changed on resuming, and when; no command can repeat such a run
    lock: RunLock | None = None  # keeps other processes from writing into the run directory
    # Training or evaluation has begun. An error is then not a wrong setting, unless it is a UsageError.
    began: bool = False

    @classmethod
    def of(cls, plan: Plan) -> RunState:
        """The state before the run starts."""
        return cls(plan, list(plan.arguments), plan.model, plan.data)

    @property
    def names(self) -> dict[str, str]:
        """Names of model, data and recipe; "" if there is none."""
        return {"model": self.model, "data": self.data, "recipe": self.plan.recipe}


def make_plan(command: str, argv: list[str]) -> Plan:
    """Resolve the names of a fit, validate or test command line.

    Raises:
        UsageError: for unknown names, a model that does not suit the data, and missing values or files.
    """
    values, flags, rest = split_options(argv)
    check_options(command, rest)
    plan = _wish(command, values, flags, rest)
    data = _data(values.get("data"))
    model = _model(values.get("model"))
    wanted = values.get("ckpt_path")
    if wanted in WEIGHTS and model is None:
        model = _model(wanted)
    plan = _locate_checkpoint(plan, wanted, data, model)
    own = config_files(rest)
    if plan.source_run is not None and not (data and model) and not _names_task(own):
        plan = _lean_on_run(plan, plan.source_run, has_data=data is not None or plan.names("data.path"))
    elif own:
        header = dict(chain.from_iterable(read_header(file).items() for file in own if Path(file).is_file()))
        plan = replace(plan, **_names_in(header))
        if command == "fit":
            plan = _multiplying_as(plan, header)
    task = _check_named_once(plan, data, model, own)
    plan = _check_complete(plan, data, model, bool(own))
    plan = _apply_model(_apply_data(plan, data), model)
    _check_pair(plan, data, model)
    plan = _apply_recipe(plan, values.get("recipe"), fresh=model is not None and plan.run_config is None)
    plan = replace(plan, names_recipe=values.get("recipe") not in (None, "none"))
    plan = _apply_trainer(plan, values.get("trainer"), values.get("logger", ""))
    if isinstance(data, Preset) and (needed := data.header.get("requires")):
        if not own and not plan.names(needed):
            raise UsageError(f"data {data.name} needs your files: add --{needed} FOLDER_OR_FILES")
    # A model preset does not name a task. Without a data preset, the user's files name it.
    lead = [f"--model={task}"] if task and model is not None and data is None else []
    typed = watch_metric(rest, _task(data))
    seed = [] if plan.seed is None else ["--seed_everything", str(plan.seed)]
    start = [] if plan.checkpoint is None else ["--ckpt_path", str(plan.checkpoint)]
    if plan.weights:
        start = [f"--model.init_args.start_from={plan.weights}"]
    return replace(plan, arguments=(*lead, *plan.arguments, *typed, *seed, *start))


def _names_task(files: list[str]) -> bool:
    """Whether the user's files replace the configuration of a run; others change some settings of it."""
    if not files:
        return False
    from graphzoo.training import named_twice  # which reads YAML

    return bool(named_twice.class_of_task(named_twice.read_files(files)))


def _check_named_once(
    plan: Plan, data: Preset | str | None, model: Preset | str | None, own: list[str]
) -> str:
    """Refuse settings that contradict each other, or of which one would be ignored.

    Returns:
        The class of the task that the user's files name, or "".
    """
    has_optimizer, task = names_optimizer(plan.typed), ""
    if own:
        from graphzoo.training import named_twice  # which reads YAML

        files = named_twice.read_files(own)
        has_optimizer = has_optimizer or named_twice.bring_optimizer(files)
        task = named_twice.class_of_task(files)
        if isinstance(data, Preset):
            named_twice.refuse_other_data(files, data)
        if isinstance(model, Preset):
            named_twice.refuse_other_model(files, model)
    for option, other in OF_OPTIMIZER.items():
        if has_optimizer and plan.names(option):
            raise UsageError(
                f"--optimizer replaces the task's own optimiser, so --{option} would be ignored\nGive {other}"
            )
    return task


def _task(data: Preset | str | None) -> TaskInfo | None:
    return TASKS.get(data.header.get("task", "")) if isinstance(data, Preset) else None


def _wish(command: str, values: dict[str, str], flags: set[str], rest: list[str]) -> Plan:
    """The plan of the options alone, before names are resolved."""
    if command != "fit":
        for flag in sorted(flags):
            if FLAGS[flag].startswith("fit: "):
                message = f"--{flag.replace('_', '-')} is an option of fit; {command} does not train"
                raise UsageError(f"{message}\nLeave it out of graphzoo {command}")
    return Plan(
        command,
        (),
        tuple(rest),
        seed=_seed(values.get("seed")),
        run_dir=Path(os.path.expanduser(values["run_dir"])) if "run_dir" in values else None,
        matmul_precision=_matmul_precision(values.get("matmul_precision")),
        tests="no_test" not in flags,
        override="override" in flags,
        trust="trust" in flags,
        debug="debug" in flags,
        dry_run="dry_run" in flags,
        quiet="quiet" in flags,
    )


def _lean_on_run(plan: Plan, run: Path, *, has_data: bool) -> Plan:
    """The plan with the configuration of the run whose checkpoint was given."""
    config = run / "config.yaml"
    names = _names_in(read_header(config))
    words = ["--config", str(config), *([] if has_data else _moved_data(run, config))]
    plan = plan.taking(f"the configuration of {run}", *words, run_config=config, **names)
    return plan.taking("no test, as before") if plan.resume and not plan.tests else plan


def _moved_data(run: Path, config: Path) -> list[str]:
    """The option that points to the run's copy of data in memory, if the run was moved; else nothing.

    Data read from other files must still be where the run read them.
    """
    from graphzoo.catalog.settings import read_settings

    settings: Any = read_settings(config)
    for key in ("data", "init_args", "path"):
        settings = settings.get(key) if isinstance(settings, dict) else None
    for part in settings if isinstance(settings, list) else [settings]:
        if not isinstance(part, str) or part.startswith("[") or os.path.exists(os.path.expanduser(part)):
            continue
        if os.path.basename(part) == GIVEN_DATA and (run / GIVEN_DATA).is_file():
            return [f"--data.init_args.path={run / GIVEN_DATA}"]
        remedy = "Give the place of the data with --data.path PATH"
        if not os.path.isabs(os.path.expanduser(part)):
            remedy = "Run it in the folder where the run was started, or give the data with --data.path PATH"
        raise UsageError(f"{run} was trained on {part}, which does not exist here\n{remedy}")
    return []


def _check_pair(plan: Plan, data: Preset | str | None, model: Preset | str | None) -> None:
    """Refuse a model that does not suit the data's task, and training of a heuristic."""
    if isinstance(data, Preset) and isinstance(model, Preset):
        check_task(data, model)
    if plan.command == "fit" and isinstance(model, Preset) and model.header.get("kind") == "heuristic":
        raise UsageError(
            f"model {model.name} is a heuristic: there is nothing to train\n"
            "Evaluate it with graphzoo test and the same --model and --data"
        )


def _data(value: str | None) -> Preset | str | None:
    return value if value is None or passes_through("data", value) else find_data(value)


def find_data(value: str) -> Preset:
    """The data preset of this name; for a path, the `UsageError` says how to give data of one's own."""
    try:
        return find_preset("data", value)
    except UsageError as error:
        if Path(value).exists():
            kind = "folder" if Path(value).is_dir() else "file"
            raise UsageError(
                f"--data takes the name of a data set, and {value!r} is a {kind}\n"
                f"Give --data kg (triples), --data links or --data nodes with --data.path {value}"
            ) from error
        raise


def _model(value: str | None) -> Preset | str | None:
    if value is None or passes_through("model", value):
        return value
    is_preset = any(normalise(preset.name) == normalise(value) for preset in list_presets("model"))
    if not is_preset and (plugin := find_plugin(value)):
        return "plugin:" + plugin.name
    try:
        return find_preset("model", value)
    except UsageError as error:
        names = model_names()
        some = f"Some models: {', '.join(names[:8])}; `graphzoo list model` shows all."
        raise UsageError(f"unknown model {value!r}\n{suggestion(value, names) or some}") from error


def _locate_checkpoint(
    plan: Plan, value: str | None, data: Preset | str | None, model: Preset | str | None
) -> Plan:
    if value is None:
        return plan
    pattern = f"{_short(model) or '*'}-{_short(data) or '*'}"
    checkpoint, run = locate(plan.command, value, run_dir=plan.run_dir, pattern=pattern)
    if checkpoint.suffix == ".safetensors":
        return _begin_with(plan, value, checkpoint, data)
    plan = replace(plan, checkpoint=checkpoint, source_run=run)
    if plan.command != "fit" or checkpoint.stem != "last" or run is None:
        return plan
    if plan.run_dir is not None and plan.run_dir.absolute() != run.absolute():
        return plan
    # A run that was started without a test is resumed without one, too.
    header = read_header(run / "config.yaml")
    tests = plan.tests and header.get("test") != "no"
    return replace(_multiplying_as(plan, header), resume=True, run_dir=run, tests=tests)


def _begin_with(plan: Plan, value: str, weights: Path, data: Preset | str | None) -> Plan:
    """The plan of a new run that starts from exported weights, which have no run to resume."""
    if data is None:
        remedy = "Add --data NAME, or --data kg, links or nodes with --data.path YOURS"
        raise UsageError(f"{value} holds only weights, no data\n{remedy}")
    if (task := _task(data)) is not None and not task.inference:
        raise UsageError(f"{value} holds exported weights, which graphzoo cannot use for {task.title}")
    name = value if value in WEIGHTS else str(weights.parent)
    return replace(plan, weights=name, used=(*plan.used, f"the weights of {name}"))


def _check_complete(
    plan: Plan, data: Preset | str | None, model: Preset | str | None, own_config: bool
) -> Plan:
    """Refuse a missing --data or --model, unless a configuration file or the checkpoint names it."""
    if own_config or plan.run_config is not None:
        return plan
    if data is None:
        names = ", ".join(preset.name for preset in list_presets("data")[:6])
        if plan.checkpoint is not None:
            raise UsageError(
                f"{plan.checkpoint} is not in a run directory, so its data are unknown\n"
                f"Add --data NAME ({names}, ...), or give the run directory instead"
            )
        reason, remedy = (
            "needs a data set: add --data NAME",
            f"Some are {names}; `graphzoo list data` shows all",
        )
        if plan.names("data.path"):
            reason = "needs to know what --data.path holds"
            remedy = "Add --data kg (triples), --data links or --data nodes"
        raise UsageError(f"{plan.command} {reason}\n{remedy}")
    if isinstance(data, str) and (encoder := _encoder_of(model)):
        kind, path = encoder
        tasks = [row.class_path for row in TASKS.values() if kind in ("", *row.accepts) and row.inference]
        raise UsageError(
            f"--data {data} is a class: neither it nor --model NAME says which task to train\n"
            f"Give task and encoder: --model {' or '.join(tasks)} --model.encoder {path}"
        )
    if model is not None or plan.names("model.encoder"):
        return plan
    if plan.checkpoint is not None or plan.weights:
        return replace(plan, encoder_from_checkpoint=True)
    task = _task(data)
    presets = list_presets("model")
    fitting = [each.name for each in presets if task is None or each.header.get("kind") in task.accepts]
    names = ", ".join([*fitting, *encoder_plugins()])
    raise UsageError(f"{plan.command} needs a model: add --model NAME\nThere are: {names}")


def _encoder_of(model: Preset | str | None) -> tuple[str, str] | None:
    """Kind ("" if unknown) and class path of the encoder of a named model; None if it names its task."""
    from graphzoo.catalog.settings import read_settings  # imports YAML, which most plans do not need

    if isinstance(model, Preset):
        encoder: Any = read_settings(model.path)
        for part in ("model", "init_args", "encoder"):
            encoder = encoder.get(part) if isinstance(encoder, dict) else None
            if part == "model" and isinstance(encoder, dict) and "class_path" in encoder:
                return None  # it names its task
        encoder = encoder.get("class_path") if isinstance(encoder, dict) else encoder
        if not isinstance(encoder, str) or model.name.startswith("heuristic."):  # nothing to train
            return None
        return model.header.get("kind", ""), encoder
    if model is not None and model.startswith("plugin:") and (plugin := find_plugin(_short(model))):
        return "", plugin.value.replace(":", ".")
    return None


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
    """The plan with the given recipe, or by default with that of the model on the data."""
    if value == "none":
        return replace(plan, recipe="")
    if value is not None and value.endswith((".yaml", ".yml")):
        if not Path(value).is_file():
            raise UsageError(f"--recipe: there is no file {value!r}")
        return plan.taking(f"recipe {value}", "--config", value, recipe=Path(value).stem, recipe_file=value)
    if value is not None:
        if not plan.model:
            raise UsageError(f"--recipe {value} needs --model NAME: recipes belong to a model")
        recipes = [find_preset("recipe", value.removeprefix(f"{plan.model}/"), model=plan.model)]
    elif not fresh:
        return plan
    else:
        usual = f"{plan.model}/{plan.data}"
        recipes = [preset for preset in list_presets("recipe", plan.model) if preset.name == usual]
    if not recipes:
        return plan.taking("no recipe")
    recipe = recipes[0]
    used, file = f"recipe {recipe.name}", str(recipe.path)
    return plan.taking(used, "--config", file, recipe=recipe.name, recipe_file=file)


def _apply_trainer(plan: Plan, trainer: str | None, loggers: str) -> Plan:
    """The plan with the presets of `--trainer` and `--logger`."""
    named = [] if trainer is None or passes_through("trainer", trainer) else [trainer]
    presets = [find_preset("trainer", name) for name in named]
    logged = [find_preset("logger", name) for name in dict.fromkeys(loggers.split(",")) if name]
    # `csv` clears the list of loggers, so it comes before the presets that add to it.
    for preset in [*presets, *sorted(logged, key=lambda preset: preset.name != "csv")]:
        plan = plan.taking(f"{preset.kind} {preset.name}", "--config", str(preset.path))
    return plan


def _names_in(header: dict[str, str]) -> dict[str, Any]:
    return {key: header.get(key, "") for key in ("model", "data", "recipe")}


def draw_seed() -> int:
    """A random seed, for `--seed true`; the processes that a run starts share it."""
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


def _multiplying_as(plan: Plan, header: dict[str, str]) -> Plan:
    """The plan with the precision of products in a run's config.yaml, unless the user gave another."""
    precision = plan.matmul_precision or _matmul_precision(header.get("matmul_precision"))
    return replace(plan, matmul_precision=precision)


def _matmul_precision(value: str | None) -> str | None:
    if value is not None:
        check_choice("--matmul_precision", value, MATMUL_PRECISIONS)
    return value


def _short(choice: Preset | str | None) -> str:
    """The name for run directories: a preset's name, or the last part of a class path."""
    if choice is None:
        return ""
    if isinstance(choice, Preset):
        return choice.name
    plugin = choice.removeprefix("plugin:")
    return plugin if plugin != choice else choice.rpartition(".")[2].lower()
