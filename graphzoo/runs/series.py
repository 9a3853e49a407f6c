"""Several runs of one setting: their seeds and splits, and the process that each runs in."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from graphzoo.catalog.presets import list_presets
from graphzoo.errors import UsageError
from graphzoo.system.json_file import read_json

__all__ = [
    "Run",
    "check_splits",
    "claim",
    "lasting_words",
    "one_device",
    "refuse_options",
    "run_command",
    "run_here",
    "runs_of",
    "settings_of",
    "take_flag",
    "take_option",
    "whole_numbers",
    "word_of",
]


@dataclass(frozen=True)
class Run:
    """One run of the row.

    Args:
        seed: Its seed.
        split: The `split_index`; None where the data have one split.
    """

    seed: int
    split: int | None = None

    def __str__(self) -> str:
        return f"seed {self.seed}" if self.split is None else f"split {self.split}, seed {self.seed}"

    @property
    def folder(self) -> str:
        """Name of its run directory."""
        return f"seed-{self.seed}" if self.split is None else f"split-{self.split}-seed-{self.seed}"

    @property
    def options(self) -> list[str]:
        """What it adds to the command line."""
        split = [] if self.split is None else ["--data.split_index", str(self.split)]
        return [*split, "--seed", str(self.seed)]


def runs_of(seeds: str, splits: str) -> list[Run]:
    """All seeds on every split, splits first.

    Args:
        seeds: Such as "0,1,2".
        splits: Such as "0-9"; empty for data with one split.

    Raises:
        UsageError: for anything else.
    """
    numbers = whole_numbers(seeds, "--seeds")
    parts: list[int | None] = [*whole_numbers(splits, "--splits")] if splits else [None]
    return [Run(seed, split) for split in parts for seed in numbers]


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


def settings_of(command: str, options: list[str]) -> dict[str, Any]:
    """The whole configuration of a training command with these options, defaults included.

    Args:
        command: fit or test.
        options: Words after it.

    Raises:
        UsageError: for options that the command would refuse.
    """
    import yaml

    from graphzoo.training.launch import run_plan
    from graphzoo.training.plan import make_plan

    said, refused = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(refused):
        status = run_plan(make_plan(command, [*options, "--print_config"]))
    if status:
        raise UsageError(refused.getvalue().strip().removeprefix("graphzoo: "))
    found: dict[str, Any] = yaml.safe_load(said.getvalue())
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


def claim(folder: Path, record: Mapping[str, Any], words: Sequence[str], *, begun: bool, what: str) -> None:
    """Write down what a folder's runs are made of; runs of other settings never get into it.

    Args:
        folder: Is made if it is not there.
        record: Plain values that must stay the same, kept in `command.json`.
        words: The command line; of the files it names the content must stay the same too.
        begun: Whether the folder holds runs already. Before that, a new record replaces the old one.
        what: What the folder holds, for the message.

    Raises:
        UsageError: naming what has changed.
    """
    path = folder / "command.json"
    files = {}
    for word in words:
        name = word.rpartition("=")[2]
        if name.endswith((".yaml", ".yml")) and Path(name).is_file():
            files[name] = hashlib.sha256(Path(name).read_bytes()).hexdigest()
    now = json.loads(json.dumps({**record, "files": files}))
    if path.is_file() and begun:
        try:
            before = read_json(path)
            if isinstance(before, list):  # of earlier versions
                before = {"options": before}
            before = {"files": files, **before}
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(f"{path} is damaged ({error})\nGive another folder with --out DIR") from error
        changed = [key for key in now if before.get(key) != now[key]]
        if changed == ["files"]:
            old = before["files"]
            other = next(name for name in {**files, **old} if files.get(name) != old.get(name))
            raise UsageError(
                f"{folder} holds {what} with another content of {other}\nGive another folder with --out DIR"
            )
        if changed:
            old = before.get(changed[0])
            told = " ".join(old) if isinstance(old, list) and all(isinstance(o, str) for o in old) else old
            raise UsageError(
                f"{folder} holds {what} with other {changed[0]}: {told}\n"
                "Give those again, or another folder with --out DIR"
            )
    folder.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"command.{os.getpid()}.part")
    temporary.write_text(json.dumps(now, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)


def take_flag(rest: list[str], flag: str) -> tuple[bool, list[str]]:
    """Whether `flag` is there, and the other words."""
    return flag in rest, [word for word in rest if word != flag]


def lasting_words(words: list[str]) -> list[str]:
    """The words without `--debug`, which makes no other run."""
    return take_flag(words, "--debug")[1]


def one_device(words: list[str]) -> list[str]:
    """The words with one device, unless they say which: Lightning would start further processes."""
    if any(word.partition("=")[0] == "--trainer.devices" for word in words):
        return words
    return [*words, "--trainer.devices=1"]


def word_of(value: Any) -> str:
    """A plain value as a command line and YAML write it.

    >>> word_of(None), word_of(True), word_of(0.5), word_of([1, 2])
    ('null', 'true', '0.5', '[1, 2]')
    """
    return value if isinstance(value, str) else json.dumps(value)


def whole_numbers(text: str, option: str) -> list[int]:
    """The numbers in `0,1,2`, `0-4` or a mix of both, each once.

    Args:
        text: As typed.
        option: Named in the error.

    Raises:
        UsageError: for anything else.

    >>> whole_numbers("0-2,7", "--seeds")
    [0, 1, 2, 7]
    """
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"{option} takes numbers such as 0,1,2 or 0-4, got {text!r}")
        found = range(int(first), int(last if dash else first) + 1)
        if not found:
            raise UsageError(f"{option} {text}: {part} is empty; write {last}-{first}")
        numbers += found
    return list(dict.fromkeys(numbers))


def run_command(arguments: list[str]) -> int:
    """Run the command in a process of its own: Lightning starts more with this one's command line.

    Args:
        arguments: Words after `graphzoo`.

    Returns:
        Its exit status, 128 and the signal's number where one ended it.
    """
    dropped = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "GRAPHZOO_RUN_DIR", "PL_GLOBAL_SEED")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    # A Ctrl-C reaches both processes; a SIGTERM this one alone. Either way the seed saves, and then both end.
    with subprocess.Popen([sys.executable, "-m", "graphzoo.cli", *arguments], env=environment) as process:
        before = _pass_on(process)
        try:
            status = process.wait()
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)
    return 128 - status if status < 0 else status


def _pass_on(process: subprocess.Popen[bytes]) -> dict[signal.Signals, Any]:
    if threading.current_thread() is not threading.main_thread():
        return {}

    def forward(signum: int, frame: FrameType | None) -> None:
        process.send_signal(signum)

    return {
        signal.SIGTERM: signal.signal(signal.SIGTERM, forward),
        signal.SIGINT: signal.signal(signal.SIGINT, lambda signum, frame: None),
    }


def run_here(arguments: list[str]) -> int:
    """Run the command in this process, which has loaded everything already.

    Args:
        arguments: Words after `graphzoo`.

    Returns:
        Its exit status.
    """
    from graphzoo.cli import main

    return main(arguments)
