"""Download a data set of any kind by its name. Imports no torch, so that it runs on a login node."""

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
    """Download every missing file of a data set, for instance on a login node before a job without a network.

    Args:
        name: A name of `list_knowledge_graphs`, `list_node_graphs` or `list_link_graphs`.
        root: Data root; None takes GRAPHZOO_DATA or the user's cache folder.

    Returns:
        The folder of the files. For an inductive pair it is that of the training graph, for links that of the
        split.

    Raises:
        UsageError: if the name is unknown, or the data need no download.
        DataError: if an archive is damaged or cannot be unpacked.
        DownloadError: if a file is neither there nor can be fetched.
    """
    if normalise(name) in ("kg", "links", "nodes"):
        raise UsageError(f"data {name} stands for your own files: there is nothing to download")
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
    """Fetch the files that have a public address; return the folder of the split, else of the graph."""
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
    """Fetch the files of a data set and return its folder; the files may be in subfolders of it."""
    path, place = next(iter(provide_source_files(source, root=root).items()))
    return place.parents[path.count("/")]
