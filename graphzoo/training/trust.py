"""Checks a config.yaml from an untrusted run directory: only plain settings of known classes may pass.

A run directory may come from anybody, and jsonargparse imports the classes that its file names, in many
spellings. So this module lists what is accepted, and everything else needs `--trust`.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from typing import Any

import yaml

from graphzoo.catalog.classes import is_trusted
from graphzoo.catalog.settings import texts_in
from graphzoo.errors import UsageError

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_WORD = re.compile(r"[\w@+-]*")
_PACKAGES = ("graphzoo", "lightning", "torch", "torchmetrics")
# Arguments of data modules for paths and names, which our classes never parse.
_TEXT = {"path", "root", "name"}
# Trainer arguments that stand for an object.
_OBJECTS = {"callbacks", "logger", "plugins", "profiler", "strategy", "accelerator", "model_registry"}
# Callbacks that affect the training. Their arguments are numbers and words; averaging may have numbers only.
_AVERAGING = {
    "lightning.pytorch.callbacks.EMAWeightAveraging",
    "lightning.pytorch.callbacks.weight_averaging.EMAWeightAveraging",
    "graphzoo.callbacks.WarmupEMAWeightAveraging",
    "graphzoo.callbacks.averaging.WarmupEMAWeightAveraging",
}
_CALLBACKS = {
    *_AVERAGING,
    *(f"graphzoo.callbacks.{module}{name}Budget" for module in ("", "budget.") for name in ("Query", "Link")),
    *(f"lightning.pytorch.callbacks.{name}" for name in ("EarlyStopping", "LearningRateMonitor")),
}
# Loggers write into the run directory, or to a service that the user has set up. Only names may be set.
_LOGGERS = {
    f"lightning.pytorch.loggers.{module}{name}"
    for name, inside in {
        "CSVLogger": "csv_logs.",
        "MLFlowLogger": "mlflow.",
        "TensorBoardLogger": "tensorboard.",
        "WandbLogger": "wandb.",
    }.items()
    for module in ("", inside)
}
_LOGGED_NAMES = {
    *("name", "version", "id", "project", "entity", "group", "job_type", "notes", "tags", "prefix"),
    *("experiment_name", "run_name", "add_file_policy", "comment", "filename_suffix"),
}
# Arguments of loggers that upload code or weights to a server.
_UPLOADS = {"log_model", "save_code"}


def plain_settings(config: Any, origin: str, *, fit: bool) -> tuple[dict[str, Any], list[str]]:
    """The settings of a run's config.yaml that are safe without `--trust`, and the names of dropped ones.

    Args:
        config: Content of the file.
        origin: The file, for messages.
        fit: Whether the run is resumed. Unknown callbacks are then refused; otherwise they are dropped.

    Raises:
        UsageError: for settings that could make the parser import unknown code.
    """
    if not isinstance(config, dict):
        raise UsageError(f"{origin} holds no settings")
    _check_keys(config, origin)
    kept: dict[str, Any] = {}
    dropped: list[str] = []
    if isinstance(config.get("seed_everything"), bool | int):
        kept["seed_everything"] = config["seed_everything"]
    for section in ("model", "data", "optimizer", "lr_scheduler"):
        if config.get(section) is not None:
            check_class(config[section], section, origin, inner="encoder" if section == "model" else "")
            kept[section] = config[section]
    trainer = config.get("trainer") or {}
    if not isinstance(trainer, dict):
        raise _refused(origin, "trainer", trainer)
    kept["trainer"] = {}
    for name, value in trainer.items():
        if name == "callbacks" and value:
            value = _callbacks(value, origin, fit=fit)
            if value is None:
                dropped.append(f"trainer.{name}")
                continue
        elif not _fits_trainer(name, value) and not (name == "logger" and fit and _are_loggers(value)):
            if value not in (None, [], {}):
                _check_named(value, origin)
                dropped.append(f"trainer.{name}")
            continue
        kept["trainer"][name] = value
    return kept, dropped


def check_class(described: Any, place: str, origin: str, *, inner: str = "") -> None:
    """Refuse a class that is not registered, and arguments that could name another class.

    Args:
        described: The path of the class, or a mapping with `class_path` and `init_args`.
        place: The name of the setting, for messages.
        origin: The file, for messages.
        inner: Name of the argument that may be a class itself.
    """
    if isinstance(described, str):
        described = {"class_path": described}
    if not isinstance(described, dict):
        raise _refused(origin, place, described)
    _check_keys(described, origin)
    class_path = described.get("class_path")
    if not isinstance(class_path, str) or not _DOTTED.fullmatch(class_path):
        raise _refused(origin, place, described)
    if not is_trusted(class_path):
        raise _unregistered(origin, class_path)
    if not _is_own_class(class_path):
        raise _refused(origin, place, class_path)
    arguments = described.get("init_args")
    if set(described) - {"class_path", "init_args"} or not isinstance(arguments, dict | None):
        raise _refused(origin, place, described)
    for name, value in (arguments or {}).items():
        if name == inner and value is not None:
            check_class(value, f"{place}.{name}", origin)
        elif not _is_plain(value, text=place == "data" and name in _TEXT):
            _check_named(value, origin)
            raise _refused(origin, f"{place}.{name}", value)


def _is_own_class(class_path: str) -> bool:
    """Whether a trusted path names a class of its package; `graphzoo.training.launch.os.system` does not."""
    module, _, name = class_path.rpartition(".")
    root = module.partition(".")[0]
    if root not in _PACKAGES:
        return True  # a plug-in, or already imported
    try:
        cls = getattr(import_module(module), name, None)
    except ImportError:
        return False
    return isinstance(cls, type) and cls.__module__.partition(".")[0] in _PACKAGES


def _callbacks(value: Any, origin: str, *, fit: bool) -> list[Any] | None:
    entries = value if isinstance(value, list) else [value]
    _check_named(entries, origin)
    for entry in entries:
        known = isinstance(entry, dict) and entry.get("class_path") in _CALLBACKS
        if not known and not fit:
            return None
        if not known:
            raise _refused(origin, "trainer.callbacks", entry)
        check_class(entry, "trainer.callbacks", origin)
        arguments = entry.get("init_args") or {} if entry["class_path"] in _AVERAGING else {}
        for name, value in arguments.items():  # these callbacks also accept functions and devices
            if not isinstance(value, bool | int | float | None):
                raise _refused(origin, f"trainer.callbacks.{name}", value)
    return entries


def _are_loggers(value: Any) -> bool:
    """Whether all loggers are Lightning's own and write to their default place."""
    for entry in value if isinstance(value, list) else [value]:
        known = isinstance(entry, dict) and entry.get("class_path") in _LOGGERS
        if not known or set(entry) - {"class_path", "init_args"}:
            return False
        arguments = entry.get("init_args") or {}
        if not isinstance(arguments, dict):
            return False
        for name, given in arguments.items():
            usual = (".", "./mlruns") if entry["class_path"].endswith(".MLFlowLogger") else (".",)
            is_here = name == "save_dir" and given in usual
            is_switch = isinstance(given, bool | int | float | None) and not (given and name in _UPLOADS)
            names = name in _LOGGED_NAMES and _is_plain(given, text=True)
            if not (is_here or is_switch or (names and not any(map(_is_place, texts_in(given))))):
                return False
    return True


def _is_place(text: str) -> bool:
    return any(character in text for character in "/\\$%") or text.startswith((".", "~"))


def _fits_trainer(name: Any, value: Any) -> bool:
    if name in ("strategy", "accelerator") and isinstance(value, str):
        return bool(_WORD.fullmatch(value)) and _is_plain(value)
    if name == "default_root_dir" or (name in _OBJECTS and isinstance(value, str)):
        return False
    if isinstance(value, dict) or (isinstance(value, list) and value):  # devices: [1], max_time: {hours: 1}
        return name not in _OBJECTS and _is_plain(value)
    return _is_plain(value)


def _is_plain(value: Any, *, text: bool = False) -> bool:
    """Whether the parser can only read a value as itself, and not as a class, as YAML or as a file name."""
    if isinstance(value, dict):
        return all(_is_plain(item, text=text) for item in value.values()) and "class_path" not in value
    if isinstance(value, list | tuple):
        return all(_is_plain(item, text=text) for item in value)
    if isinstance(value, str):
        if "${" in value or "class_path" in value or _is_structure(value):
            return False
        # An escape sequence could hide a class path from these checks, but not from the parser's YAML.
        if "\\" in value and not text:
            return False
        written = _DOTTED.search(value) or value.lstrip().startswith(("{", "["))
        return text or not (written or os.path.isfile(value))
    return isinstance(value, bool | int | float | None)


def _is_structure(text: str) -> bool:
    """Whether YAML reads a text as a mapping or list; the parser does so for arguments of many types."""
    try:
        return isinstance(yaml.safe_load(text), dict | list)
    except yaml.YAMLError:
        return False  # the parser reads it as text, too
    except (ValueError, RecursionError):  # impossible dates, endless lists: the parser may differ
        return True


def _check_keys(value: Any, origin: str) -> None:
    """Refuse keys that no run writes and that could bypass the checks, such as `a.b` and `callbacks+`."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str) or "." in key or key.endswith("+"):
                raise UsageError(
                    f"{origin} has the key {str(key)!r}, which no run writes; nothing was imported\n"
                    "If you trust the file, add --trust"
                )
            _check_keys(item, origin)
    for item in value if isinstance(value, list) else ():
        _check_keys(item, origin)


def _check_named(value: Any, origin: str) -> None:
    """Refuse class paths that are not registered, at any depth."""
    for text in texts_in(value):
        if _DOTTED.fullmatch(text) and not is_trusted(text):
            raise _unregistered(origin, text)


def _unregistered(origin: str, class_path: str) -> UsageError:
    return UsageError(
        f"{origin} names the class {class_path!r}, which no installed package registers\n"
        "It was not imported. If you trust it, add --trust"
    )


def _refused(origin: str, place: str, value: Any) -> UsageError:
    if isinstance(value, str) and _WORD.fullmatch(value) and os.path.isfile(value):
        return UsageError(
            f"{origin}: {place} is {value[:100]!r}, which is also a file here that the parser could read\n"
            "Run the command in another folder, rename the file, or add --trust"
        )
    return UsageError(
        f"{origin}: {place} is {str(value)[:100]!r}, which could run code\n"
        "Nothing was imported. If you trust the file, add --trust"
    )
