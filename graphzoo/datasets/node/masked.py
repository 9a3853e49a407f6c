"""Tolokers and the filtered Squirrel and Chameleon: one `.npz` file with features, edges, labels and masks
(Platonov et al., ICLR 2023).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from graphzoo.datasets.node.build import Parsed, from_masks, number_names

__all__ = ["read_masked"]

_MASKS = ("train_masks", "val_masks", "test_masks")


def read_masked(files: Mapping[str, Path]) -> Parsed:
    """The graph with its ten splits, named "public"; the file lists every edge once."""
    (path,) = files.values()
    with np.load(path, allow_pickle=False) as file:
        x, y, edges = file["node_features"], file["node_labels"], file["edges"]
        masks = [file[name] for name in _MASKS]
    return Parsed(
        x=torch.from_numpy(x.astype(np.float32)),
        edge_index=torch.from_numpy(edges.T.astype(np.int64)),
        y=torch.from_numpy(y.astype(np.int64)),
        class_names=number_names(int(y.max()) + 1),
        splits={"public": from_masks("public", list(zip(*masks, strict=True)))},
    )
