"""Hiding the facts of a training batch from message passing; in neighbourhoods the sampler hides them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from graphzoo.errors import check_choice

if TYPE_CHECKING:
    from graphzoo.ops import RelationalGraph


RemoveFacts = Literal["exact", "one_hop", "none"]


def edges_of_fact(graph: RelationalGraph, head: int, relation: int, tail: int) -> Tensor:
    """Where a fact and its inverse are among the edges of a graph.

    Args:
        graph: Edges of types 0..2R-1, inverses included.
        head: Entity.
        relation: 0..2R-1.
        tail: Entity.

    Returns:
        True for the edges of the fact and of its inverse, [E], bool; all False if it is not a fact.
    """
    source, target = graph.edge_index
    inverse = (relation + graph.num_relations // 2) % graph.num_relations
    forward = (source == head) & (target == tail) & (graph.edge_type == relation)
    backward = (source == tail) & (target == head) & (graph.edge_type == inverse)
    is_fact: Tensor = forward | backward
    return is_fact


class FactRemover:
    """Edge masks that hide a batch's facts; built once per graph, O(E) per batch, no rebuild of the graph.

    The graph is the one of the training split: edge i is fact i, edge i + n its inverse.

    Args:
        triples: All facts of the graph, [n, 3], int64 or int32 (head, relation, tail).
        num_entities: N.
        mode: "exact" hides the batch's facts, at every place where they are listed, and their inverses;
            "one_hop" hides every edge, of any relation and in both directions, that joins the two entities of
            a batch fact; "none" hides nothing.

    Raises:
        ValueError: for entities that are not below `num_entities`, which would share a key with others.
    """

    def __init__(self, triples: Tensor, num_entities: int, mode: RemoveFacts = "exact") -> None:
        check_choice("remove_facts", mode, RemoveFacts)
        self.mode = mode
        self.num_facts = triples.shape[0]
        self._group: Tensor | None = None  # of each fact: those of one group are hidden together
        self._num_groups = 0
        if mode == "none":
            return
        ends = triples[:, ::2].long()  # int32 would not hold the product
        if ends.numel() and not 0 <= int(ends.min()) <= int(ends.max()) < num_entities:
            raise ValueError(
                f"entities must be in 0..{num_entities - 1}, got {int(ends.min())}..{int(ends.max())}"
            )
        low, high = ends.aminmax(dim=1) if mode == "one_hop" else ends.unbind(1)
        groups, group = torch.unique(low * num_entities + high, return_inverse=True)
        if mode == "exact":
            keys = triples[:, 1].long() * groups.numel() + group
            groups, group = torch.unique(keys, return_inverse=True)
            if groups.numel() == self.num_facts:  # no fact is listed twice
                return
        self._group, self._num_groups = group, groups.numel()

    def to(self, device: torch.device | str) -> FactRemover:
        """Move the lookup table, in place."""
        if self._group is not None:
            self._group = self._group.to(device)
        return self

    def edge_mask(self, removed: Tensor) -> Tensor | None:
        """Edges that stay.

        Args:
            removed: Positions of the batch's facts, [G], int64 or int32.

        Returns:
            Mask [2n], bool, True where the edge stays; None if nothing is hidden.

        Raises:
            ValueError: for a mask, and on the CPU for positions beyond the last fact.
        """
        if removed.dtype not in (torch.int64, torch.int32):
            raise ValueError(
                f"removed must be positions of facts, got {removed.dtype}: give mask.nonzero()[:, 0]"
            )
        if self.mode == "none":
            return None
        if removed.device.type == "cpu" and removed.numel():
            least, most = int(removed.min()), int(removed.max())
            if least < 0 or most >= self.num_facts:
                raise ValueError(f"removed has {least}..{most}: facts are 0..{self.num_facts - 1}")
        if self._group is None:
            keep = torch.ones(self.num_facts, dtype=torch.bool, device=removed.device)
            keep.index_fill_(0, removed.long(), False)  # `keep[removed] = False` would copy a number
        else:
            if self._group.device != removed.device:
                self.to(removed.device)
            hidden = torch.zeros(self._num_groups, dtype=torch.bool, device=removed.device)
            hidden.index_fill_(0, self._group[removed], True)
            keep = ~hidden[self._group]
        return torch.cat([keep, keep])
