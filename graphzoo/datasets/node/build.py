"""Parts that the readers of all formats share: tidy edges, masks, sparse features and names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.node.feature_arrays import csr_tensor
from graphzoo.datasets.node.graph import NodeGraph
from graphzoo.datasets.node.splits import NodeSplit
from graphzoo.errors import DataError
from graphzoo.system.units import counted

_Keys = np.ndarray[Any, np.dtype[np.int64]]


@dataclass
class Parsed:
    """The result of a reader, with the parts of a `NodeGraph`; edges may be unsorted and repeated."""

    x: Tensor
    edge_index: Tensor
    y: Tensor
    class_names: tuple[str, ...]
    splits: dict[str, tuple[NodeSplit, ...]] = field(default_factory=dict)
    node_names: tuple[str, ...] = ()
    notices: list[str] = field(default_factory=list)
    feature_names: tuple[str, ...] = ()

    @classmethod
    def of_arrays(cls, x: Any, edge_index: Any, y: Any, **others: Any) -> Parsed:
        """Make one from arrays; class names are the numbers of the classes unless `others` has names."""
        features = x if isinstance(x, Tensor) else torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
        edges, classes = (
            torch.from_numpy(np.ascontiguousarray(part, dtype=np.int64)) for part in (edge_index, y)
        )
        return cls(features, edges, classes, **{"class_names": number_names(int(y.max()) + 1)} | others)

    def to_graph(self, name: str, *, undirected: bool = True, **facts: Any) -> tuple[NodeGraph, list[str]]:
        """The graph, and notices about what was dropped or ignored."""
        edge_index, notices = tidy_edges(self.edge_index, self.x.size(0), undirected=undirected)
        graph = NodeGraph(
            name,
            self.x,
            edge_index,
            self.y,
            self.class_names,
            self.node_names,
            self.splits,
            feature_names=self.feature_names,
            **facts,
        )
        return graph, [*self.notices, *notices]


def is_symmetric(edge_index: Tensor, num_nodes: int) -> bool:
    """Whether each of the distinct edges [2, E] is there in both directions."""
    source, target = edge_index
    return torch.equal(*((a * num_nodes + b).sort().values for a, b in ((source, target), (target, source))))


def tidy_edges(edge_index: Tensor, num_nodes: int, *, undirected: bool = True) -> tuple[Tensor, list[str]]:
    """Drop repeated edges and self-loops, and sort edges [2, E]; `undirected` adds missing directions.

    Returns:
        Edges [2, E'], int64, sorted by (source, target), and notices about what was dropped.

    Raises:
        DataError: if an end is not in 0..N-1.
    """
    edges: _Keys = edge_index.cpu().numpy().astype(np.int64, copy=False)
    outside = (edges < 0) | (edges >= num_nodes)
    if outside.any():
        edge = int(np.flatnonzero(outside.any(0))[0])
        raise DataError(
            f"edge {edge} is ({edges[0, edge]}, {edges[1, edge]}), but there are {num_nodes} nodes "
            f"(0..{num_nodes - 1}); {int(outside.any(0).sum()):,} such edges"
        )
    keys = edges[0] * num_nodes + edges[1]
    loops = edges[0] == edges[1]
    notices = []
    if num_loops := int(loops.sum()):
        notices.append(f"{counted(num_loops, 'self-loop')} dropped")
        keys = keys[~loops]
    distinct = _distinct(keys)
    if repeated := keys.size - distinct.size:
        notices.append(f"{counted(repeated, 'repeated edge')} dropped")
    if undirected:
        distinct = _distinct(
            np.concatenate([distinct, distinct % num_nodes * num_nodes + distinct // num_nodes])
        )
    return torch.from_numpy(np.stack([distinct // num_nodes, distinct % num_nodes])), notices


def _distinct(keys: _Keys) -> _Keys:
    # A sort and one comparison are faster than np.unique, and need fewer copies of a hundred million keys.
    keys = np.sort(keys)
    distinct: _Keys = keys[np.diff(keys, prepend=-1) != 0]
    return distinct


def from_masks(name: str, masks: Sequence[Sequence[Any]]) -> tuple[NodeSplit, ...]:
    """Splits from groups of (train, valid, test) masks, each [N] of bool or 0/1."""
    nodes = [[torch.from_numpy(np.flatnonzero(np.asarray(mask))) for mask in group] for group in masks]
    return tuple(
        NodeSplit(name, index, train, valid, test) for index, (train, valid, test) in enumerate(nodes)
    )


def read_mask_file(path: Path) -> list[Any]:
    """Masks [N] of train, valid and test from a split file of Geom-GCN."""
    with np.load(path, allow_pickle=False) as file:
        return [file[name] for name in ("train_mask", "val_mask", "test_mask")]


def sparse_features(rows: Sequence[Sequence[int]], num_columns: int) -> Tensor:
    """Binary features [N, num_columns], sparse CSR, float32, from the columns that are 1 in each row."""
    columns = [np.unique(np.asarray(row, dtype=np.int64)) for row in rows]
    start = np.cumsum([0, *(len(row) for row in columns)])
    column = torch.from_numpy(np.concatenate([*columns, np.empty(0, dtype=np.int64)]))
    values = torch.ones(column.numel())
    return csr_tensor(torch.from_numpy(start), column, values, (len(rows), num_columns))


def number_names(count: int) -> tuple[str, ...]:
    """The numbers 0..count-1 as names: "0", "1", ..."""
    return tuple(map(str, range(count)))


def proper_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names of nodes; empty if they are just the numbers 0..N-1 in order."""
    return () if tuple(names) == number_names(len(names)) else tuple(names)
