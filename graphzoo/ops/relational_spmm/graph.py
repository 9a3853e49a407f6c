"""The graph of the relational SpMM: its edges, and their three orderings, each computed once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Literal, NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from graphzoo.errors import UsageError, check_whole
from graphzoo.ops.last_result import version_of
from graphzoo.ops.relational_spmm.pieces import Pieces, cut_to_pieces
from graphzoo.system.tensors import check_index
from graphzoo.types import refuse_kinds

Segment = Literal["target", "source", "relation"]


class Ordering(NamedTuple):
    """Edges grouped into segments, like the entries of a CSR matrix into rows.

    `out[s] = sum(a[first[e]] * b[second[e]] for e in segment s)` is the operator and both of its gradients,
    depending on the ordering. The tensors are int32, or int64 for 2**31 edges or segments and more.
    """

    offsets: Tensor
    """Position of the first edge of each segment, [S + 1]."""
    first: Tensor
    """Row of the first operand for each edge, [E]."""
    second: Tensor
    """Row of the second operand for each edge, [E]."""
    position: Tensor
    """Position of each edge in `RelationalGraph.edge_index`, and so in a mask, [E]."""
    longest: int
    """Number of edges in the longest segment."""

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Ordering:
        """Copy the ordering to another device."""
        moved = (tensor.to(device, non_blocking=non_blocking) for tensor in self[:4])
        return Ordering._make([*moved, self.longest])

    def pin_memory(self) -> Ordering:
        """See `RelationalGraph.pin_memory`."""
        return Ordering._make([*(tensor.pin_memory() for tensor in self[:4]), self.longest])


class RelationalGraph:
    """Directed edges with relations, checked once and sorted once for each ordering.

    Edges are sorted when an ordering is first needed: by target at the first forward pass, by source and by
    relation at the first backward pass. The tensors are not copied, and must not be changed afterwards; an
    ordering of a changed graph is refused.

    Args:
        edge_index: Source and target of every edge, [2, E], int64 or int32.
        edge_type: Relation of every edge, [E], int64 or int32.
        num_nodes: N; nodes may be without edges.
        num_relations: R, the number of edge types, inverse relations included.

    Raises:
        ValueError: for wrong shapes, dtypes or devices, or an index out of range.

    >>> RelationalGraph(torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1]), num_nodes=3, num_relations=2)
    RelationalGraph(num_nodes=3, num_relations=2, num_edges=2, device='cpu')
    """

    def __init__(self, edge_index: Tensor, edge_type: Tensor, num_nodes: int, num_relations: int) -> None:
        check_whole(at_least=0, num_nodes=num_nodes, num_relations=num_relations)
        check_edges(edge_index, num_nodes)
        check_index("edge_type", edge_type)
        if edge_type.dim() != 1 or edge_type.shape[0] != edge_index.shape[1]:
            raise ValueError(
                f"edge_type must have shape [{edge_index.shape[1]}], one relation per edge of edge_index, "
                f"got {list(edge_type.shape)}"
            )
        if edge_type.device != edge_index.device:
            raise ValueError(
                f"edge_index is on {edge_index.device}, but edge_type on {edge_type.device}; move one of them"
            )
        _check_bounds("edge_type", edge_type, "num_relations", num_relations)
        self.edge_index, self.edge_type = edge_index, edge_type
        self.num_nodes, self.num_relations = num_nodes, num_relations
        self._orderings: dict[Segment, Ordering] = {}
        self._pieces: dict[Segment, Pieces] = {}
        self._remember()

    @classmethod
    def from_triples(cls, triples: Tensor, num_nodes: int, num_relations: int) -> RelationalGraph:
        """A graph of n facts, edges from head to tail, followed by their n inverses, of type r + R.

        Args:
            triples: Head, relation and tail of every fact, [n, 3], int64 or int32.
            num_nodes: N.
            num_relations: R, without inverses; the graph has 2R edge types.

        Raises:
            ValueError: for another shape or dtype, or an index out of range.

        >>> RelationalGraph.from_triples(torch.tensor([[0, 0, 1], [1, 1, 2]]), num_nodes=3, num_relations=2)
        RelationalGraph(num_nodes=3, num_relations=4, num_edges=4, device='cpu')
        """
        check_index("triples", triples)
        if triples.dim() != 2 or triples.shape[1] != 3:
            raise ValueError(f"triples must have shape [n, 3], got {list(triples.shape)}")
        head, relation, tail = triples.unbind(1)
        edge_index = torch.stack([torch.cat([head, tail]), torch.cat([tail, head])])
        return cls(edge_index, torch.cat([relation, relation + num_relations]), num_nodes, 2 * num_relations)

    @classmethod
    def from_data(cls, data: Any, num_relations: int | None = None) -> RelationalGraph:
        """A graph of the edges of a PyG `Data` and their inverses, in the order of `from_triples`.

        Args:
            data: Has `edge_index` [2, E], and optionally `edge_type` [E]; without it there is one relation.
            num_relations: R, without inverses; None takes the largest of `edge_type` + 1.

        Raises:
            ValueError: for a `HeteroData`, wrong shapes or dtypes, or an index out of range.

        >>> from torch_geometric.data import Data
        >>> RelationalGraph.from_data(Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3))
        RelationalGraph(num_nodes=3, num_relations=2, num_edges=4, device='cpu')
        """
        refuse_kinds(data)
        edge_index, edge_type = data.edge_index, data.get("edge_type")
        check_edges(edge_index, data.num_nodes)
        if edge_type is None:
            edge_type = edge_index.new_zeros(edge_index.shape[1])
        check_index("edge_type", edge_type)
        if num_relations is None:
            num_relations = int(edge_type.max()) + 1 if edge_type.numel() else 1
        source, target = edge_index
        triples = torch.stack([source, edge_type, target], dim=1)
        return cls.from_triples(triples, data.num_nodes, num_relations)

    @classmethod
    def unchecked(
        cls, edge_index: Tensor, edge_type: Tensor, num_nodes: int, num_relations: int
    ) -> RelationalGraph:
        """A graph of edges that are known to be valid; no values are read, so this can be traced."""
        graph = object.__new__(cls)
        graph.edge_index, graph.edge_type = edge_index, edge_type
        graph.num_nodes, graph.num_relations = num_nodes, num_relations
        graph._orderings, graph._pieces = {}, {}
        graph._remember()
        return graph

    def _remember(self) -> None:
        """Register the graph, so that `graph_of` finds it by its tensors."""
        self._versions: tuple[int | None, ...] | None = None if torch.compiler.is_compiling() else self._now()
        if not torch.compiler.is_compiling():
            sizes = self.num_nodes, self.num_relations
            _alive[id(self.edge_index), id(self.edge_type), *sizes] = self

    def _now(self) -> tuple[int | None, ...]:
        return version_of(self.edge_index), version_of(self.edge_type)

    @property
    def is_changed(self) -> bool:
        """Whether its tensors were written to after the graph was made."""
        return self._versions is not None and self._versions != self._now()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_versions": None}  # those of a copy are other ones

    @property
    def num_edges(self) -> int:
        """E, the number of edges, masked ones included."""
        return self.edge_type.shape[0]

    @property
    def device(self) -> torch.device:
        """Device of the edges."""
        return self.edge_type.device

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> RelationalGraph:
        """Copy the graph and its computed orderings to another device.

        Returns the same object if it is already there.
        """
        device = torch.empty(0, device=device).device
        if device == self.device:
            return self
        if device.type == "cuda":
            self._cut()
        return self._with(lambda part: part.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> RelationalGraph:
        """Copy the graph to page-locked memory, from which a GPU copies while the host continues."""
        self._cut()
        return self._with(lambda part: part.pin_memory())

    def _cut(self) -> None:
        """Cut the computed orderings into pieces, before a copy: on a GPU this would make the host wait."""
        for segment in self._orderings:
            self.pieces(segment)

    def _with(self, change: Callable[[Any], Any]) -> RelationalGraph:
        """A copy of this graph, with `change` applied to its edges, orderings and pieces."""
        edges = change(self.edge_index), change(self.edge_type)
        moved = RelationalGraph.unchecked(*edges, self.num_nodes, self.num_relations)
        moved._orderings = {name: change(ordering) for name, ordering in self._orderings.items()}
        moved._pieces = {name: change(pieces) for name, pieces in self._pieces.items()}
        return moved

    def ordering(self, segment: Segment) -> Ordering:
        """The edges sorted by target, source or relation; computed once.

        - "target" is for the forward pass; its operands are source and relation.
        - "source" is for the gradient in `x`; its operands are target and relation.
        - "relation" is for the gradient in `relation`; its operands are source and target.

        Raises:
            UsageError: if the tensors were written to after the graph was made.
        """
        if self.is_changed:
            raise UsageError(
                "the edges of this RelationalGraph were changed after it was made\nMake a new RelationalGraph"
            )
        if segment not in self._orderings:
            columns = {"source": self.edge_index[0], "target": self.edge_index[1], "relation": self.edge_type}
            num_segments = self.num_relations if segment == "relation" else self.num_nodes
            by = columns.pop(segment)
            # The other two columns are the operands: source before target, nodes before relations.
            first, second = columns.values()
            self._orderings[segment] = _order(by, first, second, num_segments)
        return self._orderings[segment]

    def pieces(self, segment: Segment) -> Pieces:
        """The pieces of an ordering; computed once."""
        if segment not in self._pieces:
            self._pieces[segment] = cut_to_pieces(self.ordering(segment))
        return self._pieces[segment]

    def __repr__(self) -> str:
        return (
            f"RelationalGraph(num_nodes={self.num_nodes}, num_relations={self.num_relations}, "
            f"num_edges={self.num_edges}, device='{self.device}')"
        )


def _order(segment: Tensor, first: Tensor, second: Tensor, num_segments: int) -> Ordering:
    """Sort edges by (segment, second, first); equal ones keep their order.

    Edges of the same node and relation are adjacent, so that the relation's row is still in cache.
    """
    order = torch.argsort(first, stable=True)
    order = order[torch.argsort(second[order], stable=True)]
    order = order[torch.argsort(segment[order], stable=True)]
    counts = torch.bincount(segment, minlength=num_segments)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    # int32 takes half the bytes of int64, and leaves more of the caches to the states.
    dtype = torch.int32 if max(segment.numel(), num_segments) < 2**31 else torch.int64
    columns = [part.to(dtype) for part in (offsets, first[order], second[order], order)]
    return Ordering._make([*columns, int(counts.max()) if num_segments else 0])


_alive: WeakValueDictionary[tuple[int, ...], RelationalGraph] = WeakValueDictionary()
# Graphs made for operators called without a registered graph, with the versions of their tensors.
_made: deque[tuple[RelationalGraph, tuple[int, ...]]] = deque(maxlen=2)


def graph_of(edge_index: Tensor, edge_type: Tensor, num_nodes: int, num_relations: int) -> RelationalGraph:
    """The existing graph with these same tensors, or a new one, which is kept for the next calls.

    Operators take only tensors, and get the graph's orderings in this way.
    """
    tensors, sizes = (edge_index, edge_type), (num_nodes, num_relations)
    versions = tuple(0 if x.is_inference() else int(x._version) for x in tensors)
    living = _alive.get((id(edge_index), id(edge_type), *sizes))
    is_given = living is not None and not any(living is graph for graph, _ in _made)
    if living is not None and is_given and not living.is_changed:
        return living
    for graph, then in _made:
        same = graph.edge_index is edge_index and graph.edge_type is edge_type and then == versions
        if same and (graph.num_nodes, graph.num_relations) == sizes:
            return graph
    graph = RelationalGraph(edge_index, edge_type, num_nodes, num_relations)
    _made.append((graph, versions))
    return graph


def check_edges(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Source and target of every edge, [E] each, int64.

    Raises:
        ValueError: if edges are not int64 or int32 of shape [2, E], or have nodes outside 0..num_nodes-1.
    """
    check_index("edge_index", edge_index)
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise ValueError(
            f"edge_index must have shape [2, num_edges], got {list(edge_index.shape)}"
            + ("; transpose it" if edge_index.dim() == 2 and edge_index.shape[1] == 2 else "")
        )
    for row in (0, 1):
        _check_bounds(f"edge_index[{row}]", edge_index[row], "num_nodes", num_nodes)
    return edge_index[0].long(), edge_index[1].long()


def _check_bounds(name: str, values: Tensor, bound_name: str, bound: int) -> None:
    wrong = (values < 0) | (values >= bound)
    if bool(wrong.any()):
        position = int(wrong.nonzero()[0, 0])
        raise ValueError(
            f"{name} must be in 0..{bound - 1} ({bound_name}={bound}), got {int(values[position])} "
            f"at position {position}"
        )
