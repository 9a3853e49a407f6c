"""Runs of the same settings over seeds and splits, and the record of their settings in a folder."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphzoo.catalog.presets import own_roots, preset_roots
from graphzoo.errors import UsageError
from graphzoo.system.files import write_text_atomically
from graphzoo.system.json_file import read_json
from graphzoo.system.memory import raise_if_not_the_file

_MOST_NUMBERS = 10_000
# Options for the place of data and for the output, which do not affect results.
_SHOWN = ("--quiet", "--debug", "--logger", "--data.root", "--trainer.enable_progress_bar")


@dataclass(frozen=True)
class Run:
    """One run of a row; `split` is the `split_index`, or None if the data have only one split."""

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
        """The options of the command line for this seed and split."""
        split = [] if self.split is None else ["--data.split_index", str(self.split)]
        return [*split, "--seed", str(self.seed)]


def is_run_folder(name: str) -> bool:
    """Whether a name has the form of `Run.folder`.

    >>> is_run_folder("seed-0"), is_run_folder("split-1-seed-0"), is_run_folder("umls-seed-0")
    (True, True, False)
    """
    return re.fullmatch(r"(split-\d+-)?seed-\d+", name) is not None


def runs_of(seeds: str, splits: str) -> list[Run]:
    """All seeds on every split, ordered by split."""
    numbers = whole_numbers(seeds, "--seeds")
    if max(numbers) >= 2**32:
        raise UsageError(f"--seeds takes numbers from 0 to {2**32 - 1}, got {max(numbers)}")
    parts: list[int | None] = [*whole_numbers(splits, "--splits")] if splits else [None]
    return [Run(seed, split) for split in parts for seed in numbers]


def claim(
    folder: Path, record: Mapping[str, Any], *, configs: Sequence[str] = (), begun: bool, what: str
) -> None:
    """Write the settings of a folder's runs to `command.json`, and refuse a folder with other settings.

    A folder of another command is refused, too, even if that command has not begun any run.

    Two settings are the same if their records (of the options, the `lasting_words`) and the content of all
    configuration files are the same.

    Args:
        folder: The folder.
        record: The settings; "options" has the options, which name the configuration files, and "data" a
            fingerprint of the data if it is known.
        configs: The configuration files that the runs read, presets included.
        begun: Whether the folder has runs already. Otherwise the record replaces an earlier one.
        what: What the folder holds, for messages.

    Raises:
        UsageError: if the folder holds runs of other settings, or is of another command.
    """
    path, now = folder / "command.json", _with_files(record, configs)
    if path.is_file():
        try:
            before = _written(path, now)
        except (OSError, ValueError, TypeError) as error:
            raise_if_not_the_file(error, path)
            if begun:
                raise UsageError(
                    f"{path} is damaged ({error})\nGive another folder with --out DIR"
                ) from error
            before = now
        if before["command"] != now["command"]:
            raise UsageError(
                f"{folder} is a folder of graphzoo {before['command']}\nGive another folder with --out DIR"
            )
        if changed := begun and [key for key in now if not _same(before.get(key), now[key])]:
            old: Any = before.get(changed[0])
            remedy = "Give another folder"
            if changed == ["files"]:
                files = now["files"]
                other = next(name for name in {**files, **old} if files.get(name) != old.get(name))
                change = f"made before {other} changed"
            elif changed == ["data"]:
                change = "made before the data changed"
            else:
                are_words = isinstance(old, list) and all(isinstance(one, str) for one in old)
                change = f"with other {changed[0]}: {' '.join(old) if are_words else old}"
                remedy = "Give the same again, or another folder"
            raise UsageError(f"{folder} holds {what} {change}\n{remedy} with --out DIR")
    write_text_atomically(path, json.dumps(now, ensure_ascii=False) + "\n")


def lasting_words(words: Sequence[str]) -> list[str]:
    """The options that affect results, each joined with its value.

    >>> lasting_words(["--model.lr", "0.1", "--quiet", "--logger", "csv", "--data.root=there", "--debug"])
    ['--model.lr=0.1']
    """
    return [word for word in _joined(words) if str(word).partition("=")[0] not in _SHOWN]


def is_claimed(folder: Path, record: Mapping[str, Any], configs: Sequence[str] = ()) -> bool:
    """Whether the folder holds runs of these settings, so that `claim` would accept it."""
    now = _with_files(record, configs)
    try:
        before = _written(folder / "command.json", now)
    except (OSError, ValueError, TypeError):
        return False
    return all(_same(before.get(key), now[key]) for key in now)


def _same(before: Any, now: Any) -> bool:
    """Whether two entries of a record are the same; `--option=value` is the same as `--option value`."""
    if before == now or not (isinstance(before, list) and isinstance(now, list)):
        return bool(before == now)
    before, now = _joined(before), _joined(now)
    return before == now or _by_name(before) == _by_name(now) is not None


def _joined(words: Sequence[Any]) -> list[Any]:
    """Words of a command line, with each option joined to its value.

    >>> _joined(["--model.lr", "0.1", "--debug", "--seed=1"])
    ['--model.lr=0.1', '--debug', '--seed=1']
    """
    joined: list[Any] = []
    for word in words:
        before = str(joined[-1]) if joined else ""
        if before.startswith("--") and "=" not in before and not str(word).startswith("--"):
            joined[-1] = f"{before}={word}"
        else:
            joined.append(word)
    return joined


def _by_name(words: list[str]) -> dict[str, str] | None:
    """Options by name, with normalised paths; None if their order matters (`--x+=1`, repetition, `--config`).

    >>> _by_name(["--data.path=./club", "--model.lr=0.1"]) == _by_name(["--model.lr=0.1", "--data.path=club"])
    True
    """
    found = {}
    for word in words:
        name, _, value = word.partition("=")
        if not name.startswith("--") or name.endswith("+") or name in found or name == "--config":
            return None
        found[name] = os.path.normpath(value) if name.endswith("path") and value else value
    return found


def _with_files(record: Mapping[str, Any], configs: Sequence[str]) -> dict[str, Any]:
    """The record as it is written, with its command and a hash of each configuration file."""
    names = {name: name for name in (word.rpartition("=")[2] for word in record["options"])}
    names = {name: name for name in names if name.endswith((".yaml", ".yml", ".json"))}
    # a file that is named has the name that is typed
    names = {name: shown for name in configs if (shown := _name_of_config(name))} | names
    files = {
        shown: hashlib.sha256(Path(name).read_bytes()).hexdigest()
        for name, shown in names.items()
        if Path(name).is_file()
    }
    options = lasting_words(record["options"])
    whole = {"command": _command_of(record), **record, "options": options, "files": files}
    written: dict[str, Any] = json.loads(json.dumps(whole))
    return written


def _name_of_config(file: str) -> str:
    """The name of a configuration file in a record; "" for a preset of graphzoo, which versions change."""
    own = own_roots()
    for root in preset_roots():
        if Path(file).is_relative_to(root):
            return f"$GRAPHZOO_CONFIGS/{Path(file).relative_to(root).as_posix()}" if root in own else ""
    return file


def _command_of(record: Mapping[str, Any]) -> str:
    """The command that a record is of, by what it has; older versions did not write it."""
    usual = "compare" if "models" in record else "search" if "sampler" in record else "reproduce"
    return str(record.get("command", usual))


def _written(path: Path, now: Mapping[str, Any]) -> dict[str, Any]:
    """Read an earlier record; entries that older versions did not write count as unchanged."""
    before = read_json(path)
    if isinstance(before, list):
        before = {"options": before}
    if not isinstance(before, dict):
        raise ValueError("it holds no settings")
    files = {} if "command" in before else now["files"]  # older versions left out some of them
    files = {**files, **before.get("files", now["files"])}
    before = {"command": _command_of(before), "data": now.get("data"), **before, "files": files}
    return {**before, "options": lasting_words(before.get("options", []))}  # older versions wrote all options


def whole_numbers(text: str, option: str) -> list[int]:
    """The distinct numbers in a text such as `0,1,2` or `0-4,7`; `option` is its name, for messages.

    >>> whole_numbers("0-2,7", "--seeds")
    [0, 1, 2, 7]
    """
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"{option} takes numbers such as 0,1,2 or 0-4, got {text!r}")
        span = range(int(first), int(last if dash else first) + 1)
        if not span:
            raise UsageError(f"{option} {text}: the range {part} runs backwards; write {last}-{first}")
        if len(numbers) + span[-1] - span[0] >= _MOST_NUMBERS:
            raise UsageError(f"{option} {text}: more than {_MOST_NUMBERS:,} numbers")
        numbers += span
    return list(dict.fromkeys(numbers))
