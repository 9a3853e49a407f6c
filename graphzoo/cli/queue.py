"""`graphzoo reproduce --all FILE`: the rows of a file, one after another, resumable."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphzoo.catalog.presets import find_preset
from graphzoo.cli.options import Parser, pair_first
from graphzoo.cli.row import Row, Variant, plan_row
from graphzoo.errors import UsageError, of_system, shorten
from graphzoo.runs.row import read_row
from graphzoo.runs.series import is_claimed
from graphzoo.runs.times import claimed_seconds, taken_seconds
from graphzoo.system.paths import typed
from graphzoo.system.regular_files import read_regular_text
from graphzoo.system.shown import tell
from graphzoo.system.units import counted, duration

# Ctrl-C and SIGTERM: the user wants the queue to end. Any other status is of a row that failed.
_STOPPED = (130, 143)


@dataclass(frozen=True)
class Entry:
    """A line of the queue."""

    place: str  # file and number of the line, for messages
    text: str  # the row as it was written
    row: Row  # what it asks for
    plain: bool  # its settings are those of the recipe, whose measured time then holds

    def run_folders(self, *, finished: bool) -> list[Path]:
        """Its run directories that have results, or those that have none."""
        folders = [folder / run.folder for folder in self.row.folders for run in self.row.runs]
        return [folder for folder in folders if (folder / "results.json").is_file() == finished]

    def check(self) -> None:
        """Refuse wrong options of what is left to do, with the line."""
        try:
            if not self.is_complete():
                self.row.check()
        except UsageError as error:
            raise UsageError(f"{self.place}: {error}") from error

    def is_complete(self) -> bool:
        """Whether all of its runs have been averaged, with the options that it has now."""
        return not self.run_folders(finished=False) and all(map(self._is_averaged, self.row.variants))

    def _is_averaged(self, variant: Variant) -> bool:
        folder, runs = self.row.folder(variant), self.row.runs
        try:
            averaged = read_row(folder / "row.json")
        except (OSError, ValueError, KeyError, TypeError):
            return False  # the row is made again, and says what is wrong
        seeds = list(dict.fromkeys(run.seed for run in runs))
        splits = list(dict.fromkeys(run.split for run in runs if run.split is not None)) or None
        if (averaged.get("seeds"), averaged.get("splits")) != (seeds, splits):
            return False
        return is_claimed(folder, {"options": self.row.words(variant)}, self.row.configs)

    def measured(self) -> list[float]:
        """Seconds of its finished runs."""
        times = map(taken_seconds, self.run_folders(finished=True))
        return [seconds for seconds in times if seconds is not None]

    def claimed(self) -> float | None:
        """Seconds of a run by the header of its recipe."""
        plan = self.row.plan
        try:
            preset = find_preset("recipe", plan.recipe.rpartition("/")[2], model=plan.model)
        except UsageError:
            return None  # no recipe, or a file of the user's own
        return claimed_seconds(preset.header.get("measured", ""))

    def seconds_left(self, pace: float) -> float | None:
        """What its runs that are left probably take; None if nothing tells."""
        left, measured, claimed = len(self.run_folders(finished=False)), self.measured(), self.claimed()
        if not left:
            return 0.0
        if measured:
            return left * sum(measured) / len(measured)
        return None if claimed is None else left * claimed * pace


def read_queue(
    path: Path, parser: Parser, options: Sequence[str], runs: Path, *, in_process: bool
) -> list[Entry]:
    """The rows of a file, all checked before the first of them runs.

    Its lines are as they follow `graphzoo reproduce`, `#` begins a comment. The `options` of `graphzoo fit`
    are for every row, behind its own.
    """
    try:
        lines = read_regular_text(path).removeprefix("\ufeff").split("\n")  # some editors put a mark there
    except OSError as error:
        raise UsageError(f"--all {of_system(error)[0]}\nGive a file with a row on each line") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--all {path} is not text in UTF-8\nGive a file with a row on each line") from error
    entries: list[Entry] = []
    for number, line in enumerate(lines, start=1):
        place = f"{path}, line {number}"
        try:
            words = shlex.split(_without_comment(line))
            if words:
                entries.append(_entry(place, words, parser, options, runs, in_process=in_process))
        except ValueError as error:  # UsageError is one
            raise UsageError(f"{place}: {error}") from error
    if not entries:
        raise UsageError(f"--all {path} has no row\nWrite lines such as: knowformer umls --seeds 0,1,2")
    for entry in entries:
        first = next(each for each in entries if _place(each) == _place(entry))
        if first is not entry:
            raise UsageError(
                f"{entry.place}: its runs would go where those of {first.place} go ({entry.row.base})\n"
                "Add --out DIR to one of them"
            )
    return entries


def _place(entry: Entry) -> str:
    """Where its runs go, however the folder was typed."""
    return os.path.abspath(entry.row.base)


def _without_comment(line: str) -> str:
    """The line up to a word that begins with `#`, as in a shell; `shlex` would cut words, too."""
    quote, escaped = "", False
    for place, letter in enumerate(line):
        if escaped:
            escaped = False
        elif letter == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (not place or line[place - 1].isspace()):
            return line[:place]
    return line


def _entry(
    place: str, words: list[str], parser: Parser, options: Sequence[str], runs: Path, *, in_process: bool
) -> Entry:
    """One line, which may repeat `graphzoo reproduce`: `graphzoo results --commands` prints it so."""
    if words[:2] == ["graphzoo", "reproduce"]:
        words = words[2:]
    for word in words:
        if word in ("-h", "--help") or word.partition("=")[0] == "--all":
            raise UsageError(f"a row cannot use {word}\nLeave it out")
    args, rest = parser.read_some(pair_first("reproduce", words))
    args.in_process |= in_process
    row = plan_row(args, [*rest, *options], runs)
    return Entry(place, shlex.join(words), row, plain=not rest and not args.ablation)


def run_queue(entries: Sequence[Entry], run_row: Callable[[Row], int], runs: Path) -> int:
    """Do the rows that are not complete, one after another.

    The exit status is 0 if all are complete now, 1 if one failed, that of a run which was stopped.
    """
    waiting = [entry for entry in entries if not entry.is_complete()]
    before = len(entries) - len(waiting)
    failed: list[tuple[Entry, str]] = []
    for number, entry in enumerate(waiting):
        tell(f"row {before + number + 1} of {len(entries)}: {entry.text}\n")
        tell(_left(waiting[number:], entries))
        try:
            status = run_row(entry.row)
        except UsageError as error:
            failed.append((entry, str(error)))
        except OSError as error:
            failed.append((entry, of_system(error)[0]))
        else:
            if status in _STOPPED:
                tell("Run the same command to continue the queue.\n")
                return status
            if status:
                failed.append((entry, f"a run ended with exit status {status}"))
        if failed and failed[-1][0] is entry:
            tell(f"graphzoo: {shorten(failed[-1][1])}\n")
    made = len(waiting) - len(failed)
    tell(f"queue: {counted(before + made, 'row')} complete, {before} of them before; {len(failed)} failed\n")
    for entry, why in failed:
        first = shorten(why.partition("\n")[0])
        tell(f"  {entry.place}: {entry.text}\n    {first}\n")
    if failed:
        tell("Run the same command to try what failed again.\n")
    elsewhere = {
        entry.row.base for entry in entries if runs.absolute() not in entry.row.base.absolute().parents
    }
    tell(f"all rows as a table: graphzoo results {' '.join(map(typed, [runs, *sorted(elsewhere)]))}\n")
    return int(bool(failed))


def _left(waiting: Sequence[Entry], entries: Sequence[Entry]) -> str:
    """How much is left and how long it probably takes, the first row's part of it beside it."""
    runs = sum(len(entry.run_folders(finished=False)) for entry in waiting)
    pace = _pace(entries)
    times = [entry.seconds_left(pace) for entry in waiting]
    known = [seconds for seconds in times if seconds is not None]
    text = f"left: {counted(len(waiting), 'row')}, {counted(runs, 'run')}"
    if known:
        text += f", probably {duration(sum(known))}"
    if unknown := len(times) - len(known):
        text += f"{' and' if known else ','} {counted(unknown, 'row')} of unknown time"
    if times[0] is not None and len(times) > 1:
        text += f"; this row {duration(times[0])}"
    return text + "\n"


def _pace(entries: Sequence[Entry]) -> float:
    """How much longer runs take here than their recipes say, by the runs that are finished; 1 if none is."""
    taken = claimed = 0.0
    for entry in entries:
        one, times = entry.claimed(), entry.measured()
        if entry.plain and one is not None:
            taken, claimed = taken + sum(times), claimed + one * len(times)
    return taken / claimed if claimed else 1.0
