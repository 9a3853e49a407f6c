"""Paths as messages show them, and where they can be made."""

from __future__ import annotations

import os
import shlex
from pathlib import Path


def existing_parent(path: str | os.PathLike[str]) -> str:
    """The nearest folder above `path` that exists: what has to be writable for `path` to be made."""
    folder = os.path.abspath(path)
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):  # a drive may not be there
        folder = os.path.dirname(folder)
    return folder


def relative(path: Path) -> Path:
    """The path as seen from the current folder, for messages; unchanged when it lies elsewhere."""
    try:
        return path.absolute().relative_to(Path.cwd())
    except ValueError:
        return path


def typed(path: Path) -> str:
    """The path as a command that is copied from a message has to spell it.

    >>> typed(Path("my runs/one"))
    "'my runs/one'"
    """
    return shlex.quote(str(relative(path)))
