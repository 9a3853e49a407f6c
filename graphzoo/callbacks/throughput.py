"""Queries or nodes per second of training, without the time of validation."""

from __future__ import annotations

import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer


class Throughput(Callback):
    """Counts training queries and the seconds spent on them; logs `train/queries_per_s` and `train/seconds`.

    The task's `unit` gives the name for other batches: `train/nodes_per_s`.

    Attributes:
        queries_per_s: Rate of the current epoch.
        fit_seconds: Wall time of training and validation so far, earlier parts of a resumed run included.
    """

    def __init__(self) -> None:
        self.queries_per_s = 0.0
        self.fit_seconds = 0.0
        self._queries = 0
        self._seconds = 0.0
        self._batch_began = 0.0
        self._fit_began = 0.0
        self._stage = ""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._stage = stage

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._fit_began = time.perf_counter() - self.fit_seconds

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._queries, self._seconds = 0, 0.0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._batch_began = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        self._seconds += time.perf_counter() - self._batch_began
        self._queries += len(batch) if hasattr(batch, "__len__") else 1
        self.queries_per_s = self._queries * trainer.world_size / max(self._seconds, 1e-9)
        self.fit_seconds = time.perf_counter() - self._fit_began

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.fit_seconds = time.perf_counter() - self._fit_began
        unit = getattr(pl_module, "unit", "queries")
        pl_module.log(f"train/{unit}_per_s", self.queries_per_s, sync_dist=False)
        pl_module.log("train/seconds", self._seconds, sync_dist=False)

    def state_dict(self) -> dict[str, float]:
        """The wall time, so that a resumed run reports the sum."""
        return {"fit_seconds": self.fit_seconds}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Restore the wall time of a resumed run; testing the best checkpoint does not wind it back."""
        if self._stage in ("", "fit"):
            self.fit_seconds = state_dict["fit_seconds"]
