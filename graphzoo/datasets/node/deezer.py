"""Deezer Europe: users, who follows whom, and the artists they like (Rozemberczki & Sarkar, CIKM 2020)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from graphzoo.datasets.node.build import Parsed, number_names, read_gzipped, sparse_features
from graphzoo.datasets.node.splits import PARTS, NodeSplit
from graphzoo.datasets.node.unpickle import read_pickled_array

__all__ = ["read_deezer"]

_NUM_ARTISTS = 31_241


def read_deezer(files: Mapping[str, Path]) -> Parsed:
    """The graph with the five splits of LINKX (Lim et al., NeurIPS 2021); features are sparse and binary."""
    liked = json.loads(read_gzipped(files["deezer_europe_features.json"]))
    target = np.loadtxt(files["deezer_europe_target.csv"], dtype=np.int64, delimiter=",", skiprows=1)
    edges = np.loadtxt(files["deezer_europe_edges.csv"], dtype=np.int64, delimiter=",", skiprows=1)
    y = np.full(len(target), -1, dtype=np.int64)
    y[target[:, 0]] = target[:, 1]
    rows = [liked.get(str(node), []) for node in range(len(y))]
    splits = [
        [torch.from_numpy(np.asarray(split[part], dtype=np.int64)) for part in PARTS]
        for split in read_pickled_array(files["deezer-europe-splits.npy"])
    ]
    return Parsed(
        x=sparse_features(rows, _NUM_ARTISTS),
        edge_index=torch.from_numpy(edges.T.copy()),
        y=torch.from_numpy(y),
        class_names=number_names(2),
        splits={"linkx": tuple(NodeSplit("linkx", index, *parts) for index, parts in enumerate(splits))},
    )
