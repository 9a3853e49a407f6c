"""Sampling of subgraphs around node pairs for PENCIL (Sec. 3.1; ShaDow sampling of Zeng et al., 2021)."""

from __future__ import annotations

import operator
import os
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.errors import UsageError, check_whole
from graphzoo.sampling.pair_subgraphs.file import Array
from graphzoo.sampling.pair_subgraphs.graph import PairGraph
from graphzoo.sampling.pair_subgraphs.samples import PairSamples, share_out
from graphzoo.sampling.pair_subgraphs.scratch import ScratchPool
from graphzoo.types import PairSubgraphs

# Part of every hash, so that other draws with the same seed have other random numbers.
_PURPOSES = (0x7061697273, 0x6F72646572)  # for the nodes and for their order


class PairSubgraphSampler:
    """Samples a subgraph around each of many node pairs (u, v), in compiled code on all threads of torch.

    A sample around each of u and v is drawn separately, with `depth` hops. In each hop, at most
    `num_neighbors` neighbours of every node are drawn without replacement. The subgraph has the nodes of both
    samples, and all edges of the whole graph between them. Node 0 is u, node 1 is v, and the others are in
    uniformly random order. The link between u and v is left out in both directions, of the hops and of the
    result.

    A subgraph is a function of (seed, u, v). It does not depend on the batch, threads or workers. The pairs
    (u, v) and (v, u) have the same nodes, in orders that are drawn separately.

    In a directed graph the hops follow edges in both directions, since the papers that cite a paper are as
    informative as those that it cites. `adjacency[b, i, j]` is the edge i -> j.

    Args:
        edge_index: Edges, [2, E], int64 or int32; those of an undirected graph in one or both directions.
            Self-loops and repeated edges are dropped.
        num_nodes: N.
        depth: Number of hops, at least 0.
        num_neighbors: Largest number of neighbours drawn for a node in a hop.
        max_nodes: Largest number of nodes in a subgraph; None for no limit. Of a larger subgraph, u, v and a
            uniformly random choice of the other nodes are kept.
        directed: Whether edges have a direction.

    Attributes:
        max_nodes: Largest number of nodes that can occur in a subgraph. This is
            `min(N, 2 (1 + n + ... + n^depth), max_nodes)`, where n is the largest number of neighbours that
            are drawn for a node.

    Raises:
        ValueError: for edges that are not valid.
        UsageError: for a setting out of range.

    >>> edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    >>> sampler = PairSubgraphSampler(edge_index, 5, depth=1, num_neighbors=4)
    >>> subgraphs = sampler(torch.tensor([[0, 1], [4, 2]]), seed=0)
    >>> subgraphs.num_nodes
    tensor([4, 4])
    >>> subgraphs.nodes[:, :2]
    tensor([[0, 1],
            [4, 2]])
    >>> subgraphs.adjacency.sum((1, 2))  # three edges of the ring, without the link (0, 1); two edges
    tensor([6, 4])
    """

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        *,
        depth: int,
        num_neighbors: int,
        max_nodes: int | None = None,
        directed: bool = False,
    ) -> None:
        graph = PairGraph.from_edge_index(edge_index, num_nodes, directed=directed)
        self._set_up(graph, depth, num_neighbors, max_nodes)

    @classmethod
    def from_csr(
        cls,
        rowptr: Any,
        col: Any,
        forward: Any = None,
        *,
        depth: int,
        num_neighbors: int,
        max_nodes: int | None = None,
        check: bool = True,
    ) -> PairSubgraphSampler:
        """A sampler of a graph in CSR form, such as `numpy.memmap` arrays; nothing is copied.

        Args:
            rowptr: Position of each node's first neighbour, [N + 1], int64 or int32.
            col: Neighbours of all nodes in both directions, [E], int64 or int32. Each row must be ascending,
                without repetitions and self-loops.
            forward: For a directed graph, whether there is an edge row -> column, [E], uint8 or bool; None
                for an undirected one.
            depth: See the class.
            num_neighbors: See the class.
            max_nodes: See the class.
            check: Whether to check all rows; without, wrong arrays may crash the process later.

        Raises:
            UsageError: for arrays that are not as described, or a setting out of range.
        """
        return cls._of(PairGraph.from_csr(rowptr, col, forward, check=check), depth, num_neighbors, max_nodes)

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        *,
        depth: int,
        num_neighbors: int,
        max_nodes: int | None = None,
        check: bool = True,
    ) -> PairSubgraphSampler:
        """A sampler of the graph in a file of `save`; the file is memory-mapped, and processes share it.

        Args:
            path: The file.
            depth: See the class.
            num_neighbors: See the class.
            max_nodes: See the class.
            check: Whether to compare its checksum, which reads the file once.

        Raises:
            DataError: if the file cannot be read, is of another kind, cut off or damaged.
            UsageError: for a setting out of range.
        """
        return cls._of(PairGraph.open(path, check=check), depth, num_neighbors, max_nodes)

    @classmethod
    def _of(
        cls, graph: PairGraph, depth: int, num_neighbors: int, max_nodes: int | None
    ) -> PairSubgraphSampler:
        sampler = cls.__new__(cls)
        sampler._set_up(graph, depth, num_neighbors, max_nodes)
        return sampler

    def _set_up(self, graph: PairGraph, depth: int, num_neighbors: int, max_nodes: int | None) -> None:
        check_whole(at_least=0, depth=depth)
        check_whole(at_least=1, num_neighbors=num_neighbors)
        check_whole(at_least=2, max_nodes=max_nodes)
        self.graph, self.depth, self.num_neighbors = graph, depth, num_neighbors
        self.max_degree = int(np.diff(graph.rowptr).max(initial=0))
        capacity = max(2, min(graph.num_nodes, self._most_nodes()))
        self.max_nodes = capacity if max_nodes is None else min(capacity, max_nodes)
        self._scratch = ScratchPool(
            graph.num_nodes, capacity, self.max_degree, num_neighbors, graph.col.dtype
        )

    def _most_nodes(self) -> int:
        """Largest number of nodes of both ego samples together, at most N."""
        total = layer = 1
        for _ in range(self.depth):
            layer *= min(self.num_neighbors, self.max_degree)
            total += layer
            if not layer or total >= self.graph.num_nodes:
                break
        return min(2 * total, self.graph.num_nodes)

    @property
    def num_nodes(self) -> int:
        """N, nodes of the whole graph."""
        return self.graph.num_nodes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph to one file for `from_file`, completely or not at all.

        Raises:
            OSError: if the file cannot be written.
        """
        self.graph.save(path)

    def __call__(self, pairs: Tensor, *, seed: int | Tensor) -> PairSubgraphs:
        """Sample the subgraphs of all pairs, padded to the largest.

        Args:
            pairs: Pairs (u, v), [B, 2], int64, where u and v differ.
            seed: Seed of the draws, another one in every epoch of a training; an int64 tensor [B] has a seed
                for each pair.

        Raises:
            ValueError: for pairs or seeds of another shape or dtype, nodes outside 0..N-1, or u = v.
        """
        return self.sample(pairs, seed=seed).pad()

    def sample(
        self, pairs: Tensor, *, seed: int | Tensor, order_seed: int | Tensor | None = None
    ) -> PairSamples:
        """Sample only the nodes of the subgraphs.

        Args:
            pairs: Pairs (u, v), [B, 2], int64, where u and v differ.
            seed: Seed of the draws; an int64 tensor [B] has a seed for each pair.
            order_seed: Seed of the order of the nodes, likewise: another one gives the same nodes in another
                order. None takes `seed`.

        Raises:
            ValueError: for pairs or seeds of another shape or dtype, nodes outside 0..N-1, or u = v.
        """
        pairs = self._checked(pairs)
        sizes = np.empty(len(pairs), np.int64)
        seeds = _one_each(seed, len(pairs))
        order_seeds = seeds if order_seed is None else _one_each(order_seed, len(pairs))
        settings = (_PURPOSES, self.depth, self.num_neighbors, self.max_nodes)

        def work(first: int, last: int) -> Any:
            from graphzoo.sampling.pair_subgraphs import kernels

            with self._scratch.borrow() as scratch:
                return kernels.sample_nodes(
                    self.graph.rowptr, self.graph.col, pairs.numpy(), seeds, order_seeds, *settings, scratch,
                    sizes, first, last,
                )  # fmt: skip

        parts = share_out(work, len(pairs))
        nodes = np.concatenate(parts) if parts else np.empty(0, self.graph.col.dtype)
        return PairSamples(self.graph, self._scratch, nodes, np.concatenate([[0], sizes.cumsum()]))

    def _checked(self, pairs: Tensor) -> Tensor:
        if not isinstance(pairs, Tensor):
            raise UsageError(f"pairs must be a tensor [B, 2], int64, got a {type(pairs).__name__}")
        if pairs.dim() != 2 or pairs.shape[1] != 2 or pairs.dtype != torch.int64:
            advice = ""
            if pairs.dim() == 2 and 2 in pairs.shape:
                advice = "; call .long()" if pairs.shape[1] == 2 else "; transpose it"
            raise UsageError(
                f"pairs must be int64 of shape [B, 2], got {pairs.dtype} {list(pairs.shape)}{advice}"
            )
        pairs = pairs.cpu().contiguous()
        if (wrong := ((pairs < 0) | (pairs >= self.num_nodes)).any(1)).any():
            row = int(wrong.nonzero()[0])
            raise UsageError(f"pairs[{row}] = {pairs[row].tolist()}: nodes are 0..{self.num_nodes - 1}")
        if (wrong := pairs[:, 0] == pairs[:, 1]).any():
            row = int(wrong.nonzero()[0])
            raise UsageError(
                f"pairs[{row}] = {pairs[row].tolist()}: a node cannot be paired with itself; drop such pairs"
            )
        return pairs

    def __getstate__(self) -> dict[str, Any]:
        return {"graph": self.graph, "settings": (self.depth, self.num_neighbors, self.max_nodes)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set_up(state["graph"], *state["settings"])


def _one_each(seed: int | Tensor, num_pairs: int) -> Array:
    """The seed of every pair, [B], int64."""
    if not isinstance(seed, Tensor):
        low = operator.index(seed) % (1 << 64)
        return np.full(num_pairs, low - (1 << 64) if low >> 63 else low, np.int64)
    if seed.dtype != torch.int64:
        raise ValueError(f"seeds must be int64, got {seed.dtype}; convert with .long()")
    if seed.shape not in ((), (num_pairs,)):
        raise UsageError(
            f"a tensor of seeds must have shape [{num_pairs}], one for each pair; got {list(seed.shape)}"
        )
    return np.ascontiguousarray(seed.cpu().expand(num_pairs).numpy())
