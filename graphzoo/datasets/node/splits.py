"""Splits into training, validation and test nodes: fixed ones, and random ones drawn by an index."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from graphzoo.errors import DataError, UsageError, check_whole
from graphzoo.ops.random import hash_integers

if TYPE_CHECKING:
    from graphzoo.datasets.node.graph import NodeGraph


PARTS = ("train", "valid", "test")
_FRACTIONS = re.compile(r"random-(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)")
_PER_CLASS = re.compile(r"random-(\d+)-per-class")
REDRAWN = "-redrawn"
"""Suffix of the name of a split whose training nodes are drawn again; see `redrawn_split`."""
# A constant that enters the hashes, so that these draws share no random numbers with others.
_PURPOSE = 0x73706C6974


@dataclass(frozen=True, eq=False)
class NodeSplit:
    """Training, validation and test nodes; other nodes only pass messages.

    Args:
        name: Name of the splits, such as "public" or "random-50-25-25".
        index: Which split of that name, from 0.
        train: Training nodes [n]; sorted and stored as int64.
        valid: Validation nodes, as `train`.
        test: Test nodes, as `train`.

    Raises:
        DataError: if a node occurs twice.
    """

    name: str
    index: int
    train: Tensor
    valid: Tensor
    test: Tensor

    def __post_init__(self) -> None:
        for part in PARTS:
            object.__setattr__(self, part, self.nodes(part).long().sort().values)
        nodes, counts = torch.unique(torch.cat([self.nodes(part) for part in PARTS]), return_counts=True)
        if repeated := int((counts > 1).sum()):
            first = int(nodes[counts > 1][0])
            holders = [part for part in PARTS for _ in range(int((self.nodes(part) == first).sum()))]
            raise DataError(
                f"split {self.name!r} {self.index}: node {first} occurs in {' and '.join(holders)} "
                f"({repeated:,} such nodes); a node may occur only once"
            )

    def __repr__(self) -> str:
        sizes = "/".join(f"{self.nodes(part).numel():,}" for part in PARTS)
        return f"NodeSplit({self.name!r}, {self.index}, {sizes} nodes, {self.fingerprint[:12]})"

    def nodes(self, part: str) -> Tensor:
        """The nodes of "train", "valid" or "test", [n], int64, sorted.

        Raises:
            UsageError: if there is no such part.
        """
        if part not in PARTS:
            raise UsageError(f"unknown part of a split {part!r}; the parts are {', '.join(PARTS)}")
        nodes: Tensor = getattr(self, part)
        return nodes

    @property
    def fingerprint(self) -> str:
        """sha256 of the three sets of nodes."""
        digest = hashlib.sha256()
        for part in PARTS:
            nodes = np.ascontiguousarray(self.nodes(part).cpu().numpy(), dtype="<i8")
            digest.update(nodes.size.to_bytes(8, "little"))
            digest.update(nodes.tobytes())
        return digest.hexdigest()


def is_labelled(y: Tensor) -> Tensor:
    """Whether a node has a known class, or at least one known label; [N], bool.

    Args:
        y: Classes [N], -1 if unknown; or yes-no labels [N, C], NaN if unknown.
    """
    return y >= 0 if y.ndim == 1 else ~y.isnan().all(1)


def random_split(
    graph: NodeGraph | Tensor, *, fractions: Sequence[float] = (0.5, 0.25, 0.25), index: int = 0
) -> NodeSplit:
    """Split the labelled nodes at random into three parts of given shares.

    The split depends only on the index and on which nodes have labels. It is the same on every machine, and
    does not depend on the seed of a run. Sizes of train and valid are rounded down; the rest is for test.

    Args:
        graph: The graph, or its labels y.
        fractions: Shares of train, valid and test, positive, with sum 1.
        index: Which draw, from 0.

    Returns:
        A split named after the shares in per cent, such as "random-50-25-25".

    Raises:
        UsageError: if the shares are not positive or do not sum to 1, a part is empty, or the index is
            negative.

    >>> random_split(torch.zeros(8, dtype=torch.int64)).name
    'random-50-25-25'
    """
    if len(fractions) != 3 or min(fractions) <= 0 or abs(sum(fractions) - 1) > 1e-6:
        raise UsageError(
            "fractions must be three positive shares of train, valid and test with sum 1, got "
            f"{tuple(fractions)}"
        )
    name = "random-" + "-".join(f"{100 * share:.6g}" for share in fractions)
    order = _shuffled(_labels(graph), index)
    # a product such as 0.29 * 100 lies just below the whole number that is meant
    ends = [int(share * order.numel() + 1e-9) for share in fractions[:2]]
    train, valid, test = torch.split(order, [*ends, order.numel() - sum(ends)])
    if not (train.numel() and valid.numel() and test.numel()):
        raise UsageError(
            f"split {name}: {order.numel()} labelled nodes are too few for three non-empty parts; label more "
            "nodes or choose other shares"
        )
    return NodeSplit(name, index, train, valid, test)


def per_class_split(
    y: NodeGraph | Tensor, *, per_class: int = 20, num_valid: int = 500, num_test: int = 1000, index: int = 0
) -> NodeSplit:
    """Draw equally many training nodes of every class, then validation and test nodes from the others.

    Args:
        y: The graph, or its classes [N], int64, -1 if unknown.
        per_class: Training nodes of each class.
        num_valid: Validation nodes.
        num_test: Test nodes.
        index: Which draw, from 0.

    Returns:
        A split named after `per_class`, such as "random-20-per-class".

    Raises:
        UsageError: if a class has too few nodes, too few nodes are left for validation and test, or nodes
            have several labels.
    """
    labels = _labels(y)
    name = f"random-{per_class}-per-class"
    if labels.ndim != 1:
        raise UsageError(f"split {name}: nodes have several labels each; take random-50-25-25")
    if min(per_class, num_valid, num_test) < 1:
        raise UsageError(f"split {name}: every number of nodes must be at least 1")
    order = _shuffled(labels, index)
    classes = labels[order]
    chosen = []
    for label in torch.unique(classes):
        members = order[classes == label]
        if members.numel() <= per_class:
            raise UsageError(
                f"split {name}: class {int(label)} has only {members.numel()} nodes; lower the number per "
                "class"
            )
        chosen.append(members[:per_class])
    train = torch.cat(chosen) if chosen else order[:0]
    rest = order[~torch.isin(order, train)]
    if rest.numel() < num_valid + num_test:
        raise UsageError(
            f"split {name}: {num_valid} validation and {num_test} test nodes are needed, but "
            f"{rest.numel()} are left; take random-50-25-25"
        )
    return NodeSplit(name, index, train, rest[:num_valid], rest[num_valid : num_valid + num_test])


def redrawn_split(y: NodeGraph | Tensor, split: NodeSplit, *, index: int = 0) -> NodeSplit:
    """Draw the training nodes of a split again, from its training and validation nodes.

    This compares settings on more than one choice of few training nodes. The test nodes stay the same.

    Args:
        y: The graph, or its labels.
        split: The original split. The new one has as many training nodes, and as many of each class if nodes
            have one class.
        index: Which draw, from 0.

    Returns:
        A split named after the original, such as "public-redrawn".

    Raises:
        UsageError: if the index is negative.
    """
    check_whole(at_least=0, split_index=index)
    labels = _labels(y).cpu()
    known = torch.cat([split.train, split.valid]).cpu()
    order = known[hash_integers(_PURPOSE, index, known).argsort(stable=True)]
    kinds = labels if labels.ndim == 1 else torch.zeros(len(labels), dtype=torch.int64)
    wanted = torch.unique(kinds[split.train.cpu()], return_counts=True)
    train = [order[kinds[order] == kind][:count] for kind, count in zip(*wanted, strict=True)]
    chosen = torch.isin(order, torch.cat(train)) if train else torch.zeros_like(order, dtype=torch.bool)
    return NodeSplit(f"{split.name}{REDRAWN}", index, order[chosen], order[~chosen], split.test.cpu())


def draw_split(y: Tensor, name: str, index: int) -> NodeSplit | None:
    """The random split of a name such as "random-50-25-25"; None if this is not the name of a random split.

    Raises:
        UsageError: if the split cannot be drawn.
    """
    if match := _FRACTIONS.fullmatch(name):
        shares = [float(value) / 100 for value in match.groups()]
        if min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
            here = "" if min(shares) <= 0 else f", but their sum is {100 * sum(shares):.6g}"
            raise UsageError(
                f"--data.split {name}: shares of train, valid and test must be above 0 with sum 100{here}"
            )
        return random_split(y, fractions=shares, index=index)
    if match := _PER_CLASS.fullmatch(name):
        return per_class_split(y, per_class=int(match[1]), index=index)
    return None


def _labels(graph: NodeGraph | Tensor) -> Tensor:
    return graph if isinstance(graph, Tensor) else graph.y


def _shuffled(y: Tensor, index: int) -> Tensor:
    """The labelled nodes in random order."""
    check_whole(at_least=0, split_index=index)
    nodes = is_labelled(y).nonzero().squeeze(1).cpu()
    return nodes[hash_integers(_PURPOSE, index, nodes).argsort(stable=True)]
