"""`graphzoo results [PATH...]`: finished rows and runs as one table."""

from __future__ import annotations

import contextlib
import csv
import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from graphzoo.errors import UsageError, suggestion, tell_damaged
from graphzoo.runs.checkpoints import RUNS
from graphzoo.runs.published import (
    SHOWN,
    compare,
    main_metric,
    mean_and_deviation,
    published_values,
    read_row,
    spread,
)
from graphzoo.runs.results_file import PERCENT, selection_of
from graphzoo.runs.series import take_flag, take_option
from graphzoo.system.shown import cell, console, visible

if TYPE_CHECKING:
    from graphzoo.runs.record import Record

__all__ = ["collect", "results_main", "to_markdown"]

USAGE = (
    "usage: graphzoo results [PATH...] [--format table|markdown|csv] [--metric NAME]\n"
    "       [--data A,B] [--model A,B] [--published] [--commands]"
)
_FORMATS = ("table", "markdown", "csv")
_COLUMNS = ("data", "model", "metric", "ours", "runs", "seeds", "paper", "", "differs", "command")
_DIFFERS = _COLUMNS.index("differs")
_FILE_WIDTH = 200
_WHO = ("data", "model", "recipe", "name")


class _Entry(NamedTuple):
    """A row, the settings of its runs as far as they are there, and where it lies."""

    row: dict[str, Any]
    config: dict[str, Any]
    folder: Path
    single: bool


def results_main(argv: list[str]) -> int:
    """Print rows that `graphzoo reproduce` made, and means of single runs, the paper's figures beside them.

    Args:
        argv: Files `row.json` or folders that hold some, at any depth (`runs` by default); single runs that
            belong to no row are averaged over seeds and splits. `--format`, `--metric` (the first of each row
            by default), `--data` and `--model` (names, with commas), `--published` (only rows that a paper
            has a figure for), `--commands` (what makes a row again).
    """
    if "-h" in argv or "--help" in argv:
        sys.stdout.write(USAGE + "\n")
        return 0
    form, rest = take_option(argv, "--format", "table", USAGE)
    metric, rest = take_option(rest, "--metric", "", USAGE)
    datas, rest = take_option(rest, "--data", "", USAGE)
    models, rest = take_option(rest, "--model", "", USAGE)
    published, rest = take_flag(rest, "--published")
    commands, rest = take_flag(rest, "--commands")
    if form not in _FORMATS:
        hint = suggestion(form, _FORMATS) or f"There are: {', '.join(_FORMATS)}"
        raise UsageError(f"unknown format {form!r}\n{hint}")
    if odd := [word for word in rest if word.startswith("-")]:
        raise UsageError(f"unknown option {odd[0]}\n{USAGE}")
    damaged: list[UsageError] = []
    rows = collect([Path(word) for word in rest] or [RUNS], commands=commands, damaged=damaged)
    wanted = f"test/{metric.removeprefix('test/')}" if metric else ""
    for key, names in (("data", datas), ("model", models)):
        if names:
            rows = [row for row in rows if row[key] in names.split(",")]
    rows = [row for row in rows if not wanted or wanted in row["metrics"]]
    if published:
        rows = [row for row in rows if row["metrics"][wanted or main_metric(row)].get("paper") is not None]
    if not rows and damaged:
        raise damaged[0]
    if not rows:
        raise UsageError("there are no such results\nMake some: graphzoo reproduce galit cora --seeds 0,1,2")
    lines = [_line(row, wanted, commands=commands) for row in rows]
    if form == "table":
        _print(lines)
    else:
        sys.stdout.write(to_markdown(lines) if form == "markdown" else _to_csv(rows))
    return tell_damaged("results", damaged)


def collect(
    paths: Sequence[Path], *, commands: bool = False, damaged: list[UsageError] | None = None
) -> list[dict[str, Any]]:
    """Rows in files and below folders, and means of single runs over seeds and splits; sorted by data.

    Args:
        paths: Files `row.json` or folders.
        commands: Whether single runs get the command that makes them again, as rows have it.
        damaged: Gets what is wrong with each file below a folder that is left out for it; None: the first is
            refused.

    Raises:
        UsageError: for a path that is not there, a file that is no row, and a damaged run.
    """
    files: dict[Path, dict[str, Any]] = {}
    records: dict[Path, Record] = {}
    for path in paths:
        if path.is_file():
            files[path] = read_row(path)
        elif path.is_dir():
            for file in sorted(path.rglob("row.json")):
                with _left_out(damaged):
                    files[file] = read_row(file)
            for file in sorted(path.rglob("results.json")):
                with _left_out(damaged):
                    if record := _finished(file):
                        records[file] = record
        elif path != RUNS:
            raise UsageError(f"there is no {path}\nGive a folder of runs or a row.json")
    entries: list[_Entry] = []
    for file, row in files.items():
        config: dict[str, Any] = {}  # of a row whose settings are damaged the figures are shown all the same
        with _left_out(damaged):
            config = _config_of_row(file)
        entries.append(_Entry(row, config, file.parent, single=False))
    entries += _averaged(list(records.values()), commands=commands)
    _tell_apart(entries)
    return sorted((entry.row for entry in entries), key=lambda row: [_in_order(row.get(key)) for key in _WHO])


@contextlib.contextmanager
def _left_out(damaged: list[UsageError] | None) -> Iterator[None]:
    """What is wrong with one file keeps no other from being shown."""
    try:
        yield
    except UsageError as error:
        if damaged is None:
            raise
        damaged.append(error)


def _in_order(name: Any) -> list[tuple[float, str]]:
    """What names are sorted by: numbers inside by their size, so that `K = 5` comes before `K = 10`."""
    parts = re.split(r"(\d+(?:\.\d+)?(?:e-?\d+)?)", str(name or ""))
    return [(float(part), "") if i % 2 else (0.0, part) for i, part in enumerate(parts)]


def _finished(path: Path) -> Record | None:
    """The tested run of a results.json, if it belongs to no row."""
    if (path.parent.parent / "command.json").is_file():
        return None
    from graphzoo.runs.record import read_record

    record = read_record(path.parent)
    result = record.result
    try:
        _, _, checkpoint = result["model"], result["data"], result.get("checkpoint")
        trained = result.get("command") == "fit" or checkpoint or not result["num_parameters"]
    except KeyError as error:
        raise UsageError(f"{path} is damaged ({error})\nMove it away, or run it again") from error
    return record if record.tested and trained else None  # weights as they were drawn are no result


def _config_of_row(path: Path) -> dict[str, Any]:
    """The settings of a row's runs; empty where a row is kept without them."""
    from graphzoo.runs.record import read_config

    config = next(iter(sorted(path.parent.glob("s*-*/config.yaml"))), None)
    return {} if config is None else read_config(config)


def _averaged(records: Sequence[Record], *, commands: bool) -> list[_Entry]:
    """Single runs as rows: those that differ in seed and split alone together."""
    from graphzoo.runs.record import group_records

    found = []
    for group in group_records(records):
        judged: dict[str | None, list[Record]] = {}
        for record in group.records:  # a test of the last checkpoint is none of the best
            judged.setdefault(selection_of(record.result), []).append(record)
        for same in judged.values():
            runs = _once(same)
            row = _row_of(runs, commands=commands)
            found.append(_Entry(row, runs[0].config, runs[0].path, single=True))
    return found


def _once(records: Sequence[Record]) -> list[Record]:
    """The runs by split and seed. One that was repeated, or tested again, counts once: the newest does."""
    newest: dict[tuple[int, int | str], Record] = {}
    for record in sorted(
        records, key=lambda one: ((one.path / "results.json").stat().st_mtime, str(one.path))
    ):
        seed = str(record.path) if record.seed is None else record.seed
        newest[record.split or 0, seed] = record
    return [newest[key] for key in sorted(newest, key=lambda key: (key[0], str(key[1]).zfill(20)))]


def _row_of(runs: Sequence[Record], *, commands: bool) -> dict[str, Any]:
    from graphzoo.runs.changes import repeat_runs, what_differs

    first = runs[0]
    try:
        published = published_values(first.model, first.recipe, first.data)
    except UsageError:
        published = {}  # a recipe that is no longer there
    common = set.intersection(*(set(run.tested) for run in runs))
    metrics: dict[str, Any] = {}
    for name in [name for name in SHOWN if name in common] or sorted(common):
        values = [run.tested[name] for run in runs]
        mean, deviation = mean_and_deviation(values)
        paper = published.get(name)
        metrics[name] = {
            "mean": mean,
            "std": deviation,
            "paper": paper.value if paper else None,
            "paper_std": paper.deviation if paper else None,
            "values": values,
        }
    compared = any(found["paper"] is not None for found in metrics.values())
    splits = sorted({run.split for run in runs if run.split is not None})
    return {
        "model": first.model,
        "data": first.data,
        "recipe": first.recipe or None,
        "name": None,
        # runs of earlier versions do not say it themselves, and reading their classes takes seconds
        "differs": (what_differs(first) or None) if compared else None,
        "command": repeat_runs(runs) if commands and first.config else None,
        "seeds": sorted({run.seed for run in runs if run.seed is not None}),
        "splits": splits if any(splits) else None,  # data with one split have the first
        "metrics": metrics,
    }


def _tell_apart(entries: Sequence[_Entry]) -> None:
    """Add to the names of rows that would look the same what differs among their settings."""
    from graphzoo.runs.record import tell_apart

    alike: dict[tuple[Any, ...], list[_Entry]] = {}
    for entry in entries:
        alike.setdefault(tuple(entry.row.get(key) or "" for key in _WHO), []).append(entry)
    for same in alike.values():
        if len(same) < 2:
            continue
        told = tell_apart([entry.config for entry in same], [entry.folder for entry in same])
        made = [entry for entry in same if not entry.single]
        for entry, text in zip(same, told, strict=True):
            if made == [entry] and text == entry.folder.name:
                continue  # the others have a name, and that of a row's folder says nothing new
            entry.row["name"] = ", ".join(filter(None, [entry.row.get("name"), text])) or None


def _line(row: Mapping[str, Any], metric: str, *, commands: bool) -> list[str]:
    metric = metric or main_metric(row)
    found = row["metrics"][metric]
    name = metric.removeprefix("test/")
    model = row["model"]
    recipe = (row.get("recipe") or "").rpartition("/")[2]
    if recipe and recipe != row["data"]:
        model += f" ({recipe})"
    if row.get("name"):
        model += f": {row['name']}"
    paper, paper_std = found.get("paper"), found.get("paper_std")
    published = "" if paper is None else spread(name, paper, paper_std)
    shown = PERCENT.get(name, name)
    runs = str(len(found["values"]))
    told = compare(found["mean"], paper, paper_std)
    ours = spread(name, found["mean"], found["std"])
    command = f"`{row['command']}`" if commands and row.get("command") else ""
    who = [row["data"], model, shown, ours, runs, seeds_of(row)]
    return [*who, published, told, row.get("differs") or "", command]


def seeds_of(row: Mapping[str, Any]) -> str:
    """The seeds of a row, and its splits where there are several.

    >>> seeds_of({"seeds": [0, 1, 2, 5, 7, 8]}), seeds_of({"seeds": [0], "splits": [0, 1, 2]})
    ('0-2, 5, 7, 8', '0; splits 0-2')
    """
    seeds, splits = _ranges(row.get("seeds") or []), row.get("splits") or []
    word = "split" if len(splits) == 1 else "splits"
    return "; ".join(filter(None, [seeds, f"{word} {_ranges(splits)}" if splits else ""]))


def _ranges(numbers: Sequence[int]) -> str:
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    parts = [f"{one[0]}-{one[-1]}" if len(one) > 2 else ", ".join(map(str, one)) for one in found]
    return ", ".join(parts)


def _print(lines: list[list[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    screen = console()
    if not screen.is_terminal:
        screen = Console(width=_FILE_WIDTH)  # a file has no edge to fold at
    kept = _kept(lines)
    notes: list[str] = []
    if sum(max(len(line[place]) for line in [*lines, list(_COLUMNS)]) + 3 for place in kept) >= screen.width:
        # long words beside narrow figures would fold to columns of single syllables
        notes = list(dict.fromkeys(line[_DIFFERS] for line in lines if line[_DIFFERS]))
        numbers = {text: f"({number})" for number, text in enumerate(notes, 1)} | {"": ""}
        lines = [[*line[:_DIFFERS], numbers[line[_DIFFERS]], *line[_DIFFERS + 1 :]] for line in lines]
    table = Table(box=SIMPLE_HEAD, collapse_padding=True) if notes else Table()
    for place in kept:
        name = _COLUMNS[place]
        right = name in ("ours", "runs", "seeds", "paper")
        whole = name in ("metric", "ours", "paper")
        table.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=whole)
    for line in lines:
        table.add_row(*(cell(line[place]) for place in kept))
    screen.print(table)
    for number, note in enumerate(notes, 1):
        screen.print(cell(f"({number}) {note}"))


def _kept(lines: Sequence[Sequence[str]]) -> list[int]:
    """Places of the columns that are not empty everywhere."""
    return [place for place in range(len(_COLUMNS)) if any(line[place] for line in lines)]


def to_markdown(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as a Markdown table; columns that are empty everywhere are left out.

    Args:
        lines: As `_COLUMNS` says.
    """
    kept = _kept(lines)

    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(visible(cells[place]).replace("|", "\\|") for place in kept) + " |\n"

    return row(_COLUMNS) + "|" + "---|" * len(kept) + "\n" + "".join(map(row, lines))


def _to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """All metrics of all rows in full precision."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    measured = ["mean", "std", "runs", "seeds", "splits", "paper", "paper_std", "verdict", "differs"]
    writer.writerow([*_WHO, "metric", *measured])
    for row in rows:
        lists = [_ranges(row.get(key) or []) for key in ("seeds", "splits")]
        for metric, found in row["metrics"].items():
            paper, paper_std = found.get("paper"), found.get("paper_std")
            figures = [found["mean"], found["std"], len(found["values"]), *lists, paper, paper_std]
            told = [
                compare(found["mean"], paper, paper_std),
                row.get("differs") if paper is not None else None,
            ]
            # a terminal may be what reads it
            who = [visible(row[key]) if row.get(key) else None for key in _WHO]
            writer.writerow([*who, metric.removeprefix("test/"), *figures, *told])
    return text.getvalue()
