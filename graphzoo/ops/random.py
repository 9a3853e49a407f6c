"""Counter-based random numbers: each is a function of integers, not of how many were drawn before.

The mixer is splitmix64 (Steele, Lea and Flood, 2014, "Fast splittable pseudorandom number generators"),
in int64 arithmetic that wraps around, which torch has on every device.
"""

from __future__ import annotations

import math
from functools import reduce
from operator import index  # converts integers of NumPy, whose arithmetic would overflow

import torch
from torch import Tensor

from graphzoo.ops.eager import needs_plain_operators


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)


_MASK = (1 << 64) - 1


def _shift_right(x: Tensor, bits: int) -> Tensor:
    # torch shifts int64 arithmetically. The mask makes it the logical shift that splitmix64 is defined with.
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift_right(x, 30)) * _MIX_1
    x = (x ^ _shift_right(x, 27)) * _MIX_2
    return x ^ _shift_right(x, 31)


def _mix_number(x: int) -> int:
    """`_mix` of a Python integer."""
    x &= _MASK
    x = ((x ^ (x >> 30)) * _MIX_1) & _MASK
    x = ((x ^ (x >> 27)) * _MIX_2) & _MASK
    return _signed(x ^ (x >> 31))


def _join(state: Tensor, part: Tensor) -> Tensor:
    """Extend the hash `state` of a tuple by one more part."""
    return _mix((state + _GOLDEN) ^ _mix(part + _GOLDEN))


@torch.library.custom_op(
    "graphzoo::hash_join", mutates_args=(), schema="(Tensor state, Tensor part) -> Tensor"
)
def _join_operator(state: Tensor, part: Tensor) -> Tensor:
    """`_join` as an operator that Inductor does not compile: its sums with overflow differ (torch 2.13)."""
    return _join(state, part)


@_join_operator.register_fake
def _(state: Tensor, part: Tensor) -> Tensor:
    return torch.empty_like(state + part, memory_format=torch.contiguous_format)


def hash_integers(*parts: int | Tensor, device: torch.device | str | None = None) -> Tensor:
    """Hash a tuple of integers to 64 well-mixed bits, elementwise for tensors, which are broadcast.

    Python integers are mixed on the host, since copying them to a device would make the host wait for it.

    Args:
        *parts: Integers or int64 tensors; their order matters.
        device: Device of the result if no part is a tensor.

    Returns:
        int64 tensor in the broadcast shape.

    Raises:
        ValueError: for a tensor that is not int64.
    """
    for part in parts:
        if isinstance(part, Tensor):
            if part.dtype != torch.int64:
                raise ValueError(f"hash_integers takes int64 tensors, got {part.dtype}; give .long()")
            device = part.device
    state: int | Tensor = 0
    if torch.compiler.is_compiling():
        # An integer may be symbolic here, which Python cannot mix. Filling a tensor does not copy.
        tensors = [
            part if isinstance(part, Tensor) else torch.full((), part, dtype=torch.int64, device=device)
            for part in (0, *parts)
        ]
        return reduce(_join if needs_plain_operators() else torch.ops.graphzoo.hash_join, tensors)
    for part in parts:
        mixed = _mix(part + _GOLDEN) if isinstance(part, Tensor) else _mix_number(index(part) + _GOLDEN)
        if isinstance(state, Tensor):
            state = _mix((state + _GOLDEN) ^ mixed)
        elif isinstance(mixed, Tensor):
            state = _mix(mixed ^ _signed((state + _GOLDEN) & _MASK))
        else:
            state = _mix_number((state + _GOLDEN) ^ mixed)
    if isinstance(state, Tensor):
        return state
    return torch.full((), state, dtype=torch.int64, device=device)


def hash_numbers(*parts: int) -> int:
    """`int(hash_integers(*parts))` for Python integers."""
    state = 0
    for part in parts:
        state = _mix_number((state + _GOLDEN) ^ _mix_number(index(part) + _GOLDEN))
    return state


def uniform_from_hash(bits: Tensor) -> Tensor:
    """Uniform float64 in [0, 1), from the upper 53 bits of each hash; same shape as `bits`."""
    return _shift_right(bits, 11).to(torch.float64) * 2.0**-53


def normal_from_hash(bits: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal values from hashes of 64 bits (Box and Muller, 1958); same shape as `bits`.

    The upper 32 bits give the radius, the lower 32 the angle. So |value| < 6.8.
    """
    radius = (_shift_right(bits, 32).to(torch.float32) + 0.5) * 2.0**-32
    angle = (bits & 0xFFFFFFFF).to(torch.float32) * (2.0 * math.pi * 2.0**-32)
    # float32 rounds the largest uniform numbers to 1, whose radius is 0: also a valid draw.
    return (torch.sqrt(-2.0 * torch.log(radius)) * torch.cos(angle)).to(dtype)
