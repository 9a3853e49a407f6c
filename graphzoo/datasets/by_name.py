"""Data sets by name: fetched, whatever their kind. No torch, so that a login node can fetch."""

from __future__ import annotations

import os
from pathlib import Path

from graphzoo.datasets.files.provide import provide_source_files
from graphzoo.datasets.files.sources import FileSource
from graphzoo.datasets.kg.files import provide
from graphzoo.datasets.kg.table import find_source, list_knowledge_graphs
from graphzoo.datasets.link.table import find_link_source, list_link_graphs
from graphzoo.datasets.node.table import find_node_source, list_node_graphs
from graphzoo.errors import UsageError, normalise, suggestion


def download(name: str, root: str | os.PathLike[str] | None = None) -> Path:
    """Fetch every missing file of a data set now, for instance on a login node.

    Args:
        name: See `list_knowledge_graphs`, `list_node_graphs` and `list_link_graphs`.
        root: Data root; None takes GRAPHZOO_DATA or the user's cache folder.

    Returns:
        The folder that holds the files (of the training graph for an inductive pair, of the split for links).

    Raises:
        ValueError: unknown name, or data that need no download.
        DownloadError: a file can neither be found nor fetched.
    """
    if normalise(name) in ("kg", "links", "nodes"):
        raise UsageError(f"data {name} means your own files: there is nothing to download")
    if normalise(name) in map(normalise, list_node_graphs()):
        return _download_nodes(name, root)
    if normalise(name) in map(normalise, list_link_graphs()):
        return _download_links(name, root)
    try:
        source = find_source(name)
    except UsageError as error:
        names = [*list_node_graphs(), *list_link_graphs(), *list_knowledge_graphs()]
        hint = suggestion(name, names) or f"Known: {', '.join(names)}."
        raise UsageError(f"unknown data set {name!r}. {hint}") from error
    if source.embedded:
        return Path(__file__).resolve().parents[1] / "data" / source.name
    if source.inductive is not None:
        provide(source, source.inductive, root=root)
    return provide(source, source.folder, root=root)["train"].parent


def _download_nodes(name: str, root: str | os.PathLike[str] | None) -> Path:
    source = find_node_source(name)
    if not source.files:
        reason = source.note or "a dependency brings it along"
        raise UsageError(f"data {source.name}: {reason}: there is nothing to download")
    return _folder_of(source, root)


def _download_links(name: str, root: str | os.PathLike[str] | None) -> Path:
    """The files that have a public address; the folder is that of the split, else that of the graph."""
    source = find_link_source(name)
    graph = _download_nodes(source.node_graph, root) if source.node_graph else None
    split, _ = (
        _folder_of(part, root)
        if part.files and (part.archive is not None or all(file.urls for file in part.files))
        else None
        for part in (source, source.heart)
    )
    folder = split or graph
    assert folder is not None, f"{name} has neither a graph nor files with an address"
    return folder


def _folder_of(source: FileSource, root: str | os.PathLike[str] | None) -> Path:
    """The folder of a data set, which may hold its files in folders of its own, once all are there."""
    path, place = next(iter(provide_source_files(source, root=root).items()))
    return place.parents[path.count("/")]
