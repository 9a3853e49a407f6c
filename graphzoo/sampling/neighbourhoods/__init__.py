"""The part of a graph that decides a query: a few entities near its head, and the facts among them."""

from graphzoo.sampling.neighbourhoods.sampler import NeighbourhoodSampler

__all__ = ["NeighbourhoodSampler"]
