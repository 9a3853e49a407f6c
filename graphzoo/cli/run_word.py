"""How every command takes a run: as a word of its own, or behind `--ckpt_path`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from graphzoo.catalog.weights import WEIGHTS
from graphzoo.cli.options import Parser
from graphzoo.errors import UsageError
from graphzoo.runs.checkpoints import locate
from graphzoo.system.paths import typed

_BY_NAME = ("best", "last", *WEIGHTS)


def add_run(parser: Parser, what: str, *, several: bool = False) -> None:
    """Let a parser take a run, or several, in both ways; see `run_of` and `runs_of`."""
    parser.add_argument("run", nargs="*" if several else "?", metavar="RUN", help=what)
    add = parser.add_argument
    if several:
        add(
            "--ckpt_path", action="append", default=[], metavar="RUN", help="the same as RUN; may be repeated"
        )
    else:
        add("--ckpt_path", metavar="RUN", help="the same as RUN")


def run_of(command: str, args: argparse.Namespace) -> str | None:
    """The run that the words of a command name; None where they name none."""
    given: list[str] = [word for word in (args.run, args.ckpt_path) if word is not None]
    if len(given) > 1:
        raise _twice(command, *given)
    return given[0] if given else None


def runs_of(args: argparse.Namespace) -> list[str]:
    """The runs that the words of a command name."""
    return [*args.run, *args.ckpt_path]


def run_as_option(command: str, words: Sequence[str]) -> list[str]:
    """The words of a command that Lightning reads, a run in front of them behind `--ckpt_path`."""
    first = words[0] if words else "-"
    if first.startswith("-") or not (first in _BY_NAME or Path(first).exists()):
        return list(words)
    for place, word in enumerate(words):
        if word == "--ckpt_path" or word.startswith("--ckpt_path="):
            raise _twice(command, first, word.partition("=")[2] or "".join(words[place + 1 : place + 2]))
    return [f"--ckpt_path={first}", *words[1:]]


def folder_of_run(word: str) -> Path:
    """The run directory that a word means; of anything but a checkpoint the path itself."""
    path = Path(word)
    if (word in WEIGHTS and not path.exists()) or (path / "model.safetensors").is_file():
        raise UsageError(
            f"{word} holds weights without a run: there are no curves to draw\n"
            f"Evaluate it: graphzoo test --ckpt_path {typed(path)} --data NAME, and plot that run"
        )
    if word not in ("best", "last") and path.suffix != ".ckpt" and path.name != "checkpoints":
        return path
    checkpoint, run = locate("plot", word)
    if run is None:
        raise UsageError(f"{checkpoint} lies in no run directory\nGive the folder that graphzoo fit named")
    return run


def _twice(command: str, one: str, other: str) -> UsageError:
    return UsageError(f"{command} takes one run, got {one} and {other}\nLeave one of them out")
