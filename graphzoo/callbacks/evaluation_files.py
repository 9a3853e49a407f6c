"""Writes the scores and tables of a test into the run directory: RUN/evaluation/test."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from lightning.pytorch import Callback, LightningModule, Trainer

from graphzoo.analysis.evaluation import Evaluation
from graphzoo.errors import UsageError

log = logging.getLogger(__name__)


class EvaluationFiles(Callback):
    """Writes the scores and tables of a test (see `graphzoo.analysis`) from the first process.

    If they cannot be written, there is only a warning, since the scores also go to results.json.

    Attributes:
        evaluation: Scores and tables of the last test, in the first process; None before a test.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self.evaluation: Evaluation | None = None

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
        figures = {name: value for name, value in logged.items() if name.startswith("test/")}
        self.evaluation = Evaluation("test", figures, tuple(getattr(pl_module, "test_tables", ())))
        try:
            self.evaluation.save(self.directory / "evaluation" / "test")
        except (OSError, UsageError) as error:
            log.warning("the tables of the test were not written: %s", error)
