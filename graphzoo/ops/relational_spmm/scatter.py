"""Backend of torch-scatter: `segment_csr` of gathered messages, one block of features at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from graphzoo.ops.relational_spmm.graph import RelationalGraph, Segment

try:
    from torch_scatter import segment_csr
except ImportError as error:
    raise ImportError(
        "backend 'scatter' needs torch-scatter, built for this torch: pip install 'graphzoo[scatter]' "
        "--no-build-isolation, or use backend='numba' (CPU), 'triton' (CUDA) or 'naive'"
    ) from error


# Largest number of elements in the messages of a block: 16 MiB of float32.
MAX_MESSAGES = 1 << 22


def segment_products(
    graph: RelationalGraph, segment: Segment, a: Tensor, b: Tensor, edge_mask: Tensor | None
) -> Tensor:
    """`SegmentProducts`; gathers up to `MAX_MESSAGES` elements, or one feature of all edges, at a time."""
    ordering = graph.ordering(segment)
    offsets, first, second = ordering.offsets.long(), ordering.first, ordering.second
    if edge_mask is not None:
        keep = edge_mask[ordering.position]
        first, second = first[keep], second[keep]
        kept_before = torch.cat([offsets.new_zeros(1), keep.cumsum(0)])
        offsets = kept_before[offsets]
    out = a.new_zeros(offsets.numel() - 1, a.shape[1])
    if first.numel() == 0 or out.numel() == 0:
        return out
    block = max(1, MAX_MESSAGES // first.numel())
    for start in range(0, a.shape[1], block):
        columns = slice(start, start + block)
        messages = a[:, columns].index_select(0, first) * b[:, columns].index_select(0, second)
        out[:, columns] = segment_csr(messages, offsets, reduce="sum")
    return out
