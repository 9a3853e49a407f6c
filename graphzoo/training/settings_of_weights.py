"""Adds to a command line what belongs to the weights that a run starts from or evaluates.

These are the encoder, settings of the task, and options of the data. What the user has set stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from graphzoo.catalog.classes import arguments_of, load_class
from graphzoo.catalog.settings import read_settings
from graphzoo.catalog.tasks import TaskInfo, check_same_task, function_of, task_of, task_of_data
from graphzoo.checkpoints.checks import check_description
from graphzoo.checkpoints.read import read_checkpoint
from graphzoo.encoders.pretrained import read_pretrained
from graphzoo.errors import UsageError
from graphzoo.training.options import config_files
from graphzoo.training.plan import Plan, RunState, find_data
from graphzoo.training.trust import check_class

_SHAPING = ("decoder",)  # settings of tasks that decide which weights exist


class _Weights(NamedTuple):
    """A checkpoint or exported weights."""

    path: Path
    content: Mapping[str, Any]

    @property
    def description(self) -> Mapping[str, Any] | None:
        """What graphzoo has written about them; None if another program wrote them."""
        return self.content.get("graphzoo")


def take_settings_of_weights(state: RunState) -> None:
    """Add to a run's arguments what its plan leaves to the weights.

    Raises:
        UsageError: if the weights cannot be read, or do not say what is needed.
    """
    plan = state.plan
    brings_model, brings_options = plan.encoder_from_checkpoint or plan.weights, _brings_data_options(plan)
    if brings_model or brings_options:
        weights = _read(plan)
        if brings_model:
            _take_model(state, weights)
        if brings_options:
            _take_data_options(state, weights)
    elif plan.run_config is not None:
        _keep_scaling(state, plan.run_config)


def _read(plan: Plan) -> _Weights:
    if (checkpoint := plan.checkpoint) is None:
        return _Weights(Path(plan.weights), read_pretrained(plan.weights))
    content = read_checkpoint(checkpoint)
    check_description(content, checkpoint)
    return _Weights(checkpoint, content)


def _brings_data_options(plan: Plan) -> bool:
    """Whether weights come without their run, and no recipe or file sets the options of the data."""
    # a fit from a checkpoint resumes its run
    is_alone = plan.checkpoint is not None and plan.run_config is None and plan.command != "fit"
    return (bool(plan.weights) or is_alone) and not plan.names_recipe and not config_files(plan.typed)


def _take_model(state: RunState, weights: _Weights) -> None:
    """Take encoder and settings from a checkpoint without a run, or from exported weights.

    If the user names the encoder, only settings of the task that decide which weights exist are taken.
    """
    plan, described = state.plan, weights.description
    if described is None:
        raise UsageError(f"{weights.path} does not say which encoder it holds: add --model NAME")
    if plan.weights:
        check_same_task(described, task_of_data(state.data), str(weights.path))
    encoder = described["encoder"]
    if plan.encoder_from_checkpoint and not plan.trust:
        check_class(encoder, "the encoder", str(weights.path))
    state.model = state.model or encoder["class_path"].rpartition(".")[2].lower()
    settings = {}
    if plan.weights:  # evaluated with the settings of its training; a new training has its own
        settings = weights.content.get("hyper_parameters", {})
        if plan.command == "fit" or not plan.encoder_from_checkpoint:
            settings = {name: settings[name] for name in _SHAPING if name in settings}
    if plan.encoder_from_checkpoint:
        settings = {**settings, "encoder": encoder}
    own = ("--model.encoder.", "--model.init_args.encoder.")  # the user's changes must come after the encoder
    changes = (place for place, word in enumerate(state.arguments) if word.startswith(own))
    place = next(changes, len(state.arguments))
    state.arguments[place:place] = [
        _word("model", name, value)
        for name, value in settings.items()
        if name != "start_from" and not plan.names(f"model.{name}")
    ]


def _keep_scaling(state: RunState, config: Path) -> None:
    """Keep features unstandardised in runs of links that are older than the option to standardise them."""
    settings = read_settings(config)  # may hold anything, which is told where it is compared
    data = settings.get("data") if isinstance(settings, dict) else None
    name = "standardize_features"
    if not isinstance(data, dict) or state.plan.names(f"data.{name}"):
        return
    is_of_links = str(data.get("class_path")).endswith(".LinkDataModule")
    if is_of_links and name not in (data.get("init_args") or {}):
        features = (_read(state.plan).description or {}).get("features") or {"mean": None}
        if "mean" not in features:
            state.arguments.append(_word("data", name, False))


def _take_data_options(state: RunState, weights: _Weights) -> None:
    """Set options of the data as in the training of the weights; see `Task.data_options`."""
    plan, described = state.plan, weights.description or {}
    task = task_of(described.get("task"))
    if task is None or task is not task_of_data(plan.data):
        return
    data_class = load_class(read_settings(find_data(plan.data).path)["data"]["class_path"], plan.data)
    known = {each.name for each in arguments_of(data_class)}  # a mixture has options of its own
    try:
        groups = _data_options(plan, task, described)
    except (AttributeError, KeyError, TypeError) as error:
        raise UsageError(
            f"{weights.path}: its description of the data is damaged ({error!r})\n"
            "Take another checkpoint of the run, or train it again"
        ) from error
    for options in groups:
        if options.keys() <= known and not any(plan.names(f"data.{name}") for name in options):
            state.arguments += [_word("data", name, value) for name, value in options.items()]


def _data_options(plan: Plan, task: TaskInfo, described: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Groups of options that belong together; an error of any kind means that `described` is damaged."""
    groups: list[dict[str, Any]] = function_of(task.class_path).data_options(  # type: ignore[attr-defined]
        described, is_fit=plan.command == "fit", is_own=plan.data == task.kind
    )
    for name, value in (item for options in groups for item in options.items()):
        is_word = isinstance(value, str) and value.isidentifier()  # the parser would resolve `${...}`
        if not is_word and not isinstance(value, int | float | None):
            raise TypeError(f"{name} is {value!r}")
    return groups


def _word(group: str, name: str, value: Any) -> str:
    """An argument of a class as a word of the command line."""
    text = value if isinstance(value, str) else json.dumps(value)
    return f"--{group}.init_args.{name}={text}"
