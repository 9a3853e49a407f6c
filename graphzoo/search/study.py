"""An Optuna study in a folder. Several processes may share it, and an interrupted trial is run again."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice, product
from pathlib import Path
from typing import Any, Literal

import optuna
from filelock import BaseFileLock, FileLock, Timeout
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from graphzoo.errors import UsageError
from graphzoo.runs.results_file import write_rows
from graphzoo.search.space import Choice, Range, Space
from graphzoo.system.waiting import TellingLock

_AGAIN = "interrupted"  # attribute of an interrupted trial, whose settings are queued again


def gate_of(folder: Path) -> BaseFileLock:
    """The lock of a search's folder; there is one object per process."""
    return TellingLock(str(folder.absolute() / "lock"), is_singleton=True)


class TrialStudy:
    """The trials of one search, in a folder with `study.journal` and a folder per trial.

    The settings of trial n depend only on the seed, n and the finished trials.

    Args:
        folder: The folder.
        space: The search space.
        direction: Whether the value is maximised or minimised.
        sampler: One of `graphzoo.search.space.SAMPLERS`.
        seed: Seed of the sampler.
        num_runs: Runs of each trial.
    """

    def __init__(
        self,
        folder: Path,
        space: Space,
        *,
        direction: Literal["maximize", "minimize"],
        sampler: str,
        seed: int,
        num_runs: int,
    ) -> None:
        self._num_runs = num_runs
        self.folder, self.space = folder, space
        self.sampler, self.seed = sampler, seed
        self.distributions = {name: _distribution(choice) for name, choice in space.choices.items()}
        # The path is absolute because the lock of Optuna is a link to it.
        journal = JournalFileBackend(str(folder.absolute() / "study.journal"))
        with _quiet():
            self.study = optuna.create_study(
                storage=optuna.storages.JournalStorage(journal),
                study_name="search",
                direction=direction,
                load_if_exists=True,
            )

    @property
    def gate(self) -> BaseFileLock:
        """The lock that a process holds while it changes the folder; it is reentrant."""
        return gate_of(self.folder)

    @property
    def trials(self) -> list[FrozenTrial]:
        """Trials that are finished or running, without interrupted and queued ones."""
        trials = self.study.get_trials(deepcopy=False)
        return [t for t in trials if _AGAIN not in t.user_attrs and t.state != TrialState.WAITING]

    @property
    def complete(self) -> list[FrozenTrial]:
        """Trials with a value, the best first."""
        complete = [trial for trial in self.trials if trial.state == TrialState.COMPLETE]
        sign = -1 if self.study.direction == optuna.study.StudyDirection.MAXIMIZE else 1
        return sorted(complete, key=lambda trial: (sign * float(trial.value or 0.0), trial.number))

    def propose(self, settings: dict[str, Any]) -> None:
        """Queue these settings for the next trial; missing ones are drawn."""
        if settings:
            self.study.enqueue_trial(settings, skip_if_exists=True)

    def propose_all(self, most: int) -> int:
        """Queue the first `most` combinations of all values of the space.

        Returns:
            The number of all combinations.

        Raises:
            UsageError: if the space has a range.
        """
        check_grid(self.space)
        values = [choice.values for choice in self.space.choices.values() if isinstance(choice, Choice)]
        trials = self.study.get_trials(deepcopy=False)
        known = {_key(trial.system_attrs.get("fixed_params") or trial.params) for trial in trials}
        for combination in islice(product(*values), most):
            settings = dict(zip(self.space.choices, combination, strict=True))
            if _key(settings) not in known:
                self.study.enqueue_trial(settings)
        return math.prod(map(len, values))

    def take_back_orphans(self) -> int:
        """Queue the running trials of processes that have ended again; returns their number."""
        orphans = 0
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            lock = FileLock(self._lock(trial.number))
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue  # its process is running
            try:
                self._queue_again(trial)
                orphans += 1
            finally:
                lock.release()
        return orphans

    @contextmanager
    def next_trial(self, budget: int) -> Iterator[Trial | None]:
        """Start the next trial, and hold its lock while the block runs.

        Yields:
            The trial; None if there are already `budget` trials.
        """
        with ExitStack() as held:
            with self.gate:  # until the trial is locked: another process would queue an unlocked trial again
                if len(self.trials) >= budget:
                    trial = None
                else:
                    number = len(self.study.get_trials(deepcopy=False))
                    self.study.sampler = self._make_sampler(number)
                    trial = self.study.ask(self.distributions)
                    held.enter_context(FileLock(self._lock(trial.number)))
            yield trial

    def is_hopeless(self, values: list[float]) -> bool:
        """Whether a trial cannot become the best, even if its other runs were as good as the best run so far.

        Args:
            values: Values of the finished runs of the trial.
        """
        if not self.complete:
            return False
        maximize = self.study.direction == optuna.study.StudyDirection.MAXIMIZE
        ended = (trial.user_attrs.get("values", []) for trial in self.trials)
        best_run = (max if maximize else min)(value for runs in [values, *ended] for value in runs)
        bound = (sum(values) + (self._num_runs - len(values)) * best_run) / self._num_runs
        best = float(self.complete[0].value or 0.0)
        return bool(bound < best if maximize else bound > best)

    def same_settings(self, trial: Trial) -> FrozenTrial | None:
        """An earlier trial with the same settings that was completed or pruned; None if there is none."""
        known = (TrialState.COMPLETE, TrialState.PRUNED)
        return next((t for t in self.trials if t.state in known and t.params == trial.params), None)

    def interrupt(self, trial: Trial) -> None:
        """End a running trial, and queue its settings again."""
        self._queue_again(self.study.get_trials(deepcopy=False)[trial.number])

    def place(self, number: int) -> Path:
        """The folder of a trial."""
        return self.folder / "trials" / f"{number:04d}"

    def write_table(self) -> None:
        """Write `trials.csv`, with a line per trial in order."""
        columns = ["trial", "state", "value", "values", "seconds", "note", *self.space.choices]
        rows = []
        for trial in self.trials:
            extra = trial.user_attrs
            outcome = {name: extra.get(name) for name in ("seconds", "note")}
            outcome["value"] = trial.value if trial.value is not None else extra.get("mean")
            outcome["values"] = " ".join(format(v, ".6g") for v in extra.get("values", []))
            parameters = {name: trial.params.get(name) for name in self.space.choices}
            rows.append({"trial": trial.number, "state": trial.state.name.lower(), **outcome, **parameters})
        write_rows(self.folder / "trials.csv", rows, columns)

    def _lock(self, number: int) -> str:
        self.place(number).mkdir(parents=True, exist_ok=True)
        return str(self.place(number) / "lock")

    def _queue_again(self, trial: FrozenTrial) -> None:
        self.study._storage.set_trial_user_attr(trial._trial_id, _AGAIN, True)
        self.study.tell(trial.number, state=TrialState.FAIL)
        if set(trial.params) == set(self.distributions):
            self.study.enqueue_trial(trial.params)

    def _make_sampler(self, number: int) -> optuna.samplers.BaseSampler:
        # With a seed per trial, an interrupted search continues as without the interruption.
        seed = (self.seed * 1_000_003 + number) % 2**32
        if self.sampler in ("random", "grid"):  # the trials of a grid are in the queue
            return optuna.samplers.RandomSampler(seed)
        with _quiet():
            return optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=10)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's log lines about new studies, and its warnings about experimental features."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        try:
            yield
        finally:
            optuna.logging.set_verbosity(verbosity)


def check_grid(space: Space) -> None:
    """Refuse a space with a range, because a grid needs lists of values.

    Raises:
        UsageError: if an option has a range.
    """
    for name, choice in space.choices.items():
        if isinstance(choice, Range):
            raise UsageError(
                f"--sampler grid needs lists, but {space.path} gives {name} the range {choice}\n"
                "Write its values as a list, or take --sampler tpe"
            )


def _distribution(choice: Choice | Range) -> BaseDistribution:
    if isinstance(choice, Choice):
        return CategoricalDistribution(choice.values)
    if choice.whole:
        return IntDistribution(int(choice.low), int(choice.high), choice.log, int(choice.step or 1))
    return FloatDistribution(choice.low, choice.high, choice.log, choice.step)


def _key(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, default=str)
