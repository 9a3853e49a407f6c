"""Segments of an ordering cut into pieces of few edges, for backends whose programs sum one piece each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from graphzoo.ops.relational_spmm.graph import Ordering


# Most edges that one program sums.
PIECE = 512


class Pieces(NamedTuple):
    """Segments of an ordering cut to at most `PIECE` edges."""

    segment: Tensor
    """Segment of each piece, [P]."""
    number: Tensor
    """Its number in the segment, [P]: it begins `PIECE` edges after the one before."""
    slot: Tensor
    """Row of the partial sums it writes to, [P], or -1: it is a whole segment and writes the result."""
    cut_segment: Tensor
    """Segments of several pieces, [C]."""
    cut_slots: Tensor
    """Their rows of the partial sums are `cut_slots[c]..cut_slots[c + 1]`, [C + 1]."""
    num_slots: int

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Pieces:
        """The same pieces on another device."""
        return Pieces._make([*(part.to(device, non_blocking=non_blocking) for part in self[:5]), self[5]])

    def pin_memory(self) -> Pieces:
        """The same pieces in memory that a GPU can copy from while the host continues."""
        return Pieces._make([*(part.pin_memory() for part in self[:5]), self[5]])


def cut_to_pieces(ordering: Ordering) -> Pieces:
    """The pieces of an ordering; where a segment is longer than `PIECE` this waits for a device."""
    offsets = ordering.offsets
    if ordering.longest <= PIECE:
        segment = torch.arange(offsets.numel() - 1, dtype=offsets.dtype, device=offsets.device)
        none, zero = offsets.new_empty(0), torch.zeros_like(offsets[:1])
        return Pieces(segment, torch.zeros_like(segment), torch.full_like(segment, -1), none, zero, 0)
    offsets = offsets.long()
    counts = offsets.diff()
    # An empty segment is one piece, too: somebody has to write its zeros.
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
