"""Subgraphs around node pairs. Importing this compiles nothing and does not import numba."""

from graphzoo.sampling.pair_subgraphs.graph import PairGraph
from graphzoo.sampling.pair_subgraphs.sampler import PairSamples, PairSubgraphSampler

__all__ = ["PairGraph", "PairSamples", "PairSubgraphSampler"]
