"""Uniform draws of pairs that are not links, without rejection."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from graphzoo.ops.random import hash_integers, uniform_from_hash
from graphzoo.ops.relational_spmm.graph import check_edges
from graphzoo.system.tensors import check_index

# Part of every hash, so that other draws with the same seed have other random numbers.
_PURPOSE = 0x6E65677061697273
# Up to this many items, a random fraction of 53 bits draws uniformly enough.
_EXACT = 2**48
_POSITIVE = 2**63 - 1


class NegativePairs:
    """Draws uniformly from all ordered pairs (u, v) with u != v that are not edges.

    A draw is a random number k, and the k-th pair that is not an edge is found by a search in the sorted
    edges. So no draw is rejected, and it is a function of seed, epoch, link and number of the draw.

    Args:
        edge_index: Edges that must not be drawn, [2, E], int64 or int32; undirected ones in both directions.
        num_nodes: N.

    Raises:
        ValueError: if all pairs are edges, for edges of another shape or dtype, or nodes outside 0..N-1.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        source, target = check_edges(edge_index, num_nodes)
        nodes = torch.arange(num_nodes, device=source.device)
        keys = torch.cat([source * num_nodes + target, nodes * (num_nodes + 1)])
        taken = torch.unique(keys)
        self.num_nodes = num_nodes
        self.num_free = num_nodes * num_nodes - taken.numel()
        if self.num_free < 1:
            raise ValueError(f"all pairs of the {num_nodes} nodes are linked, so no negatives can be drawn")
        # Number of free pairs before the i-th taken one.
        self._free_below = taken - torch.arange(taken.numel(), device=taken.device)

    def sample(
        self, index: Tensor, *, source: Tensor | None = None, num_negatives: int = 1, seed: int, epoch: int
    ) -> Tensor:
        """Draw negatives for each training link, with replacement.

        Args:
            index: Number of each link in the training split, [B], int64.
            source: First node of the pairs drawn for each link, [B], int64; None draws from all pairs. If a
                source is linked to all nodes, its pairs are also drawn from all.
            num_negatives: K, negatives for each link.
            seed: Seed of the run.
            epoch: Epoch; every epoch has other negatives.

        Returns:
            Pairs [2, B * K], int64, on the device of the edges; the K pairs of a link are consecutive.

        Raises:
            ValueError: for another dtype, or, on the CPU, a source outside 0..N-1.
        """
        check_index("index", index)
        device = self._free_below.device
        index = index.to(device).long()
        # Draws are from the `count` free pairs that begin with number `first`, in ascending order.
        first = torch.zeros(1, dtype=torch.int64, device=device)
        count = torch.full_like(first, self.num_free)
        if source is not None:
            check_index("source", source)
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
        key_of_draw = (_PURPOSE, seed, epoch, index[:, None], draw[None, :])
        place = self._place(count[:, None], *key_of_draw)
        free = (first[:, None] + place).view(-1)
        key = free + torch.searchsorted(self._free_below, free, right=True)
        return torch.stack([key // self.num_nodes, key % self.num_nodes])

    @cached_property
    def _free_before(self) -> Tensor:
        """Number of free pairs before the first pair of each source, [N + 1]."""
        taken = self._free_below + torch.arange(self._free_below.numel(), device=self._free_below.device)
        begin = torch.arange(self.num_nodes + 1, device=taken.device) * self.num_nodes
        return begin - torch.searchsorted(taken, begin)

    def _place(self, count: Tensor, *parts: Any) -> Tensor:
        """A random number below each `count`, int64, from the hash of `parts`."""
        bits = hash_integers(*parts)
        place = (uniform_from_hash(bits) * count).long()
        if self.num_free <= _EXACT:
            return place
        # A fraction of 53 bits is too coarse. The remainder of 63 bits is uniform up to one part in 2^15.
        return torch.where(count > _EXACT, (bits & _POSITIVE) % count, place)
