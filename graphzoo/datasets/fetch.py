"""Find the files of a data set below the data root."""

from __future__ import annotations

import os
from pathlib import Path

from graphzoo.datasets.errors import DownloadError
from graphzoo.datasets.roots import data_root
from graphzoo.datasets.table import KGSource

__all__ = ["provide"]


def provide(
    source: KGSource,
    folder: str,
    *,
    root: str | os.PathLike[str] | None = None,
    download: bool | None = None,
) -> dict[str, Path]:
    """The split files of a folder."""
    base = data_root(root) / "kg" / folder
    files = {}
    for split in ("train", "valid", "test"):
        found = [path for path in (base / f"{split}.txt", base / f"{split}.txt.gz") if path.is_file()]
        if not found:
            raise DownloadError(f"{base / split}.txt: not there; put {source.name} there or set GRAPHZOO_DATA")
        files[split] = found[0]
    return files
