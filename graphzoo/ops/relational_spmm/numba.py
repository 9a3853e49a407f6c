"""CPU backend: one compiled loop serves the op and both of its gradients.

It reads the states of up to four edges at a time, contiguously over features, so that the row being summed is
read and written once per four edges. Every element is summed by one thread in the order of its segment: the
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

# Features of one pass over the edges. Wide blocks win (docs/speed.md has the figures): rows are read as long
# streams, while narrow blocks of rows whose stride is a power of two would share a few sets of the caches.
MAX_BLOCK = 2048
# Blocks are cut at multiples of this: vector and remainder code meet the same elements at any block width.
BLOCK_UNIT = 64
# Pieces of work per thread, taken one by one: a thread that is held up leaves its share to the others.
PIECES_PER_THREAD = 4
# Multiplications below which a piece costs less than handing it over.
MIN_WORK_PER_PIECE = 1 << 19

# Multiply and add in one instruction; sums are not reordered, NaN and infinity behave as usual.
_jit = partial(jit, forceinline=False, fastmath={"contract"})


@_jit
def _sum_products(
    offsets: Any, first: Any, second: Any, a: Any, b: Any, out: Any, block: int, begin: int, end: int
) -> None:
    """Write `out[s, f] = sum_e a[first[e], f] * b[second[e], f]` for one piece of the (block, segment) grid.

    The piece is `begin..end` in units of (edges + segments), counted block after block: pieces of equal
    length mean equal work, whatever the degrees.
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


def _block_width(size: int, longest: int, num_edges: int, num_threads: int) -> int:
    """Features per block: as wide as pays, but one for every thread where a segment is too large a share."""
    num_blocks = -(-size // MAX_BLOCK)
    if longest * num_threads * PIECES_PER_THREAD > num_edges:
        num_blocks = -(-num_blocks // num_threads) * num_threads
    return -(-size // (num_blocks * BLOCK_UNIT)) * BLOCK_UNIT


def _segment_bounds(offsets: Any, num_pieces: int) -> list[int]:
    """First segments of the pieces, and the end: pieces have about as many edges and segments each."""
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
