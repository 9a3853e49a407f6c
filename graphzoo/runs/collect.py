"""Collects rows and finished runs below folders, averages single runs, and sorts them."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from graphzoo.errors import UsageError
from graphzoo.runs.checkpoints import RUNS
from graphzoo.runs.published import average_metrics
from graphzoo.runs.row import left_out, read_row
from graphzoo.runs.series import is_run_folder
from graphzoo.system.files import files_below

if TYPE_CHECKING:
    from graphzoo.runs.record import Record


# Endings of recipes with the authors' settings, or without the parts that are ours (-plain).
AS_PUBLISHED = ("-published", "-plain")
WHO = ("data", "model", "recipe", "name")


class _Entry(NamedTuple):
    """A row, the settings of its runs if they are known, and its folder."""

    row: dict[str, Any]
    config: dict[str, Any]
    folder: Path
    single: bool


def collect(
    paths: Sequence[Path], *, commands: bool = False, damaged: list[UsageError] | None = None
) -> list[dict[str, Any]]:
    """Rows in files and below folders, and means of single runs over seeds and splits; sorted by data.

    Args:
        paths: Files and folders.
        commands: Whether single runs get the command that repeats them, as rows have it.
        damaged: Collects an error for each damaged file, which is left out. None raises the first error.

    Raises:
        UsageError: if a path does not exist, or for a damaged file without `damaged`.
    """
    files: dict[Path, dict[str, Any]] = {}
    records: dict[Path, Record] = {}
    seen: set[Path] = set()
    for path in paths:
        if path.is_file() and path.name != "results.json":
            if path.resolve() not in seen:
                files[path] = read_row(path)
            seen.add(path.resolve())
        elif path.is_dir() or path.is_file():
            for file in files_below(path, "row.json"):
                if (place := file.resolve()) in seen:
                    continue  # behind a link in another folder
                seen.add(place)
                with left_out(damaged):
                    files[file] = read_row(file)
            for file in [path] if path.is_file() else files_below(path, "results.json"):
                with left_out(damaged):
                    if record := _finished(file, seen):
                        records[file] = record
        elif path != RUNS:
            raise UsageError(f"{path}: no such file or folder\nGive a folder of runs or a row.json")
    entries: list[_Entry] = []
    for file, row in files.items():
        config: dict[str, Any] = {}  # a row with damaged settings is shown without them
        with left_out(damaged):
            config = _config_of_row(file)
        row["data"] = row.get("data_name") or row["data"]
        entries.append(_Entry(row, config, file.parent, single=False))
    entries += _averaged(list(records.values()), commands=commands)
    _tell_apart(entries)
    return sorted((entry.row for entry in entries), key=_place)


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Sort key: data, model and recipe, with the authors' settings before ours."""
    data, model, recipe, name = (_in_order(row.get(key)) for key in WHO)
    return data, model, not str(row.get("recipe") or "").endswith(AS_PUBLISHED), recipe, name


def _in_order(name: Any) -> list[tuple[float, str]]:
    """Sort key of a name: numbers in it count by their value, so that `K = 5` comes before `K = 10`."""
    parts = re.split(r"(\d+(?:\.\d+)?(?:e-?\d+)?)", str(name or ""))
    return [(float(part), "") if i % 2 else (0.0, part) for i, part in enumerate(parts)]


def _finished(path: Path, rows: Container[Path]) -> Record | None:
    """The tested run of a results.json, unless it belongs to one of the `rows`, or to a search."""
    run = path.resolve().parent
    if (run.parent / "command.json").is_file() and (
        not is_run_folder(run.name) or run.parent / "row.json" in rows
    ):
        return None
    from graphzoo.runs.record import read_record

    record = read_record(path.parent)
    result = record.result
    try:
        _, _, checkpoint = result["model"], result["data"], result.get("checkpoint")
        trained = result.get("command") == "fit" or checkpoint or not result["num_parameters"]
    except KeyError as error:
        raise UsageError(f"{path} is damaged ({error})\nMove it away, or run it again") from error
    return record if record.tested and trained else None  # scores of untrained weights are no result


def _config_of_row(path: Path) -> dict[str, Any]:
    """The settings of a row's runs; empty where a row is kept without them."""
    from graphzoo.runs.record import read_config

    config = next(iter(sorted(path.parent.glob("s*-*/config.yaml"))), None)
    return {} if config is None else read_config(config)


def _averaged(records: Sequence[Record], *, commands: bool) -> list[_Entry]:
    """Single runs as rows; runs that differ only in seed and split form one row."""
    from graphzoo.runs.groups import group_records

    entries = []
    for group in group_records(records):
        row = _row_of(group.records, commands=commands)
        entries.append(_Entry(row, group.records[0].config, group.records[0].path, single=True))
    return entries


def _row_of(runs: Sequence[Record], *, commands: bool) -> dict[str, Any]:
    from graphzoo.runs.changes import repeat_runs, what_differs

    first = runs[0]
    metrics = average_metrics([run.tested for run in runs], first.published())
    compared = any(figure["paper"] is not None for figure in metrics.values())
    splits = sorted({run.split for run in runs if run.split is not None})
    own: dict[str, set[int]] = {}
    for run in runs:
        for name, seed in run.own_seeds.items():
            own.setdefault(name, set()).add(seed)
    return {
        "model": first.model,
        "data": first.data_name,
        "recipe": first.recipe or None,
        "name": first.apart or None,
        # runs of earlier versions do not say it themselves, and reading their classes takes seconds
        "differs": (what_differs(first) or None) if compared or "changed" in first.result else None,
        "command": repeat_runs(runs) if commands and first.config else None,
        "seeds": sorted({run.seed for run in runs if run.seed is not None}),
        "own_seeds": {name: sorted(own[name]) for name in sorted(own)} or None,
        "splits": splits if any(splits) else None,  # data with one split have the first
        "tested": first.result.get("tested"),
        "protocol": first.result.get("protocol"),
        "metrics": metrics,
    }


def _tell_apart(entries: Sequence[_Entry]) -> None:
    """Add the differing settings to the names of rows that would look the same."""
    from graphzoo.runs.groups import tell_apart

    alike: dict[tuple[Any, ...], list[_Entry]] = {}
    for entry in entries:
        alike.setdefault(tuple(entry.row.get(key) or "" for key in WHO), []).append(entry)
    for same in alike.values():
        if len(same) < 2:
            continue
        texts = tell_apart([entry.config for entry in same], [entry.folder for entry in same])
        made = [entry for entry in same if not entry.single]
        for entry, text in zip(same, texts, strict=True):
            if made == [entry] and text == entry.folder.name:
                continue  # the others have a name, and that of a row's folder says nothing new
            entry.row["name"] = ", ".join(filter(None, [entry.row.get("name"), text])) or None


def seeds_of(row: Mapping[str, Any]) -> str:
    """The seeds of a row, and its splits where there are several.

    >>> seeds_of({"seeds": [0, 1, 2, 5, 7, 8]}), seeds_of({"seeds": [0], "splits": [0, 1, 2]})
    ('0-2, 5, 7, 8', '0; splits 0-2')
    """
    seeds, splits = all_seeds(row), row.get("splits") or []
    word = "split" if len(splits) == 1 else "splits"
    return "; ".join(filter(None, [seeds, f"{word} {ranges(splits)}" if splits else ""]))


def all_seeds(row: Mapping[str, Any]) -> str:
    """The seeds of a row, and those that model and data have of their own.

    >>> all_seeds({"seeds": [0, 1], "own_seeds": {"model.seed": [7]}})
    '0, 1; model.seed 7'
    """
    own = (row.get("own_seeds") or {}).items()
    parts = [ranges(row.get("seeds") or []), *(f"{name} {ranges(seeds)}" for name, seeds in own)]
    return "; ".join(filter(None, parts))


def ranges(numbers: Sequence[int]) -> str:
    """Numbers in short: `0-2, 5`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    parts = [f"{one[0]}-{one[-1]}" if len(one) > 2 else ", ".join(map(str, one)) for one in spans]
    return ", ".join(parts)
