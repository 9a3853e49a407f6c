"""The relational SpMM as its equation, in plain torch: gather, multiply, sum. The tests' reference."""

from __future__ import annotations

import torch
from torch import Tensor

from graphzoo.ops.relational_spmm.graph import RelationalGraph


def relational_spmm(
    x: Tensor, relation: Tensor, graph: RelationalGraph, edge_mask: Tensor | None = None
) -> Tensor:
    """`out[v] = sum of x[u] * relation[r] over edges (u, r, v)`, summed in float32 or wider."""
    source, target = graph.edge_index
    edge_type = graph.edge_type
    if edge_mask is not None:
        source, target, edge_type = source[edge_mask], target[edge_mask], edge_type[edge_mask]
    dtype = torch.promote_types(x.dtype, torch.float32)
    messages = x.to(dtype)[source] * relation.to(dtype)[edge_type]
    return torch.zeros_like(x, dtype=dtype).index_add(0, target, messages).to(x.dtype)
