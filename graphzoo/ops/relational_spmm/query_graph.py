"""A graph of its own for each query of a batch, all with the same number of nodes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphzoo.ops.relational_spmm.graph import Ordering, RelationalGraph


class QueryGraph:
    """B graphs of K nodes each, parts of one whole graph; from `graphzoo.sampling.NeighbourhoodSampler`.

    Query encoders take it where they take a `RelationalGraph`: states are [K, B, D] in place of [N, B, D]. As
    one disjoint graph, `flat`, node k of query b is number b K + k and edge type r is b 2R + r, so the states
    of a query lie together in memory ("query-major", see `to_query_major`).

    Args:
        nodes: Number of each node in the whole graph, ascending in every row, [B, K], int64.
        flat: The disjoint graph of B K nodes and B 2R edge types.
        num_relations: 2R.
        edge: Number of each edge of `flat` in the whole graph, [E], int64; None where nobody asked.
        whole: The graph that all are parts of, for encoders that compare relations; a graph that travels to
            another process loses it.
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
        """Edges of all queries together."""
        return self.flat.num_edges

    @property
    def edge_index(self) -> Tensor:
        """Edges of the disjoint graph, [2, E]: with one query its nodes' own numbers 0..K-1."""
        return self.flat.edge_index

    @property
    def edge_type(self) -> Tensor:
        """Types of these edges, [E]."""
        return self.flat.edge_type

    @property
    def device(self) -> torch.device:
        """Where the graphs live."""
        return self.nodes.device

    @property
    def entities(self) -> Tensor:
        """Numbers of the nodes in the whole graph, in the layout of states, [K, B]."""
        return self.nodes.t()

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> QueryGraph:
        """The graphs on another device."""
        if torch.empty(0, device=device).device == self.device:
            return self
        edge = None if self.edge is None else self.edge.to(device, non_blocking=non_blocking)
        nodes = self.nodes.to(device, non_blocking=non_blocking)
        flat = self.flat.to(device, non_blocking=non_blocking)
        return QueryGraph(nodes, flat, self.num_relations, edge, self.whole)

    def pin_memory(self) -> QueryGraph:
        """The graphs in memory that a GPU can copy from while the host continues."""
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
        """Where entities [n] of the whole graph are among the nodes of their query: 0..K-1, or -1.

        `query` [n] says which query each is looked for in; None: entity i in query i.
        """
        if not entity.numel():
            return torch.empty_like(entity)
        if query is None:
            query = torch.arange(entity.numel(), device=entity.device)
        # one ascending list for all queries: their rows are moved apart
        span = torch.maximum(self.nodes.max(), entity.max()) + 1  # no number: the host would wait for it
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
    """A disjoint graph whose orderings are known, so that nothing is sorted.

    Every edge has its inverse, so the edges that leave a node are those that enter it, with inverse types.
    The B K nodes and B 2R edge types are those of all queries. All is int32: edges [2, E] by target, the type
    of each and of its inverse (`mirrored`) [E], where each target's edges begin [B K + 1]; and edges by type,
    where each type's begin [B 2R + 1], their sources and targets [E].
    """
    graph = RelationalGraph.unchecked(edge_index, kinds, num_nodes, num_relations)
    none = kinds.new_empty(0)  # positions are for masks, which these graphs have no use for
    longest = [int(o.diff().max()) if o.numel() > 1 else 0 for o in (offsets, by_kind[0])]
    graph._orderings = {
        "target": Ordering(offsets, edge_index[0], kinds, none, longest[0]),
        "source": Ordering(offsets, edge_index[0], mirrored, none, longest[0]),
        "relation": Ordering(*by_kind, none, longest[1]),
    }
    return graph


def is_query_major(x: Tensor) -> bool:
    """Whether states [N, B, ...] lie in memory query by query."""
    return x.dim() > 2 and not x.is_contiguous() and x.transpose(0, 1).is_contiguous()


def to_query_major(x: Tensor) -> Tensor:
    """The same states [N, B, ...], in memory query by query: those of one query share a cache."""
    return x.transpose(0, 1).contiguous().transpose(0, 1)


def arranged(x: Tensor, like: Tensor) -> Tensor:
    """States [N, B, ...] node by node or query by query in memory, as `like` is."""
    return to_query_major(x) if is_query_major(like) else x.contiguous()
