"""Functions that `torch.compile` leaves alone, without loading the compiler for those who do not compile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch

__all__ = ["run_eagerly", "without_autocast"]

P = ParamSpec("P")
R = TypeVar("R")


def run_eagerly(function: Callable[P, R]) -> Callable[P, R]:
    """Like `torch.compiler.disable`, which imports the whole compiler (about a second) when it decorates.

    For what compiled code cannot hold: random generators, sparse matrices, gradients written by hand.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.compiler.is_dynamo_compiling():
            disable: Any = torch.compiler.disable
            result: R = disable(function)(*args, **kwargs)
            return result
        return function(*args, **kwargs)

    return call


def without_autocast(device_type: str) -> AbstractContextManager[Any]:
    """Arithmetic in the precision of the tensors; an exported program neither holds nor needs the context."""
    if torch.compiler.is_exporting():
        return nullcontext()
    switched_off: AbstractContextManager[Any] = torch.autocast(device_type, enabled=False)
    return switched_off
