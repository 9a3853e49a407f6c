"""Data sets by name: fetched, whatever their kind."""

from __future__ import annotations

import os
from pathlib import Path

from graphzoo.datasets.kg.files import provide
from graphzoo.datasets.kg.table import find_source, list_knowledge_graphs
from graphzoo.datasets.link.table import list_link_graphs
from graphzoo.datasets.node.table import list_node_graphs
from graphzoo.errors import UsageError, normalise, suggestion

__all__ = ["download"]


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
    # imported here: these modules fetch with the functions of this one
    from graphzoo.datasets.link.files import download_link_files
    from graphzoo.datasets.node.files import download_node_files

    if normalise(name) in map(normalise, list_node_graphs()):
        return download_node_files(name, root=root)
    if normalise(name) in map(normalise, list_link_graphs()):
        return download_link_files(name, root=root)
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
