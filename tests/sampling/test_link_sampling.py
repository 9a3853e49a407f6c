"""Negative pairs, and the links of a batch that are hidden."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphzoo.sampling import LinkHider, NegativePairs

NODES = 7


@st.composite
def edges(draw: st.DrawFn) -> torch.Tensor:
    """A graph on seven nodes, both directions of every link."""
    pairs = st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)).filter(lambda p: p[0] < p[1])
    links = torch.tensor(sorted(draw(st.sets(pairs, max_size=20))), dtype=torch.int64).reshape(-1, 2).t()
    return torch.cat([links, links.flip(0)], dim=1)


@settings(max_examples=50)
@given(edges())
def test_negatives_are_exactly_the_pairs_without_a_link(edge_index: torch.Tensor) -> None:
    links = set(map(tuple, edge_index.t().tolist()))
    free = {(u, v) for u in range(NODES) for v in range(NODES) if u != v} - links
    drawn = NegativePairs(edge_index, NODES).sample(torch.arange(2000), seed=0, epoch=0)
    assert set(map(tuple, drawn.t().tolist())) == free


def test_negatives_are_uniform() -> None:
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    drawn = NegativePairs(edge_index, 4).sample(torch.arange(40000), seed=1, epoch=2)
    counts = torch.bincount(drawn[0] * 4 + drawn[1], minlength=16).double()
    expected = 40000 / 8
    assert ((counts[counts > 0] - expected) ** 2 / expected).sum() < 24.3  # 0.1 % point of chi-square with 7


def test_a_draw_depends_on_index_seed_and_epoch_alone() -> None:
    negatives = NegativePairs(torch.tensor([[0, 1], [1, 0]]), 50)
    index = torch.arange(30)
    together = negatives.sample(index, num_negatives=3, seed=0, epoch=0).view(2, 30, 3)
    alone = negatives.sample(index[[17]], num_negatives=3, seed=0, epoch=0)
    assert torch.equal(together[:, 17], alone)
    for other in ({"seed": 1, "epoch": 0}, {"seed": 0, "epoch": 1}):
        assert not torch.equal(together.reshape(2, -1), negatives.sample(index, num_negatives=3, **other))


@settings(max_examples=30)
@given(edges())
def test_negatives_of_a_source_are_exactly_the_nodes_without_a_link_to_it(edge_index: torch.Tensor) -> None:
    links = set(map(tuple, edge_index.t().tolist()))
    free = {(u, v) for u in range(NODES) for v in range(NODES) if u != v} - links
    source = torch.arange(NODES).repeat(200)
    drawn = NegativePairs(edge_index, NODES).sample(torch.arange(1400), source=source, seed=0, epoch=0)
    for u in range(NODES):
        own = {pair for pair in free if pair[0] == u}
        assert set(map(tuple, drawn[:, source == u].t().tolist())) == own or not own
    assert set(map(tuple, drawn.t().tolist())) <= free


def test_negatives_of_a_source_are_uniform() -> None:
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    drawn = NegativePairs(edge_index, 12).sample(
        torch.arange(20000), source=torch.full((20000,), 2), num_negatives=2, seed=1, epoch=2
    )
    assert (drawn[0] == 2).all()
    counts = torch.bincount(drawn[1], minlength=12).double()
    assert counts[2] == counts[3] == 0
    expected = 40000 / 10
    assert ((counts[counts > 0] - expected) ** 2 / expected).sum() < 27.9  # 0.1 % point of chi-square with 9


def test_a_source_linked_to_all_nodes_gets_negatives_of_other_sources() -> None:
    edge_index = torch.tensor([[0, 1, 0, 2], [1, 0, 2, 0]])
    drawn = NegativePairs(edge_index, 3).sample(
        torch.arange(100), source=torch.zeros(100).long(), seed=0, epoch=0
    )
    assert set(map(tuple, drawn.t().tolist())) == {(1, 2), (2, 1)}


def test_a_complete_graph_has_no_negatives() -> None:
    with pytest.raises(ValueError, match="all pairs of the 2 nodes are linked"):
        NegativePairs(torch.tensor([[0, 1], [1, 0]]), 2)
    almost = NegativePairs(torch.tensor([[0], [1]]), 2)
    assert almost.sample(torch.arange(3), seed=0, epoch=0).tolist() == [[1, 1, 1], [0, 0, 0]]


@settings(max_examples=50)
@given(edges(), st.data())
def test_hidden_links_are_hidden_in_both_directions_and_no_others(
    edge_index: torch.Tensor, data: st.DataObject
) -> None:
    columns = data.draw(st.sets(st.integers(0, max(0, edge_index.shape[1] - 1)), max_size=5))
    removed = edge_index[:, sorted(columns)] if edge_index.shape[1] else edge_index
    hidden = {frozenset(pair) for pair in removed.t().tolist()}
    keep = LinkHider(edge_index, NODES).keep(removed)
    assert keep.dtype == torch.bool
    assert keep.tolist() == [frozenset(pair) not in hidden for pair in edge_index.t().tolist()]


def test_pairs_without_a_link_hide_nothing() -> None:
    edge_index = torch.tensor([[0, 1, 3, 4], [1, 0, 4, 3]])
    assert LinkHider(edge_index, 6).keep(torch.tensor([[0, 5], [3, 4]])).all()


def test_int32_edges_are_found_in_a_graph_with_more_pairs_than_int32_holds():
    # 60,000 nodes have 3.6e9 pairs
    edges = torch.randperm(4_000).view(2, -1) + 55_000
    for of_edges, of_pairs in ((torch.int32, torch.int64), (torch.int64, torch.int32)):
        hider = LinkHider(edges.to(of_edges), 60_000)
        assert int((~hider.keep(edges[:, :50].to(of_pairs))).sum()) == 50
    all_but_two = torch.cartesian_prod(torch.tensor([59_990]), torch.arange(2, 60_000)).t()
    negatives = NegativePairs(all_but_two.int(), 60_000)
    drawn = negatives.sample(torch.arange(9), source=torch.full((9,), 59_990), seed=0, epoch=0)
    assert set(map(tuple, drawn.t().tolist())) <= {(59_990, 0), (59_990, 1)}


@pytest.mark.parametrize("make", [LinkHider, NegativePairs])
def test_edges_with_node_numbers_out_of_range_are_refused(make):
    with pytest.raises(ValueError, match=r"edge_index\[0\] must be in 0..4 .* got 9 at position 1"):
        make(torch.tensor([[0, 9], [1, 2]]), 5)


def test_pairs_with_node_numbers_out_of_range_hide_nothing():
    hider = LinkHider(torch.tensor([[0, 1, 2, 0], [1, 2, 3, 0]]), 4)
    assert hider.keep(torch.tensor([[0, -1, -1], [6, 2, 4]])).all()  # 6 = 1 * 4 + 2 and 0 = -1 * 4 + 4
    assert hider.keep(torch.tensor([[0, 2], [6, 1]])).tolist() == [True, False, True, True]


def test_sources_out_of_range_are_refused():
    pairs = NegativePairs(torch.tensor([[0, 1, 2], [1, 2, 3]]), 4)
    for source in (-1, 4):
        with pytest.raises(ValueError, match=rf"source\[0\] = {source}: nodes are 0..3"):
            pairs.sample(torch.tensor([0]), source=torch.tensor([source]), seed=0, epoch=0)


@pytest.mark.parametrize("num_nodes", [2**31, 2**24 + 7])
def test_negatives_of_very_many_pairs_are_uniform(num_nodes: int) -> None:
    """Sampling must not round: low and high bits are uniform, and no pair repeats."""
    pairs = object.__new__(NegativePairs)  # a graph without edges, made without its table of nodes
    pairs.num_nodes, pairs.num_free = num_nodes, num_nodes**2
    pairs._free_below = torch.empty(0, dtype=torch.int64)
    drawn = pairs.sample(torch.arange(64_000), seed=0, epoch=0)
    assert drawn.min() >= 0 and drawn.max() < num_nodes
    for part in (drawn % 64, drawn * 64 // num_nodes):
        counts = torch.stack([torch.bincount(row, minlength=64) for row in part])
        assert (counts - 1000).abs().max() < 200
    assert torch.unique(drawn, dim=1).shape[1] == drawn.shape[1]
    if num_nodes > 2**26:
        return  # with sources, sampling needs a table of all nodes
    source = torch.zeros(64_000, dtype=torch.int64)
    first, target = pairs.sample(torch.arange(64_000), source=source, seed=0, epoch=0)
    assert (first == 0).all()
    assert (torch.bincount(target * 64 // num_nodes, minlength=64) - 1000).abs().max() < 200
