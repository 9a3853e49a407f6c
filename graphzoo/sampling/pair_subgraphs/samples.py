"""Nodes of sampled subgraphs, and their padded tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.errors import UsageError
from graphzoo.sampling.pair_subgraphs.file import Array
from graphzoo.sampling.pair_subgraphs.graph import PairGraph
from graphzoo.sampling.pair_subgraphs.scratch import ScratchPool
from graphzoo.types import PairSubgraphs

# A piece of fewer pairs would take less time than passing it to another thread. There are several pieces for
# each thread, so that a delayed thread does fewer of them.
_MIN_PAIRS_PER_PIECE = 8
_PIECES_PER_THREAD = 4


class PairSamples:
    """The nodes of the subgraphs of B pairs, as `PairSubgraphSampler.sample` returns them.

    Attributes:
        num_nodes: Number of nodes of each subgraph, at least 2, [B], int64.
    """

    def __init__(self, graph: PairGraph, scratch: ScratchPool, nodes: Array, offsets: Array) -> None:
        self._graph, self._scratch = graph, scratch
        self._nodes, self._offsets = nodes, offsets
        self.num_nodes = torch.from_numpy(np.diff(offsets))

    def __len__(self) -> int:
        return int(self.num_nodes.numel())

    def nodes(self, row: int) -> Tensor:
        """Nodes of one subgraph, u and v first, [S], int64."""
        row = range(len(self))[row]
        return torch.from_numpy(self._nodes[self._offsets[row] : self._offsets[row + 1]].astype(np.int64))

    def pad(self, rows: Tensor | None = None) -> PairSubgraphs:
        """Make the adjacency of some subgraphs, padded to the largest of them.

        Args:
            rows: Numbers of the subgraphs, in any order, [b], int64; None for all.

        Raises:
            UsageError: if `rows` has another shape or dtype.
            IndexError: for a number outside 0..B-1.
        """
        rows = torch.arange(len(self)) if rows is None else rows.cpu().contiguous()
        if rows.dtype != torch.int64 or rows.dim() != 1:
            raise UsageError(f"rows must be int64 of shape [b], got {rows.dtype} {list(rows.shape)}")
        if rows.numel() and not 0 <= int(rows.min()) <= int(rows.max()) < len(self):
            raise IndexError(f"rows must be in 0..{len(self) - 1}, got {int(rows.min())}..{int(rows.max())}")
        num_nodes = self.num_nodes[rows]
        width = int(num_nodes.max()) if rows.numel() else 2
        nodes = torch.empty(rows.numel(), width, dtype=torch.int64)
        adjacency = torch.empty(rows.numel(), width, width, dtype=torch.uint8)
        graph = self._graph
        forward = graph.forward if graph.is_directed else None
        out = (rows.numpy(), nodes.numpy(), adjacency.view(-1).numpy())

        def work(first: int, last: int) -> None:
            from graphzoo.sampling.pair_subgraphs import kernels

            with self._scratch.borrow() as scratch:
                kernels.pad_subgraphs(
                    graph.rowptr, graph.col, forward, self._nodes, self._offsets, out[0], scratch,
                    *out[1:], first, last,
                )  # fmt: skip

        share_out(work, rows.numel())
        links = adjacency.view(torch.bool)
        near = links[:, 0] | links[:, 1]
        near[:, :2] = True
        counts = (num_nodes, near.sum(1), links.flatten(1).sum(1))
        return PairSubgraphs(nodes, links, num_nodes, *(tuple(count.tolist()) for count in counts))


def share_out(work: Callable[[int, int], Any], num_pairs: int) -> list[Any]:
    """Call `work(first, last)` for pieces of the pairs on all threads; returns the results in order."""
    from graphzoo.ops.threads import run_pieces

    num_threads = torch.get_num_threads()
    most = 1 if num_threads == 1 else _PIECES_PER_THREAD * num_threads
    num_pieces = min(most, -(-num_pairs // _MIN_PAIRS_PER_PIECE))
    results: list[Any] = [None] * num_pieces

    def run(i: int) -> None:
        results[i] = work(num_pairs * i // num_pieces, num_pairs * (i + 1) // num_pieces)

    run_pieces(run, num_pieces)
    return results
