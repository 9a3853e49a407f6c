"""The command's reference as Markdown: every command's help, every class's options as the parser has them.

Nothing is written down twice: commands and their help come from `graphzoo.cli.commands`, our options from
`graphzoo.training.options`, those of tasks, data and encoders from jsonargparse, which reads signatures and
docstrings.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import pydoc
import re
import types
from collections.abc import Callable, Iterator
from typing import Any, Literal, Union, get_args, get_origin
from unittest import mock

import yaml

from graphzoo.catalog.presets import list_presets
from graphzoo.catalog.tasks import TASKS
from graphzoo.cli import commands as cli
from graphzoo.training.options import FLAGS, OPTIONS

__all__ = ["command_reference", "help_of", "options_of"]

TRAINING = ("fit", "validate", "test")
DATA = ("KGDataModule", "NodeDataModule", "LinkDataModule")


def command_reference() -> str:
    """Everything below the page's introduction."""
    return "\n".join([*_commands(), *_own_options(), *_classes()])


def help_of(command: str, *more: str) -> str:
    """What `graphzoo COMMAND --help` prints on a terminal of 100 columns.

    Raises:
        RuntimeError: when the command has no help.
    """
    out = io.StringIO()
    # argparse leaves with SystemExit, and colours its help where a terminal would like it.
    terminal = {"COLUMNS": "100", "NO_COLOR": "1"}
    with mock.patch.dict(os.environ, terminal), contextlib.redirect_stdout(out):
        try:
            status = cli.main([command, "--help", *more])
        except SystemExit as left:
            status = int(left.code or 0)
    if status or not out.getvalue().strip():
        raise RuntimeError(
            f"graphzoo {command} --help ended with status {status} and said {out.getvalue()!r}"
        )
    return out.getvalue().rstrip()


def _commands() -> Iterator[str]:
    yield "## Commands\n\n| command | |\n|---|---|"
    for name, text in cli.COMMANDS.items():
        yield f"| [`graphzoo {name}`](#graphzoo-{name}) | {_cell(text)} |"
    for name, text in cli.COMMANDS.items():
        yield f"\n### graphzoo {name}\n\n{text[0].upper()}{text[1:]}.\n"
        if name in TRAINING[1:]:
            yield f"Its options are those of [`graphzoo {TRAINING[0]}`](#graphzoo-{TRAINING[0]})."
        else:
            yield f"```text\n{help_of(name)}\n```"


def _own_options() -> Iterator[str]:
    yield f"\n## Options of {', '.join(TRAINING)}\n"
    yield "Written as `--model knowformer` or `--model=knowformer`.\n\n| option | |\n|---|---|"
    for name, text in (OPTIONS | FLAGS).items():
        yield f"| `--{name}` | {_cell(text)} |"
    yield (
        "\nEvery argument of Lightning's `Trainer` is an option `--trainer.NAME`; `graphzoo fit --help-all` "
        "lists them. The tables below are the arguments of graphzoo's own classes with their defaults. A "
        "preset or recipe may set others: `--print_config` shows what a run would have."
    )


def _classes() -> Iterator[str]:
    from graphzoo import datamodules

    yield "\n## Options of the tasks\n"
    for name, task in TASKS.items():
        yield from _table(pydoc.locate(task.class_path), "--model", f"the task of data sets for `{name}`")
    yield "\n## Options of the data\n"
    for module in DATA:
        yield from _table(getattr(datamodules, module), "--data", "")
    yield "\n## Options of the encoders\n"
    for path, presets in _encoders().items():
        yield from _table(
            pydoc.locate(path), "--model.encoder", "presets " + ", ".join(f"`{name}`" for name in presets)
        )


def _encoders() -> dict[str, list[str]]:
    """Class path of every encoder that a preset has, and the presets' names."""
    found: dict[str, list[str]] = {}
    for preset in list_presets("model"):
        settings = yaml.safe_load(preset.path.read_text(encoding="utf-8"))
        found.setdefault(settings["model"]["init_args"]["encoder"]["class_path"], []).append(preset.name)
    return found


def _table(cls: Any, prefix: str, about: str) -> Iterator[str]:
    yield f"\n### {cls.__name__}\n\n`{prefix}.NAME`{' – ' if about else ''}{about}\n"
    yield "| option | values | default | |\n|---|---|---|---|"
    for name, values, default, text in options_of(cls):
        yield f"| `{name}` | {_cell(values)} | {_cell(default)} | {_cell(text)} |"


def options_of(cls: Callable[..., object]) -> list[tuple[str, str, str, str]]:
    """Name, values, default and meaning of each argument that the parser takes for a class."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    names = [name.removeprefix("x.") for name in parser.add_class_arguments(cls, "x", skip={"spec"})]
    help_texts = {action.dest: action.help for action in parser._actions}
    hints = {action.dest: getattr(action, "_typehint", None) or action.type for action in parser._actions}
    defaults = parser.get_defaults()
    shared = _shared_help(cls)
    rows = []
    for name in names:
        default = defaults.get(f"x.{name}")
        text = help_texts[f"x.{name}"] or shared.get(name, "")
        rows.append(
            (name, _values(hints[f"x.{name}"]), "" if default is None else f"`{_plain(default)}`", text)
        )
    return rows


def _shared_help(cls: Callable[..., object]) -> dict[str, str]:
    """Help of arguments that a docstring describes together, `lr, weight_decay: of Adam`."""
    found: dict[str, str] = {}
    for base in inspect.getmro(cls) if isinstance(cls, type) else ():
        text = inspect.cleandoc(base.__dict__.get("__doc__") or "")
        for names, meaning in re.findall(r"^ {4}(\w+(?:, \w+)+): (.*(?:\n {8}.*)*)", text, re.MULTILINE):
            for name in names.split(", "):
                found.setdefault(name, meaning)
    return found


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values(hint: Any) -> str:
    """A type in words of the command line."""
    origin = get_origin(hint)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in get_args(hint))
    if origin in (Union, types.UnionType):
        return " or ".join(_values(kind) for kind in get_args(hint))
    if hint is None or hint is type(None):
        return "null"
    if origin in (list, tuple):
        return "list of " + ", ".join(
            dict.fromkeys(_values(kind) for kind in get_args(hint) if kind is not ...)
        )
    if origin is dict:
        return "mapping"
    if isinstance(hint, type):
        return {"str": "text", "int": "whole number", "float": "number", "bool": "true, false"}.get(
            hint.__name__, hint.__name__
        )
    return "a class path" if "Callable" in str(hint) else str(hint).rpartition(".")[2]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
