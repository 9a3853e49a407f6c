"""Graph of nearest neighbours, computed in chunks, so that there is no [N, N] matrix in memory."""

from __future__ import annotations

import torch
from torch import Tensor

from graphzoo.errors import UsageError, check_choice
from graphzoo.system.tensors import check_tensors

METRICS = ("euclidean", "cosine")

# Similarities that are in memory at once: 32 MiB in double precision.
_CHUNK = 1 << 22


def knn_graph(x: Tensor, k: int, metric: str = "cosine") -> Tensor:
    """Join every point to its k nearest neighbours; the nearest one is the point itself.

    Args:
        x: Points [N, F], float, dense.
        k: Neighbours of each point, including itself; at most N.
        metric: "cosine" or "euclidean".

    Returns:
        Edges [2, N k], int64, from each point to its neighbours, sorted by (source, target). Of equally near
        points those with the lower number are taken.

    Raises:
        UsageError: if `x` is no tensor, `k` is not in 1..N, or the metric is unknown.

    >>> knn_graph(torch.tensor([[0.0], [1.0], [5.0]]), 2, "euclidean").tolist()
    [[0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 1, 2]]
    """
    check_tensors(x=x)
    num_nodes = x.size(0)
    check_choice("metric", metric, METRICS)
    if not 1 <= k <= num_nodes:
        raise UsageError(
            f"number of neighbours must be in 1..{num_nodes} (the node itself included), got {k}"
        )
    # In single precision, the order of almost equal distances would depend on the chunk.
    points = x.double()
    if metric == "cosine":
        points = points / points.norm(dim=1, keepdim=True).clamp(min=1e-12)
    # The nearest point y has the largest x.y - |y|^2 / 2.
    offset = points.square().sum(1) / 2 if metric == "euclidean" else points.new_zeros(num_nodes)
    rows = max(1, _CHUNK // num_nodes)
    neighbours = []
    for start in range(0, num_nodes, rows):
        chunk = points[start : start + rows]
        near = chunk @ points.T - offset
        # A point is its own nearest neighbour, even if it has duplicates.
        near[torch.arange(chunk.size(0)), torch.arange(start, start + chunk.size(0))] = torch.inf
        last = near.topk(k, dim=1).values[:, -1:]
        is_nearer = near > last
        # topk does not specify which of equally near points it takes.
        is_equal = near == last
        wanted = k - is_nearer.sum(1, keepdim=True)
        kept = is_nearer | (is_equal & (is_equal.cumsum(1, dtype=torch.int32) <= wanted))
        neighbours.append(kept.nonzero()[:, 1])
    source = torch.arange(num_nodes).repeat_interleave(k)
    return torch.stack([source, torch.cat(neighbours)])
