"""Several runs of one setting: their seeds and splits, and the process that each runs in."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphzoo.errors import UsageError
from graphzoo.system.files import write_text_atomically
from graphzoo.system.json_file import read_json
from graphzoo.system.memory import raise_if_not_the_file

_MOST_NUMBERS = 10_000
# Where data lie and what is shown, which change no figure.
_SHOWN = ("--quiet", "--debug", "--logger", "--data.root", "--trainer.enable_progress_bar")


@dataclass(frozen=True)
class Run:
    """One run of the row; `split` is the `split_index`, None where the data have one split."""

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


def is_run_folder(name: str) -> bool:
    """Whether `Run.folder` names folders so.

    >>> is_run_folder("seed-0"), is_run_folder("split-1-seed-0"), is_run_folder("umls-seed-0")
    (True, True, False)
    """
    return re.fullmatch(r"(split-\d+-)?seed-\d+", name) is not None


def runs_of(seeds: str, splits: str) -> list[Run]:
    """All seeds on every split, splits first."""
    numbers = whole_numbers(seeds, "--seeds")
    if max(numbers) >= 2**32:
        raise UsageError(f"--seeds takes numbers from 0 to {2**32 - 1}, got {max(numbers)}")
    parts: list[int | None] = [*whole_numbers(splits, "--splits")] if splits else [None]
    return [Run(seed, split) for split in parts for seed in numbers]


def claim(folder: Path, record: Mapping[str, Any], words: Sequence[str], *, begun: bool, what: str) -> None:
    """Write down in `command.json` what a folder's runs are made of; other settings never get into it.

    The `record` must stay the same (of its options the `lasting_words`), and so must the content of files
    among the `words` of the command line. Until the folder has `begun` to hold runs, a new record replaces
    the old one. `what` it holds is for messages. A fingerprint of the data is called "data".
    """
    path, now = folder / "command.json", _with_files(record, words)
    if path.is_file() and begun:
        try:
            before = _written(path, now)
        except (OSError, ValueError, TypeError) as error:
            raise_if_not_the_file(error, path)
            raise UsageError(f"{path} is damaged ({error})\nGive another folder with --out DIR") from error
        if changed := [key for key in now if not _same(before.get(key), now[key])]:
            old: Any = before.get(changed[0])
            remedy = "Give another folder"
            if changed == ["files"]:
                files = now["files"]
                other = next(name for name in {**files, **old} if files.get(name) != old.get(name))
                change = f"with another content of {other}"
            elif changed == ["data"]:
                change = "of the data before they changed"
            else:
                are_words = isinstance(old, list) and all(isinstance(one, str) for one in old)
                change = f"with other {changed[0]}: {' '.join(old) if are_words else old}"
                remedy = "Give those again, or another folder"
            raise UsageError(f"{folder} holds {what} {change}\n{remedy} with --out DIR")
    write_text_atomically(path, json.dumps(now, ensure_ascii=False) + "\n")


def lasting_words(words: Sequence[str]) -> list[str]:
    """The words without those that change no figure, an option and its value in one.

    >>> lasting_words(["--model.lr", "0.1", "--quiet", "--logger", "csv", "--data.root=there", "--debug"])
    ['--model.lr=0.1']
    """
    return [word for word in _joined(words) if str(word).partition("=")[0] not in _SHOWN]


def is_claimed(folder: Path, record: Mapping[str, Any], words: Sequence[str]) -> bool:
    """Whether `claim` would take what the folder holds as runs of these settings."""
    now = _with_files(record, words)
    try:
        before = _written(folder / "command.json", now)
    except (OSError, ValueError, TypeError):
        return False
    return all(_same(before.get(key), now[key]) for key in now)


def _same(before: Any, now: Any) -> bool:
    """Whether two entries of a record are the same; options also where `=` stands for a blank."""
    if before == now or not (isinstance(before, list) and isinstance(now, list)):
        return bool(before == now)
    before, now = _joined(before), _joined(now)
    return before == now or _by_name(before) == _by_name(now) is not None


def _joined(words: Sequence[Any]) -> list[Any]:
    """Words of a command line, an option and its value in one.

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
    """Options by name, paths in one form; None where their order matters: `--x+=1`, one given twice, files.

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


def _with_files(record: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """The record with the content of files among the words, as it is written."""
    files = {}
    for word in words:
        name = word.rpartition("=")[2]
        if name.endswith((".yaml", ".yml")) and Path(name).is_file():
            files[name] = hashlib.sha256(Path(name).read_bytes()).hexdigest()
    options = lasting_words(record["options"])
    written: dict[str, Any] = json.loads(json.dumps({**record, "options": options, "files": files}))
    return written


def _written(path: Path, now: Mapping[str, Any]) -> dict[str, Any]:
    """An earlier record; what versions before this one did not write is taken to be as it is now."""
    before = read_json(path)
    if isinstance(before, list):
        before = {"options": before}
    before = {"files": now["files"], "data": now.get("data"), **before}
    return {**before, "options": lasting_words(before.get("options", []))}  # earlier versions wrote more


def whole_numbers(text: str, option: str) -> list[int]:
    """The numbers in `0,1,2`, `0-4` or a mix of both, each once; the option is named in errors.

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
            raise UsageError(f"{option} {text}: {part} is empty; write {last}-{first}")
        if len(numbers) + span[-1] - span[0] >= _MOST_NUMBERS:
            raise UsageError(f"{option} {text}: more than {_MOST_NUMBERS:,} numbers")
        numbers += span
    return list(dict.fromkeys(numbers))
