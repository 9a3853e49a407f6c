"""Two checkpoints per run: the best by validation, and the last, from which a run goes on unchanged."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint

__all__ = ["BestCheckpoint", "Interrupted", "LastCheckpoint"]


class Interrupted(Exception):  # noqa: N818 - what happened, not a mistake
    """The run was asked to stop by a signal, and has saved its state.

    Args:
        signum: The signal.
        path: The checkpoint to go on from.
    """

    def __init__(self, signum: int, path: Path) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}; {path} holds the state")
        self.signum = signum
        self.path = path


class BestCheckpoint(ModelCheckpoint):
    """Keeps `best.ckpt`: the weights with the best validation metric.

    Args:
        directory: Folder of the checkpoints.
        monitor: Name of the metric.
        mode: "max" or "min".
    """

    def __init__(self, directory: str | os.PathLike[str], monitor: str, mode: str = "max") -> None:
        super().__init__(
            dirpath=Path(directory),
            filename="best",
            monitor=monitor,
            mode=mode,
            save_top_k=1,
            enable_version_counter=False,
            auto_insert_metric_name=False,
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best score; a run directory that was moved keeps its best checkpoint."""
        here = os.path.join(str(self.dirpath), "best.ckpt")
        if state_dict.get("best_model_path") and os.path.isfile(here):
            scores = list(state_dict["best_k_models"].values())
            state_dict = {
                **state_dict,
                "dirpath": self.dirpath,
                "best_model_path": here,
                "kth_best_model_path": here,
                "best_k_models": dict.fromkeys([here], scores[0]) if scores else {},
            }
        super().load_state_dict(state_dict)


class LastCheckpoint(Checkpoint):
    """Keeps `last.ckpt`: after every epoch, every few minutes inside one, and when the run is told to stop.

    Inside an epoch it is written between two optimiser steps only, so that no micro-batch of a step is lost;
    with a loader that knows its place, the resumed run is the uninterrupted one. It is not written when
    something fails: the state in the middle of a step is none to go on from.

    SIGINT and SIGTERM are answered by saving at the next such place and raising `Interrupted`; a second
    SIGINT stops at once.

    Args:
        directory: Folder of the checkpoints.
        minutes: Time between two checkpoints inside an epoch.
    """

    def __init__(self, directory: str | os.PathLike[str], minutes: float = 10.0) -> None:
        self.path = Path(directory) / "last.ckpt"
        self.minutes = minutes
        self._signum: int | None = None
        self._saved_at = time.monotonic()
        self._handlers: dict[int, Any] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Listen for signals, in the place of Lightning, which would stop in the middle of a validation."""
        self._saved_at = time.monotonic()
        if trainer.received_sigterm:
            self._signum = signal.SIGTERM
        requeued = os.environ.get("SLURM_JOB_ID") and signal.getsignal(signal.SIGUSR1) != signal.SIG_DFL
        if threading.current_thread() is not threading.main_thread() or requeued:
            return
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._handlers[signum] = signal.signal(signum, self._note)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self._signum is not None and signum == signal.SIGINT:
            raise KeyboardInterrupt
        self._signum = signum

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save between two steps when it is time."""
        if (batch_idx + 1) % trainer.accumulate_grad_batches or batch_idx + 1 >= trainer.num_training_batches:
            return  # inside a step, or at the end of the epoch, which is saved after its validation
        # The clock of the first process counts. One small reduction per step serves clock and signals.
        due = trainer.is_global_zero and time.monotonic() - self._saved_at > 60 * self.minutes
        if not self._any(trainer, due or self._signum is not None):
            return
        self._save(trainer)
        if self._told_to_stop(trainer):
            raise Interrupted(self._signum or signal.SIGTERM, self.path)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save after every epoch."""
        self._save(trainer)
        if self._told_to_stop(trainer):
            raise Interrupted(self._signum or signal.SIGTERM, self.path)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Give the signals back."""
        while self._handlers:
            signum, handler = self._handlers.popitem()
            signal.signal(signum, handler)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Give the signals back; see the class for why nothing is saved."""
        self.teardown(trainer, pl_module, "fit")

    def _told_to_stop(self, trainer: Trainer) -> bool:
        return self._any(trainer, self._signum is not None)

    def _any(self, trainer: Trainer, here: bool) -> bool:
        """Whether it holds in any process."""
        if trainer.world_size == 1:
            return here
        return bool(trainer.strategy.reduce_boolean_decision(here, all=False))

    def _save(self, trainer: Trainer) -> None:
        if getattr(trainer, "fast_dev_run", False):
            return
        trainer.save_checkpoint(self.path, weights_only=False)
        self._saved_at = time.monotonic()
