"""Settings of an encoder: what a checkpoint gives back of them, and when two are the same."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from graphzoo.errors import UsageError


def unsaved(value: Any) -> Any:
    """The innermost part of a setting that no checkpoint gives back without running code; None: all is fine.

    >>> unsaved({"sizes": (1, 2.5)}) is None, unsaved([1, int])
    (True, <class 'int'>)
    """
    buffer = io.BytesIO()
    try:
        torch.save(value, buffer)
        buffer.seek(0)
        torch.load(buffer, weights_only=True)
        return None
    except Exception:  # an object of somebody else may raise anything when it is pickled
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        wrong = map(unsaved, parts if isinstance(parts, list | tuple | set) else [])
        return next((part for part in wrong if part is not None), value)


def plain_form(value: Any) -> Any:
    """A setting as config.yaml gives it back: without tuples, numbers as keys and dtypes; NaN is NaN.

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
    """How an encoder's class and settings differ from the description's, where that is the reason."""
    there = described.get("encoder")
    if "encoder." not in reason or not isinstance(there, Mapping):
        return ""
    if there.get("class_path") != here["class_path"]:
        return f"It holds a {there.get('class_path')}, and this is a {here['class_path']}"
    before, now = (plain_form(side.get("init_args")) for side in (there, here))
    differences = [
        f"{name} is {before[name]!r} there, {value!r} here"
        for name, value in now.items()
        if name in before and before[name] != value
    ]
    return "Settings of the encoder: " + ", ".join(differences) if differences else ""


def check_settings(owner: str, settings: Mapping[str, Any]) -> None:
    """Refuse settings that a checkpoint could not give back, before anything is trained."""
    for name, value in settings.items():
        if (wrong := unsaved(value)) is not None:
            raise UsageError(
                f"{owner}: {name} holds a {type(wrong).__name__}, which a checkpoint "
                f"cannot\nGive {name} as numbers, words, lists or dictionaries, and make of it what you need"
            )
