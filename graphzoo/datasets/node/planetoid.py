"""Cora, CiteSeer and PubMed in the files of Planetoid (Yang et al., ICML 2016).

`x`, `allx` and `tx` hold the features of the training nodes, of all but the test nodes, and of the test
nodes (CSR matrices); `y`, `ally`, `ty` their classes, one-hot; `graph` the neighbours of each node;
`test.index` the numbers of the test nodes in the order of `tx`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from graphzoo.datasets.node.build import Parsed, from_masks, number_names, read_mask_file
from graphzoo.datasets.node.splits import NodeSplit
from graphzoo.datasets.node.unpickle import read_pickle
from graphzoo.errors import DataError

__all__ = ["read_planetoid"]

_NUM_VALID = 500


def read_planetoid(files: Mapping[str, Path]) -> Parsed:
    """The graph with its "public" split and the ten of Geom-GCN (Pei et al., ICLR 2020).

    CiteSeer has 15 nodes without edges, features and class, which `test.index` leaves out. As in every
    published use of the data they are kept, with zero features and class 0; the public split does not hold
    them.
    """
    # by what comes after `ind.<name>.`
    parts = {path.name.split(".", 2)[2]: path for path in files.values() if path.name.startswith("ind.")}
    matrices = {key: read_pickle(parts[key]).to_dense() for key in ("allx", "tx")}
    onehot = {key: np.asarray(read_pickle(parts[key])) for key in ("y", "ally", "ty")}
    neighbours = read_pickle(parts["graph"])
    test = np.loadtxt(parts["test.index"], dtype=np.int64)
    num_known = matrices["allx"].shape[0]
    num_nodes = int(test.max()) + 1
    if test.min() < num_known or test.size != matrices["tx"].shape[0] or num_nodes != len(neighbours):
        raise DataError(f"{parts['test.index']}: does not fit the other files; fetch them again")

    x = np.zeros((num_nodes, matrices["allx"].shape[1]), dtype=np.float32)
    y = np.zeros(num_nodes, dtype=np.int64)
    for rows, features, classes in (
        (np.arange(num_known), matrices["allx"], onehot["ally"]),
        (test, matrices["tx"], onehot["ty"]),
    ):
        x[rows] = features
        y[rows] = classes.argmax(1)
    lengths = [len(targets) for targets in neighbours.values()]
    sources = np.repeat(np.fromiter(neighbours, dtype=np.int64), lengths)
    targets = np.fromiter((target for row in neighbours.values() for target in row), dtype=np.int64)

    num_train = onehot["y"].shape[0]
    public = NodeSplit(
        "public",
        0,
        torch.arange(num_train),
        torch.arange(num_train, num_train + _NUM_VALID),
        torch.from_numpy(test),
    )
    masks = [read_mask_file(path) for name, path in sorted(files.items()) if name.endswith(".npz")]
    return Parsed(
        x=torch.from_numpy(x),
        edge_index=torch.from_numpy(np.stack([sources, targets])),
        y=torch.from_numpy(y),
        class_names=number_names(onehot["ally"].shape[1]),
        splits={"public": (public,), "geom-gcn": from_masks("geom-gcn", masks)},
    )
