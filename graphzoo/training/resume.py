"""Checks that a resumed run has the settings and data of its checkpoint."""

from __future__ import annotations

import copy
import json
import logging
import math
import shlex
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint, WeightAveraging
from torch.optim.lr_scheduler import ReduceLROnPlateau

from graphzoo.callbacks.best_checkpoint import forget_best
from graphzoo.callbacks.last_checkpoint import LastCheckpoint
from graphzoo.catalog.classes import defaults_of, is_same_class
from graphzoo.catalog.settings import read_settings
from graphzoo.checkpoints.checks import (
    check_description,
    check_lightning_version,
    check_resumable,
    check_training_state,
)
from graphzoo.checkpoints.paths import forget_foreign_paths
from graphzoo.checkpoints.read import read_checkpoint
from graphzoo.checkpoints.settings import plain_form
from graphzoo.errors import UsageError
from graphzoo.runs.results_file import shaping_callbacks
from graphzoo.system.paths import typed
from graphzoo.tasks.base import Task
from graphzoo.training.plan import Plan

log = logging.getLogger(__name__)

_LEAKS = ": the weights may have been trained on parts of this validation or test split"

# Arguments of the data module that do not change what is trained.
_HARMLESS = {"root", "download", "num_workers", "eval_batch_size", "micro_batch_size", "path", "test_both"}
# Settings whose old values are part of the restored state (the schedule, the weights or the best score). New
# values would be ignored, or would not fit.
_FROZEN = {"lr_milestones", "lr_gamma", "decoder", "validate_on"}
# Settings of --optimizer that `ResumeGuard` can change in the restored optimiser. Its other settings and the
# schedule cannot change.
_OF_OPTIMIZER = {"--optimizer.lr", "--optimizer.weight_decay"}
# Trainer arguments that affect the weights or the choice of a checkpoint, with their defaults. The length of
# a run, the times of its validation and the number of devices may change.
_TRAINER = {
    "precision": "32-true",
    "gradient_clip_val": 0,
    "gradient_clip_algorithm": "norm",
    "accumulate_grad_batches": 1,
    "overfit_batches": 0,
    "limit_train_batches": 1.0,
    "limit_val_batches": 1.0,
}
_PRECISIONS = {"64": "64-true", "32": "32-true", "16": "16-mixed", "bf16": "bf16-mixed"}  # old -> new names
# Settings that do not affect the weights, but the metric by which a checkpoint is chosen.
_JUDGING = {"--model.reverse_weight", "--model.num_draws"}


def differences(
    checkpoint: dict[str, Any], config: dict[str, Any], trained: dict[str, Any] | None
) -> dict[str, tuple[Any, Any]]:
    """Find the settings in which a command line differs from a checkpoint.

    Args:
        checkpoint: Content of the checkpoint.
        config: Configuration of the command line.
        trained: Configuration of the checkpoint's run; None if there is none. Data, Trainer arguments,
            optimiser and schedule are compared with it.

    Returns:
        Option -> (value of the checkpoint, value of the command line).
    """
    differing: dict[str, tuple[Any, Any]] = {}
    task = config.get("model") or {}
    model = task.get("init_args") or {}
    if saved := checkpoint.get("hyper_parameters") or {}:
        differing |= _compare("--model", saved, model, task.get("class_path"), {"encoder", "start_from"})
    described = checkpoint.get("graphzoo", {}).get("encoder", {})
    encoder = model.get("encoder") or {}
    if described and encoder:
        path = described["class_path"]
        if not is_same_class(path, encoder.get("class_path", path)):
            differing["--model.encoder"] = (path, encoder["class_path"])
        else:
            arguments = encoder.get("init_args") or {}
            differing |= _compare("--model.encoder", described["init_args"], arguments, path)
    before, now = (trained or {}).get("data") or {}, config.get("data") or {}
    if before:
        old, new = before.get("init_args") or {}, now.get("init_args") or {}
        # A run may be older than this option. Then the fingerprint shows how its features were treated.
        younger = {"standardize_features"} - old.keys()
        differing |= _compare("--data", old, new, now.get("class_path"), _HARMLESS | younger)
    differing |= _differing_trainer((trained or {}).get("trainer"), config.get("trainer"))
    if trained:
        for section in ("optimizer", "lr_scheduler"):
            differing |= _differing_class(f"--{section}", trained.get(section), config.get(section))
        averages = (_averaging_of(side) for side in (trained, config))
        differing |= _differing_class("--trainer.callbacks", *averages)
    # Without the callback, training would continue from the averages, not from the weights themselves.
    if "averaging_state" in checkpoint and _averaging_of(config) is None:
        differing["--trainer.callbacks"] = ("moving averages of the weights", "none")
    return differing


def _differing_trainer(before: Any, now: Any) -> dict[str, tuple[Any, Any]]:
    if not before:
        return {}
    differing = {}
    for name, usual in _TRAINER.items():
        there, here = (usual if (side or {}).get(name) is None else side[name] for side in (before, now))
        if name == "precision":
            there, here = (_PRECISIONS.get(str(value), str(value)) for value in (there, here))
        is_other_one = name.endswith("_batches") and there == 1 and type(there) is not type(here)
        if there != here or is_other_one:  # 1 is one batch, and 1.0 is all batches
            differing[f"--trainer.{name}"] = (there, here)
    if any(before.get(name) != (now or {}).get(name) for name in ("devices", "num_nodes")):
        differing.pop("--trainer.accumulate_grad_batches", None)  # may compensate for the number of devices
    return differing


def _averaging_of(config: dict[str, Any]) -> dict[str, Any] | None:
    """The callback that averages the weights, or None."""
    callbacks = shaping_callbacks(config)
    classes = ((each, _imported(each["class_path"])) for each in callbacks)
    return next((each for each, cls in classes if cls is not None and issubclass(cls, WeightAveraging)), None)


def _differing_class(group: str, before: Any, now: Any) -> dict[str, tuple[Any, Any]]:
    there, here = (side or {} for side in (before, now))
    paths = [side.get("class_path") for side in (there, here)]
    if paths[0] != paths[1] and not (paths[0] and paths[1] and is_same_class(paths[0], paths[1])):
        return {group: (paths[0] or "none", paths[1] or "none")}
    return _compare(group, there.get("init_args") or {}, here.get("init_args") or {}, paths[1])


def _compare(
    group: str, old: Any, new: Any, class_path: str | None, harmless: Collection[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """Option -> (old, new) where two sets of arguments differ; an argument that one lacks has its default.

    Defaults matter because versions differ: an option may be newer than the checkpoint, or removed since.
    """
    usual = _usual_values(class_path)
    differing = {}
    for name in dict.fromkeys([*old, *new]):
        if name.startswith("_") or name in harmless:
            continue
        there, here = (plain_form(side.get(name, usual.get(name))) for side in (old, new))
        if there != here:
            differing[f"{group}.{name}"] = (there, here)
    return differing


def _usual_values(class_path: str | None) -> dict[str, Any]:
    """Defaults of a class; empty if it is not imported yet."""
    cls = _imported(class_path)
    return {} if cls is None else defaults_of(cls)


def _imported(class_path: str | None) -> type | None:
    module, _, name = (class_path or "").rpartition(".")
    cls = getattr(sys.modules.get(module), name, None)
    return cls if isinstance(cls, type) else None


def check_resume(
    differing: dict[str, tuple[Any, Any]], path: Path, *, override: bool, kept: Collection[str] = ()
) -> None:
    """Refuse to resume with settings other than the checkpoint's, unless `override` permits the change.

    Settings that are part of the restored state are refused even with `override`. Those in `kept` have their
    new values from the run's config.yaml: a resume with `override` was killed before it saved.
    """
    fixed = {name for name in differing if _is_fixed(name)}
    blocking = {name: pair for name, pair in differing.items() if not override or name in fixed}
    if not blocking:
        return
    lines = _lines(blocking)
    if set(blocking) <= _JUDGING:
        name, (_, new) = next(iter(blocking.items()))
        command = f"graphzoo test --ckpt_path {typed(path)} {name}={new}"
        remedy = f"To evaluate with it, use {command}; to choose checkpoints by it, add --override"
        raise UsageError("\n".join([f"{path} was validated with other settings", *lines, remedy]))
    if len(blocking) > 3:
        lines[-1] += f" (and {len(blocking) - 3} more)"
    remedy = (
        "A resumed run cannot change these: leave them out, or start a new run with them"
        if fixed & set(blocking)
        else "Leave them out to resume the same run, or add --override to resume with the new values"
    )
    if not fixed & set(blocking) and (before := [name for name in blocking if name in kept]):
        words = shlex.join(f"{name}={json.dumps(blocking[name][0])}" for name in before)
        remedy = f"Its config.yaml has the new values. Add --override to resume with them, or {words}"
    raise UsageError("\n".join([f"{path} was trained with other settings", *lines, remedy]))


def _is_fixed(option: str) -> bool:
    """Whether the option's old value is part of the restored state, so that a new one has no effect."""
    if option.startswith(("--optimizer", "--lr_scheduler")):
        return option not in _OF_OPTIMIZER
    return "--model.encoder" in option or option.rpartition(".")[2] in _FROZEN


def check_shape(differing: dict[str, tuple[Any, Any]], path: Path) -> None:
    """Refuse an encoder or decoder other than the one whose weights the checkpoint holds."""
    parts = ("--model.encoder", "--model.decoder")
    shape = {name: pair for name, pair in differing.items() if name.startswith(parts)}
    if shape:
        remedy = "Leave these settings out, or give the values of the checkpoint"
        raise UsageError("\n".join([f"{path} holds another encoder or decoder", *_lines(shape), remedy]))


def _lines(differing: dict[str, tuple[Any, Any]]) -> list[str]:
    return [f"{name}: {old} in the checkpoint, {new} now" for name, (old, new) in list(differing.items())[:3]]


class ResumeGuard(Callback):
    """Refuses to resume on data other than the checkpoint's, and applies settings changed on purpose.

    Args:
        data: The checkpoint's description of its data: `fingerprint`, and `split` if there is one.
        changed: Settings that differ, from `differences`. A new `lr` or `weight_decay` is written into the
            restored optimiser.
        override: Whether other data are only warned of; `is_other_data` is then set.
        rates: Group of the options `lr` and `weight_decay`: "--model" or "--optimizer".
        same_run: Whether the run itself is resumed. If its `EarlyStopping` has ended it, it is not trained
            on, unless its patience or threshold is another one now.

    Attributes:
        ended_by: The `EarlyStopping` that has ended the run; None if none has.
    """

    def __init__(
        self,
        data: dict[str, Any],
        changed: dict[str, tuple[Any, Any]],
        *,
        override: bool = False,
        rates: str = "--model",
        same_run: bool = False,
    ) -> None:
        self.data, self.changed, self.override, self.same_run = data, changed, override, same_run
        self.is_other_data = False
        self.ended_by: EarlyStopping | None = None
        self._patience: list[tuple[EarlyStopping, int]] = []  # as given, which Lightning does not keep
        self._metrics: Mapping[str, float] = {}  # of the checkpoint
        self._is_inside_epoch = False
        old_lr, lr = changed.get(f"{rates}.lr", (1, 1))
        self.lr_factor = float(lr) / float(old_lr)
        self.weight_decay = changed.get(f"{rates}.weight_decay", (None, None))[1]
        self._checkpoint: dict[str, Any] | None = None

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Drop paths of other machines from the checkpoint before any callback restores its state."""
        forget_foreign_paths(trainer, checkpoint)
        self._checkpoint = checkpoint
        self._metrics = checkpoint.get("callback_metrics") or {}
        batches = checkpoint["loops"]["fit_loop"].get("epoch_loop.batch_progress", {})
        self._is_inside_epoch = not batches.get("is_last_batch", True)
        self._patience = [(one, one.patience) for one in _early_stopping(trainer)]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compare data and, for a user's own task, training state; train no run that has ended early."""
        self._compare(trainer, pl_module)
        for callback, patience in self._patience:
            callback.patience = patience
        if self.same_run and not self.is_other_data:
            ended = (
                one
                for one in _early_stopping(trainer)
                if _has_ended(one, {} if self._is_inside_epoch and _is_late(one) else self._metrics)
            )
            self.ended_by = next(ended, None)
            trainer.should_stop = trainer.should_stop or self.ended_by is not None

    def _compare(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Ours compare the training state themselves."""
        if self._checkpoint is not None and not isinstance(pl_module, Task):
            check_training_state(trainer, self._checkpoint)
        self._checkpoint = None
        datamodule = trainer.datamodule  # type: ignore[attr-defined]
        there: dict[str, Any] = self.data.get("split") or {}
        here: dict[str, Any] = datamodule.describe_split() if hasattr(datamodule, "describe_split") else {}
        differs = bool(here and there) and here["fingerprint"] != there["fingerprint"]
        # The split comes first, because the fingerprint of links and triples depends on it.
        if differs and (words := _split_words(datamodule, here, there)):
            return self._refuse_split(trainer, here, " ".join(words))
        given, trained = getattr(datamodule, "fingerprint", None), self.data.get("fingerprint")
        if trained is not None and given is not None and given != trained:
            self._refuse(
                trainer,
                f"the data differ from those that the checkpoint was trained on (fingerprint {given[:12]}, "
                f"then {trained[:12]})" + (_LEAKS if differs else ""),
                "the same files and the same options for features",
            )
        elif differs:
            self._refuse_split(trainer, here, "the files that it was trained on")

    def _refuse_split(self, trainer: Trainer, here: dict[str, Any], remedy: str) -> None:
        there = self.data["split"]
        self._refuse(
            trainer,
            f"the split differs from that of the checkpoint ({here['name']} {here['index']}, "
            f"then {there['name']} {there['index']}){_LEAKS}",
            remedy,
        )

    def _refuse(self, trainer: Trainer, what: str, remedy: str) -> None:
        """Raise a `UsageError`; with `override` warn, and forget the scores, which are of other data."""
        if not self.override:
            raise UsageError(f"{what}\nGive {remedy}, or add --override")
        self.is_other_data = True
        if isinstance(trainer.lightning_module, Task):
            trainer.lightning_module.takes_other_data = True
        log.warning(what)
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, ModelCheckpoint) and callback.monitor is not None:
                forget_best(callback)
            elif isinstance(callback, LastCheckpoint):
                callback.forget_metrics()
            elif isinstance(callback, EarlyStopping):
                callback.best_score, callback.wait_count = torch.tensor(math.inf), 0
                callback.best_score *= 1 if callback.mode == "min" else -1

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for optimizer in trainer.optimizers:
            decayed = [group for group in optimizer.param_groups if group.get("weight_decay")]
            # If no group had weight decay so far, the first one gets it, as in `parameter_groups`.
            decayed = decayed or [group for group in optimizer.param_groups[:1] if "weight_decay" in group]
            for group in optimizer.param_groups:
                group |= {key: group[key] * self.lr_factor for key in ("lr", "initial_lr") if key in group}
            for group in decayed if self.weight_decay is not None else ():
                group["weight_decay"] = float(self.weight_decay)
        for scheduler in (config.scheduler for config in trainer.lr_scheduler_configs):
            if self.is_other_data and isinstance(scheduler, ReduceLROnPlateau):
                scheduler._reset()
            if hasattr(scheduler, "base_lrs"):
                scheduler.base_lrs = [rate * self.lr_factor for rate in scheduler.base_lrs]


def _early_stopping(trainer: Trainer) -> list[EarlyStopping]:
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return [callback for callback in callbacks if isinstance(callback, EarlyStopping)]


def _is_late(callback: EarlyStopping) -> bool:
    """Whether a callback looks at the metrics of an epoch at its end, and not after each validation."""
    return bool(callback._check_on_train_epoch_end)


def _has_ended(callback: EarlyStopping, metrics: Mapping[str, float]) -> bool:
    """Whether a callback, with the state of a checkpoint, has ended the training."""
    if callback.wait_count >= max(1, callback.patience):
        return True
    if not isinstance(value := metrics.get(callback.monitor), float):
        return False
    probe = copy.copy(callback)  # its thresholds
    probe.patience = sys.maxsize
    return probe._evaluate_stopping_criteria(torch.tensor(value))[0]


def finished_epochs(checkpoint: dict[str, Any]) -> int:
    """Number of epochs that were complete when a checkpoint was written."""
    epochs = checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"].get("processed")
    return epochs if isinstance(epochs, int) else int(checkpoint["epoch"])


def compare(plan: Plan, path: Path, config: dict[str, Any]) -> tuple[dict[str, Any], ResumeGuard | None]:
    """Read a checkpoint and compare it with the command line.

    Returns:
        Its content, and for a resumed run the callback that compares the data.

    Raises:
        UsageError: if it is damaged, or its settings differ in a way that is not permitted.
    """
    checkpoint = read_checkpoint(path)
    check_lightning_version(checkpoint, path)
    check_description(checkpoint, path)
    trained = None
    if plan.source_run is not None:
        trained = read_settings(plan.source_run / "config.yaml")
        if not isinstance(trained, dict):
            raise UsageError(f"{plan.source_run / 'config.yaml'} holds no settings")
    differing = differences(checkpoint, config, trained)
    if plan.command != "fit":
        check_shape(differing, path)
        return checkpoint, None
    check_resumable(checkpoint, path)
    own = differences(checkpoint, trained, trained) if trained else {}
    kept = {name for name, pair in differing.items() if own.get(name) == pair}
    check_resume(differing, path, override=plan.override, kept=kept)
    data = checkpoint.get("graphzoo", {}).get("data", {})
    rates = "--optimizer" if config.get("optimizer") else "--model"  # by default the task's own
    guard = ResumeGuard(data, differing, override=plan.override, rates=rates, same_run=plan.resume)
    return checkpoint, guard


def _split_words(datamodule: Any, here: dict[str, Any], there: dict[str, Any]) -> list[str]:
    """Options that select the split of the checkpoint, as far as these data have them."""
    named = {
        "split": hasattr(datamodule, "split"),
        "protocol": getattr(datamodule, "protocol", "") == here["name"],
    }
    option = next((name for name, has_it in named.items() if has_it), None)
    words = [f"--data.{option} {there['name']}"] if option and here["name"] != there["name"] else []
    return [*words, *([f"--data.split_index {there['index']}"] if here["index"] != there["index"] else [])]
