"""Arithmetic on pairs of nodes: one number per link, repeats, overlaps."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from graphzoo.errors import DataError


def pair_keys(pairs: Tensor, num_nodes: int, *, is_directed: bool) -> Tensor:
    """One number per link, [..., 2] -> [...]; both directions of an undirected one have the same."""
    first, second = pairs.unbind(-1)
    if not is_directed:
        first, second = torch.minimum(first, second), torch.maximum(first, second)
    return first * num_nodes + second


def in_keys(keys: Tensor, known: Tensor) -> Tensor:
    """Which keys are among `known` (sorted, [M]): bool of the shape of `keys`."""
    if not known.numel():
        return torch.zeros_like(keys, dtype=torch.bool)
    place = torch.searchsorted(known, keys.contiguous()).clamp(max=known.numel() - 1)
    return known[place] == keys


def distinct_links(pairs: Tensor, num_nodes: int, *, is_directed: bool) -> tuple[Tensor, int, int]:
    """The first of equal links, in the order given, without those of a node with itself.

    Returns:
        [n', 2], and how many repeats and how many self-links were dropped.
    """
    links = pairs[pairs[:, 0] != pairs[:, 1]]
    kept = first_of_each(pair_keys(links, num_nodes, is_directed=is_directed))
    return links[kept], links.size(0) - kept.numel(), pairs.size(0) - links.size(0)


def first_of_each(keys: Tensor) -> Tensor:
    """Where each different key occurs first, ascending."""
    # stable: the first of equal keys is the first in the order given
    ordered, order = keys.sort(stable=True)
    is_new = torch.ones_like(ordered, dtype=torch.bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return order[is_new].sort().values


def check_pairs(graph: str, pairs: Mapping[str, Tensor], num_nodes: int) -> None:
    """Refuse the first pairs, by what they are, of a wrong shape, type or range."""
    for what, values in pairs.items():
        if values.dtype != torch.int64 or values.ndim not in (2, 3) or values.size(-1) != 2:
            raise DataError(
                f"{graph}: {what} must be int64 pairs of nodes [..., 2], got {values.dtype} "
                f"{list(values.shape)}"
            )
        if not values.numel():
            continue
        low, high = (int(value) for value in torch.aminmax(values))
        if low < 0 or high >= num_nodes:
            raise DataError(
                f"{graph}: {what} holds node {low if low < 0 else high}, there are {num_nodes:,} nodes "
                f"(0..{num_nodes - 1:,})"
            )
