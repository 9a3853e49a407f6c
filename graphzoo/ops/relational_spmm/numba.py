"""CPU backend: one compiled loop computes the operator and both of its gradients.

The loop reads the rows of four edges at a time, contiguously over features, so that the row of sums is read
and written once for four edges. One thread sums all edges of an element, in the order of the segment. So the
result does not depend on the number of threads.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.ops.relational_spmm.graph import RelationalGraph, Segment
from graphzoo.ops.relational_spmm.narrow import sum_narrow_products, vectors_of
from graphzoo.ops.row_kernels import jit
from graphzoo.ops.threads import run_pieces

# Features of one pass over the edges. Wide blocks are faster (docs/speed.md has the measurements), since rows
# are read as long streams. If the stride of rows is a power of two, narrow blocks would use only a few sets
# of the caches.
MAX_BLOCK = 2048
# Blocks are cut at multiples of this, so that an element is computed by the same code, vectorised or for the
# remainder, whatever the block width.
BLOCK_UNIT = 64
# Pieces of work for each thread. They are taken one by one, so a delayed thread does fewer of them.
PIECES_PER_THREAD = 4
# Multiplications of a piece; a smaller piece would take less time than passing it to another thread.
MIN_WORK_PER_PIECE = 1 << 19

# Allows a product and a sum in one instruction. Sums are not reordered; NaN and infinity behave as usual.
_jit = partial(jit, forceinline=False, fastmath={"contract"})


@_jit
def _sum_products(
    offsets: Any, first: Any, second: Any, a: Any, b: Any, out: Any, block: int, begin: int, end: int
) -> None:
    """Write `out[s, f] = sum_e a[first[e], f] * b[second[e], f]` for one piece of the (block, segment) grid.

    The range `begin..end` counts edges and segments, block after block. So pieces of equal length take equal
    work, whatever the degrees are.
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
    """Write the edges whose mask is True to `kept` = (offsets, first, second)."""
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


def _block_width(size: int, longest: int, num_edges: int, num_threads: int) -> int:
    """Features of a block, a multiple of `BLOCK_UNIT`.

    It is as wide as `MAX_BLOCK` allows. But if one segment has a large share of all edges, there is at least
    one block for each thread, since a segment of a block cannot be split.
    """
    num_blocks = -(-size // MAX_BLOCK)
    if longest * num_threads * PIECES_PER_THREAD > num_edges:
        num_blocks = -(-num_blocks // num_threads) * num_threads
    return -(-size // (num_blocks * BLOCK_UNIT)) * BLOCK_UNIT


def _segment_bounds(offsets: Any, num_pieces: int) -> list[int]:
    """First segment of each piece, and the end; pieces have about equally many edges and segments."""
    num_segments = offsets.shape[0] - 1
    if num_pieces == 1:
        return [0, num_segments]
    work = offsets + np.arange(num_segments + 1, dtype=np.int64)
    shares = [int(work[-1]) * i // num_pieces for i in range(1, num_pieces)]
    return [0, *np.searchsorted(work, shares).tolist(), num_segments]


def segment_products(
    graph: RelationalGraph, segment: Segment, a: Tensor, b: Tensor, edge_mask: Tensor | None
) -> Tensor:
    """`SegmentProducts` on the CPU, float32 or float64, on as many threads as torch has."""
    ordering = graph.ordering(segment)
    num_segments, size = ordering.offsets.numel() - 1, a.shape[1]
    out = torch.empty(num_segments, size, dtype=a.dtype)
    if out.numel() == 0:
        return out
    offsets, first, second, position = (tensor.numpy() for tensor in ordering[:4])
    if edge_mask is not None:
        kept = (np.empty_like(offsets), np.empty_like(first), np.empty_like(second))
        _keep_edges(offsets, first, second, position, edge_mask.numpy(), kept)
        num_kept = int(kept[0][-1])
        offsets, first, second = kept[0], kept[1][:num_kept], kept[2][:num_kept]
    work = (first.shape[0] + num_segments) * size
    num_threads = max(1, min(torch.get_num_threads(), work // MIN_WORK_PER_PIECE))
    num_pieces = 1 if num_threads == 1 else min(num_threads * PIECES_PER_THREAD, work // MIN_WORK_PER_PIECE)
    arrays = offsets, first, second, a.detach().numpy(), b.detach().numpy(), out.numpy()
    if vectors := vectors_of(size):
        bounds = _segment_bounds(offsets, num_pieces)

        def work_off(i: int) -> None:
            sum_narrow_products(*arrays, vectors, bounds[i], bounds[i + 1])
    else:
        block = _block_width(size, ordering.longest, first.shape[0], num_threads)
        total = -(-size // block) * (first.shape[0] + num_segments)

        def work_off(i: int) -> None:
            _sum_products(*arrays, block, total * i // num_pieces, total * (i + 1) // num_pieces)

    run_pieces(work_off, num_pieces)
    return out
