"""Negatives, neighbourhoods, subgraphs and hidden edges of a training step.

Random draws are functions of the seed, the epoch and the number of an item. They do not depend on batches or
processes.
"""

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
