"""Random parts of a graph: each node is in one part, which has exactly the edges inside."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphzoo.sampling import induced_subgraph, partition


@given(st.integers(1, 200), st.integers(1, 250), st.integers(0, 2**40), st.integers(0, 1000))
def test_every_node_is_in_one_part_and_parts_have_about_one_size(num_nodes, batch_size, seed, epoch):
    parts = partition(num_nodes, batch_size, seed=seed, epoch=epoch)
    assert torch.cat(parts).sort().values.tolist() == list(range(num_nodes))
    sizes = [part.numel() for part in parts]
    assert len(parts) == -(-num_nodes // batch_size)
    assert max(sizes) <= batch_size and max(sizes) - min(sizes) <= 1
    assert all(part.tolist() == sorted(part.tolist()) for part in parts)


def test_a_part_is_a_function_of_seed_and_epoch_alone():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = partition(1000, 100, seed=3, epoch=5)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert all(map(torch.equal, first, partition(1000, 100, seed=3, epoch=5)))
    for seed, epoch in ((3, 6), (4, 5), (5, 3)):
        other = partition(1000, 100, seed=seed, epoch=epoch)
        # a tenth of a part is shared by chance
        shared = torch.isin(first[0], other[0]).sum()
        assert 0 <= shared < 40


def test_the_order_of_given_nodes_does_not_matter():
    nodes = torch.tensor([90, 3, 41, 7, 20])
    parts = partition(nodes, 2, seed=0, epoch=0)
    assert torch.cat(parts).sort().values.tolist() == [3, 7, 20, 41, 90]
    assert all(map(torch.equal, parts, partition(nodes.flip(0), 2, seed=0, epoch=0)))
    assert partition(nodes[:0], 2, seed=0, epoch=0) == []


def test_parts_are_random():
    """Parts are not ranges of numbers: the mean of a part is near the mean of all nodes."""
    means = torch.stack([part.double().mean() for part in partition(100_000, 10_000, seed=0, epoch=0)])
    # standard deviation of such a mean: 10^5 / sqrt(12) / 100
    assert ((means - 49_999.5).abs() < 5 * 289).all()


def test_wrong_batch_sizes_are_refused():
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        partition(5, 0, seed=0, epoch=0)
    with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1, got 1.5"):
        partition(5, 1.5, seed=0, epoch=0)


@given(st.data())
def test_induced_edges_are_those_of_the_definition(data):
    num_nodes = data.draw(st.integers(1, 12))
    node = st.integers(0, num_nodes - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=40))
    nodes = data.draw(st.lists(node, unique=True))
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
    found = induced_subgraph(edge_index, torch.tensor(nodes, dtype=torch.int64), num_nodes)
    expected = [(nodes.index(u), nodes.index(v)) for u, v in edges if u in nodes and v in nodes]
    assert [tuple(edge) for edge in found.t().tolist()] == expected
    assert found.dtype == torch.int64 and found.shape == (2, len(expected))
