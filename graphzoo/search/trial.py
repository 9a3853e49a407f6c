"""Run one trial of a search in this process, and score its runs by the validation split alone."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from lightning.pytorch import Callback, LightningModule, Trainer

from graphzoo.runs.series import Run
from graphzoo.training.plan import make_plan
from graphzoo.training.start import last_words


class TrialFailed(Exception):  # noqa: N818 - not an error of the program
    """A run of a trial ended without a value; has its last output and its exit status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status

    @property
    def stopped(self) -> bool:
        """Whether the run was ended by a signal; the user sends those of 130 and 143."""
        return self.status > 128


class BestValue(Callback):
    """Records the best value of the task's validation metric, without writing a checkpoint.

    With a small validation split, the best of hundreds of epochs is partly luck, especially if the metric
    fluctuates. The mean over several consecutive validations depends less on luck.

    Args:
        window: Number of consecutive validations whose mean is a value.
    """

    def __init__(self, window: int = 1) -> None:
        self.value: float | None = None  # the best value so far; None before `window` validations
        self.epoch: int | None = None  # last epoch of the best window, from 0
        self.monitor = ""
        self._last: deque[float] = deque(maxlen=window)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compare the mean of the last window with the best one; NaN and infinity never count."""
        if trainer.sanity_checking:
            return
        self.monitor = str(pl_module.monitor)
        self._last.append(float(trainer.callback_metrics[self.monitor]))
        if len(self._last) < (self._last.maxlen or 1):
            return
        value = math.fsum(self._last) / len(self._last)
        sign = 1 if str(pl_module.mode) == "max" else -1
        if math.isfinite(value) and (self.value is None or sign * value > sign * self.value):
            self.value, self.epoch = value, trainer.current_epoch


def run_trial(
    folder: Path, runs: list[Run], options: list[str], *, window: int
) -> Iterator[tuple[float, float]]:
    """Fit one setting with several seeds or splits, one after the other.

    The test split is not evaluated and no checkpoint is written. Each run has a folder with `metrics.csv`,
    `config.yaml` and its output, `log.txt`.

    Args:
        folder: Folder of the trial.
        runs: The runs, with their options and folders.
        options: Options that all runs share.
        window: Number of consecutive validations whose mean is a value; see `BestValue`.

    Yields:
        The best value on validation and the seconds of each run.

    Raises:
        TrialFailed: if a run failed or was stopped, or had fewer than `window` validations.
    """
    for run in runs:
        yield _fit(folder / run.folder, [*options, *run.options], window)


def _fit(folder: Path, options: list[str], window: int) -> tuple[float, float]:
    from graphzoo.training.launch import run_plan

    best, began = BestValue(window), time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.txt"
    plan = make_plan("fit", [*options, "--run_dir", str(folder / "run")])
    plan = replace(plan, tests=False, leaves_graph=False, callbacks=(best,))
    with (
        log.open("w", encoding="utf-8") as file,
        contextlib.redirect_stderr(file),
        contextlib.redirect_stdout(file),
    ):
        status = run_plan(plan)
    if status or best.value is None or best.epoch is None:
        few = f"fewer than {window} validations" if window > 1 else "no validation took place"
        raise TrialFailed(last_words(log) if status else few, status)
    seconds = time.perf_counter() - began
    found = {best.monitor: best.value, "epoch": best.epoch, "seconds": seconds}
    (folder / "validation.json").write_text(json.dumps(found) + "\n", encoding="utf-8")
    return best.value, seconds
