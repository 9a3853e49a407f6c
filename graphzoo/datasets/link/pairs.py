"""Compute with pairs of nodes: keys, repeats, overlaps and checks."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from graphzoo.errors import DataError


def pair_keys(pairs: Tensor, num_nodes: int, *, is_directed: bool) -> Tensor:
    """One number per pair, [..., 2] -> [...], int64; undirected pairs have the same in both directions."""
    first, second = pairs.unbind(-1)
    if not is_directed:
        first, second = torch.minimum(first, second), torch.maximum(first, second)
    return first * num_nodes + second


def in_keys(keys: Tensor, known: Tensor) -> Tensor:
    """Whether each key is among `known` [M], which is sorted; bool, of the shape of `keys`."""
    if not known.numel():
        return torch.zeros_like(keys, dtype=torch.bool)
    place = torch.searchsorted(known, keys.contiguous()).clamp(max=known.numel() - 1)
    return known[place] == keys


def distinct_links(pairs: Tensor, num_nodes: int, *, is_directed: bool) -> tuple[Tensor, int, int]:
    """Drop repeated links and links of a node with itself; the first of equal links stays, in its order.

    Returns:
        The links [n', 2], the number of dropped repeats, and the number of dropped self-links.
    """
    links = pairs[pairs[:, 0] != pairs[:, 1]]
    kept = first_of_each(pair_keys(links, num_nodes, is_directed=is_directed))
    return links[kept], links.size(0) - kept.numel(), pairs.size(0) - links.size(0)


def first_of_each(keys: Tensor) -> Tensor:
    """Positions where each distinct key occurs first, ascending."""
    # A stable sort keeps the first of equal keys first.
    ordered, order = keys.sort(stable=True)
    is_new = torch.ones_like(ordered, dtype=torch.bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return order[is_new].sort().values


def check_pairs(graph: str, pairs: Mapping[str, Tensor], num_nodes: int) -> None:
    """Require int64 pairs [..., 2] of nodes in 0..N-1.

    Args:
        graph: Name of the graph, for messages.
        pairs: Pairs by their name for messages.
        num_nodes: N.

    Raises:
        DataError: for the first pairs with a wrong shape, dtype or node.
    """
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
                f"{graph}: {what} has node {low if low < 0 else high}, but there are {num_nodes:,} nodes "
                f"(0..{num_nodes - 1:,})"
            )
