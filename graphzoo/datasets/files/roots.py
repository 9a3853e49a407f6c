"""The folders of data: an argument, GRAPHZOO_DATA or the user's cache folder. Standard library only."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_root() -> Path:
    """The user's cache folder of graphzoo, which is separate from any shared data root."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "graphzoo"


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder with `kg/<Name>/...`: the argument, else GRAPHZOO_DATA, else the user's cache folder."""
    return Path(root or os.environ.get("GRAPHZOO_DATA") or cache_root() / "data").expanduser()


def is_offline() -> bool:
    """Whether GRAPHZOO_OFFLINE forbids the network."""
    return os.environ.get("GRAPHZOO_OFFLINE", "").lower() not in ("", "0", "false", "no")
