"""Row-wise functions of large activations, computed in chunks and again in the backward pass.

Usually each step of a transformer layer over [N, B, D] states writes and saves an [N, B, D] intermediate.
Most of the time is then spent on memory, on the CPU mainly on page faults of new allocations. `map_rows` runs
the whole function on a chunk of rows that stays in cache, saves only the inputs, and computes each chunk
again for its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

RowFunction = Callable[[tuple[Tensor, ...], tuple[Tensor, ...], int], tuple[Tensor, ...]]
RowGradient = Callable[
    [tuple[Tensor, ...], tuple[Tensor, ...], int, tuple[Tensor, ...]],
    tuple[tuple[Tensor, ...], tuple[Tensor, ...]],
]

# Rows of a chunk, all dimensions but the last counted: 16384 rows of 32 float32 channels are 2 MiB, the cache
# of two cores. With fewer rows, torch's threads would have too little work between two barriers.
CPU_ROWS = 16384
# On a GPU chunks only bound the memory of the recomputation, and must be large enough to use all of it.
DEVICE_ROWS = 1 << 20


def _chunk_length(row: Tensor, chunk_rows: int | None) -> int:
    """Length of a chunk along the first dimension, so that all chunks are of nearly equal size."""
    chunk_rows = chunk_rows or (CPU_ROWS if row.device.type == "cpu" else DEVICE_ROWS)
    num_chunks = -(-(row.numel() // row.shape[-1]) // chunk_rows)
    return max(1, -(-row.shape[0] // max(1, num_chunks)))


_NUM_SETTINGS = 5  # arguments of _MapRows before the tensors


class _MapRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        fn: RowFunction,
        gradient: RowGradient | None,
        num_sums: int,
        num_rows: int,
        step: int,
        *tensors: Tensor,
    ) -> Any:
        rows, shared = tensors[:num_rows], tensors[num_rows:]
        length = rows[0].shape[0]
        device = rows[0].device
        ctx.fn, ctx.gradient, ctx.num_sums, ctx.num_rows, ctx.step = fn, gradient, num_sums, num_rows, step
        ctx.autocast = torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)
        ctx.save_for_backward(*tensors)
        outputs: list[Tensor] = []

        def work(start: int) -> tuple[Tensor, ...]:
            with torch.no_grad(), torch.autocast(device.type, ctx.autocast[1], enabled=ctx.autocast[0]):
                results = fn(tuple(row[start : start + step] for row in rows), shared, start)
            mapped = results[: len(results) - num_sums]
            if not outputs:
                outputs.extend(part.new_empty(length, *part.shape[1:]) for part in mapped)
            for output, part in zip(outputs, mapped, strict=True):
                output[start : start + step] = part
            return results[len(results) - num_sums :]

        partial = [work(start) for start in range(0, length, step)]
        sums = [_sum_in_order([part[i] for part in partial]) for i in range(num_sums)]
        return (*outputs, *sums)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        tensors = ctx.saved_tensors
        rows, shared = tensors[: ctx.num_rows], tensors[ctx.num_rows :]
        needs = ctx.needs_input_grad[_NUM_SETTINGS:]
        device, step = rows[0].device, ctx.step
        num_mapped = len(grad_outputs) - ctx.num_sums
        grad_rows = [torch.empty_like(row) if need else None for row, need in zip(rows, needs, strict=False)]

        def work_by_formula(start: int) -> list[Tensor]:
            stop = start + step
            chunk = tuple(row[start:stop] for row in rows)
            grads_in = tuple(g[start:stop] for g in grad_outputs[:num_mapped]) + grad_outputs[num_mapped:]
            with torch.no_grad():
                by_row, by_shared = ctx.gradient(chunk, shared, start, grads_in)
                for target, part in zip(grad_rows, by_row, strict=True):
                    if target is not None:
                        target[start:stop] = part
            return [part for part, need in zip(by_shared, needs[ctx.num_rows :], strict=True) if need]

        def work(start: int) -> list[Tensor]:
            stop = start + step
            chunk = [
                row[start:stop].detach().requires_grad_(need) for row, need in zip(rows, needs, strict=False)
            ]
            whole = [
                tensor.detach().requires_grad_(need)
                for tensor, need in zip(shared, needs[ctx.num_rows :], strict=True)
            ]
            with torch.enable_grad(), torch.autocast(device.type, ctx.autocast[1], enabled=ctx.autocast[0]):
                results = ctx.fn(tuple(chunk), tuple(whole), start)
            grads_in = [g[start:stop] for g in grad_outputs[:num_mapped]] + list(grad_outputs[num_mapped:])
            wanted = [leaf for leaf in (*chunk, *whole) if leaf.requires_grad]
            live = [(r, g) for r, g in zip(results, grads_in, strict=True) if r.requires_grad]
            grads = iter(
                torch.autograd.grad(
                    [r for r, _ in live], wanted, [g.to(r.dtype) for r, g in live],
                    allow_unused=True, materialize_grads=True,
                )
            )  # fmt: skip
            for target in grad_rows:
                if target is not None:
                    target[start:stop] = next(grads)
            return list(grads)

        # Autocast chooses the dtypes of intermediates, which a gradient written by hand does not know.
        by_formula = ctx.gradient is not None and not ctx.autocast[0]
        partial = [
            (work_by_formula if by_formula else work)(start) for start in range(0, rows[0].shape[0], step)
        ]
        grad_shared: list[Tensor | None] = []
        position = 0
        for need in needs[ctx.num_rows :]:
            grad_shared.append(_sum_in_order([part[position] for part in partial]) if need else None)
            position += need
        return (*(None,) * _NUM_SETTINGS, *grad_rows, *grad_shared)


def _sum_in_order(parts: list[Tensor]) -> Tensor:
    """Sum of tensors of one shape, into one new tensor."""
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


def _recomputed(fn: RowFunction, rows: tuple[Tensor, ...], shared: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """`fn` of all rows at once, computed again in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    def call(*tensors: Tensor) -> tuple[Tensor, ...]:
        return fn(tensors[: len(rows)], tensors[len(rows) :], 0)

    out: tuple[Tensor, ...] = checkpoint(call, *rows, *shared, use_reentrant=False, preserve_rng_state=False)
    return out


def map_rows(
    fn: RowFunction,
    rows: Sequence[Tensor],
    shared: Sequence[Tensor] = (),
    *,
    num_sums: int = 0,
    gradient: RowGradient | None = None,
    chunk_rows: int | None = None,
) -> tuple[Tensor, ...]:
    """Apply a function to chunks of rows, without storing its intermediates.

    Args:
        fn: Function `fn(row_chunks, shared, start) -> outputs` of the chunks that begin at row `start`. It
            runs again in the backward pass, so it must be pure: without global random state, and with the
            same result however the rows are cut. All tensors that need a gradient must be in `rows` or
            `shared`.
        rows: Tensors [N, ...] that are cut along the first dimension, with N >= 1.
        shared: Tensors that every chunk gets whole, such as weights.
        num_sums: Number of outputs of `fn`, the last ones, that are sums over its rows; these are added up
            over chunks. The other outputs have one row for each row of the chunk, and are concatenated.
        gradient: Function `gradient(row_chunks, shared, start, grad_outputs) -> (grad_rows, grad_shared)`;
            None computes gradients by autograd.
        chunk_rows: Rows of a chunk, all dimensions but the last counted (N B of [N, B, D]); None takes a
            default for the device.

    Returns:
        The outputs of `fn` for all rows.

    Raises:
        ValueError: if there are no rows or the tensors of `rows` differ in length.
    """
    if torch.compiler.is_exporting():  # sizes are symbolic, and gradients are not needed
        return fn(tuple(rows), tuple(shared), 0)
    if torch.compiler.is_compiling():  # the compiler fuses the operations, and saves only the inputs
        return _recomputed(fn, tuple(rows), tuple(shared))
    if not rows or rows[0].shape[0] == 0:
        raise ValueError("map_rows needs at least one tensor with at least one row")
    if len({row.shape[0] for row in rows}) > 1:
        raise ValueError(f"map_rows needs rows of one length, got {[row.shape[0] for row in rows]}")
    step = _chunk_length(max(rows, key=lambda row: row.dim()), chunk_rows)
    result: tuple[Tensor, ...] = _MapRows.apply(  # type: ignore[no-untyped-call]
        fn, gradient, num_sums, len(rows), step, *rows, *shared
    )
    return result
