"""Rewrites the parser's error messages: a few lines that name the option, the value and the remedy."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from importlib import import_module
from inspect import Parameter
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from jsonargparse import Namespace
from lightning.pytorch.cli import LightningArgumentParser

from graphzoo.catalog.classes import arguments_of, spec_problem
from graphzoo.catalog.settings import merge, read_settings, value_of_word
from graphzoo.catalog.tasks import models_with
from graphzoo.errors import UsageError, nearest, suggestion
from graphzoo.training.options import GROUPS, config_files, value_of
from graphzoo.training.settings import follow_seed

_NOT_ACCEPTED = re.compile(r"(?:Option|does not accept option) '([^']+)'(?: is not accepted)?")
_UNRECOGNIZED = re.compile(r"unrecognized arguments?: (.+)", re.DOTALL)
_NO_VALUE = re.compile(r"argument (?:-\w/)?(--[\w.+]+)[^:]*: expected (?:one|at least one) argument")
_NUMBER = re.compile(r"-\d+|-\d*\.\d+")  # the parser takes these for values, in spite of the dash
_JOINED = re.compile(r"[{,]\s*\w+:\w")
_KEY = re.compile(r"Parser key \"([^\"]+)\":?\s*")
_EXPECTED = re.compile(r"Expected (?:an? )?(.+?)\. Got value: (.+)", re.DOTALL)
_SUBCLASS = re.compile(r"'([\w.]+)' to be a subclass of (?:<class ')?(?:\w+\.)*(\w+Encoder)")
_OF_CLASS = re.compile(r"^\{'class_path': '([^']+)'")
_NESTED = re.compile(r"NestedArg\(key='([^']+)', val=(.+)\)")
_BY_NAME = {
    "callbacks": "lightning.pytorch.callbacks",
    "logger": "lightning.pytorch.loggers",
    "optimizer": "torch.optim",
    "lr_scheduler": "torch.optim.lr_scheduler",
}
_KINDS = {
    "callbacks": "Callback",
    "logger": "Logger",
    "optimizer": "Optimizer",
    "lr_scheduler": "LRScheduler",
}
_WRAPPED = ("Does not validate against any", "Problem with given class_path", "Type collections.abc")


class GraphzooParser(LightningArgumentParser):
    """Lightning's parser without the 60 lines of usage before each error."""

    command_line: ClassVar[list[str]] = []  # as typed, with presets resolved; messages quote it
    options: ClassVar[list[str]] = []  # all options, for suggestions
    own_seeds: ClassVar[set[str]] = set()  # sections with a seed of their own, such as "data"

    def parse_args(self, args: Any = None, *more: Any, **options: Any) -> Any:
        """Parse the arguments after checking that configuration files hold only plain values of limited size.

        Without this check, the parser would expand nested YAML anchors without limit, and would take minutes
        for a thousand open brackets.
        """
        for file in config_files(args or []):
            read_settings(Path(file))
        return super().parse_args(args, *more, **options)

    def dump(self, cfg: Any, *more: Any, **options: Any) -> str:
        """The configuration as YAML, with the seeds that a run would use."""
        cfg = cfg.clone()
        follow_seed(cfg, self.own_seeds)
        _spell_out(cfg)
        text: str = super().dump(cfg, *more, **options)
        return text

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise a `UsageError` that names the option, its problem and the nearest valid names."""
        if not self.exit_on_error:  # a nested parser: the outer one catches the error
            super().error(message, ex)
        raise UsageError(explain(message, self.command_line, self.options, ex)) from ex


def _spell_out(settings: Any) -> None:
    """Replace members of string enumerations by plain strings, which YAML can hold, in place."""
    keys = range(len(settings)) if isinstance(settings, list) else list(vars(settings))
    for key in keys:
        value = settings[key]
        if isinstance(value, str) and isinstance(value, Enum):
            settings[key] = value.value
        elif isinstance(value, (list, Namespace)):
            _spell_out(value)


def innermost(error: BaseException) -> BaseException:
    """The original error inside the parser's list of alternatives, or the error itself."""
    current = error
    while str(current).startswith(_WRAPPED) and (inner := current.__cause__ or current.__context__):
        current = inner
    return current


def explain(
    message: str, command_line: list[str], options: list[str], error: BaseException | None = None
) -> str:
    """Explain a parser's message in terms of the command line, in which presets are resolved.

    An error and its causes may name several keys. The innermost one is the key with the wrong value.
    """
    if problem := _without_spec(command_line):  # the parser takes its first argument for the spec
        return problem
    if match := _UNRECOGNIZED.search(message):
        words = match.group(1).split()
        return _left_over(words, command_line) or _unknown(words[0].partition("=")[0], options)
    if match := _NO_VALUE.search(message):
        return _without_value(match.group(1), command_line)
    if "parsing config" in message:
        try:  # the reader's own message names the file and the line
            for file in config_files(command_line):
                read_settings(Path(file))
        except UsageError as refused:
            return str(refused)
        return message
    if match := _NOT_ACCEPTED.search(message):
        place, option, _ = _find_setting(match.group(1), command_line)
        known = _siblings(option, command_line)
        if place:  # a file has names without dashes
            known = [name.removeprefix("--") for name in (*known, *options)]
        return place + _unknown(option, known)
    texts = [message]
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    keyed = [text for text in texts if _KEY.search(text)]
    if not keyed:
        return message
    place, option, value = _find_setting(_KEY.findall(keyed[-1])[-1], command_line, keyed[-1])
    if option == "--config" or "File does not exist" in keyed[-1]:
        return f"{option}: {keyed[-1][_KEY.search(keyed[-1]).end() :].strip()}"  # type: ignore[union-attr]
    if not value and (problem := _joined_colon(command_line)):
        return problem
    if not option.startswith("-") and (problem := _wrong_class(option, command_line)):
        return problem
    model = value_of("--model", command_line)
    if any(base.__name__ == "Encoder" for base in _bases(model)):
        return (
            f"--model: {model} is an encoder, but a task is needed here\nGive --model.encoder {model}; "
            "`reproduce` and `compare` take the name of a model preset that has this class"
        )
    if match := _SUBCLASS.search("\n".join(texts)):
        return f"{place}{option}: {_other_encoder(*match.groups())}"
    several = _types(keyed[-1])
    if " or " in several and not _NESTED.search(message):
        return f"{place}{option}: {value!r} does not fit\n{_class_hint(option, value) or several}"
    for text in reversed(texts):
        if (expected := _EXPECTED.search(text)) and "\n" not in expected.group(2):
            kind = several.removeprefix("Expected ") if " or " in several else _plain_type(expected.group(1))
            if kind == "list" and (hint := _class_hint(option, value)):
                return f"{place}{option}: {value!r} does not fit\n{hint}"
            return f"{place}{option}: expected {kind}, got {expected.group(2)!r}"
    nested = _NESTED.search(message)
    if nested and nested.group(1) != "init_args":
        option, value = _find_option(nested.group(1), command_line) or option, nested.group(2).strip("'")
        place = "" if option.startswith("-") else place
    if path := _OF_CLASS.search(value):  # a class with its settings; the class is the problem
        reason = _import_problem(path.group(1))
        value = path.group(1) if reason else value
    reason = _import_problem(value) or _class_hint(option, value) or _types(keyed[-1])
    return f"{place}{option}: {value!r} does not fit" + (f"\n{reason}" if reason else "")


def _other_encoder(path: str, kind: str) -> str:
    """The message for an encoder of another kind than the task needs."""
    models = models_with([kind.removesuffix("Encoder").lower()])
    known = f"\nModels with such an encoder: {', '.join(models)}" if models else ""
    return f"the task needs a {kind}, and {path} is none{known}"


def _bases(class_path: str) -> tuple[type, ...]:
    """A class and its base classes; empty if the class cannot be imported."""
    module, _, name = class_path.rpartition(".")
    try:
        return getattr(import_module(module), name).__mro__  # type: ignore[no-any-return]
    except (ImportError, AttributeError, ValueError):
        return ()


def _plain_type(text: str) -> str:
    text = re.sub(r"<class '(?:[\w.]*\.)?(\w+)'>", r"\1", text).strip()
    return re.sub(r"typing\.Literal\[(.+)\]", r"one of \1", text)


def _types(text: str) -> str:
    match = re.search(r"Subtypes: \[(.+)\]", text)
    names = re.findall(r"<class '(?:[\w.]*\.)?(\w+)'>|Literal\[([^\]]+)\]", match.group(1) if match else "")
    plain = [first or f"one of {second}" for first, second in names if first != "NoneType"]
    return f"Expected {' or '.join(plain)}" if plain else ""


def _unknown(option: str, options: list[str]) -> str:
    """The message for an unknown option, with the nearest known ones.

    First come options of the same name in another group, then similar names in the same group, then in all.
    """
    group, _, last = option.replace(".init_args", "").rpartition(".")
    if last == "class_path" and group.lstrip("-") not in GROUPS and "." not in group:
        return _unknown(group, options)
    if last == "class_path":
        return f"{option} does not fit: arguments of a class belong under init_args"
    siblings: dict[str, list[str]] = {}  # last part of the name -> options
    elsewhere: dict[str, list[str]] = {}
    for known in options:
        if known.lstrip("-") == option.lstrip("-"):  # an option of another class in the same list
            continue
        above, _, name = known.rpartition(".")
        (siblings if above == group else elsewhere).setdefault(name, []).append(known)
    names = elsewhere.get(last, []) or _near(last, siblings) or _near(last, elsewhere)
    if not group:  # at the top of a file
        names = [
            known for name, found in siblings.items() if name.startswith(f"{last}_") for known in found
        ] + names
    if not names and not option.startswith("-"):
        names = nearest(option, GROUPS)
    hint = f"Did you mean: {', '.join(names[:3])}?" if names else "--help-all lists all options"
    return f"unknown {'option' if option.startswith('-') else 'setting'} {option}\n{hint}"


def _near(name: str, known: Mapping[str, list[str]]) -> list[str]:
    """The options with the nearest names; `name` may also be the first words of a longer name.

    >>> _near("hiden", {"hide": ["--data.hide"], "hidden_channels": ["--model.encoder.hidden_channels"]})
    ['--model.encoder.hidden_channels', '--data.hide']
    """
    meant = {each: [each] for each in known}
    for each in known:
        for place in (match.start() for match in re.finditer("_", each)):
            if each[:place] not in known and abs(place - len(name)) <= 2:
                meant.setdefault(each[:place], []).append(each)
    names = dict.fromkeys(each for near in nearest(name, meant) for each in meant[near])
    return [option for each in names for option in known[each]]


def _left_over(words: list[str], command_line: list[str]) -> str:
    """The message for words that follow an option which already has its value; "" for unknown options."""
    if words[0].startswith("-"):
        return ""
    message = f"{words[0]!r} belongs to no option: each option takes one value"

    def complete(word: str) -> bool:
        return not word.startswith("-") or bool(_NUMBER.fullmatch(word)) or "=" in word

    places = range(len(command_line) - 1, 0, -1)
    place = next((i for i in places if command_line[i] == words[0] and complete(command_line[i - 1])), 0)
    before = (word for word in reversed(command_line[:place]) if word.startswith("-"))
    option = next(before, "").partition("=")[0]
    if option in ("--config", "-c"):
        return f"{message}\nFor several files, repeat the option: {option} FILE {option} FILE"
    if option in ("--data.path", "--data.init_args.path"):
        return f'{message}\nGive several files as a list: {option} "[FILE,FILE]"'
    return message


def _joined_colon(command_line: list[str]) -> str:
    """The message for a value such as {1:50}, which lacks the blank that YAML needs after a colon.

    YAML takes 1:50 for one word, or for the number 110, and not for a key with a value.
    """
    for place, word in enumerate(command_line):
        read = value_of_word(text := word.partition("=")[2] if word.startswith("-") else word)
        if isinstance(read, dict) and None in read.values() and _JOINED.search(text):
            option = word.partition("=")[0] if word.startswith("-") else command_line[place - 1]
            return f"{option}: {text!r} does not fit\nWrite a space after each colon"
    return ""


def _without_value(name: str, command_line: list[str]) -> str:
    """The message for an option without a value; the parser itself names only the option's group."""
    for place, option in enumerate(command_line):
        if option != name and not option.startswith(f"{name}.") or "=" in option:
            continue
        after = command_line[place + 1] if place + 1 < len(command_line) else "--"
        if after.startswith(("--", "-c")) or after == "-h":
            return f"{option} needs a value"
        if after.startswith("-") and not _NUMBER.fullmatch(after):
            return f"{option}: a value that begins with a dash needs an equals sign: {option}={after}"
    return f"{name} needs a value"


def _find_option(key: str, command_line: list[str]) -> str:
    """The option as typed whose name ends in `key`; if it is given several times, the last one counts."""
    last = key.rpartition(".")[2]
    for token in reversed(command_line):
        name = token.partition("=")[0].rstrip("+")
        if name.startswith("--") and name.lstrip("-").rpartition(".")[2] == last:
            return name
    return ""


def _find_setting(key: str, command_line: list[str], message: str = "") -> tuple[str, str, str]:
    """Find where a key was set: on the command line, or else in the last file that sets it.

    If `message` names a value, only a setting with this value counts, since a preset may set the same key to
    another value.

    Returns:
        The file with ": " behind it ("" for the command line), the name, and the value. A key that is found
        nowhere keeps the parser's name.
    """
    wanted = key.replace(".init_args", "")
    ends = (f".{wanted}", f".{wanted}.class_path")
    typed = _find_option(key, command_line)
    dotted = ((word, word.replace("--", ".", 1).replace(".init_args", "")) for word in reversed(command_line))
    options = [typed, *(word.partition("=")[0] for word, name in dotted if _is_called(name, ends))]
    for option in filter(None, options):
        if _is_meant(value := value_of(option, command_line), message):
            return "", option, value
    for file in reversed(config_files(command_line)):
        with contextlib.suppress(UsageError):  # the parser reports a broken file itself
            for name, value in _every_setting(read_settings(Path(file))):
                if _is_called(name, ends) and _is_meant(str(value), message):
                    return f"{file}: ", name.lstrip("."), str(value)
    return ("", typed, value_of(typed, command_line)) if typed else ("", key, "".join(_values(message)[-1:]))


def _values(message: str) -> list[str]:
    return re.findall(r"(?:Got|Given) value: (.+)$", message, re.MULTILINE)


def _is_called(name: str, ends: tuple[str, ...]) -> bool:
    return name.partition("=")[0].rstrip("+").endswith(ends)


def _is_meant(value: str, message: str) -> bool:
    """Whether the message names this value, by itself or as a class path."""
    return not message or value in _values(message) or f"class_path='{value}'" in message


def _every_setting(content: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a file with its dotted name, which begins with a dot; inner values come first."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from _every_setting(value, name if key == "init_args" else f"{name}.{key}")
    for value in content if isinstance(content, list) else ():
        yield from _every_setting(value, name)
    yield name, content


def _import_problem(value: str) -> str:
    """Why a class path cannot be imported; "" if it can, or is no class path."""
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", value):
        return ""
    module, _, name = value.rpartition(".")
    try:
        names = dir(loaded := import_module(module))
    except ImportError as error:
        return f"It cannot be imported: {error}"
    if hasattr(loaded, name):
        return ""
    known = [known for known in names if known[0] != "_"]
    return f"{module} has no {name!r}. {suggestion(name, known)}".strip()


def merged_settings(command_line: list[str]) -> dict[str, Any]:
    """The merged settings of all configuration files on the command line."""
    merged: dict[str, Any] = {}
    for file in config_files(command_line):
        with contextlib.suppress(UsageError):  # the parser reports a broken file itself
            loaded = read_settings(Path(file))
            merged = merge(merged, loaded) if isinstance(loaded, dict) else merged
    return merged


def _encoder_class(command_line: list[str]) -> str | None:
    """The class path of the run's encoder, or None."""
    found: Any = merged_settings(command_line)
    for key in ("model", "init_args", "encoder"):  # files may hold anything
        found = found.get(key) if isinstance(found, Mapping) else None
    found = value_of("--model.encoder", command_line) or found
    found = found.get("class_path") if isinstance(found, Mapping) else found
    return found if isinstance(found, str) else None


def _without_spec(command_line: list[str]) -> str:
    """What is wrong with the first argument of the run's encoder, which gets the spec; "" if nothing."""
    path = _encoder_class(command_line) or ""
    bases = _bases(path)
    if not any(base.__name__ == "Encoder" for base in bases):
        return ""
    problem = spec_problem(bases[0])
    return problem and f"--model.encoder: {path!r} does not fit\n{problem}"


def _siblings(option: str, command_line: list[str]) -> list[str]:
    """Options of the classes that the run uses; those of the class that `option` belongs to come first."""
    settings = merged_settings(command_line)
    classes = [
        ("--model", (settings.get("model") or {}).get("class_path")),
        ("--model.encoder", _encoder_class(command_line)),
        ("--data", (settings.get("data") or {}).get("class_path")),
    ]
    for named in ("--trainer.callbacks", "--trainer.logger", "--optimizer", "--lr_scheduler"):
        listed = [entry["class_path"] for entry in _listed_classes(named, command_line)[1]]
        for path in filter(None, (value_of(named, command_line), *listed)):
            classes.append((named, _named_class(named, path)))
    group = option.rpartition(".")[0].replace(".init_args", "")
    first = sorted(classes, key=lambda each: each[0].lstrip("-") != group.lstrip("-"))
    names = [(other, each.name) for other, path in first for each in _parameters(path)]
    return [f"{other}.{name}" for other, name in names if name not in ("spec", "args", "kwargs")]


def _listed_classes(option: str, command_line: list[str]) -> tuple[str, list[Mapping[str, Any]]]:
    """The classes that files give to an option such as trainer.callbacks, and the last file that sets it."""
    given: Any = None
    last = ""
    for file in config_files(command_line):
        content: Any = {}
        with contextlib.suppress(UsageError):  # the parser reports a broken file itself
            content = read_settings(Path(file))
        for part in option.removeprefix("--").split("."):
            content = content.get(part) if isinstance(content, Mapping) else None
        if content is not None:
            both = isinstance(given, Mapping) and isinstance(content, Mapping)
            given, last = merge(given, content) if both else content, file
    entries = [
        {"class_path": entry} if isinstance(entry, str) else entry
        for entry in (given if isinstance(given, list) else [given])
    ]
    named = (entry for entry in entries if isinstance(entry, Mapping))
    return last, [entry for entry in named if isinstance(entry.get("class_path"), str)]


def _wrong_class(option: str, command_line: list[str]) -> str:
    """The message for the first class in a file that is missing, of another kind, or lacks an argument."""
    name = option.rpartition(".")[2]
    if name not in _BY_NAME:
        return ""
    typed = {word.partition("=")[0].rpartition(".")[2] for word in command_line if word.startswith("--")}
    file, entries = _listed_classes(option, command_line)
    for entry in entries:
        path = entry["class_path"]
        arguments = [
            entry[key] for key in ("init_args", "dict_kwargs") if isinstance(entry.get(key), Mapping)
        ]
        given = typed.union(*arguments)
        if reason := _import_problem(path) or _other_kind(name, path) or _class_hint(option, path, given):
            return f"{file}: {option}: {path!r} does not fit\n{reason}"
    return ""


def _other_kind(name: str, path: str) -> str:
    """The expected kind of class if `path` is a class of another kind, else ""."""
    base = getattr(import_module(_BY_NAME[name]), _KINDS[name])
    module, _, last = path.rpartition(".")
    found = getattr(import_module(module), last) if module else None
    return f"Expected {_KINDS[name]}" if isinstance(found, type) and not issubclass(found, base) else ""


def _named_class(option: str, value: str) -> str:
    """The full path of a class that an option accepts by its bare name."""
    key = option.rpartition(".")[2].removeprefix("--")
    return value if "." in value or not value else f"{_BY_NAME[key]}.{value}"


def _parameters(class_path: str | None) -> list[Parameter]:
    """The parameters of a class; empty if it cannot be imported."""
    module, _, name = (class_path or "").rpartition(".")
    try:
        return arguments_of(getattr(import_module(module), name))
    except (ImportError, AttributeError, ValueError, TypeError):
        return []


def _class_hint(option: str, value: str, given: Collection[str] = ()) -> str:
    """For an option that takes a class by name: the arguments that a known class lacks, or similar names."""
    name = option.rpartition(".")[2].removeprefix("--")
    if name == "encoder":
        needed = [
            f"{option}.{each.name}"
            for each in _parameters(value)[1:]  # the first is the spec
            if each.default is each.empty and each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)
        ]
        if needed:
            return f"It needs {', '.join(needed)}"
        is_path = re.fullmatch(r"\w+(\.\w+)+", value) and not value.endswith(".py")
        return "" if is_path else "Give the path of a class as in an import, such as package.module.Class"
    if name not in _BY_NAME:
        return ""
    needed = [
        f"{option}.{each.name}"
        for each in _parameters(_named_class(option, value))
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
        if each.name not in ("params", "optimizer", *given)
    ]
    if needed:
        return f"It needs {', '.join(needed)}"
    packages = [_BY_NAME[name], *(["graphzoo.callbacks"] if name == "callbacks" else [])]
    known = [known for package in packages for known in import_module(package).__all__ if known[0].isupper()]
    return "" if value.rpartition(".")[2] in known else suggestion(value, known)
