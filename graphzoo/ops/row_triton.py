"""What the CUDA kernels of KnowFormer's row operations share: a block of rows stays in registers.

Rows have D channels, padded to BLOCK, a power of two. Products take operands of the rows' type and sum in
float32; norms and sums are float32, too. Sums over rows are made block by block in a fixed order, by a number
of programs that depends on the sizes alone, so that results repeat.
"""

import inspect
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError(
        "backend 'triton' needs the package triton, which comes with torch for CUDA on Linux: install such a "
        "torch, or use backend='naive'"
    ) from error

from graphzoo.ops.eager import float32_precision

__all__ = [
    "cut",
    "dot",
    "head_sums",
    "kept",
    "launch",
    "normalize",
    "normalize_gradient",
    "on_device",
    "relu",
    "store_sum",
    "times",
    "triton",
    "tl",
    "vector",
]

_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_MIX_1 = tl.constexpr(0xBF58476D1CE4E5B9)
_MIX_2 = tl.constexpr(0x94D049BB133111EB)


_range = inspect.signature(tl.range.__init__)
if "disable_licm" not in _range.parameters:  # Triton 3.4, of torch 2.8: more registers, the same results
    _init = tl.range.__init__

    def _init_without(self: Any, *bounds: Any, disable_licm: bool = False, **options: Any) -> None:
        _init(self, *bounds, **options)

    _init_without.__signature__ = _range  # type: ignore[attr-defined] # others ask what it takes
    tl.range.__init__ = _init_without

_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # as Triton saw it when it took the kernels


def on_device(x: Tensor) -> AbstractContextManager[object]:
    """The device of `x` as the current one.

    Raises:
        ValueError: for tensors on the CPU, unless Triton's interpreter is on (TRITON_INTERPRET=1 at import).
    """
    if x.is_cuda:
        return torch.cuda.device(x.device)
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError(f"backend 'triton' runs on CUDA, but the rows are on {x.device}; use 'numba' there")
    return nullcontext()


def launch(channels: int, *, is_gradient: bool) -> dict[str, Any]:
    """Compile-time settings: rows of a block, warps, and how float32 products are made.

    Tensor cores take TF32 where `torch.set_float32_matmul_precision` allows it, else three such products,
    which is as exact as float32 (within its rounding); plain multiplications would spill registers. 16 rows
    of a gradient leave room for its sums; loops over blocks of many matrices have `disable_licm`, for the
    addresses of all of them, made before, would fill the registers (benchmarks/results/kernel_resources.csv).
    The last product of a loop decides how the warps share all of them: it should be one that makes rows.
    """
    rows = 16 if is_gradient else (64 if channels <= 32 else 32)
    exact = float32_precision() == "highest"
    precision = "wide" if _INTERPRETED else "tf32x3" if exact else "tf32"
    return {
        "D": channels,
        "ROWS": rows,
        "PRECISION": precision,
        "num_warps": 4 if channels <= 32 else 8,
        "num_stages": 1,  # blocks fetched ahead would hold registers
    }


def cut(flat: Tensor, shapes: list[torch.Size]) -> list[Tensor]:
    """Sums of partial results [P, ...], one after another in memory, as tensors of these shapes.

    Copies: what an operator returns shares no memory.
    """
    parts = flat.sum(0).split([shape.numel() for shape in shapes])
    return [part.view(shape).clone() for part, shape in zip(parts, shapes, strict=True)]


@triton.jit
def dot(a, b, PRECISION: tl.constexpr):
    """Product of two blocks; "wide" for the interpreter, which multiplies no bf16."""
    if PRECISION == "wide":
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    else:
        return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def times(x, ptr, D: tl.constexpr, BLOCK: tl.constexpr, TURNED: tl.constexpr, PRECISION: tl.constexpr,
          TYPE: tl.constexpr):  # fmt: skip
    """Rows times a matrix [D, D] in memory, or times its transpose, padded with zeros.

    It is read where it is used, from the cache: held by every warp, matrices would fill the registers.
    """
    i = tl.arange(0, BLOCK)
    inside = (i[:, None] < D) & (i[None, :] < D)
    at = i[None, :] * D + i[:, None] if TURNED else i[:, None] * D + i[None, :]
    weight = tl.load(ptr + at, mask=inside, other=0.0).to(TYPE)
    return dot(x.to(TYPE), weight, PRECISION)


@triton.jit
def vector(ptr, D: tl.constexpr, BLOCK: tl.constexpr):
    """A vector [D] as [1, BLOCK] in float32, padded with zeros; read where it is used, as matrices are."""
    i = tl.arange(0, BLOCK)
    return tl.load(ptr + i, mask=i < D, other=0.0).to(tl.float32)[None, :]


@triton.jit
def relu(x):
    """A NaN stays one."""
    return tl.where(x <= 0, 0.0, x)


@triton.jit
def normalize(x, D: tl.constexpr, BLOCK: tl.constexpr):
    """Layer normalisation without weight and bias, and 1 / std [ROWS, 1]."""
    inside = (tl.arange(0, BLOCK) < D)[None, :]
    x = tl.where(inside, x, 0.0)
    centred = tl.where(inside, x - tl.sum(x, 1, keep_dims=True) / D, 0.0)
    inverse = 1.0 / tl.sqrt(tl.sum(centred * centred, 1, keep_dims=True) / D + 1e-5)  # torch's default
    return centred * inverse, inverse


@triton.jit
def normalize_gradient(grad, unit, inverse, weight, D: tl.constexpr, BLOCK: tl.constexpr):
    """Gradient through `weight * unit + bias`; `weight` is 0 where it is padded."""
    weighted = grad * weight
    mean = tl.sum(weighted, 1, keep_dims=True) / D
    along = tl.sum(weighted * unit, 1, keep_dims=True) / D
    inside = (tl.arange(0, BLOCK) < D)[None, :]
    return tl.where(inside, (weighted - mean - unit * along) * inverse, 0.0)


@triton.jit
def head_sums(x, ROWS: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr):
    """Sum over each head's channels, in all of them: [ROWS, D] -> [ROWS, D]."""
    split = tl.reshape(x, (ROWS, HEADS, D // HEADS))
    total = tl.sum(split, 2, keep_dims=True)
    return tl.reshape(tl.broadcast_to(total, (ROWS, HEADS, D // HEADS)), (ROWS, D))


@triton.jit
def _mix(x):
    """The mixer of `graphzoo.ops.random`."""
    x = (x ^ (x >> 30)) * _MIX_1
    x = (x ^ (x >> 27)) * _MIX_2
    return x ^ (x >> 31)


@triton.jit
def kept(words, entities, threshold, ROWS: tl.constexpr, D: tl.constexpr):
    """Where `RowDropout.mask` is not 0, [ROWS, D], from the query's words [D / 4] and entities [ROWS]."""
    named = words[None, :].to(tl.uint64, bitcast=True) ^ entities[:, None].to(tl.uint64, bitcast=True)
    bits = _mix(_GOLDEN ^ _mix(named + _GOLDEN))
    shift = (16 * tl.arange(0, 4)).to(tl.uint64)
    quarters = (bits[:, :, None] >> shift[None, None, :]).to(tl.int16)
    return tl.reshape(quarters, (ROWS, D)).to(tl.int32) >= threshold


@triton.jit
def store_sum(ptr, x, D: tl.constexpr, BLOCK: tl.constexpr):
    """Write a padded [BLOCK, BLOCK] as [D, D], or [BLOCK] as [D]; where the next one goes."""
    i = tl.arange(0, BLOCK)
    if len(x.shape) == 1:
        tl.store(ptr + i, x, mask=i < D)
        ptr += D
    else:
        inside = (i[:, None] < D) & (i[None, :] < D)
        tl.store(ptr + i[:, None] * D + i[None, :], x, mask=inside)
        ptr += D * D
    return ptr
