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

from graphzoo.errors import UsageError
from graphzoo.runs.results_file import write_rows
from graphzoo.system.regular_files import read_regular


class MetricsFile(Logger):
    """A logger with one flat file, `metrics.csv` in the run directory.

    Lightning's own deletes an earlier file and buffers a hundred rows.
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
    def log_dir(self) -> str:
        """The run directory."""
        return str(self.path.parent)

    version, save_dir = name, log_dir

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Nothing: config.yaml holds every setting."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add a row."""
        row = {"step": step, **metrics}
        if self._columns is None:
            self._columns = self._read()[0]
        if new := [name for name in row if name not in self._columns]:
            self._columns += new
            write_rows(self.path, [*self._read()[1], row], self._columns)
            return
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self._columns).writerow(row)

    @rank_zero_only
    def forget_after(self, step: int) -> None:
        """Drop the rows behind an optimiser step: what a resumed run is about to do again.

        Lines that a killed process or a full disk left damaged go with them.
        """
        self._columns, rows = self._read()
        if self._columns:
            write_rows(self.path, [row for row in rows if _is_until(step, row)], self._columns)

    def _read(self) -> tuple[list[str], list[dict[str, Any]]]:
        """Names of the columns, if that line is whole, and rows, without a last one that is cut off."""
        data = read_regular(self.path) if self.path.is_file() else b""
        text = data[: data.rfind(b"\n") + 1].decode("utf-8", errors="replace")
        text = text.removeprefix("\ufeff")  # which Excel writes
        reader = csv.DictReader(io.StringIO(text, newline=""))
        try:
            rows = list(reader)
            if reader.fieldnames and "step" not in reader.fieldnames:
                raise csv.Error("it has no column `step`")
        except csv.Error as error:
            raise UsageError(
                f"{self.path} is damaged ({error})\nMove it away: the run goes on without it"
            ) from error
        return list(reader.fieldnames or []), rows


def _is_until(step: int, row: Mapping[Any, Any]) -> bool:
    """Whether a row is of this step or an earlier one; without a step, or with more cells, it is damaged."""
    try:
        return None not in row and int(row["step"] or "none") <= step
    except ValueError:
        return False
