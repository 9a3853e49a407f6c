"""Checks that arguments are tensors, so that an array of NumPy or a list is refused by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphzoo.errors import UsageError


def check_tensors(**values: Any) -> None:
    """Require that all values are tensors.

    Args:
        **values: Arguments by name.

    Raises:
        UsageError: if one is something else, such as an array.

    >>> check_tensors(x=torch.zeros(3))
    """
    for name, value in values.items():
        if not isinstance(value, Tensor):
            remedy = "" if value is None else f"\nGive torch.as_tensor({name})"
            raise UsageError(f"{name} must be a torch.Tensor, got {type(value).__name__}{remedy}")


def check_index(name: str, value: Any) -> None:
    """Require a tensor of int64 or int32.

    Raises:
        UsageError: if it is something else, or has another dtype.
    """
    check_tensors(**{name: value})
    if value.dtype not in (torch.int64, torch.int32):
        is_mask = value.dtype == torch.bool and value.dim() == 1
        remedy = f"give {name}.nonzero()[:, 0]" if is_mask else "call .long()"
        raise UsageError(f"{name} must be int64 or int32, got {value.dtype}; {remedy}")
