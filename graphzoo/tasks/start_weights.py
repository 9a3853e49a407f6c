"""The exported weights that a training begins with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphzoo.catalog.tasks import check_same_task, task_of
from graphzoo.checkpoints.checks import MisfitError, check_loaded_weights
from graphzoo.checkpoints.settings import other_settings
from graphzoo.encoders.pretrained import read_pretrained
from graphzoo.errors import UsageError
from graphzoo.tasks.training_data import earlier_data

if TYPE_CHECKING:
    from graphzoo.tasks.base import Task


class StartWeights:
    """Loads exported weights into a task, if its data are not those that they must not see.

    Args:
        task: Built by the time of `load`.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._begun: tuple[Mapping[str, Any], str] | None = None  # description and name of the weights

    def load(self, name: str) -> list[Mapping[str, Any]]:
        """Give the task the weights `name`; return the data that they were trained on, the oldest first.

        Raises:
            UsageError: if the weights do not fit the task or its data, or their description is damaged.
        """
        task, saved = self._task, read_pretrained(name)
        described = saved["graphzoo"]
        check_same_task(described, task_of(task), name)
        try:
            task.check_start(described, name)
            trained = [*earlier_data(described), described.get("data") or {}]
        except (AttributeError, KeyError, TypeError) as error:
            raise UsageError(
                f"{name}: its description of the training is damaged ({error!r})\nExport the model again"
            ) from error
        try:
            check_loaded_weights(task, saved, name)
        except MisfitError as error:
            here = {} if task.encoder is None else task.encoder.describe()["encoder"]
            if here and (differences := other_settings(described, here, error.reason)):
                raise UsageError(
                    f"{name} does not fit: {error.reason}\n{differences}\n"
                    "Give those of the weights; the command takes them where --model is left out"
                ) from error
            raise
        task.load_state_dict(saved["state_dict"])
        self._begun = described, name
        return trained

    def check_again(self) -> None:
        """Compare the weights that were loaded, if any, with data that may have changed since then."""
        if self._begun is not None:
            self._task.check_start(*self._begun)
