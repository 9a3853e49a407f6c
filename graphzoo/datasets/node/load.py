"""Load a NodeGraph of the table by name: find or fetch its files, verify, parse and count."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from graphzoo.datasets.files.cache import remember
from graphzoo.datasets.files.provide import check_hashes, provide_source_files
from graphzoo.datasets.files.sources import refuse_counts
from graphzoo.datasets.node.build import Parsed
from graphzoo.datasets.node.graph import NodeGraph
from graphzoo.datasets.node.knn import METRICS, knn_graph
from graphzoo.datasets.node.table import NodeSource, find_node_source
from graphzoo.errors import UsageError, check_choice, check_whole

_log = logging.getLogger(__name__)


def load_node_graph(
    name: str,
    *,
    root: str | os.PathLike[str] | None = None,
    download: bool | None = None,
    num_neighbors: int | None = None,
    neighbor_metric: str = "euclidean",
) -> NodeGraph:
    """A graph of the table, by name.

    Args:
        name: A name of `list_node_graphs`.
        root: Data root; None takes GRAPHZOO_DATA or the user's cache folder.
        download: Whether a missing file may be fetched; None means yes unless GRAPHZOO_OFFLINE is set.
        num_neighbors: Only for data without a graph (digits, 20news, mini-imagenet): the number of nearest
            neighbours that each point is joined to, including itself. None takes 5; 0 makes no edges.
        neighbor_metric: Distance between these points, "euclidean" (as in NodeFormer) or "cosine".

    Returns:
        The graph with its fixed splits; undirected edges in both directions.

    Raises:
        UsageError: if the name or metric is unknown, or `num_neighbors` or `neighbor_metric` is given for
            data that have a graph.
        DataError: if files are missing or damaged, or are not this data set.
    """
    source = find_node_source(name)
    if num_neighbors is not None and not source.num_neighbors:
        raise UsageError(
            f"num_neighbors makes a graph of nearest neighbours; {source.name} has a graph of its own"
        )
    if neighbor_metric != "euclidean" and not source.num_neighbors:
        raise UsageError(f"neighbor_metric is for data without a graph; {source.name} has a graph of its own")
    check_whole(at_least=0, num_neighbors=num_neighbors)
    check_choice("neighbor_metric", neighbor_metric, METRICS)
    k = source.num_neighbors if num_neighbors is None else num_neighbors
    files = provide_source_files(source, root=root, download=download)

    def parse() -> tuple[NodeGraph, list[str]]:
        return _parse(source, files, k, neighbor_metric), []

    purpose = f"{source.name}\n{source.reader}\n{source.counts}\n{k} {neighbor_metric}\n{sorted(files)}"
    return remember(list(files.values()), purpose, NodeGraph, parse)


def _parse(source: NodeSource, files: Mapping[str, Path], num_neighbors: int, metric: str) -> NodeGraph:
    check_hashes(source, files)
    module, function = source.reader.split(".")
    parsed: Parsed = getattr(import_module(f"graphzoo.datasets.node.{module}"), function)(files)
    if num_neighbors:
        parsed.edge_index = knn_graph(parsed.x, num_neighbors, metric)
    listed = parsed.edge_index.size(1)
    graph, notices = parsed.to_graph(source.name, metric=source.metric, default_split=source.default_split)
    for notice in notices:
        # Repeats and the like are part of the published data: they are logged, without a warning.
        _log.info("%s: %s", source.name, notice)
    counts = source.counts
    counted = {
        "nodes": (graph.num_nodes, counts.nodes),
        "features": (graph.x.size(1), counts.features),
        "classes": (graph.num_classes, counts.classes),
        "listed edges": (listed, counts.listed),
        "edges": (graph.num_edges, counts.edges),
    }
    folder = next((str(path.parent) for path in files.values()), source.name)
    refuse_counts(folder, source.name, counted, own="nodes")
    return graph
