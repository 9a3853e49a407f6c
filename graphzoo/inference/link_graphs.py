"""The graph whose links are predicted at prediction time, and where it comes from."""

from __future__ import annotations

import logging
from os import PathLike
from pathlib import Path

from graphzoo.datasets import LinkGraph, LinkSplit, link_graph_from_files, load_link_graph
from graphzoo.datasets.files.cache import find_split
from graphzoo.datasets.link.edge_list import number_nodes, read_edge_list
from graphzoo.datasets.link.pairs import distinct_links
from graphzoo.datasets.node.own_csv import read_features
from graphzoo.errors import UsageError
from graphzoo.inference.sources import Paths, from_source, stored

__all__ = ["LinkGraphSource", "load_link_source", "stored_link_graph"]

_logger = logging.getLogger(__name__)

LinkGraphSource = LinkGraph | Paths
"""A graph, files as `--data links --data.path` takes them, or the name of a data set."""


def stored_link_graph(run: Path) -> LinkGraph:
    """The graph of a run: its copy, or for a large one the data set or the files it was read from.

    Raises:
        UsageError: if these are gone, or are not what they were.
    """
    return stored(
        run,
        LinkGraph.load,
        lambda meta: link_graph_from_files(
            meta["path"], split_index=meta["split"]["index"], directed=meta.get("directed", False)
        ),
        lambda meta, root: load_link_graph(
            meta["name"], protocol=meta["split"]["name"], split_index=meta["split"]["index"], root=root
        ),
    )


def load_link_source(source: LinkGraphSource, *, directed: bool = False) -> LinkGraph:
    """The graph of a source.

    All links of a single list pass messages, a split is never drawn from them. Of train, valid and test files
    and of data sets those of the training split do, as when they are judged.

    Args:
        source: A graph, a path or paths, or a name.
        directed: Whether files list links with a direction.

    Raises:
        UsageError: if there is nothing there.
        DataError: if a file is malformed.
    """
    if isinstance(source, LinkGraph):
        return source

    def from_files(paths: list[str | PathLike[str]]) -> LinkGraph:
        first = Path(paths[0]) if paths else None
        if first is None or len(paths) > 1 or (first.is_dir() and find_split(first, "edges") is None):
            return link_graph_from_files(paths, directed=directed)
        return _from_one_list(first, directed=directed)

    return from_source(source, load_link_graph, from_files)


def _from_one_list(path: Path, *, directed: bool) -> LinkGraph:
    """The graph of a file of links, or of a folder with `edges` and perhaps `nodes`."""
    edges, nodes = path, None
    if path.is_dir():
        edges, nodes = find_split(path, "edges") or path, find_split(path, "nodes")
    names, x = None, None
    if nodes is not None:
        names, x, _ = read_features(nodes)
    edge_list = read_edge_list(edges)
    node_names, pairs = number_nodes({"edges": edge_list}, names, nodes)
    num_nodes = len(node_names)
    links, repeated, loops = distinct_links(pairs["edges"], num_nodes, is_directed=directed)
    _logger.info("%s: %d repeated links and %d of a node with itself dropped", edges, repeated, loops)
    if not links.shape[0]:
        raise UsageError(f"{edges}: holds no link between two nodes")
    none = LinkSplit(links[:0], links[:0])
    are_numbers = list(node_names) == [str(number) for number in range(num_nodes)]
    return LinkGraph(
        path.resolve().name,
        num_nodes,
        links,
        none,
        none,
        x=x,
        is_directed=directed,
        node_names=() if are_numbers else node_names,
    )
