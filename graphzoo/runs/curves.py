"""Values over epochs from a run's metrics.csv."""

from __future__ import annotations

import bisect
import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from graphzoo.errors import UsageError
from graphzoo.system.regular_files import read_regular_text

Points = list[tuple[float, float]]
# Step (from 0), epoch if it is known, name -> value.
Row = tuple[int, int | None, dict[str, float]]
# Runs of fewer epochs show every logged step, longer ones a mean per epoch.
_FEW_EPOCHS = 5
_MOST_POINTS = 240
# A row has some hundred bytes: ten million steps.
_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class Curves:
    """Logged values of a run."""

    # name -> (epochs done, value), ascending; a value in the middle of an epoch has a fraction
    values: dict[str, Points] = field(default_factory=dict)
    num_epochs: int = 0  # that were begun

    def of(self, name: str) -> Points:
        """The points of a metric; with many epochs one for each, the last of `val/` or the mean of others."""
        points = self.values.get(name, [])
        if self.num_epochs < _FEW_EPOCHS:
            return points
        epochs: dict[int, list[float]] = {}
        for x, y in points:
            epochs.setdefault(math.ceil(x) or 1, []).append(y)
        if name.startswith("val/"):
            return [(float(x), y[-1]) for x, y in sorted(epochs.items())]
        return [(float(x), math.fsum(y) / len(y)) for x, y in sorted(epochs.items())]


def read_curves(path: Path) -> Curves:
    """The curves of a metrics.csv, see `read_rows`."""
    return _place(read_rows(path))


def read_rows(path: Path) -> list[Row]:
    """The rows of metrics.csv, if there is one; a last line that a killed process cut off is left out."""
    if not path.is_file():
        return []
    try:
        text = read_regular_text(path, most=_MOST_BYTES, errors="replace", grows=True)
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}\nMove it away, or give another run"
        raise UsageError(message) from error
    text = text.removeprefix("\ufeff")  # which Excel writes
    if not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
    reader = csv.DictReader(text.splitlines())
    if reader.fieldnames is not None and "step" not in reader.fieldnames:
        raise UsageError(
            f"{path} has no column `step`: graphzoo did not write it\nMove it away, or give another run"
        )
    rows: list[Row] = []
    for row in reader:
        try:
            given = {name: value for name, value in row.items() if value}
            values = {n: float(value) for n, value in given.items() if n not in (None, "step", "epoch")}
            epoch = int(float(row["epoch"])) if row.get("epoch") else None
            rows.append((int(row["step"] or 0), epoch, values))
        except (ValueError, TypeError, OverflowError) as error:
            raise UsageError(
                f"{path}, line {reader.line_num}: {error}\nCorrect or remove it; the run itself is fine"
            ) from error
    return rows


def _place(rows: Sequence[Row]) -> Curves:
    """Steps become fractions of epochs: the last step of an epoch lies at its end."""
    last: dict[int, int] = {}  # epoch -> its last step
    for step, epoch, values in rows:
        # the test at the end is logged under the step of the end, and the epoch of the best checkpoint
        if epoch is not None and not all(name.startswith("test/") for name in values):
            last[epoch] = max(last.get(epoch, 0), step)
    numbers = sorted(last)
    ends = [last[number] for number in numbers]
    begins = dict(zip(numbers, [-1, *ends], strict=False))
    by_name: dict[str, dict[float, float]] = {}
    for step, epoch, values in rows:
        where = epoch
        if where is None or where not in last:
            place = bisect.bisect_left(ends, step)
            if place == len(ends):
                continue
            where = numbers[place]
        before = begins[where]
        x = where + (step - before) / (last[where] - before) if last[where] > before else where + 1.0
        for name, value in values.items():
            if not name.startswith("test/"):
                # a resumed run may have logged a step twice: the later one counts
                by_name.setdefault(name, {})[max(x, 0.0)] = value
    curves = {name: sorted(points.items()) for name, points in by_name.items()}
    return Curves(curves, max(last, default=-1) + 1)


def mean_curve(curves: Sequence[Points]) -> Points:
    """The mean of several curves where all of them have a value, as the same epochs of all runs do.

    >>> mean_curve([[(1, 0.5), (2, 0.5)], [(1, 1.5)]])
    [(1, 1.0)]
    """
    tables = [dict(points) for points in curves if points]
    if not tables:
        return []
    shared = set.intersection(*(set(table) for table in tables))
    return [(x, math.fsum(table[x] for table in tables) / len(tables)) for x in sorted(shared)]


def thin(points: Points, most: int = _MOST_POINTS) -> Points:
    """At most about `most` of the points: the lowest and the highest of each stretch, so that peaks stay."""
    if len(points) <= most:
        return points
    size = math.ceil(2 * len(points) / most)
    kept: Points = []
    for start in range(0, len(points), size):
        part = [point for point in points[start : start + size] if not math.isnan(point[1])]
        if part:
            ends = {min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])}
            kept += sorted(ends)
    return sorted({points[0], points[-1], *kept})
