"""Draw random splits of links, and random pairs without a link, by an index and not by a run's seed."""

from __future__ import annotations

import torch
from torch import Tensor

from graphzoo.datasets.link.graph import LinkSplit
from graphzoo.datasets.link.pairs import first_of_each, in_keys, pair_keys
from graphzoo.errors import DataError, check_whole
from graphzoo.sampling import hash_integers

# Constants that enter the hashes, so that the two kinds of draw share no random numbers.
_SPLIT, _NEGATIVES = 0x6C696E6B73, 0x6E6F6C696E6B
# Per cent of the links, rounded down; the rest is for training.
_VALID, _TEST = 5, 10
# Up to this number, all pairs are listed and shuffled; above it, pairs are drawn.
_MOST_LISTED = 1 << 20


def draw_link_split(
    links: Tensor, num_nodes: int, index: int, *, is_directed: bool = False, repeated: bool = False
) -> tuple[Tensor, LinkSplit, LinkSplit]:
    """Split links at random, 85/5/10 for training, validation and test, and draw as many negatives.

    Negatives are distinct pairs that are not links of any part. The ends of undirected links and negatives
    are in ascending order, so that their order does not distinguish the two. The split does not depend on the
    order of `links`.

    Args:
        links: All links [n, 2], int64; distinct unless `repeated`.
        num_nodes: N.
        index: Which draw, from 0.
        is_directed: Whether (u, v) and (v, u) are two links.
        repeated: Whether links may repeat. Each repetition is then drawn on its own; repeats within training
            are dropped.

    Returns:
        Training links [n, 2], and validation and test with negatives [Q, 2].

    Raises:
        UsageError: if the index is below 0.
        DataError: if there are too few links, or too few pairs without a link.
    """
    check_whole(at_least=0, split_index=index)
    if not is_directed:
        links = links.sort(dim=1).values
    total = links.size(0)
    num_valid, num_test = total * _VALID // 100, total * _TEST // 100
    if not num_valid:
        raise DataError(
            f"{total} links are too few to set aside {_VALID} % for validation and {_TEST} % for test; split "
            "them yourself: give a folder with train, valid and test"
        )
    keys = pair_keys(links, num_nodes, is_directed=is_directed)
    if repeated:
        keys = keys.sort().values
        links = torch.stack([keys // num_nodes, keys % num_nodes], dim=1)
        # Equal links are numbered 0, 1, ...
        repeat = torch.arange(total) - torch.searchsorted(keys, keys)
        order = hash_integers(_SPLIT, index, keys, repeat).argsort(stable=True)
    else:
        order = hash_integers(_SPLIT, index, keys).argsort(stable=True)
    negative = draw_non_links(keys, num_nodes, num_valid + num_test, index, is_directed=is_directed)
    valid, test, train = torch.split(order, [num_valid, num_test, total - num_valid - num_test])
    if repeated:
        train = train[first_of_each(keys[train])]
    return (
        # Sorted, so that the order of the input does not matter.
        links[train[keys[train].argsort()]],
        LinkSplit(links[valid], negative[:num_valid]),
        LinkSplit(links[test], negative[num_valid:]),
    )


def draw_non_links(
    keys: Tensor, num_nodes: int, count: int, index: int, *, is_directed: bool = False
) -> Tensor:
    """Draw distinct pairs of two nodes without a link, uniformly.

    Args:
        keys: `pair_keys` of the links.
        num_nodes: N.
        count: Number of pairs.
        index: Which draw, from 0.
        is_directed: Whether (u, v) and (v, u) are two pairs.

    Returns:
        The pairs [count, 2], int64; an undirected pair has the lower number first.

    Raises:
        DataError: if the graph has fewer than `count` pairs without a link.
    """
    known = torch.unique(keys)
    num_pairs = num_nodes * (num_nodes - 1) // (1 if is_directed else 2)
    free = num_pairs - known.numel()
    if free < count:
        raise DataError(
            f"{count:,} pairs without a link are needed, but the graph has {max(free, 0):,}; it is too dense "
            "for random negatives: give files train, valid and test, with valid_neg and test_neg"
        )
    if num_nodes * num_nodes <= _MOST_LISTED:
        drawn = _shuffled_pairs(num_nodes, index, is_directed)
        drawn = drawn[~in_keys(drawn, known)]
    else:
        drawn = keys.new_empty(0)
        first = 0
        while drawn.numel() < count:
            size = 2 * count
            drawn = torch.cat([drawn, _random_pairs(num_nodes, index, first, size, is_directed)])
            drawn = drawn[~in_keys(drawn, known)]
            drawn = drawn[first_of_each(drawn)]
            first += size
    drawn = drawn[:count]
    return torch.stack([drawn // num_nodes, drawn % num_nodes], dim=1)


def _shuffled_pairs(num_nodes: int, index: int, is_directed: bool) -> Tensor:
    keys = torch.arange(num_nodes * num_nodes)
    source, target = keys // num_nodes, keys % num_nodes
    keys = keys[source != target if is_directed else source < target]
    return keys[hash_integers(_NEGATIVES, index, keys).argsort(stable=True)]


def _random_pairs(num_nodes: int, index: int, first: int, size: int, is_directed: bool) -> Tensor:
    draw = torch.arange(first, first + size)
    drawn = torch.stack([hash_integers(_NEGATIVES, index, side, draw) for side in range(2)], dim=1)
    # 63 random bits modulo N: the bias is negligible.
    ends = (drawn & ((1 << 63) - 1)) % num_nodes
    ends = ends[ends[:, 0] != ends[:, 1]]
    return pair_keys(ends, num_nodes, is_directed=is_directed)
