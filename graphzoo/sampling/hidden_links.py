"""Hiding the links of a training batch from message passing over the whole graph."""

from __future__ import annotations

import torch
from torch import Tensor

from graphzoo.ops.relational_spmm.graph import check_edges
from graphzoo.system.tensors import check_index


class LinkHider:
    """Edge masks that hide links in both directions.

    Edges are sorted once for a graph. A mask takes O(E) time.

    Args:
        edge_index: Edges of the graph of message passing, [2, E], int64 or int32.
        num_nodes: N.

    Raises:
        ValueError: for edges of another shape or dtype, or nodes outside 0..N-1.
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
        """A mask of the edges that remain when some pairs are hidden, in both directions.

        Args:
            pairs: Pairs to hide, [2, G], int64 or int32; pairs that are not links are ignored.

        Returns:
            True for edges that remain, [E], bool.

        Raises:
            ValueError: for pairs of another shape or dtype.
        """
        check_index("pairs", pairs)
        if pairs.dim() != 2 or pairs.shape[0] != 2:
            raise ValueError(f"pairs must have shape [2, G], got {list(pairs.shape)}; transpose it")
        if not self._links.numel():
            return torch.zeros(0, dtype=torch.bool, device=self._link.device)
        pairs = pairs.to(self._links.device)
        keys = self._keys(pairs)
        place = torch.searchsorted(self._links, keys).clamp(max=self._links.numel() - 1)
        # A node above N - 1 could give the key of a link; a negative one with a node gives a negative key.
        is_pair = pairs.amax(0) < self.num_nodes
        # Pairs that are not links set an extra entry behind the last link. The host would have to wait for
        # their number to leave them out.
        last = self._links.numel()
        hidden = torch.zeros(last + 1, dtype=torch.bool, device=self._links.device)
        hidden.index_fill_(0, torch.where((self._links[place] == keys) & is_pair, place, last), True)
        return ~hidden[self._link]

    def _keys(self, pairs: Tensor) -> Tensor:
        pairs = pairs.long()  # the product below would overflow in int32
        return pairs.amin(0) * self.num_nodes + pairs.amax(0)
