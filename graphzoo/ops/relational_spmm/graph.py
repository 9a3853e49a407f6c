"""The graph of the relational SpMM: edges as given, and their three orderings, each computed once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Literal, NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from graphzoo.errors import check_whole
from graphzoo.ops.relational_spmm.pieces import Pieces, cut_to_pieces
from graphzoo.types import refuse_kinds

Segment = Literal["target", "source", "relation"]


class Ordering(NamedTuple):
    """Edges grouped into segments (rows of a CSR matrix), with the two operand rows each edge multiplies.

    `out[s] = sum(a[first[e]] * b[second[e]] for e in segment s)` is the op and both of its gradients.
    """

    offsets: Tensor
    """Where each segment begins, [S + 1]; this and the following are int32, int64 from 2**31 edges on."""
    first: Tensor
    """Row of the first operand of each edge, [E]."""
    second: Tensor
    """Row of the second operand, [E]."""
    position: Tensor
    """Position of the edge in the order given by the user, [E]: where its mask entry is."""
    longest: int
    """Edges of the longest segment: how unevenly segments can share out the work."""

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Ordering:
        """The same ordering on another device."""
        moved = (tensor.to(device, non_blocking=non_blocking) for tensor in self[:4])
        return Ordering._make([*moved, self.longest])

    def pin_memory(self) -> Ordering:
        """See `RelationalGraph.pin_memory`."""
        return Ordering._make([*(tensor.pin_memory() for tensor in self[:4]), self.longest])


class RelationalGraph:
    """Typed directed edges, validated once and sorted once per ordering.

    Sorting is stable and lazy: by target at the first forward pass, by source and by relation at the first
    backward pass. The tensors are kept, not copied, and must not be changed afterwards.

    Args:
        edge_index: Source and target of every edge, [2, E], int64 or int32.
        edge_type: Relation of every edge, [E], int64 or int32.
        num_nodes: N; nodes without edges are fine.
        num_relations: R, the number of edge types, inverse relations included.

    Raises:
        ValueError: on wrong shapes, dtypes or devices, or an index out of range, naming value and position.

    >>> RelationalGraph(torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1]), num_nodes=3, num_relations=2)
    RelationalGraph(num_nodes=3, num_relations=2, num_edges=2, device='cpu')
    """

    def __init__(self, edge_index: Tensor, edge_type: Tensor, num_nodes: int, num_relations: int) -> None:
        check_whole(at_least=0, num_nodes=num_nodes, num_relations=num_relations)
        check_edges(edge_index, num_nodes)
        _check_index_tensor("edge_type", edge_type)
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
        """Facts and their inverses: n edges as given, then the same n turned round, of type r + R.

        Args:
            triples: Head, relation and tail of every fact, [n, 3], int64 or int32.
            num_nodes: N.
            num_relations: R, without inverses; the graph has 2R edge types.

        >>> RelationalGraph.from_triples(torch.tensor([[0, 0, 1], [1, 1, 2]]), num_nodes=3, num_relations=2)
        RelationalGraph(num_nodes=3, num_relations=4, num_edges=4, device='cpu')
        """
        if triples.dim() != 2 or triples.shape[1] != 3:
            raise ValueError(f"triples must have shape [n, 3], got {list(triples.shape)}")
        head, relation, tail = triples.unbind(1)
        edge_index = torch.stack([torch.cat([head, tail]), torch.cat([tail, head])])
        return cls(edge_index, torch.cat([relation, relation + num_relations]), num_nodes, 2 * num_relations)

    @classmethod
    def from_data(cls, data: Any, num_relations: int | None = None) -> RelationalGraph:
        """The edges of a PyG `Data` and their inverses, as `from_triples` has them.

        Args:
            data: With `edge_index`, and `edge_type` [E] unless all edges are of one kind.
            num_relations: R, without inverses; None: as many as `edge_type` names.

        Raises:
            ValueError: as the constructor.

        >>> from torch_geometric.data import Data
        >>> RelationalGraph.from_data(Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3))
        RelationalGraph(num_nodes=3, num_relations=2, num_edges=4, device='cpu')
        """
        refuse_kinds(data)
        edge_index, edge_type = data.edge_index, data.get("edge_type")
        check_edges(edge_index, data.num_nodes)
        if edge_type is None:
            edge_type = edge_index.new_zeros(edge_index.shape[1])
        _check_index_tensor("edge_type", edge_type)
        if num_relations is None:
            num_relations = int(edge_type.max()) + 1 if edge_type.numel() else 1
        source, target = edge_index
        triples = torch.stack([source, edge_type, target], dim=1)
        return cls.from_triples(triples, data.num_nodes, num_relations)

    @classmethod
    def unchecked(
        cls, edge_index: Tensor, edge_type: Tensor, num_nodes: int, num_relations: int
    ) -> RelationalGraph:
        """A graph of edges that are known to be valid, looking at no value: for programs that are traced."""
        graph = object.__new__(cls)
        graph.edge_index, graph.edge_type = edge_index, edge_type
        graph.num_nodes, graph.num_relations = num_nodes, num_relations
        graph._orderings, graph._pieces = {}, {}
        graph._remember()
        return graph

    def _remember(self) -> None:
        """Let `graph_of` find the graph by its tensors."""
        if not torch.compiler.is_compiling():
            sizes = self.num_nodes, self.num_relations
            _alive[id(self.edge_index), id(self.edge_type), *sizes] = self

    @property
    def num_edges(self) -> int:
        """E, the number of edges, masked ones included."""
        return self.edge_type.shape[0]

    @property
    def device(self) -> torch.device:
        """Where the edges live."""
        return self.edge_type.device

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> RelationalGraph:
        """The graph on another device, known orderings included; itself when it is there already."""
        device = torch.empty(0, device=device).device
        if device == self.device:
            return self
        if device.type == "cuda":
            self._cut()
        return self._with(lambda part: part.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> RelationalGraph:
        """The graph in memory that a GPU can copy from while the host continues."""
        self._cut()
        return self._with(lambda part: part.pin_memory())

    def _cut(self) -> None:
        """Make the pieces of the orderings that are known, here where nobody waits for a device."""
        for segment in self._orderings:
            self.pieces(segment)

    def _with(self, change: Callable[[Any], Any]) -> RelationalGraph:
        """A copy whose edges and orderings are those of this graph, changed."""
        edges = change(self.edge_index), change(self.edge_type)
        moved = RelationalGraph.unchecked(*edges, self.num_nodes, self.num_relations)
        moved._orderings = {name: change(ordering) for name, ordering in self._orderings.items()}
        moved._pieces = {name: change(pieces) for name, pieces in self._pieces.items()}
        return moved

    def ordering(self, segment: Segment) -> Ordering:
        """Edges by target, with operands source and relation; by source (target, relation); or by relation.

        They serve the forward pass, the gradient in x and that in relation (operands source, target).
        """
        if segment not in self._orderings:
            columns = {"source": self.edge_index[0], "target": self.edge_index[1], "relation": self.edge_type}
            num_segments = self.num_relations if segment == "relation" else self.num_nodes
            by = columns.pop(segment)
            # What remains in this order: source before target, nodes before relations.
            first, second = columns.values()
            self._orderings[segment] = _order(by, first, second, num_segments)
        return self._orderings[segment]

    def pieces(self, segment: Segment) -> Pieces:
        """An ordering cut into pieces, once."""
        if segment not in self._pieces:
            self._pieces[segment] = cut_to_pieces(self.ordering(segment))
        return self._pieces[segment]

    def __repr__(self) -> str:
        return (
            f"RelationalGraph(num_nodes={self.num_nodes}, num_relations={self.num_relations}, "
            f"num_edges={self.num_edges}, device='{self.device}')"
        )


def _order(segment: Tensor, first: Tensor, second: Tensor, num_segments: int) -> Ordering:
    """Sort edges by (segment, second, first), ties as given.

    Edges of one node and relation are adjacent, so that the relation's row is read from the nearest cache.
    """
    order = torch.argsort(first, stable=True)
    order = order[torch.argsort(second[order], stable=True)]
    order = order[torch.argsort(segment[order], stable=True)]
    counts = torch.bincount(segment, minlength=num_segments)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    # Half the bytes per edge: indices travel through the same caches as the states.
    dtype = torch.int32 if max(segment.numel(), num_segments) < 2**31 else torch.int64
    columns = [part.to(dtype) for part in (offsets, first[order], second[order], order)]
    return Ordering._make([*columns, int(counts.max()) if num_segments else 0])


_alive: WeakValueDictionary[tuple[int, ...], RelationalGraph] = WeakValueDictionary()
# Graphs of programs that were given no `RelationalGraph`, with the versions of their tensors.
_made: deque[tuple[RelationalGraph, tuple[int, ...]]] = deque(maxlen=2)


def graph_of(edge_index: Tensor, edge_type: Tensor, num_nodes: int, num_relations: int) -> RelationalGraph:
    """The graph that has these very tensors, with its orderings; or a new one, kept for the next calls.

    For operators, which take tensors alone.
    """
    tensors, sizes = (edge_index, edge_type), (num_nodes, num_relations)
    versions = tuple(0 if x.is_inference() else int(x._version) for x in tensors)
    living = _alive.get((id(edge_index), id(edge_type), *sizes))
    if living is not None and not any(living is graph for graph, _ in _made):
        return living
    for graph, then in _made:
        same = graph.edge_index is edge_index and graph.edge_type is edge_type and then == versions
        if same and (graph.num_nodes, graph.num_relations) == sizes:
            return graph
    graph = RelationalGraph(edge_index, edge_type, num_nodes, num_relations)
    _made.append((graph, versions))
    return graph


def check_edges(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Source and target of every edge, int64, [E] each."""
    _check_index_tensor("edge_index", edge_index)
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise ValueError(
            f"edge_index must have shape [2, num_edges], got {list(edge_index.shape)}"
            + ("; transpose it" if edge_index.dim() == 2 and edge_index.shape[1] == 2 else "")
        )
    for row in (0, 1):
        _check_bounds(f"edge_index[{row}]", edge_index[row], "num_nodes", num_nodes)
    return edge_index[0].long(), edge_index[1].long()


def _check_index_tensor(name: str, tensor: Tensor) -> None:
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if tensor.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{name} must be int64 or int32, got {tensor.dtype}; call .long()")


def _check_bounds(name: str, values: Tensor, bound_name: str, bound: int) -> None:
    wrong = (values < 0) | (values >= bound)
    if bool(wrong.any()):
        position = int(wrong.nonzero()[0, 0])
        raise ValueError(
            f"{name} must be in 0..{bound - 1} ({bound_name}={bound}), but holds {int(values[position])} "
            f"at position {position}"
        )
