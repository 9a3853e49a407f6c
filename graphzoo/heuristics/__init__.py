"""Scores of node pairs that need no training: `from graphzoo.heuristics import adamic_adar`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.heuristics.adjacency import adjacency_matrix as adjacency_matrix
    from graphzoo.heuristics.katz_index import katz as katz
    from graphzoo.heuristics.local import adamic_adar as adamic_adar
    from graphzoo.heuristics.local import common_neighbors as common_neighbors
    from graphzoo.heuristics.local import resource_allocation as resource_allocation
    from graphzoo.heuristics.paths import diameter as diameter
    from graphzoo.heuristics.paths import shortest_path as shortest_path
    from graphzoo.heuristics.scorer import GraphPairScorer as GraphPairScorer
    from graphzoo.heuristics.scorer import LinkHeuristic as LinkHeuristic
    from graphzoo.heuristics.targets import HeuristicTargets as HeuristicTargets
    from graphzoo.heuristics.walks import pagerank as pagerank
    from graphzoo.heuristics.walks import personalized_pagerank as personalized_pagerank

__getattr__, __dir__, __all__ = attach(__name__)
