"""The command's own callbacks: they watch the run, check metrics, and save what prediction needs."""

from __future__ import annotations

import contextlib
import math
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint, ProgressBar
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher

from graphzoo import callbacks as own
from graphzoo.callbacks import Interrupted
from graphzoo.callbacks.progress import NotebookBar, in_notebook
from graphzoo.callbacks.summary import RunSummary
from graphzoo.catalog.classes import class_path
from graphzoo.catalog.tasks import TASKS
from graphzoo.errors import UsageError, normalise
from graphzoo.runs.published import is_comparable, published_values
from graphzoo.system.memory import HeapTrimmer, is_out_of_memory
from graphzoo.system.processes import abort_group, lost_a_process
from graphzoo.tasks.base import Task
from graphzoo.tasks.room import refuse_untrainable, what_takes_less
from graphzoo.training.plan import RunState

# Other names that users give to metrics.
_MEANT = {"accuracy": "acc", "auc": "auroc", "rocauc": "auroc"}


class FitsMemory(Callback):
    """Refuses a model that is too large; the first callback, since others, such as averages, build it."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a model that cannot be trained here before it takes memory."""
        if stage == "fit":
            refuse_untrainable(trainer, pl_module)


class TrimsHeap(Callback):
    """Returns memory that the run has freed if it grows; see `HeapTrimmer`."""

    def __init__(self) -> None:
        self._heap = HeapTrimmer()

    def on_train_batch_end(self, *_: Any) -> None:
        self._heap.look()

    def on_validation_batch_end(self, *_: Any) -> None:
        self._heap.look()

    def on_test_batch_end(self, *_: Any) -> None:
        self._heap.look()


class Began(Callback):
    """Notes when the run itself has begun, and handles failures."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.state.began = True

    on_validation_start = on_test_start = on_train_start

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Say what takes less memory, and end the processes that would wait for this one."""
        if is_out_of_memory(exception) and trainer.training and isinstance(pl_module, Task):
            exception.add_note(what_takes_less(pl_module, exception))
        launcher = trainer.strategy.launcher
        failed = isinstance(exception, Exception) and not isinstance(exception, Interrupted)
        if failed:
            abort_group()  # before the trainer moves the weights, which would wait for the others' kernels
        if failed and isinstance(launcher, _SubprocessScriptLauncher) and not lost_a_process(exception):
            launcher.kill(signal.SIGKILL)  # waiting processes react to no other signal; they write no files
            # Lightning's watch over its processes would kill this one before it says why
            launcher.procs.clear()


class Monitor(Callback):
    """Sets metric and mode of callbacks that watch "auto", as the task and its data require."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if stage == "fit":
                _refuse_unknown_metric(callback, pl_module)
            watches = getattr(callback, "monitor", None) == "auto" and hasattr(pl_module, "monitor")
            if not watches or isinstance(callback, own.BestCheckpoint):  # which asks for `checkpoint_by`
                continue
            callback.monitor = pl_module.monitor
            mode = getattr(pl_module, "mode", "max")
            if isinstance(callback, ModelCheckpoint) and callback.mode != mode:
                callback.mode, callback.kth_value = mode, -callback.kth_value
            if isinstance(callback, EarlyStopping) and callback.mode != mode:
                callback.mode, callback.best_score = mode, -callback.best_score
                callback.min_delta = -callback.min_delta


def _refuse_unknown_metric(callback: Callback, task: LightningModule) -> None:
    """Refuse, before the first epoch, a callback that misspells a metric or watches that of another task.

    Unknown names are left alone: a callback of the user may log them.
    """
    watched, is_needed = getattr(callback, "monitor", None), getattr(callback, "strict", True)
    info = next((row for row in TASKS.values() if row.class_path == class_path(task)), None)
    if info is None or not isinstance(watched, str) or not watched.startswith("val") or not is_needed:
        return
    known = {normalise(name): f"val/{name}" for name in info.columns}
    name = normalise(watched.removeprefix("val").lstrip("/_-. "))
    meant = known.get(_MEANT.get(name, name))
    others = {column for row in TASKS.values() for column in row.columns} - set(info.columns)
    if (meant and watched != meant) or (meant is None and watched.removeprefix("val/") in others):
        remedy = f"Did you mean: {meant}?" if meant else f"There are: {', '.join(known.values())}"
        raise UsageError(
            f"{type(callback).__name__} watches {watched}, which {type(task).__name__} does not log\n{remedy}"
        )


class Artifacts(Callback):
    """Saves what prediction needs beside the weights, before training: interrupted runs can predict, too.

    It waits for `on_fit_start`, where a task may still refuse the data.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        datamodule = trainer.datamodule  # type: ignore[attr-defined]
        if trainer.is_global_zero and hasattr(datamodule, "save_artifacts"):
            datamodule.save_artifacts(self.directory)


class PaperLine(Callback):
    """Leaves out the paper's line of a `WandbRun` if links are evaluated under another protocol."""

    def __init__(self, state: RunState) -> None:
        self.names = state.model, state.plan.recipe, state.data

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        datamodule = trainer.datamodule  # type: ignore[attr-defined]
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        with contextlib.suppress(UsageError):  # the run names a recipe that is no longer there
            split = datamodule.describe_split() if hasattr(datamodule, "describe_split") else None
            if not is_comparable(*self.names, {"split": split}):
                for callback in callbacks:
                    if isinstance(callback, own.WandbRun):
                        callback.paper = {}


def callbacks_of(
    state: RunState,
    run_dir: Path,
    config: dict[str, Any],
    given: Sequence[Callback],
    names: Mapping[str, str],
) -> list[Callback]:
    """The callbacks that graphzoo adds to the user's own (`given`), except those of checkpoints.

    `config` has the Trainer's arguments, with loggers as objects. If nobody can see the progress bar, it is
    switched off there.
    """
    plan = state.plan
    callbacks: list[Callback] = [Monitor(), own.Throughput(), own.NanGuard(), Began(state), TrimsHeap()]
    callbacks += plan.callbacks
    if plan.leaves_graph:
        callbacks.append(Artifacts(run_dir / "graph"))
    if plan.tests or plan.command == "test":
        callbacks.append(own.EvaluationFiles(run_dir))
    if any(type(logger).__name__ == "WandbLogger" for logger in config["logger"] or []):
        if plan.quiet:
            import wandb

            wandb.setup()  # reads WANDB_SILENT; before it, wandb warns of what Lightning's logger passes
        callbacks += [
            PaperLine(state),
            own.WandbRun(run_dir, dict(names), _published(state), quiet=plan.quiet),
        ]
    fits = plan.command == "fit"
    if config["logger"] is not False and fits:
        callbacks += [LearningRateMonitor(logging_interval="epoch"), own.Diagnostics()]
    if plan.quiet:
        config["enable_progress_bar"] = False
    has_bar = in_notebook() or sys.stdout.isatty()
    if config.get("enable_progress_bar") is not False:
        callbacks += [RunSummary(plan.tests, plan.shorter)] if fits else []
        callbacks.append(own.EpochLines(math.inf if has_bar else 60))
    if config.get("enable_progress_bar") is None and not any(isinstance(c, ProgressBar) for c in given):
        if in_notebook():
            callbacks.append(NotebookBar())
        elif has_bar:
            callbacks.append(own.ProgressBar())
        else:
            config["enable_progress_bar"] = False
    return callbacks


def checkpoints_of(model: object, run_dir: Path, config: Mapping[str, Any]) -> list[Callback]:
    """The best (by `model.checkpoint_by`) and the last checkpoint, unless the settings want none."""
    if config.get("enable_checkpointing") is False or config.get("fast_dev_run"):
        return []
    directory = run_dir.absolute() / "checkpoints"
    last: list[Callback] = [own.LastCheckpoint(directory)]
    if not hasattr(model, "monitor"):
        return last
    return [own.BestCheckpoint(directory, mode=getattr(model, "mode", "max")), *last]


def _published(state: RunState) -> dict[str, float]:
    """The paper's test scores, if the recipe names them."""
    with contextlib.suppress(UsageError):  # the run names a recipe that is no longer there
        published = published_values(state.model, state.plan.recipe, state.data)
        return {name: figure.value for name, figure in published.items()}
    return {}
