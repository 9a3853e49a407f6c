"""Chooses the length of training by the size of the graph, for data without a recipe."""

from __future__ import annotations

import math
import sys
from typing import Any, cast

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, EarlyStopping, Timer

from graphzoo.datasets import LinkGraph
from graphzoo.errors import UsageError, check_whole

_MIN_ROUNDS, _MAX_ROUNDS = 10, 20


class QueryBudget(EarlyStopping):
    """Limits the training on a graph of any size to about `queries` queries, in 10 to 20 epochs.

    On a large graph an epoch asks a part of the triples, drawn anew each time. On a small graph there are 20
    epochs, and the budget is not used up. The learning rate falls after half and after three quarters of the
    epochs, and training ends early after `patience` validations without a better MRR. If the user sets a
    length (`--trainer.max_epochs`, `max_steps` or `max_time`), it is kept, and training does not end early.
    `--trainer.limit_train_batches` is kept, too.

    Args:
        queries: Training queries of the whole run.
        patience: Validations without a better one after which training ends.

    Raises:
        UsageError: for numbers below 1, and in a training of anything but a knowledge graph.
    """

    def __init__(self, queries: int = 100_000, patience: int = 4) -> None:
        check_whole(at_least=1, queries=queries, patience=patience)
        super().__init__("val/mrr", mode="max", patience=patience, strict=False)
        self.queries, self._patience = queries, patience
        self._chosen: int | None = None  # epochs, in an earlier fit
        self._limit: int | None = None  # batches of an epoch, in an earlier fit

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Set the length before the optimiser and its schedule are made; see the class."""
        super().setup(trainer, pl_module, stage)
        if stage != "fit":
            return
        datamodule: Any = getattr(trainer, "datamodule", None)
        if not hasattr(datamodule, "triples") or not hasattr(pl_module, "lr_milestones"):
            raise UsageError("QueryBudget is for knowledge graphs: KGCompletion with a KGDataModule")
        num_triples, batch_size = len(datamodule.triples("train")), datamodule.batch_size
        per_epoch = min(num_triples, max(batch_size, self.queries // _MIN_ROUNDS))
        loop, task = trainer.fit_loop, cast(Any, pl_module)
        is_timed = any(isinstance(callback, Timer) for callback in trainer.callbacks)  # type: ignore[attr-defined]
        is_unset = loop.max_epochs in (None, -1) or loop.max_epochs == self._chosen
        is_free = is_unset and trainer.max_steps == -1 and not is_timed
        self.patience = self._patience if is_free else sys.maxsize
        if is_free:
            self._chosen = loop.max_epochs = min(
                _MAX_ROUNDS, max(_MIN_ROUNDS, self.queries // max(1, per_epoch))
            )
        self._limit = _shorten_epoch(trainer, self._limit, per_epoch, num_triples, batch_size)
        epochs = loop.max_epochs
        if is_free and epochs and task.hparams.get("lr_milestones") is None:
            task.lr_milestones = [epochs // 2, 3 * epochs // 4]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best score and the validations since then; the patience is that of this run."""
        super().load_state_dict({**state_dict, "patience": self.patience})


class LinkBudget(Callback):
    """Limits an epoch of link prediction to about `links` training links, drawn anew each time.

    `--trainer.limit_train_batches` of the user is kept.

    Args:
        links: Training links of an epoch.

    Raises:
        UsageError: for numbers below 1, and in a training of anything but links.
    """

    def __init__(self, links: int = 51_200) -> None:
        check_whole(at_least=1, links=links)
        self.links = links
        self._limit: int | None = None  # batches of an epoch, in an earlier fit

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Set the length of an epoch before training."""
        if stage != "fit":
            return
        datamodule: Any = getattr(trainer, "datamodule", None)
        if not isinstance(getattr(datamodule, "graph", None), LinkGraph):
            raise UsageError("LinkBudget is for links: LinkPrediction with a LinkDataModule")
        size = len(datamodule.graph.train)
        self._limit = _shorten_epoch(trainer, self._limit, self.links, size, datamodule.batch_size)


def _shorten_epoch(
    trainer: Trainer, earlier: int | None, samples: int, size: int, batch_size: int
) -> int | None:
    """Limit an epoch to `samples` of `size` samples, unless the user has set its length.

    Args:
        trainer: Its `limit_train_batches` is set.
        earlier: The result for an earlier fit, which is not the user's choice.
        samples: Training samples of an epoch.
        size: All training samples.
        batch_size: Samples of a batch.

    Returns:
        Batches of an epoch, if this has limited them.
    """
    if trainer.limit_train_batches == earlier:
        trainer.limit_train_batches = 1.0
    limit = trainer.limit_train_batches
    if not isinstance(limit, float) or limit != 1.0 or samples >= size:  # 1 is one batch
        return None
    trainer.limit_train_batches = batches = math.ceil(samples / batch_size)
    return batches
