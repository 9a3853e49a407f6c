"""The graph whose nodes are labelled at prediction time, and where it comes from."""

from __future__ import annotations

from pathlib import Path

from graphzoo.datasets import NodeGraph, load_node_graph, node_graph_from_files
from graphzoo.inference.sources import Paths, from_source, stored

__all__ = ["NodeGraphSource", "load_node_source", "stored_node_graph"]

NodeGraphSource = NodeGraph | Paths
"""A graph, files as `--data nodes --data.path` takes them, or the name of a data set."""


def stored_node_graph(run: Path) -> NodeGraph:
    """The graph of a run: its copy, or for a large one the data set or the files it was read from.

    Raises:
        UsageError: if these are gone, or are not what they were.
    """
    return stored(
        run,
        NodeGraph.load,
        lambda meta: node_graph_from_files(meta["path"]),
        lambda meta, root: load_node_graph(meta["name"], root=root, num_neighbors=meta["num_neighbors"]),
    )


def load_node_source(source: NodeGraphSource) -> NodeGraph:
    """The graph of a source.

    Raises:
        UsageError: if there is nothing there.
        DataError: if a file is malformed.
    """
    if isinstance(source, NodeGraph):
        return source
    return from_source(
        source,
        load_node_graph,
        lambda paths: node_graph_from_files(paths[0] if len(paths) == 1 else paths, require_labels=False),
    )
