"""Options of commands that start several runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphzoo.catalog.presets import list_presets
from graphzoo.errors import UsageError
from graphzoo.runs.series import whole_numbers
from graphzoo.training.start import settings_of

__all__ = ["check_splits", "lasting_words", "refuse_options", "take_flag", "take_option"]


def refuse_options(rest: list[str], command: str, *, splits: bool, usage: str) -> None:
    """Refuse options that a command sets itself for each of its runs, and those that leave no results.

    Args:
        rest: Words of the command line.
        command: "reproduce" or "search".
        splits: Whether the command chooses the splits.
        usage: Last line of the error.

    Raises:
        UsageError: naming the option.
    """
    for token in rest:
        name, _, value = token.partition("=")
        if name in ("--seed", "--seed_everything", "--run_dir", "--ckpt_path", "--model", "--data"):
            raise UsageError(f"{command} sets {name} itself; leave it out\n{usage}")
        if name.replace("-", "_") in ("__output", "__output_dir", "__out_dir"):
            raise UsageError(f"unknown option {name}\nDid you mean: --out?")
        if name.replace("-", "_") == "__dry_run":
            raise UsageError(
                f"{command} cannot use {name}: it times one run\n"
                "See what one takes: graphzoo fit --dry-run with the same model, data and options"
            )
        unfit = name.startswith(("--print_config", "--help")) or name.endswith(".help")
        unfit = unfit or (command == "reproduce" and name.replace("-", "_") == "__no_test")
        if unfit or (name == "--trainer.fast_dev_run" and value.lower() not in ("false", "0")):
            raise UsageError(f"{command} cannot use {name}: such a run leaves no results\n{usage}")
        if splits and name.endswith(".split_index"):
            raise UsageError(f"--splits sets --data.split_index itself; leave it out\n{usage}")


def check_splits(command: str, data: str, splits: str, options: list[str]) -> None:
    """Refuse splits that the data have not, before a run begins.

    Args:
        command: Of the runs, fit or test.
        data: Name of a preset, or a class path, which only its own settings know.
        splits: As typed.
        options: Of all runs: the whole command line but for seed and split.

    Raises:
        UsageError: naming the data and how many splits they have.
    """
    if not splits:
        return
    presets = {preset.name: preset for preset in list_presets("data")}
    if data in presets and presets[data].header.get("task") == "kg-completion":
        raise UsageError(
            f"{data} has one split: leave --splits {splits} out; --seeds 0,1,2 makes several runs"
        )
    last = max(whole_numbers(splits, "--splits"))
    count = _num_splits(settings_of(command, options).get("data") or {}) if last else None
    if count is not None and last >= count:
        have = "one split, 0" if count == 1 else f"{count} splits, 0 to {count - 1}"
        remedy = "--splits 0" if count == 1 else f"--splits 0-{count - 1}"
        raise UsageError(
            f"{data} has {have}: there is no split {last} of --splits {splits}\n"
            f"Give {remedy}, or choose a split that is drawn (--data.split, --data.protocol)"
        )


def _num_splits(section: Mapping[str, Any]) -> int | None:
    """How many splits the data of a configuration have; None: as many as are wanted, or nobody can say."""
    from graphzoo import datamodules

    module, _, name = str(section.get("class_path")).rpartition(".")
    if not module.startswith("graphzoo.") or name not in ("NodeDataModule", "LinkDataModule"):
        return None
    wanted = ("name", "path", "root", "download", "split", "protocol", "num_neighbors")
    given = section.get("init_args") or {}
    arguments = {key: given[key] for key in wanted if given.get(key) is not None}
    found: int | None = getattr(datamodules, name)(**arguments).num_splits
    return found


def take_option(rest: list[str], option: str, default: str, usage: str) -> tuple[str, list[str]]:
    """The value of `option`, written `--option value` or `--option=value`, and the other words.

    Args:
        rest: Words of a command line.
        option: With its dashes.
        default: Its value where it is not given.
        usage: Last line of the error.

    Raises:
        UsageError: if its value is missing.
    """
    kept: list[str] = []
    value = default
    words = iter(rest)
    for word in words:
        name, equals, text = word.partition("=")
        if name != option:
            kept.append(word)
            continue
        found = text if equals else next(words, "")
        if not found or found.startswith("--"):
            raise UsageError(f"{option} needs a value\n{usage}")
        value = found
    return value, kept


def take_flag(rest: list[str], flag: str) -> tuple[bool, list[str]]:
    """Whether `flag` is there, and the other words."""
    return flag in rest, [word for word in rest if word != flag]


def lasting_words(words: list[str]) -> list[str]:
    """The words without `--debug`, which makes no other run."""
    return take_flag(words, "--debug")[1]
