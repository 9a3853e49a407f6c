"""`graphzoo reproduce MODEL DATA --seeds 0,1,2 --splits 0-9`: rows of a results table, resumable."""

from __future__ import annotations

import argparse
import contextlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphzoo.catalog.presets import find_preset, read_header
from graphzoo.catalog.settings import read_settings, word_of
from graphzoo.cli.options import Parser, check_splits, lasting_words, pair_first, refuse_options
from graphzoo.errors import UsageError
from graphzoo.runs.average import write_row
from graphzoo.runs.checkpoints import RUNS
from graphzoo.runs.directory import missing_folders, several_processes
from graphzoo.runs.published import Published, parse_published, published_values
from graphzoo.runs.series import Run, claim, runs_of, whole_numbers
from graphzoo.runs.tables import print_rows
from graphzoo.system.shown import tell
from graphzoo.training.plan import Plan, make_plan
from graphzoo.training.start import one_device, run_command, run_here

__all__ = ["reproduce_parser", "reproduce_main"]


@dataclass(frozen=True)
class _Variant:
    """One row of an ablation."""

    name: str = ""  # what sets it apart; empty for the only row
    options: dict[str, Any] = field(default_factory=dict)  # of `fit`, which it adds
    paper: dict[str, str] = field(default_factory=dict)  # data -> published figures, as recipes write them

    @property
    def folder(self) -> str:
        """Name of its folder below that of the ablation."""
        return re.sub(r"[^a-z0-9.]+", "-", self.name.lower()).strip("-.")

    @property
    def words(self) -> list[str]:
        """Its options as words of a command line."""
        return [f"--{name}={word_of(value)}" for name, value in self.options.items()]

    def published(self, plan: Plan) -> dict[str, Published]:
        """The paper's figures for this row."""
        if not self.name:
            return published_values(plan.model, plan.recipe, plan.data)
        recipe = plan.recipe.rpartition("/")[2]
        return parse_published(self.paper.get(recipe, self.paper.get(plan.data, "")))


def reproduce_parser() -> Parser:
    """The options; all others are for `graphzoo fit`."""
    parser = Parser(
        "reproduce",
        "MODEL DATA [options] [options of fit]",
        "Fit and test one seed after the other, then average: a row of a results table. The same command "
        "resumes a row that was stopped.",
    )
    add = parser.add_argument
    add("model", metavar="MODEL", help="graphzoo list model")
    add("data", metavar="DATA", help="graphzoo list data")
    add("--seeds", metavar="0,1,2", help="or 0-4 (default 0,1,2; with --splits 0)")
    add("--splits", default="", metavar="0-9", help="every seed on each of these splits")
    add("--recipe", metavar="NAME", help="another recipe of the model, or none")
    add("--ablation", default="", metavar="NAME|FILE", help="several rows that differ in a setting")
    add("--in-process", action="store_true", help="all in this process: short runs start faster")
    add("--out", type=Path, metavar="DIR", help="where the runs and row.json go")
    return parser


def reproduce_main(argv: list[str]) -> int:
    """Fit and test one seed after the other, on every split that is asked for, then average.

    A heuristic has nothing to fit and is tested, by default with one seed: nothing in it is drawn. A run with
    results.json is not run again; one that was interrupted resumes from its last checkpoint.
    """
    wanted, rest = reproduce_parser().read_some(pair_first("reproduce", argv))
    if several_processes():
        raise UsageError("reproduce starts its processes itself: run it without torchrun or srun")
    names, splits, ablation = [wanted.model, wanted.data], wanted.splits, wanted.ablation
    if wanted.recipe is not None:
        rest = [*rest, "--recipe", wanted.recipe]
    command = "test" if _is_heuristic(wanted.model) else "fit"
    # Splits differ more than seeds do, and published rows take one run of each.
    seeds = wanted.seeds or ("0" if splits or command == "test" else "0,1,2")
    refuse_options(rest, "reproduce", splits=bool(splits))
    runs = runs_of(seeds, splits)
    options = ["--model", names[0], "--data", names[1], *rest]
    plan = make_plan(command, options)  # unknown names are told before any seed runs
    title, variants = _read_ablation(ablation, plan) if ablation else ("", [_Variant()])
    for changed in {tuple(word for word in each.words if word.startswith("--data.")) for each in variants}:
        check_splits(command, plan.data, splits, [*options, *changed])
    base = wanted.out or _usual_folder(plan, ablation)
    rows: list[dict[str, Any]] = []
    for variant in variants:
        directory = base / variant.folder if variant.name else base
        words = [*options, *variant.words]
        begun = [*directory.glob("s*-*/results.json"), *directory.glob("s*-*/checkpoints/*.ckpt")]
        missing = missing_folders(directory)
        claim(directory, {"options": lasting_words(words)}, words, begun=bool(begun), what="seeds")
        if variant.name:
            tell(f"{variant.name}\n")
        for run in runs:
            status = _run_once(directory / run.folder, run, command, words, together=wanted.in_process)
            if status:
                _take_back(directory, missing)
                if status != 2 or directory.is_dir():  # a wrong command line leaves nothing to go on from
                    tell("Run the same reproduce command to continue.\n")
                return status
        names_of_row = {"model": plan.model, "data": plan.data, "recipe": plan.recipe, "name": variant.name}
        which = _which(seeds, splits, command)
        made = None if ablation else ["graphzoo", "reproduce", plan.model, plan.data, *_lasting(rest), *which]
        paper = variant.published(plan)
        rows.append(write_row(directory, runs, **names_of_row, published=paper, command=made))
    counted = ("run" if splits else "seed") + ("s" if len(runs) > 1 else "")
    about = f"{title}: " if title else ""
    print_rows(f"{about}{plan.model} on {plan.data}: test, {len(runs)} {counted}", rows)
    tell(f"row{'s' * (len(rows) > 1)}: {base}\n")
    _tell_left_out([base / variant.folder if variant.name else base for variant in variants], runs)
    return 0


def _usual_folder(plan: Plan, ablation: str | None) -> Path:
    """Where a row goes without `--out`."""
    row = f"{plan.model}-{plan.data}"
    if plan.recipe and plan.recipe != f"{plan.model}/{plan.data}":
        row += "-" + plan.recipe.rpartition("/")[2]
    return RUNS / "ablation" / f"{row}-{Path(ablation).stem}" if ablation else RUNS / "reproduce" / row


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


def _read_ablation(name: str, plan: Plan) -> tuple[str, list[_Variant]]:
    """Title and rows of an ablation, by name or from a file."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise UsageError(f"there is no ablation file {name!r}")
    else:
        path = find_preset("ablation", name.removeprefix(f"{plan.model}/"), model=plan.model).path
    content = read_settings(path)
    listed = content.get("rows") if isinstance(content, dict) else None
    if not isinstance(listed, list) or not listed:
        raise UsageError(
            f"{path} has no rows\nWrite `rows:` and below it `- {{name: ..., options: {{...}}}}`"
        )
    variants: list[_Variant] = []
    for number, row in enumerate(listed, start=1):
        parts: dict[str, Any] = {"options": {}, "paper": {}}
        parts |= row if isinstance(row, dict) else {}
        kinds = {"name": str, "options": dict, "paper": dict}
        if set(parts) != set(kinds) or not all(isinstance(parts[key], kinds[key]) for key in kinds):
            raise UsageError(f"{path}: row {number} has to be a name, options and perhaps paper, got {row!r}")
        if odd := [key for key in parts["options"] if "." not in str(key)]:
            raise UsageError(f"{path}: row {number}: {odd[0]!r} is not an option; write such as model.lr")
        for data, figures in parts["paper"].items():
            try:
                parse_published(figures)
            except (AttributeError, ValueError) as error:
                raise UsageError(
                    f"{path}: row {number}: {figures!r} for {data} is not a figure\nWrite acc=0.85±0.01"
                ) from error
        variants.append(_Variant(parts["name"], parts["options"], parts["paper"]))
    folders = [variant.folder for variant in variants]
    if "" in folders:
        name = variants[folders.index("")].name
        raise UsageError(f"{path}: {name!r} is not a name for a row: it names a folder\nUse letters")
    if twice := [variant.name for variant in variants if folders.count(variant.folder) > 1]:
        raise UsageError(f"{path}: two rows are called {twice[0]!r}; give each a name of its own")
    return path.stem, variants


def _lasting(words: list[str]) -> list[str]:
    """The options without those that say where and how it is shown, which change no figure."""
    shown = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for option in ("--logger", "--data.root", "--trainer.enable_progress_bar"):
        shown.add_argument(option)
    shown.add_argument("--quiet", action="store_true")
    return shown.parse_known_args(lasting_words(words))[1]


def _which(seeds: str, splits: str, command: str) -> list[str]:
    """`--seeds` and `--splits` where they are not the usual ones."""
    usual = "0" if splits or command == "test" else "0,1,2"
    options = [] if whole_numbers(seeds, "--seeds") == whole_numbers(usual, "--seeds") else ["--seeds", seeds]
    return [*options, *(["--splits", splits] if splits else [])]


def _is_heuristic(model: str) -> bool:
    try:
        return find_preset("model", model).header.get("kind") == "heuristic"
    except UsageError:
        return False  # a class path, or a name that the plan is going to refuse


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
        number = 1
        while (kept := folder.with_name(f"{folder.name}.stopped-{number}")).exists():
            number += 1
        folder.rename(kept)
    tell(f"{run}: starts\n")
    return start(arguments)
