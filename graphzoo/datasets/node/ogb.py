"""Graphs of the Open Graph Benchmark, read from the text files of its archives (Hu et al., NeurIPS 2020).

The package `ogb` is not used: it asks on the terminal before it downloads, and cannot read its cache with
current versions of torch. No pickle is read.
"""

from __future__ import annotations

import gzip
import logging
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphzoo.datasets.files.tables import read_bytes
from graphzoo.datasets.node.build import Parsed, number_names
from graphzoo.datasets.node.splits import PARTS, NodeSplit
from graphzoo.errors import DataError
from graphzoo.system.memory import reading

_log = logging.getLogger(__name__)
_Table = np.ndarray[Any, np.dtype[Any]]


def read_ogb(files: Mapping[str, Path]) -> Parsed:
    """Read a graph with node features and one class per node; it has the split "ogb" if `files` has it.

    `NodeGraph` stores edges in both directions. The citations of ogbn-arxiv are made undirected, as in the
    published results. The other graphs are undirected, and their files list each edge once.
    """
    edges, num_nodes = _edges(files)
    y = read_table(files["raw/node-label.csv.gz"], np.float32)
    x = read_table(files["raw/node-feat.csv.gz"], np.float32)
    _check_rows(files, "raw/node-feat.csv.gz", x, num_nodes)
    _check_rows(files, "raw/node-label.csv.gz", y, num_nodes)
    classes = np.where(np.isnan(y[:, 0]), -1, y[:, 0]).astype(np.int64)
    count = int(classes.max()) + 1
    names = mapped_names(files, count, "classes") or number_names(count)
    return Parsed.of_arrays(x, edges, classes, class_names=names, splits=_splits(files))


def read_proteins(files: Mapping[str, Path]) -> Parsed:
    """Read ogbn-proteins, with 112 yes-no labels; node features are means over edges, as in NodeFormer."""
    edges, num_nodes = _edges(files)
    y = read_table(files["raw/node-label.csv.gz"], np.float32)
    weights = read_table(files["raw/edge-feat.csv.gz"], np.float32)
    _check_rows(files, "raw/node-label.csv.gz", y, num_nodes)
    _check_rows(files, "raw/edge-feat.csv.gz", weights, edges.shape[1])
    # An undirected edge counts for both of its ends.
    degree = np.bincount(edges.reshape(-1), minlength=num_nodes)
    x = np.zeros((num_nodes, weights.shape[1]), dtype=np.float32)
    for column in range(weights.shape[1]):
        total = sum(np.bincount(ends, weights[:, column], minlength=num_nodes) for ends in edges)
        x[:, column] = total / np.maximum(degree, 1)
    return Parsed(
        x=torch.from_numpy(x),
        edge_index=torch.from_numpy(edges),
        y=torch.from_numpy(y),
        class_names=number_names(y.shape[1]),
        splits=_splits(files),
    )


def _edges(files: Mapping[str, Path]) -> tuple[_Table, int]:
    edges = read_table(files["raw/edge.csv.gz"], np.int64)
    num_nodes = int(read_table(files["raw/num-node-list.csv.gz"], np.int64).sum())
    num_edges = int(read_table(files["raw/num-edge-list.csv.gz"], np.int64).sum())
    _check_rows(files, "raw/edge.csv.gz", edges, num_edges)
    return np.ascontiguousarray(edges.T), num_nodes


def _check_rows(files: Mapping[str, Path], name: str, table: _Table, expected: int) -> None:
    if len(table) != expected:
        raise DataError(f"{files[name]}: {len(table):,} rows, expected {expected:,}; fetch it again")


def mapped_names(files: Mapping[str, Path], count: int, what: str) -> tuple[str, ...]:
    """The names of a table `number,name`, which has a header and is sorted by number; empty if no such file.

    If there are not `count` different names, a log line says so and the result is empty, too.
    """
    path = next((path for name, path in files.items() if name.startswith("mapping/")), None)
    if path is None:
        return ()
    lines = read_bytes(path).decode().split("\n")[1:]
    names = tuple(line.rstrip("\r").split(",", 1)[1] for line in lines if line)
    if len(names) != count or len(set(names)) != count:
        message = "%s: %d different names for %d %s, so numbers are used as names"
        _log.warning(message, path, len(set(names)), count, what)
        return ()
    return names


def _splits(files: Mapping[str, Path]) -> dict[str, tuple[NodeSplit, ...]]:
    by_part = {
        path.name.removesuffix(".csv.gz"): path for name, path in files.items() if name.startswith("split/")
    }
    if not by_part:
        return {}
    train, valid, test = (torch.from_numpy(read_table(by_part[part], np.int64)[:, 0]) for part in PARTS)
    return {"ogb": (NodeSplit("ogb", 0, train, valid, test),)}


def read_table(path: Path, kind: type[np.generic]) -> _Table:
    """Comma-separated numbers of a gzip file without a header, [rows, columns].

    Raises:
        DataError: if the file is empty, damaged, or has anything but numbers.
    """
    # imported here: only reading needs it
    import pyarrow
    from pyarrow import csv as arrow_csv

    damage = (OSError, EOFError, zlib.error, ValueError, pyarrow.ArrowException)
    with reading(path, "a readable table", errors=damage):
        with gzip.open(path, "rt", encoding="ascii") as lines:
            width = lines.readline().count(",") + 1
        names = [str(column) for column in range(width)]
        content = arrow_csv.read_csv(
            path,
            read_options=arrow_csv.ReadOptions(column_names=names, block_size=1 << 24),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pyarrow.from_numpy_dtype(np.dtype(kind))),
                null_values=["", "nan", "NaN"],
            ),
        )
    table: _Table = np.empty((content.num_rows, width), dtype=kind)
    for column in range(width):
        values = content.column(column)
        if values.null_count and not np.issubdtype(kind, np.floating):
            raise DataError(f"{path}: {values.null_count:,} values are missing; fetch it again")
        table[:, column] = values.to_numpy()
    return table
