"""The whole graph once an epoch, or the parts of a random partition, cut over ranks."""

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
    """A whole graph; `to` moves labels and targets only: the task keeps the rest where the model is."""

    def to(self, device: torch.device | str, *, non_blocking: bool | None = None) -> WholeGraphBatch:
        """The batch with labels and targets on a device; on its way to CUDA nobody waits for it."""
        if non_blocking is None:
            non_blocking = torch.device(device).type == "cuda"
        y = self.y.to(device, non_blocking=non_blocking)
        return dataclasses.replace(self, y=y, target=self.target.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> WholeGraphBatch:
        """The batch with labels and targets where a GPU can copy them from while the host continues."""
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
    """One item an epoch; rank w of W counts every W-th training node (`target`) from the w-th on."""

    def __init__(self, target: Tensor, rank: int, world_size: int) -> None:
        super().__init__(1, rank, world_size)
        self.num_global = int(target.numel())
        # one object in all epochs, so that a device needs it once
        self.target = target[rank::world_size].contiguous()

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Part]:
        yield Part(self.epoch, 0, None, self.target, self.num_global)


class PartSampler(RankSampler[Part]):
    """Deals the parts of each epoch's partition to the ranks in turn.

    An optimiser step is made of one part for each rank and each accumulated item, so that one process which
    accumulates W items does what W processes do. Ranks whose parts run out get the last one without targets:
    the others wait for them in their collective operations.

    `partition` gives the `num_parts` parts of an epoch, each the sorted numbers of its nodes; `is_target` is
    true for the nodes to learn from, [N], bool.
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
    """From a `Part` to a `NodeBatch`; batches of parts carry the edges inside them if `with_edges`."""

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
