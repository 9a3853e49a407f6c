"""Turns the parser's complaints into a few lines with the remedy."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any, NoReturn

import yaml
from lightning.pytorch.cli import LightningArgumentParser

from graphzoo.errors import UsageError, suggestion

__all__ = ["GraphzooParser", "explain", "merged_settings"]

_NOT_ACCEPTED = re.compile(r"Option '([^']+)' is not accepted")
_UNRECOGNIZED = re.compile(r"unrecognized arguments?: (.+)", re.DOTALL)
_KEY = re.compile(r"Parser key \"([^\"]+)\":?\s*")
_EXPECTED = re.compile(r"Expected (?:an? )?(.+?)\. Got value: (.+)", re.DOTALL)


class GraphzooParser(LightningArgumentParser):
    """Lightning's parser without the 60 lines of usage before each error.

    Attributes:
        command_line: What the user typed, for the words of an error.
        options: Every option there is, for suggestions.
    """

    command_line: list[str] = []
    options: list[str] = []

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise `UsageError` with the option, what is wrong with it, and the nearest names."""
        if not self.exit_on_error:  # a parser inside a parser: the outer one catches and tells
            super().error(message, ex)
        raise UsageError(explain(message, self.command_line, self.options)) from ex


def explain(message: str, command_line: list[str], options: list[str]) -> str:
    """A parser's message in words of the command line.

    Args:
        message: From jsonargparse: keys without their groups, long lists of types.
        command_line: What the user typed, presets resolved.
        options: Names of all options of the command, with `--`.

    Returns:
        At most a few lines.
    """
    if match := _UNRECOGNIZED.search(message):
        return _unknown(match.group(1).split()[0].partition("=")[0], options)
    if match := _NOT_ACCEPTED.search(message):
        name = match.group(1)
        option = _find_option(name, command_line)
        return _unknown(option or name, _siblings(option or name, command_line))
    if match := _KEY.search(message):
        key, text = match.group(1), message[match.end() :].strip()
        option = _find_option(key, command_line) or key
        if expected := _EXPECTED.search(text):
            wanted = re.sub(r"<class '([^']+)'>", r"\1", expected.group(1)).strip()
            return f"{option}: expected {wanted}, got {expected.group(2).strip()!r}"
        if "Given value:" in text and "Union" in text:
            value = text.rpartition("Given value:")[2].strip().splitlines()[0]
            lines = [f"{option}: {value!r} does not fit", _class_hint(option, value), _types(text)]
            return "\n".join(line for line in lines if line)
        return f"{option}: {text}"
    return message


def _types(text: str) -> str:
    if match := re.search(r"Subtypes: \[(.+)\]", text):
        names = re.findall(r"<class '(?:[\w.]*\.)?(\w+)'>|Literal(\[[^\]]+\])", match.group(1))
        plain = [first or f"one of {second}" for first, second in names if first != "NoneType"]
        if plain:
            return f"Expected: {', '.join(plain)}"
    return ""


def _unknown(option: str, options: list[str]) -> str:
    if not option.startswith("-"):
        hint = suggestion(option, [known.rpartition(".")[2] for known in options])
        return f"unknown setting or argument {option!r}\n{hint}"
    group = option.rpartition(".")[0]
    near = [known for known in options if known.rpartition(".")[0] == group] or options
    hint = suggestion(option, near) or suggestion(option, options)
    return "\n".join(filter(None, [f"unknown option {option}", hint or "The long list: add --help-all"]))


def _find_option(key: str, command_line: list[str]) -> str:
    """The option as typed whose name ends in `key`; the last one, since that is the one that counts."""
    last = key.rpartition(".")[2]
    for token in reversed(command_line):
        name = token.partition("=")[0]
        if name.startswith("--") and name.rstrip("+").rpartition(".")[2] == last and name != "--config":
            return name
    return ""


def merged_settings(command_line: list[str]) -> dict[str, Any]:
    """The class paths of model, encoder and data as far as the files named on the command line say.

    Args:
        command_line: Arguments with `--config FILE` pairs.
    """
    merged: dict[str, Any] = {}

    def merge(into: dict[str, Any], values: dict[str, Any]) -> None:
        for key, value in values.items():
            if isinstance(value, dict) and isinstance(into.get(key), dict):
                merge(into[key], value)
            else:
                into[key] = value

    for option, value in zip(command_line, command_line[1:], strict=False):
        if option == "--config":
            try:
                with open(value, encoding="utf-8") as file:
                    loaded = yaml.safe_load(file)
            except (OSError, yaml.YAMLError):
                continue  # the parser itself has told, or will tell, what is wrong with the file
            if isinstance(loaded, dict):
                merge(merged, loaded)
    return merged


def _siblings(option: str, command_line: list[str]) -> list[str]:
    """Arguments of the class that `option` belongs to, as options."""
    group, _, _ = option.rpartition(".")
    settings = merged_settings(command_line)
    model = settings.get("model") or {}
    classes = {
        "--model": model.get("class_path"),
        "--data": (settings.get("data") or {}).get("class_path"),
        "--model.encoder": ((model.get("init_args") or {}).get("encoder") or {}).get("class_path"),
    }
    groups = [group.replace(".init_args", "")] if group else list(classes)
    found: list[str] = []
    for name in groups:
        for base in (name, name.removesuffix(".init_args")):
            class_path = classes.get(base)
            if class_path and (parameters := _parameters(class_path)):
                found += [f"{group or base}.{parameter}" for parameter in parameters]
                break
    if group == "--model":  # an argument of the encoder is easily taken for one of the task
        found += [f"--model.encoder.{name}" for name in _parameters(classes["--model.encoder"])]
    return found


def _parameters(class_path: str | None) -> list[str]:
    if not class_path:
        return []
    module, _, name = class_path.rpartition(".")
    try:
        cls = getattr(import_module(module), name)
        names = list(inspect.signature(cls.__init__).parameters)
    except (ImportError, AttributeError, ValueError):
        return []  # the class itself is what is wrong; there is nothing to suggest
    return [name for name in names if name not in ("self", "spec", "args", "kwargs")]


def _class_hint(option: str, value: str) -> str:
    """Nearest class name where Lightning takes one by name."""
    modules = {"callbacks": "lightning.pytorch.callbacks", "logger": "lightning.pytorch.loggers"}
    name = option.lstrip("-").rstrip("+").rpartition(".")[2]
    if name not in modules:
        return ""
    return suggestion(value, import_module(modules[name]).__all__)
