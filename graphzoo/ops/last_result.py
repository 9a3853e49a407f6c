"""A cache of one result, such as that of a module for a graph, while its input tensors are the same."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from torch import Tensor
from torch.autograd.graph import increment_version
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

T = TypeVar("T")


class LastResult(Generic[T]):
    """The result of the last call, returned again if the next call has the same, unchanged tensors.

    Tensors are compared by identity and version, and are not kept alive. Tensors that were created in
    inference mode have no version, so a result from them is computed in every call. Copies and pickles of the
    cache are empty.
    """

    def __init__(self) -> None:
        # One tuple, replaced at once: no thread sees the tensors of one call with the value of another.
        self._last: tuple[list[weakref.ref[Tensor]], list[Any], T] | None = None

    def get(self, tensors: tuple[Tensor, ...], compute: Callable[[], T], *facts: Any) -> T:
        """Return `compute()`, or the last result if it is for the same tensors and equal `facts`."""
        versions, last = [*(version_of(tensor) for tensor in tensors), *facts], self._last
        if last is not None and None not in versions and versions == last[1]:
            known = (reference() for reference in last[0])
            if all(a is b for a, b in zip(known, tensors, strict=True)):
                return last[2]
        self._last = last = None  # frees the old result before the new one is computed
        value = compute()
        self._last = [weakref.ref(tensor) for tensor in tensors], versions, value
        return value

    def __reduce__(self) -> tuple[type[LastResult[T]], tuple[()]]:
        return type(self), ()


def version_of(tensor: Tensor) -> int | None:
    """A number that changes whenever the tensor is written to; None for tensors of inference mode."""
    # In inference mode torch does not count changes.
    return None if tensor.is_inference() else int(tensor._version)


def _note_fused_step(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Increment the versions of parameters after a fused optimiser step, which does not do so itself."""
    fused = [group["params"] for group in optimizer.param_groups if group.get("fused")]
    increment_version([p for params in fused for p in params if p.grad is not None])


# For all optimisers, since a user's own one may train the parameters, too.
register_optimizer_step_post_hook(_note_fused_step)
