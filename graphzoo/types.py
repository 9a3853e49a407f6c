"""What travels between data, encoders and tasks: the graph's facts and the batches.

Shape letters, the same everywhere: N nodes or entities, E edges, R forward relations, B queries, triples or
pairs of a batch, G queries of a global batch (all ranks, all micro-batches), K negatives, T targets, M known
answers, D channels, H attention heads, C classes, S nodes of a sampled subgraph, F features or trailing
dimensions.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

from graphzoo.errors import UsageError, check_choice, check_range, check_whole

if TYPE_CHECKING:
    from torch import Tensor, device

    from graphzoo.ops import QueryGraph


Protocol = Literal["neighbourhood", "whole_graph"]
"""Where a model that was trained in neighbourhoods is asked."""


@dataclass(frozen=True)
class GraphSpec:
    """The only facts that travel from data to encoder, so that no configuration repeats a count.

    Args:
        num_nodes: Nodes or entities of the training graph.
        num_relations: Forward relations; the inverse of relation `r` is `r + num_relations`.
        in_channels: Width of the node features, 0 without features.
        num_classes: Classes of node classification, or its yes-no labels; 0 elsewhere.
        is_multi_label: Whether a node has any number of `num_classes` yes-no labels instead of one class.
        max_subgraph_nodes: Most nodes of a subgraph that is sampled around a pair; 0 where none is.
    """

    num_nodes: int
    num_relations: int = 0
    in_channels: int = 0
    num_classes: int = 0
    is_multi_label: bool = False
    max_subgraph_nodes: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "is_multi_label" or not isinstance(value, bool):
                object.__setattr__(self, field.name, value := plain_whole(value))
                check_whole(at_least=0, **{f"GraphSpec.{field.name}": value})

    @classmethod
    def from_data(cls, data: Any) -> GraphSpec:
        """The facts of a PyG `Data`: nodes, features, and what `edge_type` and `y` count.

        Args:
            data: With labels `y` [N] of integers, the classes from 0 on and -1 where unknown; or [N, C], C
                yes-no labels; with `edge_type` [E], forward relations from 0 on.

        >>> from torch_geometric.data import Data
        >>> GraphSpec.from_data(Data(x=torch.zeros(4, 8), y=torch.tensor([0, 2, 1, -1]))).num_classes
        3
        """
        refuse_kinds(data)
        x, y, edge_type = (data.get(name) for name in ("x", "y", "edge_type"))
        if data.num_nodes is None or (x is not None and len(x.shape) != 2):
            held = "nothing" if x is None else f"x {list(x.shape)}"
            raise UsageError(
                f"data needs its nodes and features [N, F], it holds {held}: give x, or num_nodes"
            )
        is_multi_label = y is not None and y.dim() == 2 and y.shape[1] > 1
        return cls(
            num_nodes=int(data.num_nodes),
            num_relations=_count(edge_type),
            in_channels=0 if x is None else x.shape[1],
            num_classes=y.shape[1] if is_multi_label else _count(y),
            is_multi_label=is_multi_label,
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for checkpoints."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> GraphSpec:
        """The inverse of `to_dict`; unknown keys raise `ValueError`."""
        known = {field.name for field in fields(cls)}
        if unknown := set(values) - known:
            raise ValueError(
                f"unknown GraphSpec fields {sorted(unknown)}; this version knows {sorted(known)}"
            )
        return cls(**values)


def plain_whole(value: Any) -> Any:
    """A whole number of NumPy as an int; anything else as it is."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def refuse_kinds(data: Any) -> None:
    """Refuse a PyG `HeteroData`, which is none of the graphs that encoders take."""
    if hasattr(data, "node_types"):
        raise UsageError("a HeteroData has several kinds of nodes\nGive data.to_homogeneous()")


def _count(ids: Tensor | None) -> int:
    """How many ids from 0 on there are, 0 for none."""
    if ids is None or not ids.numel():
        return 0
    if ids.is_floating_point():
        raise UsageError(
            f"labels and types of edges are whole numbers, got {str(ids.dtype).removeprefix('torch.')}: "
            "give .long(), or of several yes-no labels a y [N, C]"
        )
    return int(ids.max()) + 1


@dataclass(frozen=True)
class NeighbourhoodSpec:
    """How evaluated queries get their neighbourhoods; kept in checkpoints, so prediction needs no option.

    Args:
        num_nodes: K, entities of a neighbourhood.
        relation_share: Part of K for entities that are known to answer the relation.
        protocol: "neighbourhood": entities outside rank behind all inside; "whole_graph": the model, though
            trained in neighbourhoods, reasons over the whole graph.
    """

    num_nodes: int
    relation_share: float = 0.5
    protocol: Protocol = "neighbourhood"

    def __post_init__(self) -> None:
        check_whole(at_least=2, num_nodes=self.num_nodes)
        check_range(at_least=0, at_most=1, relation_share=self.relation_share)
        check_choice("protocol", self.protocol, Protocol)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for checkpoints."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> NeighbourhoodSpec:
        """The inverse of `to_dict`; anything else raises `ValueError`."""
        try:
            return cls(**values)
        except TypeError as error:
            raise UsageError(f"{values!r} describes no neighbourhoods") from error


class _MovableBatch:
    """`to(device)` for dataclasses of tensors; Lightning calls it for every batch."""

    def to(self, device: device | str, *, non_blocking: bool | None = None) -> Any:
        """The batch on a device; on its way to CUDA nobody waits for it, unless `non_blocking` says so."""
        if non_blocking is None:
            non_blocking = str(device).startswith("cuda")
        moved: dict[str, Any] = {}
        for field in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            value = getattr(self, field.name)
            moved[field.name] = value.to(device, non_blocking=non_blocking) if hasattr(value, "to") else value
        return type(self)(**moved)

    def pin_memory(self) -> Any:
        """The batch in memory that a GPU can copy from while the host continues; loaders call it."""
        pinned: dict[str, Any] = {}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            pins = hasattr(value, "pin_memory") and str(getattr(value, "layout", "")) != "torch.sparse_csr"
            pinned[field.name] = value.pin_memory() if pins else value
        return type(self)(**pinned)


@dataclass
class TripleBatch(_MovableBatch):
    """Training queries (head, relation, ?) with their answers; the direction is already applied.

    Args:
        head: Entity that is asked about, [B], int64.
        relation: Relation in 0..2R-1 (R and above: inverse), [B], int64.
        tail: The answer, [B], int64.
        index: Position of the fact in the training split, [B], int64: what a query's randomness depends on.
        removed: Positions of all facts of the global batch, [G], int64: hidden from message passing.
        num_global: G, the number of queries the optimiser step is made of.
        epoch: Epoch the batch belongs to.
        graph: Neighbourhoods of the queries, each without its own fact; queries whose answer lies outside are
            left out of the batch, but counted in `num_global`. None: all reason over the whole graph.
        known_row: Row of each answer in the training graph, own ones included, [M], int64, ascending; None
            where the loss does not ask.
        known_entity: These answers, [M], int64; with `graph` their places among their query's nodes, without
            those outside.
        source: Which graph of a mixture the queries are about.
    """

    head: Tensor
    relation: Tensor
    tail: Tensor
    index: Tensor
    removed: Tensor
    num_global: int
    epoch: int
    graph: QueryGraph | None = None
    known_row: Tensor | None = None
    known_entity: Tensor | None = None
    source: int = 0

    def __len__(self) -> int:
        return int(self.head.numel())

    def part(self, start: int, stop: int) -> TripleBatch:
        """The queries from `start` to `stop` of the same global batch."""
        rows = slice(start, stop)
        columns = {name: getattr(self, name)[rows] for name in ("head", "relation", "tail", "index")}
        graph = None if self.graph is None else self.graph.part(start, stop)
        part = replace(self, **columns, graph=graph)
        if self.known_row is not None and self.known_entity is not None:
            kept = (self.known_row >= start) & (self.known_row < stop)
            part.known_row, part.known_entity = self.known_row[kept] - start, self.known_entity[kept]
        return part


@dataclass
class QueryBatch(_MovableBatch):
    """Evaluation queries, each distinct (head, relation) once, with all their targets and known answers.

    Args:
        head: [B], int64.
        relation: Relation in 0..2R-1, [B], int64.
        target: Entities to be ranked, [T], int64.
        target_row: Row of `head`/`relation` that each target answers, [T], int64, ascending.
        target_index: `i` for the tail query of triple i of the split, `i + n` for its head query, [T], int64.
        known_row: Row of each known answer, [M], int64, ascending.
        known_entity: Every entity known to answer the row's query, targets included, [M], int64.
        source: Which graph of a mixture the queries are about.
    """

    head: Tensor
    relation: Tensor
    target: Tensor
    target_row: Tensor
    target_index: Tensor
    known_row: Tensor
    known_entity: Tensor
    source: int = 0

    def __len__(self) -> int:
        return int(self.head.numel())


@dataclass
class NodeBatch(_MovableBatch):
    """A graph, or the part of one that a random partition induces, with the nodes that count.

    Args:
        x: Features [N, F], dense or sparse CSR, float32.
        edge_index: Edges inside the part, in its own numbering, [2, E], int64; None once the encoder has
            precomputed all it needs of them.
        y: Classes [N], int64, -1 where unknown; or yes-no labels [N, C], float32, NaN where unknown.
        target: Nodes of the part that enter loss or metric, [T], int64.
        index: Number of each node in the whole graph, [N], int64; None when the batch is the whole graph.
        num_global: Targets of the optimiser step over all processes.
        epoch: Epoch the batch belongs to.
        number: Position of the part in the epoch's partition: what its randomness depends on.
        num_parts: Loader items that the step takes of each process; None: as many as a whole step.
    """

    x: Tensor
    edge_index: Tensor | None
    y: Tensor
    target: Tensor
    index: Tensor | None
    num_global: int
    epoch: int = 0
    number: int = 0
    num_parts: int | None = None

    def __len__(self) -> int:
        return int(self.target.numel())


@dataclass
class PairSubgraphs(_MovableBatch):
    """Subgraphs around B node pairs (u, v), padded to the largest; S below is its number of nodes.

    Args:
        nodes: Number of each node in the whole graph, u and v first, -1 where padded, [B, S], int64.
        adjacency: True where row's and column's node are linked, never for u and v themselves, [B, S, S],
            bool; symmetric unless the graph is directed, then entry (i, j) is the edge i -> j.
        num_nodes: Nodes of each subgraph, at least 2, [B], int64.
        sizes: The same as numbers of the host, which would otherwise have to wait for a device to know them;
            None where nobody counted.
        near: How many nodes u or v is linked with in each subgraph, both of them included; None likewise.
        links: Entries of each adjacency that are True, none of them on its diagonal; None likewise.
    """

    nodes: Tensor
    adjacency: Tensor
    num_nodes: Tensor
    sizes: tuple[int, ...] | None = None
    near: tuple[int, ...] | None = None
    links: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return int(self.num_nodes.numel())

    def part(self, start: int, stop: int) -> PairSubgraphs:
        """The subgraphs from `start` to `stop`, as views."""
        rows = slice(start, stop)
        return PairSubgraphs(
            self.nodes[rows],
            self.adjacency[rows],
            self.num_nodes[rows],
            None if self.sizes is None else self.sizes[rows],
            None if self.near is None else self.near[rows],
            None if self.links is None else self.links[rows],
        )


@dataclass
class PairBatch(_MovableBatch):
    """Node pairs that may be links.

    Args:
        edge_label_index: The pairs (u, v), [2, B], int64.
        edge_label: 1 for links, 0 for others while training, [B], float32; a regression's targets; None when
            pairs are only to be scored.
        index: Number of each pair in its split, [B], int64: what its randomness depends on, and where its
            score belongs. A pair may come several times, relabelled; its score is then the mean.
        subgraphs: What was sampled around each pair, for encoders of pairs; else None.
        removed: Links of the global batch, hidden from message passing over the whole graph, [2, G], int64;
            empty in evaluation.
        num_global: Pairs of the optimiser step over all ranks and micro-batches.
        epoch: Epoch the batch belongs to.
        number: Position of the batch among the epoch's: names the draw of dropout.
        source: The distinct u, ascending, of a loader for encoders of queries, [U], int64; else None.
        source_row: Which of them each pair has, [B], int64; None likewise.
        graph: Neighbourhoods of the sources, one for each pair, in which its other node lies; None: the whole
            graph is looked at, or subgraphs are.
        num_parts: Loader items that the global batch takes of each process; None: as many as a whole one.
    """

    edge_label_index: Tensor
    edge_label: Tensor | None
    index: Tensor
    subgraphs: PairSubgraphs | None
    removed: Tensor
    num_global: int
    epoch: int = 0
    number: int = 0
    source: Tensor | None = None
    source_row: Tensor | None = None
    graph: QueryGraph | None = None
    num_parts: int | None = None

    def __len__(self) -> int:
        return int(self.index.numel())

    def places_to_cut(self, *, by_source: bool) -> list[int]:
        """Where parts may begin and end: 0 and behind every pair, or every run of pairs of one source."""
        if not by_source:
            return list(range(len(self) + 1))
        source = self.edge_label_index[0]
        ends = (source[1:] != source[:-1]).nonzero().flatten() + 1
        return [0, *ends.tolist(), len(self)] if len(self) else [0]

    def part(self, start: int, stop: int) -> PairBatch:
        """The pairs from `start` to `stop`, as views."""
        return replace(
            self,
            edge_label_index=self.edge_label_index[:, start:stop],
            edge_label=None if self.edge_label is None else self.edge_label[start:stop],
            index=self.index[start:stop],
            subgraphs=None if self.subgraphs is None else self.subgraphs.part(start, stop),
            graph=None if self.graph is None else self.graph.part(start, stop),
            source=None,
            source_row=None,
        )
