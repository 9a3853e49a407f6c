"""Neighbourhoods of queries: a limited number of entities near the head, and the facts among them."""

from graphzoo.sampling.neighbourhoods.sampler import NeighbourhoodSampler

__all__ = ["NeighbourhoodSampler"]
