"""Keeps the checkpoint with the best validation metric."""

from __future__ import annotations

import copy
import logging
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import proxy

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor

from graphzoo.callbacks.checkpoint_file import use_checkpoint_file
from graphzoo.callbacks.nan_guard import check_saved_weights
from graphzoo.checkpoints.read import read_checkpoint
from graphzoo.errors import UsageError

log = logging.getLogger(__name__)


class BestCheckpoint(ModelCheckpoint):
    """Keeps `best.ckpt`: the weights with the best validation metric.

    With short epochs, the metric may improve many times a second. An improvement is copied to main memory at
    once. It is written a second after the last write, before any `last.ckpt`, when training ends, and when it
    fails. So a killed process loses only the improvements of its last second, and a resumed run finds them
    again. An epoch whose metric or weights are NaN or infinite is never the best. Of equal epochs the first
    is kept. Of perfect ones, with a metric of 1, the last is kept: it was trained longest, and with few
    validation samples there are many.

    Args:
        directory: Folder of the checkpoints.
        monitor: Name of the metric; "auto" takes that of the task once the data are known.
        mode: "max" or "min"; with "auto", that of the task.
        seconds: Shortest time between two writes.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        monitor: str = "auto",
        mode: str = "max",
        seconds: float = 1.0,
    ) -> None:
        super().__init__(
            dirpath=Path(directory),
            filename="best",
            monitor=monitor,
            mode=mode,
            save_top_k=1,
            enable_version_counter=False,
            auto_insert_metric_name=False,
        )
        self.seconds = seconds
        self._is_auto = monitor == "auto"
        self._pending: dict[str, Any] | None = None
        self._resumed_step = math.inf
        self._written_at = -math.inf
        self._untold = False  # whether loggers still have to be told of the file
        self._resumed_data: object = None
        self._fitted_data: object = None  # fingerprint of the data of the last fit

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        use_checkpoint_file(trainer)
        # another fit may be of another task, or of data with another metric
        if self._is_auto and (stage == "fit" or self.monitor == "auto"):
            own = (getattr(pl_module, "monitor", None), self.mode)
            monitor, mode = getattr(pl_module, "checkpoint_by", own)
            if monitor is None and stage == "fit":
                raise UsageError(
                    f"{type(pl_module).__name__} does not say by which metric its best checkpoint is chosen\n"
                    f"Name one that it logs: {type(self).__name__}(directory, 'val/acc', mode='max')"
                )
            if monitor not in (None, self.monitor) or mode != self.mode:
                self.monitor, self.mode = monitor or self.monitor, mode
                forget_best(self)
        if stage == "fit":
            data = getattr(getattr(trainer, "datamodule", None), "fingerprint", None)
            if self._fitted_data not in (None, data):
                forget_best(self)  # another graph may have lower scores throughout
            self._fitted_data = data

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note an improvement, and write one that is due."""
        super().on_validation_end(trainer, pl_module)
        self._flush_in_time(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The same if an epoch has one validation: Lightning then notes improvements here."""
        super().on_train_epoch_end(trainer, pl_module)
        self._flush_in_time(trainer)

    def _flush_in_time(self, trainer: Trainer) -> None:
        if time.monotonic() - self._written_at >= self.seconds:
            self.flush(trainer)
        self._tell(trainer)

    def _tell(self, trainer: Trainer) -> None:
        """Tell loggers of a new file. They may fail, so this comes after everything is saved."""
        untold, self._untold = self._untold, False
        for logger in trainer.loggers if untold else ():
            logger.after_save_checkpoint(proxy(self))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_end(trainer, pl_module)
        self.flush(trainer)
        self._tell(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Write the improvement that was not written yet: it is still good."""
        super().on_exception(trainer, pl_module, exception)
        try:
            self.flush(trainer)
        except OSError as error:  # must not hide the error that ended the run
            log.warning("best.ckpt stays as it was: %s", error)

    def check_monitor_top_k(self, trainer: Trainer, current: Tensor | None = None) -> bool:
        """Whether the epoch is the best so far; Lightning takes the first one, whatever its metric."""
        if current is None:
            return False
        # Every process must make the same collective calls, whatever its own value is.
        finite = bool(trainer.strategy.reduce_boolean_decision(bool(torch.isfinite(current)), all=True))
        perfect = self.mode == "max" and bool(current == 1 == self.best_model_score)
        perfect = bool(trainer.strategy.reduce_boolean_decision(perfect, all=True))
        better = bool(super().check_monitor_top_k(trainer, current)) or perfect
        if not finite:
            log.warning("%s is %s, so this epoch is not the best", self.monitor, float(current))
        return finite and better

    def flush(self, trainer: Trainer) -> None:
        """Write the best state if it is not on disk yet."""
        if self._pending is None:
            return
        checkpoint, self._pending = self._pending, None
        if trainer.is_global_zero:
            path = os.path.join(self.dirpath or "", "best.ckpt")
            trainer.strategy.checkpoint_io.save_checkpoint(checkpoint, path)
            self._untold = True
        self._written_at = time.monotonic()

    def _save_checkpoint(self, trainer: Trainer, filepath: str) -> None:
        check_saved_weights(trainer)
        # Sharded strategies gather the weights while they write.
        if not isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy):
            super()._save_checkpoint(trainer, filepath)
            return
        # in every process, since modules may gather their state
        checkpoint = trainer._checkpoint_connector.dump_checkpoint(self.save_weights_only)
        self._pending = _copy(checkpoint) if trainer.is_global_zero else {}
        self._last_global_step_saved = trainer.global_step
        self._last_checkpoint_saved = filepath

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Note where the run resumes, before `load_state_dict`."""
        self._resumed_step = checkpoint.get("global_step", math.inf)
        self._resumed_data = _data_of(checkpoint)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best score, but no path: the run directory may have been moved.

        Nothing is restored if best.ckpt is missing, if it is newer than the checkpoint (a killed process
        wrote it), or if it belongs to other data. The best of the epochs to come is then kept. The score is
        read from best.ckpt itself: if training stops inside an epoch, the last validation may come after the
        save.
        """
        here, score = os.path.join(str(self.dirpath), "best.ckpt"), state_dict.get("best_model_score")
        if not os.path.isfile(here) or (found := _read(here)).get("global_step", -1) > self._resumed_step:
            return
        if _data_of(found) != self._resumed_data:
            return
        score = found.get("callbacks", {}).get(self.state_key, state_dict).get("best_model_score", score)
        if score is None:
            return
        self.best_model_path = self.kth_best_model_path = here
        self.best_model_score = self.kth_value = score
        self.best_k_models = {here: score}

    def _remove_checkpoint(self, trainer: Trainer, filepath: str) -> None:
        """Remove nothing: the one file there is gets replaced."""


def forget_best(callback: ModelCheckpoint) -> None:
    """Forget the best score, which is of other data: the next validated epoch is the best. Files stay."""
    callback.best_model_path = callback.kth_best_model_path = ""
    callback.best_model_score, callback.best_k_models = None, {}
    callback.kth_value = torch.tensor(math.inf if callback.mode == "min" else -math.inf)


def _data_of(checkpoint: dict[str, Any]) -> object:
    """The fingerprint of the data that a checkpoint was trained on; None where it has none."""
    data = (checkpoint.get("graphzoo") or {}).get("data")
    return data.get("fingerprint") if isinstance(data, dict) else None


def _read(path: str) -> dict[str, Any]:
    """Read a checkpoint; an unreadable one gets an infinite step, so that it counts as missing."""
    try:
        return read_checkpoint(Path(path))
    except UsageError as error:
        log.warning("%s", error)
        return {"global_step": math.inf}


def _copy(value: Any) -> Any:
    """A checkpoint that further training does not change, its tensors in main memory."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        # also of OrderedDict, whose order is that of any dict today
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = map(_copy, value)
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)  # of a NamedTuple
    return copy.deepcopy(value)
