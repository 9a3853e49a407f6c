"""Plans what `graphzoo reproduce` is to run: a row of a table, or the rows of an ablation."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphzoo.catalog.presets import find_preset
from graphzoo.catalog.settings import read_settings, value_of_word, words_of
from graphzoo.cli.options import refuse_options
from graphzoo.errors import UsageError
from graphzoo.runs.checkpoints import RUNS
from graphzoo.runs.directory import name_of_data
from graphzoo.runs.published import Published, parse_published, published_values
from graphzoo.runs.series import Run, runs_of
from graphzoo.training.options import config_files
from graphzoo.training.plan import Plan, make_plan
from graphzoo.training.start import settings_of


@dataclass(frozen=True)
class Variant:
    """One row of an ablation."""

    name: str = ""  # what sets it apart; empty for the only row
    options: dict[str, Any] = field(default_factory=dict)  # of `fit`, that it adds
    paper: dict[str, str] = field(default_factory=dict)  # data -> published scores, as recipes write them

    @property
    def folder(self) -> str:
        """Name of its folder below that of the ablation."""
        return re.sub(r"[^a-z0-9.]+", "-", self.name.lower()).strip("-.")

    def published(self, plan: Plan) -> dict[str, Published]:
        """The paper's scores for this row."""
        if not self.name:
            return published_values(plan.model, plan.recipe, plan.data)
        recipe = plan.recipe.rpartition("/")[2]
        return parse_published(self.paper.get(recipe, self.paper.get(plan.data, "")))


@dataclass(frozen=True)
class Row:
    """A row with its runs; several rows, one for each variant, where it is an ablation."""

    plan: Plan  # what its first run is asked for
    command: str  # of each run, fit or test
    options: list[str]  # of each run
    rest: list[str]  # those of them that were typed, but for model and data
    seeds: str  # as typed, or the usual ones
    splits: str  # as typed; empty for one split
    variants: list[Variant]  # one for each row of the table
    title: str  # of the ablation; empty without one
    base: Path  # where all of it goes
    in_process: bool  # all runs share this process

    @property
    def runs(self) -> list[Run]:
        """What each variant averages."""
        return runs_of(self.seeds, self.splits)

    def folder(self, variant: Variant) -> Path:
        """Where the runs and the row.json of a variant go."""
        return self.base / variant.folder if variant.name else self.base

    def words(self, variant: Variant) -> list[str]:
        """The options of the runs of a variant, to which its folder is claimed."""
        return [*self.options, *words_of(variant.options)]

    def check(self) -> None:
        """Refuse wrong options of all variants before the first one runs."""
        typed = {_option_of(word) for word in self.options if word.startswith("--")}
        for variant in self.variants:
            if twice := sorted(typed & {_option_of(f"--{name}") for name in variant.options}):
                raise UsageError(
                    f"{self.title}, {variant.name!r}: the ablation sets {twice[0]}, and so does the command\n"
                    f"Leave --{twice[0]} out"
                )
            try:
                settings_of(self.command, self.words(variant))
            except UsageError as error:
                message = f"{self.title}, {variant.name!r}: {error}" if variant.name else str(error)
                raise UsageError(message) from error

    @property
    def configs(self) -> list[str]:
        """The configuration files that its runs read, presets included."""
        return config_files(self.plan.arguments)

    @property
    def folders(self) -> list[Path]:
        """Those of all variants."""
        return [self.folder(variant) for variant in self.variants]


def _option_of(word: str) -> str:
    """The option of `--model.init_args.lr=0.1`: `model.lr`."""
    return word.removeprefix("--").partition("=")[0].replace(".init_args", "")


def plan_row(args: argparse.Namespace, rest: Sequence[str], runs: Path = RUNS) -> Row:
    """Plan the row or rows that a command line asks for, without writing anything.

    A heuristic has nothing to fit. It is tested, by default with one seed, since it is deterministic.

    Args:
        args: Options that `reproduce_parser` has read.
        rest: Other words, for `graphzoo fit`.
        runs: Folder of rows for which no `--out` is given.
    """
    more = [*rest] if args.recipe is None else [*rest, "--recipe", args.recipe]
    command = "test" if _is_heuristic(args.model) else "fit"
    # Splits differ more than seeds do, and published rows take one run of each.
    usual = "0" if args.splits or command == "test" else "0,1,2"
    seeds = usual if args.seeds is None else args.seeds
    refuse_options(more, "reproduce", splits=bool(args.splits))
    runs_of(seeds, args.splits)
    options = ["--model", args.model, "--data", args.data, *more]
    plan = make_plan(command, options)  # unknown names are told before any seed runs
    title, variants = _read_ablation(args.ablation, plan) if args.ablation else ("", [Variant()])
    base = args.out or _usual_folder(plan, args.ablation, runs)
    return Row(
        plan, command, options, rest=more, seeds=seeds, splits=args.splits, variants=variants, title=title,
        base=base, in_process=args.in_process,
    )  # fmt: skip


def _usual_folder(plan: Plan, ablation: str, runs: Path) -> Path:
    """Where a row goes that is given no folder of its own."""
    row = f"{plan.model}-{name_of_data(plan.data, data_paths(plan.typed))}"
    if plan.recipe and plan.recipe != f"{plan.model}/{plan.data}":
        row += "-" + plan.recipe.rpartition("/")[2]
    return runs / "ablation" / f"{row}-{Path(ablation).stem}" if ablation else runs / "reproduce" / row


def data_paths(words: Sequence[str]) -> list[str] | None:
    """Own data that options name; None without any.

    >>> data_paths(["--data.path", "mine"]), data_paths(["--data.path=[a.tsv, b.tsv]", "--seed=0"])
    (['mine'], ['a.tsv', 'b.tsv'])
    >>> data_paths(["--data.path=null"]), data_paths(["--data.path"])
    (None, None)
    """
    known = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    known.add_argument("--data.path", "--data.init_args.path", dest="path", nargs="?")
    path = known.parse_known_args(words)[0].path
    listed = value_of_word(path or "null")
    if listed is None:
        return None
    return [str(part) for part in listed] if isinstance(listed, list) else [path]


def _read_ablation(name: str, plan: Plan) -> tuple[str, list[Variant]]:
    """Title and rows of an ablation, by name or from a file."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise UsageError(f"there is no ablation file {name!r}")
    else:
        path = find_preset("ablation", name, model=plan.model).path
    content = read_settings(path)
    listed = content.get("rows") if isinstance(content, dict) else None
    if not isinstance(listed, list) or not listed:
        raise UsageError(
            f"{path} has no rows\nWrite `rows:` and below it `- {{name: ..., options: {{...}}}}`"
        )
    variants: list[Variant] = []
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
                    f"{path}: row {number}: {figures!r} for {data} is not a score\nWrite acc=0.85±0.01"
                ) from error
        variants.append(Variant(parts["name"], parts["options"], parts["paper"]))
    folders = [variant.folder for variant in variants]
    if "" in folders:
        name = variants[folders.index("")].name
        raise UsageError(
            f"{path}: {name!r} is not a name for a row: it names a folder\nUse letters a to z or digits"
        )
    if twice := [variant.name for variant in variants if folders.count(variant.folder) > 1]:
        raise UsageError(f"{path}: two rows are called {twice[0]!r}; give each a name of its own")
    return path.stem, variants


def _is_heuristic(model: str) -> bool:
    try:
        return find_preset("model", model).header.get("kind") == "heuristic"
    except UsageError:
        return False  # a class path, or a name that the plan is going to refuse
