"""CPU backend: one compiled loop serves the op and both of its gradients.

All three are sums of products over the edges of a segment (see `Ordering`). The loop reads the states of up to four
edges at a time, contiguously over features, so that the row being summed is loaded and stored once per four edges.
Every element of the result is summed by one thread in the order of its segment: the result does not depend on the
number of threads.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from graphzoo.ops.relational_spmm.graph import Ordering, RelationalGraph

__all__ = ["relational_spmm"]

# Features of one pass over the edges. Wide blocks win: rows are read as long streams, and power-of-two row strides
# would leave narrow blocks to a few sets of the caches.
BLOCK = 1024
# Below this many multiplications a second thread costs more than it saves.
MIN_WORK_PER_THREAD = 1 << 18

_JIT_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "boundscheck": False,
    "fastmath": {
        "contract"
    },  # multiply and add in one instruction; no reordering of sums, NaN and inf as usual
}


def _jit(function: Any) -> Any:
    """Compile lazily, with the result kept on disk where numba finds a writable place for it."""
    try:
        return njit(cache=True, **_JIT_OPTIONS)(function)
    except RuntimeError:  # numba: "no locator available", i.e. nowhere to write to
        return njit(**_JIT_OPTIONS)(function)


@_jit
def _sum_products(
    offsets: Any, first: Any, second: Any, a: Any, b: Any, out: Any, block: int, begin: int, end: int
) -> None:
    """Write `out[s, f] = sum_e a[first[e], f] * b[second[e], f]` for one piece of the (block, segment) grid.

    The piece is `begin..end` in units of (edges + segments), counted block after block, and begins and ends at a
    segment: pieces of equal length mean equal work, whatever the degrees.
    """
    num_segments = out.shape[0]
    size = out.shape[1]
    per_block = first.shape[0] + num_segments
    for k in range(begin // per_block, (end + per_block - 1) // per_block):
        lo = begin - k * per_block
        hi = end - k * per_block
        f0 = k * block
        width = min(block, size - f0)
        s = 0
        if lo > 0:
            left, right = 0, num_segments
            while left < right:
                middle = (left + right) // 2
                if offsets[middle] + middle < lo:
                    left = middle + 1
                else:
                    right = middle
            s = left
        while s < num_segments and offsets[s] + s < hi:
            e = offsets[s]
            stop = offsets[s + 1]
            row = out[s, f0 : f0 + width]
            rest = (stop - e) % 4
            if e == stop:
                for f in range(width):
                    row[f] = 0
            elif rest == 1:
                a0 = a[first[e], f0:]
                b0 = b[second[e], f0:]
                for f in range(width):
                    row[f] = a0[f] * b0[f]
                e += 1
            elif rest == 2:
                a0 = a[first[e], f0:]
                b0 = b[second[e], f0:]
                a1 = a[first[e + 1], f0:]
                b1 = b[second[e + 1], f0:]
                for f in range(width):
                    row[f] = a0[f] * b0[f] + a1[f] * b1[f]
                e += 2
            elif rest == 3:
                a0 = a[first[e], f0:]
                b0 = b[second[e], f0:]
                a1 = a[first[e + 1], f0:]
                b1 = b[second[e + 1], f0:]
                a2 = a[first[e + 2], f0:]
                b2 = b[second[e + 2], f0:]
                for f in range(width):
                    row[f] = a0[f] * b0[f] + a1[f] * b1[f] + a2[f] * b2[f]
                e += 3
            else:
                a0 = a[first[e], f0:]
                b0 = b[second[e], f0:]
                a1 = a[first[e + 1], f0:]
                b1 = b[second[e + 1], f0:]
                a2 = a[first[e + 2], f0:]
                b2 = b[second[e + 2], f0:]
                a3 = a[first[e + 3], f0:]
                b3 = b[second[e + 3], f0:]
                for f in range(width):
                    row[f] = a0[f] * b0[f] + a1[f] * b1[f] + a2[f] * b2[f] + a3[f] * b3[f]
                e += 4
            while e < stop:
                a0 = a[first[e], f0:]
                b0 = b[second[e], f0:]
                a1 = a[first[e + 1], f0:]
                b1 = b[second[e + 1], f0:]
                a2 = a[first[e + 2], f0:]
                b2 = b[second[e + 2], f0:]
                a3 = a[first[e + 3], f0:]
                b3 = b[second[e + 3], f0:]
                for f in range(width):
                    row[f] += a0[f] * b0[f] + a1[f] * b1[f] + a2[f] * b2[f] + a3[f] * b3[f]
                e += 4
            s += 1


@_jit
def _keep_edges(offsets: Any, first: Any, second: Any, position: Any, mask: Any, kept: Any) -> None:
    """Fill `kept` = (offsets, first, second) with the edges whose mask is set."""
    new_offsets, new_first, new_second = kept
    n = 0
    for s in range(offsets.shape[0] - 1):
        new_offsets[s] = n
        for e in range(offsets[s], offsets[s + 1]):
            if mask[position[e]]:
                new_first[n] = first[e]
                new_second[n] = second[e]
                n += 1
    new_offsets[offsets.shape[0] - 1] = n


_pool: tuple[int, int, ThreadPoolExecutor] | None = None


def _thread_pool(num_threads: int) -> ThreadPoolExecutor:
    """Threads of this process: a forked child gets its own."""
    global _pool
    if _pool is None or _pool[0] != os.getpid() or _pool[1] < num_threads:
        _pool = (
            os.getpid(),
            num_threads,
            ThreadPoolExecutor(num_threads, thread_name_prefix="relational_spmm"),
        )
    return _pool[2]


def _segment_products(
    ordering: Ordering, a: Tensor, b: Tensor, num_segments: int, edge_mask: Tensor | None
) -> Tensor:
    """`out[s] = sum_e a[first[e]] * b[second[e]]` over the kept edges of each segment, [num_segments, F]."""
    size = a.shape[1]
    out = torch.empty(num_segments, size, dtype=a.dtype)
    if out.numel() == 0:
        return out
    offsets, first, second, position = (tensor.numpy() for tensor in ordering)
    if edge_mask is not None:
        kept = (np.empty_like(offsets), np.empty_like(first), np.empty_like(second))
        _keep_edges(offsets, first, second, position, edge_mask.numpy(), kept)
        offsets, first, second = kept[0], kept[1][: kept[0][-1]], kept[2][: kept[0][-1]]
    total = -(-size // BLOCK) * (first.shape[0] + num_segments)
    num_threads = max(1, min(torch.get_num_threads(), total * min(size, BLOCK) // MIN_WORK_PER_THREAD))
    cuts = [total * i // num_threads for i in range(num_threads + 1)]
    arguments = (offsets, first, second, a.numpy(), b.numpy(), out.numpy(), BLOCK)
    if num_threads == 1:
        _sum_products(*arguments, 0, total)
        return out
    pool = _thread_pool(num_threads - 1)
    futures = [
        pool.submit(_sum_products, *arguments, lo, hi) for lo, hi in zip(cuts[1:-1], cuts[2:], strict=True)
    ]
    _sum_products(*arguments, cuts[0], cuts[1])
    wait(futures)
    for future in futures:
        future.result()
    return out


class _RelationalSpMM(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: FunctionCtx, x: Tensor, relation: Tensor, graph: RelationalGraph, edge_mask: Tensor | None
    ) -> Tensor:
        needs_x, needs_relation = ctx.needs_input_grad[:2]  # type: ignore[attr-defined]
        ctx.save_for_backward(x if needs_relation else None, relation if needs_x else None, edge_mask)  # type: ignore[arg-type]
        ctx.graph = graph  # type: ignore[attr-defined]
        return _segment_products(graph.by_target, x, relation, graph.num_nodes, edge_mask)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, relation, edge_mask = ctx.saved_tensors
        graph: RelationalGraph = ctx.graph
        grad = grad.contiguous()
        grad_x = grad_relation = None
        if relation is not None:
            grad_x = _segment_products(graph.by_source, grad, relation, graph.num_nodes, edge_mask)
        if x is not None:
            grad_relation = _segment_products(graph.by_relation, x, grad, graph.num_relations, edge_mask)
        return grad_x, grad_relation, None, None


def relational_spmm(
    x: Tensor, relation: Tensor, graph: RelationalGraph, edge_mask: Tensor | None = None
) -> Tensor:
    """The op on the CPU; same arguments as the reference, [N, F] float32 or float64 only."""
    return _RelationalSpMM.apply(x, relation, graph, edge_mask)  # type: ignore[no-any-return, no-untyped-call]
