"""Callbacks of Lightning that would not work in a task of graphzoo."""

from collections.abc import Iterator
from typing import Any

from lightning.pytorch.callbacks import (
    BaseFinetuning,
    BatchSizeFinder,
    Callback,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelPruning,
    StochasticWeightAveraging,
)

from graphzoo.errors import UsageError

_UNFIT: dict[type[Callback], str] = {
    StochasticWeightAveraging: "copies the model before its encoder is built, so it would average nothing\n"
    "Take graphzoo.callbacks.WarmupEMAWeightAveraging",
    LearningRateFinder: "trains before the task hides the answers of a batch from the encoder\n"
    "Try some rates, each in a run of its own: graphzoo search tries them, too",
    BatchSizeFinder: "trains before the task hides the answers of a batch from the encoder\n"
    "Leave it out: batches that take too much memory are cut into parts",
}


def _callbacks(trainer: Any, kinds: tuple[type[Callback], ...]) -> Iterator[Callback]:
    return (each for each in getattr(trainer, "callbacks", ()) if isinstance(each, kinds))


def refuse_unfit_callbacks(trainer: Any) -> None:
    """Refuse callbacks that would not work in a fit.

    Raises:
        UsageError: with the callback's name and what to use instead.
    """
    for callback in _callbacks(trainer, tuple(_UNFIT)):
        reason = next(text for kind, text in _UNFIT.items() if isinstance(callback, kind))
        raise UsageError(f"{type(callback).__name__} {reason}")


def refuse_callbacks_of_weights(trainer: Any) -> None:
    """Refuse callbacks that look for weights in `setup`, when the task has not built its encoder yet.

    Raises:
        UsageError: with the callback's name and how to get a task that has its weights.
    """
    for callback in _callbacks(trainer, (BaseFinetuning, ModelPruning)):
        raise UsageError(
            f"{type(callback).__name__} looks for weights before the encoder is built\n"
            "Give it, in Python, a task that has them: graphzoo.load(checkpoint).task"
        )


def refuse_scheduled_steps(trainer: Any, reason: str) -> None:
    """Refuse a `GradientAccumulationScheduler` if the data already decide how many parts make a step.

    Raises:
        UsageError: with the reason, the text behind the callback's name.
    """
    for callback in _callbacks(trainer, (GradientAccumulationScheduler,)):
        name = type(callback).__name__
        raise UsageError(f"{name} {reason}\nGive the Trainer accumulate_grad_batches instead")
