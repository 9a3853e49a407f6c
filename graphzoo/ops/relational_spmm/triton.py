"""CUDA backend: one kernel serves the op and both of its gradients, without atomics.

A program sums one piece of a segment for one block of features. Programs that run together share the feature
block, so that the states they gather, N rows of one block, stay in L2. Segments longer than `PIECE` edges
(hub nodes, frequent relations) are cut; their partial sums are added in order by a second kernel. The result
is the same from run to run. Of masked edges the kept ones are gathered first, once per mask and ordering.
"""

import os
from collections import defaultdict
from contextlib import nullcontext
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from graphzoo.ops.last_result import LastResult
from graphzoo.ops.relational_spmm import pieces as cut
from graphzoo.ops.relational_spmm.graph import Ordering, RelationalGraph, Segment

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError(
        "backend 'triton' needs the package triton, which comes with torch for CUDA on Linux: install such a "
        "torch, or use backend='naive'"
    ) from error


# Features of one load. 128 floats are 512 contiguous bytes.
MAX_BLOCK, MIN_BLOCK = 128, 32
# Below this mean length of a segment four edges are read at a time, else eight, whose loads hide the latency.
# A warp has at least four, so that a turn of the loop costs each of them little: two warps at most.
SHORT = 8
# Elements of an operand from which on 32 bits do not number them.
WIDE_ELEMENTS = 1 << 31


class _Edges(NamedTuple):
    """The edges that count, as `Ordering` has them."""

    offsets: Tensor
    first: Tensor
    second: Tensor


@triton.jit
def _halves(words):
    """Two bf16 of 32 bits in float32, the one in the low half first: an instruction each, in place of two."""
    return (words << 16).to(tl.float32, bitcast=True), (words & -65536).to(tl.float32, bitcast=True)


@triton.jit
def _add_products(low, high, a, b, PAIRS: tl.constexpr):
    """`low` + a * b; of pairs the first ones' products are added to `low`, the others' to `high`."""
    if PAIRS:
        a, a_high = _halves(a)
        b, b_high = _halves(b)
        high = tl.fma(a_high, b_high, high)
    return tl.fma(a.to(low.dtype), b.to(low.dtype), low), high


@triton.jit
def _sum_products_kernel(
    out_ptr, partial_ptr, a_ptr, b_ptr, offsets_ptr, first_ptr, second_ptr,
    segment_ptr, number_ptr, slot_ptr, num_pieces, size,
    PIECE: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr, PAIRS: tl.constexpr,
    WIDE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    piece = pid % num_pieces
    features = (pid // num_pieces) * BLOCK + tl.arange(0, BLOCK)
    LOADS: tl.constexpr = BLOCK // 2 if PAIRS else BLOCK
    row_loads = size // 2 if PAIRS else size
    loads = (pid // num_pieces) * LOADS + tl.arange(0, LOADS)[None, :]
    inside = loads < row_loads
    a_ptrs, b_ptrs = a_ptr + loads, b_ptr + loads
    segment = tl.load(segment_ptr + piece).to(tl.int64)
    slot = tl.load(slot_ptr + piece).to(tl.int64)
    begin = tl.load(offsets_ptr + segment) + tl.load(number_ptr + piece) * PIECE
    end = tl.minimum(tl.load(offsets_ptr + segment + 1), begin + PIECE)
    whole = begin + tl.maximum(end - begin, 0) // EDGES * EDGES
    acc = tl.zeros((EDGES, LOADS), dtype=ACC)
    high = tl.zeros((EDGES, LOADS), dtype=ACC)
    for start in range(begin, whole, EDGES):
        edges = start + tl.arange(0, EDGES)
        first, second = tl.load(first_ptr + edges), tl.load(second_ptr + edges)
        if WIDE:  # row numbers times row length exceed 32 bits
            first, second = first.to(tl.int64), second.to(tl.int64)
        at_a, at_b = first[:, None] * row_loads, second[:, None] * row_loads
        if EVEN:
            a, b = tl.load(a_ptrs + at_a), tl.load(b_ptrs + at_b)
        else:
            a = tl.load(a_ptrs + at_a, mask=inside, other=0.0)
            b = tl.load(b_ptrs + at_b, mask=inside, other=0.0)
        acc, high = _add_products(acc, high, a, b, PAIRS)
    if whole < end:
        edges = whole + tl.arange(0, EDGES)
        kept = edges < end
        first = tl.load(first_ptr + edges, mask=kept, other=0).to(tl.int64)
        second = tl.load(second_ptr + edges, mask=kept, other=0).to(tl.int64)
        wanted = kept[:, None] & inside
        a = tl.load(a_ptrs + first[:, None] * row_loads, mask=wanted, other=0)
        b = tl.load(b_ptrs + second[:, None] * row_loads, mask=wanted, other=0)
        acc, high = _add_products(acc, high, a, b, PAIRS)
    total = tl.sum(acc, axis=0)
    if PAIRS:
        total = tl.interleave(total, tl.sum(high, axis=0))
    if slot < 0:
        tl.store(
            out_ptr + segment * size + features, total.to(out_ptr.dtype.element_ty), mask=features < size
        )
    else:
        tl.store(partial_ptr + slot * size + features, total, mask=features < size)


@triton.jit
def _sum_partials_kernel(
    out_ptr, partial_ptr, cut_segment_ptr, cut_slots_ptr, num_cut, size,
    BLOCK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    cut = pid % num_cut
    features = (pid // num_cut) * BLOCK + tl.arange(0, BLOCK)
    inside = features < size
    segment = tl.load(cut_segment_ptr + cut).to(tl.int64)
    first_slot = tl.load(cut_slots_ptr + cut)
    row = partial_ptr + first_slot.to(tl.int64) * size
    acc = tl.zeros((BLOCK,), dtype=ACC)
    for _ in range(first_slot, tl.load(cut_slots_ptr + cut + 1)):
        acc += tl.load(row + features, mask=inside, other=0.0)
        row += size
    tl.store(out_ptr + segment * size + features, acc.to(out_ptr.dtype.element_ty), mask=inside)


_kept: WeakKeyDictionary[RelationalGraph, defaultdict[Segment, LastResult[_Edges]]] = WeakKeyDictionary()


def _edges(graph: RelationalGraph, by: Segment, edge_mask: Tensor | None) -> _Edges:
    """An ordering's edges; of masked ones those that are kept, gathered once while the mask is the same."""
    ordering = graph.ordering(by)
    if edge_mask is None:
        return _Edges(*ordering[:3])
    known = _kept.setdefault(graph, defaultdict(LastResult))[by]
    return known.get((edge_mask,), lambda: _gather(ordering, edge_mask))


def _gather(ordering: Ordering, edge_mask: Tensor) -> _Edges:
    """Kept edges first, in their order, without a look at how many they are: nothing waits for the device."""
    keep = edge_mask[ordering.position].long()
    up_to = keep.cumsum(0)
    before = up_to - keep
    number = torch.arange(keep.numel(), device=keep.device)
    place = torch.where(keep > 0, before, up_to[-1:] + number - before)  # dropped ones behind: a permutation
    offsets = torch.cat([up_to.new_zeros(1), up_to])[ordering.offsets.long()]
    first, second = (torch.empty_like(x).scatter_(0, place, x) for x in (ordering.first, ordering.second))
    return _Edges(offsets.to(ordering.offsets.dtype), first, second)


@cache
def _half_of_l2(device: torch.device) -> int:
    """Bytes; a guess for the interpreter."""
    return (
        int(torch.cuda.get_device_properties(device).L2_cache_size) // 2 if device.type == "cuda" else 1 << 24
    )


def _launch(ordering: Ordering, a: Tensor) -> dict[str, Any]:
    """How wide a block is, how many edges are read at a time, and by how many warps."""
    num_rows, size = a.shape
    block = min(MAX_BLOCK, triton.next_power_of_2(size))
    while block > MIN_BLOCK and num_rows * block * a.element_size() > _half_of_l2(a.device):
        block //= 2
    is_short = ordering.first.numel() < SHORT * (ordering.offsets.numel() - 1)
    return {
        "BLOCK": block,
        "EVEN": size % block == 0,
        "EDGES": 4 if is_short else 8,
        "num_warps": 1 if is_short or block < MAX_BLOCK else 2,
    }


def segment_products(
    graph: RelationalGraph, segment: Segment, a: Tensor, b: Tensor, edge_mask: Tensor | None
) -> Tensor:
    """`SegmentProducts` on CUDA, any floating dtype, sums in float32 (float64 for float64).

    Raises:
        ValueError: for tensors on the CPU, unless Triton's interpreter is on (TRITON_INTERPRET=1 at import).
    """
    if not a.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError(f"backend 'triton' runs on CUDA, but x is on {a.device}; use 'numba' there")
    ordering = graph.ordering(segment)
    size = a.shape[1]
    out = torch.empty(ordering.offsets.numel() - 1, size, dtype=a.dtype, device=a.device)
    if out.numel() == 0:
        return out
    pieces, edges = graph.pieces(segment), _edges(graph, segment, edge_mask)
    acc = torch.float64 if a.dtype == torch.float64 else torch.float32
    partial = torch.empty(pieces.num_slots, size, dtype=acc, device=a.device)
    settings = _launch(ordering, a)
    num_blocks = triton.cdiv(size, settings["BLOCK"])
    tl_acc = tl.float64 if acc == torch.float64 else tl.float32
    num_pieces, num_cut = pieces.segment.numel(), pieces.cut_segment.numel()
    is_wide = max(a.numel(), b.numel()) >= WIDE_ELEMENTS
    # a part of a larger tensor may begin in the middle of 32 bits
    aligned = size % 2 == 0 and (a.data_ptr() | b.data_ptr()) % 4 == 0
    pairs = a.dtype == torch.bfloat16 and settings["EVEN"] and aligned
    if pairs:
        a, b = a.view(torch.int32), b.view(torch.int32)
    with torch.cuda.device(a.device) if a.is_cuda else nullcontext():
        _sum_products_kernel[(num_pieces * num_blocks,)](
            out, partial, a, b, *edges, *pieces[:3], num_pieces, size,
            PIECE=cut.PIECE, PAIRS=pairs, WIDE=is_wide, ACC=tl_acc, **settings,
        )  # fmt: skip
        if num_cut:
            _sum_partials_kernel[(num_cut * num_blocks,)](
                out, partial, pieces.cut_segment, pieces.cut_slots, num_cut, size,
                BLOCK=settings["BLOCK"], ACC=tl_acc,
            )  # fmt: skip
    return out
