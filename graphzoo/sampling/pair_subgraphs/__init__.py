"""Subgraphs around node pairs. Importing this does not import numba."""

from graphzoo.sampling.pair_subgraphs.graph import PairGraph
from graphzoo.sampling.pair_subgraphs.sampler import PairSubgraphSampler
from graphzoo.sampling.pair_subgraphs.samples import PairSamples

__all__ = ["PairGraph", "PairSamples", "PairSubgraphSampler"]
