"""Heuristics with the interface of an encoder: built from a `GraphSpec`, but without parameters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphzoo.encoders.base import Encoder
from graphzoo.errors import check_choice, check_range, check_whole
from graphzoo.heuristics.adjacency import MAX_BYTES, adjacency_matrix
from graphzoo.heuristics.katz_index import check_katz, katz
from graphzoo.heuristics.local import adamic_adar, common_neighbors, resource_allocation
from graphzoo.heuristics.paths import shortest_path
from graphzoo.heuristics.walks import pagerank, personalized_pagerank
from graphzoo.layers import LastResult
from graphzoo.types import GraphSpec

HeuristicName = Literal["cn", "aa", "ra", "katz", "spd", "pagerank", "ppr"]

# Scores are rounded to this number of bits; their relative error is much smaller.
_BITS, _RTOL = 30, 1e-11


class GraphPairScorer(Encoder):
    """Whole graph and pairs of nodes -> one score for each pair, higher for likelier links."""

    out_channels = 1

    @abstractmethod
    def forward(self, edge_index: Tensor, pairs: Tensor) -> Tensor:
        """Score `pairs` [B, 2] in the graph of `edge_index` [2, E].

        Pairs in one call share computations, so one call with many pairs is faster than many calls.

        Returns:
            Scores [B], float64.
        """


class LinkHeuristic(GraphPairScorer):
    """A heuristic by name.

    Scores are those of the functions in `graphzoo.heuristics`, rounded to 30 bits (nine digits), so that
    equal pairs tie in spite of rounding errors. A shortest path of d edges has the score 1 / (1 + d); pairs
    without a path have 0.

    Args:
        spec: Sizes of the graph; only `num_nodes` is used.
        name: "cn" (common neighbours), "aa" (Adamic-Adar), "ra" (resource allocation), "katz", "spd"
            (shortest path), "pagerank" or "ppr" (personalised PageRank).
        directed: Whether edges are followed in their direction only, not in both.
        beta: For "katz", the damping for each edge.
        max_length: For "katz", the length of the longest walk that counts; None for all walks.
        alpha: For "pagerank" and "ppr", the probability of following an edge.
        symmetric: For "ppr", whether to add the scores of both directions, instead of taking only the walk
            from the first node.
        max_bytes: Working memory.

    Raises:
        UsageError: for an unknown name, or a setting out of range.
    """

    def __init__(
        self,
        spec: GraphSpec,
        *,
        name: HeuristicName = "cn",
        directed: bool = False,
        beta: float = 0.005,
        max_length: int | None = None,
        alpha: float = 0.85,
        symmetric: bool = True,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        super().__init__()
        check_choice("name", name, HeuristicName)
        check_katz(beta, max_length)
        check_range(at_least=0, below=1, alpha=alpha)
        check_whole(at_least=1, max_bytes=max_bytes)
        self.spec, self.name, self.directed = spec, name, directed
        self.beta, self.max_length, self.alpha, self.symmetric = beta, max_length, alpha, symmetric
        self.max_bytes = max_bytes
        self._last: LastResult[Any] = LastResult()

    @torch.no_grad()
    def forward(self, edge_index: Tensor, pairs: Tensor) -> Tensor:
        """Score `pairs` [B, 2] in the graph of `edge_index` [2, E].

        Links of the pairs themselves are not hidden. The pairs of an evaluation are not edges of the graph.

        Returns:
            Scores [B], float64, on the device of `pairs`.

        Raises:
            UsageError: if the Katz index does not converge.
            ValueError: for nodes outside the graph.
        """
        adjacency = self._last.get((edge_index,), lambda: self._matrix(edge_index), self.directed)
        scores = self._score(adjacency, pairs.detach().cpu().numpy())
        return torch.from_numpy(_rounded(scores)).to(pairs.device)

    def _matrix(self, edge_index: Tensor) -> Any:
        edges = edge_index.detach().cpu().numpy()
        return adjacency_matrix(edges, self.spec.num_nodes, symmetric=not self.directed)

    def _score(self, adjacency: Any, pairs: Any) -> Any:
        memory: dict[str, Any] = {"max_bytes": self.max_bytes}
        precision = memory | {"rtol": _RTOL}
        walks = precision | {"alpha": self.alpha}
        scorers: dict[str, Callable[[], Any]] = {
            "cn": lambda: common_neighbors(adjacency, pairs, **memory),
            "aa": lambda: adamic_adar(adjacency, pairs, **memory),
            "ra": lambda: resource_allocation(adjacency, pairs, **memory),
            "katz": lambda: katz(adjacency, pairs, beta=self.beta, max_length=self.max_length, **precision),
            "spd": lambda: 1 / (1 + shortest_path(adjacency, pairs, **memory)),
            "pagerank": lambda: pagerank(adjacency, pairs, alpha=self.alpha),
            "ppr": lambda: personalized_pagerank(adjacency, pairs, symmetric=self.symmetric, **walks),
        }
        return scorers[self.name]()


def _rounded(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    mantissa, exponent = np.frexp(scores)
    rounded: NDArray[np.float64] = np.ldexp(np.rint(np.ldexp(mantissa, _BITS)), exponent - _BITS)
    return rounded
