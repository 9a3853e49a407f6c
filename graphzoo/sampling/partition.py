"""Random partition of the nodes of a large graph, and the edges within a part."""

from __future__ import annotations

import torch
from torch import Tensor

from graphzoo.errors import check_whole
from graphzoo.ops.random import hash_integers
from graphzoo.system.tensors import check_index, check_tensors

# Part of every hash, so that other draws with the same seed have other random numbers.
_PURPOSE = 0x7061727469


def partition(nodes: int | Tensor, batch_size: int, *, seed: int, epoch: int) -> list[Tensor]:
    """Divide nodes into random parts of nearly equal size.

    The partition is a function of seed, epoch and nodes, so all processes and workers have the same. There
    are ceil(n / batch_size) parts, whose sizes differ by at most one.

    Args:
        nodes: N for all nodes 0..N-1, or the distinct numbers of the nodes to divide, [n], int64.
        batch_size: Largest number of nodes in a part.
        seed: Seed of the run.
        epoch: Epoch; every epoch has another partition.

    Returns:
        Node numbers of each part, sorted, int64, on the device of `nodes`; every node is in exactly one.

    Raises:
        UsageError: if `batch_size` is not a whole number of at least 1.

    >>> [len(part) for part in partition(10, 4, seed=0, epoch=0)]
    [4, 3, 3]
    """
    check_whole(at_least=1, batch_size=batch_size)
    if not isinstance(nodes, Tensor):
        nodes = torch.arange(nodes)
    if not nodes.numel():
        return []
    shuffled = nodes[hash_integers(_PURPOSE, seed, epoch, nodes).argsort(stable=True)]
    return [part.sort().values for part in shuffled.tensor_split(-(-nodes.numel() // batch_size))]


def induced_subgraph(edge_index: Tensor, nodes: Tensor, num_nodes: int) -> Tensor:
    """Edges with both ends in `nodes`, numbered within `nodes`; takes O(E) time.

    Args:
        edge_index: Edges of the whole graph, [2, E], int64.
        nodes: Distinct numbers of the part's nodes, [n], int64; node `nodes[i]` gets the number i.
        num_nodes: N, nodes of the whole graph.

    Returns:
        Edges [2, E'], int64, in the order of `edge_index`.

    Raises:
        UsageError: if `nodes` is not a tensor of integers, such as a mask.

    >>> edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    >>> induced_subgraph(edges, torch.tensor([1, 2, 3]), 4)
    tensor([[0, 1],
            [1, 2]])
    """
    check_tensors(edge_index=edge_index)
    check_index("nodes", nodes)
    is_inside = torch.zeros(num_nodes, dtype=torch.bool, device=edge_index.device)
    is_inside[nodes] = True
    # Sources are tested first, so that targets are looked up for few edges if the part is small.
    starts_inside = is_inside[edge_index[0]].nonzero().squeeze(1)
    kept = starts_inside[is_inside[edge_index[1, starts_inside]]]
    number = torch.empty(num_nodes, dtype=torch.int64, device=edge_index.device)
    number[nodes] = torch.arange(nodes.numel(), device=edge_index.device)
    return number[edge_index[:, kept]]
