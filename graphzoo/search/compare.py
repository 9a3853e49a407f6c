"""Compare models on a graph, within a budget of minutes.

First every model is run with its own settings, simple models first. Then random other settings of the best
few models are tried, and then more seeds of the best settings. Validation decides. The test split is
evaluated once, for the winner.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from graphzoo.catalog.presets import find_preset, list_presets
from graphzoo.catalog.settings import flatten, read_settings, words_of
from graphzoo.checkpoints.read import read_checkpoint
from graphzoo.errors import UsageError
from graphzoo.runs.curves import read_rows
from graphzoo.runs.lock import RunLock
from graphzoo.runs.published import mean_and_deviation
from graphzoo.runs.results_file import read_results
from graphzoo.search.space import Choice, Range, Space, read_space
from graphzoo.system.files import write_text_atomically
from graphzoo.system.regular_files import read_regular_text
from graphzoo.training.options import config_files
from graphzoo.training.start import last_words, run_here, started

_FIRST, _SEARCHED = 0.6, 0.8  # shares of the budget for models with own settings, and until the last draw
_LEAST, _PATIENCE = 15.0, 60.0  # least seconds of training; seconds after its time when a run is ended
_FINALISTS, _SEEDS, _CHANGED = 3, 3, 3  # models with drawn settings; seeds of the best two; settings per draw
STOPPED = "stopped after its share"
_NO_SHARE = "its share"
# A run that was stopped at its share is repeated if the new share is at least this many times as long.
_LONGER = 1.5
_OVERDUE = 124  # exit status of a run that had to be ended
_GLANCE = 0.5  # seconds between updates of the time
_PEAK_UNITS = 2**30 if sys.platform == "darwin" else 2**20  # units of `ru_maxrss` per GiB
_RATES = Choice((0.0003, 0.001, 0.003, 0.01))  # learning rates of a model without a search space


@dataclass(frozen=True)
class Trial:
    """One run of a comparison."""

    model: str  # its name in `TaskInfo.compared`
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)  # settings that differ from the model's own
    metrics: dict[str, float] = field(default_factory=dict)  # validation metrics at the best epoch
    seconds: float = 0.0  # from the start of its process to the end
    gib: float = 0.0  # peak memory of its process in GiB, 0 if unknown
    note: str = ""  # why there is no score, or a remark about it
    share: float = 0.0  # seconds of training that it was given, 0 if an earlier version did not record them
    trained: float = 0.0  # seconds of its training, with validations between steps; 0 if unknown


@dataclass(frozen=True)
class Row:
    """A row of the table: a model with its best settings."""

    model: str
    score: float | None  # mean of the monitored validation metric over `trials`
    deviation: float | None  # standard deviation over seeds; None for a single one
    margin: float  # the larger of `deviation` and the standard error of a mean over the validation samples
    trials: tuple[Trial, ...]  # runs of these settings
    tried: int  # number of all runs of the model
    seconds: float  # time of the longest of `trials`
    gib: float  # peak memory in GiB
    note: str  # why there is no score, or a remark about it


class Comparison:
    """A comparison of models in a folder, which can be continued after a stop.

    Args:
        folder: Folder with `trials.jsonl` and a run directory per trial.
        data: Options of `graphzoo fit` that all runs share.
        models: Names of the models.
        monitor: Validation metric that decides, such as "val/mrr".
        mode: "max" or "min" of this metric.
        num_valid: Number of validation samples.
        in_process: Whether runs are in this process, which starts them faster. Their peak memory is then that
            of all runs together.

    Raises:
        UsageError: if `trials.jsonl` is damaged.
    """

    def __init__(
        self, folder: Path, data: Sequence[str], models: Sequence[str], *, monitor: str, mode: str,
        num_valid: int, in_process: bool = False,
    ) -> None:  # fmt: skip
        self.folder, self.data, self.models = folder, [*data], models
        self.monitor, self.mode, self.num_valid = monitor, mode, num_valid
        self.in_process = in_process
        self.trials = _earlier(folder / "trials.jsonl")
        # Models that failed in an earlier call: their cause, such as too little memory, may be gone.
        self._again = set(self.failed())

    @cached_property
    def _given(self) -> set[str]:
        """Options that the user has set for all models, on the command line or in files."""
        words = {word.removeprefix("--").partition("=")[0] for word in self.data if word.startswith("--")}
        return words.union(*(flatten(read_settings(Path(file))) for file in config_files(self.data)))

    @property
    def seconds(self) -> float:
        """The time of all trials so far."""
        return sum(trial.seconds for trial in self.trials)

    def work(self, budget: float, tell: Callable[[str, float], None], passed: Callable[[float], None]) -> int:
        """Run trials until the budget is spent.

        Args:
            budget: Seconds for all trials, including those of earlier calls.
            tell: Called with a description of each trial that begins, and the seconds that are left.
            passed: Called repeatedly with the seconds since its last call.

        Returns:
            0, or the exit status of a trial that the user stopped.
        """
        for model, seed, settings, share in self._plan(budget):
            again = ", which failed before" if model in self._again else ""
            what = f", seed {seed}" if seed else ", other settings" if settings else again
            tell(model + what, self.left(budget))
            trial, status = self._run(model, seed, settings, share, passed)
            if status in (130, 143):
                return status
            self._again.discard(model)
            self.trials.append(trial)
            lines = "".join(json.dumps(asdict(each)) + "\n" for each in self.trials)
            write_text_atomically(self.folder / "trials.jsonl", lines)
        return 0

    def left(self, budget: float) -> float:
        """Seconds that are left; a model that failed in an earlier call gets its share beyond the budget."""
        again = len(self._again) * (self._again_share(budget) + self._overhead)
        return max(budget - self.seconds, again)

    def failed(self) -> list[str]:
        """Models whose last trial with their own settings failed, and that never had a score."""
        usual = {model: self._usual(model) for model in self.models}
        return [
            model
            for model, trials in usual.items()
            if trials and _has_failed(trials[-1]) and not any(trial.metrics for trial in trials)
        ]

    def rows(self) -> list[Row]:
        """A row per model, the best first, and those without a score last."""
        sign = -1 if self.mode == "max" else 1
        rows = [self._row(model) for model in self.models]
        return sorted(rows, key=lambda row: (row.score is None, sign * (row.score or 0.0)))

    def place(self, trial: Trial) -> Path:
        """The run directory of a trial."""
        return self._folder(self.trials.index(trial), trial.model)

    def _folder(self, number: int, model: str) -> Path:
        return self.folder / "runs" / f"{number:03d}-{model.replace(', ', '-').replace('.', '-')}"

    def test_place(self, trial: Trial) -> Path:
        """The run directory of the test of a trial."""
        return self.folder / f"test-{self.place(trial).name}"

    def _plan(self, budget: float) -> Iterator[tuple[str, int, dict[str, Any], float]]:
        """Model, seed, settings and seconds of each next trial, which depends on the results so far."""
        for model in [model for model in self.models if model in self._again]:
            yield model, 0, {}, self._again_share(budget)
        least = self._least(budget)
        waiting = self._waiting(budget)
        for number, model in enumerate(waiting):
            if self.seconds + self._overhead + least > budget:
                return
            share = max(least, self._share(budget, waiting[number:]))
            if share > self._had(model):
                yield model, 0, {}, share
        for model in self._searched(_SEARCHED * budget):
            if drawn := self._draw(model):
                yield model, 0, drawn, self._like(self._row(model).trials[0], _SEARCHED * budget)
        for seed in range(1, _SEEDS):
            for row in self._fitted()[:2]:
                best, left = row.trials[0], budget - self.seconds
                done = {trial.seed for trial in row.trials}
                if seed not in done and row.seconds and left > 1.2 * row.seconds:
                    yield best.model, seed, best.settings, self._like(best, budget)

    @property
    def _overhead(self) -> float:
        """Seconds that a trial takes besides training: its start, and a validation at the end.

        The median over the trials so far; 0 before the first.
        """
        known = [trial.seconds - trial.trained for trial in self.trials if trial.metrics and trial.trained]
        return median(known) if known else 0.0

    def _least(self, budget: float) -> float:
        """The least seconds of training that a model is tried with."""
        return min(_LEAST, budget / (2 * len(self.models)))

    def _again_share(self, budget: float) -> float:
        return max(self._least(budget), _FIRST * budget / len(self.models) - self._overhead)

    def _like(self, trial: Trial, until: float) -> float:
        """The share of another trial like this one, which should end when `until` seconds are spent."""
        left = max(1.0, until - self.seconds - self._overhead)
        return min(left, self._cut(trial) or left)

    @staticmethod
    def _cut(trial: Trial) -> float:
        """The share of a trial that was stopped at it, else 0; a longer run would have another score."""
        return trial.share if trial.note.startswith(STOPPED) else 0.0

    def _usual(self, model: str) -> list[Trial]:
        """The trials of a model with its own settings and seed 0."""
        return [t for t in self.trials if t.model == model and not t.settings and not t.seed]

    def _had(self, model: str) -> float:
        """The share that another trial of a model with its own settings needs.

        It is 0 if there was none, infinite if one was completed, and longer than the last one if that was
        stopped at its share.
        """
        last = self._usual(model)[-1:]
        if any(not _ran_out(trial) for trial in last):
            return math.inf
        return max((_LONGER * (trial.share or trial.seconds) for trial in last), default=0.0)

    def _share(self, budget: float, models: Sequence[str]) -> float:
        """Seconds of training for each of these models of what the others have left for own settings.

        A run that was repeated for longer does not count among the others, but all runs count in the budget.
        """
        used = 0.0
        for model in self.models:
            *earlier, last = self._usual(model) or [Trial(model)]
            if model not in models:
                used += last.seconds + sum(t.seconds for t in earlier if not _ran_out(t))
        return min(_FIRST * budget - used, budget - self.seconds) / len(models) - self._overhead

    def _waiting(self, budget: float) -> list[str]:
        """Models that are tried with their own settings, for the first time or for longer."""
        waiting = [model for model in self.models if self._had(model) < math.inf]
        while waiting:
            share = self._share(budget, waiting)
            enough = [model for model in waiting if not self._had(model) or share > self._had(model)]
            if len(enough) == len(waiting):
                break
            waiting = enough
        return waiting

    def _searched(self, until: float) -> Iterator[str]:
        """Models whose settings are drawn, the best few in turn, while there is time for another trial."""
        for turn in range(20 * _FINALISTS + 1):  # a limit, as settings may run out before the time
            fit = [row for row in self._fitted()[:_FINALISTS] if row.seconds * 1.2 < until - self.seconds]
            if not fit:
                return
            yield fit[turn % len(fit)].model

    def _fitted(self) -> list[Row]:
        """The rows of models that are trained and have a score."""
        return [row for row in self.rows() if row.score is not None and command_of(row.model, [])[0] == "fit"]

    def _draw(self, model: str) -> dict[str, Any]:
        """The settings of the model's best trial with some of them changed; empty if none are new."""
        number = sum(trial.model == model for trial in self.trials)
        draw = random.Random(f"{model} {number}")
        try:
            choices = _space(model).without(self._given).choices
        except UsageError:  # the user has set all of them
            return {}
        best = self._row(model).trials[0].settings
        known = [trial.settings for trial in self.trials if trial.model == model]
        for _ in range(20):
            names = draw.sample(sorted(choices), min(_CHANGED, len(choices)))
            drawn = {**best, **{name: _value(draw, choices[name]) for name in names}}
            if drawn not in known:
                return drawn
        return {}

    def _row(self, model: str) -> Row:
        trials = [trial for trial in self.trials if trial.model == model]
        scored = [trial for trial in trials if self.monitor in trial.metrics]
        gib = max((trial.gib for trial in trials), default=0.0)
        if not scored:
            note = trials[-1].note if trials else "not tried: no time was left"
            return Row(model, None, None, 0.0, (), len(trials), sum(t.seconds for t in trials), gib, note)
        sign = 1 if self.mode == "max" else -1
        # Compare settings by the first seed, which all of them have.
        newest = {json.dumps(t.settings, sort_keys=True): t for t in scored if t.seed == 0}
        first = max(newest.values(), key=lambda t: sign * t.metrics[self.monitor])
        # If a run was repeated with more time, shorter ones are left out, also those of other seeds.
        of_settings = {t.seed: t for t in scored if t.settings == first.settings}.values()
        same = tuple(t for t in of_settings if not self._cut(t) or self._cut(t) >= first.share)
        mean, deviation = mean_and_deviation([t.metrics[self.monitor] for t in same])
        # The standard error of a mean of values between 0 and 1 over the validation samples.
        error = (max(0.0, mean * (1 - mean)) / max(1, self.num_valid)) ** 0.5
        margin = max(deviation or 0.0, error)
        seconds = max(t.seconds for t in same)
        return Row(model, mean, deviation, margin, same, len(trials), seconds, gib, first.note)

    def _run(
        self, model: str, seed: int, settings: dict[str, Any], share: float, passed: Callable[[float], None]
    ) -> tuple[Trial, int]:
        folder = self._folder(len(self.trials), model)
        for left in (folder, self.folder / f"test-{folder.name}"):  # of a trial that was interrupted
            if left.exists():
                lock = RunLock(left)
                lock.take()  # its process may still run if that of the comparison was killed
                shutil.rmtree(left, ignore_errors=True)
                lock.release()
        folder.parent.mkdir(parents=True, exist_ok=True)
        words = command_of(model, self.data)
        most = max(1, int(share))  # the Trainer takes whole seconds
        if words[0] == "fit":
            words += ["--no-test", f"--trainer.max_time={_clock(most)}", f"--seed={seed}"]
            words += words_of(settings)
        words += ["--run_dir", str(folder), "--trainer.enable_progress_bar=false", "--logger=csv", "--quiet"]
        began, log = time.monotonic(), folder.with_suffix(".log")
        limit = share + (self._overhead or _PATIENCE) + _PATIENCE  # a start may take long, too
        status, gib = _here(words, log) if self.in_process else _apart(words, log, limit, passed)
        seconds = time.monotonic() - began
        if self.in_process:
            passed(seconds)
        metrics, note = self._read(folder, log, status)
        trained = _trained(folder)
        if status == _OVERDUE or (not metrics and not status and trained >= most):
            note = f"{_NO_SHARE}, {share:.0f} s, ended before a validation: give more --minutes"
        elif metrics and trained >= most:
            note = f"{STOPPED} of {share:.0f} s"
        trial = Trial(
            model, seed, settings, metrics, round(seconds, 1), round(gib, 2), note, round(share, 1),
            round(trained, 2),
        )  # fmt: skip
        return trial, status

    def _read(self, folder: Path, log: Path, status: int) -> tuple[dict[str, float], str]:
        """Validation metrics of a run at its best epoch, or the reason why there are none."""
        if status:
            return {}, "out of memory" if status == 137 else last_words(log)
        results = folder / "results.json"  # only models that are not trained write it here
        if results.is_file():
            epochs = [read_results(results)["metrics"]]
        else:
            epochs = [values for _, _, values in read_rows(folder / "metrics.csv")]
        sign = 1 if self.mode == "max" else -1
        scored = [values for values in epochs if math.isfinite(values.get(self.monitor, math.nan))]
        if not scored:
            return {}, "no validation took place"
        best = max(scored, key=lambda values: sign * values[self.monitor])
        found = {name: value for name, value in best.items() if name.startswith("val/")}
        return {name: value for name, value in found.items() if math.isfinite(value)}, ""


def _ran_out(trial: Trial) -> bool:
    """Whether a trial was ended at its share."""
    return trial.note.startswith((STOPPED, _NO_SHARE))


def _has_failed(trial: Trial) -> bool:
    return not trial.metrics and not trial.note.startswith(_NO_SHARE)


def _earlier(path: Path) -> list[Trial]:
    """The trials of earlier calls, from trials.jsonl."""
    if not path.exists():
        return []
    trials = []
    for number, line in enumerate(read_regular_text(path).splitlines(), start=1):
        try:
            trials.append(Trial(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise UsageError(
                f"{path}, line {number}, is damaged ({error})\nGive another folder with --out DIR"
            ) from error
    return trials


def command_of(model: str, data: Sequence[str]) -> list[str]:
    """The arguments of `graphzoo` that train or validate a model on the data."""
    name, _, how = model.partition(", ")
    if name == "knowformer-any":
        return ["fit" if how else "validate", "--ckpt_path", name, *data]
    return ["validate" if name.startswith("heuristic.") else "fit", "--model", name, *data]


def _trained(run: Path) -> float:
    """Seconds that a run has trained, as the Trainer's timer noted in its last checkpoint; 0 if unknown."""
    with suppress(UsageError, KeyError, TypeError, ValueError):
        saved = read_checkpoint(run / "checkpoints" / "last.ckpt")
        return float(saved["callbacks"]["Timer"]["time_elapsed"]["train"])
    return 0.0


def _clock(seconds: int) -> str:
    """A time as days, hours, minutes and seconds, in the format of Lightning."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours // 24:02d}:{hours % 24:02d}:{minutes:02d}:{rest:02d}"


def _apart(words: list[str], log: Path, limit: float, passed: Callable[[float], None]) -> tuple[int, float]:
    """Exit status and peak GiB of a run in a new process, which is ended after `limit` seconds."""
    with (
        log.open("w", encoding="utf-8") as file,
        started(words, stdout=file, stderr=subprocess.STDOUT) as (process, received),
    ):
        began = seen = time.monotonic()
        times_told = 0
        while (ended := _ended(process)) is None:
            time.sleep(0.05)
            now = time.monotonic()
            if now - seen > _GLANCE:
                passed(now - seen)
                seen = now
            if now - began > limit + times_told * _PATIENCE:
                end = process.terminate if times_told < 2 else process.kill
                end()
                times_told += 1
    status, peak = ended
    if received:
        return 128 + received[-1], peak
    if times_told and status:
        return _OVERDUE, peak
    return (128 - status if status < 0 else status), peak


def _ended(process: subprocess.Popen[bytes]) -> tuple[int, float] | None:
    """Exit status and peak GiB of a process, None while it runs; on Windows the memory is 0 (unknown)."""
    if not hasattr(os, "wait4"):
        status = process.poll()
        return None if status is None else (status, 0.0)
    try:
        pid, ended, usage = os.wait4(process.pid, os.WNOHANG)
    except ChildProcessError:  # it was already waited for
        return process.wait(), 0.0
    if not pid:
        return None
    process.returncode = os.waitstatus_to_exitcode(ended)
    return process.returncode, usage.ru_maxrss / _PEAK_UNITS


def _here(words: list[str], log: Path) -> tuple[int, float]:
    """Exit status and peak GiB of a run in this process; the peak is that of all runs so far."""
    with log.open("w", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        status = run_here(words)
    if find_spec("resource") is None:  # on Windows
        return status, 0.0
    import resource

    return status, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _PEAK_UNITS


def _space(model: str) -> Space:
    """The search space of a model; if there is none, a few learning rates."""
    if any(preset.name == model for preset in list_presets("search")):
        return read_space(find_preset("search", model).path)
    return Space(Path("learning rates"), {"model.lr": _RATES})


def _value(draw: random.Random, choice: Choice | Range) -> Any:
    """Draw a value, with the same distributions as `graphzoo.search.study`."""
    if isinstance(choice, Choice):
        return draw.choice(choice.values)
    if choice.whole and choice.log:  # rounding must not halve the probability of the ends
        low, high = choice.low - 0.5, choice.high + 0.5
        return min(max(round(low * (high / low) ** draw.random()), int(choice.low)), int(choice.high))
    if choice.whole:
        return draw.randrange(int(choice.low), int(choice.high) + 1, int(choice.step or 1))
    if choice.log:
        return float(choice.low * (choice.high / choice.low) ** draw.random())
    if choice.step:  # with decimals, because 3 * 0.1 is not 0.3 in floats
        first, last, step = (Decimal(str(number)) for number in (choice.low, choice.high, choice.step))
        return float(first + draw.randrange(int((last - first) / step) + 1) * step)
    return draw.uniform(choice.low, choice.high)


def draw(comparison: Comparison, path: Path) -> None:
    """Draw the score of every trial over its seconds, with names of models at their best, as a PNG file."""
    from graphzoo.report.style import FAINT, color, drawing, new_figure, save_figure

    rows = [row for row in comparison.rows() if row.score is not None]
    with drawing():
        figure = new_figure(3.0, width=5.0)
        axes = figure.add_subplot()
        for number, row in enumerate(rows):
            monitor, score = comparison.monitor, row.score or 0.0
            others = [t for t in comparison.trials if t.model == row.model and monitor in t.metrics]
            scores = [t.metrics[monitor] for t in others]
            axes.scatter([t.seconds for t in others], scores, s=9, color=FAINT)
            axes.errorbar([row.seconds], [score], [row.deviation or 0.0], fmt="o", color=color(number))
            axes.annotate(row.model, (row.seconds, score), (5, 3), textcoords="offset points")
        axes.set_xlim(left=0)
        axes.set_xlabel("seconds of a run")
        axes.set_ylabel(comparison.monitor.removeprefix("val/") + " on validation")
        axes.grid(axis="y")
        save_figure(figure, path)
