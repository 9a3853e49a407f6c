"""The `graphzoo` command. It imports only the standard library until a command needs torch.

So help, lists, unknown names and impossible combinations are answered at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphzoo.cli.terminal import fail, show
from graphzoo.datasets.files.text import as_a_command
from graphzoo.errors import UsageError, of_system, shorten, suggestion
from graphzoo.system.openmp import shorten_waits
from graphzoo.system.progress import with_lines
from graphzoo.system.streams import Unread, drop_output, open_streams

if TYPE_CHECKING:
    from graphzoo.cli.options import Parser


COMMANDS = {
    "fit": "train a model, then test its best checkpoint",
    "validate": "evaluate a checkpoint on the validation split",
    "test": "evaluate a checkpoint on the test split",
    "predict": "answer queries by name with a trained model",
    "reproduce": "train several seeds and compare their mean with the paper",
    "export": "write a trained model into a folder to share",
    "results": "print finished runs as a table: terminal, Markdown or CSV",
    "plot": "draw curves, results and attention of runs, as an HTML report",
    "dashboard": "make a workspace for the runs in Weights & Biases",
    "compare": "try models on a graph and say which to take",
    "search": "search for settings on the validation split",
    "list": "list models, data sets, recipes, trainer settings and loggers",
    "download": "fetch data sets, to work without a network later",
    "doctor": "show versions, devices, fast kernels and what is missing",
    "clean": "remove cached files; they are rebuilt when needed",
    "completion": "complete names and options with Tab in bash, zsh and fish",
}
"""`graphzoo NAME` is `NAME_main` of `graphzoo/cli/NAME.py`, unless `_FILES` names another file."""
_FILES = {"validate": "fit", "test": "fit", "list": "lists", "download": "lists"}
_TRAINING = ("fit", "validate", "test")
# Commands that handle --debug themselves.
_OWN_DEBUG = (*_TRAINING, "predict", "reproduce", "search")
_ANYWHERE = ("list", "doctor", "clean", "completion", "download")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, by default the process's own.

    The exit status is 1 for a failed run, 2 for a wrong command line, 130 or 143 for an interrupted one.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    if debug:  # it may stand anywhere; behind all others, it moves no positional word
        arguments = [word for word in arguments if word != "--debug"]
        arguments += ["--debug"] if arguments[:1] and arguments[0] in _OWN_DEBUG else []
    open_streams()
    shorten_waits()
    try:
        if arguments[:1] and arguments[0] in COMMANDS and arguments[0] not in _ANYWHERE:
            _check_folder()
        with as_a_command(), with_lines():
            status = _dispatch(arguments)
        if not status:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader of a pipe has closed it, as in `graphzoo list | head`: this is not an error.
        drop_output()
        return 0
    except KeyboardInterrupt:
        return fail("stopped", 130)
    except Exception as error:
        drop_output()
        if debug and not isinstance(error, UsageError):
            raise
        return _explain(error)
    if status:
        drop_output()  # the command has said why it failed
    elif isinstance(sys.stdout, Unread) and sys.stdout.lost and arguments[0] not in _TRAINING:
        return fail("standard output is closed: the answer could not be written", 1)
    return status


def _check_folder() -> None:
    """Refuse a current folder that was deleted: relative paths would mean nothing."""
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError("the current folder no longer exists\nGo to another one: cd DIR") from error


def _explain(error: Exception) -> int:
    """Print any error in a few lines, unexpected ones included, and return the exit status."""
    if isinstance(error, UsageError):
        return fail(str(error))
    more = "--debug shows the traceback"
    if isinstance(error, OSError):
        told, status = of_system(error)
        return fail(f"{told}\n{more}", status)
    if isinstance(error, UnicodeError):
        remedy = "Set the locale to UTF-8, such as LC_ALL=C.UTF-8, or PYTHONUTF8=1"
        return fail(f"{error}\n{remedy}; {more}", 1)
    return fail(f"{type(error).__name__}: {UsageError(shorten(str(error), lines=3))}\n{more}", 1)


def _dispatch(arguments: list[str]) -> int:
    command, *rest = arguments or ["--help"]
    if command in ("-h", "--help", "help"):
        return show(_overview())
    if command in ("-V", "--version", "version"):
        from graphzoo import __version__

        return show(f"graphzoo {__version__}")
    if command == "_complete":
        from graphzoo.cli.completion import complete_main

        return complete_main(rest, list(COMMANDS), parser_of)
    if command not in COMMANDS:
        if command.startswith("-"):
            raise UsageError(f"the command comes first, got {command!r}\nCommands: {', '.join(COMMANDS)}")
        hint = suggestion(command, COMMANDS) or f"Commands: {', '.join(COMMANDS)}"
        raise UsageError(f"unknown command {command!r}\n{hint}")
    try:
        status: int = getattr(_module(command), f"{command}_main")(rest)
    except SystemExit as end:  # help has been shown
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return status


def _module(command: str) -> Any:
    return import_module(f"graphzoo.cli.{_FILES.get(command, command)}")


def parser_of(command: str) -> Parser | None:
    """The parser of a command; None for fit, validate and test, whose arguments LightningCLI parses."""
    if command in _TRAINING:
        return None
    parser: Parser = getattr(_module(command), f"{command}_parser")()
    return parser


def _overview() -> str:
    width = max(map(len, COMMANDS)) + 2
    commands = "\n".join(f"  {name:{width}}{text}" for name, text in COMMANDS.items())
    return f"""usage: graphzoo COMMAND [options]

{commands}

graphzoo fit --model knowformer --data umls      train and test, no download
graphzoo COMMAND --help                          options of a command
graphzoo --version"""
