"""Subgraphs around pairs, made without a sampler."""

import torch

from graphzoo.types import PairSubgraphs


def make_subgraphs(sizes, *, num_nodes=40, density=0.3, directed=False, padded=None, seed=0):
    """Random subgraphs of the given sizes; the pairs themselves are never linked."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.as_tensor(sizes)
    width = int(sizes.max()) if padded is None else padded
    links = torch.rand(len(sizes), width, width, generator=generator) < density
    if not directed:
        links = links.triu() | links.triu().transpose(1, 2)
    valid = torch.arange(width) < sizes[:, None]
    links &= valid[:, :, None] & valid[:, None]
    links.diagonal(dim1=1, dim2=2).fill_(False)
    links[:, 0, 1] = links[:, 1, 0] = False
    nodes = torch.stack([torch.randperm(num_nodes, generator=generator)[:width] for _ in sizes])
    return PairSubgraphs(nodes.masked_fill(~valid, -1), links, sizes)


def pad(subgraphs, width):
    """The same subgraphs in wider tensors."""
    more = width - subgraphs.nodes.shape[1]
    return PairSubgraphs(
        torch.nn.functional.pad(subgraphs.nodes, (0, more), value=-1),
        torch.nn.functional.pad(subgraphs.adjacency, (0, more, 0, more)),
        subgraphs.num_nodes,
    )


def pick(subgraphs, rows):
    """Some of the pairs with the same padding."""
    rows = torch.as_tensor(rows)
    return PairSubgraphs(subgraphs.nodes[rows], subgraphs.adjacency[rows], subgraphs.num_nodes[rows])
