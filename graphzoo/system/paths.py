"""Paths in messages, and the existing folder above a path."""

from __future__ import annotations

import os
import shlex
from pathlib import Path


def existing_parent(path: str | os.PathLike[str]) -> str:
    """The nearest existing folder above `path`, which must be writable to create `path`."""
    folder = os.path.abspath(path)
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):  # a drive may not exist
        folder = os.path.dirname(folder)
    return folder


def relative(path: Path) -> Path:
    """The path relative to the current folder, for messages; unchanged if it is not below it."""
    try:
        return path.absolute().relative_to(Path.cwd())
    except ValueError:
        return path


def typed(path: Path) -> str:
    """The path, quoted for a shell command that can be copied from a message.

    >>> typed(Path("my runs/one"))
    "'my runs/one'"
    """
    return shlex.quote(str(relative(path)))
