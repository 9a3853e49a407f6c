"""Random splits of links, and random unlinked pairs: functions of an index, not of a run's seed."""

from __future__ import annotations

import torch
from torch import Tensor

from graphzoo.datasets.link.graph import LinkSplit
from graphzoo.datasets.link.pairs import first_of_each, in_keys, pair_keys
from graphzoo.errors import DataError, check_whole
from graphzoo.sampling import hash_integers

# what draws are for, so that they share no random numbers
_SPLIT, _NEGATIVES = 0x6C696E6B73, 0x6E6F6C696E6B
# of 100 links, rounded down; the rest is for training
_VALID, _TEST = 5, 10
# up to so many pairs are listed instead of drawn
_MOST_LISTED = 1 << 20


def draw_link_split(
    links: Tensor, num_nodes: int, index: int, *, is_directed: bool = False, repeated: bool = False
) -> tuple[Tensor, LinkSplit, LinkSplit]:
    """Draw all links, [n, 2], into 85/5/10 for training, validation and test, with as many random pairs.

    The pairs are not links of any part, all different, and lists are oriented alike, so that the order of a
    pair's ends tells nothing: an undirected one has the lower number first. The order of the links does not
    matter. They are different ones, or `repeated`: then each of equal ones is drawn for itself, and training
    has it once.

    Raises:
        ValueError: for an index below 0.
        DataError: if there are too few links, or too few unlinked pairs.
    """
    check_whole(at_least=0, split_index=index)
    if not is_directed:
        links = links.sort(dim=1).values
    total = links.size(0)
    num_valid, num_test = total * _VALID // 100, total * _TEST // 100
    if not num_valid:
        raise DataError(
            f"{total} links are too few to set aside {_VALID} % and {_TEST} %; split them yourself: a folder "
            "with train, valid and test"
        )
    keys = pair_keys(links, num_nodes, is_directed=is_directed)
    if repeated:
        keys = keys.sort().values
        links = torch.stack([keys // num_nodes, keys % num_nodes], dim=1)
        # the first of equal links is 0, the next 1, ...
        repeat = torch.arange(total) - torch.searchsorted(keys, keys)
        order = hash_integers(_SPLIT, index, keys, repeat).argsort(stable=True)
    else:
        order = hash_integers(_SPLIT, index, keys).argsort(stable=True)
    negative = draw_non_links(keys, num_nodes, num_valid + num_test, index, is_directed=is_directed)
    valid, test, train = torch.split(order, [num_valid, num_test, total - num_valid - num_test])
    if repeated:
        train = train[first_of_each(keys[train])]
    return (
        # by their numbers, in whatever order they came
        links[train[keys[train].argsort()]],
        LinkSplit(links[valid], negative[:num_valid]),
        LinkSplit(links[test], negative[num_valid:]),
    )


def draw_non_links(
    keys: Tensor, num_nodes: int, count: int, index: int, *, is_directed: bool = False
) -> Tensor:
    """Draw different pairs of different nodes that are not links (by their `pair_keys`), uniformly.

    Returns:
        [count, 2], int64; undirected ones with the lower number first.

    Raises:
        DataError: if there are not so many.
    """
    known = torch.unique(keys)
    num_pairs = num_nodes * (num_nodes - 1) // (1 if is_directed else 2)
    free = num_pairs - known.numel()
    if free < count:
        raise DataError(
            f"{count:,} pairs without a link are wanted, the graph has {max(free, 0):,}; it is too dense to "
            "be evaluated with random pairs"
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
    # 63 bits of which N takes a negligible remainder
    ends = (drawn & ((1 << 63) - 1)) % num_nodes
    ends = ends[ends[:, 0] != ends[:, 1]]
    return pair_keys(ends, num_nodes, is_directed=is_directed)
