"""Graphs and a reference sampler for the tests of `PairSubgraphSampler`."""

import networkx as nx
import torch
from hypothesis import strategies as st


def random_graph(num_nodes, num_edges, seed=0):
    """Random edges [2, E], some of them repeated, self-loops or in both directions."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(num_nodes, (2, num_edges), generator=generator)


def all_pairs(num_nodes):
    """Every (u, v) with u != v, [N (N - 1), 2]."""
    pairs = torch.cartesian_prod(torch.arange(num_nodes), torch.arange(num_nodes))
    return pairs[pairs[:, 0] != pairs[:, 1]]


def as_networkx(edge_index, num_nodes, *, directed=False):
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(range(num_nodes))
    graph.add_edges_from((u, v) for u, v in edge_index.t().tolist() if u != v)
    return graph


def literal_sample(graph, u, v, *, depth, num_neighbors, max_nodes, rng):
    """Nodes of one pair's subgraph in order, by the definition; `rng` is a `random.Random`."""
    graph = graph.to_undirected()
    graph.remove_edges_from([(u, v)])
    union = {u, v}
    for root in (u, v):
        seen = frontier = {root}
        for _ in range(depth):
            drawn = set()
            for node in frontier:
                neighbours = sorted(graph[node])
                drawn |= set(rng.sample(neighbours, min(num_neighbors, len(neighbours))))
            frontier = drawn - seen
            seen = seen | drawn
        union |= seen
    others = sorted(union - {u, v})
    if len(others) > max_nodes - 2:
        others = rng.sample(others, max_nodes - 2)
    rng.shuffle(others)
    return [u, v, *others]


def nodes_of(subgraphs, row):
    """Node numbers of one padded subgraph as a list."""
    return subgraphs.nodes[row, : subgraphs.num_nodes[row]].tolist()


def assert_equal(a, b):
    """Two `PairSubgraphs` are the same in every entry."""
    assert torch.equal(a.num_nodes, b.num_nodes)
    assert torch.equal(a.nodes, b.nodes) and torch.equal(a.adjacency, b.adjacency)


class Sample:
    """A collate function that samples; it is at module level, so that it can be pickled for a worker."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __call__(self, pairs):
        return self.sampler(pairs, seed=2)


@st.composite
def graphs_and_pairs(draw):
    """(edge_index, num_nodes, pair, directed, settings)."""
    num_nodes = draw(st.integers(2, 14))
    node = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=50))
    pair = draw(st.lists(node, min_size=2, max_size=2, unique=True))
    settings = {
        "depth": draw(st.integers(0, 3)),
        "num_neighbors": draw(st.integers(1, 5)),
        "max_nodes": draw(st.none() | st.integers(2, 10)),
    }
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
    return edge_index, num_nodes, torch.tensor([pair]), draw(st.booleans()), settings
