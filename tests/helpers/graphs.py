"""Graphs for the tests of heuristics."""

import networkx as nx
import numpy as np

from graphzoo.heuristics import (
    adamic_adar,
    adjacency_matrix,
    common_neighbors,
    katz,
    pagerank,
    personalized_pagerank,
    resource_allocation,
    shortest_path,
)


def random_graph(num_nodes=70, num_edges=130, seed=0, directed=False):
    """A sparse graph with isolated nodes and several components; its edge list has repeats and self-loops."""
    generator = np.random.default_rng(seed)
    edge_index = generator.integers(0, num_nodes - 6, (2, num_edges))
    edge_index = np.concatenate([edge_index, edge_index[:, :9], [[3, 4], [3, 4]]], axis=1)
    # A component of two nodes, `last` and the next, and at least five isolated nodes.
    last = num_nodes - 6
    edge_index[edge_index == last - 1] = 0
    edge_index = np.concatenate([edge_index, [[last], [last + 1]]], axis=1)
    graph = (nx.DiGraph if directed else nx.Graph)()
    graph.add_nodes_from(range(num_nodes))
    graph.add_edges_from((u, v) for u, v in edge_index.T.tolist() if u != v)
    return adjacency_matrix(edge_index, num_nodes, symmetric=not directed), graph


def all_pairs(num_nodes):
    """Every ordered pair of two different nodes, in random order."""
    u, v = np.nonzero(~np.eye(num_nodes, dtype=bool))
    return np.random.default_rng(1).permutation(np.stack([u, v], axis=1))


HEURISTICS = {
    "cn": common_neighbors,
    "aa": adamic_adar,
    "ra": resource_allocation,
    "katz": katz,
    "spd": shortest_path,
    "pagerank": pagerank,
    "ppr": personalized_pagerank,
}
