"""Random splits of links and random pairs: disjoint, complete, and dependent on the index only."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphzoo.datasets import DataError
from graphzoo.datasets.link import splits
from graphzoo.datasets.link.pairs import pair_keys
from graphzoo.datasets.link.splits import draw_link_split, draw_non_links


def all_pairs(num_nodes, directed):
    pairs = torch.cartesian_prod(torch.arange(num_nodes), torch.arange(num_nodes))
    return pairs[pairs[:, 0] != pairs[:, 1] if directed else pairs[:, 0] < pairs[:, 1]]


def as_keys(pairs, directed):
    pairs = [tuple(pair) for pair in pairs.tolist()]
    return pairs if directed else [tuple(sorted(pair)) for pair in pairs]


@given(
    st.integers(16, 30), st.integers(20, 60), st.integers(0, 3), st.booleans(), st.booleans(), st.randoms()
)
def test_split(num_nodes, num_links, index, directed, listed, random):
    pairs = all_pairs(num_nodes, directed)
    links = pairs[random.sample(range(len(pairs)), num_links)]
    with pytest.MonkeyPatch.context() as patch:
        # two ways to draw pairs, with the same properties
        patch.setattr(splits, "_MOST_LISTED", 1 << 20 if listed else 0)
        train, valid, test = draw_link_split(links, num_nodes, index, is_directed=directed)
        again = draw_link_split(links.flip(0), num_nodes, index, is_directed=directed)
    assert len(valid.positive) == len(valid.negative) == num_links * 5 // 100
    assert len(test.positive) == len(test.negative) == num_links * 10 // 100
    parts = [as_keys(part, directed) for part in (train, valid.positive, test.positive)]
    assert sorted(sum(parts, [])) == sorted(as_keys(links, directed))
    none = as_keys(torch.cat([valid.negative, test.negative]), directed)
    assert len(set(none)) == len(none)
    assert not set(none) & set(as_keys(links, directed)) and all(u != v for u, v in none)
    if not directed:
        # the order of the two nodes must not distinguish links from negatives
        for part in (train, valid.positive, valid.negative, test.positive, test.negative):
            assert bool((part[:, 0] < part[:, 1]).all())
    # the order of the lines does not matter
    assert torch.equal(again[0], train)
    for ours, theirs in zip((valid, test), again[1:], strict=True):
        assert torch.equal(theirs.positive, ours.positive) and torch.equal(theirs.negative, ours.negative)


def test_repeated_links_are_drawn_separately():
    once, twice = all_pairs(30, False)[:60], all_pairs(30, False)[60:260:2]
    listed = torch.cat([once, twice, twice.flip(1)])
    train, valid, test = draw_link_split(listed, 30, 0, repeated=True)
    again = draw_link_split(listed.flip(0), 30, 0, repeated=True)
    assert torch.equal(again[0], train)
    for ours, theirs in zip((valid, test), again[1:], strict=True):
        assert torch.equal(theirs.positive, ours.positive) and torch.equal(theirs.negative, ours.negative)
    assert (len(valid.positive), len(test.positive)) == (13, 26)
    evaluated = Counter(as_keys(torch.cat([valid.positive, test.positive]), False))
    rest = Counter(as_keys(listed, False)) - evaluated
    # links that are not evaluated are training links, once each
    assert Counter(as_keys(train, False)) == Counter(set(rest))
    shared = set(evaluated) & set(rest)
    # most evaluated links that are listed twice are training links as well
    assert len(shared) > 10 and shared <= set(as_keys(twice, False))
    negative = as_keys(torch.cat([valid.negative, test.negative]), False)
    assert not set(negative) & set(as_keys(listed, False)) and len(set(negative)) == len(negative)


def test_each_index_is_another_draw_and_the_global_state_does_not_matter():
    links = all_pairs(40, False)[::3]
    first = draw_link_split(links, 40, 0)
    torch.manual_seed(99)
    state = torch.get_rng_state()
    assert torch.equal(draw_link_split(links, 40, 0)[2].positive, first[2].positive)
    assert torch.equal(torch.get_rng_state(), state)
    other = draw_link_split(links, 40, 1)
    assert not torch.equal(other[2].positive, first[2].positive)
    assert not torch.equal(other[2].negative, first[2].negative)


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("directed", [True, False])
def test_pairs_are_drawn_uniformly(listed, directed, monkeypatch):
    monkeypatch.setattr(splits, "_MOST_LISTED", 1 << 20 if listed else 0)
    pairs = all_pairs(8, directed)
    taken = pair_keys(pairs[:5], 8, is_directed=directed)
    count = torch.zeros(64)
    draws, size = 600, 4
    for index in range(draws):
        drawn = draw_non_links(taken, 8, size, index, is_directed=directed)
        count += pair_keys(drawn, 8, is_directed=directed).bincount(minlength=64)
    free = pair_keys(pairs[5:], 8, is_directed=directed)
    share = size / len(free)
    spread = (draws * share * (1 - share)) ** 0.5
    assert count.sum() == count[free].sum() == draws * size
    assert bool(((count[free] - draws * share).abs() < 4.5 * spread).all())


def test_every_free_pair_can_be_drawn():
    taken = pair_keys(all_pairs(9, False)[:30], 9, is_directed=False)
    assert len(draw_non_links(taken, 9, 6, 0)) == 6
    with pytest.raises(DataError, match="7 pairs without a link are needed, but the graph has 6"):
        draw_non_links(taken, 9, 7, 0)


def test_impossible_draws_are_refused():
    with pytest.raises(DataError, match="19 links are too few"):
        draw_link_split(all_pairs(9, False)[:19], 9, 0)
    with pytest.raises(ValueError, match="at least 0, got -1"):
        draw_link_split(all_pairs(9, False), 9, -1)
