"""Callbacks of the command itself: what it has to know of a run, and what a run leaves for prediction."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher

from graphzoo.callbacks import Interrupted
from graphzoo.system.memory import is_out_of_memory
from graphzoo.system.processes import lost_a_process
from graphzoo.tasks.base import Task
from graphzoo.tasks.room import refuse_untrainable, what_takes_less
from graphzoo.training.plan import Plan

__all__ = ["Artifacts", "Began", "GoesOn", "Monitor"]


class Began(Callback):
    """Notes that the settings are behind and the run itself has begun; what it takes when a run fails."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a model that cannot be trained here before it takes memory."""
        if stage == "fit":
            refuse_untrainable(trainer, pl_module)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Training begins."""
        self.plan.began = True

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Validation begins, or the sanity check before training."""
        self.plan.began = True

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The test begins."""
        self.plan.began = True

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Say what takes less memory, and end the processes that would wait for this one."""
        if is_out_of_memory(exception) and trainer.training and isinstance(pl_module, Task):
            exception.add_note(what_takes_less(pl_module, exception))
        launcher = trainer.strategy.launcher
        failed = isinstance(exception, Exception) and not isinstance(exception, Interrupted)
        if failed and isinstance(launcher, _SubprocessScriptLauncher) and not lost_a_process(exception):
            launcher.kill(signal.SIGKILL)  # no other reaches a process that waits; the first one writes all


class GoesOn(Callback):
    """Writes to the directory of a resumed run when nothing can refuse its checkpoint any more.

    Args:
        write: Does so, once.
    """

    def __init__(self, write: Callable[[], None]) -> None:
        self.write = write

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Weights, callbacks, data and optimiser have been compared; nothing is logged yet."""
        self.write()


class Monitor(Callback):
    """Tells callbacks that watch the metric "auto" which one the task's data call for."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """The data are known by now."""
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if getattr(callback, "monitor", None) == "auto" and hasattr(pl_module, "monitor"):
                callback.monitor = pl_module.monitor


class Artifacts(Callback):
    """Writes what prediction needs beside the weights, before training: interrupted runs predict too.

    Not before `on_fit_start`, where a task may still refuse the data.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let the DataModule write its files."""
        datamodule = trainer.datamodule  # type: ignore[attr-defined]
        if trainer.is_global_zero and hasattr(datamodule, "save_artifacts"):
            datamodule.save_artifacts(self.directory)
