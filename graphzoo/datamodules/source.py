"""Where a DataModule's data comes from, a data set by its name or own files, and whether it is there yet."""

from __future__ import annotations

from typing import TypeVar

from graphzoo.errors import UsageError

__all__ = ["check_source", "loaded"]

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
