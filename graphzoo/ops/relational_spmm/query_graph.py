"""A separate graph for each query of a batch, all with the same number of nodes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphzoo.ops.relational_spmm.graph import Ordering, RelationalGraph


class QueryGraph:
    """B graphs of K nodes each, which are parts of one whole graph.

    `graphzoo.sampling.NeighbourhoodSampler` makes it. Query encoders take it in place of a `RelationalGraph`;
    states are then [K, B, D] instead of [N, B, D].

    The B graphs form one disjoint graph, `flat`. Node k of query b has the number b K + k in it, and edge
    type r has b 2R + r. So the states of a query are together in memory (query-major, see `to_query_major`).

    Args:
        nodes: Number of each node in the whole graph, ascending in every row, [B, K], int64.
        flat: The disjoint graph of B K nodes and B 2R edge types.
        num_relations: 2R.
        edge: Number of each edge of `flat` in the whole graph, [E], int64; None if it is not needed.
        whole: The whole graph, for encoders that compare relations. It is not pickled: in another process it
            is None.
    """

    def __init__(
        self,
        nodes: Tensor,
        flat: RelationalGraph,
        num_relations: int,
        edge: Tensor | None = None,
        whole: RelationalGraph | None = None,
    ) -> None:
        self.nodes, self.flat, self.num_relations, self.edge = nodes, flat, num_relations, edge
        self.whole = whole

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "whole": None}

    @property
    def num_queries(self) -> int:
        """B."""
        return self.nodes.shape[0]

    @property
    def num_nodes(self) -> int:
        """K."""
        return self.nodes.shape[1]

    @property
    def num_edges(self) -> int:
        """Number of edges of all queries together."""
        return self.flat.num_edges

    @property
    def edge_index(self) -> Tensor:
        """Edges of the disjoint graph, [2, E]; for a single query between its nodes 0..K-1."""
        return self.flat.edge_index

    @property
    def edge_type(self) -> Tensor:
        """Edge types of the disjoint graph, [E]."""
        return self.flat.edge_type

    @property
    def device(self) -> torch.device:
        """Device of the graphs."""
        return self.nodes.device

    @property
    def entities(self) -> Tensor:
        """Number of each node in the whole graph, in the order of states, [K, B]."""
        return self.nodes.t()

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> QueryGraph:
        """Copy the graphs to another device."""
        if torch.empty(0, device=device).device == self.device:
            return self
        edge = None if self.edge is None else self.edge.to(device, non_blocking=non_blocking)
        nodes = self.nodes.to(device, non_blocking=non_blocking)
        flat = self.flat.to(device, non_blocking=non_blocking)
        return QueryGraph(nodes, flat, self.num_relations, edge, self.whole)

    def pin_memory(self) -> QueryGraph:
        """Copy the graphs to page-locked memory, from which a GPU copies while the host continues."""
        edge = None if self.edge is None else self.edge.pin_memory()
        pinned = self.nodes.pin_memory(), self.flat.pin_memory()
        return QueryGraph(*pinned, self.num_relations, edge, self.whole)

    def part(self, start: int, stop: int) -> QueryGraph:
        """The graphs of the queries from `start` to `stop`."""
        first, last = start * self.num_nodes, stop * self.num_nodes
        kept = ((self.edge_index[1] >= first) & (self.edge_index[1] < last)).nonzero().squeeze(1)
        flat = RelationalGraph.unchecked(
            self.edge_index[:, kept] - first,
            self.edge_type[kept] - start * self.num_relations,
            last - first,
            (stop - start) * self.num_relations,
        )
        edge = None if self.edge is None else self.edge[kept]
        return QueryGraph(self.nodes[start:stop], flat, self.num_relations, edge, self.whole)

    def find(self, entity: Tensor, query: Tensor | None = None) -> Tensor:
        """Positions of entities among the nodes of a query.

        Args:
            entity: Entities of the whole graph, [n], int64.
            query: Query in whose graph each entity is searched, [n], int64; None takes query i for entity i.

        Returns:
            Positions 0..K-1, or -1 for entities that are not in the graph, [n], int64.
        """
        if not entity.numel():
            return torch.empty_like(entity)
        if query is None:
            query = torch.arange(entity.numel(), device=entity.device)
        # An offset for each query makes one ascending list of all nodes.
        span = torch.maximum(self.nodes.max(), entity.max()) + 1  # a tensor, so that the host does not wait
        shift = torch.arange(self.num_queries, device=self.device) * span
        keys = (self.nodes + shift[:, None]).flatten()
        wanted = entity + query * span
        place = torch.searchsorted(keys, wanted).clamp_(max=keys.numel() - 1)
        return torch.where(keys[place] == wanted, place - query * self.num_nodes, -1)

    def __repr__(self) -> str:
        return (
            f"QueryGraph(num_queries={self.num_queries}, num_nodes={self.num_nodes}, "
            f"num_relations={self.num_relations}, num_edges={self.num_edges}, device='{self.device}')"
        )


def flat_graph(
    num_nodes: int,
    num_relations: int,
    edge_index: Tensor,
    kinds: Tensor,
    mirrored: Tensor,
    offsets: Tensor,
    by_kind: tuple[Tensor, Tensor, Tensor],
) -> RelationalGraph:
    """A disjoint graph whose edges are already sorted.

    Every edge must have its inverse. Then the edges out of a node are those into it, with inverse types.

    Args:
        num_nodes: B K, the nodes of all queries.
        num_relations: B 2R, the edge types of all queries.
        edge_index: Edges sorted by target, [2, E]; this and all other tensors are int32.
        kinds: Type of each edge, [E].
        mirrored: Type of each edge's inverse, [E].
        offsets: Position of the first edge of each target, [B K + 1].
        by_kind: The edges sorted by type: position of the first edge of each type [B 2R + 1], sources [E] and
            targets [E].
    """
    graph = RelationalGraph.unchecked(edge_index, kinds, num_nodes, num_relations)
    none = kinds.new_empty(0)  # positions are needed for masks only, and there are none here
    longest = [int(o.diff().max()) if o.numel() > 1 else 0 for o in (offsets, by_kind[0])]
    graph._orderings = {
        "target": Ordering(offsets, edge_index[0], kinds, none, longest[0]),
        "source": Ordering(offsets, edge_index[0], mirrored, none, longest[0]),
        "relation": Ordering(*by_kind, none, longest[1]),
    }
    return graph


def is_query_major(x: Tensor) -> bool:
    """Whether states [N, B, ...] are stored query by query, not node by node."""
    return x.dim() > 2 and not x.is_contiguous() and x.transpose(0, 1).is_contiguous()


def to_query_major(x: Tensor) -> Tensor:
    """Copy states [N, B, ...] to query-major memory, where the states of one query share a cache."""
    return x.transpose(0, 1).contiguous().transpose(0, 1)


def arranged(x: Tensor, like: Tensor) -> Tensor:
    """States [N, B, ...] in the memory layout of `like`, node-major or query-major; copied if necessary."""
    return to_query_major(x) if is_query_major(like) else x.contiguous()
