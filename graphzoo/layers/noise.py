"""Noise of training that leaves the global random state alone and continues where a checkpoint stopped."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from graphzoo.errors import UsageError, check_range
from graphzoo.ops.eager import run_eagerly
from graphzoo.ops.last_result import version_of
from graphzoo.ops.random import hash_integers, hash_numbers

# What a seed is for, so that equal numbers in different roles do not give equal noise.
_NAMED, _COUNTED, _FIXED = 1, 2, 3

_lent = threading.RLock()
_modes_lock = threading.Lock()
# How many evaluate a module now, and the mode that it returns to.
_evaluated: WeakKeyDictionary[nn.Module, tuple[int, bool]] = WeakKeyDictionary()


class NoiseStream(nn.Module):
    """Generators for one forward pass after the other; the global random state is neither read nor changed.

    Each draw is named, by the caller or by its number: the buffer `draws` counts the unnamed ones and is part
    of the state dict, so that training that resumes from a checkpoint meets the noise it would have met.

    Args:
        seed: Streams of different seeds are independent.
        persistent: False leaves the count out of the state dict, as weights from before the stream have none.
    """

    draws: Tensor
    _last: tuple[Tensor, int | None, int] | None = None

    def __init__(self, seed: int = 0, *, persistent: bool = True) -> None:
        super().__init__()
        self.seed = seed
        self.register_buffer("draws", torch.zeros((), dtype=torch.int64), persistent=persistent)

    @run_eagerly
    def generator(self, noise_seed: int | None, device: torch.device | str) -> torch.Generator:
        """A new generator: a function of (seed, noise_seed), or the next of the stream if that is None.

        Raises:
            UsageError: if the next is asked for in a backward pass.
        """
        if noise_seed is not None:
            return self._seeded(device, _NAMED, noise_seed)
        _refuse_backward()
        count = self._count()
        self.draws += 1
        self._last = (self.draws, version_of(self.draws), count + 1)
        return self._seeded(device, _COUNTED, count)

    def key(self) -> Tensor:
        """The next of the stream as a number for `hash_integers`, on its device, which nobody waits for."""
        if not torch.compiler.is_compiling():
            _refuse_backward()
        self.draws += 1
        return hash_integers(self.seed, _COUNTED, self.draws)

    def _count(self) -> int:
        """The buffer as a number: of a GPU it is read once, then counted along until something changes it."""
        if self.draws.device.type != "cpu" and self._last is not None:
            buffer, version, count = self._last
            if buffer is self.draws and version is not None and version == version_of(buffer):
                return count
        return int(self.draws)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_last": None}  # a copy has a buffer of its own

    @run_eagerly
    def fixed_generator(self, device: torch.device | str) -> torch.Generator:
        """The same generator every time, a function of the seed alone: for evaluation."""
        return self._seeded(device, _FIXED, 0)

    def _seeded(self, device: torch.device | str, purpose: int, number: int) -> torch.Generator:
        generator = torch.Generator(device)
        return generator.manual_seed(hash_numbers(self.seed, purpose, number))


def _refuse_backward() -> None:
    """Recomputed activations would be of other noise than the loss, and their gradients wrong."""
    if torch._C._current_graph_task_id() != -1:
        raise UsageError(
            "an encoder draws noise in a backward pass: where torch.utils.checkpoint runs it again, that is "
            "not the noise of the loss\nGive the call noise_seed, a new number in each step"
        )


def dropout(x: Tensor, p: float, generator: torch.Generator | None, training: bool) -> Tensor:
    """Dropout with a generator of its own: entries are kept with probability 1 - p and divided by it.

    Args:
        x: Any shape.
        p: Probability of a zero, in [0, 1), taken in steps of 2^-16.
        generator: On the device of `x`; only looked at when something is drawn.
        training: False returns `x` itself.

    Raises:
        ValueError: if `p` is out of range, or a generator is needed and missing.
    """
    check_range(at_least=0, below=1, dropout=p)
    if not training or p == 0:
        return x
    if generator is None:
        raise ValueError("dropout needs a generator while training: take NoiseStream.generator(...)")
    keep, scale = draw_kept(x, p, generator)
    # A product: `torch.where` with its gradient takes six times as long on the CPU.
    return x * (keep.to(x.dtype) * scale)


@contextmanager
def seeded_noise(generator: torch.Generator) -> Iterator[None]:
    """For code that draws from the global random state: lend it, seeded as the generator, and put it back.

    One thread at a time has it.
    """
    with _lent:
        with _lend(generator):
            yield


@contextmanager
def _lend(generator: torch.Generator) -> Iterator[None]:
    device, seed = generator.device, generator.initial_seed()
    if device.type == "cpu":
        state = torch.default_generator.get_state()
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            torch.default_generator.set_state(state)
        return
    with (
        torch.random.fork_rng([device], device_type=device.type),
        torch.get_device_module(device).device(device),
    ):
        torch.get_device_module(device).manual_seed(seed)
        yield


@contextmanager
def in_evaluation(module: nn.Module) -> Iterator[None]:
    """All its modules without noise; then each in the mode that it was in, as some may be frozen.

    Of several threads the last one out puts the mode of a part back.
    """
    parts = [*module.modules()]
    with _modes_lock:
        for part in parts:
            users, mode = _evaluated.get(part, (0, part.training))
            _evaluated[part] = users + 1, mode
    try:
        module.eval()
        yield
    finally:
        with _modes_lock:
            for part in parts:
                users, mode = _evaluated.pop(part)
                if users > 1:
                    _evaluated[part] = users - 1, mode
                else:
                    part.training = mode


def draw_kept(x: Tensor, p: float, generator: torch.Generator) -> tuple[Tensor, float]:
    """Which entries dropout with probability `p` keeps, bool in the shape of `x`, and the scale they get."""
    dropped = min(round(p * 65536), 65535)
    return _random_bits(x, generator) >= dropped - 32768, 65536 / (65536 - dropped)


@run_eagerly
def _random_bits(x: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform 16-bit integers in the shape of x: four of one draw, which on the CPU is the slow part."""
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device)
    words.random_(-(2**63), None, generator=generator)
    return words.view(torch.int16)[: x.numel()].view(x.shape)
