"""What encoders refuse, in the same words."""

from __future__ import annotations

from torch import Tensor

from graphzoo.types import GraphSpec

__all__ = ["check_features", "check_rates", "check_rows", "check_sizes", "check_spec"]


def check_spec(name: str, spec: GraphSpec) -> None:
    """Raise `ValueError` if the data has no features."""
    if spec.in_channels < 1:
        raise ValueError(f"{name} needs node features; the data has none (GraphSpec.in_channels is 0)")


def check_features(x: Tensor, spec: GraphSpec) -> None:
    """Raise `ValueError` if features have another width than the spec's."""
    if x.dim() != 2 or x.shape[1] != spec.in_channels:
        raise ValueError(f"the encoder was built for features [N, {spec.in_channels}], got {list(x.shape)}")


def check_rows(name: str, given: Tensor, x: Tensor) -> None:
    """Raise `ValueError` if what was computed before does not belong to these features."""
    if given.shape != x.shape:
        raise ValueError(
            f"{name} must have a row for every row of x {list(x.shape)}, got {list(given.shape)}"
        )


def check_sizes(**sizes: int) -> None:
    """Raise `ValueError` for a size below 1."""
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def check_rates(**rates: float) -> None:
    """Raise `ValueError` for a dropout rate outside [0, 1)."""
    for name, value in rates.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, got {value}")
