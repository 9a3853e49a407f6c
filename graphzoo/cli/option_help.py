"""Help for the options of models, tasks and data sets, read from source code without importing it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

from graphzoo.catalog.classes import find_plugin
from graphzoo.catalog.presets import find_preset
from graphzoo.catalog.settings import merge, read_settings, word_of
from graphzoo.catalog.tasks import TASKS, usual_task
from graphzoo.cli.options import WIDTH
from graphzoo.lazy import LISTED
from graphzoo.system.regular_files import read_regular_text

_BROUGHT = {"spec", "encoder", "name"}  # by the data, by --model, by --data


class ClassOption(NamedTuple):
    """An argument of a class."""

    name: str
    default: str  # as the source writes it; "" for one that has to be given
    meaning: str  # its text in the docstring


def class_options(class_path: str) -> list[ClassOption]:
    """The arguments of a class, in their order; empty if there is no source to read."""
    module, _, name = class_path.rpartition(".")
    source = _source_of(module)
    homes = {cls: home for home, cls in LISTED.findall(source)}
    if name in homes:
        source = _source_of(homes[name])
    node = next((n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == name), None)
    parts = [] if node is None else node.body
    made = next((f for f in parts if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None)
    if node is None or made is None:
        return []
    meanings = _meanings(ast.get_docstring(node) or "") | _meanings(ast.get_docstring(made) or "")
    given = [*made.args.posonlyargs, *made.args.args]
    defaults: list[ast.expr | None] = [None] * (len(given) - len(made.args.defaults))
    rows = zip(
        [*given, *made.args.kwonlyargs], [*defaults, *made.args.defaults, *made.args.kw_defaults], strict=True
    )
    return [
        ClassOption(arg.arg, "" if default is None else _default(default), meanings.get(arg.arg, ""))
        for arg, default in rows
        if arg.arg != "self"
    ]


def named_options(values: Mapping[str, str], files: Sequence[str] = ()) -> list[str]:
    """Lines of help for the names of "model" and "data", and the `files` of settings that both bring."""
    settings: Any = {}
    for file in files or _preset_files(values):
        settings = merge(settings, read_settings(Path(file)) or {})
    model = settings.get("model") or {}
    encoder = (model.get("init_args") or {}).get("encoder") or {}
    encoder = {"class_path": encoder} if isinstance(encoder, str) else encoder
    if (plugin := find_plugin(values.get("model", ""))) is not None and not encoder:
        encoder = {"class_path": plugin.value.replace(":", ".")}
    task = model.get("class_path") or _usual_task(values)
    given = {key: value for key, value in (model.get("init_args") or {}).items() if key != "encoder"}
    data = settings.get("data") or {}
    parts = [
        ("--model.encoder", encoder.get("class_path"), encoder.get("init_args")),
        ("--model", task, given),
    ]
    parts.append(("--data", data.get("class_path"), data.get("init_args")))
    return [line for option, path, chosen in parts if path for line in _section(option, path, chosen or {})]


def _section(option: str, class_path: str, chosen: Mapping[str, Any]) -> list[str]:
    lines = ["", f"{class_path}:"]
    for each in class_options(class_path):
        if each.name in _BROUGHT:
            continue
        value = word_of(chosen[each.name]) if each.name in chosen else each.default
        shown = "as --seed" if "seed_everything" in value else value
        lines.append(f"  {option}.{each.name} {shown}".rstrip())
        if each.meaning:
            meaning = re.sub(r"\bNone\b", "null", each.meaning)  # as it is typed
            lines += fill(meaning, WIDTH - 6, break_long_words=False).splitlines()
    return [lines[0], lines[1], *(line if line.startswith("  --") else f"      {line}" for line in lines[2:])]


def _preset_files(values: Mapping[str, str]) -> Iterable[str]:
    # the data preset names the task whose arguments the model's sets
    for kind in ("data", "model"):
        if kind in values and (kind != "model" or find_plugin(values[kind]) is None):
            yield str(find_preset(kind, values[kind]).path)


def _usual_task(values: Mapping[str, str]) -> str | None:
    """Class path of the task that a model's kind was made for."""
    if "model" not in values or find_plugin(values["model"]) is not None:
        return None
    task = usual_task(find_preset("model", values["model"]).header.get("kind", ""))
    return None if task is None else TASKS[task].class_path


def _source_of(module: str) -> str:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return ""
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return ""
    return read_regular_text(spec.origin)


def _default(node: ast.expr) -> str:
    """A default as it would be typed, where it is a plain value."""
    try:
        return word_of(ast.literal_eval(node))
    except ValueError:
        return ast.unparse(node)


def _meanings(docstring: str) -> dict[str, str]:
    from docstring_parser import DocstringStyle, parse

    params = parse(docstring, style=DocstringStyle.GOOGLE).params
    return {each.arg_name: " ".join((each.description or "").replace("`", "").split()) for each in params}
