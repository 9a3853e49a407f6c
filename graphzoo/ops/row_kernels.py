"""Compiled loops over a block of rows that stays in cache, for the CPU backends of KnowFormer's operators.

A block has at most `block_rows` rows, so that BLAS computes its products on the calling thread. Everything
between two products runs while the rows are still in cache. Arrays are C-contiguous, float32 or float64.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

_JIT_OPTIONS: dict[str, Any] = {
    "nogil": True,
    # Helpers are inlined into each kernel. Otherwise every kernel has its own copy of a helper, compiled
    # differently but under the same name, and which copy is called depends on what was compiled or loaded
    # before: the first run of freshly compiled kernels had other bits than the next one.
    "forceinline": True,
    "error_model": "numpy",
    "boundscheck": False,
    # Allows a multiplication and an addition in one instruction, and sums of a row in the order of the vector
    # unit. Both are fixed at compilation, so results are reproducible. NaN and infinity behave as usual.
    "fastmath": {"contract", "reassoc", "nsz"},
}
# Above this many multiplications OpenBLAS starts its own threads.
_BLAS_SERIAL = 1 << 18
_MAX_BLOCK = 256
# Pieces of work that threads take one by one. Their number depends only on the rows, so that partial sums are
# added up in the same order on any number of threads.
_MAX_PIECES = 32
_MIN_BLOCKS_PER_PIECE = 4


def _digest() -> str:
    """The digest of this file, whose helpers are part of cached kernels; empty if it cannot be read."""
    try:
        return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    except OSError:
        return ""


_HELPERS = _digest()


def jit(function: Any, **changes: Any) -> Any:
    """Compile a function at its first call, and keep the result on disk if numba finds a writable folder.

    Args:
        function: The function.
        **changes: Options of numba that differ from `_JIT_OPTIONS`.
    """
    options = {"cache": True, **_JIT_OPTIONS, **changes}
    try:
        compiled = njit(**options)(function)
        kept: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
        if hasattr(kept, "_source_stamp"):  # numba itself checks only the kernel's file, not that of helpers
            kept._source_stamp = (kept._source_stamp, _HELPERS)
        return compiled
    except RuntimeError:  # numba's "no locator available": there is no writable folder
        return njit(**{**options, "cache": False})(function)


helper = partial(jit, cache=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""`jit` for functions that only kernels call, without the wrapper for calls from Python.

Helpers are not cached on disk, since cached kernels contain them. A helper has several signatures, and two
processes that compile different ones at the same time would write the same file.
"""


def block_rows(channels: int) -> int:
    """Rows of a block, so that BLAS computes its product with a [D, D] matrix on the calling thread."""
    return max(1, min(_MAX_BLOCK, _BLAS_SERIAL // (channels * channels)))


def piece_bounds(num_rows: int, block: int) -> list[int]:
    """First row of each piece of work, and the number of rows at the end."""
    num_blocks = -(-num_rows // block)
    num_pieces = max(1, min(_MAX_PIECES, num_blocks // _MIN_BLOCKS_PER_PIECE))
    return [min(num_rows, num_blocks * i // num_pieces * block) for i in range(num_pieces + 1)]


@helper
def gather_rows(x: Any, grid: Any, start: int, num_rows: int, query: int, out: Any) -> None:
    """Copy `out[r] = x[start + r, query]`, rows of one query, where x [N, B, D] is given as rows [N B, D].

    `grid` is (N, rows between two entities, rows between two queries).
    """
    for r in range(num_rows):
        row = (start + r) * grid[1] + query * grid[2]
        for c in range(x.shape[1]):
            out[r, c] = x[row, c]


@helper
def add_rows(x: Any, row: Any, num_rows: int) -> None:
    """Add `row` to all rows, in place."""
    for r in range(num_rows):
        for c in range(x.shape[1]):
            x[r, c] += row[c]


@helper
def linear_relu(x: Any, weight_t: Any, bias: Any, out: Any, num_rows: int) -> None:
    """Compute `out = relu(x @ weight_t + bias)`."""
    np.dot(x[:num_rows], weight_t, out[:num_rows])
    for r in range(num_rows):
        for c in range(out.shape[1]):
            value = out[r, c] + bias[c]
            out[r, c] = bias.dtype.type(0) if value <= 0 else value  # a NaN stays one


@helper
def normalize_rows(x: Any, unit: Any, inverse_std: Any, num_rows: int) -> None:
    """Write the rows normalised (without weight and bias) to `unit`, and 1 / std to `inverse_std`."""
    dtype = x.dtype.type
    scale = dtype(1.0 / x.shape[1])
    for r in range(num_rows):
        mean = dtype(0)
        for c in range(x.shape[1]):
            mean += x[r, c]
        mean *= scale
        variance = dtype(0)
        for c in range(x.shape[1]):
            difference = x[r, c] - mean
            unit[r, c] = difference
            variance += difference * difference
        inverse = dtype(1) / np.sqrt(variance * scale + dtype(1e-5))  # 1e-5: torch's default
        inverse_std[r] = inverse
        for c in range(x.shape[1]):
            unit[r, c] *= inverse


@helper
def normalize_rows_gradient(
    grad: Any,
    unit: Any,
    inverse_std: Any,
    weight: Any,
    grad_x: Any,
    grad_weight: Any,
    grad_bias: Any,
    num_rows: int,
) -> None:
    """Gradient of `weight * unit + bias`.

    The gradient of the rows is written to `grad_x`, the others are added to `grad_weight` and `grad_bias`.
    """
    dtype = grad.dtype.type
    scale = dtype(1.0 / grad.shape[1])
    for r in range(num_rows):
        mean = dtype(0)
        along = dtype(0)
        for c in range(grad.shape[1]):
            g = grad[r, c]
            weighted = g * weight[c]
            grad_x[r, c] = weighted
            mean += weighted
            along += weighted * unit[r, c]
            grad_weight[c] += g * unit[r, c]
            grad_bias[c] += g
        mean *= scale
        along *= scale
        inverse = inverse_std[r]
        for c in range(grad.shape[1]):
            grad_x[r, c] = (grad_x[r, c] - mean - unit[r, c] * along) * inverse
