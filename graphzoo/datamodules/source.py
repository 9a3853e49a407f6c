"""Where a DataModule's data comes from, whether it is there yet, and what a run writes down of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from graphzoo.errors import UsageError
from graphzoo.system.files import write_atomically

__all__ = ["absolute", "check_source", "loaded", "write_meta"]

_Part = TypeVar("_Part")


def check_source(
    name: str | None, path: str | list[str] | None, *, own: str, default: str, what: str, files: str
) -> str:
    """The name of the data that `name` and `path` stand for.

    Args:
        name: Name of a data set, `own`, or None.
        path: The user's own files, or None.
        own: Name that stands for own files.
        default: Data set taken when neither is given.
        what: What own files hold, for the message: "triples", "graph".
        files: What `path` may be, for the message: "FILE", "FOLDER_OR_FILES".

    Returns:
        `own` with a path, else the name of the data set as it was given.

    Raises:
        UsageError: if both a data set and own files are given, or `own` without files.

    >>> check_source(None, None, own="nodes", default="cora", what="graph", files="FILE")
    'cora'
    """
    is_own = name is not None and name.lower() == own
    if path is not None and name is not None and not is_own:
        raise UsageError(
            f"both the data set name={name!r} and your own path={path!r} are given\n"
            f"Drop one of them: --data {own} --data.path {files} for your own {what} (name={own!r} in Python)"
        )
    if path is None and is_own:
        raise UsageError(f"name={own!r} means your own {what}; give path={files} (--data.path ...)")
    return own if path is not None else name or default


def loaded(part: _Part | None) -> _Part:
    """What a DataModule's `setup` made.

    Raises:
        RuntimeError: if it has not run yet.
    """
    if part is None:
        raise RuntimeError("the data is not loaded; call setup() first")
    return part


def absolute(path: str | list[str] | None) -> list[str] | None:
    """Own files as they are found from anywhere."""
    paths = [path] if isinstance(path, str) else path
    return None if paths is None else [str(Path(part).absolute()) for part in paths]


def write_meta(directory: Path, meta: dict[str, Any]) -> None:
    """Write meta.json, which says what the files beside it are."""
    text = json.dumps(meta, indent=1, ensure_ascii=False) + "\n"
    write_atomically(directory / "meta.json", lambda file: file.write(text.encode()))
