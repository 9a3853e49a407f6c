"""Link data of the Open Graph Benchmark, read from its archives (Hu et al., NeurIPS 2020).

The package `ogb` is not used: it asks on the terminal before it downloads, and cannot read these files with
current versions of torch. Here an unpickler that accepts only arrays reads them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.files.sources import refuse_counts
from graphzoo.datasets.link.graph import LinkGraph, LinkSplit
from graphzoo.datasets.link.pairs import distinct_links
from graphzoo.datasets.link.table import LinkSource
from graphzoo.datasets.node.ogb import mapped_names, read_table
from graphzoo.datasets.node.unpickle import read_torch_file
from graphzoo.errors import DataError

_log = logging.getLogger(__name__)


def read_ogb_links(source: LinkSource, files: Mapping[str, Path]) -> LinkGraph:
    """Read links, negatives and features; weights and years of links are not used.

    Raises:
        DataError: if a file is damaged or is not a file of this data set, or the number of links differs.
    """
    is_directed = source.is_directed
    num_nodes = int(read_table(files["raw/num-node-list.csv.gz"], np.int64).sum())
    by_part = {path.stem: path for name, path in files.items() if name.startswith("split/")}
    content = read_torch_file(by_part["train"])
    listed = _links(content, by_part["train"], is_directed=is_directed)
    if source.counts.train:
        counts = {"training links": (listed.size(0), source.counts.train)}
        refuse_counts(source.folder, source.name, counts, own="links")
    train, num_repeated, num_loops = distinct_links(listed, num_nodes, is_directed=is_directed)
    # Repeats and the like are part of the published data: they are logged, without a warning.
    if ignored := [f"{key}s" for key in ("weight", "year") if not is_directed and key in content]:
        _log.info("%s: %s of the links are not used", source.name, " and ".join(ignored))
    if num_repeated:
        repeats = f"{num_repeated:,} of {listed.size(0):,}"
        _log.info("%s: %s training links are repeats, each is kept once", source.name, repeats)
    if num_loops:
        _log.info("%s: %d training links of a node with itself are left out", source.name, num_loops)
    valid, test = (_judged(by_part[part], is_directed=is_directed) for part in ("valid", "test"))
    x = None
    if (path := files.get("raw/node-feat.csv.gz")) is not None:
        x = torch.from_numpy(read_table(path, np.float32))
        if x.size(0) != num_nodes:
            raise DataError(f"{path}: {x.size(0):,} rows, expected {num_nodes:,}; fetch it again")
    return LinkGraph(
        source.name,
        num_nodes,
        train,
        valid,
        test,
        x=x,
        is_directed=is_directed,
        node_names=mapped_names(files, num_nodes, "nodes"),
        metric=source.metric,
        protocol="ogb",
        valid_edges_at_test=source.valid_edges_at_test,
        may_recur=source.may_recur,
    )


def _judged(path: Path, *, is_directed: bool) -> LinkSplit:
    content = read_torch_file(path)
    positive = _links(content, path, is_directed=is_directed)
    if is_directed:
        # Every citing paper has its own negative targets, [P, K].
        targets = _array(content, "target_node_neg", path)
        if targets.ndim != 2 or targets.size(0) != positive.size(0):
            raise DataError(
                f"{path}: target_node_neg is {list(targets.shape)}, expected [{positive.size(0):,}, K]; "
                "fetch it again"
            )
        sources = positive[:, :1].expand_as(targets)
        return LinkSplit(positive, torch.stack([sources, targets], dim=2))
    negative = _array(content, "edge_neg", path)
    if negative.ndim != 2 or negative.size(1) != 2:
        raise DataError(f"{path}: edge_neg is {list(negative.shape)}, expected [Q, 2]; fetch it again")
    return LinkSplit(positive, negative)


def _links(content: Any, path: Path, *, is_directed: bool) -> Tensor:
    if is_directed:
        ends = [_array(content, key, path) for key in ("source_node", "target_node")]
        if ends[0].shape != ends[1].shape or ends[0].ndim != 1:
            raise DataError(f"{path}: source_node and target_node differ in length; fetch it again")
        return torch.stack(ends, dim=1)
    links = _array(content, "edge", path)
    if links.ndim != 2 or links.size(1) != 2:
        raise DataError(f"{path}: edge is {list(links.shape)}, expected [n, 2]; fetch it again")
    return links


def _array(content: Any, key: str, path: Path) -> Tensor:
    if not isinstance(content, Mapping) or key not in content:
        held = ", ".join(map(str, content)) if isinstance(content, Mapping) else type(content).__name__
        raise DataError(
            f"{path}: no {key}; the file has {held[:100]}: not a split of this data set, fetch it again"
        )
    values = np.asarray(content[key])
    if values.dtype.kind not in "iu":
        raise DataError(f"{path}: {key} has {values.dtype} instead of node numbers; fetch it again")
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64))
