"""Hiding the links of a training batch from message passing over the whole graph."""

from __future__ import annotations

import torch
from torch import Tensor

from graphzoo.ops.relational_spmm.graph import check_edges


class LinkHider:
    """Edge masks that hide links in both directions; sorted once per graph, O(E) per batch.

    Args:
        edge_index: Edges of the message graph, [2, E], int64 or int32.
        num_nodes: N.

    Raises:
        ValueError: if edges are not those of such a graph.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        check_edges(edge_index, num_nodes)
        self._links, self._link = torch.unique(self._keys(edge_index), return_inverse=True)

    def to(self, device: torch.device | str) -> LinkHider:
        """Move the look-up tables, in place."""
        self._links, self._link = self._links.to(device), self._link.to(device)
        return self

    def keep(self, pairs: Tensor) -> Tensor:
        """Edges that stay when these pairs, in either direction, are hidden.

        Args:
            pairs: [2, G], int64 or int32; pairs that are no link hide nothing.

        Returns:
            Mask [E], bool.
        """
        if not self._links.numel():
            return torch.zeros(0, dtype=torch.bool, device=self._link.device)
        pairs = pairs.to(self._links.device)
        keys = self._keys(pairs)
        place = torch.searchsorted(self._links, keys).clamp(max=self._links.numel() - 1)
        # pairs of other nodes have the keys of some links
        is_pair = (pairs.amin(0) >= 0) & (pairs.amax(0) < self.num_nodes)
        # Pairs that are no link hide one behind the last; leaving them out would wait for their number.
        last = self._links.numel()
        hidden = torch.zeros(last + 1, dtype=torch.bool, device=self._links.device)
        hidden.index_fill_(0, torch.where((self._links[place] == keys) & is_pair, place, last), True)
        return ~hidden[self._link]

    def _keys(self, pairs: Tensor) -> Tensor:
        pairs = pairs.long()  # int32 would not hold the product
        return pairs.amin(0) * self.num_nodes + pairs.amax(0)
