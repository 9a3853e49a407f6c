"""Denoising of features along the graph, once before training (GALiT, Guo et al., Eq. 5-7 and 29).

    X^ <- (1 - gamma) A X^ + gamma X, K times, starting from X^ = X

A is the symmetrically normalised adjacency with self-loops. As K grows, the result tends to
gamma (I - (1 - gamma) A)^-1 X. Each step multiplies the distance to it by 1 - gamma or less.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor

from graphzoo.errors import check_range, check_whole
from graphzoo.ops.adjacency import SparseAdjacency, normalized_adjacency
from graphzoo.ops.sparse import SparseMatrix
from graphzoo.ops.tensor_file import TensorFile
from graphzoo.system.progress import progress
from graphzoo.system.tensors import check_tensors

_log = logging.getLogger(__name__)

# Part of a file's key, so that results of an older version are not used by this one.
FORMAT_VERSION = 1
# Size of a chunk of columns. With few chunks, every page of a mapped file is written only once or twice.
CHUNK_BYTES = 1 << 26
# Size of the columns that the CPU smooths at once, so that the rows that edges read stay in its cache.
CPU_CACHE_BYTES, CPU_MIN_COLUMNS = 1 << 22, 16
# Larger results stay on disk, and are read from there page by page.
MEMORY_MAP_BYTES = 1 << 30


def denoise_features(
    x: Tensor,
    edge_index: Tensor | SparseAdjacency,
    *,
    gamma: float = 0.1,
    num_iterations: int = 10,
    self_loops: bool = True,
    out: Tensor | None = None,
    with_gradient: bool = False,
) -> Tensor:
    """Denoised features (Eq. 29), in O(K E F) time.

    Repeated edges count once, and every edge counts in both directions. Columns are computed in chunks, so
    that little more memory is needed than for `x` and the result.

    Args:
        x: Features [N, F], dense or sparse. The computation runs on its device.
        edge_index: Edges [2, E], int64, or the normalised adjacency A.
        gamma: Weight of the node's own features, in [0, 1]; 0 gives plain propagation, A^K X, as in SGC.
        num_iterations: K, at least 0.
        self_loops: Whether A has self-loops, as in the paper. With them, a node without edges keeps its
            features; without them, every step gives it gamma times its features.
        out: Tensor [N, F] for the result, such as one of a memory-mapped file; None creates one.
        with_gradient: Whether the result is differentiable in dense `x`. The backward pass takes as long as
            the forward pass.

    Returns:
        Dense [N, F]; float64 for float64 `x`, else float32.

    Raises:
        ValueError: for shapes that do not fit, or a setting out of range.
    """
    _check(x, gamma, num_iterations)
    dtype = _result_dtype(x)
    if out is None:
        out = torch.empty(x.shape, dtype=dtype, device=x.device)
    elif out.shape != x.shape or out.dtype != dtype:
        raise ValueError(f"out must be {list(x.shape)} of {dtype}, got {list(out.shape)} of {out.dtype}")
    with torch.set_grad_enabled(with_gradient and torch.is_grad_enabled()):
        if isinstance(edge_index, SparseAdjacency):
            adjacency = edge_index
        else:
            adjacency = _adjacency(edge_index.to(x.device), x.shape[0], self_loops, dtype)
        with progress("denoising features", x.shape[1] * num_iterations) as advance:
            for columns, chunk in _column_chunks(x, dtype):
                parts = []
                for part in torch.split(chunk, _cache_width(chunk), dim=1):
                    own = smooth = part.contiguous()
                    for _ in range(num_iterations):
                        smooth = adjacency.matmul(smooth).mul_(1 - gamma).add_(own, alpha=gamma)
                        advance(part.shape[1])
                    parts.append(smooth)
                out[:, columns] = torch.cat(parts, 1)
    return out


def cached_denoise(
    x: Tensor,
    edge_index: Tensor,
    *,
    gamma: float = 0.1,
    num_iterations: int = 10,
    self_loops: bool = True,
    cache: str | PathLike[str] | None = None,
    memory_map_bytes: int = MEMORY_MAP_BYTES,
) -> Tensor:
    """`denoise_features`, with the result kept in a file.

    The file is named by the sha256 of features, edges and settings. It has a checksum, so that a damaged
    file is noticed and computed again. If several processes need the same file, one computes it and the
    others wait. If the folder cannot be written to, a warning is logged and the result is not kept.

    Args:
        x: Features [N, F], dense or sparse.
        edge_index: Edges [2, E], int64.
        gamma: Weight of the node's own features, in [0, 1].
        num_iterations: K, at least 0.
        self_loops: Whether A has self-loops.
        cache: Folder of the files; None keeps nothing.
        memory_map_bytes: For features on the CPU, a result larger than this is written to its file chunk by
            chunk, and memory-mapped from there. Changes of its values are not written to the file.

    Returns:
        Dense [N, F], on the device of `x`.

    Raises:
        ValueError: for shapes that do not fit, or a setting out of range.
    """

    def compute(out: Tensor | None = None) -> Tensor:
        return denoise_features(
            x, edge_index, gamma=gamma, num_iterations=num_iterations, self_loops=self_loops, out=out
        )

    _check(x, gamma, num_iterations)
    if cache is None or x.numel() == 0:
        return compute()
    settings = [FORMAT_VERSION, float(gamma), int(num_iterations), bool(self_loops)]
    key, dtype = _content_key(x, edge_index, settings), _result_dtype(x)
    is_mapped = x.numel() * dtype.itemsize > memory_map_bytes and x.device.type == "cpu"
    file = TensorFile(Path(cache) / f"denoised-{key}.bin", key, x.shape, dtype, is_mapped=is_mapped)
    try:
        return file.provide(compute).to(x.device)
    except OSError as error:
        _log.warning("denoised features cannot be kept in %s: %s", cache, error)
        return compute()


def _check(x: Tensor, gamma: float, num_iterations: int) -> None:
    check_tensors(x=x)
    if x.dim() != 2:
        raise ValueError(f"x must be features [N, F], got shape {list(x.shape)}")
    check_range(at_least=0, at_most=1, gamma=gamma)
    check_whole(at_least=0, num_iterations=num_iterations)


def _result_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _adjacency(edge_index: Tensor, num_nodes: int, self_loops: bool, dtype: torch.dtype) -> SparseAdjacency:
    if not self_loops:
        edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    return normalized_adjacency(edge_index, num_nodes, self_loops=self_loops, dtype=dtype)


def _cache_width(chunk: Tensor) -> int:
    if chunk.device.type != "cpu":
        return max(1, chunk.shape[1])
    return max(CPU_MIN_COLUMNS, CPU_CACHE_BYTES // max(1, chunk.shape[0] * chunk.itemsize))


def _column_chunks(x: Tensor, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
    """Dense chunks of columns, [N, c] each."""
    num_nodes, num_columns = x.shape
    width = max(1, CHUNK_BYTES // max(1, num_nodes * dtype.itemsize))
    # In a single chunk, the host need not read the number of entries.
    if x.layout is not torch.strided and width >= num_columns:
        x = SparseMatrix.from_tensor(x.detach()).to_dense()
    by_column = None if x.layout is torch.strided else SparseMatrix.from_tensor(x.detach()).transpose()
    for start in range(0, num_columns, width):
        stop = min(start + width, num_columns)
        if by_column is None:
            yield slice(start, stop), x[:, start:stop].to(dtype)
            continue
        begin = by_column.rowptr[start : stop + 1].long()
        entries = slice(int(begin[0]), int(begin[-1]))
        column = torch.arange(stop - start, device=x.device).repeat_interleave(begin.diff())
        chunk = torch.zeros(num_nodes, stop - start, dtype=dtype, device=x.device)
        place = by_column.col[entries].long(), column
        chunk.index_put_(place, by_column.values[entries].to(dtype), accumulate=True)
        yield slice(start, stop), chunk


def _content_key(x: Tensor, edge_index: Tensor, settings: list[float | int | bool]) -> str:
    if x.layout is torch.strided:
        parts = [x]
    else:
        x = x.to_sparse_csr()
        parts = [x.crow_indices(), x.col_indices(), x.values()]
    parts = [part.detach().cpu().contiguous() for part in (*parts, edge_index)]
    facts = [settings, list(x.shape), [[str(part.dtype), list(part.shape)] for part in parts]]
    digest = hashlib.sha256(json.dumps(facts).encode())
    for part in parts:
        digest.update(part.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
