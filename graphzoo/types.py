"""Types that data, encoders and tasks share: the sizes of a graph, and the batches.

Letters of shapes, the same in all modules: N nodes or entities, E edges, R forward relations, B queries,
triples or pairs of a batch, G queries of a global batch (all processes and micro-batches), K negatives,
T targets, M known answers, D channels, H attention heads, C classes, S nodes of a sampled subgraph,
F features or trailing dimensions.
"""

from __future__ import annotations

import inspect
import os
from abc import ABCMeta
from dataclasses import asdict, dataclass, fields, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

from graphzoo.errors import UsageError, check_choice, check_range, check_whole

if TYPE_CHECKING:
    from torch import Tensor, device

    from graphzoo.ops import QueryGraph


Protocol = Literal["neighbourhood", "whole_graph"]
"""Whether a model that was trained in neighbourhoods is evaluated in neighbourhoods or on the whole graph."""


@dataclass(frozen=True)
class GraphSpec:
    """Sizes of the data that an encoder is built for, so that no configuration repeats a count.

    Args:
        num_nodes: Nodes or entities of the training graph.
        num_relations: Forward relations; the inverse of relation `r` is `r + num_relations`.
        in_channels: Width of the node features; 0 if there are none.
        num_classes: Number of classes, or of yes-no labels, of node classification; 0 for other tasks.
        is_multi_label: Whether each node has `num_classes` yes-no labels instead of one class.
        max_subgraph_nodes: Largest number of nodes in a subgraph around a pair; 0 if none are sampled.

    Raises:
        UsageError: if a size is not a whole number of at least 0.
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
        """The sizes of a PyG `Data`.

        Args:
            data: Its features `x` [N, F], labels `y` and relations `edge_type` are optional. `y` [N] has
                classes, integers from 0, with -1 for unknown; `y` [N, C] has C yes-no labels. `edge_type`
                [E] has forward relations, integers from 0.

        Raises:
            UsageError: for a `HeteroData`, an unknown number of nodes, features that are not [N, F], or
                classes or relations that are not integers.

        >>> from torch_geometric.data import Data
        >>> GraphSpec.from_data(Data(x=torch.zeros(4, 8), y=torch.tensor([0, 2, 1, -1]))).num_classes
        3
        """
        refuse_kinds(data)
        x, y, edge_type = (data.get(name) for name in ("x", "y", "edge_type"))
        if data.num_nodes is None or (x is not None and len(x.shape) != 2):
            held = "neither" if x is None else f"x {list(x.shape)}"
            raise UsageError(
                f"data must have node features x [N, F], or num_nodes if there are none; it has {held}"
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
        """Build a spec from the result of `to_dict`.

        Raises:
            ValueError: for an unknown key, or a size that is not a whole number of at least 0.
        """
        known = {field.name for field in fields(cls)}
        if unknown := set(values) - known:
            raise ValueError(
                f"unknown GraphSpec fields {sorted(unknown)}; this version knows {sorted(known)}"
            )
        return cls(**values)


def plain_whole(value: Any) -> Any:
    """Convert an integer of NumPy to an int; return anything else unchanged."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def plain_setting(value: Any) -> Any:
    """Convert numbers, texts and arrays of NumPy, and paths, also in lists and dictionaries, to plain values.

    >>> import numpy as np
    >>> plain_setting({"sizes": [1, np.float64(0.5)]})
    {'sizes': [1, 0.5]}
    """
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value) in (list, tuple):
        return type(value)(map(plain_setting, value))
    return {key: plain_setting(each) for key, each in value.items()} if type(value) is dict else value


class PlainSettings(ABCMeta):
    """The metaclass of classes whose arguments go into checkpoints and JSON: they get plain values.

    With NumPy's numbers, a checkpoint could not be loaded, and a seed would not be the same seed. The
    arguments of a user's own `__init__` stay as they are.
    """

    @property
    def __signature__(cls) -> inspect.Signature:
        # what `__init__` takes, not what the method below does
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    if not TYPE_CHECKING:  # type checkers look at `__init__`

        def __call__(cls, *args: Any, **settings: Any) -> Any:
            """Build an object from plain values."""
            if cls.__init__.__module__.startswith("graphzoo."):
                args, settings = map(plain_setting, args), plain_setting(settings)
            return super().__call__(*args, **settings)


def refuse_kinds(data: Any) -> None:
    """Refuse a PyG `HeteroData`, which encoders do not support, with a `UsageError`."""
    if hasattr(data, "node_types"):
        raise UsageError("a HeteroData has several kinds of nodes\nGive data.to_homogeneous()")


def _count(ids: Tensor | None) -> int:
    """The number of classes or relations whose ids count from 0: the largest id + 1, or 0 without ids."""
    if ids is None or not ids.numel():
        return 0
    if ids.is_floating_point():
        raise UsageError(
            f"y [N] and edge_type must be integers, got {str(ids.dtype).removeprefix('torch.')}: "
            "convert them with .long(); several yes-no labels per node are a y [N, C]"
        )
    return int(ids.max()) + 1


@dataclass(frozen=True)
class NeighbourhoodSpec:
    """How queries get their neighbourhoods in evaluation. Checkpoints keep it, so prediction needs no option.

    Args:
        num_nodes: K, the number of entities in a neighbourhood.
        relation_share: Share of K that is kept for entities that answer the same relation in a known fact.
        protocol: "neighbourhood" ranks all entities outside the neighbourhood behind those inside.
            "whole_graph" evaluates on the whole graph a model that was trained in neighbourhoods.

    Raises:
        UsageError: if a value is out of its range.
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
        """Build a spec from the result of `to_dict`; anything else raises `UsageError`."""
        try:
            return cls(**values)
        except TypeError as error:
            raise UsageError(f"{values!r} does not describe neighbourhoods") from error


class _MovableBatch:
    """`to(device)` for dataclasses of tensors; Lightning calls it for every batch."""

    def to(self, device: device | str, *, non_blocking: bool | None = None) -> Any:
        """Copy the batch to a device; by default the host does not wait for a copy to CUDA."""
        if non_blocking is None:
            non_blocking = str(device).startswith("cuda")
        moved: dict[str, Any] = {}
        for field in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            value = getattr(self, field.name)
            moved[field.name] = value.to(device, non_blocking=non_blocking) if hasattr(value, "to") else value
        return type(self)(**moved)

    def pin_memory(self) -> Any:
        """Copy the batch to page-locked memory, from which a GPU copies while the host continues.

        `DataLoader(pin_memory=True)` calls this. Sparse CSR tensors cannot be pinned and stay as they are.
        """
        pinned: dict[str, Any] = {}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            pins = hasattr(value, "pin_memory") and str(getattr(value, "layout", "")) != "torch.sparse_csr"
            pinned[field.name] = value.pin_memory() if pins else value
        return type(self)(**pinned)


@dataclass
class TripleBatch(_MovableBatch):
    """Training queries (head, relation, ?) with their answers.

    A query for the head of a fact is already reversed: it has the fact's tail as `head`, and the inverse
    relation.

    Args:
        head: Known entity of the query, [B], int64.
        relation: Relation in 0..2R-1 (R and above: inverse), [B], int64.
        tail: The answer, [B], int64.
        index: Position of the fact in the training split, [B], int64. It seeds the query's random draws.
        removed: Positions of all facts of the global batch, [G], int64. They are hidden from message passing.
        num_global: G, the number of queries of the optimiser step.
        epoch: Epoch of the batch.
        graph: Neighbourhoods of the queries, each without the query's own fact; None for the whole graph. A
            query whose answer lies outside is left out of the batch, but counted in `num_global`.
        known_row: For each known answer, the row of its query, [M], int64, ascending; None if the loss does
            not need it. Known answers are those in the training graph, `tail` included.
        known_entity: The known answers, [M], int64. With `graph` these are positions among the nodes of the
            query's neighbourhood, and answers outside it are left out.
        source: Number of the graph, in a mixture of several, that the queries belong to.
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
    """Evaluation queries with all their targets and known answers; each (head, relation) occurs once.

    Args:
        head: Known entity of the query, [B], int64.
        relation: Relation in 0..2R-1, [B], int64.
        target: Entities whose rank is computed, [T], int64.
        target_row: For each target, the row of its query, [T], int64, ascending.
        target_index: `i` for the tail query of triple i of the split's n triples, `i + n` for its head query,
            [T], int64.
        known_row: For each known answer, the row of its query, [M], int64, ascending.
        known_entity: The known answers, targets included, [M], int64.
        source: Number of the graph, in a mixture of several, that the queries belong to.
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
    """A graph, or one part of a random partition of it, and the nodes that enter loss or metric.

    Args:
        x: Features [N, F], dense or sparse CSR, float32.
        edge_index: Edges between nodes of the part, numbered within it, [2, E], int64; None if the encoder
            has precomputed all that it needs from them.
        y: Classes [N], int64, -1 where unknown; or yes-no labels [N, C], float32, NaN where unknown.
        target: Nodes of the part that enter loss or metric, [T], int64.
        index: Number of each node in the whole graph, [N], int64; None if the batch is the whole graph.
        num_global: Targets of the optimiser step, over all processes.
        epoch: Epoch of the batch.
        number: Position of the part in the epoch's partition. It seeds the part's random draws.
        num_parts: Batches that each process contributes to the optimiser step; None for the full number, the
            Trainer's `accumulate_grad_batches`.
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
    """Subgraphs around B node pairs (u, v), padded to S nodes, the number in the largest.

    The last three fields are counts as Python integers, so that the host need not wait for a device to read
    them. They are optional.

    Args:
        nodes: Number of each node in the whole graph, u and v first, -1 for padding, [B, S], int64.
        adjacency: Entry (i, j) is True if there is an edge i -> j, [B, S, S], bool. It is symmetric unless
            the graph is directed. The link between u and v is always left out.
        num_nodes: Nodes of each subgraph, at least 2, [B], int64.
        sizes: The values of `num_nodes`.
        near: For each subgraph, the number of nodes that u or v has an edge to, u and v included.
        links: For each subgraph, the number of True entries of its adjacency.
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
    """Node pairs that are scored as links.

    Args:
        edge_label_index: The pairs (u, v), [2, B], int64.
        edge_label: In training 1 for links and 0 for negatives, or the targets of a regression, [B], float32;
            None if pairs are only scored.
        index: Number of each pair in its split, [B], int64. It seeds the pair's random draws, and says which
            pair a score belongs to. If a pair occurs several times, its score is the mean.
        subgraphs: A subgraph around each pair, for pair encoders; None for others.
        removed: Links of the global batch, which are hidden from message passing over the whole graph,
            [2, G], int64; empty in evaluation.
        num_global: Pairs of the optimiser step, over all processes and micro-batches.
        epoch: Epoch of the batch.
        number: Position of the batch in its epoch. It seeds dropout.
        source: For query encoders, the distinct u in ascending order, [U], int64; None for others.
        source_row: For query encoders, the position of each pair's u in `source`, [B], int64; None for
            others.
        graph: For query encoders that are trained in neighbourhoods, a neighbourhood of u for each pair, with
            v in it; None otherwise.
        num_parts: Micro-batches of each process in the optimiser step; None for the full number.
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
        """Positions at which the batch may be cut, from 0 to B.

        With `by_source`, consecutive pairs of the same source are kept together.
        """
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
