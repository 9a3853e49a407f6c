"""Check that a checkpoint fits the model and trainer: every tensor and count, before any of it is loaded.

Lightning and torch do not check this. An optimiser state of a wrong shape ends in a segmentation fault. A
missing one is silently started again, and so is a training whose progress is missing.
"""

from __future__ import annotations

import copy
import logging
import math
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, WeightAveraging
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.random import fork_rng

from graphzoo.checkpoints.values import RefusedError, check_numbers, check_tensor
from graphzoo.errors import UsageError

log = logging.getLogger(__name__)

OPTIMIZER_ENTRIES = "graphzoo_optimizer_entries"
"""Key of a checkpoint for the number of weights with a state, per optimiser; it reveals a lost state."""

# Limits on the parts of a model: per stored weight, and for parts without weights, such as activations.
_PARTS_PER_WEIGHT, _SPARE = 40, 1000
# A model may have this many times the numbers of the weights, so that a message can say what differs.
_LARGER = 16
_LIGHTNING = re.compile(r"[2-9]\d{0,3}(\.\d{1,6}){1,3}(\.?(a|b|rc|dev|post)\d{1,9})?(\+[a-z0-9.]{1,40})?")
_Module = TypeVar("_Module", bound=nn.Module)
_GATHERED = SingleDeviceStrategy | DDPStrategy


class MisfitError(UsageError):
    """The checkpoint `source` does not fit the model or trainer; `reason` says what differs."""

    def __init__(self, source: str, reason: str) -> None:
        remedy = "Give the checkpoint of a run with the same settings and version"
        super().__init__(f"{source} does not fit: {reason}\n{remedy}")
        self.reason = reason


class TooLargeError(UsageError):
    """A model that is far larger than the weights that it is built for."""


def build_bounded(make: Callable[[], _Module], weights: Mapping[str, Any]) -> _Module:
    """Build modules for given weights, after building them without memory to check their size.

    Untrusted settings may ask for a hundred million layers, which would take hours, or for layers that fill
    the memory.

    Args:
        make: Builds the modules.
        weights: The weights that will be loaded, by name.

    Raises:
        TooLargeError: if the modules have far more parts or numbers than the weights.
    """
    outline = outlined(make, len(weights))
    parameters = () if outline is None else outline.parameters()
    wanted = sum(value.numel() for value in parameters if not is_lazy(value))
    there = sum(value.numel() for value in weights.values() if isinstance(value, Tensor))
    if wanted > _LARGER * (there + _SPARE):
        raise TooLargeError(f"the settings ask for {wanted:,} numbers, but the weights have {there:,}")
    with _bounded_parts(len(weights)):
        return make()


def outlined(make: Callable[[], _Module], num_weights: int) -> _Module | None:
    """Build modules on the meta device, without memory for their numbers, to count and compare them.

    Returns:
        The modules; None if they cannot be built there.

    Raises:
        TooLargeError: if they have far more parts than `num_weights`.
    """
    try:
        # The random state must not change. Warnings come when the modules are really built.
        with _bounded_parts(num_weights), fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.device("meta"):
                return make()
    except TooLargeError:
        raise
    except Exception as error:  # foreign encoders may raise anything on the meta device
        log.debug("the modules cannot be outlined: %s", error)
        return None


@contextmanager
def _bounded_parts(num_weights: int) -> Iterator[None]:
    """Raise `TooLargeError` in the block as soon as it has made far more parts than there are weights."""
    most = _PARTS_PER_WEIGHT * num_weights + _SPARE
    count = 0

    def note(module: nn.Module, name: str, part: Any) -> None:
        nonlocal count
        count += 1
        if count > most:
            raise TooLargeError(
                f"the settings ask for more than {most:,} parts, but there are only {num_weights:,} weights"
            )

    with (
        torch_modules.register_module_parameter_registration_hook(note),
        torch_modules.register_module_module_registration_hook(note),
    ):
        yield


def check_loaded_weights(module: LightningModule, checkpoint: Mapping[str, Any], source: str = "") -> None:
    """Check that a checkpoint's weights fit the model, also those that an average is computed of.

    Args:
        module: The model.
        checkpoint: The checkpoint.
        source: Name of the checkpoint for messages; empty takes that of the trainer.

    Raises:
        MisfitError: if a weight is missing or unknown, has another shape or type, or is not finite.
    """
    trainer = module._trainer
    if trainer is not None and not isinstance(trainer.strategy, _GATHERED):
        return  # each process has a part of the weights
    with _refusing(source or _source(trainer)):
        for part in ("state_dict", "current_model_state"):
            if part in checkpoint:
                _check_weights(module, checkpoint[part])


def check_lightning_version(checkpoint: Mapping[str, Any], path: Path) -> None:
    """Refuse a checkpoint from before Lightning 2.0, which no version of graphzoo has written.

    Lightning would convert it to the current format without checking its content.

    Raises:
        MisfitError: if its version is missing or below 2.0.
    """
    version = checkpoint.get("pytorch-lightning_version")
    with _refusing(str(path)):
        if not isinstance(version, str) or not _LIGHTNING.fullmatch(version):
            shown = "missing" if version is None else repr(str(version)[:100])
            raise RefusedError(f"pytorch-lightning_version is {shown}, but must be 2.0 or later")


def check_description(checkpoint: Mapping[str, Any], path: Path) -> None:
    """Refuse a checkpoint whose description of its task has wrong types.

    Raises:
        MisfitError: if so.
    """
    described = checkpoint.get("graphzoo")
    encoder = described.get("encoder", {}) if isinstance(described, Mapping) else {}
    parts: dict[str, tuple[Any, type]] = {
        "graphzoo": (described, Mapping),
        "hyper_parameters": (checkpoint.get("hyper_parameters"), Mapping),
    }
    if encoder != {}:
        settings = encoder if isinstance(encoder, Mapping) else {}
        parts["graphzoo.encoder"] = (encoder, Mapping)
        parts["graphzoo.encoder.class_path"] = (settings.get("class_path", 0), str)
        parts["graphzoo.encoder.init_args"] = (settings.get("init_args", 0), Mapping)
    with _refusing(str(path)):
        for name, (value, kind) in parts.items():
            if value is not None and not isinstance(value, kind):
                raise RefusedError(f"its entry {name} is missing or of a wrong type")


def check_resumable(checkpoint: Mapping[str, Any], path: Path) -> None:
    """Refuse a checkpoint that training cannot resume from, before the run changes anything.

    Raises:
        MisfitError: if the training state is missing, incomplete or contradicts itself.
    """
    kinds = {"loops": dict, "optimizer_states": list, "lr_schedulers": list, "callbacks": dict}
    with _refusing(str(path)):
        for name, kind in kinds.items():
            if not isinstance(checkpoint.get(name), kind):
                raise RefusedError(f"it has no training state ({name} is missing)")
        check_numbers({name: checkpoint.get(name, -1) for name in ("epoch", "global_step")})
        try:
            loop = checkpoint["loops"]["fit_loop"]
            epochs = loop["epoch_progress"]["current"]["completed"]
            automatic = loop["epoch_loop.automatic_optimization.optim_progress"]
            own = loop["epoch_loop.manual_optimization.optim_step_progress"]
            steps = {automatic["optimizer"]["step"]["total"]["completed"], own["total"]["completed"]}
        except (KeyError, TypeError, IndexError) as error:
            raise RefusedError(f"the progress of the training is missing ({error})") from error
        for number in steps:
            check_numbers({"the number of epochs": epochs, "the number of steps": number})
        if epochs != checkpoint["epoch"] or checkpoint["global_step"] not in steps:
            raise RefusedError(
                f"it contradicts itself: it is at epoch {checkpoint['epoch']} and step "
                f"{checkpoint['global_step']}, but its loops at {str(epochs)[:100]} and "
                f"{str(max(steps, key=str))[:100]}"
            )


def optimizer_entries(checkpoint: Mapping[str, Any]) -> list[int]:
    """The number of weights with a state, for each optimiser of a checkpoint."""
    return [len(state.get("state", ())) for state in checkpoint.get("optimizer_states") or ()]


def check_callback_states(trainer: Trainer, checkpoint: Mapping[str, Any]) -> None:
    """Check the form of callbacks' states before they are loaded, against that of the new callbacks.

    Raises:
        MisfitError: if a state differs in its names or types.
    """
    with _refusing(_source(trainer)):
        states = checkpoint.get("callbacks", {})
        if not isinstance(states, Mapping):
            raise RefusedError("its entry callbacks is not a table of states")
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if type(callback).__module__.partition(".")[0] not in ("graphzoo", "lightning"):
                continue  # foreign callbacks may change the form of their state
            if callback.state_key in states and not isinstance(callback, ModelCheckpoint):
                _check_form(type(callback).__name__, callback.state_dict(), states[callback.state_key])
            if not isinstance(callback, WeightAveraging) or "averaging_state" not in checkpoint:
                continue
            if callback._average_model is not None:
                own = callback._average_model.state_dict()
                own = {name: value for name, value in own.items() if not name.startswith("module.")}
                _check_form("the average of the weights", own, checkpoint["averaging_state"])


def check_training_state(trainer: Trainer, checkpoint: Mapping[str, Any]) -> None:
    """Check that optimisers, schedules, precision and progress of a checkpoint fit the trainer.

    Raises:
        MisfitError: if one of them does not.
    """
    if not isinstance(trainer.strategy, _GATHERED) or "optimizer_states" not in checkpoint:
        return  # sharded strategies split states; Lightning itself refuses a checkpoint of weights alone
    with _refusing(_source(trainer)):
        states = checkpoint["optimizer_states"]
        if not isinstance(states, list) or len(states) != len(trainer.optimizers):
            raise RefusedError(f"it does not have states of {len(trainer.optimizers)} optimisers")
        noted = checkpoint.get(OPTIMIZER_ENTRIES)
        steps = checkpoint.get("global_step") or 0
        for number, (optimizer, state) in enumerate(zip(trainer.optimizers, states, strict=True)):
            _check_optimizer(optimizer, state, is_begun=steps > 0)
            if noted is not None and noted[number : number + 1] != [len(state["state"])]:
                raise RefusedError(
                    f"the optimiser's state has {len(state['state'])} weights, but {noted} were saved"
                )
        schedules = checkpoint.get("lr_schedulers")
        built = [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs]
        if not isinstance(schedules, list) or len(schedules) != len(built):
            raise RefusedError(f"it does not have states of {len(built)} learning-rate schedules")
        for expected, found in zip(built, schedules, strict=True):
            _check_form("the learning-rate schedule", expected, found)
        plugin = trainer.precision_plugin
        if (expected := plugin.state_dict()) and (name := type(plugin).__qualname__) in checkpoint:
            _check_form(name, expected, checkpoint[name])
        _check_loops(trainer, checkpoint.get("loops"))


def _check_weights(module: LightningModule, weights: Any) -> None:
    expected = module.state_dict()
    if not isinstance(weights, Mapping):
        raise RefusedError("its weights are not a table of names and tensors")
    for name in [*expected, *weights] if module.strict_loading else ():
        if name not in weights or name not in expected:
            where = "missing in the file" if name not in weights else "unknown to the model"
            raise RefusedError(f"the weight {str(name)[:100]} is {where}")
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    for name, value in expected.items():
        # A lazy weight has no size yet and takes that of the file.
        if isinstance(value, Tensor) and not is_lazy(value) and name in weights:
            _compare(f"the weight {name}", value, weights[name], is_finite=name in parameters)


def _compare(name: str, expected: Tensor, found: Any, *, is_finite: bool) -> None:
    """Check that a tensor can replace another one: same shape and type of numbers; precisions may differ.

    NaN is refused, and infinity if `is_finite`.
    """
    if not isinstance(found, Tensor):
        raise RefusedError(f"{name} is not a tensor")
    check_tensor(name, found)
    if found.shape != expected.shape:
        raise RefusedError(f"{name} has shape {tuple(found.shape)}, expected {tuple(expected.shape)}")
    if found.dtype != expected.dtype and not (found.is_floating_point() and expected.is_floating_point()):
        raise RefusedError(f"{name} is {found.dtype}, expected {expected.dtype}")
    bad = ~found.isfinite() if is_finite else found.isnan()
    if bool(bad.any()):
        raise RefusedError(f"{name} has {int(bad.sum())} numbers that are NaN or infinite")


def _check_optimizer(optimizer: Optimizer, saved: Any, *, is_begun: bool) -> None:
    if not isinstance(saved, Mapping) or not isinstance(saved.get("state"), Mapping):
        raise RefusedError("the optimiser's state is missing")
    groups = saved.get("param_groups")
    if not isinstance(groups, list) or len(groups) != len(optimizer.param_groups):
        raise RefusedError(f"the optimiser's state does not have {len(optimizer.param_groups)} groups")
    weights: dict[int, Tensor] = {}
    for built, group in zip(optimizer.param_groups, groups, strict=True):
        numbers = group.get("params") if isinstance(group, Mapping) else None
        if not isinstance(numbers, list) or len(numbers) != len(built["params"]):
            raise RefusedError(f"a group of the optimiser does not have {len(built['params'])} weights")
        if not all(isinstance(number, int) for number in numbers):
            raise RefusedError("the optimiser's state does not name its weights by numbers")
        if len(set(numbers)) < len(numbers) or not weights.keys().isdisjoint(numbers):
            raise RefusedError("the optimiser's state names a weight twice")
        weights |= zip(numbers, built["params"], strict=True)
        kept = {name: value for name, value in built.items() if name != "params" and name in group}
        _check_form("the optimiser", kept, group)
    state = saved["state"]
    if not set(state) <= set(weights):
        raise RefusedError("the optimiser's state has weights that are in no group")
    if is_begun and weights and not state and _first_state(optimizer):
        raise RefusedError("the optimiser's state is empty after the first step")
    expected = _first_state(optimizer)
    for number, values in state.items():
        _check_entry(number, values, weights[number], expected)


def _check_entry(
    number: int, values: Any, weight: Tensor, expected: dict[Tensor, dict[str, Any]] | None
) -> None:
    """Check the optimiser's state of one weight."""
    name = f"the optimiser's state of weight {number}"
    if not isinstance(values, Mapping):
        raise RefusedError(f"{name} is not a table")
    if expected is not None and set(values) != set(expected.get(weight, values)):
        there, here = sorted(map(str, values)), sorted(expected[weight])
        raise RefusedError(f"{name} has {', '.join(there)[:100]}, expected {', '.join(here)}")
    for key, value in values.items():
        wanted = None if expected is None else expected.get(weight, {}).get(key)
        if isinstance(wanted, Tensor):
            _compare(f"{name} ({key})", wanted, value, is_finite=True)
        elif isinstance(value, Tensor):
            check_tensor(f"{name} ({str(key)[:100]})", value)
        elif wanted is not None:
            _check_form(name, {key: wanted}, values)


def _first_state(optimizer: Optimizer) -> dict[Tensor, dict[str, Any]] | None:
    """The state of each weight after the optimiser's first step; None if a trial step is not possible.

    The trial step runs on the meta device: with shapes, but without numbers.
    """
    groups: list[dict[str, Any]] = []
    weights: dict[Tensor, Tensor] = {}
    for group in optimizer.param_groups:
        twins = {}
        for weight in group["params"]:
            twin = twins[weight] = torch.empty_like(weight, device="meta", requires_grad=True)
            twin.grad = torch.empty_like(twin)
            weights[twin] = weight
        plain: dict[str, Any] = {name: False for name in ("fused", "foreach", "capturable") if name in group}
        groups.append({**group, **plain, "params": list(twins.values())})
    try:
        trial = copy.copy(optimizer)
        trial.state, trial.param_groups = defaultdict(dict), groups
        type(optimizer).step(trial)
        return {weights[twin]: dict(state) for twin, state in trial.state.items()}
    except Exception:  # a foreign optimiser may need a closure, or the values of numbers
        return None


def _check_form(name: str, expected: Any, found: Any) -> None:
    """Check that values have the same names and types; `__dict__.update` would accept anything."""
    if isinstance(expected, Tensor):
        number = torch.as_tensor(found) if isinstance(found, float) else found
        _compare(name, expected, number, is_finite=False)
    elif isinstance(expected, Mapping):
        if not isinstance(found, Mapping):
            raise RefusedError(f"{name} is not a table")
        for key, value in expected.items():
            if key not in found:
                # The keys of a table of numbers, such as the milestones of a schedule, may differ.
                if isinstance(key, str):
                    raise RefusedError(f"{name} has no entry {key}")
                continue
            _check_form(f"{key} of {name}" if isinstance(key, str) else name, value, found[key])
    elif isinstance(expected, list | tuple):
        if not isinstance(found, list | tuple) or len(found) != len(expected):
            raise RefusedError(f"{name} does not have {len(expected)} values")
        for one, other in zip(expected, found, strict=True):
            _check_form(name, one, other)
    elif not _is_like(expected, found):
        raise RefusedError(f"{name} is {str(found)[:100]!r}, expected a value like {str(expected)[:100]!r}")


def _is_like(expected: Any, found: Any) -> bool:
    if expected is None or found is None:
        return found is None or isinstance(found, bool | int | float | str | Tensor)
    if isinstance(expected, bool) or isinstance(found, bool):
        return isinstance(found, bool) and isinstance(expected, bool)
    if isinstance(expected, int | float) and isinstance(found, int | float):
        # A timer that starts at 0, or a rate of 1, may become a float. NaN is a value that is not known yet.
        whole = isinstance(expected, int) and not math.isfinite(found)
        return (not math.isnan(found) or math.isnan(expected)) and not whole
    return isinstance(found, type(expected))


def _check_loops(trainer: Trainer, loops: Any) -> None:
    """Check the progress of the training: it needs the trainer's counts, none of them below 0."""
    progress = loops.get("fit_loop") if isinstance(loops, Mapping) else None
    _check_counts("the training", trainer.fit_loop.state_dict(), progress)
    assert isinstance(progress, Mapping)  # as `_check_counts` found
    for key in ("state_dict", "epoch_loop.state_dict"):
        if not isinstance(progress.get(key) or {}, Mapping):
            raise RefusedError(f"{key} of the training is not a table")
    loaders = (progress.get("state_dict") or {}).get("combined_loader", [])
    for loader in loaders if isinstance(loaders, list) else []:
        if isinstance(loader, Mapping) and {"epoch", "given", "length"} <= set(loader):  # graphzoo's own
            check_numbers({f"{name} of a loader": loader[name] for name in ("epoch", "given", "length")})
    stepped = progress.get("epoch_loop.state_dict") or {}
    check_numbers({"the number of steps": stepped.get("_batches_that_stepped", 0)})


def _check_counts(name: str, expected: Mapping[str, Any], found: Any) -> None:
    if not isinstance(found, Mapping):
        raise RefusedError(f"the progress of {name} is missing")
    for key, value in expected.items():
        if key.endswith("state_dict"):
            continue  # loops and loaders check their own states
        if isinstance(value, Mapping):
            _check_counts(f"{key} of {name}" if name == "the training" else name, value, found.get(key))
        elif isinstance(value, bool):
            _check_form(f"{key} of {name}", value, found.get(key, ""))
        elif isinstance(value, int):
            check_numbers({f"{key} of {name}": found.get(key, "")})
    if unknown := [key for key in found if key not in expected]:
        raise RefusedError(f"the progress of {name} has an unknown entry {str(unknown[0])[:100]}")


def _source(trainer: Trainer | None) -> str:
    return str((trainer and trainer.ckpt_path) or "the checkpoint")


@contextmanager
def _refusing(source: str) -> Iterator[None]:
    try:
        yield
    except RefusedError as error:
        raise MisfitError(source, str(error)) from error
