"""Times of runs: those of finished runs, and those that recipes note."""

from __future__ import annotations

import re
from pathlib import Path

from graphzoo.system.json_file import read_json

_UNITS = {"second": 1.0, "minute": 60.0, "hour": 3600.0}
_TIME = re.compile(rf"([\d.]+)(?: to ([\d.]+))? ({'|'.join(_UNITS)})s?\b")


def claimed_seconds(measured: str) -> float | None:
    """Seconds of one run, from a recipe's `# measured:` (the middle of a range); None if it has no time.

    >>> claimed_seconds("acc=0.82, seeds 0-9; one core shared with other jobs, 20 to 30 seconds a run")
    25.0
    >>> claimed_seconds("mrr=0.74, seed 0; one shared core, 11 minutes")
    660.0
    """
    # the part before the last semicolon has the score and its seeds
    match = _TIME.search(measured.rpartition(";")[2])
    if match is None:
        return None
    low, high, unit = match.groups()
    return (float(low) + float(high or low)) / 2 * _UNITS[unit]


def taken_seconds(run: Path) -> float | None:
    """Seconds that a run took, with those before it was resumed; None if they are unknown."""
    try:
        result = read_json(run / "results.json")
        times = [result.get("seconds"), result.get("fit_seconds")]
    except (OSError, ValueError, AttributeError):
        return None  # not finished or damaged: `average` reports it
    return max((float(each) for each in times if isinstance(each, int | float)), default=None)
