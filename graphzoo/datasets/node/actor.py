"""Actor, also called Film, in the text files of Geom-GCN (Pei et al., ICLR 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from graphzoo.datasets.node.build import Parsed, from_masks, number_names, read_mask_file
from graphzoo.errors import DataError

__all__ = ["read_actor"]

_NUM_FEATURES = 932


def read_actor(files: Mapping[str, Path]) -> Parsed:
    """The graph with its ten splits, named "geom-gcn".

    The file's edges are directed (an actor is named on another's page); they are stored in both directions,
    as the published results on this graph have it.
    """
    features, labels = _read_nodes(files["out1_node_feature_label.txt"])
    edges = np.loadtxt(files["out1_graph_edges.txt"], dtype=np.int64, skiprows=1, ndmin=2)
    masks = [read_mask_file(files[name]) for name in sorted(files) if name.endswith(".npz")]
    return Parsed(
        x=torch.from_numpy(features),
        edge_index=torch.from_numpy(edges.T.copy()),
        y=torch.from_numpy(labels),
        class_names=number_names(int(labels.max()) + 1),
        splits={"geom-gcn": from_masks("geom-gcn", masks)},
    )


def _read_nodes(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Lines `node<TAB>feature,feature,...<TAB>class` behind a header: binary features and classes."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    features = np.zeros((len(lines), _NUM_FEATURES), dtype=np.float32)
    labels = np.full(len(lines), -1, dtype=np.int64)
    for number, line in enumerate(lines, start=2):
        try:
            node, present, label = line.split("\t")
            features[int(node), [int(feature) for feature in present.split(",")]] = 1
            labels[int(node)] = int(label)
        except (ValueError, IndexError) as error:
            raise DataError(f"{path}, line {number}: {error}; fetch the file again") from error
    return features, labels
