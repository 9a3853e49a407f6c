"""The graph whose nodes are labelled at prediction time, and where it comes from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from graphzoo.datasets import NodeGraph, load_node_graph, node_graph_from_files
from graphzoo.errors import UsageError

__all__ = ["NodeGraphSource", "load_node_source", "stored_node_graph"]

NodeGraphSource = NodeGraph | str | PathLike[str] | Sequence[str | PathLike[str]]
"""A graph, files as `--data nodes --data.path` takes them, or the name of a data set."""


def stored_node_graph(run: Path) -> NodeGraph:
    """The graph of a run: its copy, or for a large one the data set or the files it was read from.

    Raises:
        UsageError: if these are gone, or are not what they were.
    """
    folder = run / "graph"
    meta: dict[str, Any] = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    if meta["graph"] is not None:
        return NodeGraph.load(folder / meta["graph"])
    place = ", ".join(meta["path"]) if meta["path"] is not None else f"data set {meta['name']}"
    try:
        if meta["path"] is not None:
            graph = node_graph_from_files(meta["path"])
        else:
            # A data root that is not there (any more) must not be made.
            root = meta.get("root")
            root = root if root is not None and Path(root).is_dir() else None
            graph = load_node_graph(meta["name"], root=root, num_neighbors=meta["num_neighbors"])
    except UsageError as error:
        raise UsageError(
            f"{run}: its graph is large and was not copied; reading it again from {place} failed:\n{error}"
        ) from error
    if graph.fingerprint != meta["graph_fingerprint"]:
        raise UsageError(
            f"{run}: {place} is not the graph that the run was trained on (fingerprint "
            f"{graph.fingerprint[:12]}, there {meta['graph_fingerprint'][:12]})\n"
            "To predict on it all the same, give it as another graph: data= or --data.path"
        )
    return graph


def load_node_source(source: NodeGraphSource) -> NodeGraph:
    """The graph of a source.

    Raises:
        UsageError: if there is nothing there.
        DataError: if a file is malformed.
    """
    if isinstance(source, NodeGraph):
        return source
    paths = [source] if isinstance(source, str | PathLike) else list(source)
    if len(paths) == 1 and not Path(paths[0]).exists():
        try:
            return load_node_graph(str(paths[0]))
        except ValueError as error:
            raise UsageError(
                f"{paths[0]}: neither a path nor a data set that can be loaded ({error})"
            ) from error
    return node_graph_from_files(paths[0] if len(paths) == 1 else paths, require_labels=False)
