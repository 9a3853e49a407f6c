"""What a command line says twice: by name, and in a file of settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphzoo.catalog.presets import Preset
from graphzoo.catalog.settings import read_settings
from graphzoo.errors import UsageError, normalise


def refuse_other_data(files: Sequence[str], data: Preset) -> None:
    """Refuse files that bring other data than `--data` names: these would be taken, under the wrong name.

    Raises:
        UsageError: with the file and both names.
    """
    ours = _part(read_settings(data.path), "data")
    for file in files:
        theirs = _part(_settings(file), "data")
        named = _part(theirs, "init_args").get("name")
        path = _part(theirs, "init_args").get("path")
        is_other = named is not None and normalise(str(named)) != normalise(
            str(_part(ours, "init_args").get("name"))
        )
        has_path = path is not None and "requires" not in data.header
        if is_other or has_path or _differ(theirs.get("class_path"), ours.get("class_path")):
            brought = named if is_other else path if has_path else theirs["class_path"]
            raise UsageError(
                f"{file} brings its own data ({brought}), so --data {data.name} would only be a name\n"
                f"Leave --data out, or remove the section data: from the file"
            )


def refuse_other_model(files: Sequence[str], model: Preset) -> None:
    """Refuse files that bring another encoder of graphzoo than that of `--model`, see `refuse_other_data`.

    A class of the user's own may stand in for it: tables then say that the class differs.
    """
    ours = _encoder(read_settings(model.path))
    for file in files:
        theirs = _encoder(_settings(file))
        if theirs.startswith("graphzoo.") and _differ(theirs, ours):
            raise UsageError(
                f"{file} brings its own encoder ({theirs}), which --model {model.name} contradicts\n"
                f"Leave --model out, or remove encoder: from the file"
            )


def bring_optimizer(files: Sequence[str]) -> bool:
    """Whether files name an optimiser of their own."""
    return any(isinstance(found := _settings(file), Mapping) and found.get("optimizer") for file in files)


def class_of_task(files: Sequence[str]) -> str:
    """The class of the task that files name, the last one's; "" where they name none."""
    classes = [_part(_settings(file), "model").get("class_path") for file in files]
    return next((found for found in reversed(classes) if isinstance(found, str)), "")


def _settings(file: str) -> Any:
    return read_settings(Path(file)) if Path(file).is_file() else None


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
