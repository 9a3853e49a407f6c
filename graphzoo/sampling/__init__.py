"""What a step draws and hides: pure functions of seed, step and purpose, not of batch layout or rank."""

from graphzoo.ops.random import hash_integers, hash_numbers, normal_from_hash, uniform_from_hash
from graphzoo.sampling.fact_dropout import FactDropout
from graphzoo.sampling.hidden_facts import FactRemover, edges_of_fact
from graphzoo.sampling.hidden_links import LinkHider
from graphzoo.sampling.negative_pairs import NegativePairs
from graphzoo.sampling.negatives import sample_negatives
from graphzoo.sampling.neighbourhoods import NeighbourhoodSampler
from graphzoo.sampling.pair_subgraphs import PairGraph, PairSamples, PairSubgraphSampler
from graphzoo.sampling.partition import induced_subgraph, partition

__all__ = [
    "FactDropout",
    "FactRemover",
    "LinkHider",
    "NegativePairs",
    "NeighbourhoodSampler",
    "PairGraph",
    "PairSamples",
    "PairSubgraphSampler",
    "edges_of_fact",
    "hash_integers",
    "hash_numbers",
    "induced_subgraph",
    "normal_from_hash",
    "partition",
    "sample_negatives",
    "uniform_from_hash",
]
