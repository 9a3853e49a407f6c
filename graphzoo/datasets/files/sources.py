"""What a table of data sets says of the files of one. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Protocol, TypeVar

from graphzoo.errors import UsageError, normalise, suggestion

__all__ = ["Archive", "DataFile", "FileSource", "find_row", "read_facts"]


@dataclass(frozen=True)
class DataFile:
    """A file of a data set.

    Args:
        path: Below the folder of the data set.
        urls: Addresses, tried in order; none for a member of the data set's archive.
        alternatives: Suffixes that may stand in place of the path's own in a file put by hand.
        optional: Whether the data set can be read without it; it is never fetched for its own sake.
    """

    path: str
    urls: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    optional: bool = False


@dataclass(frozen=True)
class Archive:
    """A zip archive that holds all files of a data set.

    Args:
        url: Its address.
        prefix: What the files' paths begin with inside.
        num_bytes: About its size.
    """

    url: str
    prefix: str
    num_bytes: int


class FileSource(Protocol):
    """What a row of a table says of its files."""

    @property
    def name(self) -> str:
        """Name on the command line."""

    @property
    def folder(self) -> str:
        """Folder below the data root."""

    @property
    def files(self) -> tuple[DataFile, ...]:
        """What is read."""

    @property
    def archive(self) -> Archive | None:
        """What the files are fetched in, None if each has its own address."""

    @property
    def note(self) -> str:
        """What a user should know."""

    def facts(self, file: DataFile) -> tuple[str | None, int]:
        """sha256 (None if unknown) and size in bytes (0 if unknown) of a file."""


class _Named(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def folder(self) -> str: ...


_Row = TypeVar("_Row", bound=_Named)


def find_row(rows: Sequence[_Row], name: str, *, kind: str, own: str, folders: bool = False) -> _Row:
    """The row of a data set; case, `-` and `_` do not matter.

    Args:
        rows: The table.
        name: As typed.
        kind: What the rows are, for the message.
        own: The preset for files of the user's own.
        folders: Whether the name of a row's folder will do.

    Raises:
        UsageError: (a ValueError) if there is none; the message names the nearest.
    """
    # a row's name goes before the folder of another
    known = {normalise(row.folder): row for row in rows} if folders else {}
    known |= {normalise(row.name): row for row in rows}
    if normalise(name) in known:
        return known[normalise(name)]
    names = [row.name for row in rows]
    hint = suggestion(name, names) or f"Known: {', '.join(names)}, or {own} with a path of your own."
    raise UsageError(f"unknown {kind} {name!r}. {hint}")


@cache
def read_facts(package: str, file: str) -> dict[str, dict[str, Any]]:
    """Check sums and sizes of files, from a JSON file beside a table."""
    facts: dict[str, dict[str, Any]] = json.loads(
        resources.files(package).joinpath(file).read_text(encoding="utf-8")
    )
    return facts
