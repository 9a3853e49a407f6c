"""The parser of all commands except fit, validate and test, and checks of what they pass to fit."""

from __future__ import annotations

import argparse
import math
import os
import re
from argparse import RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any, NoReturn

from graphzoo.catalog.presets import list_presets
from graphzoo.catalog.tasks import TASKS
from graphzoo.errors import UsageError, nearest, suggestion
from graphzoo.runs.series import whole_numbers
from graphzoo.training.options import FLAGS, is_known, near_options, whole_option
from graphzoo.training.start import settings_of

WIDTH = 80
"""Columns of a terminal, into which help fits."""


class Parser(argparse.ArgumentParser):
    """An argparse parser with errors of two lines, in which dashes of names may be underscores.

    `usage` is the text behind the command's name; `epilog` is shown as it is.
    """

    def __init__(self, command: str, usage: str, about: str, epilog: str | None = None) -> None:
        super().__init__(
            prog=f"graphzoo {command}",
            usage=f"graphzoo {command} {usage}",
            description=fill(about, WIDTH),
            epilog=epilog,
            formatter_class=partial(RawDescriptionHelpFormatter, max_help_position=28, width=WIDTH),
            allow_abbrev=False,
        )
        self.command = command
        # `graphzoo.cli.commands` reads it at any place; here it is for the help
        self.add_argument("--debug", action="store_true", help=FLAGS["debug"])

    @property
    def actions(self) -> list[argparse.Action]:
        """The options and positional words, in their order."""
        return list(self._actions)

    def read(self, argv: Iterable[str]) -> argparse.Namespace:
        """Parse a command line; an unknown option is refused with the nearest known one."""
        words = self._spelt(argv)
        known = [name for action in self.actions for name in action.option_strings]
        for word in words:
            name = word.partition("=")[0]
            if name.startswith("--") and name not in known:
                self.refuse(f"unknown option {name}", suggestion(name, known))
        args, rest = self.parse_known_args(words)
        if rest:
            self.refuse(f"{self.command} takes no {rest[0]!r}")
        return args

    def read_some(self, argv: Iterable[str]) -> tuple[argparse.Namespace, list[str]]:
        """Parse a command line whose other words are for `graphzoo fit`, and return those in their order."""
        args, rest = self.parse_known_args(self._spelt(argv))
        for word in rest:
            name = word.partition("=")[0].rstrip("+")
            if name.startswith("--") and "." not in name and not is_known(name[2:]):
                own = nearest(name, [each for action in self.actions for each in action.option_strings])
                near = [*own, *(each for each in near_options(name[2:]) if not _problem(each, self.command))]
                hint = f"Did you mean: {', '.join(dict.fromkeys(near))}?" if near else ""
                self.refuse(f"unknown option {name}", hint)
        return args, [*rest, "--debug"] if args.debug else rest

    def refuse(self, message: str, hint: str = "") -> NoReturn:
        """Raise a `UsageError` with a hint, or with the way to the help."""
        raise UsageError(f"{message}\n{hint or f'See {self.prog} --help'}")

    def error(self, message: str) -> NoReturn:
        """Turn an error of argparse into a `UsageError` in our words."""
        match = re.fullmatch(r"argument ([^:/]+)[^:]*: (.*)", message, re.DOTALL)
        if match is None:
            self.refuse(message)
        name, problem = match.groups()
        if problem == "expected one argument":
            self.refuse(f"{name} needs a value")
        if problem.startswith("ignored explicit argument"):
            self.refuse(f"{name} takes no value")
        if value := re.match(r"invalid choice: '?(.*?)'? \(choose", problem, re.DOTALL):
            choices = next(
                [str(choice) for choice in action.choices]
                for action in self.actions
                if action.choices and name in (*action.option_strings, action.metavar, action.dest)
            )
            problem = f"{name} is one of {', '.join(choices)}, got {value[1]!r}"
            self.refuse(problem, suggestion(value[1], choices))
        self.refuse(f"{name}: {problem}" if problem.startswith("expected") else f"{name} {problem}")

    def _spelt(self, argv: Iterable[str]) -> list[str]:
        """The words, with options spelt as in the help: `--top_k` becomes `--top-k`."""
        names = {name.replace("_", "-"): name for action in self.actions for name in action.option_strings}
        words = [word.partition("=") for word in argv]
        return [
            (names.get(name.replace("_", "-"), name) if name.startswith("--") else name) + equals + value
            for name, equals, value in words
        ]


def at_least(low: float, *, whole: bool = False) -> Callable[[str], float]:
    """A type of option: a finite number of at least `low`; with `whole`, an integer."""

    def number(text: str) -> float:
        try:
            value = int(text) if whole else float(text)
        except ValueError:
            value = math.nan
        if not low <= value < math.inf:
            kind = "whole number" if whole else "number"
            raise argparse.ArgumentTypeError(f"takes a {kind} of at least {low:g}, got {text!r}")
        return value

    return number


def out_folder(text: str) -> Path:
    """A type of option: a folder, which need not exist yet."""
    # a shell leaves the `~` of --out=~/rows, and that in a line of `reproduce --all`
    if (path := Path(os.path.expanduser(text))).exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a file; give a folder that does not exist yet")
    return path


def pair_first(command: str, argv: Sequence[str]) -> Sequence[str]:
    """Require that the words of a command begin with a model and a data set, or ask for help.

    Elsewhere, the value of an option of `graphzoo fit` might be taken for one of them.
    """
    names = [word for word in argv[:2] if not word.startswith("-")]
    if len(names) < 2 and not {"-h", "--help"} & {*argv}:
        raise UsageError(f"{command} needs a model and a data set\nSee graphzoo {command} --help")
    return argv


def refuse_options(rest: list[str], command: str, *, splits: bool) -> None:
    """Refuse options that the command sets itself for each run, and options of runs without results."""
    for token, following in zip(rest, [*rest[1:], ""], strict=False):
        name, equals, value = token.partition("=")
        value = value if equals else following
        if name.replace("-", "_") in ("__output", "__output_dir", "__out_dir"):
            raise UsageError(f"unknown option {name}\nDid you mean: --out?")
        if problem := _problem(name, command):
            raise UsageError(problem)
        if name == "--trainer.fast_dev_run" and value.lower() not in ("false", "0"):
            raise UsageError(f"{command} cannot use {name}: such a run leaves no results")
        if command == "reproduce" and name == "--trainer.limit_test_batches" and _is_zero(value):
            raise UsageError(f"reproduce cannot use {name} {value}: a row needs its test\nLeave it out")
        if splits and name.endswith(".split_index"):
            raise UsageError("--splits sets --data.split_index itself; leave it out")


def _is_zero(value: str) -> bool:
    try:
        return float(value) == 0
    except ValueError:  # what is no number is refused with the other values of fit
        return False


def _problem(name: str, command: str) -> str:
    """Why reproduce, search or compare does not take this option of fit; "" if it does."""
    short = name.removeprefix("--").replace("-", "_") if name.startswith("--") else ""
    meant = whole_option(short)
    if meant in ("--seed", "--seed_everything", "--run_dir", "--ckpt_path", "--model", "--data"):
        left_out = "it" if meant == name else name
        return f"{command} sets {meant} itself; leave {left_out} out"
    if command == "compare" and meant == "--trainer.max_time":
        return f"compare sets {meant} of each run itself\nGive the time for all runs together: --minutes"
    if short == "dry_run":
        remedy = "See what one takes: graphzoo fit --dry-run with the same model, data and options"
        return f"{command} cannot use {name}: it times one run\n{remedy}"
    unfit = short.startswith(("print_config", "help")) or short.endswith(".help")
    unfit |= command == "reproduce" and short == "no_test"
    return f"{command} cannot use {name}: such a run leaves no results" if unfit else ""


def check_splits(command: str, data: str, splits: str, options: list[str]) -> None:
    """Refuse splits that the data do not have, before a run begins.

    `options` are the command line without seed and split; they are needed to build data given as a class.
    """
    if not splits:
        return
    presets = {preset.name: preset for preset in list_presets("data")}
    task = TASKS.get(presets[data].header.get("task", "")) if data in presets else None
    # of triples only one's own, whose preset is called as the task, may have several
    if task is not None and not task.has_splits and data != task.kind:
        message = f"{data} has one split: leave --splits {splits} out"
        raise UsageError(f"{message}; --seeds 0,1,2 makes several runs")
    last = max(whole_numbers(splits, "--splits"))
    count = _num_splits(settings_of(command, options).get("data") or {}, last) if last else None
    if count is not None and last >= count:
        have = "one split, 0" if count == 1 else f"{count} splits, 0 to {count - 1}"
        remedy = "--splits 0" if count == 1 else f"--splits 0-{count - 1}"
        drawn = "choose a split that is drawn (--data.split, --data.protocol)"
        if task is not None and not task.has_splits:
            drawn = "give no valid and test files: then they are drawn"
        message = f"{data} has {have}: there is no split {last} of --splits {splits}"
        raise UsageError(f"{message}\nGive {remedy}, or {drawn}")


def _num_splits(section: Mapping[str, Any], index: int) -> int | None:
    """How many splits the data of a configuration have; None if they are drawn, or if this is unknown.

    Split `index` is the one that is drawn to find out.
    """
    from graphzoo import datamodules

    module, _, name = str(section.get("class_path")).rpartition(".")
    if not module.startswith("graphzoo.") or name not in ("KGDataModule", "NodeDataModule", "LinkDataModule"):
        return None
    wanted = ("name", "path", "root", "download", "split", "protocol", "num_neighbors", "neighbor_metric")
    given = section.get("init_args") or {}
    arguments = {key: given[key] for key in wanted if given.get(key) is not None}
    count: int | None = getattr(datamodules, name)(**arguments, split_index=index).num_splits
    return count
