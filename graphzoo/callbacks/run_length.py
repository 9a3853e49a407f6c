"""Estimates how long a run takes: its remaining steps and validations, and their seconds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Timer

from graphzoo.errors import UsageError

# Seconds of timed steps before an estimate is made, and seconds over which later ones average.
_TIMED, _KEPT = 5.0, 60.0


@dataclass(frozen=True)
class Place:
    """How far a run has come: epoch, batch within the epoch, and optimiser steps of all epochs."""

    epoch: int = 0
    batch: int = 0
    step: int = 0

    def __bool__(self) -> bool:
        return self != Place()


class Remaining:
    """Steps and validations from a place to the end of a run, whose loaders are set up.

    `every` and `interval` are the Trainer's `check_val_every_n_epoch` and `val_check_interval`: batches, a
    share of an epoch, or a time. With `in_steps`, a whole number counts steps: a batch is a step, which may
    go through the model in parts.
    """

    def __init__(
        self, trainer: Trainer, place: Place, every: int | None, interval: Any, *, in_steps: bool = False
    ) -> None:
        self._trainer, self._place, self._every = trainer, place, every
        self._in_steps = in_steps and isinstance(interval, int)
        self._interval: float = 1.0
        self._interval_seconds = interval_seconds(interval)
        if interval is not None and self._interval_seconds is None:
            self._interval = interval

    @property
    def steps(self) -> int | None:
        """Steps of the optimiser; None without an end."""
        trainer, place, ends = self._trainer, self._place, []
        per_epoch = steps_per_epoch(trainer)
        if trainer.max_epochs is not None and trainer.max_epochs >= 0 and per_epoch is not None:
            steps = (trainer.max_epochs - place.epoch) * per_epoch
            ends.append(steps - place.batch // trainer.accumulate_grad_batches)
        if trainer.max_steps > 0:
            ends.append(trainer.max_steps - place.step)
        return min(ends, default=None)

    def seconds(self, step: float, validation: float) -> float:
        """Seconds of all that remains, from those of a step at this place of the run and of a validation.

        Steps of later epochs may cost more, as the datamodule says.
        """
        assert self.steps is not None
        training = step * self._cost()
        if self._interval_seconds is not None:
            rounds = training // max(self._interval_seconds, step)
        else:
            rounds = self._rounds(self.steps)
        return training + rounds * validation

    def _cost(self) -> float:
        """Cost of the remaining steps, in steps of the present epoch."""
        steps, per_epoch = self.steps, steps_per_epoch(self._trainer)
        assert steps is not None
        datamodule: Any = self._trainer.datamodule  # type: ignore[attr-defined]
        costs: dict[int, float] = getattr(datamodule, "step_costs", dict)()
        if per_epoch is None or len(costs) < 2:
            return steps
        place = self._place
        first = place.epoch * per_epoch + place.batch // self._trainer.accumulate_grad_batches
        begins = [*sorted(costs), math.inf]
        total = now = 0.0
        for begin, end in zip(begins, begins[1:], strict=False):
            inside = min(end * per_epoch, first + steps) - max(begin * per_epoch, first)
            total += max(0.0, inside) * costs[int(begin)]
            if begin <= place.epoch:
                now = costs[int(begin)]
        return total / now

    def _rounds(self, steps: int) -> float:
        """Validations within so many steps, when Lightning counts them in batches."""
        trainer, place = self._trainer, self._place
        parts, batches = trainer.accumulate_grad_batches, trainer.num_training_batches
        per_epoch = steps_per_epoch(trainer)
        if self._in_steps:
            parts, batches = 1, per_epoch or batches
        interval = max(1, self._interval) if isinstance(self._interval, int) else self._interval
        if isinstance(interval, float):  # a share of an epoch
            interval = max(1, int(batches * interval)) if per_epoch is not None else math.inf
        if per_epoch is None:
            return steps * parts // interval
        every, within = self._every, batches // interval

        def until(end: int) -> float:
            epochs, rest = divmod(end, per_epoch)
            if every is None:
                return (epochs * batches + rest * parts) // interval
            begun = min(within, rest * parts // interval) if (epochs + 1) % every == 0 else 0
            return epochs // every * within + begun

        start = place.epoch * per_epoch + place.batch // trainer.accumulate_grad_batches
        return until(start + steps) - until(start)


class ValidationClock(Callback):
    """Times the batches of the sanity check, to estimate a whole validation."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._batches: list[tuple[float, int]] = []  # seconds and questions
        self._batch_began, self._asked = 0.0, 0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Forget an earlier fit, which may have had other data."""
        if stage == "fit":
            self._batches = []

    def on_validation_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._asked = _questions(pl_module)
        self._batch_began = self._clock()

    def on_validation_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if trainer.sanity_checking:
            finish(pl_module.device)
            questions = _questions(pl_module) - self._asked
            self._batches.append((self._clock() - self._batch_began, questions))

    def whole_validation(self, trainer: Trainer) -> tuple[float, int | None] | None:
        """Seconds of a validation, and its questions if a task counts them; None if unknown.

        With reverse queries, the first batches ask most questions: those of a relation come when it first
        occurs.
        """
        if not self._batches:
            return None
        loaders = trainer.val_dataloaders
        loader = loaders[0] if isinstance(loaders, list) else loaders or ()
        return self._whole(trainer, loader, sum(trainer.num_val_batches))

    def whole_test(self, trainer: Trainer) -> tuple[float, int] | None:
        """Seconds of the test that ends a run, under both protocols if both are tested, and its batches.

        None if this is unknown: the DataModule has several loaders, or does not give their length.
        """
        if not self._batches:
            return None
        datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
        try:
            loader = datamodule.test_dataloader()
            batches, limit = len(loader), trainer.limit_test_batches
        except (TypeError, MisconfigurationException):
            return None
        if isinstance(loader, list | tuple | dict):
            return None
        batches = min(batches, limit) if isinstance(limit, int) else int(batches * limit)
        needed = self._whole(trainer, loader, batches)
        return None if needed is None else (needed[0] * getattr(datamodule, "test_cost", 1.0), batches)

    def _whole(
        self, trainer: Trainer, loader: Iterable[Any], batches: float
    ) -> tuple[float, int | None] | None:
        """Seconds of so many batches, and their questions, see `whole_validation`."""
        if batches == math.inf:
            return None
        module = trainer.lightning_module
        count_questions: Any = getattr(module, "num_questions", None)  # of graphzoo's tasks
        count = count_questions(islice(loader, int(batches))) if count_questions else None
        if count is None:
            return min(seconds for seconds, _ in self._batches) * batches, None
        return min(seconds / asked for seconds, asked in self._batches) * count, count


class RunClock(ValidationClock):
    """Estimates at any time how long a run will still take.

    Attributes:
        left: Seconds until training ends, validations included, updated once a second; infinite if unknown.
        tested: Seconds of the test after it; 0 while unknown, and without a test.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(clock)
        self._begin()

    def _begin(self) -> None:
        self._place: Place | None = None  # where the last step ended, and when
        self._at = self._validation_began = 0.0
        self._steps = self._seconds = 0.0
        self._validation: float | None = None
        self._guessed = False
        self.left, self._left_at = math.inf, -math.inf
        self.tested = 0.0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Forget the times of an earlier fit, and that between both."""
        super().setup(trainer, pl_module, stage)
        if stage == "fit":
            self._begin()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count a step, and the loading of its data."""
        if trainer.fit_loop._should_accumulate():
            return
        now = self._clock()
        if self._place is not None:  # the first step compiles
            self._steps, self._seconds = self._steps + 1, self._seconds + now - self._at
        if self._seconds > _KEPT and self._steps > 8:  # steps of later epochs may take longer
            self._steps, self._seconds = self._steps / 2, self._seconds / 2
        self._place, self._at = Place(trainer.current_epoch, batch_idx + 1, trainer.global_step), now
        if now - self._left_at >= 1:
            self._update(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock of a whole validation, which is still to come."""
        self._validation_began = self._clock()
        if not trainer.sanity_checking:
            self._update(trainer)
            self.left = min(self.left + (self._validation or 0.0), seconds_allowed(trainer))

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note the time of a whole validation, and leave it out of the time of steps."""
        if not trainer.sanity_checking:
            self._validation = self._clock() - self._validation_began
            self._at += self._validation
            self._update(trainer)

    def _update(self, trainer: Trainer) -> None:
        if self.is_sure:
            self.left = min(self.seconds_left(trainer)[0], seconds_allowed(trainer))
            self._left_at = self._clock()

    @property
    def is_sure(self) -> bool:
        """Whether enough steps have been timed."""
        return self._steps >= 3 and self._seconds >= _TIMED

    def seconds_left(self, trainer: Trainer) -> tuple[float, int | None, bool]:
        """Seconds and steps of training that are left, and whether validations are counted.

        If unknown, the seconds are infinite and the steps None. `--trainer.max_time` is not considered.
        """
        if not self.is_sure or self._place is None:
            return math.inf, None, False
        remaining = what_remains(trainer, self._place)
        if (steps := remaining.steps) is None:
            return math.inf, None, False
        if self._validation is None and not self._guessed:  # looks at all its questions
            self._guessed, whole = True, self.whole_validation(trainer)
            self._validation = None if whole is None else whole[0]
        seconds = remaining.seconds(self._seconds / self._steps, self._validation or 0.0)
        return seconds, steps, self._validation is not None


def what_remains(trainer: Trainer, place: Place) -> Remaining:
    """What remains of a fit that has begun, whose task may have set the Trainer's interval in its own way."""
    every, interval = trainer.check_val_every_n_epoch, trainer.val_check_interval
    seconds: float | None = getattr(trainer, "_val_check_time_interval", None)  # kept apart from the number
    if seconds is not None:
        return Remaining(trainer, place, every, timedelta(seconds=seconds))
    steps = getattr(getattr(trainer.lightning_module, "micro_batches", None), "validates_every", None)
    return Remaining(trainer, place, every, interval if steps is None else steps, in_steps=steps is not None)


def _questions(module: LightningModule) -> int:
    return int(getattr(module, "questions_asked", 0))


def steps_per_epoch(trainer: Trainer) -> int | None:
    """Steps of the optimiser; None where the length of an epoch is not known."""
    batches = trainer.num_training_batches
    return None if batches == math.inf else math.ceil(batches / trainer.accumulate_grad_batches)


def seconds_allowed(trainer: Trainer) -> float:
    """What `--trainer.max_time` leaves; infinite without it."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    remaining = (one.time_remaining() for one in callbacks if isinstance(one, Timer))
    return min((left for left in remaining if left is not None), default=math.inf)


def interval_seconds(interval: Any) -> float | None:
    """A `val_check_interval` that is a time, in seconds; None for any other, `UsageError` for other text."""
    if not isinstance(interval, str | timedelta | dict):
        return None
    try:
        if isinstance(interval, str):
            days, hours, minutes, seconds = map(int, interval.split(":"))
            interval = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        elif isinstance(interval, dict):
            interval = timedelta(**interval)
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"--trainer.val_check_interval: {interval!r} is not a time\nWrite DD:HH:MM:SS: 00:00:30:00"
        ) from error
    return float(interval.total_seconds())


def finish(device: torch.device) -> None:
    """Wait until a GPU has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
