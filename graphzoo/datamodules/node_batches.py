"""Training batches of nodes: the whole graph once an epoch, or parts of a random partition."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from graphzoo.datamodules.batches import RankSampler
from graphzoo.datamodules.features import select_rows
from graphzoo.datasets import NodeGraph
from graphzoo.sampling import induced_subgraph
from graphzoo.types import NodeBatch


class WholeGraphBatch(NodeBatch):
    """A whole graph. `to` moves only labels and targets; the task keeps the rest on the model's device."""

    def to(self, device: torch.device | str, *, non_blocking: bool | None = None) -> WholeGraphBatch:
        """The batch with labels and targets on a device; the host does not wait for a copy to CUDA."""
        if non_blocking is None:
            non_blocking = torch.device(device).type == "cuda"
        y = self.y.to(device, non_blocking=non_blocking)
        return dataclasses.replace(self, y=y, target=self.target.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> WholeGraphBatch:
        """The batch with labels and targets in pinned memory, which a GPU copies while the host continues."""
        return dataclasses.replace(self, y=self.y.pin_memory(), target=self.target.pin_memory())


class Part(NamedTuple):
    """One loader item."""

    epoch: int
    number: int  # its place in the epoch's partition
    nodes: Tensor | None  # sorted; None for the whole graph
    target: Tensor  # nodes of the whole graph that enter the loss
    num_global: int  # targets of the optimiser step over all ranks and accumulated items
    num_parts: int = 1  # accumulated items of the step


class WholeGraphSampler(RankSampler[Part]):
    """A sampler of one item per epoch. Rank w of W gets every W-th node of `target` from the w-th on."""

    def __init__(self, target: Tensor, rank: int, world_size: int) -> None:
        super().__init__(1, rank, world_size)
        self.num_global = int(target.numel())
        # the same object in all epochs
        self.target = target[rank::world_size].contiguous()

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Part]:
        yield Part(self.epoch, 0, None, self.target, self.num_global)


class PartSampler(RankSampler[Part]):
    """Deals the parts of each epoch's partition to the ranks in turn.

    An optimiser step has one part for each rank and each accumulated item. So one process that accumulates W
    items does the same as W processes. A rank that has no part left gets the last part without targets, since
    collective operations wait for all ranks.

    Args:
        partition: Function from an epoch to its parts, each the sorted numbers of its nodes.
        num_parts: Number of parts.
        is_target: True for the training nodes, [N], bool.
        accumulate: Loader items that are accumulated for a step.
        rank: Number of this process.
        world_size: Number of processes.
    """

    def __init__(
        self,
        partition: Callable[[int], list[Tensor]],
        num_parts: int,
        is_target: Tensor,
        accumulate: int,
        rank: int,
        world_size: int,
    ) -> None:
        super().__init__(num_parts, rank, world_size)
        self.partition, self.num_parts = partition, num_parts
        self.is_target, self.accumulate = is_target, accumulate

    def __len__(self) -> int:
        return math.ceil(self.num_parts / self.num_replicas)

    def __iter__(self) -> Iterator[Part]:
        epoch = self.epoch
        parts = self.partition(epoch)
        targets = [nodes[self.is_target[nodes]] for nodes in parts]
        step = self.num_replicas * self.accumulate
        for turn in range(len(self)):
            number = turn * self.num_replicas + self.rank
            first = turn // self.accumulate * step
            num_global = sum(target.numel() for target in targets[first : first + step])
            num_items = min(self.accumulate, len(self) - turn // self.accumulate * self.accumulate)
            if number < len(parts):
                yield Part(epoch, number, parts[number], targets[number], num_global, num_items)
            else:
                yield Part(epoch, len(parts) - 1, parts[-1], targets[-1][:0], num_global, num_items)


class NodeBatches(Dataset[NodeBatch]):
    """Makes a `NodeBatch` of a `Part`; with `with_edges`, parts have the edges between their nodes."""

    def __init__(self, graph: NodeGraph, *, with_edges: bool = True) -> None:
        self.graph, self.with_edges = graph, with_edges

    def __getitem__(self, part: Part) -> NodeBatch:
        graph = self.graph
        common = {name: getattr(part, name) for name in ("num_global", "epoch", "number", "num_parts")}
        if part.nodes is None:
            return WholeGraphBatch(graph.x, graph.edge_index, graph.y, part.target, None, **common)
        inside = induced_subgraph(graph.edge_index, part.nodes, graph.num_nodes) if self.with_edges else None
        return NodeBatch(
            x=select_rows(graph.x, part.nodes),
            edge_index=inside,
            y=graph.y[part.nodes],
            target=torch.searchsorted(part.nodes, part.target),
            index=part.nodes,
            **common,
        )
