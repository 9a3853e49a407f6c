"""Random noise of training that does not use the global random state, and continues after a checkpoint."""

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

# Part of every seed, so that equal numbers in different roles do not give equal noise.
_NAMED, _COUNTED, _FIXED = 1, 2, 3

_global_state_lock = threading.RLock()
_modes_lock = threading.Lock()
# For each module in evaluation, the number of its users and the mode to restore.
_evaluated: WeakKeyDictionary[nn.Module, tuple[int, bool]] = WeakKeyDictionary()


class NoiseStream(nn.Module):
    """A stream of random generators, one for each forward pass, independent of the global random state.

    A generator is seeded by a number of the caller, or by its position in the stream. The buffer `draws`
    counts the latter. It is part of the state dict, so that training resumed from a checkpoint has the same
    noise as if it had not been interrupted.

    Args:
        seed: Seed of the stream.
        persistent: Whether `draws` is part of the state dict; False if older weights without it must load.
    """

    draws: Tensor
    _last: tuple[Tensor, int | None, int] | None = None

    def __init__(self, seed: int = 0, *, persistent: bool = True) -> None:
        super().__init__()
        self.seed = seed
        self.register_buffer("draws", torch.zeros((), dtype=torch.int64), persistent=persistent)

    @run_eagerly
    def generator(self, noise_seed: int | None, device: torch.device | str) -> torch.Generator:
        """A new generator that is a function of (seed, noise_seed), or the next of the stream.

        Args:
            noise_seed: Any integer; None takes the next generator of the stream.
            device: Device of the generator.

        Raises:
            UsageError: if `noise_seed` is None in a backward pass.
        """
        if noise_seed is not None:
            return self._seeded(device, _NAMED, noise_seed)
        _refuse_backward()
        count = self._count()
        self.draws += 1
        self._last = (self.draws, version_of(self.draws), count + 1)
        return self._seeded(device, _COUNTED, count)

    def key(self) -> Tensor:
        """The next number of the stream, a tensor for `hash_integers`; the host does not wait for a device.

        Raises:
            UsageError: in a backward pass.
        """
        if not torch.compiler.is_compiling():
            _refuse_backward()
        self.draws += 1
        return hash_integers(self.seed, _COUNTED, self.draws)

    def _count(self) -> int:
        """The value of `draws`.

        From a GPU it is read only once, and then counted on the host until something else changes the buffer.
        """
        if self.draws.device.type != "cpu" and self._last is not None:
            buffer, version, count = self._last
            if buffer is self.draws and version is not None and version == version_of(buffer):
                return count
        return int(self.draws)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_last": None}  # a copy has its own buffer

    @run_eagerly
    def fixed_generator(self, device: torch.device | str) -> torch.Generator:
        """A generator for evaluation that is the same in every call, a function of the seed alone."""
        return self._seeded(device, _FIXED, 0)

    def _seeded(self, device: torch.device | str, purpose: int, number: int) -> torch.Generator:
        generator = torch.Generator(device)
        return generator.manual_seed(hash_numbers(self.seed, purpose, number))


def _refuse_backward() -> None:
    """Raise in a backward pass: recomputed activations with other noise would give wrong gradients."""
    if torch._C._current_graph_task_id() != -1:
        raise UsageError(
            "an encoder draws noise in a backward pass: torch.utils.checkpoint runs it again, with other "
            "noise than in the forward pass\n"
            "Give the call noise_seed, a new number in each step"
        )


def dropout(x: Tensor, p: float, generator: torch.Generator | None, training: bool) -> Tensor:
    """Dropout from a given generator: entries are kept with probability 1 - p, and divided by it.

    Args:
        x: Tensor of any shape.
        p: Probability of dropping an entry, in [0, 1); rounded to a multiple of 2^-16.
        generator: Generator on the device of `x`; needed only in training with `p` above 0.
        training: Whether to drop; False returns `x` itself.

    Returns:
        Tensor in the shape of `x`.

    Raises:
        ValueError: if `p` is out of range, or a generator is needed and missing.
    """
    check_range(at_least=0, below=1, dropout=p)
    if not training or p == 0:
        return x
    if generator is None:
        raise ValueError("dropout needs a generator in training, such as NoiseStream.generator(...)")
    keep, scale = draw_kept(x, p, generator)
    # On the CPU, `torch.where` and its gradient take six times as long as a product.
    return x * (keep.to(x.dtype) * scale)


@contextmanager
def seeded_noise(generator: torch.Generator) -> Iterator[None]:
    """A context for code that draws from the global random state, such as layers of PyG.

    In the context the global state is seeded with the initial seed of `generator`; then it is restored. Only
    one thread at a time can be in this context.
    """
    with _global_state_lock:
        with _seeded_global_state(generator):
            yield


@contextmanager
def _seeded_global_state(generator: torch.Generator) -> Iterator[None]:
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
    """A context in which a module is in evaluation mode.

    Afterwards each of its submodules returns to its own mode, since some may be frozen. If several threads
    use the module, the last one restores the modes.
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
    """Choose the entries that dropout keeps.

    Args:
        x: Tensor of any shape.
        p: Probability of dropping an entry.
        generator: Generator on the device of `x`.

    Returns:
        True for entries that are kept, bool, in the shape of `x`; and the factor by which these are scaled.
    """
    dropped = min(round(p * 65536), 65535)
    return _random_bits(x, generator) >= dropped - 32768, 65536 / (65536 - dropped)


@run_eagerly
def _random_bits(x: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform 16-bit integers in the shape of x; each 64-bit draw, which is slow on the CPU, gives four."""
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device)
    words.random_(-(2**63), None, generator=generator)
    return words.view(torch.int16)[: x.numel()].view(x.shape)
