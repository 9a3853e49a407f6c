"""Sample nodes of a graph, some of them neighbours, sorted by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets import NodeGraph

_NEIGHBOURS = 6


@dataclass(frozen=True)
class NodeSample:
    """A sample of nodes for pictures."""

    nodes: Tensor  # node numbers, sorted by class, [n], int64
    classes: Tensor  # class of each node, -1 if it is unknown or a node has several, [n], int64
    linked: Tensor  # whether an edge in any direction joins two nodes, [n, n], bool
    class_names: tuple[str, ...]
    names: tuple[str, ...]  # names of the nodes
    num_nodes: int  # N of the whole graph

    @property
    def is_whole(self) -> bool:
        """Whether these are all nodes of the graph."""
        return self.nodes.numel() == self.num_nodes

    def class_of(self, place: int) -> str:
        """Name of the class of the node at a position of the sample; "" if it is unknown."""
        number = int(self.classes[place])
        return self.class_names[number] if number >= 0 else ""

    def same_class(self) -> Tensor:
        """Whether two different nodes are of the same known class, [n, n], bool."""
        known = self.classes >= 0
        same = (self.classes[:, None] == self.classes) & known[:, None] & known
        return same & ~torch.eye(self.nodes.numel(), dtype=torch.bool)


def sample_of(graph: NodeGraph, count: int, seed: int = 0) -> NodeSample:
    """Sample at most `count` nodes around a random node of each class, so that some are neighbours.

    A uniform sample of a sparse graph would have hardly any edge. Neighbours may be of any class.
    """
    from scipy.sparse import csr_array

    size = graph.num_nodes
    row, col = (part.numpy() for part in graph.edge_index)
    ones = np.ones(row.size, dtype=bool)
    around = csr_array((ones, (row, col)), shape=(size, size))
    around = (around + around.T).tocsr()
    one_class = graph.y.dim() == 1
    classes = graph.y.numpy() if one_class else np.full(size, -1)
    generator = np.random.default_rng(seed)
    order = generator.permutation(size)
    kinds = [int(kind) for kind in np.unique(classes) if kind >= 0] or [-1]
    place = np.argsort(order)
    chosen: dict[int, None] = {}
    for number, kind in enumerate(kinds):
        quota = round(min(count, size) * (number + 1) / len(kinds))
        own = order[classes[order] == kind]
        for start in own:
            if len(chosen) >= quota:
                break
            _grow(around, int(start), place, quota, chosen)
    for node in order:  # fill up, as classes may be smaller than their share
        if len(chosen) >= min(count, size):
            break
        chosen.setdefault(int(node))
    by_class = sorted(chosen, key=lambda node: (classes[node] < 0, classes[node], node))
    nodes = np.array(by_class, dtype=np.int64)
    linked = torch.from_numpy(around[nodes][:, nodes].toarray().astype(bool))
    picked = torch.from_numpy(nodes)
    names = tuple(graph.node_names[node] if graph.node_names else str(node) for node in nodes)
    classes_of = torch.from_numpy(classes[nodes].astype(np.int64))
    return NodeSample(picked, classes_of, linked, graph.class_names if one_class else (), names, size)


def _grow(around: Any, start: int, place: Any, quota: int, chosen: dict[int, None]) -> None:
    """Add a node and the nodes around it, nearest first, with at most `_NEIGHBOURS` neighbours of each."""
    queue, seen = [start], {start}
    while queue and len(chosen) < quota:
        node = queue.pop(0)
        chosen.setdefault(node)
        others = around.indices[around.indptr[node] : around.indptr[node + 1]]
        # All neighbours of a hub would fill the sample.
        for other in others[np.argsort(place[others])][:_NEIGHBOURS].tolist():
            if other not in seen:
                seen.add(other)
                queue.append(other)
