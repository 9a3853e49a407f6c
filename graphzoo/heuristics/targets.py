"""Heuristic scores as regression targets of similar range (Truong et al., 2026, App. C.1)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphzoo.errors import UsageError, check_choice
from graphzoo.heuristics.adjacency import adjacency_matrix
from graphzoo.heuristics.katz_index import katz
from graphzoo.heuristics.local import adamic_adar, common_neighbors, resource_allocation
from graphzoo.heuristics.paths import diameter, shortest_path
from graphzoo.heuristics.walks import pagerank
from graphzoo.sampling import NegativePairs

TargetName = Literal["cn", "aa", "ra", "katz", "spd", "pagerank"]

_EPSILON = 1e-20
_OVERLAPS = {"cn": common_neighbors, "aa": adamic_adar, "ra": resource_allocation}


class HeuristicTargets:
    r"""Targets from the scores of a heuristic on the full graph: logarithms, scaled, with outliers clipped.

    - "cn", "aa", "ra": :math:`\log(1 + s)`, divided by its 99.99th percentile, at most 1.
    - "katz" (beta 0.005) and "pagerank" (alpha 0.85, product of both nodes): :math:`\log(s + 10^{-20})` minus
      its mean, divided by its standard deviation, at most its 99th percentile.
    - "spd": :math:`\log(1 + d)`. Pairs without a path have :math:`\log(1 + 1.5\,d_{max})`, where
      :math:`d_{max}` is the largest diameter of a component.

    The paper does not say from which pairs the mean, the deviation and the percentiles are computed. Here
    these are the links of the graph and as many unlinked pairs. The unlinked pairs are always the same, for
    every seed of a run.

    A pair's own link is not in the subgraph that a model sees, so the model could not predict a target that
    depends on the link. With `hide_link`, Katz and shortest paths leave it out. Overlaps do not depend on it,
    and PageRank is not changed.

    Args:
        edge_index: Edges of the graph, [2, E], int64; they count in both directions.
        num_nodes: N.
        name: "cn", "aa", "ra", "katz", "spd" or "pagerank".
        hide_link: Whether Katz and shortest paths leave out a pair's own link.

    Attributes:
        location: Number that is subtracted from the logarithms.
        scale: Number by which the result is divided.
        ceiling: Largest target; infinite for "spd".

    Raises:
        UsageError: for an unknown name, a graph without edges, or if the Katz index does not converge.
        ValueError: for edges that are not valid, or if all pairs of nodes are linked.
    """

    def __init__(
        self, edge_index: Tensor, num_nodes: int, name: TargetName, *, hide_link: bool = True
    ) -> None:
        check_choice("name", name, TargetName)
        self.name, self.hide_link = name, hide_link
        self.adjacency = adjacency_matrix(edge_index.cpu().numpy(), num_nodes)
        if not self.adjacency.nnz:
            raise UsageError(f"targets of {name} need a graph with edges")
        self.location, self.scale, self.ceiling = 0.0, 1.0, np.inf
        if name == "spd":
            self._no_path = 1.5 * diameter(self.adjacency)
            return
        logarithms = self._logarithms(_reference(self.adjacency))
        if name in _OVERLAPS:
            # The percentile is 0 if no pair has common neighbours.
            self.scale, self.ceiling = float(np.percentile(logarithms, 99.99)) or 1.0, 1.0
        else:
            self.location, self.scale = float(logarithms.mean()), float(logarithms.std()) or 1.0
            self.ceiling = float(np.percentile((logarithms - self.location) / self.scale, 99))

    def __call__(self, pairs: Tensor) -> Tensor:
        """Targets [B] of `pairs` [B, 2], float32, on the CPU."""
        targets = (self._logarithms(pairs.detach().cpu().numpy()) - self.location) / self.scale
        return torch.from_numpy(np.minimum(targets, self.ceiling).astype(np.float32))

    def scores(self, pairs: Any) -> NDArray[np.float64]:
        """Scores [B] of the heuristic for `pairs` [B, 2]; 1.5 times the diameter for "spd" without a path."""
        adjacency = self.adjacency
        if self.name == "pagerank":
            return pagerank(adjacency, pairs)
        if self.name == "katz":
            return katz(adjacency, pairs, hide_link=self.hide_link)
        if self.name == "spd":
            return shortest_path(adjacency, pairs, unreachable=self._no_path, hide_link=self.hide_link)
        return _OVERLAPS[self.name](adjacency, pairs)

    def _logarithms(self, pairs: Any) -> NDArray[np.float64]:
        scores = self.scores(pairs)
        return np.log(scores + _EPSILON) if self.name in ("katz", "pagerank") else np.log1p(scores)


def _reference(adjacency: Any) -> NDArray[np.int64]:
    """All n links, once each, and n unlinked pairs, [2 n, 2]."""
    edges = adjacency.tocoo()
    source, target = edges.coords
    once = source < target
    links = np.stack([source[once], target[once]], 1).astype(np.int64)
    both = torch.from_numpy(np.stack([source, target]).astype(np.int64))
    others = NegativePairs(both, adjacency.shape[0]).sample(torch.arange(len(links)), seed=0, epoch=0)
    return np.concatenate([links, others.t().numpy()])
