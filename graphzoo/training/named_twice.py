"""Conflicts between names on the command line and files of settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphzoo.catalog.presets import Preset
from graphzoo.catalog.settings import read_settings
from graphzoo.errors import UsageError, normalise


def read_files(files: Sequence[str]) -> dict[str, Any]:
    """The plain values of each file of settings; missing files are reported when they are parsed.

    Raises:
        UsageError: if a file cannot be read, or is empty.
    """
    found = {file: read_settings(Path(file)) for file in files if Path(file).is_file()}
    if empty := [file for file, settings in found.items() if settings is None]:
        raise UsageError(f"{empty[0]} has no settings\nLeave it out, or see graphzoo fit --print_config")
    return found


def refuse_other_data(files: Mapping[str, Any], data: Preset) -> None:
    """Refuse files that set other data than `--data` names: those would be used under the wrong name.

    Raises:
        UsageError: with the file and both names.
    """
    ours = _part(read_settings(data.path), "data")
    own_name = normalise(str(_part(ours, "init_args").get("name")))
    for file, settings in files.items():
        theirs = _part(settings, "data")
        named, path = (_part(theirs, "init_args").get(key) for key in ("name", "path"))
        is_other = named is not None and normalise(str(named)) != own_name
        has_path = path is not None and "requires" not in data.header
        if is_other or has_path or _differ(theirs.get("class_path"), ours.get("class_path")):
            brought = named if is_other else path if has_path else theirs["class_path"]
            raise UsageError(
                f"{file} sets its own data ({brought}), so --data {data.name} would have no effect\n"
                "Leave --data out, or remove the section data: from the file"
            )


def refuse_other_model(files: Mapping[str, Any], model: Preset) -> None:
    """Refuse files that bring another encoder of graphzoo than that of `--model`, see `refuse_other_data`.

    A class of the user's own may stand in for it: tables then say that the class differs.
    """
    ours = _encoder(read_settings(model.path))
    for file, settings in files.items():
        theirs = _encoder(settings)
        if theirs.startswith("graphzoo.") and _differ(theirs, ours):
            raise UsageError(
                f"{file} sets its own encoder ({theirs}), which contradicts --model {model.name}\n"
                "Leave --model out, or remove encoder: from the file"
            )


def bring_optimizer(files: Mapping[str, Any]) -> bool:
    """Whether files name an optimiser of their own."""
    return any(isinstance(settings, Mapping) and settings.get("optimizer") for settings in files.values())


def class_of_task(files: Mapping[str, Any]) -> str:
    """The class of the task that files name, the last one's; "" where they name none."""
    classes = [_part(settings, "model").get("class_path") for settings in files.values()]
    return next((found for found in reversed(classes) if isinstance(found, str)), "")


def _part(settings: Any, key: str) -> Mapping[str, Any]:
    part = settings.get(key) if isinstance(settings, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def _encoder(settings: Any) -> str:
    """The class of the encoder in settings; "" where they have none."""
    encoder = _part(_part(settings, "model"), "init_args").get("encoder")
    found = encoder.get("class_path") if isinstance(encoder, Mapping) else encoder
    return found if isinstance(found, str) else ""


def _differ(one: Any, other: Any) -> bool:
    """Whether two classes are named and differ; a class may be named without its module."""
    if not (isinstance(one, str) and isinstance(other, str) and one and other):
        return False
    return one.rpartition(".")[2] != other.rpartition(".")[2]
