"""Whether training ends after the present step or epoch; it ends between two steps, never inside one."""

from __future__ import annotations

from lightning.pytorch import Trainer


def is_last_epoch(trainer: Trainer) -> bool:
    """Whether the epoch that ends now is the run's last."""
    epochs = trainer.max_epochs
    last = epochs is not None and 0 <= epochs <= trainer.current_epoch + 1
    return bool(trainer.should_stop or _has_all_steps(trainer) or last)


def ends_after_step(trainer: Trainer) -> bool:
    """Whether training ends after the present step, wherever in an epoch that is."""
    return _has_all_steps(trainer) or _stops_early(trainer)


def ends_inside_epoch(trainer: Trainer) -> bool:
    """Whether training ends between two steps of an epoch that is not over."""
    loop = trainer.fit_loop.epoch_loop
    is_between_steps = not loop._should_accumulate()
    return is_between_steps and ends_after_step(trainer) and not loop._num_ready_batches_reached()


class StopBetweenSteps:
    """Puts off a stop inside a step, which `should_stop` asks for, until the end of the step."""

    def __init__(self) -> None:
        self._is_put_off = False

    def forget(self) -> None:
        """Forget a stop that was put off."""
        self._is_put_off = False

    def apply(self, trainer: Trainer) -> None:
        """Put a stop off, or carry out one that was; to be called after every micro-batch."""
        if not trainer.fit_loop._should_accumulate():
            trainer.should_stop = trainer.should_stop or self._is_put_off
            self._is_put_off = False
        elif _stops_early(trainer):
            trainer.should_stop, self._is_put_off = False, True


def _has_all_steps(trainer: Trainer) -> bool:
    return 0 <= trainer.max_steps <= trainer.global_step


def _stops_early(trainer: Trainer) -> bool:
    """Whether training was told to stop, and has had its `min_epochs` and `min_steps`."""
    return bool(trainer.should_stop and trainer.fit_loop._can_stop_early)
