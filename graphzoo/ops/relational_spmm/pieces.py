"""Segments of an ordering cut into pieces of limited length, for GPU kernels whose programs sum one piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from graphzoo.ops.relational_spmm.graph import Ordering


# Largest number of edges in a piece.
PIECE = 512


class Pieces(NamedTuple):
    """Segments of an ordering cut into pieces of at most `PIECE` edges."""

    segment: Tensor
    """Segment of each piece, [P]."""
    number: Tensor
    """Number of each piece in its segment, [P]; piece i begins at edge i `PIECE` of the segment."""
    slot: Tensor
    """Row of partial sums that each piece writes, [P]; -1 for a whole segment, which writes the result."""
    cut_segment: Tensor
    """Segments that have several pieces, [C]."""
    cut_slots: Tensor
    """The rows `cut_slots[c]..cut_slots[c + 1]` of the partial sums belong to `cut_segment[c]`, [C + 1]."""
    num_slots: int
    """Number of rows of the partial sums."""

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Pieces:
        """Copy the pieces to another device."""
        return Pieces._make([*(part.to(device, non_blocking=non_blocking) for part in self[:5]), self[5]])

    def pin_memory(self) -> Pieces:
        """Copy the pieces to page-locked memory, from which a GPU copies while the host continues."""
        return Pieces._make([*(part.pin_memory() for part in self[:5]), self[5]])


def cut_to_pieces(ordering: Ordering) -> Pieces:
    """Cut an ordering into pieces; if a segment is longer than `PIECE`, the host waits for the device."""
    offsets = ordering.offsets
    if ordering.longest <= PIECE:
        segment = torch.arange(offsets.numel() - 1, dtype=offsets.dtype, device=offsets.device)
        none, zero = offsets.new_empty(0), torch.zeros_like(offsets[:1])
        return Pieces(segment, torch.zeros_like(segment), torch.full_like(segment, -1), none, zero, 0)
    offsets = offsets.long()
    counts = offsets.diff()
    # An empty segment is also one piece, which writes zeros to the result.
    num = ((counts + PIECE - 1) // PIECE).clamp(min=1)
    segment = torch.repeat_interleave(torch.arange(counts.numel(), device=offsets.device), num)
    number = torch.arange(segment.numel(), device=offsets.device) - (num.cumsum(0) - num)[segment]
    is_cut = (num > 1)[segment]
    num_slots = int(is_cut.sum())
    slot = torch.full_like(segment, -1)
    slot[is_cut] = torch.arange(num_slots, device=offsets.device)
    cut_segment = (num > 1).nonzero().flatten()
    cut_slots = torch.cat([num.new_zeros(1), num[cut_segment].cumsum(0)])
    columns = (segment, number, slot, cut_segment, cut_slots)
    return Pieces._make([*(column.to(ordering.offsets.dtype) for column in columns), num_slots])
