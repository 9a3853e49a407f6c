"""Graph operators. The fused ones have a reference in plain PyTorch and faster backends.

Importing this module imports torch, but not numba, Triton or torch-scatter: an operator imports its backend
at its first call.
"""

# Not lazy: functions such as `map_rows` are in modules of the same name, which a lazy import would find.
from graphzoo.ops.adjacency import SparseAdjacency, adjacency_orders, normalized_adjacency
from graphzoo.ops.attention import (
    exponential_attention,
    prototype_attention,
    prototype_attention_weights,
    random_feature_attention,
)
from graphzoo.ops.cosine_attention import averaged_cosine_attention, cosine_linear_attention
from graphzoo.ops.denoise import cached_denoise, denoise_features
from graphzoo.ops.eager import fused_export
from graphzoo.ops.kernelized_attention import kernelized_edge_weights, kernelized_softmax
from graphzoo.ops.map_rows import map_rows
from graphzoo.ops.random_features import orthogonal_projection, positive_random_features
from graphzoo.ops.relational_spmm import QueryGraph, RelationalGraph, relational_spmm
from graphzoo.ops.sparse import SparseMatrix

__all__ = [
    "QueryGraph",
    "RelationalGraph",
    "SparseAdjacency",
    "SparseMatrix",
    "adjacency_orders",
    "averaged_cosine_attention",
    "cached_denoise",
    "cosine_linear_attention",
    "denoise_features",
    "exponential_attention",
    "fused_export",
    "kernelized_edge_weights",
    "kernelized_softmax",
    "map_rows",
    "normalized_adjacency",
    "orthogonal_projection",
    "positive_random_features",
    "prototype_attention",
    "prototype_attention_weights",
    "random_feature_attention",
    "relational_spmm",
]
