"""Load the user's own links: a list of links, or lists for training, validation and test."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.files.cache import find_split, remember
from graphzoo.datasets.files.npz import read_npz
from graphzoo.datasets.files.text import listing, lookalikes, paths_of, warn
from graphzoo.datasets.link.edge_list import EdgeList, headers_read_as_links, number_nodes, read_edge_list
from graphzoo.datasets.link.graph import SPLITS, LinkGraph, LinkSplit
from graphzoo.datasets.link.pairs import distinct_links, in_keys, pair_keys
from graphzoo.datasets.link.splits import draw_link_split, draw_non_links
from graphzoo.datasets.node.arrays import checked_features, link_parts, notices_of_features, notices_of_links
from graphzoo.datasets.node.build import proper_names
from graphzoo.datasets.node.own_csv import read_features
from graphzoo.errors import DataError, UsageError, nearest
from graphzoo.system.tensors import check_tensors
from graphzoo.system.units import counted

_log = logging.getLogger(__name__)
# Drawn splits, and warnings about unread files, that this process has already shown.
_told: set[str] = set()
_NODES = "nodes"
_EDGES = "edges"
_NEGATIVES = ("valid_neg", "test_neg")
_ARRAYS = ".npz"
_FORMS = (
    "a file of links, or a folder with edges, or with train, valid and test (.txt, .tsv, .csv, also .gz), or "
    "an .npz file"
)


def link_graph_from_files(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    split_index: int = 0,
    directed: bool = False,
) -> LinkGraph:
    """The user's own links.

    A file has one link per line: the names or numbers of two nodes. They are in the first two columns, or in
    the columns that a header calls `source` and `target`. The first line decides whether tabs, commas,
    semicolons, bars or spaces separate the columns; in a `.csv`, bars do so only if it has no comma and no
    semicolon. Other columns, such as weights, are ignored. Lines at the top that begin with # or % are
    comments.

    Args:
        path: One of

            - a file of links, or a folder with `edges`. The links are split at random, 85/5/10 for training,
              validation and test; as many random pairs without a link are the negatives.
            - a folder with `train`, `valid` and `test`, or a list of these three files. The folder may have
              negatives in `valid_neg` and `test_neg`; else they are drawn.
            - an `.npz` file with `edge_index` [2, E], and optionally features `x` [N, F] and `node_names` [N]
              or `num_nodes`. It is split like a file of links.
            - an `.npz` file that `LinkGraph.save` wrote, which has its own split.

            A folder may also have `nodes.csv`, which lists all nodes. The first column is the node's name,
            and every other column a feature, except for `label`, `label_NAME` and `split`, which are for
            node classification.
        split_index: Which draw of the split, or of the negatives, from 0.
        directed: Whether (u, v) and (v, u) are two links.

    Returns:
        The graph; its metric is MRR. Repeated links and links of a node with itself are dropped. A test link
        is dropped from validation and training, and a validation link from training. A
        `GraphzooDataWarning` counts what was dropped.

    Raises:
        DataError: if the path does not exist or its content cannot be used; names file, line and remedy.
    """
    files, name = _find(path)

    def parse() -> tuple[LinkGraph, list[str]]:
        return _parse(files, name, split_index, directed)

    listed = [(part, str(file.parent.resolve() / file.name)) for part, file in files.items()]
    purpose = f"own links 11\n{name}\n{split_index} {directed}\n{listed}"
    graph = remember(list(files.values()), purpose, LinkGraph, parse)
    folder = next(iter(paths_of(path, _FORMS)))
    for notice in _unread(folder, files) if folder.is_dir() else ():
        if notice not in _told:
            _told.add(notice)
            warn(notice)
    drawn_from = f"{purpose}\n{graph.fingerprint}"
    if graph.protocol == "random" and drawn_from not in _told:
        _told.add(drawn_from)  # a run loads its data several times
        sizes = ", ".join(f"{split} {graph.positive(split).size(0):,}" for split in SPLITS)
        _log.warning("%s: random split %d of the links: %s", name, split_index, sizes)
    return graph


def draws_links(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> bool:
    """Whether `link_graph_from_files` draws links or negatives for this path by `split_index`."""
    files, _ = _find(path)
    if _EDGES in files and files[_EDGES].suffix == _ARRAYS:
        return not isinstance(read_npz(files[_EDGES], LinkGraph), LinkGraph)
    return _NEGATIVES[0] not in files


def link_graph_from_edges(
    edge_index: Tensor,
    x: Tensor | None = None,
    *,
    num_nodes: int | None = None,
    name: str = "links",
    split_index: int = 0,
    directed: bool = False,
) -> LinkGraph:
    """Split links in memory at random, 85/5/10 for training, validation and test.

    Args:
        edge_index: Links as in PyG, [2, E], int64; undirected links in one or both directions.
        x: Features of the nodes, [N, F], finite numbers, dense or sparse; None for no features.
        num_nodes: N; None takes the number of rows of `x`, or else the highest node of a link plus 1.
        name: Name for logs and results.
        split_index: Which draw of the split, from 0.
        directed: Whether (u, v) and (v, u) are two links.

    Returns:
        The graph, with random pairs without a link as negatives. A `GraphzooDataWarning` counts dropped
        links.

    Raises:
        UsageError: if `edge_index` is no tensor.
        DataError: if a shape, dtype or node number is wrong, or there are too few links.
    """
    check_tensors(edge_index=edge_index)
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.dtype != torch.int64:
        hint = "; transpose it" if edge_index.dim() == 2 and edge_index.shape[1] == 2 else ""
        raise DataError(
            f"{name}: expected edge_index [2, E] of int64, got {list(edge_index.shape)} of "
            f"{str(edge_index.dtype).removeprefix('torch.')}{hint}"
        )
    given, x = x, None if x is None else checked_features(x, name)
    for notice in notices_of_features(given):
        warn(f"{name}: {notice}")
    named = int(edge_index.max()) + 1 if edge_index.numel() else 0
    count = num_nodes if num_nodes is not None else named if x is None else x.shape[0]
    if named > count or (edge_index.numel() and int(edge_index.min()) < 0):
        raise DataError(
            f"{name}: links have nodes from {int(edge_index.min())} to {named - 1}, but there are {count} "
            f"nodes (0..{count - 1})"
        )
    links, repeated, loops = distinct_links(edge_index.t().cpu(), count, is_directed=directed)
    if loops:
        warn(f"{name}: {counted(loops, 'self-link')} dropped")
    if not directed and repeated not in (0, links.shape[0]):  # all links once, or all twice, is usual
        warn(f"{name}: {counted(repeated, 'repeated link')} dropped (both directions are one link)")
    train, valid, test = draw_link_split(links, count, split_index, is_directed=directed)
    return LinkGraph(name, count, train, valid, test, x=x, is_directed=directed, protocol="random")


def _find(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[dict[str, Path], str]:
    """The files to read, by part, and a name for the graph."""
    paths = paths_of(path, _FORMS)
    if len(paths) == 1 and paths[0].is_dir():
        return _find_in(paths[0]), paths[0].resolve().name
    if len(paths) not in (1, len(SPLITS)) or any(part.is_dir() for part in paths):
        given = ", ".join(map(str, paths)) or "nothing"
        raise DataError(f"expected {_FORMS}, or a list of train, valid and test; got {given}")
    names = (_EDGES,) if len(paths) == 1 else SPLITS
    return dict(zip(names, paths, strict=True)), paths[0].name.split(".")[0]


def _find_in(folder: Path) -> dict[str, Path]:
    known = (*SPLITS, *_NEGATIVES, _EDGES, _NODES)
    files = {part: path for part in known if (path := find_split(folder, part)) is not None}
    if _EDGES in files and "train" in files:
        raise DataError(
            f"{folder}: has both {files[_EDGES].name} and {files['train'].name}; keep either the file of all "
            "links or those of a split"
        )
    missing = [part for part in SPLITS if part not in files]
    if _EDGES not in files and missing:
        raise DataError(f"{folder}: no {missing[0]} file; give {_FORMS}\n  the folder has {listing(folder)}")
    if len(files.keys() & set(_NEGATIVES)) == 1:
        given, absent = sorted(_NEGATIVES, key=lambda part: part not in files)
        raise DataError(f"{folder}: {given} without {absent}; give both, or neither to have negatives drawn")
    if _EDGES in files and (extra := [part for part in (*SPLITS, *_NEGATIVES) if part in files]):
        raise DataError(
            f"{folder}: has {files[extra[0]].name} and {files[_EDGES].name}, whose split is drawn; remove "
            "one of them"
        )
    return files


def _unread(folder: Path, files: Mapping[str, Path]) -> list[str]:
    """Notices about tables of a folder that are not read: misspelt ones, and all if there is no nodes.csv."""
    known, parts = {file.name for file in files.values()}, (*SPLITS, *_NEGATIVES, _EDGES, _NODES)
    tables = [
        entry.name
        for entry in sorted(folder.iterdir())
        if entry.name.lower().endswith((".csv", ".tsv", ".csv.gz", ".tsv.gz")) and entry.name not in known
    ]
    meant = {name: nearest(name.split(".")[0], parts, count=1) for name in tables}
    notices = [f"{folder}: {name} not read; did you mean {near[0]}?" for name, near in meant.items() if near]
    rest = [name for name, near in meant.items() if not near] if _NODES not in files else []
    if rest:
        more = ", ..." if len(rest) > 5 else ""
        notices.append(f"{folder}: {', '.join(rest[:5])}{more} not read; features are read from nodes.csv")
    return notices


def _parse(
    files: Mapping[str, Path], name: str, split_index: int, directed: bool
) -> tuple[LinkGraph, list[str]]:
    if _EDGES in files and files[_EDGES].suffix == _ARRAYS:
        return _from_arrays(files[_EDGES], name, split_index, directed)
    lists = {part: read_edge_list(path) for part, path in files.items() if part != _NODES}
    notices = [notice for part in lists.values() for notice in part.notices]
    notices += headers_read_as_links(lists.values())
    table = read_features(files[_NODES]) if _NODES in files else None
    notices += table.notices if table is not None else []
    if table is not None and table.left_out:
        columns = "column" + "s" * (len(table.left_out) > 1)
        notices.append(f"{files[_NODES]}: {columns} {', '.join(table.left_out)} left out, not features")
    node_names, pairs = number_nodes(lists, table and table.names, files.get(_NODES))
    num_nodes = len(node_names)
    notices += [f"{next(iter(files.values()))}: {notice}" for notice in lookalikes(node_names, "nodes")]
    links = {}
    for part in (_EDGES, *SPLITS):
        if part in pairs:
            links[part], notes = _tidy(pairs[part], lists[part], num_nodes, directed)
            notices += notes
    if _EDGES not in links:
        notices += _separate(links, lists, num_nodes, directed)
        notices += _unseen(links, lists, node_names)
        known = torch.unique(pair_keys(torch.cat(list(links.values())), num_nodes, is_directed=directed))
        for part in (part for part in _NEGATIVES if part in pairs):
            _check_negatives(pairs[part], lists[part], known, num_nodes, directed)
    try:
        if _EDGES in links:
            train, valid, test = draw_link_split(links[_EDGES], num_nodes, split_index, is_directed=directed)
        else:
            train = links["train"]
            valid, test = _with_negatives(links, pairs, known, num_nodes, split_index, directed)
        graph = LinkGraph(
            name,
            num_nodes,
            train,
            valid,
            test,
            x=None if table is None else table.x,
            is_directed=directed,
            node_names=proper_names(node_names),
            feature_names=() if table is None else table.feature_names,
            protocol="random" if _EDGES in links else "given",
        )
    except DataError as error:  # the checks of the split and the graph do not know the file
        raise DataError(f"{next(iter(lists.values())).path}: {error}") from error
    return graph, notices


def _from_arrays(path: Path, name: str, split_index: int, directed: bool) -> tuple[LinkGraph, list[str]]:
    """The graph of an .npz file; a file of `LinkGraph.save` has a split, for other files it is drawn."""
    content = read_npz(path, LinkGraph)
    if isinstance(content, LinkGraph):
        check_direction(content, directed)
        return content, []
    source = str(path)
    edge_index, x, names = link_parts(content, source)
    try:
        num_nodes = len(names) or whole_number(content.get("num_nodes"), "num_nodes")
        graph = link_graph_from_edges(
            edge_index, x, num_nodes=num_nodes, name=name, split_index=split_index, directed=directed
        )
        notices = [f"{source}: {notice}" for notice in notices_of_links(content)]
        return replace(graph, node_names=names, fingerprint=""), notices
    except DataError as error:
        raise DataError(f"{source}: {error}") from error


def check_direction(graph: LinkGraph, directed: bool) -> None:
    """Refuse `directed` for a graph that was saved as undirected.

    Raises:
        UsageError: if `directed` is True and the graph is undirected.
    """
    if directed and not graph.is_directed:
        raise UsageError(
            f"the links of {graph.name} were split as undirected links, which directed=True cannot change\n"
            "Leave directed out, or give the links as a list of pairs"
        )


def whole_number(value: Any, what: str) -> int | None:
    """The whole number in an array of one element; None stays None.

    Raises:
        DataError: if there are several elements, or it is not a whole number.
    """
    if value is None:
        return None
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "iuf" or array.item() % 1:
        shown = array.item() if array.size == 1 else f"{array.dtype} {list(array.shape)}"
        raise DataError(f"{what} must be one whole number, got {shown}")
    return int(array.item())


def _tidy(pairs: Tensor, source: EdgeList, num_nodes: int, directed: bool) -> tuple[Tensor, list[str]]:
    links, repeated, loops = distinct_links(pairs, num_nodes, is_directed=directed)
    notices = []
    if repeated:
        both = "" if directed else " (both directions are one link)"
        notices.append(f"{source.path}: {counted(repeated, 'repeated link')} dropped{both}")
    if loops:
        first = int((pairs[:, 0] == pairs[:, 1]).nonzero()[0])
        where = f"line {first + source.first_line}"
        notices.append(f"{source.path}: {counted(loops, 'self-link')} dropped (first: {where})")
    if not links.size(0):
        raise DataError(f"{source.path}: no links; add some")
    return links, notices


def _separate(
    links: dict[str, Tensor], lists: Mapping[str, EdgeList], num_nodes: int, directed: bool
) -> list[str]:
    """Remove evaluated links from the training links, and test links from the validation links."""
    notices = []
    for evaluated, other in (("test", "valid"), ("test", "train"), ("valid", "train")):
        taken, keys = (pair_keys(links[p], num_nodes, is_directed=directed) for p in (evaluated, other))
        shared = in_keys(keys, taken.sort().values)
        if count := int(shared.sum()):
            why = "evaluated links must not be trained on" if other == "train" else "a link is in one part"
            what = f"{counted(count, 'link')} also in {evaluated}"
            notices.append(f"{lists[other].path}: {what} dropped: {why}")
            links[other] = links[other][~shared]
        if not links[other].size(0):
            raise DataError(f"{lists[other].path}: every link is also in {evaluated}; give other links")
    return notices


def _unseen(
    links: Mapping[str, Tensor], lists: Mapping[str, EdgeList], node_names: Sequence[str]
) -> list[str]:
    seen = torch.zeros(len(node_names), dtype=torch.bool)
    seen[links["train"].reshape(-1)] = True
    notices = []
    for split in ("valid", "test"):
        new = ~seen[links[split]]
        if bool(new.any()):
            nodes = torch.unique(links[split][new])
            notices.append(
                f"{lists[split].path}: {counted(nodes.numel(), 'node')} without a training link, kept as "
                f"isolated: {counted(int(new.any(1).sum()), 'link')} ({node_names[int(nodes[0])]!r} is one)"
            )
    return notices


def _with_negatives(
    links: Mapping[str, Tensor],
    pairs: Mapping[str, Tensor],
    known: Tensor,
    num_nodes: int,
    split_index: int,
    directed: bool,
) -> tuple[LinkSplit, LinkSplit]:
    valid, test = links["valid"], links["test"]
    if _NEGATIVES[0] in pairs:
        return LinkSplit(valid, pairs[_NEGATIVES[0]]), LinkSplit(test, pairs[_NEGATIVES[1]])
    count = valid.size(0)
    drawn = draw_non_links(known, num_nodes, count + test.size(0), split_index, is_directed=directed)
    if not directed:
        # The order of the two ends must not distinguish links from negatives.
        valid, test = valid.sort(dim=1).values, test.sort(dim=1).values
    return LinkSplit(valid, drawn[:count]), LinkSplit(test, drawn[count:])


def _check_negatives(
    negatives: Tensor, source: EdgeList, known: Tensor, num_nodes: int, directed: bool
) -> None:
    wrong = in_keys(pair_keys(negatives, num_nodes, is_directed=directed), known)
    wrong |= negatives[:, 0] == negatives[:, 1]
    if bool(wrong.any()):
        row = int(np.flatnonzero(wrong.numpy())[0])
        raise DataError(
            f"{source.where(row)}: the negative {source.source[row]!r}, {source.target[row]!r} is a link, or "
            f"pairs a node with itself ({int(wrong.sum()):,} such lines); drop these lines"
        )
