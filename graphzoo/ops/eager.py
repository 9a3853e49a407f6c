"""Helpers that ask or decide how an operator runs: compiled or not, in which precision, by which kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, wraps
from importlib.util import find_spec
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

P = ParamSpec("P")
R = TypeVar("R")


def run_eagerly(function: Callable[P, R]) -> Callable[P, R]:
    """Exclude a function from `torch.compile`, as `torch.compiler.disable` does.

    It is for code that cannot be compiled: random generators, sparse matrices, gradients written by hand.
    `torch.compiler.disable` itself imports the compiler, which takes about a second, already when it
    decorates a function.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.compiler.is_dynamo_compiling():
            disable: Any = torch.compiler.disable
            result: R = disable(function)(*args, **kwargs)
            return result
        return function(*args, **kwargs)

    return with_own_code(call)


def with_own_code(wrapper: Callable[P, R]) -> Callable[P, R]:
    """Give a wrapper a code object of its own.

    `torch.compile` allows eight recompilations for each code object. All wrappers that a decorator makes have
    the same one, and would share this limit.
    """
    plain: Any = wrapper
    plain.__code__ = plain.__code__.replace(co_name=wrapper.__name__)
    return wrapper


_exports_fused = False


@contextmanager
def fused_export() -> Iterator[None]:
    """A context in which `torch.export` keeps the fused operators, as `graphzoo::...`.

    The exported program is faster, but runs only where graphzoo is imported. Outside this context, programs
    are exported with torch's own operators.
    """
    global _exports_fused
    before, _exports_fused = _exports_fused, True
    try:
        yield
    finally:
        _exports_fused = before


def needs_plain_operators() -> bool:
    """Whether a program is being exported that must run without graphzoo."""
    return torch.compiler.is_exporting() and not _exports_fused


def is_traced(x: Tensor) -> bool:
    """Whether operators are recorded: by a compiler, by a dispatch mode, or because `x` is a fake tensor.

    The fused operators must then be custom operators. Otherwise autograd calls their kernels directly, since
    the dispatcher would add a tenth of a millisecond to every call.
    """
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return True
    return type(x) is not Tensor and type(x) is not nn.Parameter


def without_autocast(device_type: str) -> AbstractContextManager[Any]:
    """A context without autocast; exported programs do not need it and cannot contain it."""
    if torch.compiler.is_exporting():
        return nullcontext()
    disabled: AbstractContextManager[Any] = torch.autocast(device_type, enabled=False)
    return disabled


_MAX_CHANNELS = 64  # of the Triton kernels: the sums of gradients of wider rows do not fit into registers


def row_backend(channels: int, *tensors: Tensor) -> str:
    """The fastest backend for these tensors with rows of `channels`: "numba", "triton" or "naive"."""
    if runs_compiled(*tensors):
        return "numba"
    on_cuda = all(tensor.is_cuda and tensor.dtype in _CUDA_TYPES for tensor in tensors)
    if on_cuda and channels <= _MAX_CHANNELS and _has_triton() and not needs_plain_operators():
        return "triton"
    return "naive"


_CUDA_TYPES = (torch.float32, torch.bfloat16, torch.float16)


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def rows_in_autocast(*rows: Any) -> list[Any]:
    """Convert rows to autocast's dtype for CUDA, if it is on; kernels still sum and normalise in float32.

    An element of `rows` may be None.
    """
    if not torch.is_autocast_enabled("cuda"):
        return [*rows]
    dtype = torch.get_autocast_dtype("cuda")
    return [None if x is None else x.to(dtype) for x in rows]


def float32_precision() -> str:
    """`torch.get_float32_matmul_precision`, also if the precision was set by torch's newer attributes.

    The function of torch then raises a `RuntimeError`.
    """
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "high" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "highest"


@contextmanager
def full_float32(device_type: str) -> Iterator[None]:
    """A context in which matrix products in float32 on CUDA do not use TF32, even if the user allows it.

    It does nothing on other devices, nor in compiled code, which cannot change the setting.
    """
    if device_type != "cuda" or torch.compiler.is_compiling():
        yield
        return
    before = float32_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def runs_compiled(*tensors: Tensor) -> bool:
    """Whether the numba kernels can be used: for CPU tensors that are all float32 or all float64.

    They are not used under autocast, nor in programs that are exported without graphzoo's operators.
    """
    if torch.is_autocast_enabled("cpu") or needs_plain_operators():
        return False
    return all(
        tensor.device.type == "cpu" and tensor.dtype == tensors[0].dtype for tensor in tensors
    ) and tensors[0].dtype in (torch.float32, torch.float64)
