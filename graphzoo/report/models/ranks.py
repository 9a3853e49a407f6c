"""Ranks of GALiT's attention, of the adjacency and of their mix (the paper's Fig. 5)."""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.nn import functional as F

from graphzoo.encoders import GALiT
from graphzoo.encoders.galit import CosineAttention, GALiTLayer
from graphzoo.ops.adjacency import normalized_adjacency
from graphzoo.ops.cosine_attention import similarity_map

THRESHOLD = 1e-8
"""The rank is the number of singular values above this threshold, as in the paper."""


def attention_matrix(attention: CosineAttention, states: Tensor, nodes: Tensor | None = None) -> Tensor:
    """Attention of nodes to nodes (Eq. 18 and 35), as the mean over heads, [n, n].

    Args:
        attention: Attention of a layer.
        states: States of all nodes, [N, D].
        nodes: Nodes [n] whose rows and columns are returned; None returns all. Weights are shares of all N
            nodes, so that rows sum to 1 if all are returned.
    """
    queries = tuple(attention.query_map)
    keys = tuple(attention.key_map) or queries
    count = states.shape[0] if nodes is None else nodes.numel()
    total = states.new_zeros(count, count)
    for head in range(attention.num_heads):
        query, key = (similarity_map(states, maps, head) for maps in (queries, keys))
        if attention.norm == "l2":
            query, key = (F.normalize(x) for x in (query, key))
        else:
            query, key = (x / x.norm() for x in (query, key))
        scale = attention.bias - attention.eps
        wanted = query if nodes is None else query[nodes]
        weights = attention.bias + scale * wanted @ (key if nodes is None else key[nodes]).t()
        if nodes is None:
            sums = weights.sum(1, keepdim=True)
        else:
            sums = (attention.bias * states.shape[0] + scale * wanted @ key.sum(0))[:, None]
        total += weights / sums
    return total / attention.num_heads


def adjacency_matrix(edge_index: Tensor, num_nodes: int, nodes: Tensor | None = None) -> Tensor:
    """D^(-1/2) (A + I) D^(-1/2) with edges in both directions, [n, n], float64.

    Args:
        edge_index: Edges [2, E].
        num_nodes: N.
        nodes: Nodes [n] whose rows and columns are returned; None returns all.
    """
    both = torch.cat([edge_index, edge_index.flip(0)], 1)
    sparse = normalized_adjacency(both, num_nodes, dtype=torch.float64)
    row, col, values = sparse.row_of_entry().long(), sparse.col.long(), sparse.values
    if nodes is None:
        nodes = torch.arange(num_nodes)
    place = torch.full((num_nodes,), -1)
    place[nodes] = torch.arange(nodes.numel())
    kept = (place[row] >= 0) & (place[col] >= 0)
    dense = torch.zeros(nodes.numel(), nodes.numel(), dtype=torch.float64)
    dense[place[row[kept]], place[col[kept]]] = values[kept]
    return dense


def rank(values: Tensor) -> int:
    """The number of singular values above the paper's threshold."""
    return int((values > THRESHOLD).sum())


def effective_rank(values: Tensor) -> float:
    """exp(entropy) of the singular values as shares of their sum; it is k for k equal values.

    >>> round(effective_rank(torch.ones(3)), 6)
    3.0
    """
    shares = values / values.sum()
    return float(torch.exp(-torch.special.xlogy(shares, shares).sum()))


def rank_bound(encoder: GALiT, count: int) -> int:
    """The highest rank that the attention can have between `count` nodes (Eq. 35, and the constant)."""
    # With "fro", the keys of all heads span one space of D dimensions.
    heads = encoder.init_args["num_heads"] if encoder.init_args["norm"] == "l2" else 1
    return min(count, encoder.out_channels * int(heads) + 1)


@torch.no_grad()
def spectra(encoder: GALiT, x: Tensor, edge_index: Tensor, nodes: Tensor | None = None) -> dict[str, Tensor]:
    """Singular values of attention P, adjacency A and their mix (Eq. 34) in the first layer.

    They are computed in float64, because rounding errors of float32 exceed the threshold. It takes O(n^3).

    Args:
        encoder: The encoder.
        x: Features [N, F], dense or sparse CSR.
        edge_index: Edges [2, E].
        nodes: Nodes [n] whose rows and columns are used; None uses all.

    Returns:
        The values of "P", "A" and "mix", each [n], float64, descending.

    Raises:
        ValueError: if the encoder has no attention.
    """
    if not len(encoder.layers):
        raise ValueError("the model has no attention (attention: none, or alpha 1), so there is no P")
    encoder = copy.deepcopy(encoder).double().eval()
    layer = encoder.layers[0]
    assert isinstance(layer, GALiTLayer)
    x = (x if x.layout is torch.strided else x.to_dense()).double()
    attention = attention_matrix(layer.attention, encoder._embed(x, None), nodes)
    adjacency = adjacency_matrix(edge_index, x.shape[0], nodes)
    mix = layer.alpha * attention + (1 - layer.alpha) * adjacency
    matrices = {"P": attention, "A": adjacency, "mix": mix}
    return {name: torch.linalg.svdvals(matrix) for name, matrix in matrices.items()}
