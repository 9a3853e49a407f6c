"""A cache of one result of a model, such as its states of a whole graph, while its weights are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from graphzoo.ops.last_result import version_of

T = TypeVar("T")


class OfWeights(Generic[T]):
    """The last result, returned again until a weight or buffer of the module is written to or replaced.

    Weights that were created in inference mode have no version: if they are written to, this is not noticed.
    Nor are writes through `weight.data`; write to the weight itself under `torch.no_grad()`.
    Copies and pickles of the cache are empty.
    """

    def __init__(self) -> None:
        # One tuple, replaced at once: no thread sees the key of one result with the value of another.
        self._last: tuple[object, T, list[Tensor]] | None = None

    def get(self, module: nn.Module, compute: Callable[[], T]) -> T:
        """Return `compute()`, or the last result if the weights of the module are the same."""
        every = module.state_dict(keep_vars=True).values()
        weights = [weight for weight in every if isinstance(weight, Tensor)]
        key = [(_place(weight), weight.dtype, version_of(weight)) for weight in weights]
        last = self._last
        if last is None or last[0] != key:
            self._last = last = None  # frees the old result before the new one is computed
            # Keeps the memory of the weights, so that no other tensor gets the same address.
            kept = [*weights, *(weight.detach() for weight in weights)]
            self._last = last = key, compute(), kept
        return last[1]

    def __reduce__(self) -> tuple[type[OfWeights[T]], tuple[()]]:
        return type(self), ()


def _place(weight: Tensor) -> int:
    """The address of a weight's memory; for a sparse weight, which has no single one, its identity."""
    return weight.data_ptr() if weight.layout is torch.strided else id(weight)
