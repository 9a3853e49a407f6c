"""What Lightning's loops need so that a resumed run continues like an uninterrupted one.

A hook saves a checkpoint before Lightning's loop has done the rest of the step or epoch, and a resumed loop
does not always make up for it. So the state is saved as it will be afterwards, or put back on resume.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch import Tensor


def begin_epochs_anew(trainer: Trainer) -> None:
    """Let a run with `max_steps` begin a new epoch after a finished one, as other runs do.

    Lightning would repeat the end of that epoch, and skip the batches of the next one.
    """
    trainer.fit_loop._iteration_based_training = lambda: False  # type: ignore[method-assign]


def end_restart(trainer: Trainer) -> None:
    """After the first batch of a resumed epoch, let its end be that of any epoch.

    Lightning would leave out the step of a `ReduceLROnPlateau` there.
    """
    trainer.fit_loop._restarting = False


class EpochMetrics:
    """Keeps what callbacks and schedules read at the end of an epoch, whose validation may be over."""

    def __init__(self) -> None:
        self._resumed: dict[str, Tensor] = {}  # of a checkpoint inside an epoch

    def save(self, trainer: Trainer, checkpoint: dict[str, Any]) -> None:
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        checkpoint["callback_metrics"] = metrics

    def load(self, checkpoint: Mapping[str, Any]) -> None:
        self.forget()
        metrics = checkpoint.get("callback_metrics")
        for name, value in metrics.items() if isinstance(metrics, Mapping) else ():
            if isinstance(name, str) and isinstance(value, float):
                self._resumed[name] = torch.tensor(value, dtype=torch.float64)

    def put_back(self, trainer: Trainer) -> None:
        """Give a trainer the metrics that were loaded, once."""
        trainer.callback_metrics.update(self._resumed)
        self.forget()

    def forget(self) -> None:
        """Forget the metrics that were loaded."""
        self._resumed = {}


@contextlib.contextmanager
def step_counted(trainer: Trainer) -> Iterator[None]:
    """Count the present step for the time of a save: after a validation Lightning does so only later."""
    loop = trainer.fit_loop.epoch_loop
    loop._batches_that_stepped += 1
    try:
        yield
    finally:
        loop._batches_that_stepped -= 1


@contextlib.contextmanager
def plateaus_stepped(trainer: Trainer) -> Iterator[None]:
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
