"""Finds the run directories in and below folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphzoo.catalog.presets import in_natural_order
from graphzoo.errors import UsageError, suggestion
from graphzoo.runs.checkpoints import RUNS
from graphzoo.runs.record import Record, read_record
from graphzoo.runs.row import left_out
from graphzoo.system.files import files_below
from graphzoo.system.regular_files import open_regular

_MOST_RUNS = 200
_FILES = ("results.json", "metrics.csv", "config.yaml", "row.json")


def find_records(paths: Sequence[Path], damaged: list[UsageError] | None = None) -> list[Record]:
    """The runs in and below the given folders.

    Args:
        paths: Run directories, files in them, or folders above them.
        damaged: Collects an error for each damaged run, which is left out. None raises the first error.

    Raises:
        UsageError: if a path does not exist or has no run, or if all runs are damaged.
    """
    records: dict[Path, Record] = {}
    for path in paths:
        folder = path.parent if path.name in _FILES else path
        if not folder.is_dir():
            raise UsageError(_not_there(path))
        runs = [folder] if _is_run(folder) else _runs_below(folder)
        if not runs:
            raise UsageError(
                f"{path} holds no run: there is no config.yaml or results.json in it or below it\n"
                "Give the folder that graphzoo fit named, such as runs/galit-cora/20260101-120000-ab12"
            )
        for run in runs:
            with left_out(damaged):
                record = read_record(run)
                if damaged is not None:
                    _ = record.curves  # read now: later they would stop the whole report
                records.setdefault(run.absolute(), record)
    if damaged and not records:
        raise damaged[0]
    if len(records) > _MOST_RUNS:
        message = f"{len(records)} runs are more than a report can show ({_MOST_RUNS})"
        raise UsageError(f"{message}\nName some of them")
    return list(records.values())


def _is_run(folder: Path) -> bool:
    if (folder / "results.json").is_file() or (folder / "metrics.csv").is_file():
        return True
    if not (folder / "config.yaml").is_file():
        return False
    with open_regular(folder / "config.yaml") as file:
        return b"graphzoo" in file.readline(200)  # a preset folder of the user's may hold a config.yaml too


def _runs_below(folder: Path) -> list[Path]:
    folders = {path.parent for name in ("results.json", "config.yaml") for path in files_below(folder, name)}
    runs = (run for run in folders if ".stopped-" not in run.name and _is_run(run))
    return sorted(runs, key=lambda run: in_natural_order(str(run)))


def _not_there(path: Path) -> str:
    if path.exists():
        return f"{path} is a file\nGive the run directory that holds it"
    near = [str(run) for run in path.parent.iterdir()] if path.parent.is_dir() else []
    hint = suggestion(str(path), near)
    if not hint and RUNS.is_dir():
        newest = sorted(RUNS.glob("*/*/config.yaml"), key=lambda file: file.stat().st_mtime)[-3:]
        names = ", ".join(str(file.parent) for file in reversed(newest))
        hint = f"The newest runs: {names}" if newest else ""
    return f"{path}: no such file or folder\n{hint or 'Give the run directory that graphzoo fit named'}"
