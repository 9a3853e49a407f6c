"""Memory for what a model computed of a whole graph, as long as its weights are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from torch import nn

from graphzoo.ops.last_result import version_of

T = TypeVar("T")


class OfWeights(Generic[T]):
    """The last result, given again until a weight or buffer is written to or replaced.

    Weights that were made in inference mode have no version: of these, only being replaced is noticed.
    """

    def __init__(self) -> None:
        # replaced as one, so that threads never see the key of one result with the value of another
        self._last: tuple[object, T] | None = None

    def get(self, module: nn.Module, compute: Callable[[], T]) -> T:
        """`compute()`, or what it returned last time if the weights of the module are the same."""
        weights = module.state_dict(keep_vars=True).values()
        key = [(weight.data_ptr(), weight.dtype, version_of(weight)) for weight in weights]
        last = self._last
        if last is None or last[0] != key:
            self._last = last = None  # leaves its room to the new one
            self._last = last = key, compute()
        return last[1]
