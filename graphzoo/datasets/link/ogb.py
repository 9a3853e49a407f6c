"""Link data of the Open Graph Benchmark, read from its archives (Hu et al., NeurIPS 2020).

`ogb` itself asks on the terminal before it fetches and cannot read these files with today's torch. Here they
are read by an unpickler that knows nothing but arrays.
"""

from __future__ import annotations

import gzip
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.link.graph import LinkSplit
from graphzoo.datasets.link.pairs import distinct_links
from graphzoo.datasets.node.ogb import read_table
from graphzoo.datasets.node.unpickle import read_torch_file
from graphzoo.errors import DataError

__all__ = ["OGBLinks", "read_ogb_links"]

_log = logging.getLogger(__name__)


@dataclass
class OGBLinks:
    """What the files of a data set hold.

    Args:
        num_nodes: N.
        num_listed: Training links as listed.
        train: Training links, each once, [n, 2].
        valid: Validation links with their negatives.
        test: Test links with their negatives.
        x: Features [N, F], None without any.
        node_names: Names of the nodes, empty without any.
        notices: What was counted on the way.
    """

    num_nodes: int
    num_listed: int
    train: Tensor
    valid: LinkSplit
    test: LinkSplit
    x: Tensor | None
    node_names: tuple[str, ...] = ()
    notices: list[str] = field(default_factory=list)


def read_ogb_links(files: Mapping[str, Path], *, is_directed: bool) -> OGBLinks:
    """Links, negatives and features; weights and years of links are not used.

    Raises:
        DataError: if a file is damaged or does not hold what its name says.
    """
    num_nodes = int(read_table(files["raw/num-node-list.csv.gz"], np.int64).sum())
    by_part = {path.stem: path for name, path in files.items() if name.startswith("split/")}
    listed, ignored = _links(by_part["train"], is_directed=is_directed)
    train, num_repeated, num_loops = distinct_links(listed, num_nodes, is_directed=is_directed)
    notices = []
    if ignored:
        notices.append(f"{' and '.join(ignored)} of the links are not used")
    if num_repeated:
        notices.append(
            f"{num_repeated:,} of {listed.size(0):,} training links are repeats, each is kept once"
        )
    if num_loops:
        notices.append(f"{num_loops:,} training links of a node with itself are left out")
    valid, test = (_judged(by_part[part], is_directed=is_directed) for part in ("valid", "test"))
    x = None
    if (path := files.get("raw/node-feat.csv.gz")) is not None:
        x = torch.from_numpy(read_table(path, np.float32))
        if x.size(0) != num_nodes:
            raise DataError(f"{path}: {x.size(0):,} rows, expected {num_nodes:,}; fetch it again")
    mapping = next((path for name, path in files.items() if name.startswith("mapping/")), None)
    names = () if mapping is None else _node_names(mapping, num_nodes)
    return OGBLinks(num_nodes, listed.size(0), train, valid, test, x, names, notices)


def _judged(path: Path, *, is_directed: bool) -> LinkSplit:
    content = read_torch_file(path)
    positive, _ = _links(path, is_directed=is_directed, content=content)
    if is_directed:
        # every citing paper has cited ones of its own that count as wrong, [P, K]
        targets = _array(content, "target_node_neg", path)
        if targets.ndim != 2 or targets.size(0) != positive.size(0):
            raise DataError(f"{path}: target_node_neg is {list(targets.shape)}; fetch it again")
        sources = positive[:, :1].expand_as(targets)
        return LinkSplit(positive, torch.stack([sources, targets], dim=2))
    negative = _array(content, "edge_neg", path)
    if negative.ndim != 2 or negative.size(1) != 2:
        raise DataError(f"{path}: edge_neg is {list(negative.shape)}, expected [Q, 2]; fetch it again")
    return LinkSplit(positive, negative)


def _links(path: Path, *, is_directed: bool, content: Any = None) -> tuple[Tensor, list[str]]:
    """Links of a split file, and the names of what else it says of them."""
    content = read_torch_file(path) if content is None else content
    if is_directed:
        ends = [_array(content, key, path) for key in ("source_node", "target_node")]
        if ends[0].shape != ends[1].shape or ends[0].ndim != 1:
            raise DataError(f"{path}: source_node and target_node differ in length; fetch it again")
        return torch.stack(ends, dim=1), []
    links = _array(content, "edge", path)
    if links.ndim != 2 or links.size(1) != 2:
        raise DataError(f"{path}: edge is {list(links.shape)}, expected [n, 2]; fetch it again")
    return links, [f"{key}s" for key in ("weight", "year") if key in content]


def _array(content: Any, key: str, path: Path) -> Tensor:
    if not isinstance(content, Mapping) or key not in content:
        held = ", ".join(map(str, content)) if isinstance(content, Mapping) else type(content).__name__
        raise DataError(f"{path}: no {key}; it holds {held[:100]}: not a split of this data set")
    values = np.asarray(content[key])
    if values.dtype.kind not in "iu":
        raise DataError(f"{path}: {key} holds {values.dtype} instead of node numbers; fetch it again")
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64))


def _node_names(path: Path, num_nodes: int) -> tuple[str, ...]:
    """Names from a table `number,name` in the order of the numbers, behind a header."""
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()[1:]
    names = tuple(line.split(",", 1)[1] for line in lines if line)
    if len(names) != num_nodes or len(set(names)) != num_nodes:
        _log.warning("%s: not one name for each of %d nodes, numbers are used instead", path, num_nodes)
        return ()
    return names
