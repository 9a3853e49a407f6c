"""Who runs what: functions that `torch.compile` leaves alone, precision, and the compiled CPU kernels."""

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
    """Like `torch.compiler.disable`, which imports the whole compiler (about a second) when it decorates.

    For what compiled code cannot hold: random generators, sparse matrices, gradients written by hand.
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
    """A wrapper whose code is its own: `torch.compile` counts recompilations, up to eight, by code object.

    Made in one place, all wrappers would share one, and use up the limit together.
    """
    plain: Any = wrapper
    plain.__code__ = plain.__code__.replace(co_name=wrapper.__name__)
    return wrapper


_exports_fused = False


@contextmanager
def fused_export() -> Iterator[None]:
    """Let `torch.export` keep the fused ops as operators `graphzoo::...`.

    Such a program is fast, and runs where graphzoo is imported. Without this it holds torch's own operators.
    """
    global _exports_fused
    before, _exports_fused = _exports_fused, True
    try:
        yield
    finally:
        _exports_fused = before


def needs_plain_operators() -> bool:
    """Whether a program is exported that has to run with torch alone."""
    return torch.compiler.is_exporting() and not _exports_fused


def is_traced(x: Tensor) -> bool:
    """Whether somebody looks at single operators, or `x` has no memory: compilers, modes, fake tensors.

    The fused ops are custom operators there. Elsewhere autograd calls their kernels without the dispatcher,
    which takes a tenth of a millisecond a call less.
    """
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return True
    return type(x) is not Tensor and type(x) is not nn.Parameter


def without_autocast(device_type: str) -> AbstractContextManager[Any]:
    """Arithmetic in the precision of the tensors; an exported program neither holds nor needs the context."""
    if torch.compiler.is_exporting():
        return nullcontext()
    switched_off: AbstractContextManager[Any] = torch.autocast(device_type, enabled=False)
    return switched_off


_MAX_CHANNELS = 64  # of a kernel's rows on CUDA: more sums of a gradient do not fit its registers


def row_backend(channels: int, *tensors: Tensor) -> str:
    """Which kernels take rows of so many channels, and parameters: "numba", "triton" or "naive"."""
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
    """Rows, or None, in the type that autocast wants; kernels still sum and normalise in float32."""
    if not torch.is_autocast_enabled("cuda"):
        return [*rows]
    dtype = torch.get_autocast_dtype("cuda")
    return [None if x is None else x.to(dtype) for x in rows]


def float32_precision() -> str:
    """`torch.get_float32_matmul_precision`, which refuses to say what torch's newer switches were set to."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "high" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "highest"


@contextmanager
def full_float32(device_type: str) -> Iterator[None]:
    """Products of float32 on CUDA without TF32, whatever `torch.set_float32_matmul_precision` says.

    Compiled code cannot switch, and products on other devices are left as they are.
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
    """Whether the compiled CPU kernels take these tensors: one of their types, and no autocast."""
    if torch.is_autocast_enabled("cpu") or needs_plain_operators():
        return False
    return all(
        tensor.device.type == "cpu" and tensor.dtype == tensors[0].dtype for tensor in tensors
    ) and tensors[0].dtype in (torch.float32, torch.float64)
