"""Settings of an encoder: what a checkpoint gives back of them, and when two are the same."""

from __future__ import annotations

import io
import math
from typing import Any

import torch
from torch import Tensor


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
