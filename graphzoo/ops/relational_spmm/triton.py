"""CUDA backend: one kernel serves the op and both of its gradients, without atomics.

A program sums one piece of a segment for one block of features. Programs that run together share the feature
block, so that the states they gather, N rows of one block, stay in L2. Segments longer than `PIECE` edges
(hub nodes, frequent relations) are cut; their partial sums are added in order by a second kernel. The result
is the same from run to run.
"""

# ruff: noqa: ANN001, ANN202 (Triton gives annotations of kernel arguments a meaning of its own)

import os
from contextlib import nullcontext

import torch
from torch import Tensor

from graphzoo.ops.relational_spmm import pieces as cut
from graphzoo.ops.relational_spmm.graph import RelationalGraph, Segment

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError(
        "backend 'triton' needs the package triton, which comes with torch for CUDA on Linux: install such a "
        "torch, or use backend='naive'"
    ) from error

__all__ = ["segment_products"]

# Edges and features of one load. 128 floats are 512 contiguous bytes; eight rows in flight hide the latency.
EDGES = 8
MAX_BLOCK = 128


@triton.jit  # type: ignore[untyped-decorator]
def _sum_products_kernel(  # type: ignore[no-untyped-def]
    out_ptr, partial_ptr, a_ptr, b_ptr, offsets_ptr, first_ptr, second_ptr, keep_ptr,
    begin_ptr, segment_ptr, slot_ptr, num_pieces, size,
    HAS_MASK: tl.constexpr, PIECE: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    piece = pid % num_pieces
    features = (pid // num_pieces) * BLOCK + tl.arange(0, BLOCK)
    inside = features < size
    segment = tl.load(segment_ptr + piece).to(tl.int64)
    slot = tl.load(slot_ptr + piece).to(tl.int64)
    begin = tl.load(begin_ptr + piece)
    end = tl.minimum(tl.load(offsets_ptr + segment + 1), begin + PIECE)
    acc = tl.zeros((EDGES, BLOCK), dtype=ACC)
    for start in range(begin, end, EDGES):
        edges = start + tl.arange(0, EDGES)
        kept = edges < end
        if HAS_MASK:
            kept = kept & (tl.load(keep_ptr + edges, mask=kept, other=0) != 0)
        # Row numbers times row length may exceed 32 bits.
        first = tl.load(first_ptr + edges, mask=kept, other=0).to(tl.int64)
        second = tl.load(second_ptr + edges, mask=kept, other=0).to(tl.int64)
        wanted = kept[:, None] & inside[None, :]
        a = tl.load(a_ptr + first[:, None] * size + features[None, :], mask=wanted, other=0.0)
        b = tl.load(b_ptr + second[:, None] * size + features[None, :], mask=wanted, other=0.0)
        acc += a.to(ACC) * b.to(ACC)
    total = tl.sum(acc, axis=0)
    if slot < 0:
        tl.store(out_ptr + segment * size + features, total.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        tl.store(partial_ptr + slot * size + features, total, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _sum_partials_kernel(  # type: ignore[no-untyped-def]
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
    pieces = graph.pieces(segment)
    acc = torch.float64 if a.dtype == torch.float64 else torch.float32
    partial = torch.empty(pieces.num_slots, size, dtype=acc, device=a.device)
    keep = None if edge_mask is None else edge_mask[ordering.position].view(torch.uint8)
    block = min(MAX_BLOCK, triton.next_power_of_2(size))
    num_blocks = triton.cdiv(size, block)
    tl_acc = tl.float64 if acc == torch.float64 else tl.float32
    num_pieces, num_cut = pieces.begin.numel(), pieces.cut_segment.numel()
    with torch.cuda.device(a.device) if a.is_cuda else nullcontext():
        _sum_products_kernel[(num_pieces * num_blocks,)](
            out, partial, a, b, *ordering[:3], ordering.first if keep is None else keep,
            *pieces[:3], num_pieces, size,
            HAS_MASK=keep is not None, PIECE=cut.PIECE, EDGES=EDGES, BLOCK=block, ACC=tl_acc,
        )  # fmt: skip
        if num_cut:
            _sum_partials_kernel[(num_cut * num_blocks,)](
                out, partial, pieces.cut_segment, pieces.cut_slots, num_cut, size, BLOCK=block, ACC=tl_acc
            )
    return out
