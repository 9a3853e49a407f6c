"""Node features as plain arrays, for files and fingerprints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.files.arrays import to_bytes
from graphzoo.ops.sparse import without_beta_warning

_Array = np.ndarray[Any, np.dtype[Any]]

# Dense features with a smaller share of non-zeros are written as a list of the non-zeros.
_SPARSE_BELOW = 0.1
_CSR = ("x_crow", "x_col", "x_values")


def feature_parts(x: Tensor) -> list[_Array]:
    """The arrays of features, dense or sparse CSR, from which a fingerprint is computed."""
    layout = to_bytes(f"{x.layout} {list(x.shape)}")
    parts = _csr_parts(x) if x.layout == torch.sparse_csr else [x.cpu().numpy()]
    # Of CSR: row starts, columns, values. Of dense features: values.
    kinds = ["<i8", "<i8", "<f4"][-len(parts) :]
    return [layout, *(part.astype(kind, copy=False) for part, kind in zip(parts, kinds, strict=True))]


def _csr_parts(x: Tensor) -> list[_Array]:
    return [part.cpu().numpy() for part in (x.crow_indices(), x.col_indices(), x.values())]


def pack_features(x: Tensor) -> tuple[dict[str, _Array], dict[str, Any]]:
    """Arrays and a description of features, for a file; of mostly empty dense ones only the non-zeros."""
    shape = list(x.shape)
    if x.layout == torch.sparse_csr:
        return dict(zip(_CSR, _csr_parts(x), strict=True)), {"layout": "csr", "shape": shape}
    dense = np.ascontiguousarray(x.cpu().numpy())
    # Compare bits, so that a negative zero stays one.
    filled = dense.view(np.int32) != 0
    if not dense.size or filled.mean() >= _SPARSE_BELOW:
        return {"x": dense}, {"layout": "dense", "shape": shape}
    place = np.flatnonzero(filled)
    return {"x_place": place, "x_values": dense.reshape(-1)[place]}, {"layout": "listed", "shape": shape}


def unpack_features(arrays: Mapping[str, _Array], description: Mapping[str, Any]) -> Tensor:
    """The features from the arrays and description of `pack_features`, [N, F], float32."""
    shape = tuple(description["shape"])
    if description["layout"] == "csr":
        start, column, values = (torch.from_numpy(arrays[key]) for key in _CSR)
        return csr_tensor(start, column, values, shape)
    if description["layout"] == "dense":
        return torch.from_numpy(arrays["x"]).reshape(shape)
    dense = np.zeros(shape, dtype=np.float32)
    dense.reshape(-1)[arrays["x_place"]] = arrays["x_values"]
    return torch.from_numpy(dense)


def csr_tensor(start: Tensor, column: Tensor, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A sparse CSR tensor with checked invariants, without torch's warning that this layout is in beta."""
    with without_beta_warning():
        return torch.sparse_csr_tensor(start, column, values, size=shape, check_invariants=True)
