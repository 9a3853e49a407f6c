"""Counter-based random numbers: functions of integers that name them, not of how many were drawn before.

The mixer is splitmix64 (Steele, Lea and Flood, 2014, "Fast splittable pseudorandom number generators"),
written in wrapping int64 arithmetic, which torch has on every device.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["hash_integers", "normal_from_hash", "uniform_from_hash"]


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    # torch shifts int64 arithmetically; the mask makes it the logical shift that the mixer is defined with.
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift_right(x, 30)) * _MIX_1
    x = (x ^ _shift_right(x, 27)) * _MIX_2
    return x ^ _shift_right(x, 31)


def hash_integers(*parts: int | Tensor, device: torch.device | str | None = None) -> Tensor:
    """Hash a tuple of integers to 64 well-mixed bits, elementwise over broadcast tensors.

    Args:
        parts: Integers or int64 tensors that broadcast against each other; the order matters.
        device: Where the result lives if no part is a tensor.

    Returns:
        int64 tensor of the broadcast shape; a scalar tensor if every part is a plain integer.

    Raises:
        ValueError: if a tensor part is not int64.
    """
    for part in parts:
        if isinstance(part, Tensor):
            if part.dtype != torch.int64:
                raise ValueError(f"hash_integers takes int64 tensors, got {part.dtype}; convert with .long()")
            device = part.device
    state = torch.zeros((), dtype=torch.int64, device=device)
    for part in parts:
        if not isinstance(part, Tensor):
            part = torch.tensor(_signed(part % (1 << 64)), dtype=torch.int64, device=device)
        state = _mix((state + _GOLDEN) ^ _mix(part + _GOLDEN))
    return state


def uniform_from_hash(bits: Tensor) -> Tensor:
    """Uniform float64 in [0, 1) from the upper 53 bits of a hash, same shape."""
    return _shift_right(bits, 11).to(torch.float64) * 2.0**-53


def normal_from_hash(bits: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal values from 64 hash bits each (Box and Muller, 1958), same shape.

    The radius takes the upper 32 bits, the angle the lower 32, so that |value| < 6.8.
    """
    radius = (_shift_right(bits, 32).to(torch.float32) + 0.5) * 2.0**-32
    angle = (bits & 0xFFFFFFFF).to(torch.float32) * (2.0 * math.pi * 2.0**-32)
    # float32 rounds the largest radii to 1, where log gives 0: still a valid draw.
    return (torch.sqrt(-2.0 * torch.log(radius)) * torch.cos(angle)).to(dtype)
