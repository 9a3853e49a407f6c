"""The split files of Li et al. (NeurIPS 2023) and their negatives (HeaRT)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.link.graph import LinkSplit
from graphzoo.errors import DataError
from graphzoo.system.memory import reading


def read_split(files: Mapping[str, Path]) -> tuple[Tensor, LinkSplit, LinkSplit]:
    """Read training links, validation and test; lines `i i` only list a node and are dropped."""
    parts = {name.removesuffix(".txt"): read_pairs(path) for name, path in files.items()}
    parts = {name: pairs[pairs[:, 0] != pairs[:, 1]] for name, pairs in parts.items()}
    return (
        parts["train_pos"],
        LinkSplit(parts["valid_pos"], parts["valid_neg"]),
        LinkSplit(parts["test_pos"], parts["test_neg"]),
    )


def read_pairs(path: Path) -> Tensor:
    """Pairs of node numbers, one per line, [n, 2], int64.

    Raises:
        DataError: if the file has anything else.
    """
    with reading(path, "pairs of node numbers", errors=(OSError, ValueError)):
        pairs = np.loadtxt(path, dtype=np.int64, ndmin=2)
    if pairs.shape[1] != 2:
        raise DataError(f"{path}: {pairs.shape[1]} columns instead of 2; fetch it again")
    return torch.from_numpy(pairs)


def read_heart(path: Path, positive: Tensor) -> LinkSplit:
    """Read a file of HeaRT, with K negatives for each of the links `positive` [P, 2].

    Returns:
        The links with their negatives, [P, K, 2].

    Raises:
        DataError: if the file is damaged, or its negatives belong to other links.
    """
    damage = (OSError, EOFError, ValueError, TypeError)
    with reading(path, "a readable .npy file of pairs", errors=damage):
        negative = torch.from_numpy(np.load(path, allow_pickle=False).astype(np.int64))
    if negative.ndim != 3 or negative.size(2) != 2 or negative.size(0) != positive.size(0):
        raise DataError(
            f"{path}: expected an array [{positive.size(0):,}, K, 2], got {list(negative.shape)}; these are "
            "the negatives of another split: take the file of this one"
        )
    # Every negative has one end of its link, at the same position.
    kept = (negative == positive[:, None, :]).any(2).all(1)
    if not bool(kept.all()):
        row = int((~kept).nonzero()[0])
        raise DataError(
            f"{path}: row {row} has a pair without an end of link {tuple(positive[row].tolist())}; these "
            "are the negatives of another split: take the file of this one"
        )
    return LinkSplit(positive, negative)
