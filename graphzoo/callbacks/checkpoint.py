"""Two checkpoints per run: the best by validation, and the last, from which a run resumes unchanged."""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import proxy

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import Tensor

from graphzoo.callbacks.checkpoint_file import use_checkpoint_file
from graphzoo.callbacks.nan_guard import check_saved_weights
from graphzoo.checkpoints.read import read_checkpoint
from graphzoo.errors import UsageError

log = logging.getLogger(__name__)


class Interrupted(Exception):  # noqa: N818 - what happened, not a mistake
    """A signal asked the run to stop, and it has saved its state to `path`."""

    def __init__(self, signum: int, path: Path) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}; {path} holds the state")
        self.signum = signum
        self.path = path


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
        self._pending: dict[str, Any] | None = None
        self._resumed_step = math.inf
        self._written_at = -math.inf
        self._untold = False  # whether loggers still have to be told of the file
        self._resumed_data: object = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        use_checkpoint_file(trainer)
        if self.monitor == "auto":
            own = (getattr(pl_module, "monitor", None), self.mode)
            monitor, mode = getattr(pl_module, "checkpoint_by", own)
            if monitor is None and stage == "fit":
                raise UsageError(
                    f"{type(pl_module).__name__} does not say by which metric its best checkpoint is chosen\n"
                    f"Name one that it logs: {type(self).__name__}(directory, 'val/acc', mode='max')"
                )
            self.monitor = monitor or self.monitor
            if mode != self.mode:
                self.mode, self.kth_value = mode, -self.kth_value

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


class LastCheckpoint(Checkpoint):
    """Keeps `last.ckpt`, from which a run resumes.

    It is written after the first epoch, after later ones if some time has passed, every few minutes inside an
    epoch, at the end, and when the run is told to stop. Inside an epoch it is written only between two
    optimiser steps, so that no micro-batch of a step is lost. With a loader that counts its batches, a
    resumed run then gives the same results as an uninterrupted one. If a validation follows a step, the
    checkpoint is written after it. It is not written after an error, since no run can resume from the middle
    of a step, nor with weights that are NaN or infinite.

    Training that ends inside an epoch, by `max_steps`, `max_time` or `should_stop`, also ends between two
    steps, and a resumed run continues there.

    On SIGINT or SIGTERM the state is saved at the next such place, and `Interrupted` is raised. A second
    signal ends the run at once. So does one before the end of the first step, when there is nothing to save;
    several processes all finish that step.

    Args:
        directory: Folder of the checkpoints.
        minutes: Time between two checkpoints inside an epoch.
        seconds: Shortest time between two checkpoints after epochs; those after the first and the last epoch
            are always written.
    """

    def __init__(
        self, directory: str | os.PathLike[str], minutes: float = 10.0, seconds: float = 30.0
    ) -> None:
        self.path = Path(directory) / "last.ckpt"
        self.minutes, self.seconds = minutes, seconds
        self._signum: int | None = None
        self._stopping = self._postponed = self._has_saved = self._stops_later = False
        self._has_stepped = self._at_once = False
        self._saved_at = time.monotonic()
        self._handlers: dict[int, Any] = {}
        self._metrics: dict[str, Tensor] = {}  # of a checkpoint inside an epoch

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        use_checkpoint_file(trainer)

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Let a run with `max_steps` begin a new epoch after a finished one, as other runs do.

        Lightning would repeat the end of that epoch, and skip the batches of the next one.
        """
        trainer.fit_loop._iteration_based_training = lambda: False  # type: ignore[method-assign]
        self._metrics = {}
        metrics = checkpoint.get("callback_metrics")
        for name, value in metrics.items() if isinstance(metrics, Mapping) else ():
            if isinstance(name, str) and isinstance(value, float):
                self._metrics[name] = torch.tensor(value, dtype=torch.float64)

    def forget_metrics(self) -> None:
        """Forget the metrics of the checkpoint, which are of other data."""
        self._metrics = {}

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Keep what callbacks and schedules read at the end of an epoch, whose validation may be over."""
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        checkpoint["callback_metrics"] = metrics

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Handle signals instead of Lightning, which would stop in the middle of a validation.

        Under SLURM, too: Lightning answers only the signal that comes before a job is requeued, and its
        checkpoint of that moment may lie in the middle of a step.
        """
        if threading.current_thread() is not threading.main_thread() or self._handlers:
            return
        self._at_once = trainer.world_size == 1  # other processes would wait for this one
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._handlers[signum] = signal.signal(signum, self._note)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Handle signals also if there was no sanity check before."""
        self._saved_at, self._has_stepped, self._stops_later = time.monotonic(), False, False
        self._saved_step = -1
        trainer.callback_metrics.update(self._metrics)
        self._metrics = {}
        self.on_sanity_check_start(trainer, pl_module)
        if trainer.received_sigterm:
            self._note(signal.SIGTERM, None)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop on a signal since the last save. A single process handles signals again, but saves nothing."""
        if self._signum is not None:
            raise Interrupted(self._signum, self.path)
        self._has_stepped = False
        if trainer.world_size == 1:  # of several, each stops as Python and Lightning do
            self.on_sanity_check_start(trainer, pl_module)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        at_once = self._signum is not None or (self._at_once and not self._has_stepped)
        self._signum = signum
        if signum == signal.SIGTERM:
            signal.signal(signum, signal.SIG_DFL)  # the next one ends the process
        if at_once:
            raise KeyboardInterrupt if signum == signal.SIGINT else SIGTERMException

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._has_stepped = self._has_stepped or not trainer.fit_loop._should_accumulate()
        # or Lightning would leave out the step of a `ReduceLROnPlateau` at the end of a resumed epoch
        trainer.fit_loop._restarting = False
        self._finish_step(trainer)
        if (batch_idx + 1) % trainer.accumulate_grad_batches or batch_idx + 1 >= trainer.num_training_batches:
            return  # inside a step, or at the end of the epoch, which is saved after its validation
        if _validates_after(trainer, batch_idx):
            self._postponed = True  # a resumed run would leave this validation out
            return
        self._save_now_and_then(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save after a validation inside an epoch, when it is time."""
        if not trainer.sanity_checking:
            self._finish_step(trainer)
        if self._postponed:
            self._postponed = False
            self._save_now_and_then(trainer)
        elif not trainer.sanity_checking and self._saved_step != trainer.global_step:
            if _ends_inside(trainer):  # stopped after the step's hook, or by an unexpected validation
                loop = trainer.fit_loop.epoch_loop
                loop._batches_that_stepped += 1  # as after the validation
                self._save_now_and_then(trainer)
                loop._batches_that_stepped -= 1

    def _finish_step(self, trainer: Trainer) -> None:
        """If training is told to stop inside a step, let it stop at the end of the step."""
        if not trainer.fit_loop._should_accumulate():
            trainer.should_stop = trainer.should_stop or self._stops_later
            self._stops_later = False
        elif trainer.should_stop and trainer.fit_loop._can_stop_early:
            trainer.should_stop, self._stops_later = False, True

    def _save_now_and_then(self, trainer: Trainer) -> None:
        # The clock of the first process counts. One small reduction per step serves clock and signals.
        due = trainer.is_global_zero and time.monotonic() - self._saved_at > 60 * self.minutes
        self._save_when(due or _stops(trainer), trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save after the last epoch, and after others when it is time."""
        inside = not trainer.fit_loop.epoch_loop._num_ready_batches_reached()
        if inside and self._saved_step == trainer.global_step:
            return  # the epoch is not over, and was saved after its last step; saved here it would seem over
        waited = time.monotonic() - self._saved_at > self.seconds or not self._has_saved
        self._save_when((trainer.is_global_zero and waited) or is_last_epoch(trainer), trainer)

    # The step or epoch that was saved is logged after its hook, so a run stops when the next one begins.

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._postponed = False  # the epoch had no validation
        self.on_train_end(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop on a signal, in the last epoch, too: the test can be run later."""
        if self._stopping:
            raise Interrupted(self._signum or signal.SIGTERM, self.path)

    on_train_epoch_start = on_train_end

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        while self._handlers:
            signum, handler = self._handlers.popitem()
            # After a successful run Lightning has restored the earlier handlers. The one saved here is its
            # own: restored, it would keep the whole trainer alive, and the next trainer's would call it.
            if signal.getsignal(signum) == self._note:
                signal.signal(signum, handler)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Restore the signal handlers; see the class for why nothing is saved."""
        self.teardown(trainer, pl_module, "fit")
        self._signum, self._stopping = None, False  # handled: the next fit of this trainer must not stop

    def _any(self, trainer: Trainer, here: bool) -> bool:
        """Whether `here` is true in any process."""
        if trainer.world_size == 1:
            return here
        return bool(trainer.strategy.reduce_boolean_decision(here, all=False))

    def _save_when(self, due: bool, trainer: Trainer) -> None:
        """Save if it is due or a signal has come in any process; a signal then stops all of them."""
        if self._any(trainer, due or self._signum is not None):
            self._save(trainer)
            self._stopping = self._any(trainer, self._signum is not None)

    def _save(self, trainer: Trainer) -> None:
        if getattr(trainer, "fast_dev_run", False):
            return
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, BestCheckpoint):
                callback.flush(trainer)  # this checkpoint refers to best.ckpt, so that must exist
        check_saved_weights(trainer)
        with _stepped_plateaus(trainer):
            trainer.save_checkpoint(self.path, weights_only=False)
        self._saved_at, self._has_saved = time.monotonic(), True
        self._saved_step = trainer.global_step


@contextlib.contextmanager
def _stepped_plateaus(trainer: Trainer) -> Iterator[None]:
    """Step each `ReduceLROnPlateau` for the time of a save: Lightning does so only after it."""
    loop = trainer.fit_loop.epoch_loop
    plateaus = [config.scheduler for config in trainer.lr_scheduler_configs if config.reduce_on_plateau]
    if not plateaus:
        yield
        return
    states = copy.deepcopy([plateau.state_dict() for plateau in plateaus])
    rates = copy.deepcopy([[group["lr"] for group in x.optimizer.param_groups] for x in plateaus])
    progress = copy.deepcopy(loop.scheduler_progress.state_dict())
    interval = "epoch" if loop._num_ready_batches_reached() else "step"
    loop.update_lr_schedulers(interval, update_plateau_schedulers=True)
    try:
        yield
    finally:
        loop.scheduler_progress.load_state_dict(progress)
        for plateau, state, lrs in zip(plateaus, states, rates, strict=True):
            plateau.load_state_dict(state)
            for group, rate in zip(plateau.optimizer.param_groups, lrs, strict=True):
                group["lr"] = rate


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


def is_last_epoch(trainer: Trainer) -> bool:
    """Whether the epoch that ends now is the run's last."""
    epochs = trainer.max_epochs
    last = epochs is not None and 0 <= epochs <= trainer.current_epoch + 1
    return bool(trainer.should_stop or _has_all_steps(trainer) or last)


def _has_all_steps(trainer: Trainer) -> bool:
    return 0 <= trainer.max_steps <= trainer.global_step


def _stops(trainer: Trainer) -> bool:
    """Whether training ends after the present step, wherever in an epoch that is."""
    return _has_all_steps(trainer) or bool(trainer.should_stop and trainer.fit_loop._can_stop_early)


def _ends_inside(trainer: Trainer) -> bool:
    """Whether training ends between two steps of an epoch that is not over."""
    at_a_step = not trainer.fit_loop._should_accumulate()
    return at_a_step and _stops(trainer) and not trainer.fit_loop.epoch_loop._num_ready_batches_reached()


def _validates_after(trainer: Trainer, batch_idx: int) -> bool:
    """Whether the batch, not the last of its epoch, may be followed by a validation."""
    every_epoch = trainer.check_val_every_n_epoch
    if every_epoch is None:
        batch_idx = trainer.fit_loop.total_batch_idx
    elif (trainer.current_epoch + 1) % every_epoch:
        return False
    every = trainer.val_check_batch
    return bool(trainer.enable_validation and every and (batch_idx + 1) % every == 0)


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
