"""metrics.csv: one row per logged step, written at once, continued when a run is resumed."""

from __future__ import annotations

import csv
import io
import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from graphzoo.system.files import write_text_atomically
from graphzoo.system.regular_files import read_regular

__all__ = ["MetricsFile"]


class MetricsFile(Logger):
    """A logger with one flat file. Lightning's own deletes an earlier file and buffers a hundred rows.

    Args:
        directory: Run directory; the file is `metrics.csv` in it.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__()
        self.path = Path(directory) / "metrics.csv"
        self._columns: list[str] | None = None

    @property
    def name(self) -> str:
        """Empty: the run directory is the whole name."""
        return ""

    @property
    def version(self) -> str:
        """Empty, as `name`."""
        return ""

    @property
    def log_dir(self) -> str:
        """The run directory."""
        return str(self.path.parent)

    @property
    def save_dir(self) -> str:
        """The run directory."""
        return str(self.path.parent)

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Nothing: config.yaml holds every setting."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add a row.

        Args:
            metrics: Values by name.
            step: Optimiser step.
        """
        row = {"step": step, **metrics}
        if self._columns is None:
            self._columns = list(self._read()[0])
        new = [name for name in row if name not in self._columns]
        if new:
            rows = self._read()[1]
            self._columns = [*self._columns, *new]
            self._write([*rows, row])
            return
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self._columns).writerow(row)

    @rank_zero_only
    def forget_after(self, step: int) -> None:
        """Drop the rows behind an optimiser step: what a resumed run is about to do again.

        A last line that a killed process or a full disk cut off goes with them.

        Args:
            step: Last step that counts.
        """
        columns, rows = self._read()
        self._columns = list(columns)
        whole = not columns or read_regular(self.path).endswith(b"\n")
        kept = rows if whole else rows[:-1]
        kept = [row for row in kept if not row.get("step") or int(row["step"]) <= step]
        if not whole or len(kept) < len(rows):
            self._write(kept)

    def _read(self) -> tuple[list[str], list[dict[str, Any]]]:
        if not self.path.is_file():
            return [], []
        if b"\n" not in read_regular(self.path):
            return [], []  # not even the line of names is whole
        with io.StringIO(read_regular(self.path).decode("utf-8"), newline="") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
            return list(reader.fieldnames or []), rows

    def _write(self, rows: list[dict[str, Any]]) -> None:
        assert self._columns is not None
        lines = io.StringIO(newline="")
        writer = csv.DictWriter(lines, self._columns)
        writer.writeheader()
        writer.writerows(rows)
        write_text_atomically(self.path, lines.getvalue())
