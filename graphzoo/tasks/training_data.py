"""Describes in checkpoints what weights were trained on, and compares it with the data at hand."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import LightningModule
from torch import Tensor

from graphzoo.catalog.tasks import TASKS, task_of
from graphzoo.errors import UsageError

log = logging.getLogger(__name__)


class ChecksData(LightningModule):
    """A LightningModule that knows what its weights were trained on, and refuses data that do not fit them.

    A task says in `describe_data` what of its data belongs into a checkpoint. `check_data` and `check_split`
    compare that with a DataModule. Weights may come from several trainings, one after another: the data of
    all of them are compared.

    Attributes:
        takes_other_data: Whether the next fit may resume on another split, as the user asked.
    """

    takes_other_data: bool = False

    def __init__(self) -> None:
        super().__init__()
        self._loaded_data: dict[str, Any] = {}  # description of the training; empty before it
        self._earlier: list[Mapping[str, Any]] = []  # data of the trainings that its weights come from
        self._treatment: Mapping[str, Any] | None = None  # of the features that the weights learnt from
        self._has_begun = False  # whether `on_fit_start` of the current fit has run
        self._resumes: bool | None = None  # whether a fit that begins resumes; None from its first step on
        self._told_of_draw: set[str] = set()  # fingerprints of splits with a warning

    # What a task says of its data

    def describe_data(self, datamodule: Any) -> dict[str, Any]:
        """Description of the training data for checkpoints, as plain values."""
        return {}

    @classmethod
    def data_options(
        cls, described: Mapping[str, Any], *, is_fit: bool, is_own: bool
    ) -> list[dict[str, Any]]:
        """Options of the DataModule with which described weights are evaluated as after their training.

        For a fit these are only the options that `check_data` requires. The command applies each dict as a
        whole, and leaves it out if the user gives one of its options.
        """
        return []

    def check_data(self, trained: dict[str, Any], datamodule: Any) -> None:
        """Refuse data that do not fit a checkpoint, or whose test samples it may have been trained on.

        `trained` is the result of `describe_data` when the checkpoint was written. If its training began with
        other weights, the data of those are checked, too.
        """
        for data in filter(None, (trained.get("data"), *earlier_data(trained))):
            try:
                self.check_split(data, datamodule)
            except (AttributeError, KeyError, TypeError) as error:
                raise UsageError(
                    f"the checkpoint's description of its training data is damaged ({error!r})\n"
                    "Take another checkpoint of the run, or train it again"
                ) from error

    def check_split(self, trained: Mapping[str, Any], datamodule: Any) -> None:
        """Refuse a split that differs from that of `trained`, the `data` of a description."""

    def warn_of_drawn(self, datamodule: Any, title: str = "") -> None:
        """Warn that a split drawn from other data than those of the training may test on training samples.

        A draw depends on all of the data: one more line gives another split. `title` tells apart the graphs
        of a mixture.
        """
        here = datamodule.describe_split()
        is_drawn = here["name"].startswith("random") and not getattr(datamodule, "is_named", True)
        if is_drawn and here["fingerprint"] not in self._told_of_draw:
            self._told_of_draw.add(here["fingerprint"])
            log.warning(
                "%sthese are not the data that the model was trained on. If the two overlap, the split drawn "
                "here may test on the model's training samples. Give a file for each of training, validation "
                "and test",
                f"{title}: " if title else "",
            )

    # When it is compared

    def check_start(self, described: Mapping[str, Any], name: str) -> None:
        """Refuse to start from exported weights where a checkpoint with this description would be refused.

        This holds for a fit, too: its validation and test samples could be among those that the weights were
        trained on. Features are treated as in the training of the weights.
        """
        self._take_features(described)
        self.check_data(dict(described), self._datamodule())

    def on_validation_start(self) -> None:
        self._check_loaded(self._loaded_data)

    on_test_start = on_predict_start = on_validation_start

    def _check_loaded(self, described: dict[str, Any]) -> None:
        """Compare what weights were trained on with the data at hand; nothing if `described` is empty.

        The task may refuse the weights then, so it takes over the description only after this.
        """
        if described and self.trainer.state.fn != "fit":
            self.check_data(described, self._datamodule())

    def _check_kind_of_data(self) -> None:
        """Refuse the DataModule of another task. A mixture, or a class that is not ours, is not checked."""
        datamodule, wanted = getattr(self._trainer, "datamodule", None), task_of(self)
        given = {cls.__name__ for cls in type(datamodule).__mro__} & {
            row.datamodule for row in TASKS.values()
        }
        if wanted is not None and given and wanted.datamodule not in given:
            raise UsageError(
                f"{type(self).__name__} is for {wanted.title}, and the DataModule is a "
                f"{type(datamodule).__name__}\nGive a {wanted.datamodule}"
            )

    # What a checkpoint says

    def _described_data(self) -> dict[str, Any]:
        """The entries of a checkpoint's description that say what the weights were trained on."""
        data = self._loaded_data  # if there is any: the data at hand may only be evaluated
        if not data and self._has_data():
            data = self.describe_data(self._datamodule())
        return {**({"began_with": self._earlier} if self._earlier else {}), **data}

    def _remember_data(self, described: Mapping[str, Any]) -> None:
        """Take over what a checkpoint says of the training of its weights."""
        self._loaded_data = data_described(described)
        self._earlier = earlier_data(described)
        self._treatment = described.get("features")

    def _check_begin(self, *, resumes: bool) -> None:
        """Refuse data that the weights must not be trained on.

        A model that was trained before and does not resume is checked like exported weights. A fit that
        resumes must have the split of its checkpoint: other samples may be among those it was trained on.
        """
        takes_other, self.takes_other_data, self._resumes = self.takes_other_data, False, resumes
        self._has_begun = True
        if resumes and self._loaded_data and not takes_other:
            self.check_data(self._loaded_data, self._datamodule())
        if not resumes and self._loaded_data:
            self.check_start(self._loaded_data, "the model")

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Compute gradients; from the first ones of a fit on, the weights count as trained on its data.

        No check refuses the data any more then. Unlike `on_train_start`, a user's task rarely overrides this.
        """
        if not self._has_begun and self._trainer is not None and self._trainer.state.fn == "fit":
            raise UsageError(
                f"{type(self).__name__} overrides on_fit_start without super().on_fit_start(), so that "
                "answers would not be hidden and class weights not be used\nCall it first"
            )
        if self._resumes is not None:
            self._begin_training()
        super().backward(loss, *args, **kwargs)

    def _begin_training(self) -> None:
        trained = self._loaded_data.get("data")
        if not self._resumes and trained and trained not in self._earlier:
            self._earlier = [*self._earlier, trained]
        datamodule, before = self._datamodule(), {"began_with": self._earlier} if self._earlier else {}
        self._loaded_data = {**self.describe_data(datamodule), **before}
        transform = getattr(datamodule, "transform", None)
        self._treatment = None if transform is None else transform.describe()
        self._resumes = None

    # The DataModule

    def _datamodule(self) -> Any:
        datamodule = getattr(self.trainer, "datamodule", None)
        if datamodule is None:
            raise UsageError(
                f"{type(self).__name__} takes its graph from a DataModule: "
                "call trainer.fit(task, datamodule=...)"
            )
        return datamodule

    def _has_data(self) -> bool:
        # Lightning's own attribute: `self.trainer` raises where there is none.
        return self._trainer is not None and getattr(self.trainer, "datamodule", None) is not None

    def _take_features(self, described: Mapping[str, Any]) -> None:
        if (take := getattr(self._datamodule(), "take_features", None)) is not None:
            take(described.get("features"))  # a user's own task may say nothing of its data


def data_described(described: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a checkpoint's description that are of the data, not of the model."""
    of_model = {"format", "task", "encoder", "spec", "versions"}
    return {key: value for key, value in described.items() if key not in of_model}


def earlier_data(described: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The `data` of earlier trainings, oldest first, if this training began with their weights."""
    found = described.get("began_with") or []
    if not isinstance(found, list) or not all(isinstance(data, Mapping) for data in found):
        raise UsageError("began_with is not a list of training data: the description is damaged")
    return found
