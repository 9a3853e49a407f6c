"""Fetching the files of a graph with node labels, for instance on a login node. No torch."""

from __future__ import annotations

import os
from pathlib import Path

from graphzoo.datasets.files.provide import provide_source_files
from graphzoo.datasets.node.table import find_node_source
from graphzoo.errors import UsageError

__all__ = ["download_node_files"]


def download_node_files(name: str, *, root: str | os.PathLike[str] | None = None) -> Path:
    """Fetch every missing file of a data set; returns its folder.

    Raises:
        ValueError: unknown name, or data that a dependency brings along.
        DownloadError: a file can neither be found nor fetched.
    """
    source = find_node_source(name)
    if not source.files:
        reason = source.note or "a dependency brings it along"
        raise UsageError(f"data {source.name}: {reason}: there is nothing to download")
    files = provide_source_files(source, root=root)
    path, place = next(iter(files.items()))
    # the folder of the data set may hold its files in folders of its own
    return place.parents[path.count("/")]
