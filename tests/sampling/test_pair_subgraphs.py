"""Subgraphs around pairs: nodes, edges, the hidden link, and independence of batches and threads."""

import subprocess
import sys

import networkx as nx
import numpy as np
import pytest
import torch
from helpers.pair_graphs import (
    Sample,
    all_pairs,
    as_networkx,
    assert_equal,
    graphs_and_pairs,
    nodes_of,
    random_graph,
)
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torch_geometric.utils import subgraph

from graphzoo.errors import UsageError
from graphzoo.sampling import PairSubgraphSampler
from graphzoo.sampling.pair_subgraphs import scratch
from graphzoo.types import PairSubgraphs

pytestmark = pytest.mark.usefixtures("compiled_sampler")
RING = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])


@given(graphs_and_pairs(), st.integers(0, 2**63 - 1))
def test_nodes_and_edges_are_those_of_the_definition(case, seed):
    edge_index, num_nodes, pairs, directed, settings = case
    sampler = PairSubgraphSampler(edge_index, num_nodes, **settings, directed=directed)
    found = sampler(pairs, seed=seed)
    nodes, (u, v) = nodes_of(found, 0), pairs[0].tolist()
    assert nodes[:2] == [u, v]
    assert len(set(nodes)) == len(nodes) == found.nodes.shape[1] <= sampler.max_nodes
    assert found.nodes.dtype == found.num_nodes.dtype == torch.int64

    graph = as_networkx(edge_index, num_nodes, directed=directed)
    graph.remove_edges_from([(u, v), (v, u)])
    near = nx.multi_source_dijkstra_path_length(graph.to_undirected(), {u, v})
    assert all(near[node] <= settings["depth"] for node in nodes)
    expected = nx.to_numpy_array(graph, nodelist=nodes, dtype=bool)
    assert found.adjacency.dtype == torch.bool
    assert np.array_equal(found.adjacency[0].numpy(), expected)


@given(graphs_and_pairs(), st.integers(0, 2**63 - 1))
def test_without_limits_the_nodes_are_both_k_hop_neighbourhoods(case, seed):
    edge_index, num_nodes, pairs, directed, settings = case
    depth = settings["depth"]
    sampler = PairSubgraphSampler(edge_index, num_nodes, depth=depth, num_neighbors=10**12, directed=directed)
    graph = as_networkx(edge_index, num_nodes)
    u, v = pairs[0].tolist()
    graph.remove_edges_from([(u, v)])
    expected = set(nx.ego_graph(graph, u, radius=depth)) | set(nx.ego_graph(graph, v, radius=depth))
    assert set(nodes_of(sampler(pairs, seed=seed), 0)) == expected


@given(graphs_and_pairs(), st.integers(0, 2**63 - 1))
def test_the_target_link_has_no_influence(case, seed):
    edge_index, num_nodes, pairs, directed, settings = case
    u, v = pairs[0].tolist()
    is_target = ((edge_index == pairs.t()) | (edge_index == pairs.t().flip(0))).all(0)
    without = edge_index[:, ~is_target]
    graphs = [torch.cat([without, torch.tensor(links).reshape(-1, 2).t().long()], 1)
              for links in ([], [(u, v)], [(v, u)], [(u, v), (v, u)])]  # fmt: skip
    found = [
        PairSubgraphSampler(graph, num_nodes, **settings, directed=directed)(pairs, seed=seed)
        for graph in graphs
    ]
    assert not found[0].adjacency[0, :2, :2].any()
    for other in found[1:]:
        assert_equal(found[0], other)


def test_padding():
    edge_index = random_graph(60, 150)
    pairs = all_pairs(60)[::7]
    samples = PairSubgraphSampler(edge_index, 60, depth=2, num_neighbors=3).sample(pairs, seed=5)
    # torch reuses this freed memory, which is not zero
    torch.full((len(pairs), 60, 60), True), torch.full((len(pairs), 60), 7)
    found = samples.pad()
    size = int(samples.num_nodes.max())
    assert found.nodes.shape == (len(pairs), size) and found.adjacency.shape == (len(pairs), size, size)
    is_node = torch.arange(size) < samples.num_nodes[:, None]
    assert len(samples.num_nodes.unique()) > 5
    assert torch.equal(found.nodes >= 0, is_node) and (found.nodes[~is_node] == -1).all()
    assert not found.adjacency[~(is_node[:, :, None] & is_node[:, None])].any()
    assert all(samples.nodes(i).tolist() == nodes_of(found, i) for i in range(len(pairs)))


def test_some_rows_are_padded_to_their_own_size():
    pairs = all_pairs(40)[::11]
    samples = PairSubgraphSampler(random_graph(40, 90), 40, depth=2, num_neighbors=2).sample(pairs, seed=0)
    rows = samples.num_nodes.argsort()[:9].flip(0)
    part, whole = samples.pad(rows), samples.pad()
    size = int(samples.num_nodes[rows].max())
    assert size < whole.nodes.shape[1] and part.nodes.shape == (9, size)
    assert torch.equal(part.num_nodes, samples.num_nodes[rows])
    assert torch.equal(part.nodes, whole.nodes[rows, :size])
    assert torch.equal(part.adjacency, whole.adjacency[rows, :size, :size])
    assert samples.pad(rows[:0]).nodes.shape == (0, 2)


def test_edges_equal_pyg_subgraph():
    edge_index = random_graph(300, 3000).unique(dim=1)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    pairs = all_pairs(300)[::4000]
    found = PairSubgraphSampler(edge_index, 300, depth=1, num_neighbors=12, directed=True)(pairs, seed=1)
    for row in range(len(pairs)):
        nodes = torch.tensor(nodes_of(found, row))
        edges, _ = subgraph(nodes, edge_index, num_nodes=300)
        place = torch.full((300,), -1)
        place[nodes] = torch.arange(len(nodes))
        expected = {(a, b) for a, b in place[edges].t().tolist() if (a, b) not in ((0, 1), (1, 0))}
        assert set(map(tuple, found.adjacency[row].nonzero().tolist())) == expected
        assert len(expected) > 20


@pytest.mark.parametrize("directed", [False, True])
def test_a_hub_whose_row_is_searched(directed):
    leaves = torch.arange(1, 3000)
    spokes = torch.stack([torch.zeros_like(leaves), leaves])
    edge_index = torch.cat([spokes, torch.stack([leaves[:-1], leaves[1:]])], 1)
    # the link of 0 and 1 is the first entry of the first row
    pairs = torch.tensor([[0, 17], [5, 2000], [41, 40], [1, 2000]])
    found = PairSubgraphSampler(edge_index, 3000, depth=2, num_neighbors=4, directed=directed)(pairs, seed=3)
    graph = as_networkx(edge_index, 3000, directed=directed)
    for row in range(len(pairs)):
        nodes = nodes_of(found, row)
        expected = nx.to_numpy_array(graph, nodelist=nodes, dtype=bool)
        expected[0, 1] = expected[1, 0] = False
        size = len(nodes)
        assert 0 in nodes and np.array_equal(found.adjacency[row, :size, :size].numpy(), expected)


def test_isolated_endpoints_and_endpoints_without_a_path():
    edge_index = torch.tensor([[0, 1, 3], [1, 2, 4]])
    sampler = PairSubgraphSampler(edge_index, 7, depth=2, num_neighbors=3)
    found = sampler(torch.tensor([[5, 6], [5, 0], [0, 3]]), seed=0)
    assert found.num_nodes.tolist() == [2, 4, 5]
    assert found.adjacency.sum((1, 2)).tolist() == [0, 4, 6]
    no_edges = PairSubgraphSampler(edge_index[:, :0], 2, depth=1, num_neighbors=1)
    empty = no_edges(torch.tensor([[1, 0]]), seed=0)
    assert empty.nodes.tolist() == [[1, 0]] and not empty.adjacency.any()
    assert len(sampler(torch.empty(0, 2, dtype=torch.int64), seed=0)) == 0


def test_hops_follow_edges_in_both_directions():
    edge_index = torch.tensor([[2, 1, 0], [0, 3, 4]])
    sampler = PairSubgraphSampler(edge_index, 5, depth=1, num_neighbors=5, directed=True)
    found = sampler(torch.tensor([[0, 1]]), seed=0)
    nodes = nodes_of(found, 0)
    assert set(nodes) == {0, 1, 2, 3, 4}
    edges = {(nodes[i], nodes[j]) for i, j in found.adjacency[0].nonzero().tolist()}
    assert edges == {(2, 0), (1, 3), (0, 4)}


def test_results_do_not_depend_on_batch_or_threads():
    pairs = all_pairs(80)[::5]
    sampler = PairSubgraphSampler(random_graph(80, 400), 80, depth=2, num_neighbors=4, max_nodes=30)
    whole = sampler(pairs, seed=9)
    shuffled = torch.randperm(len(pairs))
    other = sampler(pairs[shuffled], seed=9)
    expected = (whole.nodes[shuffled], whole.adjacency[shuffled], whole.num_nodes[shuffled])
    assert_equal(other, PairSubgraphs(*expected))
    for row in (0, 1, len(pairs) - 1):
        assert nodes_of(sampler(pairs[row : row + 1], seed=9), 0) == nodes_of(whole, row)
    threads = torch.get_num_threads()
    try:
        for num_threads in (1, 2, 5):
            torch.set_num_threads(num_threads)
            assert_equal(sampler(pairs, seed=9), whole)
    finally:
        torch.set_num_threads(threads)
    assert any(nodes_of(sampler(pairs, seed=10), i) != nodes_of(whole, i) for i in range(len(pairs)))


@pytest.mark.parametrize(
    ("context", "num_workers"), [("fork", 2), pytest.param("spawn", 1, marks=pytest.mark.slow)]
)
def test_workers_give_the_same(context, num_workers):
    sampler = PairSubgraphSampler(random_graph(50, 200), 50, depth=1, num_neighbors=4)
    pairs = all_pairs(50)[::20]
    # sampled before the workers start, so that they inherit used scratch memory
    whole = sampler.sample(pairs, seed=2)
    # copies, because two parts of one tensor cannot be sent to a spawned process
    batches = [batch.clone() for batch in pairs.split(30)]
    loader = DataLoader(
        batches,
        batch_size=None,
        num_workers=num_workers,
        multiprocessing_context=context,
        collate_fn=Sample(sampler),
    )
    found = [nodes_of(batch, i) for batch in loader for i in range(len(batch))]
    assert found == [whole.nodes(i).tolist() for i in range(len(pairs))]


def test_a_hash_table_gives_the_same_as_a_plain_one(monkeypatch):
    edge_index = random_graph(20_000, 60_000)
    pairs = random_graph(20_000, 300, seed=1).t().contiguous()
    settings = {"depth": 2, "num_neighbors": 4}
    plain = PairSubgraphSampler(edge_index, 20_000, **settings)
    monkeypatch.setattr(scratch, "_MAX_TABLE", 1)
    hashed = PairSubgraphSampler(edge_index, 20_000, **settings)
    assert hashed._scratch.is_hashed and not plain._scratch.is_hashed
    assert_equal(hashed(pairs, seed=4), plain(pairs, seed=4))
    # the table was left empty
    assert_equal(hashed(pairs, seed=4), plain(pairs, seed=4))


def test_max_nodes_is_the_largest_possible_size():
    edge_index = random_graph(500, 5000)
    for settings, expected in (
        ({"depth": 2, "num_neighbors": 3}, 2 * (1 + 3 + 9)),
        ({"depth": 0, "num_neighbors": 3}, 2),
        ({"depth": 3, "num_neighbors": 50}, 500),
        ({"depth": 2, "num_neighbors": 3, "max_nodes": 11}, 11),
        ({"depth": 1, "num_neighbors": 3, "max_nodes": 100}, 8),
    ):
        assert PairSubgraphSampler(edge_index, 500, **settings).max_nodes == expected
    ring = torch.stack([torch.arange(500), torch.arange(500).roll(1)])
    assert PairSubgraphSampler(ring, 500, depth=2, num_neighbors=30).max_nodes == 2 * (1 + 2 + 4)


def test_a_pinned_sample():
    """With another result, runs of earlier versions cannot be repeated, which the change log must say."""
    sampler = PairSubgraphSampler(random_graph(30, 80), 30, depth=2, num_neighbors=2, max_nodes=8)
    found = sampler(torch.tensor([[3, 4], [4, 3]]), seed=2**40 + 1)
    assert found.nodes.tolist() == [
        [3, 4, 13, 0, 28, 19, 25, 6],
        [4, 3, 6, 0, 25, 19, 28, 13],
    ]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([[0, 1], [2, 2]], r"pairs\[1\] = \[2, 2\]: a node cannot be paired with itself"),
        ([[0, 1], [3, 5]], r"pairs\[1\] = \[3, 5\]: nodes are 0..4"),
        ([[-1, 1]], r"pairs\[0\] = \[-1, 1\]: nodes are 0..4"),
        ([[0, 1, 2], [2, 3, 4]], r"of shape \[B, 2\], got torch.int64 \[2, 3\]; transpose it"),
        ([0, 1], r"of shape \[B, 2\], got torch.int64 \[2\]$"),
        ([[0.0, 1.0]], r"pairs must be int64 .*; call \.long\(\)"),
    ],
)
def test_wrong_pairs_are_refused(pairs, message):
    sampler = PairSubgraphSampler(RING, 5, depth=1, num_neighbors=2)
    with pytest.raises(UsageError, match=message):
        sampler(torch.tensor(pairs), seed=0)
    with pytest.raises(UsageError, match=r"pairs must be a tensor \[B, 2\], int64, got a list"):
        sampler(pairs, seed=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": -1}, "depth must be at least 0, got -1"),
        ({"num_neighbors": 0}, "num_neighbors must be at least 1, got 0"),
        ({"max_nodes": 1}, "max_nodes must be at least 2, got 1"),
        ({"num_nodes": 3}, "num_nodes"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        PairSubgraphSampler(RING, **{"num_nodes": 4, "depth": 1, "num_neighbors": 2, **settings})


def test_wrong_rows_and_seeds_are_refused():
    sampler = PairSubgraphSampler(RING, 4, depth=1, num_neighbors=2)
    pairs = torch.tensor([[0, 1], [0, 2]])
    for rows in ([2], [-1]):
        with pytest.raises(IndexError, match=r"rows must be in 0..1"):
            sampler.sample(pairs, seed=0).pad(torch.tensor(rows))
    with pytest.raises(UsageError, match="rows must be int64"):
        sampler.sample(pairs, seed=0).pad(torch.tensor([True, False]))
    with pytest.raises(UsageError, match=r"seeds must have shape \[2\]"):
        sampler(pairs, seed=torch.tensor([[1], [2]]))


def test_importing_the_sampler_does_not_import_numba():
    code = "import sys, graphzoo.sampling as s; s.PairSubgraphSampler; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_numpy_integer_is_a_seed():
    sampler = PairSubgraphSampler(RING, 4, depth=1, num_neighbors=2)
    pairs = torch.tensor([[0, 2]])
    assert_equal(sampler(pairs, seed=np.int64(7)), sampler(pairs, seed=7))
