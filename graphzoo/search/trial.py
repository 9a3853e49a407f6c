"""One trial of a search: fit its runs in this process, and score them on the validation split alone."""

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


class TrialFailed(Exception):  # noqa: N818 - what happened, not a mistake
    """A run of a trial ended without a value: what it said last, and its exit status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status

    @property
    def stopped(self) -> bool:
        """Whether somebody stopped the run: 130 and 143 are a user's wish."""
        return self.status > 128


class BestValue(Callback):
    """Notes the best value of the task's validation metric, without writing a checkpoint.

    With a small validation split the best of hundreds of epochs is partly luck, the more so the wilder a
    curve is. The mean of several epochs in a row, the `window`, is less so.
    """

    def __init__(self, window: int = 1) -> None:
        self.value: float | None = None  # the best so far; None before there were so many validations
        self.epoch: int | None = None  # the last of its epochs, counted from 0
        self.monitor = ""
        self._last: deque[float] = deque(maxlen=window)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compare with the best; NaN is never better."""
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
    """Fit one setting with several seeds or splits, one after the other: the value of each, and its seconds.

    A value is the best on validation, or mean of a `window` of them. The test split is not looked at and no
    checkpoint is written; `metrics.csv`, `config.yaml` and what a run printed (`log.txt`) stay in a folder
    per run. A run that failed or was stopped raises `TrialFailed`.
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
