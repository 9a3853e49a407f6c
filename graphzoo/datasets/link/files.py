"""Fetching the files of a graph whose links are predicted, for instance on a login node. No torch."""

from __future__ import annotations

import os
from pathlib import Path

from graphzoo.datasets.files.provide import provide_source_files
from graphzoo.datasets.link.table import LinkSource, find_link_source
from graphzoo.datasets.node.files import download_node_files

__all__ = ["download_link_files"]


def download_link_files(name: str, *, root: str | os.PathLike[str] | None = None) -> Path:
    """Fetch every missing file of a data set that has a public address; returns the folder of its split.

    Raises:
        ValueError: unknown name.
        DownloadError: a file can neither be found nor fetched.
    """
    source = find_link_source(name)
    folder = None
    if source.node_graph:
        folder = download_node_files(source.node_graph, root=root)
    for part in (source, source.heart):
        if part.files and _has_address(part):
            paths = provide_source_files(part, root=root)
            if part is source:
                path, file = next(iter(paths.items()))
                folder = file.parents[path.count("/")]
    assert folder is not None, f"{name} has neither a graph nor files with an address"
    return folder


def _has_address(source: LinkSource) -> bool:
    return source.archive is not None or all(file.urls for file in source.files)
