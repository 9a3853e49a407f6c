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
"""Singular values above it are counted, as in the paper."""


def attention_matrix(attention: CosineAttention, states: Tensor, nodes: Tensor | None = None) -> Tensor:
    """Mean over heads of the attention of nodes to nodes (Eq. 18 and 35), [n, n].

    A layer's attention sees the states [N, D] of all nodes. The rows and columns of some `nodes` [n] may be
    wanted; weights are shares of all nodes, so rows sum to 1 where all are wanted.
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
    """D^(-1/2) (A + I) D^(-1/2), edges in both directions; rows and columns of `nodes`, [n, n], float64."""
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
    """Singular values above the paper's threshold."""
    return int((values > THRESHOLD).sum())


def effective_rank(values: Tensor) -> float:
    """exp(entropy) of the singular values as shares of their sum: k for k equal ones.

    >>> round(effective_rank(torch.ones(3)), 6)
    3.0
    """
    shares = values / values.sum()
    return float(torch.exp(-torch.special.xlogy(shares, shares).sum()))


def rank_bound(encoder: GALiT, count: int) -> int:
    """The highest rank that the attention can have between `count` nodes (Eq. 35, and the constant)."""
    # under "fro" all heads' keys span one space of D dimensions
    heads = encoder.init_args["num_heads"] if encoder.init_args["norm"] == "l2" else 1
    return min(count, encoder.out_channels * int(heads) + 1)


@torch.no_grad()
def spectra(encoder: GALiT, x: Tensor, edge_index: Tensor, nodes: Tensor | None = None) -> dict[str, Tensor]:
    """Singular values of attention P, adjacency A and their mix, as Eq. 34 mixes them, of the first layer.

    They are computed in float64: rounding in float32 alone passes the threshold. Features [N, F] are dense or
    sparse CSR; an encoder without attention is refused. It takes O(n^3) to look at the rows and columns of
    some `nodes` [n], or all: "P", "A" and "mix" -> values, descending, float64 [n].
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
