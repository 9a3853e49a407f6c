"""Row-wise functions of huge activations, chunk by chunk, recomputed in the backward pass.

A transformer layer over [N, B, D] states is mostly tall, thin arithmetic: small matrices, normalisations and
sums that treat every row alike. Run tensor by tensor, each of its steps writes and saves an [N, B, D]
intermediate; most of the time then goes to memory, on the CPU to page faults of fresh allocations above all.
`map_rows` runs the whole function on a chunk of rows that stays in cache, saves only the inputs, and computes
the chunk again when its gradient is wanted. On the CPU the chunks are dealt to single-threaded workers, so
that no step waits for a barrier.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

__all__ = ["map_rows"]

RowFunction = Callable[[tuple[Tensor, ...], tuple[Tensor, ...], int], tuple[Tensor, ...]]
RowGradient = Callable[
    [tuple[Tensor, ...], tuple[Tensor, ...], int, tuple[Tensor, ...]],
    tuple[tuple[Tensor, ...], tuple[Tensor, ...]],
]

# Rows of the innermost matrices per chunk: 8192 rows of 32 float32 channels are 1 MiB, one core's share of
# cache.
CPU_ROWS = 8192
# Smaller inputs are still cut into a few chunks for the workers, unless a chunk would not be worth a call.
CPU_CHUNKS = 4
CPU_LEAST_ROWS = 512
# On an accelerator a chunk only bounds the memory of the recomputation; it should fill the device.
DEVICE_ROWS = 1 << 20

# One pool per number of threads; kept, since another thread may be about to use it.
_pools: dict[int, ThreadPoolExecutor] = {}
_pools_lock = threading.Lock()
_START_SECONDS = 60


def _forget_pools() -> None:
    """A forked child has neither its parent's worker threads nor a say over its locks."""
    global _pools_lock
    _pools.clear()
    _pools_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)


def _workers() -> ThreadPoolExecutor | None:
    """Workers whose own torch operations are single-threaded; None where one thread is all there is."""
    wanted = torch.get_num_threads()
    if wanted == 1 or threading.current_thread().name.startswith("graphzoo-rows"):
        return None
    with _pools_lock:
        pool = _pools.get(wanted)
        if pool is None:
            pool = ThreadPoolExecutor(
                wanted, "graphzoo-rows", initializer=torch.set_num_threads, initargs=(1,)
            )
            # Start every worker now: set_num_threads in a worker also moves the default for threads to come,
            # which the last line puts back. The calling thread keeps its own count throughout.
            barrier = threading.Barrier(wanted)
            for started in [pool.submit(barrier.wait, _START_SECONDS) for _ in range(wanted)]:
                started.result()
            torch.set_num_threads(wanted)
            _pools[wanted] = pool
        return pool


def _run(work: Callable[[int], Any], starts: range, device: torch.device) -> list[Any]:
    pool = _workers() if device.type == "cpu" and len(starts) > 1 else None
    return [work(start) for start in starts] if pool is None else list(pool.map(work, starts))


def _chunk_length(row: Tensor, chunk_rows: int | None) -> int:
    """Rows of equal chunks; never a function of the number of workers, so that the bits are not either."""
    on_cpu = row.device.type == "cpu"
    length, total = row.shape[0], row.numel() // row.shape[-1]
    num_chunks = -(-total // (chunk_rows or (CPU_ROWS if on_cpu else DEVICE_ROWS)))
    if chunk_rows is None and on_cpu:
        num_chunks = max(num_chunks, min(CPU_CHUNKS, total // CPU_LEAST_ROWS))
    return max(1, -(-length // max(1, num_chunks)))


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
        lock = threading.Lock()

        def work(start: int) -> tuple[Tensor, ...]:
            with torch.no_grad(), torch.autocast(device.type, ctx.autocast[1], enabled=ctx.autocast[0]):
                results = fn(tuple(row[start : start + step] for row in rows), shared, start)
            mapped = results[: len(results) - num_sums]
            with lock:
                if not outputs:
                    outputs.extend(part.new_empty(length, *part.shape[1:]) for part in mapped)
            for output, part in zip(outputs, mapped, strict=True):
                output[start : start + step] = part
            return results[len(results) - num_sums :]

        partial = _run(work, range(0, length, step), device)
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

        # Under autocast the types of intermediates are autocast's business, which only autograd follows.
        by_formula = ctx.gradient is not None and not ctx.autocast[0]
        partial = _run(work_by_formula if by_formula else work, range(0, rows[0].shape[0], step), device)
        grad_shared: list[Tensor | None] = []
        position = 0
        for need in needs[ctx.num_rows :]:
            grad_shared.append(_sum_in_order([part[position] for part in partial]) if need else None)
            position += need
        return (*(None,) * _NUM_SETTINGS, *grad_rows, *grad_shared)


def _sum_in_order(parts: list[Tensor]) -> Tensor:
    """Sum with the same bits whichever worker finished first."""
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


def map_rows(
    fn: RowFunction,
    rows: Sequence[Tensor],
    shared: Sequence[Tensor] = (),
    *,
    num_sums: int = 0,
    gradient: RowGradient | None = None,
    chunk_rows: int | None = None,
) -> tuple[Tensor, ...]:
    """Apply `fn` to chunks of rows, without keeping its intermediates.

    Args:
        fn: `fn(row_chunks, shared, start) -> outputs`, where every chunk covers rows `start` onwards. It must
            be a pure function that treats rows alike (no global random state): it runs again in the backward
            pass. Everything that needs a gradient must be in `rows` or `shared`.
        rows: Tensors [N, ...] cut along the first dimension, N >= 1.
        shared: Tensors given whole to every chunk, such as weights.
        num_sums: How many of the last outputs of `fn` are partial sums over its rows, added up over chunks;
            the other outputs have the chunk's rows first and are put together.
        gradient: `gradient(row_chunks, shared, start, grad_outputs) -> (grad_rows, grad_shared)`, written by
            hand where autograd's bookkeeping costs too much; by default autograd does it.
        chunk_rows: Rows of the trailing matrices ([N, B, D]: N times B) per chunk; a default for the device.

    Returns:
        The outputs of `fn` for all rows. The bits do not depend on the number of threads.

    Raises:
        ValueError: if there are no rows or the tensors of `rows` differ in length.
    """
    if not rows or rows[0].shape[0] == 0:
        raise ValueError("map_rows needs at least one tensor with at least one row")
    if len({row.shape[0] for row in rows}) > 1:
        raise ValueError(f"map_rows needs rows of one length, got {[row.shape[0] for row in rows]}")
    step = _chunk_length(max(rows, key=lambda row: row.dim()), chunk_rows)
    result: tuple[Tensor, ...] = _MapRows.apply(  # type: ignore[no-untyped-call]
        fn, gradient, num_sums, len(rows), step, *rows, *shared
    )
    return result
