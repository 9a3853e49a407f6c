"""From a name of the table to a NodeGraph: find or fetch the files, verify, parse, check the counts."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path

from graphzoo.datasets.errors import DataError
from graphzoo.datasets.fetch import RemoteFile, provide_files
from graphzoo.datasets.node.build import Parsed, tidy_edges
from graphzoo.datasets.node.graph import NodeGraph
from graphzoo.datasets.node.table import Counts, NodeSource, find_node_source
from graphzoo.datasets.verify import verify_sha256

__all__ = ["load_node_graph", "provide_node_files"]

_log = logging.getLogger(__name__)


def load_node_graph(
    name: str,
    *,
    root: str | os.PathLike[str] | None = None,
    download: bool | None = None,
    num_neighbors: int | None = None,
) -> NodeGraph:
    """A graph of the table, by name.

    Args:
        name: See `list_node_graphs`.
        root: Data root; None takes GRAPHZOO_DATA or the user's cache.
        download: Whether a missing file may be fetched; None means yes unless GRAPHZOO_OFFLINE is set.
        num_neighbors: For data without a graph (digits, 20news, mini-imagenet): neighbours of every node,
            itself included; 0 for no edges, None for the customary 5.

    Returns:
        The graph with its fixed splits; undirected edges in both directions.

    Raises:
        ValueError: unknown name, or `num_neighbors` for data that has a graph.
        DataError: missing or damaged files, or files that are not this data set.
    """
    source = find_node_source(name)
    files = provide_node_files(source, root=root, download=download)
    return _parse(source, files)


def provide_node_files(
    source: NodeSource, *, root: str | os.PathLike[str] | None = None, download: bool | None = None
) -> dict[str, Path]:
    """Where each file of a data set lies, by its path below the folder; fetched if need be."""
    wanted = []
    for file in source.files:
        sha256, num_bytes = source.facts(file)
        wanted.append(RemoteFile(file.path, file.urls, partial(verify_sha256, sha256=sha256), num_bytes))
    return provide_files(source.name, source.folder, wanted, root=root, download=download)


def _parse(source: NodeSource, files: Mapping[str, Path]) -> NodeGraph:
    _check_hashes(source, files)
    module, function = source.reader.split(".")
    parsed: Parsed = getattr(import_module(f"graphzoo.datasets.node.{module}"), function)(files)
    edge_index, notices = tidy_edges(parsed.edge_index, parsed.x.size(0))
    for notice in [*parsed.notices, *notices]:
        # oddities of published data are part of it: logged, not warned of
        _log.info("%s: %s", source.name, notice)
    found = Counts(parsed.x.size(0), edge_index.size(1), parsed.x.size(1), len(parsed.class_names))
    if found != source.counts:
        raise DataError(
            f"{source.name}: the files give {found}, it has {source.counts}\n"
            "  if it is another version on purpose, load it as your own data (name nodes, with a path)"
        )
    return NodeGraph(
        name=source.name,
        x=parsed.x,
        edge_index=edge_index,
        y=parsed.y,
        class_names=parsed.class_names,
        node_names=parsed.node_names,
        splits=parsed.splits,
        metric=source.metric,
        default_split=source.default_split,
    )


def _check_hashes(source: NodeSource, files: Mapping[str, Path]) -> None:
    """Nothing is parsed, least of all a pickle, before its bytes are known to be right."""
    for file in source.files:
        sha256, _ = source.facts(file)
        if sha256 is None or file.archive:
            continue
        with files[file.path].open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != sha256:
            raise DataError(
                f"{files[file.path]}: content differs from {source.name} (sha256 {found[:16]}..., expected "
                f"{sha256[:16]}...)\n  delete it to fetch it again"
            )
