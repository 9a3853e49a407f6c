"""Settings of an encoder: whether a checkpoint can store them, and whether two are the same."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from graphzoo.errors import UsageError


def unsaved(value: Any) -> Any:
    """The innermost part of a setting that a checkpoint cannot store without code; None if it can store all.

    >>> unsaved({"sizes": (1, 2.5)}) is None, unsaved([1, int])
    (True, <class 'int'>)
    """
    buffer = io.BytesIO()
    try:
        torch.save(value, buffer)
        buffer.seek(0)
        torch.load(buffer, weights_only=True)
        return None
    except Exception:  # pickling a foreign object may raise anything
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        wrong = map(unsaved, parts if isinstance(parts, list | tuple | set) else [])
        return next((part for part in wrong if part is not None), value)


def plain_form(value: Any) -> Any:
    """A setting as it is read from config.yaml: lists for tuples, and texts for keys, dtypes and NaN.

    >>> plain_form({1: (2, float("nan"))})
    {'1': [2, 'nan']}
    """
    if isinstance(value, dict):
        return {str(key): plain_form(each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(plain_form, value), key=str)
    if isinstance(value, list | tuple):
        return [plain_form(each) for each in value]
    if isinstance(value, Tensor):
        return plain_form(value.tolist())
    is_nan = isinstance(value, float) and math.isnan(value)
    return str(value) if is_nan or isinstance(value, torch.dtype | torch.device) else value


def other_settings(described: Mapping[str, Any], here: Mapping[str, Any], reason: str) -> str:
    """Say how an encoder's class and settings differ from those of a description.

    Args:
        described: Description that is saved with the weights.
        here: Class path and settings of the encoder.
        reason: What did not fit; the result is "" unless it is about the encoder.
    """
    there = described.get("encoder")
    if "encoder." not in reason or not isinstance(there, Mapping):
        return ""
    if there.get("class_path") != here["class_path"]:
        return f"It has a {there.get('class_path')}, but this is a {here['class_path']}"
    before, now = (plain_form(side.get("init_args")) for side in (there, here))
    differences = [
        f"{name} is {before[name]!r} there, {value!r} here"
        for name, value in now.items()
        if name in before and before[name] != value
    ]
    return "Settings of the encoder: " + ", ".join(differences) if differences else ""


def check_settings(owner: str, settings: Mapping[str, Any]) -> None:
    """Refuse settings that a checkpoint cannot store, before training starts.

    Args:
        owner: The object that has the settings, for the message.
        settings: Its settings by name.

    Raises:
        UsageError: if a setting is not made of plain values.
    """
    for name, value in settings.items():
        if (wrong := unsaved(value)) is not None:
            raise UsageError(
                f"{owner}: {name} has a {type(wrong).__name__}, which a checkpoint cannot store\n"
                f"Give {name} as numbers, texts, lists or dictionaries, and build the object from them"
            )
