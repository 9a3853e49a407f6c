"""Pairs that are not links, uniformly and without rejection."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from graphzoo.ops.random import hash_integers, uniform_from_hash
from graphzoo.ops.relational_spmm.graph import check_edges

# What these draws are for, so that they share no random numbers with others of the same seed.
_PURPOSE = 0x6E65677061697273
# The most numbers that a random fraction of 53 bits draws evenly.
_EXACT = 2**48
_POSITIVE = 2**63 - 1


class NegativePairs:
    """Draws uniformly from all ordered pairs (u, v) with u != v that are no edge.

    The k-th draw of the non-edges is found by the order statistic of the sorted edges, so nothing is ever
    rejected and the draw is a function of its names alone.

    Args:
        edge_index: Edges that must not be drawn, both directions of undirected ones, [2, E], int64 or int32.
        num_nodes: N.

    Raises:
        ValueError: if every pair is an edge, or edges are not those of such a graph.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        nodes = torch.arange(num_nodes, device=edge_index.device)
        source, target = check_edges(edge_index, num_nodes)
        keys = torch.cat([source * num_nodes + target, nodes * (num_nodes + 1)])
        taken = torch.unique(keys)
        self.num_nodes = num_nodes
        self.num_free = num_nodes * num_nodes - taken.numel()
        if self.num_free < 1:
            raise ValueError(
                f"all pairs of the {num_nodes} nodes are linked, so there is no negative to draw"
            )
        # Free pairs below the i-th taken one.
        self._free_below = taken - torch.arange(taken.numel(), device=taken.device)

    def sample(
        self, index: Tensor, *, source: Tensor | None = None, num_negatives: int = 1, seed: int, epoch: int
    ) -> Tensor:
        """Draw for each training link, with replacement.

        Args:
            index: Number of each link in the training split, [B], int64.
            source: First node of the pairs drawn for each link, [B], int64; where it is linked to all, and
                with None, pairs are drawn from all.
            num_negatives: K, draws per link.
            seed: Seed of the run.
            epoch: Epoch, so that every epoch has its own negatives.

        Returns:
            Pairs [2, B * K], int64, those of a link side by side, on the device of the edges.

        Raises:
            ValueError: on the CPU, for a source that is no node.
        """
        device = self._free_below.device
        index = index.to(device)
        # of all free pairs, in their order: the `count` ones that begin at `first`
        first = torch.zeros(1, dtype=torch.int64, device=device)
        count = torch.full_like(first, self.num_free)
        if source is not None:
            source, before = source.to(device), self._free_before
            if device.type == "cpu":
                wrong = ((source < 0) | (source >= self.num_nodes)).nonzero()
                if wrong.numel():
                    at = int(wrong[0])
                    last = self.num_nodes - 1
                    raise ValueError(f"source[{at}] = {int(source[at])}: nodes are 0..{last}")
            has_free = before[source + 1] > before[source]
            count = torch.where(has_free, before[source + 1] - before[source], count)
            first = torch.where(has_free, before[source], first)
        draw = torch.arange(num_negatives, device=index.device)
        name = (_PURPOSE, seed, epoch, index[:, None], draw[None, :])
        place = self._place(count[:, None], *name).clamp(max=count[:, None] - 1)
        free = (first[:, None] + place).view(-1)
        key = free + torch.searchsorted(self._free_below, free, right=True)
        return torch.stack([key // self.num_nodes, key % self.num_nodes])

    @cached_property
    def _free_before(self) -> Tensor:
        """Free pairs in front of each row, [N + 1]."""
        taken = self._free_below + torch.arange(self._free_below.numel(), device=self._free_below.device)
        begin = torch.arange(self.num_nodes + 1, device=taken.device) * self.num_nodes
        return begin - torch.searchsorted(taken, begin)

    def _place(self, count: Tensor, *name: Any) -> Tensor:
        """A number below each `count`, int64, that `name` names."""
        bits = hash_integers(*name)
        place = (uniform_from_hash(bits) * count).long()
        if self.num_free <= _EXACT:
            return place
        # A fraction has 53 bits, too few for more numbers; the remainder of 63 is uneven by one part in 2^15.
        return torch.where(count > _EXACT, (bits & _POSITIVE) % count, place)
