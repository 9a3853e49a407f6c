"""What encoders refuse, in the same words: each raises a `UsageError`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from graphzoo.errors import UsageError, check_range
from graphzoo.types import GraphSpec

__all__ = [
    "check_features",
    "check_heads",
    "check_rates",
    "check_rows",
    "check_sizes",
    "check_spec",
    "chosen",
    "require_features",
]


def check_spec(name: str, spec: GraphSpec) -> None:
    """Refuse data without features."""
    if spec.in_channels < 1:
        raise UsageError(
            f"{name} needs node features; the data has none (GraphSpec.in_channels is 0): "
            "add some, for instance degrees or one-hot node numbers"
        )


def check_features(x: Tensor, spec: GraphSpec) -> None:
    """Refuse features of another width than the spec's."""
    if x.dim() != 2 or x.shape[1] != spec.in_channels:
        raise UsageError(f"the encoder was built for features [N, {spec.in_channels}], got {list(x.shape)}")


def require_features(x: Tensor | None, spec: GraphSpec) -> Tensor:
    """The features of all nodes; a `UsageError` if there are none, or of another width."""
    if x is None or x.dim() != 2 or x.shape[1] != spec.in_channels:
        got = "none" if x is None else str(list(x.shape))
        raise UsageError(
            f"the encoder was built for node features [N, {spec.in_channels}] and got {got}: "
            "give x, or build it with use_features=False"
        )
    return x


def check_rows(name: str, given: Tensor, x: Tensor) -> None:
    """Refuse what was computed before for other features."""
    if given.shape != x.shape:
        raise UsageError(
            f"{name} must have a row for every row of x {list(x.shape)}, got {list(given.shape)}"
        )


def check_sizes(**sizes: int) -> None:
    """Refuse a size below 1."""
    check_range(at_least=1, **sizes)


def check_rates(**rates: float) -> None:
    """Refuse a dropout rate outside [0, 1)."""
    check_range(at_least=0, below=1, **rates)


def check_heads(hidden_channels: int, num_heads: int) -> None:
    """Refuse heads that do not divide the width."""
    if hidden_channels % num_heads:
        raise UsageError(
            f"hidden_channels must be a multiple of num_heads, got {hidden_channels} and {num_heads}"
        )


def chosen(settings: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Some of an encoder's settings by name, to be checked together."""
    return {name: settings[name] for name in names}
