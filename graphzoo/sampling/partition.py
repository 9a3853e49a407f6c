"""Random partition of the nodes of a large graph, and the edges inside one part."""

from __future__ import annotations

import torch
from torch import Tensor

from graphzoo.errors import check_whole
from graphzoo.ops.random import hash_integers

# what these draws are for, so that they share no random numbers with others of the same seed
_PURPOSE = 0x7061727469


def partition(nodes: int | Tensor, batch_size: int, *, seed: int, epoch: int) -> list[Tensor]:
    """Cut nodes into random parts of (nearly) equal size.

    A node's place is a function of (seed, epoch, its number), so ranks and workers agree on every part. There
    are ceil(n / batch_size) parts, whose sizes differ by one at most: no part is a small rest.

    Args:
        nodes: Number of nodes N for all of 0..N-1, or the distinct numbers of those to cut, [n], int64.
        batch_size: Most nodes of a part.
        seed: Seed of the run.
        epoch: Epoch; every one has its own partition.

    Returns:
        Node numbers of each part, sorted, int64, on the device of `nodes`; every node is in exactly one.

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
    """Edges with both ends in `nodes`, in the numbering of `nodes`; O(E) time, never N x N.

    Args:
        edge_index: Edges of the whole graph, [2, E], int64.
        nodes: Distinct numbers of the part's nodes, [n], int64; node `nodes[i]` becomes i.
        num_nodes: N, nodes of the whole graph.

    Returns:
        [2, E'], int64, in the order of `edge_index`.

    >>> edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    >>> induced_subgraph(edges, torch.tensor([1, 2, 3]), 4)
    tensor([[0, 1],
            [1, 2]])
    """
    is_inside = torch.zeros(num_nodes, dtype=torch.bool, device=edge_index.device)
    is_inside[nodes] = True
    # the sources first: most edges of a small part's graph need no second look-up
    starts_inside = is_inside[edge_index[0]].nonzero().squeeze(1)
    kept = starts_inside[is_inside[edge_index[1, starts_inside]]]
    number = torch.empty(num_nodes, dtype=torch.int64, device=edge_index.device)
    number[nodes] = torch.arange(nodes.numel(), device=edge_index.device)
    return number[edge_index[:, kept]]
