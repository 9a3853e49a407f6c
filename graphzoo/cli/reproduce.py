"""`graphzoo reproduce MODEL DATA --seeds 0,1,2 --splits 0-9`: rows of a results table, resumable."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphzoo.catalog.presets import read_header
from graphzoo.catalog.settings import words_of
from graphzoo.catalog.tasks import task_of_data
from graphzoo.cli.options import Parser, check_splits, out_folder, pair_first
from graphzoo.cli.queue import read_queue, run_queue
from graphzoo.cli.row import Row, plan_row
from graphzoo.errors import UsageError
from graphzoo.runs.average import read_runs, write_row
from graphzoo.runs.checkpoints import RUNS
from graphzoo.runs.directory import missing_folders, several_processes
from graphzoo.runs.lock import LOCK, RunLock
from graphzoo.runs.series import Run, claim, lasting_words, whole_numbers
from graphzoo.runs.tables import how_many_each, print_rows
from graphzoo.system.shown import tell
from graphzoo.system.units import counted
from graphzoo.training.start import one_device, run_command, run_here, settings_of


def reproduce_parser(*, pair: bool = True) -> Parser:
    """The options; all others are for `graphzoo fit`. Without a `pair` of model and data for `--all`.

    A value of an option of `graphzoo fit` would be taken for them: the parser does not know these options.
    """
    parser = Parser(
        "reproduce",
        "MODEL DATA [options] [options of fit], or --all FILE",
        "Train and test a model with several seeds, and print the mean score beside that of the paper. After "
        "an interruption, the same command continues.",
    )
    add = parser.add_argument
    if pair:
        add("model", metavar="MODEL", nargs="?", help="model, see `graphzoo list model`")
        add("data", metavar="DATA", nargs="?", help="data set, see `graphzoo list data`")
    add("--seeds", metavar="0,1,2", help="seeds, such as 0,1,2 or 0-4 (default 0,1,2; with --splits: 0)")
    add("--splits", default="", metavar="0-9", help="run each seed on each of these splits of the data")
    add("--recipe", metavar="NAME", help="another recipe of the model; `none` for no recipe")
    add("--ablation", default="", metavar="NAME|FILE", help="run an ablation, see `graphzoo list ablation`")
    add("--in-process", action="store_true", help="run everything in one process; faster for short runs")
    add(
        "--out",
        type=out_folder,
        metavar="DIR",
        help="folder of the runs and their mean (default: in runs)",
    )
    add("--all", type=Path, metavar="FILE", help="run a list of rows: each line is MODEL DATA [options]")
    return parser


def reproduce_main(argv: list[str]) -> int:
    """Fit and test one seed after the other, on every split that is asked for, then average.

    A run with results.json is not run again; one that was interrupted resumes from its last checkpoint. The
    exit status is 0 or that of the run that failed; of a queue, see `run_queue`.
    """
    if several_processes():
        raise UsageError("reproduce starts its processes itself: run it without torchrun or srun")
    if any(word.partition("=")[0] == "--all" for word in argv):
        return _reproduce_all(argv)
    args, rest = reproduce_parser().read_some(pair_first("reproduce", argv))
    row = plan_row(args, rest)
    if row.title:
        row.check()
    status = _run_row(row)
    if status and (status != 2 or row.base.is_dir()):  # a wrong command line leaves nothing to resume
        tell("Run the same reproduce command to continue.\n")
    return status


def _reproduce_all(argv: list[str]) -> int:
    """The rows of a file, one after another."""
    args, rest = reproduce_parser(pair=False).read_some(argv)
    if rest and not rest[0].startswith("-"):
        raise UsageError(f"--all FILE lists the rows: leave {rest[0]!r} out, or write it into the file")
    for option in ("seeds", "splits", "recipe", "ablation"):
        if getattr(args, option):
            raise UsageError(f"--{option} is for one row: write it into the line of {args.all}")
    runs = args.out or RUNS
    entries = read_queue(args.all, reproduce_parser(), rest, runs, in_process=args.in_process)
    for entry in entries:
        entry.check()
    return run_queue(entries, _run_row, runs)


def _run_row(row: Row) -> int:
    """Do what is missing of a row and average it; 0, or the exit status of the run that failed."""
    plan, runs = row.plan, row.runs
    of_data = (
        [word for word in words_of(each.options) if word.startswith("--data.")] for each in row.variants
    )
    for changed in {tuple(words) for words in of_data}:
        check_splits(row.command, plan.data, row.splits, [*row.options, *changed])
    rows: list[dict[str, Any]] = []
    for variant in row.variants:
        directory = row.folder(variant)
        words = row.words(variant)
        begun = [*directory.glob("s*-*/results.json"), *directory.glob("s*-*/checkpoints/*.ckpt")]
        begun = begun or [lock for lock in directory.glob(f"s*-*/{LOCK}") if RunLock(lock.parent).is_held()]
        missing = missing_folders(directory)
        claim(directory, {"options": words}, configs=row.configs, begun=bool(begun), what="seeds")
        if variant.name:
            tell(f"{variant.name}\n")
        finished = [run for run in runs if (directory / run.folder / "results.json").is_file()]
        if finished:
            results = read_runs(directory, finished)  # refused before the other runs take their time
            if len(finished) < len(runs):
                _check_data(directory, row.command, words, finished[0], results[0])
        for run in runs:
            status = _run_once(directory / run.folder, run, row.command, words, together=row.in_process)
            if status:
                _take_back(directory, missing)
                return status
            if not (directory / run.folder / "results.json").is_file():
                raise UsageError(
                    f"{run} was not tested, and a row needs its test\nGive data with a test split"
                )
            read_runs(directory, [run])  # refused before the next one takes its time
        which = _which(row.seeds, row.splits, row.command)
        made = ["graphzoo", "reproduce", plan.model, plan.data, *lasting_words(row.rest), *which]
        names = {"model": plan.model, "data": plan.data, "recipe": plan.recipe, "name": variant.name}
        published, made_by = variant.published(plan), None if row.title else made
        rows.append(write_row(directory, runs, **names, published=published, command=made_by))
    first, about = rows[0], f"{row.title}: " if row.title else ""
    size = how_many_each(first["runs"], _unit(plan.data))
    several = counted(len(runs), "run" if row.splits else "seed")
    print_rows(f"{about}{plan.model} on {first['data_name'] or plan.data}: test{size}, {several}", rows)
    tell(f"row{'s' * (len(rows) > 1)}: {row.base}\n")
    _tell_left_out(row.folders, runs)
    return 0


def _check_data(directory: Path, command: str, words: list[str], run: Run, result: Mapping[str, Any]) -> None:
    """Refuse own files that have changed since a run of the row was finished."""
    is_own = any(word.startswith(("--data.path", "--data.init_args.path")) for word in words)
    if not is_own or not result.get("data_fingerprint"):
        return
    from graphzoo.search.facts import load_data

    now = load_data(settings_of(command, [*words, *run.options])).fingerprint
    if now != (there := result.get("data_fingerprint")):
        raise UsageError(
            f"the data have changed since {run} was finished ({there}, now {now})\n"
            f"Move {directory} away, or give another folder: --out NEW"
        )


def _unit(data: str) -> str:
    """What is evaluated of these data, if a preset says so."""
    return task.unit if (task := task_of_data(data)) else ""


def _take_back(directory: Path, made: list[Path]) -> None:
    """Remove a row in which nothing has run, and the folders that were made for it, the innermost first."""
    if made and [path.name for path in directory.iterdir()] == ["command.json"]:
        (directory / "command.json").unlink()
        for folder in made:
            with contextlib.suppress(OSError):  # something else was put there meanwhile
                folder.rmdir()


def _tell_left_out(folders: list[Path], runs: list[Run]) -> None:
    """Name finished runs that the rows leave out: who asks for more seeds may miss them."""
    kind = "seed-*" if runs[0].split is None else "split-*"
    finished = {path.parent.name for folder in folders for path in folder.glob(f"{kind}/results.json")}
    if left_out := finished - {run.folder for run in runs}:
        in_order = sorted(left_out, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])
        named = ", ".join(in_order[:5]) + (", ..." if len(in_order) > 5 else "")
        tell(
            f"finished there before, not averaged here: {named}\n"
            "With their seeds and splits the same command averages over all, and runs what is missing.\n"
        )


def _which(seeds: str, splits: str, command: str) -> list[str]:
    """`--seeds` and `--splits` where they are not the usual ones."""
    usual = "0" if splits or command == "test" else "0,1,2"
    options = [] if whole_numbers(seeds, "--seeds") == whole_numbers(usual, "--seeds") else ["--seeds", seeds]
    return [*options, *(["--splits", splits] if splits else [])]


def _run_once(folder: Path, run: Run, command: str, options: list[str], *, together: bool) -> int:
    if (folder / "results.json").is_file():
        tell(f"{run}: finished before\n")
        return 0
    arguments = [command, *options, *run.options, "--run_dir", str(folder)]
    start = run_command
    if together:
        arguments, start = one_device(arguments), run_here
    if (folder / "checkpoints" / "last.ckpt").is_file():
        if read_header(folder / "config.yaml").get("test") == "no":
            raise UsageError(f"{folder} was begun with --no-test, and a row needs its test\nMove it away")
        tell(f"{run}: resumes from its last checkpoint\n")
        return start([*arguments, "--ckpt_path", str(folder)])
    if folder.exists():  # stopped before its first checkpoint: nothing in it can be used
        _move_away(folder)
    tell(f"{run}: starts\n")
    return start(arguments)


def _move_away(folder: Path) -> None:
    """Give a run that was stopped another name; one that another process writes is refused."""
    lock = RunLock(folder, "--out")
    lock.take()
    try:
        number = 1
        while (kept := folder.with_name(f"{folder.name}.stopped-{number}")).exists():
            number += 1
        folder.rename(kept)
        (kept / LOCK).unlink()
    finally:
        lock.release()
