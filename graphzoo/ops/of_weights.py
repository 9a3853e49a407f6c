"""Memory for what a model computed of a whole graph, as long as its weights are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from graphzoo.ops.last_result import version_of

T = TypeVar("T")


class OfWeights(Generic[T]):
    """The last result, given again until a weight or buffer is written to or replaced.

    Weights that were made in inference mode have no version: of these, only being replaced is noticed. Copies
    begin empty.
    """

    def __init__(self) -> None:
        # replaced as one, so that threads never see the key of one result with the value of another
        self._last: tuple[object, T, list[Tensor]] | None = None

    def get(self, module: nn.Module, compute: Callable[[], T]) -> T:
        """`compute()`, or what it returned last time if the weights of the module are the same."""
        every = module.state_dict(keep_vars=True).values()
        weights = [weight for weight in every if isinstance(weight, Tensor)]
        key = [(_place(weight), weight.dtype, version_of(weight)) for weight in weights]
        last = self._last
        if last is None or last[0] != key:
            self._last = last = None  # leaves its room to the new one
            # kept with their memory, which others could get otherwise
            kept = [*weights, *(weight.detach() for weight in weights)]
            self._last = last = key, compute(), kept
        return last[1]

    def __reduce__(self) -> tuple[type[OfWeights[T]], tuple[()]]:
        return type(self), ()


def _place(weight: Tensor) -> int:
    """Where its numbers lie; a sparse one has no such place."""
    return weight.data_ptr() if weight.layout is torch.strided else id(weight)
