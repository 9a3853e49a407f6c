"""Pokec, in the MATLAB file of LINKX (Lim et al., NeurIPS 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from graphzoo.datasets.node.build import Parsed, number_names
from graphzoo.errors import DataError, reason
from graphzoo.system.memory import raise_if_not_the_file

__all__ = ["read_linkx"]


def read_linkx(files: Mapping[str, Path]) -> Parsed:
    """Fields `edge_index`, `node_feat`, `num_nodes`, `label` (-1: unknown); edges in both directions."""
    # imported here: only this format needs it
    from scipy.io import loadmat
    from scipy.sparse import issparse

    (path,) = files.values()
    try:
        fields = loadmat(path)
        x, y = fields["node_feat"], fields["label"].reshape(-1).astype(np.int64)
        edges, num_nodes = fields["edge_index"].astype(np.int64), int(fields["num_nodes"].reshape(-1)[0])
        x = np.asarray(x.todense() if issparse(x) else x, dtype=np.float32)
    except Exception as error:  # a damaged file can raise anything in the parser
        raise_if_not_the_file(error, path)
        raise DataError(f"{path}: not a readable MATLAB file ({reason(error)}); fetch it again") from error
    if len(x) != num_nodes or len(y) != num_nodes:
        raise DataError(f"{path}: {len(x):,} features and {len(y):,} labels for {num_nodes:,} nodes")
    return Parsed(
        x=torch.from_numpy(x),
        edge_index=torch.from_numpy(edges),
        y=torch.from_numpy(y),
        class_names=number_names(int(y.max()) + 1),
    )
