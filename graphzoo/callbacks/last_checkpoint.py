"""Keeps the last checkpoint, from which a run resumes unchanged; on a signal a run stops after saving it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.trainer.states import TrainerFn

from graphzoo.callbacks.best_checkpoint import BestCheckpoint
from graphzoo.callbacks.checkpoint_file import use_checkpoint_file
from graphzoo.callbacks.nan_guard import check_saved_weights
from graphzoo.callbacks.resumed_loops import (
    EpochMetrics,
    begin_epochs_anew,
    end_restart,
    plateaus_stepped,
    step_counted,
)
from graphzoo.callbacks.stop_signals import StopSignals
from graphzoo.callbacks.training_end import (
    StopBetweenSteps,
    ends_after_step,
    ends_inside_epoch,
    is_last_epoch,
)


class Interrupted(Exception):  # noqa: N818 - what happened, not a mistake
    """A signal asked the run to stop, and it has saved its state to `path`."""

    def __init__(self, signum: int, path: Path) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}; {path} holds the state")
        self.signum = signum
        self.path = path


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
        self._signals = StopSignals()
        self._metrics = EpochMetrics()
        self._stop_between_steps = StopBetweenSteps()
        self._saved_at = time.monotonic()  # or when training began
        self._saved_step: int | None = None  # of this training
        self._saves_after_validation = False
        self._interrupted = False  # by a signal to any process, after which the state was saved

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        use_checkpoint_file(trainer)

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if trainer.state.fn != TrainerFn.FITTING:
            return  # a test loads checkpoints, too; a later fit does not resume them
        begin_epochs_anew(trainer)
        self._metrics.load(checkpoint)

    def forget_metrics(self) -> None:
        """Forget the metrics of the checkpoint, which are of other data."""
        self._metrics.forget()

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._metrics.save(trainer, checkpoint)

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Handle signals instead of Lightning, which would stop in the middle of a validation.

        Under SLURM, too: Lightning answers only the signal that comes before a job is requeued, and its
        checkpoint of that moment may lie in the middle of a step.
        """
        self._signals.handle(at_once=trainer.world_size == 1)  # other processes would wait for this one

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Handle signals also if there was no sanity check before."""
        self._saved_at, self._saved_step = time.monotonic(), None
        self._stop_between_steps.forget()
        self._metrics.put_back(trainer)
        self.on_sanity_check_start(trainer, pl_module)
        if trainer.received_sigterm:
            self._signals.note(signal.SIGTERM)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop on a signal since the last save. A single process handles signals again, but saves nothing."""
        if self._signals.noted is not None:
            raise Interrupted(self._signals.noted, self.path)
        if trainer.world_size == 1:  # of several, each stops as Python and Lightning do
            self._signals.handle(at_once=True)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save between two steps, when it is time."""
        if not trainer.fit_loop._should_accumulate():
            self._signals.at_once = False  # from the first step on there is something to save
        end_restart(trainer)
        self._stop_between_steps.apply(trainer)
        if (batch_idx + 1) % trainer.accumulate_grad_batches or batch_idx + 1 >= trainer.num_training_batches:
            return  # inside a step, or at the end of the epoch, which is saved after its validation
        if _validates_after(trainer, batch_idx):
            self._saves_after_validation = True  # a resumed run would leave this validation out
        else:
            self._save_in_time(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save after a validation inside an epoch, when it is time."""
        if trainer.state.fn != TrainerFn.FITTING or trainer.sanity_checking:
            return
        self._stop_between_steps.apply(trainer)
        if self._saves_after_validation:
            self._saves_after_validation = False
            self._save_in_time(trainer)
        elif ends_inside_epoch(trainer) and self._saved_step != trainer.global_step:
            # stopped after the step's hook, or by an unexpected validation
            with step_counted(trainer):
                self._save_in_time(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save after the first and the last epoch, and after others when it is time."""
        inside = not trainer.fit_loop.epoch_loop._num_ready_batches_reached()
        if inside and self._saved_step == trainer.global_step:
            return  # the epoch is not over, and was saved after its last step; saved here it would seem over
        waited = time.monotonic() - self._saved_at > self.seconds or self._saved_step is None
        self._save_if((trainer.is_global_zero and waited) or is_last_epoch(trainer), trainer)

    # The step or epoch that was saved is logged after its hook, so a run stops when the next one begins.

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._saves_after_validation = False  # the epoch had no validation
        self._raise_if_interrupted()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._raise_if_interrupted()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop on a signal, in the last epoch, too: the test can be run later."""
        self._raise_if_interrupted()

    def _raise_if_interrupted(self) -> None:
        if self._interrupted:
            raise Interrupted(self._signals.noted or signal.SIGTERM, self.path)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._signals.restore()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Restore the signal handlers; see the class for why nothing is saved."""
        self._signals.restore()
        self._signals.forget()  # the next fit of this trainer must not stop
        self._interrupted = False

    def _save_in_time(self, trainer: Trainer) -> None:
        """Save inside an epoch, when it is time."""
        # The clock of the first process counts. One small reduction per step serves clock and signals.
        due = trainer.is_global_zero and time.monotonic() - self._saved_at > 60 * self.minutes
        self._save_if(due or ends_after_step(trainer), trainer)

    def _save_if(self, due: bool, trainer: Trainer) -> None:
        """Save if it is due or a signal has come in any process; a signal then stops all of them."""
        if _any_process(trainer, due or self._signals.noted is not None):
            self._save(trainer)
            self._interrupted = _any_process(trainer, self._signals.noted is not None)

    def _save(self, trainer: Trainer) -> None:
        if getattr(trainer, "fast_dev_run", False):
            return
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, BestCheckpoint):
                callback.flush(trainer)  # this checkpoint refers to best.ckpt, so that must exist
        check_saved_weights(trainer)
        with plateaus_stepped(trainer):
            trainer.save_checkpoint(self.path, weights_only=False)
        self._saved_at, self._saved_step = time.monotonic(), trainer.global_step


def _any_process(trainer: Trainer, here: bool) -> bool:
    """Whether `here` is true in any process."""
    if trainer.world_size == 1:
        return here
    return bool(trainer.strategy.reduce_boolean_decision(here, all=False))


def _validates_after(trainer: Trainer, batch_idx: int) -> bool:
    """Whether the batch, not the last of its epoch, may be followed by a validation."""
    every_epoch = trainer.check_val_every_n_epoch
    if every_epoch is None:
        batch_idx = trainer.fit_loop.total_batch_idx
    elif (trainer.current_epoch + 1) % every_epoch:
        return False
    every = trainer.val_check_batch
    return bool(trainer.enable_validation and every and (batch_idx + 1) % every == 0)
